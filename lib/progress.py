"""What the person at the terminal sees during a sweep: bars on a terminal, one line a cell elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from lib.estimate import Estimate, clock
from lib.plan import Cell

SIGNS = {"ok": "[green]ok[/]", "failed": "[red]failed[/]", "invalid": "[yellow]invalid[/]"}


# Width of tables where there is no terminal to ask, in characters.
FILE_WIDTH = 150


def console() -> Console:
    """Standard output; wide enough for the summary where it is a file or a pipe."""
    width = None if sys.stdout.isatty() else FILE_WIDTH
    return Console(highlight=False, soft_wrap=True, width=width)


class SweepProgress:
    """Progress of the cells still to run: the cell at work, elapsed time and time left. A context manager."""

    def __init__(self, estimate: Estimate, todo: list[Cell], requests_per_cell: int, console: Console):
        self.console = console
        self._estimate, self._todo, self._done = estimate, list(todo), 0
        self._total, self._began = len(todo), time.monotonic()
        self._bars = Progress(
            TextColumn("{task.description}", markup=False), BarColumn(bar_width=24), MofNCompleteColumn(),
            TextColumn("{task.fields[times]}"), console=self.console, transient=True,
            disable=not self.console.is_terminal,
        )  # fmt: skip
        self._cells = self._bars.add_task("cells", total=self._total, times="")
        self._requests = self._bars.add_task("", total=requests_per_cell, times="")

    def __enter__(self) -> SweepProgress:
        self._bars.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bars.stop()

    def say(self, text: str) -> None:
        """One line above the bars."""
        self.console.print(text, markup=False)

    def begin(self, what: str) -> None:
        """A cell, or the start of a server, is at work."""
        self._bars.reset(self._requests, description=what)
        self._bars.update(self._cells, times=self._times())

    def tick(self) -> None:
        """A request ended."""
        self._bars.advance(self._requests)
        self._bars.update(self._cells, times=self._times())

    def end(self, cell: Cell, state: str, note: str) -> None:
        """A cell ended with `state`; `note` is its headline or its reason."""
        self._done += 1
        self._todo.remove(cell)
        self._bars.advance(self._cells)
        line = f"[{self._done:>{len(str(self._total))}}/{self._total}] {cell}: {state}, {note} ({self._times()})"
        self.say(line)

    def _times(self) -> str:
        left = clock(self._estimate.total(self._todo))
        return f"{clock(time.monotonic() - self._began)} elapsed, about {left} left"


def summary(console: Console, title: str, rows: list[dict]) -> None:
    """Print rows (same keys in each, values already text) as a table; `state` cells are coloured."""
    table = Table(title=title, title_justify="left", header_style="bold")
    for key in rows[0]:
        table.add_column(key, justify="left" if key in ("backend", "model", "reason") else "right", overflow="fold")
    for row in rows:
        table.add_row(*(SIGNS.get(value, value) for value in row.values()))
    console.print(table)
