"""The power log of a cell: which power it has, when it is refused, what sleep looks like, the published energies."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lib import energy, phases
from lib.clock import Gap
from tests import synthetic_cell
from tests.synthetic_cell import Spec

SMALL = Spec(requests=4, gen=64, ttft_s=0.4)


def samples_of(tmp_path, text: str) -> pd.DataFrame:
    log = tmp_path / "powermetrics.log"
    log.write_text(text)
    return energy.read_samples(log)


def timing_of(made, shift_s: float = 0.0) -> energy.Timing:
    start, first, end = (x[made.spec.warmup :] for x in (made.start_ns, made.first_ns, made.end_ns))
    return energy.Timing(start / 1e9 + shift_s, (first - start) / 1e9, end / 1e9 + shift_s, "timestamps")


@pytest.fixture
def cell(tmp_path):
    """(truth, samples as read) of a small cell."""
    made = synthetic_cell.make(SMALL)
    return made, samples_of(tmp_path, synthetic_cell.log_text(made))


# --- which power ---


def test_power_columns_of_a_small_cell(cell):
    made, samples = cell
    facts, placed = energy.columns(samples, timing_of(made))
    assert facts["prefill_power_W"] == pytest.approx(17.5, abs=0.03)
    assert facts["decode_power_W"] == pytest.approx(13.0, abs=0.02)
    assert facts["between_power_fit_W"] == pytest.approx(6.0, abs=0.03)
    assert facts["prefill_power_integral_W"] < 17.2
    assert (facts["power_reason"], facts["sleep_reason"], facts["log_notes"]) == ("", "", "")
    assert facts["phase_source"] == "timestamps"
    assert facts["prefill_coverage_pct"] == pytest.approx(100)
    assert abs(facts["conservation_pct"]) < 0.01
    assert abs(facts["clock_shift_ms"]) <= facts["clock_error_ms"]
    assert placed["time_s"].to_numpy() == pytest.approx(made.sample_end_s, abs=1e-3)
    assert set(placed["phase"]) == {"prefill", "decode", "between", "outside"}
    assert facts["n_prefill_samples"] + facts["n_decode_samples"] < facts["n_power_samples"]
    assert facts["thermal_worst"] == facts["thermal_start"] == facts["thermal_end"] == "Nominal"


def test_clocks_and_residency_by_phase(cell):
    """The GPU runs at 1470 MHz and 99 % in prefill, 1550 MHz in decode, 0 MHz between: 0 counts for residency only."""
    made, samples = cell
    facts, placed = energy.columns(samples, timing_of(made))
    assert facts["gpu_prefill_freq_MHz"] == pytest.approx(1470)
    assert facts["gpu_decode_freq_MHz"] == pytest.approx(1550)
    assert facts["gpu_decode_active_pct"] == pytest.approx(99)
    window = placed[placed["phase"] != "outside"]
    idle = (window["gpu_freq_MHz"] == 0).mean()
    assert 0.1 < idle < 0.4
    assert facts["gpu_active_pct"] == pytest.approx(99 * (1 - idle))
    assert 1470 < facts["gpu_freq_MHz"] < 1550
    assert (facts["p_freq_MHz"], facts["e_active_pct"]) == (4000, 20)


def test_macos_12_prints_no_combined_so_the_rails_are_added_up_and_that_is_said(tmp_path):
    made = synthetic_cell.make(SMALL)
    samples = samples_of(tmp_path, synthetic_cell.log_text(made, combined=False))
    facts, _ = energy.columns(samples, timing_of(made))
    assert facts["decode_power_W"] == pytest.approx(13.0, abs=0.03)
    assert "CPU + GPU + ANE added up" in facts["log_notes"]


def test_package_power_is_another_scope_and_refused(tmp_path):
    made = synthetic_cell.make(SMALL)
    facts, _ = energy.columns(samples_of(tmp_path, synthetic_cell.log_text(made, rails=False)), timing_of(made))
    assert facts["power_reason"] == "the power log has package power only, another scope than CPU + GPU + ANE"
    assert "prefill_power_W" not in facts


def test_a_cpu_rail_that_reads_0_while_cores_are_busy_was_not_measured(cell):
    made, samples = cell
    stuck = samples.assign(cpu_mW=0.0, p_active_pct=80.0)
    stuck.attrs = samples.attrs
    facts, _ = energy.columns(stuck, timing_of(made))
    assert "power was not measured" in facts["power_reason"]


def test_chips_whose_fast_cores_are_called_s():
    names = ["P0", "P1", "S"]
    frame = pd.DataFrame({f"{n}_{w}": [10.0 * i] for i, n in enumerate(names, 1) for w in ("freq_MHz", "active_pct")})
    found = energy._with_clusters(frame).iloc[0]
    assert (found["p_active_pct"], found["e_active_pct"]) == (30.0, 15.0)


def test_thermal_pressure_worst_start_end_and_absent(cell):
    made, samples = cell
    levels = ["Nominal"] * len(samples)
    levels[len(levels) // 2] = "Heavy"
    levels[len(levels) // 2 + 1 :] = ["Moderate"] * (len(levels) - len(levels) // 2 - 1)
    hot = samples.assign(thermal_pressure=levels)
    hot.attrs = samples.attrs
    facts, _ = energy.columns(hot, timing_of(made))
    found = facts["thermal_start"], facts["thermal_worst"], facts["thermal_end"]
    assert found == ("Nominal", "Heavy", "Moderate")
    silent = samples.assign(thermal_pressure=None)
    silent.attrs = samples.attrs
    assert energy.columns(silent, timing_of(made))[0]["thermal_worst"] is None


LOGS = Path(__file__).resolve().parents[2] / "shared" / "powermetrics"


@pytest.mark.skipif(not LOGS.exists(), reason="real power logs are not beside this folder")
@pytest.mark.parametrize("path", sorted(LOGS.glob("[0-9]*")), ids=lambda p: p.name[:2])
def test_real_logs_of_other_chips_and_systems_give_power_or_a_reason(path):
    """Two requests laid over the middle of each log: it has power within its own range, or says why not."""
    samples = energy.read_samples(path)
    ends_s, length_s = samples["time_s"].to_numpy(), samples["elapsed_ms"].sum() / 1e3
    start_s = ends_s[0] + np.array([0.2, 0.5]) * length_s
    ttft_s = np.full(2, 0.1 * length_s)
    facts, _ = energy.columns(samples, energy.Timing(start_s, ttft_s, start_s + 0.25 * length_s, "timestamps"))
    power_W = samples["power_W"]
    if facts["power_reason"]:
        assert "decode_power_W" not in facts or np.isnan([facts["decode_power_W"], facts["prefill_power_W"]]).any()
        return
    for phase in ("prefill", "decode"):
        assert 0 <= facts[f"{phase}_power_integral_W"] <= power_W.max() + 1e-9
        assert facts[f"{phase}_power_median_W"] <= power_W.max()
    assert abs(facts["conservation_pct"]) < 0.5


# --- refused ---


@pytest.mark.parametrize("shift_s", [3600.0, -3600.0, 5400.0])
def test_a_log_of_another_time_is_refused(cell, shift_s):
    made, samples = cell
    facts, _ = energy.columns(samples, timing_of(made, shift_s))
    assert facts["power_reason"] == "the power log covers 0 % of the requests' time"
    assert "decode_power_W" not in facts
    assert facts["phase_source"] == "timestamps"


def test_half_a_log_is_the_limit(cell):
    made, samples = cell
    timing = timing_of(made)
    for share, refused in ((0.45, True), (0.6, False)):
        until_s = timing.start_s[0] + share * (timing.end_s[-1] - timing.start_s[0])
        part = samples[samples["time_s"] < until_s]
        part.attrs = samples.attrs
        reason = energy.columns(part, timing)[0]["power_reason"]
        assert ("of the requests' time" in reason) == refused


def slept(samples: pd.DataFrame, at: int, elapsed_ms: float | None, jump_s: float) -> pd.DataFrame:
    """The log with one sample changed: so long by its own account, and so much later by the headers."""
    frame = samples.copy()
    frame.loc[at:, "time_s"] += jump_s
    if elapsed_ms:
        frame.loc[at, "elapsed_ms"] = elapsed_ms
    lost_s = jump_s + (samples["elapsed_ms"][at] - frame["elapsed_ms"][at]) / 1e3
    gaps = [Gap(at, lost_s, "sleep")] if abs(lost_s) > 0.5 else []
    rebuilt = samples.attrs["clock"]
    frame.attrs = samples.attrs | {"clock": type(rebuilt)(rebuilt.times_s, rebuilt.error_ms, 0.0, 100.0, gaps)}
    return frame


@pytest.mark.parametrize(
    ("elapsed_ms", "jump_s", "words"),
    [(660000.0, 659.9436, "lasted 660.0 s"), (207.0, 26.0, "lost 25.8 s"), (None, -30.0, "lost -30.0 s")],
)
def test_sleep_within_the_requests(cell, elapsed_ms, jump_s, words):
    made, samples = cell
    at = int(np.searchsorted(samples["time_s"], made.first_ns[1] / 1e9))
    facts, _ = energy.columns(slept(samples, at, elapsed_ms, jump_s), timing_of(made))
    assert words in facts["sleep_reason"]
    assert facts["power_reason"] == facts["sleep_reason"]
    assert "decode_power_W" not in facts


def test_sleep_before_the_first_request_does_no_harm(cell):
    made, samples = cell
    early = slept(samples, 5, 207.0, 0.0)
    early["time_s"] = samples["time_s"]
    early.loc[:4, "time_s"] -= 26.0
    gaps = [Gap(5, 25.8, "sleep")]
    early.attrs["clock"] = type(early.attrs["clock"])(early["time_s"].to_numpy(), 5.0, 0.0, 100.0, gaps)
    assert energy.columns(early, timing_of(made))[0]["sleep_reason"] == ""


# --- the timeline when the requests are lost ---


def test_requests_are_laid_where_the_log_shows_most_energy(tmp_path):
    spec = Spec(requests=6, gen=128, ttft_s=1.0, lead_s=20.0, gap_s=0.3, spread=0.0)
    made = synthetic_cell.make(spec)
    samples = samples_of(tmp_path, synthetic_cell.log_text(made))
    whole_s = (made.end_ns[-1] - made.start_ns[0]) / 1e9
    rl_s = (made.end_ns[0] - made.start_ns[0]) / 1e9
    placed = energy.place_timeline(samples, 1.0, rl_s, 6, whole_s)
    assert placed.source == "timeline"
    assert placed.start_s == pytest.approx(made.start_ns / 1e9, abs=0.2)
    facts, _ = energy.columns(samples, placed)
    assert (facts["phase_source"], facts["clock_shift_ms"]) == ("timeline", 0.0)
    assert facts["decode_power_W"] == pytest.approx(13.0, rel=0.01)
    assert facts["prefill_power_W"] == pytest.approx(17.5, rel=0.02)


def test_no_timeline_on_a_log_shorter_than_half_of_the_requests(cell):
    _, samples = cell
    assert energy.place_timeline(samples, 0.4, 10.0, 20, float("nan")) is None
    assert energy.place_timeline(samples, 0.4, float("nan"), 4, float("nan")) is None
    assert energy.place_timeline(samples.assign(power_W=np.nan), 0.4, 1.2, 4, float("nan")) is None


# --- energies ---


def row_of(**more) -> dict:
    return {
        "ttft_ms": 250.0, "rl_ms": 3450.0, "p50_decode_s": 3.2, "decode_power_W": 13.0, "prefill_power_W": 17.5,
        "total_power_W": 12.5, "osl": 256.0, "isl": 268.0, "output_tok_s": 255 / 3.2, "idle_W": 2.0, "n": 20,
        "prefill_power_integral_W": 17.0, "decode_power_integral_W": 13.1, "prefill_window_s": 5.0,
        "decode_window_s": 64.0,
    } | more  # fmt: skip


def test_derived_columns_by_hand():
    found = energy.derived(row_of())
    assert found["total_J"] == pytest.approx(17.5 * 0.25 + 13 * 3.2)
    assert found["net_total_J"] == pytest.approx(45.975 - 2 * 3.45)
    assert found["prefill_tok_J"] == pytest.approx(268 / 4.375)
    assert found["request_J_avg"] == pytest.approx(12.5 * 3.45)
    assert found["identity_pct"] == pytest.approx(100 / 255)
    assert found["total_integral_J"] == pytest.approx(17.0 * 0.25 + 13.1 * 3.2)
    assert found["estimators_apart_pct"] == pytest.approx(100 * (45.975 / (4.25 + 41.92) - 1))


def test_missing_power_leaves_every_energy_missing():
    nan = float("nan")
    found = energy.derived(row_of(decode_power_W=nan, prefill_power_W=nan, total_power_W=nan, n=0))
    kept = {"identity_bound_pct"}
    assert all(np.isnan(value) for name, value in found.items() if name not in kept)


def test_conservation_holds_and_notices_a_phase_that_takes_too_much(cell):
    made, samples = cell
    timing = timing_of(made)
    found = phases.windows(timing.start_s, timing.ttft_s, timing.end_s)
    times_s, power_W = samples["time_s"].to_numpy(), samples["power_W"].to_numpy()
    parts = phases.split(times_s, samples["elapsed_ms"].to_numpy() / 1e3, found)
    assert abs(energy.conservation_pct(times_s, power_W, parts, found)) < 0.01
    greedy = replace(parts, prefill_s=parts.prefill_s * 1.05)
    assert energy.conservation_pct(times_s, power_W, greedy, found) > 0.5
    assert np.isnan(energy.conservation_pct(times_s, np.full(len(times_s), np.nan), parts, found))
