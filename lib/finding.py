"""The outcome of one check of the machine, and how it is printed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

OK, WARNING, ERROR = "ok", "warning", "error"
COLOURS = {OK: "green", WARNING: "yellow", ERROR: "red"}


@dataclass(frozen=True)
class Finding:
    """A level, what it is about, what was found, and what to do about it ("" for nothing)."""

    level: str
    about: str
    found: str
    do: str = ""


def show(finding: Finding, console: Console, before: str = "") -> None:
    """Print one line, after `before`. What programs said is no markup in it; their control characters are "?"."""
    text = f"{finding.about:<10} {finding.found}{f'; {finding.do}' if finding.do else ''}"
    plain = "".join(c if c.isprintable() else "?" for c in text)
    console.print(Text.assemble(before, (f"{finding.level:<8}", COLOURS[finding.level]), plain))


def count(findings: Iterable[Finding], level: str) -> str:
    """How many findings are of `level`: "1 error", "2 errors", "" for none."""
    n = sum(finding.level == level for finding in findings)
    return f"{n} {level}{'s' if n > 1 else ''}" if n else ""
