"""One block of powermetrics' text: what each line is, and the values in it.

A block runs from its `*** Sampled` header to the next header. Lines mean something only inside their section, so a
process that happens to be called "GPU Power: 5 mW" in the task table is never read as a rail.
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
_TITLE = re.compile(rb"\*{3,4} +([^*]*[^* ]) +\*{3,4}")
_LINE = re.compile(rb"[^\n]+")
_NUMBER = rb" *(\d+(?:\.\d*)?|\.\d+|nan)"
_VALUE = {
    "MHz": re.compile(_NUMBER + rb" ?MHz"),
    "%": re.compile(_NUMBER + rb"%(?: \(.*\))?"),
    "mW": re.compile(_NUMBER + rb" ?mW"),
    "W": re.compile(_NUMBER + rb" ?W"),
}
_ENDINGS = {"MHz": (b" MHz",), "%": (b"%)", b"%"), "mW": (b" mW",), "list": (b"%)", b")")}
_MONTHS = {m: k for k, m in enumerate("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(), 1)}
_PREAMBLE = {b"Machine model", b"SMC version", b"EFI version", b"OS version", b"Boot arguments", b"Boot time"}
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
_LIMIT = re.compile(rb"[A-Z]+ LIMIT [A-Z0-9_/ ]+")


class Known(NamedTuple):
    """What a key stands for. column: where its value goes, "" if nowhere. unit: MHz, %, mW, W, level, list or any."""

    column: str
    unit: str
    cluster: str = ""
    core: int = -1


class Line(NamedTuple):
    """A line that fits the grammar: its bytes; for one with a value what it is, the length of its fixed head and the
    ending that it must have."""

    text: bytes
    known: Known | None = None
    head: int = 0
    ending: bytes = b""


class Odd(NamedTuple):
    """Something that does not belong: kind is "unknown line", "torn line" or "repeated line"."""

    kind: str
    offset: int
    text: bytes


class Block(NamedTuple):
    """values: column to number, missing where absent or torn. lines: those that fit, in order, blank ones too, from
    the rest of the header line on. keys: known keys in order,
    without those of a machine header that follows the block. sections: titles in order. plain: whether all lines
    are of the strict grammar, and a blank one ends it, so that only numbers differ in
    the blocks of its kind."""

    values: dict[str, float]
    thermal: str | None
    cluster_from_cores: str | None
    sections: list[bytes]
    keys: list[bytes]
    odd: list[Odd]
    lines: list[Line]
    plain: bool


@lru_cache(maxsize=4096)
def known_key(section: bytes, key: bytes) -> Known | None:
    """What `key` means in a section: Processor, GPU or Thermal; None if it does not belong there."""
    if key in _PREAMBLE:
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
    m = _VALUE[unit].fullmatch(rest)
    if not m:
        return None
    value = float(m[1])
    return round(value * 1000.0, 3) if unit == "W" else value


def ending(unit: str, rest: bytes) -> bytes | None:
    """The ending of a line of this unit, empty if it has no certain one; None where the line is torn."""
    if unit not in _ENDINGS:
        return b""
    return next((e for e in _ENDINGS[unit] if rest.endswith(e)), None)


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


def last_key(block: Block) -> tuple[bytes, int]:
    """The key of a block's last line and how often it stands in the block."""
    return (block.keys[-1], block.keys.count(block.keys[-1])) if block.keys else (b"", 0)


def parse(text: bytes) -> Block:
    """The Block in `text`, which starts just after its header line.

    A last line without a newline counts only if its unit stands at its end, so a number cut in the middle is never
    read. Raises nothing: what does not fit is listed in `odd`.
    """
    return _Parse(text).block()


