"""One block of powermetrics' text: the values in it, and what does not belong.

A block runs from its `*** Sampled` header to the next header.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

from lib.text_grammar import ENDINGS, LIMIT, PREAMBLE, VALUE, Known, ending, is_strict, known_key, number

_TITLE = re.compile(rb"\*{3,4} +([^*]*[^* ]) +\*{3,4}")
_LINE = re.compile(rb"[^\n]+")
_ODD_MAX = 200
"""After so many lines that do not belong, the rest of a block is not read."""
_END_OF_SECTION = {
    b"Processor usage": (
        b"Combined Power (CPU + GPU + ANE)",
        b"Package Power",
        b"Intel energy model derived package power (CPUs+GT+SA)",
    ),
    b"GPU usage": (b"GPU Power",),
    b"Thermal pressure": (b"Current pressure level",),
}
"""The line with which each section is complete; the Processor section has one of three, by age and maker."""


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


def last_key(block: Block) -> tuple[bytes, int]:
    """The key of a block's last line and how often it stands in the block."""
    return (block.keys[-1], block.keys.count(block.keys[-1])) if block.keys else (b"", 0)


def is_closed(block: Block) -> bool:
    """Whether a block has sections, and each of them the line with which it ends."""
    keys = set(block.keys)
    closed = all(keys.intersection(_END_OF_SECTION[s]) for s in block.sections if s in _END_OF_SECTION)
    own = "gpu_section_mW" in block.values or b"GPU usage" not in block.sections
    return bool(block.sections) and closed and own


def is_complete(block: Block, text: bytes, ends: set[tuple[bytes, int]]) -> bool:
    """Whether nothing is missing at the end of a block: sections are closed, and a last line of earlier ones is there.

    ends: `last_key` of the earlier blocks. The first block of a log has none to be compared with: it counts when its
    sections are closed.
    """
    keys = Counter(block.keys)
    if not is_closed(block) or any(odd.kind == "torn line" for odd in block.odd):
        return False
    if ends:
        return any(keys[key] >= count for key, count in ends)
    return bool(text.endswith(b"\n") or (not block.odd and block.keys))


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
            if len(self.odd) > _ODD_MAX:
                break
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
        elif (not is_strict(self.section) and self.section) or LIMIT.fullmatch(line) or not line.strip():
            self.lines.append(Line(line))
            self.plain = False
        else:
            self.odd.append(Odd("unknown line", offset, line[:80]))

    def _known(self, line: bytes, offset: int, ended: bool, key: bytes, rest: bytes, known: Known) -> None:
        place = (self.section, key)
        if place in self.seen and known.unit != "any":
            self.odd.append(Odd("repeated line", offset, line[:80]))
            return
        if not (ended or known.unit in VALUE or known.unit == "list") or not self._store(known, rest):
            self.odd.append(Odd("torn line", offset, line[:80]))
            return
        self.seen.add(place)
        if key not in PREAMBLE:
            self.keys.append(key)
        self._remember(line, key, rest, known)

    def _remember(self, line: bytes, key: bytes, rest: bytes, known: Known) -> None:
        if known.unit == "level" or key in PREAMBLE:
            self.lines.append(Line(line))
            return
        self.plain &= known.unit in ENDINGS
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
