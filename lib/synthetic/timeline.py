"""When the requests of a cell begin, see their first token and end; phases as spans of time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from lib.plan import Cell
from lib.synthetic.machine import Served

GAP_S = 0.2
"""From one request's end to the next one's start."""
LEAD_S, TAIL_S = 0.6, 0.7
"""How long the meter runs before the first request and after the last."""
SPREAD = 0.006
"""Standard deviation of a request's times around the model's, as a share."""
PHASES = ("between", "prefill", "decode")


@dataclass(frozen=True)
class Timeline:
    """Requests of one cell: arrays by request, warm-ups first; seconds after `origin_ns`."""

    origin_ns: int
    warmup: int
    start_s: np.ndarray
    first_s: np.ndarray
    end_s: np.ndarray
    osl: np.ndarray

    def edges(self) -> tuple[np.ndarray, np.ndarray]:
        """Times at which the phase changes, and the phase from each on (index into PHASES); the first is `between`."""
        times = np.column_stack([self.start_s, self.first_s, self.end_s]).ravel()
        return np.concatenate([[-np.inf], times]), np.concatenate([[0], np.tile([1, 2, 0], len(self.start_s))])

    def ns(self, seconds: np.ndarray) -> np.ndarray:
        """Epoch nanoseconds of times of this timeline."""
        return self.origin_ns + np.rint(np.asarray(seconds) * 1e9).astype(np.int64)


def scores(n: int, rng: np.random.Generator) -> np.ndarray:
    """`n` normal scores in random order: spread like a sample, with a median of exactly 0."""
    return rng.permutation(norm.ppf((np.arange(n) + 0.5) / n))


def make(served: Served, cell: Cell, requests: int, warmup: int, origin_ns: int, rng: np.random.Generator) -> Timeline:
    """The requests of `cell` one after another; medians of their times are the model's."""
    n = requests + warmup
    spread = [np.concatenate([rng.normal(size=warmup), scores(requests, rng)]) for _ in range(3)]
    ttft_s = served.ttft_s(cell.ctx) * (1 + SPREAD * spread[0])
    step_s = served.step_s(cell.ctx, cell.gen) * (1 + SPREAD * spread[1])
    osl = _lengths(served.osl(cell.ctx, cell.gen), cell.gen, spread[2])
    whole_s = ttft_s + (osl - 1) * step_s
    start_s = LEAD_S + np.concatenate([[0.0], np.cumsum(whole_s + GAP_S)[:-1]])
    return Timeline(origin_ns, warmup, start_s, start_s + ttft_s, start_s + whole_s, osl.astype(int)[:n])


def _lengths(wanted: float, gen: int, spread: np.ndarray) -> np.ndarray:
    """Tokens written: exactly `gen`, or whole numbers around `wanted` whose median is as near to it as they can be."""
    if wanted >= gen:
        return np.full(len(spread), gen)
    deviation = min(0.1 * wanted, (gen - wanted) / 3)  # so that hardly any is cut at `gen`, which would move the median
    return np.clip(np.floor(wanted + deviation * spread + 0.5), 2, gen)
