"""Sentences on the GPU say what the table says, and nothing where it says nothing."""

import numpy as np
import pandas as pd
import pytest
from whole_sweep import cells as whole

from lib import gpu


@pytest.fixture
def cells():
    return whole()


def test_states_are_two_only_where_the_samples_gather_about_two():
    rng = np.random.default_rng(1)
    two = np.concatenate([rng.normal(1470, 8, 4000), rng.normal(1578, 5, 1500)])
    assert gpu.states(two) == pytest.approx((1470, 1578), abs=2)
    assert gpu.states(rng.normal(1500, 20, 5000)) == ()
    assert gpu.states(np.concatenate([rng.normal(1470, 8, 5000), rng.normal(1578, 5, 100)])) == (), "a few strays"
    steps = np.concatenate([rng.normal(1476, 5, 5000), *(rng.normal(1500 + 10 * k, 5, 800) for k in range(8))])
    assert gpu.states(steps) == (), "a peak and a staircase are no two states"
    assert gpu.states(rng.uniform(1400, 1600, 5000)) == (), "flat"
    assert gpu.states(np.full(500, 1500.0)) == gpu.states([]) == ()
    assert gpu.states(np.append(two, np.zeros(9000))) == pytest.approx((1470, 1578), abs=2), "idle has no clock"


def test_each_cell_has_the_same_say_about_states():
    rng = np.random.default_rng(4)
    long = pd.DataFrame({"ctx": 30720, "phase": "prefill", "gpu_freq_MHz": rng.normal(1470, 5, 30_000)})
    short = pd.DataFrame({"ctx": 256, "phase": "prefill", "gpu_freq_MHz": rng.normal(1578, 5, 300)})
    both = pd.concat([long, short])
    assert gpu.states(both["gpu_freq_MHz"]) == ()
    assert gpu.states(both["gpu_freq_MHz"], gpu.even(both)) == pytest.approx((1470, 1578), abs=2)


def test_decode_out_clocks_prefill_by_a_gap_that_grows(cells):
    assert gpu.higher(cells) == "The mean GPU clock is higher in decode than in prefill in all 152 cells."
    llama, mlx = gpu.by_length(cells)
    assert llama == (
        "Under llama.cpp, decode clock minus prefill clock is +2 MHz at prompt 256 and +62 MHz at prompt 30720: in the "
        "median wider at the longest prompt (+62 against +2 MHz)."
    )
    assert mlx.startswith("Under MLX-LM")
    cells.loc[cells.index[-1], "gpu_decode_freq_MHz"] = 1000.0
    assert "in 151 of 152 cells" in gpu.higher(cells)
    assert "-480 to +62 MHz at prompt 30720" in gpu.by_length(cells)[1]


def test_the_ceiling_counts_both_phases(cells):
    own = cells[(cells["ctx"] == 30720) & (cells["gen"] == 1024)]
    assert gpu.ceiling(own, 1578.0) == (
        "The highest clock of any sample is 1578 MHz; the canonical cells' means, of either phase, are 2.3 to 6.2 % "
        "below it."
    )
    assert gpu.ceiling(own.iloc[:0], 1578.0) == gpu.ceiling(own, float("nan")) == ""


def test_residency_crosses_over_once_or_not(cells):
    llama = cells[cells["backend"] == "llama.cpp"]
    said = gpu.crossover(llama)
    assert "in decode up to prompt 2048 and in prefill from prompt 4096 on" in said and "-1.00 points at" in said
    assert "in prefill than in decode at every prompt length" in gpu.crossover(cells[cells["backend"] == "mlx-lm"])
    back = llama.assign(gpu_decode_active_pct=np.where(llama["ctx"].isin((512, 2048)), 90.0, 99.95))
    assert "at 512 and 2048 tokens only: there is no one crossover" in gpu.crossover(back)
    same = llama.assign(gpu_prefill_active_pct=99.0, gpu_decode_active_pct=99.0)
    assert "at no prompt length above decode's" in gpu.crossover(same)


