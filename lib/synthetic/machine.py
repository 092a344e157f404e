"""The model of the machine: what each backend and model would do on a Mac mini M4, as a few smooth functions.

Time. A prompt of P tokens is read in dispatch_s + P / read_tok_s + attend_s P^2 (P in units of 10^5 tokens): rates have
a hump, dispatch costs short prompts and attention long ones. A token is written in itl_ms + attend_ms for each 1000
tokens attended, half of the generation among them, + heat_ms for each 1000 tokens generated.

Power. Prefill draws prefill_W. Decode draws decode_W, more with a long context (long_W at 30720 tokens), more at 256
tokens (start_W, gone at 1024) and more in short generations (brief_W at 256 tokens, nothing at 1024; half of it where
both apply).

From the published report: the rates at prompt 256, 512 and 30720 with 1024 tokens generated; the decode power and
efficiency there; peak memory; medians over the sweep; clocks and residencies at the canonical cell; the extremes of the
time to the first token; how Granite stops early under MLX-LM. Chosen, so that those come out and the curves have the
published shape: all between them, and whatever a model lacks there. Nothing here was measured by this project.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

LONGEST, BOOST_MHZ = 30720, 1578
LLAMA, MLX = "llama.cpp", "mlx-lm"
E_BUSY_PCT = 5.8


@dataclass(frozen=True)
class Served:
    """One model under one backend. Times s or ms, power W, memory MiB, clocks MHz, residency %.

    ram_MB is the peak at short prompts, ram_long_MB at long ones, ram_peak_MB at ram_peak_ctx alone; sawtooth_MB is
    released between requests. gpu_long_MHz are the clocks of prefill and decode at the longest prompt. e_busy lists the
    lengths (prompt, generation) at which something else kept the E-cluster busy. short_pct and shorter_pct map a
    generation length to how much of it is missing at the shortest prompt, and how much more at 4096.
    """

    dispatch_s: float
    read_tok_s: float
    attend_s: float
    itl_ms: float
    attend_ms: float
    heat_ms: float
    prefill_W: float
    decode_W: float
    long_W: float
    start_W: float
    brief_W: float
    ram_MB: float
    ram_long_MB: float
    ram_peak_MB: float = 0.0
    ram_peak_ctx: int = 0
    sawtooth_MB: float = 0.0
    gpu_long_MHz: tuple[float, float] = (1475.0, 1530.0)
    gpu_decode_long_pct: float = 99.4
    p_freq_MHz: float = 4025.0
    p_short_pct: float = 96.0
    p_long_pct: float = 95.5
    e_pct: float = 1.3
    e_busy: tuple[tuple[int, int], ...] = ()
    short_pct: dict[int, float] = field(default_factory=dict)
    shorter_pct: dict[int, float] = field(default_factory=dict)

    def ttft_s(self, ctx: int) -> float:
        """Time to the first token, s."""
        return self.dispatch_s + ctx / self.read_tok_s + self.attend_s * (ctx / 1e5) ** 2

    def step_s(self, ctx: int, gen: int) -> float:
        """Time of one further token, s."""
        return (self.itl_ms + self.attend_ms * (ctx + gen / 2) / 1000 + self.heat_ms * gen / 1000) / 1000

    def decode_power_W(self, ctx: int, gen: int) -> float:
        """Package power in decode, W."""
        start = (256 / ctx) ** 3
        brief = (1 - math.log2(gen / 256) / 2) * (1 - start**2 / 2)
        return self.decode_W + self.long_W * ctx / LONGEST + self.start_W * start + self.brief_W * brief

    def osl(self, ctx: int, gen: int) -> float:
        """Tokens written when `gen` are asked for: fewer where the text ends before."""
        place = min(1.0, math.log2(max(ctx, 256) / 256) / 4) if ctx <= 8192 else 0.35
        return gen * (1 - (self.short_pct.get(gen, 0.0) + place * self.shorter_pct.get(gen, 0.0)) / 100)


def along(ctx: int) -> float:
    """Where a prompt length lies between 256 (0) and 30720 tokens (1), on a logarithmic scale."""
    return math.log(ctx / 256) / math.log(LONGEST / 256)


def clock_MHz(served: Served, phase: str, ctx: int, boosted: bool) -> float:
    """GPU clock in a phase of one request: near the boost state, or near the steady one, where long prompts always are.

    Decode is the faster of the two, by 3 MHz at the shortest prompt and by what the report says at the longest.
    """
    gap = 3.0 + (served.gpu_long_MHz[1] - served.gpu_long_MHz[0] - 3.0) * along(ctx) ** 2
    steady = served.gpu_long_MHz[0] + (gap if phase == "decode" else 0.0)
    return steady if not boosted else min(BOOST_MHZ - 2.0, BOOST_MHZ - 6.0 + (gap if phase == "decode" else 0.0))


def boosted_share(ctx: int) -> float:
    """Share of a cell's requests, its first ones, that run in the boost state: nearly all of the short ones."""
    return 1 - along(ctx) ** 0.5


def residency_pct(served: Served, phase: str, ctx: int) -> float:
    """Mean GPU residency in a phase: decode's falls with context, prefill's rises; they cross near 4096 tokens."""
    if phase == "prefill":
        return 99.55 + 0.35 * along(ctx) if served.gpu_decode_long_pct > 99 else 99.0 + 0.2 * along(ctx)
    return 99.95 + (served.gpu_decode_long_pct - 99.95) * along(ctx)


def p_cluster(served: Served, ctx: int, gen: int) -> tuple[float, float]:
    """Clock (MHz) and residency (%) of the P-cluster while a request runs: fuller in short generations at long prompts.

    At short prompts the clock is higher under llama.cpp and lower under MLX-LM than at the longest.
    """
    freq_MHz = served.p_freq_MHz + (1 - along(ctx)) * (110.0 if served.p_freq_MHz > 4020 else -60.0)
    pct = served.p_short_pct + (served.p_long_pct - served.p_short_pct) * along(ctx)
    return freq_MHz, pct + 5.6 * (1 - gen / 1024) * along(ctx) ** 2


def e_cluster_pct(served: Served, ctx: int, gen: int) -> float:
    """Residency of the E-cluster while a request runs: near idle, but in the cells where something else ran."""
    return E_BUSY_PCT if (ctx, gen) in served.e_busy else served.e_pct
