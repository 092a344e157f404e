"""The lines of powermetrics' text: which keys belong to which section, and what form their values have.

Lines mean something only inside their section, so a process that happens to be called "GPU Power: 5 mW" in the task
table is never read as a rail.
"""

from __future__ import annotations

import re
from datetime import date
from functools import lru_cache
from typing import NamedTuple

STAMP = re.compile(rb"\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4} [+-]\d{4}")
HEADER = re.compile(
    rb"\*\*\* (?P<kind>Sampled|Summary) system activity "
    rb"\((?P<stamp>" + STAMP.pattern + rb")\) "
    rb"(?:\((?P<elapsed>\d+(?:\.\d*)?) ?ms elapsed\) )?\*\*\*"
)
_NUMBER = rb" *(\d+(?:\.\d*)?|\.\d+|nan)"
VALUE = {
    "MHz": re.compile(_NUMBER + rb" ?MHz"),
    "%": re.compile(_NUMBER + rb"%(?: \(.*\))?"),
    "mW": re.compile(_NUMBER + rb" ?mW"),
    "W": re.compile(_NUMBER + rb" ?W"),
}
ENDINGS = {"MHz": (b" MHz",), "%": (b"%)", b"%"), "mW": (b" mW",), "list": (b"%)", b")")}
_NAMES = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTHS = {name: number for number, name in enumerate(_NAMES, 1)}
PREAMBLE = {b"Machine model", b"SMC version", b"EFI version", b"OS version", b"Boot arguments", b"Boot time"}
_RAILS = {
    b"CPU Power": "cpu_mW",
    b"GPU Power": "gpu_mW",
    b"ANE Power": "ane_mW",
    b"DRAM Power": "dram_mW",
    b"Package Power": "package_mW",
    b"Combined Power (CPU + GPU + ANE)": "combined_mW",
}
_INTEL_POWER = b"Intel energy model derived package power (CPUs+GT+SA)"
_GPU = {
    b"active frequency": ("gpu_freq_MHz", "MHz"),
    b"active residency": ("gpu_active_pct", "%"),
    b"idle residency": ("gpu_idle_pct", "%"),
    b"Power": ("gpu_section_mW", "mW"),
    b"SW requested state": ("", "list"),
    b"SW state": ("", "list"),
    b"requested frequency": ("", "list"),
}
_CLUSTER = {
    b"active frequency": ("freq_MHz", "MHz"),
    b"active residency": ("active_pct", "%"),
    b"Online": ("", "%"),
    b"idle residency": ("", "%"),
    b"down residency": ("", "%"),
    b"Power": ("", "mW"),
    b"SW requested overall frequency": ("", "MHz"),
    b"average core count": ("", "any"),
    b"instructions retired": ("", "any"),
    b"instructions per clock": ("", "any"),
}
_CLUSTER_KEY = re.compile(rb"(\w+)-Cluster (?:HW )?(.+)")
_CORE_KEY = re.compile(rb"[Cc][Pp][Uu] (\d+) (.+)")
_INTEL_KEY = re.compile(
    rb"LLC flushed residency|System (Average frequency as fraction of nominal|instructions .*)|"
    rb"Package \d+ C-state residency|Core \d+ C-state residency|Performance Limited Due to|CPU/GPU Overlap|"
    rb"Cores Active|GPU Active|Avg Num of Cores Active|CPU Average frequency as fraction of nominal|"
    rb"Clusters Total Power"
)
LIMIT = re.compile(rb"[A-Z]+ LIMIT [A-Z0-9_/ ]+")


class Known(NamedTuple):
    """What a key stands for. column: where its value goes, "" if nowhere. unit: MHz, %, mW, W, level, list or any."""

    column: str
    unit: str
    cluster: str = ""
    core: int = -1


@lru_cache(maxsize=4096)
def known_key(section: bytes, key: bytes) -> Known | None:
    """What `key` means in a section: Processor, GPU or Thermal; None if it does not belong there."""
    if key in PREAMBLE:
        return Known("", "any")
    if section == b"Thermal pressure":
        return Known("thermal_pressure", "level") if key == b"Current pressure level" else None
    if section == b"GPU usage":
        found = _GPU.get(key.removeprefix(b"GPU ").removeprefix(b"HW ")) if key.startswith(b"GPU ") else None
        return Known(*found) if found else None
    if section == b"Processor usage":
        return _processor_key(key)
    return None


def _processor_key(key: bytes) -> Known | None:
    if key in _RAILS:
        return Known(_RAILS[key], "mW")
    if key == _INTEL_POWER:
        return Known("package_mW", "W")
    if m := _CLUSTER_KEY.fullmatch(key):
        name, (column, unit) = m[1].decode(), _CLUSTER.get(m[2], ("", ""))
        return Known(f"{name}_{column}" if column else "", unit, cluster=name) if unit else None
    if m := _CORE_KEY.fullmatch(key):
        if m[2] in (b"idle residency", b"down residency"):
            return Known("", "%")
        unit = {b"frequency": "MHz", b"active residency": "%"}.get(m[2])
        return Known("", unit or "any", core=int(m[1][:6]) if unit else -1)
    return Known("", "any") if _INTEL_KEY.fullmatch(key) else None


def is_strict(section: bytes) -> bool:
    """Whether every line of the section is known by name; the others (tasks, network ...) hold free text."""
    return section in (b"Processor usage", b"GPU usage", b"Thermal pressure")


def number(unit: str, rest: bytes) -> float | None:
    """The number after a key, in MHz, % or mW (watts become mW); NaN for `nan`; None where the text is torn."""
    m = VALUE[unit].fullmatch(rest)
    if not m:
        return None
    value = float(m[1])
    return round(value * 1000.0, 3) if unit == "W" else value


def ending(unit: str, rest: bytes) -> bytes | None:
    """The ending of a line of this unit, empty if it has no certain one; None where the line is torn."""
    if unit not in ENDINGS:
        return b""
    return next((e for e in ENDINGS[unit] if rest.endswith(e)), None)


def stamp_s(text: bytes) -> float:
    """Epoch seconds of a header's date such as `Fri Apr 17 00:57:21 2026 +0200`; NaN if no such moment exists."""
    _, month, day, clock, year, zone = text.decode("ascii", "replace").split()
    try:
        days = date(int(year), _MONTHS[month], int(day)).toordinal() - date(1970, 1, 1).toordinal()
    except (KeyError, ValueError):
        return float("nan")
    hour, minute, second = map(int, clock.split(":"))
    offset = (int(zone[1:3]) * 60 + int(zone[3:])) * (-60 if zone[0] == "-" else 60)
    return float(days * 86400 + hour * 3600 + minute * 60 + second - offset)