def test_backends_are_compared_on_shared_cells_only(cells):
    decode, here, prefill = gpu.backends(cells, 30720, 1024)
    assert (
        "lower under MLX-LM in all 50 cells that both have; MLX-LM minus llama.cpp is -4.0 points for lfm2.5" in decode
    )
    assert here == (
        "At prompt 30720, gen 1024 residency in decode is 95.0 % under MLX-LM and 99.0 % under llama.cpp, same models."
    )
    assert prefill == "In prefill the same difference is +0.0 points over all models."
    assert gpu.backends(cells[cells["backend"] == "llama.cpp"], 30720, 1024) == []


def test_a_cycle_costs_power_over_clock(cells):
    own = cells[(cells["ctx"] == 30720) & (cells["gen"] == 1024) & (cells["model"] == "gemma4-e2b")]
    table = gpu.cycles(own)
    assert table["prefill_nJ"].iloc[0] == pytest.approx(17.0 / 1480 * 1000)
    assert gpu.cycle_cost(table) == (
        "A GPU cycle goes with 11.5 nJ in prefill and 9.1 nJ in decode: more in prefill in the one canonical cell, "
        "1.27 times decode's."
    )
    assert gpu.cycle_cost(table.iloc[:0]) == ""


def trace(slope_MHz=0.0):
    """Two requests of 10 s prefill and 5 s decode, a second apart; the clock climbs by `slope_MHz` within prefill."""
    time_s = np.arange(0, 32, 0.05) + 0.05
    place = time_s % 16
    phase = np.select([place <= 10, place <= 15], ["prefill", "decode"], "between")
    clock = np.select([phase == "prefill", phase == "decode"], [1470 + slope_MHz * place / 10, 1550], 0.0)
    active = np.select([phase == "prefill", phase == "decode"], [99.8, 99.4], 40.0)
    samples = pd.DataFrame({"time_s": 1e9 + time_s, "phase": phase, "gpu_freq_MHz": clock, "gpu_active_pct": active})
    start_ns = [int(1e18), int(1e18) + 16_000_000_000]
    requests = pd.DataFrame({"start_ns": start_ns, "ttft_ms": 10_000.0})
    return samples, requests.assign(end_ns=requests["start_ns"] + 15_000_000_000)


def test_one_cell_over_time():
    samples, requests = trace()
    assert gpu.phase_means(samples) == (
        "On average the clock is 1470 MHz in prefill and 1550 MHz in decode, at most 1550 MHz; "
        "residency 99.8 and 99.4 %."
    )
    assert "does not move: first and last quarter have the same median, 1470 MHz" in gpu.ramp(samples, requests)
    assert "goes from 1480 MHz in the first quarter to 1540 MHz" in gpu.ramp(*trace(slope_MHz=80.0))
    assert gpu.between_requests(samples) == (
        "The sample with the lowest residency, 40.0 %, lies between two requests (within a request not below 99.4 %)."
    )
    assert gpu.ramp(samples.iloc[:0], requests) == gpu.between_requests(samples.iloc[:0]) == ""


def test_where_in_a_request_the_clock_is_highest():
    samples, requests = trace()
    assert "in all 2 requests" in gpu.hand_off(samples, requests), "all of decode is at the highest clock"
    late = samples.assign(gpu_freq_MHz=np.where(samples.index == 290, 1578.0, samples["gpu_freq_MHz"]))
    assert gpu.hand_off(late, requests) == (
        "The highest clock of a request comes within 0.5 s of its first token in 1 of 2 requests."
    )
    assert gpu.hand_off(samples.iloc[:0], requests) == ""


def test_where_samples_gather():
    samples, _ = trace()
    assert gpu.gathered(samples) == (
        "The clock gathers about two states, 1470 and 1550 MHz; nearer to the upper are 0 % of the samples in prefill "
        "and 100 % of the samples in decode."
    )
    one = samples.assign(gpu_freq_MHz=np.linspace(1490, 1510, len(samples)))
    assert gpu.gathered(one).startswith("The clock does not gather about two states")


def test_nothing_is_said_without_a_gpu_rail(cells):
    none = cells.assign(**dict.fromkeys([*gpu.CLOCKS, *gpu.RESIDENCIES], np.nan))
    own = none[(none["ctx"] == 30720) & (none["gen"] == 1024)]
    assert gpu.higher(none) == gpu.crossover(none) == gpu.band(none) == "" and gpu.backends(none, 30720, 1024) == []
    assert gpu.by_length(none) == [] and gpu.cycles(own).empty and gpu.ceiling(own, 1578.0) == ""
