"""The raw log of a synthetic cell: its form is that of a real one, and its numbers agree with each other."""

import re

import numpy as np
import pandas as pd
import pytest

from lib import gpu, plan, powermetrics
from lib.synthetic import powerlog, writer

LLAMA, MLX = "llama.cpp", "mlx-lm"
LISTED = re.compile(r"(\d+) MHz: *([\d.]+)%")


@pytest.fixture(scope="module")
def write(tmp_path_factory):
    """A function that writes one cell of the plan `paper` and returns its folder."""
    run, small = tmp_path_factory.mktemp("run"), plan.load("paper", {"requests": 3})

    def one(backend, model, ctx, gen, age_s=1e4):
        cell = plan.Cell(backend, model, ctx, gen)
        writer._write(small, run, cell, writer.FIRST_NS, age_s, False)
        return run / cell.key

    return one


def read(folder):
    return powermetrics.read(folder / "powermetrics.log.gz")


def spans(folder):
    """Start, first token and end of each request, s since the epoch."""
    records = pd.read_json(folder / "profile_export.jsonl", lines=True)
    start_s = np.array([m["request_start_ns"] for m in records["metadata"]]) / 1e9
    times_ms = [[m[tag]["value"] for tag in ("time_to_first_token", "request_latency")] for m in records["metrics"]]
    return np.column_stack([start_s, start_s[:, None] + np.array(times_ms) / 1000])


def test_header_stamps_and_intervals_are_those_of_the_machine(write):
    frame = read(write(LLAMA, "trinity-nano", 512, 256))
    assert (frame.attrs["machine"], frame.attrs["notes"]) == ("Mac16,10", [])
    assert frame.attrs["os_build"].startswith("24F74")
    assert (frame["stamp_s"] % 1 == 0).all() and frame["elapsed_ms"].median() == pytest.approx(56.4, abs=0.1)
    assert 0.1 < frame["elapsed_ms"].std() < 1


def test_energies_are_whole_millijoules_and_add_up(write):
    frame = read(write(MLX, "lfm2.5-8b-a1b", 512, 256))
    energy_mJ = frame[["cpu_mW", "gpu_mW"]].mul(frame["elapsed_ms"] / 1000, axis=0)
    assert (energy_mJ - energy_mJ.round()).abs().max().max() < 0.03  # power is printed as whole mW
    assert (frame["cpu_mW"] + frame["gpu_mW"] - frame["combined_mW"]).abs().max() <= 1


def test_the_list_of_states_has_the_printed_clock_as_its_mean_and_the_residency_as_its_sum():
    for states in (powerlog.GPU_STATES, powerlog.P_STATES, powerlog.E_STATES):
        for at_MHz in (1500, 1577, 1470, 950, 1081):
            pairs = np.array(LISTED.findall(powerlog._states(states, at_MHz, 97)), float)
            clock, share = pairs.T
            assert clock.astype(int).tolist() == list(states)
            assert share.sum() == pytest.approx(97, abs=1)
            assert (clock * share).sum() / share.sum() == pytest.approx(at_MHz, rel=0.006)


@pytest.mark.parametrize(
    ("value", "said"), [(0, "  0%"), (0.07, ".07%"), (0.999, "1.0%"), (4.96, "5.0%"), (9.97, " 10%"), (100, "100%")]
)
def test_shares_are_written_as_powermetrics_does(value, said):
    assert powerlog._percent(value) == said


def test_the_clock_gathers_about_two_states_and_peaks_at_the_hand_off(write):
    lengths = [(ctx, gen) for ctx in (256, 1024, 4096, 30720) for gen in (256, 1024)]
    folders = [write(LLAMA, model, *length) for length in lengths for model in ("lfm2.5-8b-a1b", "granite4-h-tiny")]
    frames = [read(folder) for folder in folders]
    values = np.concatenate([frame["gpu_freq_MHz"] for frame in frames])
    weights = np.concatenate([np.full(len(frame), 1 / len(frame)) for frame in frames])
    low, high = gpu.states(values, weights)
    assert low == pytest.approx(1478, abs=12) and high == pytest.approx(1574, abs=6)
    assert values.max() == 1578, "and no sample is above the boost state"
    canonical = frames[-1]
    first_s = spans(folders[-1])[:, 1]
    peaks_s = canonical.loc[canonical["gpu_freq_MHz"] == 1578, "stamp_s"].to_numpy()
    assert len(peaks_s) >= len(first_s) and all(np.abs(first_s - at).min() < 1.2 for at in peaks_s)


def test_power_falls_from_prefill_to_decode_and_between_requests(write):
    folder = write(LLAMA, "gemma4-e4b", 4096, 256)
    frame, (start_s, first_s, end_s) = read(folder), spans(folder)[1]
    at_s = frame["stamp_s"] + 0.5  # stamps are whole seconds: look only well inside a phase
    prefill = frame.loc[at_s.between(start_s + 2, first_s - 2), "combined_mW"].median() / 1000
    decode = frame.loc[at_s.between(first_s + 2, end_s - 2), "combined_mW"].median() / 1000
    assert prefill == pytest.approx(17.8, abs=0.1) and decode == pytest.approx(14.5, abs=0.3)
    assert frame["combined_mW"].min() / 1000 < 6 and frame["gpu_active_pct"].min() < 10


def test_a_young_server_draws_more_for_a_minute(write):
    old, young = (read(write(MLX, "trinity-nano", 256, 512, age_s))["combined_mW"] for age_s in (1e4, 0.0))
    assert (young - old).median() / 1000 == pytest.approx(powerlog.WARM_W, abs=0.05)
    later = read(write(MLX, "trinity-nano", 256, 512, powerlog.COOLED_S))["combined_mW"]
    assert (later - old).abs().max() == 0


def rss(folder):
    return pd.read_csv(folder / "rss.csv")["rss_kb"].to_numpy() / 1024


def test_memory_falls_between_requests_where_it_is_released(write):
    teeth = rss(write(LLAMA, "granite4-h-tiny", 1024, 256))
    flat = rss(write(LLAMA, "smallthinker-4b-a0.6b", 1024, 256))
    assert 100 <= np.ptp(teeth) <= 180 and np.ptp(flat) == 0
    assert (np.diff(teeth) < -100).sum() == 3, "once after each request"


def test_the_first_request_under_mlx_lm_has_a_transient(write):
    folder = write(MLX, "granite4-h-tiny", 256, 512)
    frame, ends_s = pd.read_csv(folder / "rss.csv"), spans(folder)[:, 2]
    later = frame["time_ns"] / 1e9 > ends_s[0] + 1
    assert frame["rss_kb"].max() == 3968 * 1024 and frame.loc[later, "rss_kb"].max() < 3700 * 1024