class _Parse:
    def __init__(self, text: bytes):
        self.text, self.section = text, b""
        self.values: dict[str, float] = {}
        self.level: str | None = None
        self.cluster = ""
        self.cores: dict[str, dict[int, dict[str, bytes]]] = {}
        self.seen: set[tuple[bytes, bytes]] = set()
        self.sections: list[bytes] = []
        self.keys: list[bytes] = []
        self.odd: list[Odd] = []
        self.lines: list[Line] = []
        self.plain = True

    def block(self) -> Block:
        end = 0
        for m in _LINE.finditer(self.text):
            self.lines.extend([Line(b"")] * (m.start() - end))
            end = m.end() + 1
            self._line(m[0].rstrip(b"\r"), m.start(), ended=m.end() < len(self.text))
        self.lines.extend([Line(b"")] * (len(self.text) - end))
        names = self._clusters_from_cores()
        plain = self.plain and not self.odd and self.text.endswith(b"\n\n")
        return Block(self.values, self.level, names, self.sections, self.keys, self.odd, self.lines, plain)

    def _line(self, line: bytes, offset: int, ended: bool) -> None:
        if line[:1] == b"*" and (m := _TITLE.fullmatch(line)) and ended:
            self.section = m[1]
            self.sections.append(m[1])
            self.lines.append(Line(line))
            return
        key, colon, rest = line.partition(b":")
        known = known_key(self.section, key) if colon and len(key) < 80 else None
        if known:
            self._known(line, offset, ended, key, rest, known)
        elif (not is_strict(self.section) and self.section) or _LIMIT.fullmatch(line) or not line.strip():
            self.lines.append(Line(line))
            self.plain = False
        else:
            self.odd.append(Odd("unknown line", offset, line[:80]))

    def _known(self, line: bytes, offset: int, ended: bool, key: bytes, rest: bytes, known: Known) -> None:
        place = (self.section, key)
        if place in self.seen and known.unit != "any":
            self.odd.append(Odd("repeated line", offset, line[:80]))
            return
        if not (ended or known.unit in _VALUE or known.unit == "list") or not self._store(known, rest):
            self.odd.append(Odd("torn line", offset, line[:80]))
            return
        self.seen.add(place)
        if key not in _PREAMBLE:
            self.keys.append(key)
        self._remember(line, key, rest, known)

    def _remember(self, line: bytes, key: bytes, rest: bytes, known: Known) -> None:
        if known.unit == "level" or key in _PREAMBLE:
            self.lines.append(Line(line))
            return
        self.plain &= known.unit in _ENDINGS
        self.lines.append(Line(line, known, len(key) + 1, ending(known.unit, rest) or b""))

    def _store(self, known: Known, rest: bytes) -> bool:
        if known.cluster:
            self.cluster = known.cluster
        if known.unit == "level":
            self.level = rest.strip().decode("ascii", "replace")[:40]
            return bool(self.level)
        if known.column:
            value = number(known.unit, rest)
            if value is not None:
                self.values[known.column] = value
            return value is not None
        if known.core >= 0 and self.cluster:
            self.cores.setdefault(self.cluster, {}).setdefault(known.core, {})[known.unit] = rest
        return ending(known.unit, rest) is not None

    def _clusters_from_cores(self) -> str | None:
        names = [name for name in self.cores if self._is_zero(name) and self._from_cores(name)]
        return ",".join(names) or None

    def _is_zero(self, name: str) -> bool:
        return self.values.get(f"{name}_freq_MHz") == 0 and self.values.get(f"{name}_active_pct") == 0

    def _from_cores(self, name: str) -> bool:
        """Replace a cluster's zeros when its cores were busy; whether it did."""
        cores = self.cores[name].values()
        active = [number("%", c.get("%", b"")) for c in cores]
        freq = [number("MHz", c.get("MHz", b"")) for c in cores]
        nan = float("nan")
        pair = from_cores([nan if f is None else f for f in freq], [nan if a is None else a for a in active])
        if not any(a and a > 0 for a in active):
            return False
        self.values[f"{name}_freq_MHz"], self.values[f"{name}_active_pct"] = pair
        return True


def from_cores(freq: list, active: list) -> tuple:
    """Frequency (MHz) and active residency (%) of a cluster from its cores.

    Residency is the mean over the cores, frequency the mean weighted by residency. Items are numbers or equal arrays;
    one NaN makes the result NaN. Where no core was active the frequency is 0/0 and not to be used.
    """
    busy, total = 0.0, 0.0
    for f, a in zip(freq, active, strict=True):
        busy = busy + f * a
        total = total + a
    return busy / (total + (total == 0)), total / len(active)
