"""How long cells take: from what this run has measured, else from stated assumptions."""

from __future__ import annotations

from dataclasses import dataclass, field

from lib import models
from lib.plan import Cell, Plan

# Assumed until something is measured: (prefill tok/s, decode tok/s). Tiny models on two CPU cores; full ones on an M4.
ASSUMED_TINY = {"llama.cpp": (2000.0, 200.0), "mlx-lm": (400.0, 60.0)}
ASSUMED_FULL = (500.0, 50.0)
SERVER_START_S = {True: 8.0, False: 60.0}
CELL_OVERHEAD_S = 0.6
# Log and requests of a second of sweep, and room to spare, in MB (10^6 bytes).
MB_PER_SECOND = 0.1
SPARE_MB = 200.0


@dataclass
class Estimate:
    """Seconds for cells still to run; `learn` replaces the assumption by measured time, per server then per backend."""

    plan: Plan
    _spent_s: dict[str, float] = field(default_factory=dict)
    _assumed_s: dict[str, float] = field(default_factory=dict)

    def learn(self, cell: Cell, seconds: float) -> None:
        """Take in a measured cell's duration in seconds."""
        for key in self._keys(cell):
            self._spent_s[key] = self._spent_s.get(key, 0.0) + seconds
            self._assumed_s[key] = self._assumed_s.get(key, 0.0) + self._assume(cell)

    def seconds(self, cell: Cell) -> float:
        """Expected duration of one cell in seconds."""
        for key in self._keys(cell):
            if self._assumed_s.get(key):
                return self._assume(cell) * self._spent_s[key] / self._assumed_s[key]
        return self._assume(cell)

    def total(self, cells: list[Cell]) -> float:
        """Expected seconds for `cells`, with a server start for each backend and model among them."""
        starts = {(c.backend, c.model) for c in cells if models.get(c.model).is_published(c.backend)}
        return sum(self.seconds(c) for c in cells) + sum(SERVER_START_S[models.get(m).tiny] for _, m in starts)

    def space_MB(self, cells: list[Cell]) -> float:
        """Room that the artifacts of `cells` need on the disk, with some to spare, in MB (10^6 bytes)."""
        return SPARE_MB + MB_PER_SECOND * self.total(cells)

    def _keys(self, cell: Cell) -> tuple[str, str]:
        return f"{cell.backend}/{cell.model}", cell.backend

    def _assume(self, cell: Cell) -> float:
        if not models.get(cell.model).is_published(cell.backend):
            return 0.0  # it is recorded with its reason, and that is all
        tiny = models.get(cell.model).tiny
        prefill, decode = ASSUMED_TINY.get(cell.backend, ASSUMED_FULL) if tiny else ASSUMED_FULL
        request_s = cell.ctx / prefill + cell.gen / decode
        return (self.plan.requests + self.plan.warmup) * request_s + self.plan.cooldown_s + CELL_OVERHEAD_S


def clock(seconds: float) -> str:
    """Seconds as h:mm:ss."""
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"
