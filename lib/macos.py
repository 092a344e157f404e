"""What macOS's own programs say of the machine's state: power, sleep, heat, memory. None: it was not said.

None of them needs root. Written from manual pages and published output, tested with stand-ins: not run on a Mac yet.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator

import psutil

from lib.finding import ERROR, OK, WARNING, Finding
from lib.machine import said

THERMAL_LEVEL = "com.apple.system.thermalpressurelevel"
THERMAL_NAMES = ("Nominal", "Moderate", "Heavy", "Trapping", "Sleeping")
MEMORY_NAMES = {"1": "normal", "2": "warning", "4": "critical"}


def power_settings() -> dict[str, str]:
    """`pmset -g`: the settings in use, name to value, such as {"sleep": "10", "Sleep On Power Button": "1"}.

    Minutes of 0 are "never". Empty if pmset does not answer.
    """
    lines = (said("pmset", "-g") or "").splitlines()
    found = [re.fullmatch(r"\s+(\S.*?)\s+(\S+)(?: \(.*\))?\s*", line) for line in lines]
    return {match[1]: match[2] for match in found if match}


def low_power_mode() -> bool | None:
    """Whether Low Power Mode is on. Macs with a High Power Mode say `powermode`, whose 1 is the low one; others
    `lowpowermode`. A Mac that names neither has none."""
    settings = power_settings()
    if not settings:
        return None
    return "1" in (settings.get("lowpowermode"), settings.get("powermode"))


def power_source() -> str | None:
    """`pmset -g batt`: "AC Power", "Battery Power" or "UPS Power"."""
    found = re.search(r"drawing from '([^']+)'", said("pmset", "-g", "batt") or "")
    return found[1] if found else None


def thermal_pressure() -> str | None:
    """Nominal, Moderate, Heavy, Trapping or Sleeping: the level that powermetrics prints, by notifyutil."""
    found = re.search(rf"{re.escape(THERMAL_LEVEL)} (\d+)$", said("notifyutil", "-g", THERMAL_LEVEL) or "")
    if not found:
        return None
    level = int(found[1])
    return THERMAL_NAMES[level] if level < len(THERMAL_NAMES) else f"level {level}"


def memory_pressure() -> str | None:
    """The kernel's own level of memory pressure: normal, warning or critical."""
    level = said("sysctl", "-n", "kern.memorystatus_vm_pressure_level")
    return MEMORY_NAMES.get(level, f"level {level}") if level else None


def memory_free_pct() -> int | None:
    """`memory_pressure -Q`: share of memory that is free or can be freed at once, percent."""
    found = re.search(r"free percentage: (\d+)%", said("memory_pressure", "-Q") or "")
    return int(found[1]) if found else None


def translated() -> bool:
    """Whether this Python is one for Intel, run by Rosetta on Apple silicon."""
    return said("sysctl", "-n", "sysctl.proc_translated") == "1"


def findings() -> Iterator[Finding]:
    """The checks of a Mac before a sweep, in order."""
    yield _mains()
    yield _low_power()
    yield _sleep()
    yield _heat()
    yield _memory()
    yield _clock()


def _mains() -> Finding:
    source = power_source()
    if source in (None, "AC Power"):
        return Finding(OK, "mains", "on mains power" if source else "no battery that pmset knows of")
    return Finding(WARNING, "mains", f"runs on {source}, which limits the clock", "plug it in")


def _low_power() -> Finding:
    on = low_power_mode()
    if on is None:
        return Finding(WARNING, "low power", "unknown: 'pmset -g' does not answer", "see System Settings, Energy")
    if on:
        return Finding(WARNING, "low power", "Low Power Mode is on, which limits the clock",
                       "turn it off in System Settings, Energy")  # fmt: skip
    return Finding(OK, "low power", "Low Power Mode is off")


def _sleep() -> Finding:
    minutes = {name: power_settings().get(setting) for name, setting in
               (("system", "sleep"), ("display", "displaysleep"))}  # fmt: skip
    said = ", ".join(f"{name} {_minutes(value)}" for name, value in minutes.items())
    if set(minutes.values()) == {"0"} or shutil.which("caffeinate"):
        return Finding(OK, "sleep", f"{said}; a sweep holds both off (caffeinate)")
    return Finding(WARNING, "sleep", f"{said}, and there is no caffeinate to hold it off",
                   "set both to never in System Settings")  # fmt: skip


def _minutes(value: str | None) -> str:
    return "unknown" if value is None else "never" if value == "0" else f"after {value} min"


def _heat() -> Finding:
    level = thermal_pressure()
    if level is None:
        return Finding(WARNING, "heat", "thermal pressure unknown: notifyutil does not say")
    if level == "Nominal":
        return Finding(OK, "heat", "thermal pressure Nominal")
    return Finding(WARNING, "heat", f"thermal pressure {level}: the chip is held back", "let it cool down first")


def _memory() -> Finding:
    level, free_pct = memory_pressure(), memory_free_pct()
    free = "" if free_pct is None else f", {free_pct} % free"
    if level is None:
        return Finding(WARNING, "memory", f"memory pressure unknown: sysctl does not say{free}")
    if level == "normal":
        return Finding(OK, "memory", f"memory pressure normal{free}")
    worst = ERROR if level == "critical" else WARNING
    return Finding(worst, "memory", f"memory pressure {level}{free}: a model would be swapped", "close programs")


def _clock() -> Finding:
    """Whether the clock's keeper runs: how well it keeps it, only root may ask."""
    if "timed" in {p.info["name"] for p in psutil.process_iter(["name"])}:
        return Finding(OK, "clock", "kept by timed; how well, only root may ask")
    return Finding(WARNING, "clock", "unknown: timed, which keeps it, does not run",
                   "turn on 'Set time and date automatically' in System Settings")  # fmt: skip
