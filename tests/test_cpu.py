"""Sentences on the CPU clusters, with numbers that change with the table."""

import numpy as np
import pandas as pd
import pytest
from whole_sweep import cells as whole

from lib import cpu


@pytest.fixture
def cells():
    return whole()


def test_near_idle_counts_cells_and_names_the_rest(cells):
    # smallthinker at the shortest prompt is the busy one, its warm-up cell is void
    assert cpu.near_idle(cells) == "E-cluster residency is below 5 % in 150 of 152 cells; in the others it is 6.0 %."
    assert cpu.near_idle(cells.assign(e_active_pct=1.5)) == "E-cluster residency is below 5 % in all 161 cells."
    assert cpu.near_idle(cells.assign(e_active_pct=20.0)) == "E-cluster residency is 20.0 %: in no cell below 5 %."


def test_the_busier_cluster_and_residency_by_length(cells):
    assert cpu.busier(cells) == "The P-cluster is the busier one in all 152 cells."
    assert cpu.by_length(cells) == "P-cluster residency is 88.0 % at prompt 256 and 96.0 % at prompt 30720."
    cells.loc[cells.index[-1], ["p_active_pct", "e_active_pct"]] = 2.5, 80.0
    assert "in 151 of 152 cells" in cpu.busier(cells)
    assert "2.5 % to 96.0 % at prompt 30720" in cpu.by_length(cells) or "2.5 to 96.0 %" in cpu.by_length(cells)


def test_cluster_and_gpu_at_the_longest_prompt(cells):
    assert cpu.saturated(cells) == "At prompt 30720 the P-cluster is active for 96.0 % of the time, the GPU for 99.0 %."
    assert cpu.saturated(cells.assign(gpu_active_pct=np.nan)) == ""


def test_the_clocks_spread_and_its_phases(cells):
    assert cpu.clock_spread(cells) == (
        "The mean P-cluster clock is 3980 to 4000 MHz over 152 cells, a spread of 0.5 %; prefill and decode are at "
        "most 5 MHz apart."
    )
    older = cells.drop(columns=["p_prefill_freq_MHz", "p_decode_freq_MHz"])
    assert cpu.clock_spread(older).endswith("a spread of 0.5 %.")


def test_backends_on_shared_cells(cells):
    assert cpu.backends(cells) == (
        "Over the 50 cells that both have, MLX-LM's P-cluster clock is lower by 20 MHz in the median "
        "(from -20 to -20 MHz)."
    )
    assert "is the same in the median" in cpu.backends(cells.assign(p_freq_MHz=4000.0))
    assert cpu.backends(cells[cells["backend"] == "mlx-lm"]) == ""


def test_the_canonical_cell(cells):
    own = cells[(cells["ctx"] == 30720) & (cells["gen"] == 1024)]
    assert cpu.canonical(own) == (
        "At the canonical cell E-cluster residency is 1.5 % and P-cluster residency 96.0 %; the P-cluster's clock is "
        "4000 MHz under llama.cpp and 3980 MHz under MLX-LM."
    )


def test_a_step_of_the_clock_is_found():
    steady = pd.DataFrame({"p_freq_MHz": np.r_[np.full(95, 4020.0), np.full(5, 3900.0), 0.0]})
    assert cpu.steps({("llama.cpp", "a"): steady}) == (
        "Over these runs the median clock is 4020 MHz; no sample of any run is more than 5 % away from its "
        "run's median."
    )
    stepped = pd.DataFrame({"p_freq_MHz": np.r_[np.full(90, 4000.0), np.full(10, 2000.0)]})
    said = cpu.steps({("llama.cpp", "a"): steady, ("mlx-lm", "a"): stepped})
    assert said.startswith("Over these runs the median clock is 4000 to 4020 MHz; 5 % of the samples are more than 5 %")


def test_nothing_is_said_without_clusters(cells):
    none = cells.assign(**dict.fromkeys(["p_freq_MHz", "p_active_pct", "e_active_pct"], np.nan))
    said = [f(none) for f in (cpu.near_idle, cpu.busier, cpu.by_length, cpu.clock_spread, cpu.backends, cpu.canonical)]
    assert set(said) == {""} and cpu.steps({}) == ""
