"""Facts about this machine and this checkout, for the manifest. What cannot be known is None, never guessed."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
from importlib import metadata

import psutil

from lib.paths import ROOT

PACKAGES = ("httpx", "mlx", "mlx-lm", "numpy", "pandas", "psutil", "scipy", "xllamacpp")


def is_macos() -> bool:
    """Whether this is a Mac. Everything here asks this, so that tests with stand-ins have one place to say so."""
    return platform.system() == "Darwin"


def facts() -> dict:
    """Machine, chip, cores, memory (bytes), OS with build, Python, package versions, git commit, power supply."""
    return {
        "machine": said("sysctl", "-n", "hw.model") or platform.machine(),
        "chip": chip(),
        "cores": {"physical": psutil.cpu_count(logical=False), "logical": psutil.cpu_count()},
        "memory_bytes": memory_bytes(),
        "os": os_name(),
        "os_build": os_build(),
        "mains_power": _mains_power(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "git_commit": commit(),
    }


def chip() -> str | None:
    """The processor as the system calls it, for example "Apple M4"; None if the system does not say."""
    if is_macos():
        return said("sysctl", "-n", "machdep.cpu.brand_string")
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as f:
            names = [line.split(":", 1)[1].strip() for line in f if line.startswith("model name")]
    except OSError:
        return None
    return names[0] if names else None


def commit() -> str | None:
    """Commit of this checkout, with "+changes" when tracked files differ from it; None outside git."""
    head = said("git", "-C", str(ROOT), "rev-parse", "HEAD")
    if head is None:
        return None
    changed = said("git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no")
    return f"{head}+changes" if changed else head


def memory_bytes() -> int:
    """Physical memory in bytes."""
    told = said("sysctl", "-n", "hw.memsize") if is_macos() else None
    return int(told) if told and told.isdigit() else psutil.virtual_memory().total


def os_name() -> str:
    """Name and version of the system, for example "macOS 15.5"."""
    if is_macos():
        return f"macOS {said('sw_vers', '-productVersion') or platform.mac_ver()[0]}"
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return f"{platform.system()} {platform.release()}"


def os_build() -> str:
    """Build of macOS, such as "24F74"; elsewhere the kernel's release."""
    return said("sw_vers", "-buildVersion") or platform.release()


def _mains_power() -> bool | None:
    """True on mains, False on battery, None if the machine has no battery or does not say."""
    battery = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
    return battery.power_plugged if battery else None


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def children_cpu_s() -> float:
    """CPU seconds of all processes that this one started and that have ended, and of those that they waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def said(*command: str) -> str | None:
    """A program's standard output, stripped; None if the program is missing, fails, hangs or says nothing."""
    environment = os.environ | {"LC_ALL": "C"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=10, env=environment,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None
