"""Cutting samples at the phases' edges, and the three estimators of a phase's power, against known truth."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib import clock, phases
from tests import synthetic_cell
from tests.synthetic_cell import Made, Spec

T0 = 1_783_000_000.0
SHORT = Spec(requests=5, ttft_s=0.120, gen=64)


def windows_of(made: Made) -> phases.Windows:
    keep = slice(made.spec.warmup, None)
    start, first, end = (x[keep] for x in (made.start_ns, made.first_ns, made.end_ns))
    return phases.windows(start / 1e9, (first - start) / 1e9, end / 1e9)


def power_of(made: Made) -> np.ndarray:
    """W as printed: whole mW of whole mJ."""
    return sum(np.round(mJ / made.elapsed_ms * 1e3) for mJ in made.rails_mJ.values()) / 1e3


def solve(spec: Spec, aligned: bool = True):
    """(prefill, decode, fit, worst error of the samples' times in ms, clock's bound in ms) through the clock."""
    made = synthetic_cell.make(spec)
    rebuilt = clock.rebuild(np.floor(made.sample_end_s), made.elapsed_ms)
    found, power_W, elapsed_s = windows_of(made), power_of(made), made.elapsed_ms / 1e3
    bound_s = rebuilt.error_ms / 1e3 if aligned else 0.0
    fitted = phases.aligned_fit(power_W, rebuilt.times_s, elapsed_s, found, bound_s)
    times_s = rebuilt.times_s + fitted.shift_s
    parts = phases.split(times_s, elapsed_s, found)
    both = (phases.phase_power(p, power_W, parts, found, fitted) for p in phases.PHASES)
    return *both, fitted, np.abs(times_s - made.sample_end_s).max() * 1e3, rebuilt.error_ms


def worst_pct(values, truth: float) -> float:
    return float(np.abs(100 * (np.array(values) / truth - 1)).max())


# --- windows and overlaps ---


def test_windows_of_requests_one_after_the_other():
    found = phases.windows(np.array([10.0, 0.0]), np.array([1.0, 2.0]), np.array([15.0, 6.0]))
    assert found.prefill.tolist() == [[0.0, 2.0], [10.0, 11.0]]
    assert found.busy.tolist() == [[0.0, 6.0], [10.0, 15.0]]
    assert found.span == (0.0, 15.0)
    assert found.length_s("prefill") == 3.0
    assert found.length_s("decode") == 8.0


def test_concurrent_requests_are_not_counted_twice():
    found = phases.windows(np.array([0.0, 1.0]), np.array([2.0, 2.0]), np.array([6.0, 8.0]))
    assert found.prefill.tolist() == [[0.0, 3.0]]
    assert found.busy.tolist() == [[0.0, 8.0]]


def test_first_token_after_the_end_is_no_negative_decode():
    found = phases.windows(np.array([0.0]), np.array([9.0]), np.array([6.0]))
    assert found.length_s("decode") == 0.0


def test_without_requests_there_are_no_windows():
    with pytest.raises(ValueError, match="no measured requests"):
        phases.windows(np.array([]), np.array([]), np.array([]))


def test_a_straddling_sample_belongs_to_both_phases_in_proportion():
    found = phases.windows(np.array([10.0, 20.0]), np.array([1.0, 1.0]), np.array([15.0, 25.0]))
    ends, lengths = [10.25, 11.5, 15.5, 20.0, 25.5, 12.0], [0.5, 1.0, 1.0, 1.0, 1.0, 0.5]
    parts = phases.split(np.array(ends), np.array(lengths), found)
    assert parts.prefill_s == pytest.approx([0.25, 0.5, 0, 0, 0, 0])
    assert parts.decode_s == pytest.approx([0, 0.5, 0.5, 0, 0.5, 0.5])
    assert parts.between_s == pytest.approx([0, 0, 0.5, 1.0, 0, 0])
    assert parts.midpoint.tolist() == ["prefill", "decode", "between", "between", "outside", "decode"]
    assert parts.inside("decode").tolist() == [False, False, False, False, False, True]


def test_a_sample_without_time_or_length_is_nobody_s():
    found = phases.windows(np.array([T0]), np.array([1.0]), np.array([T0 + 5]))
    parts = phases.split(np.array([T0 + 1, np.nan, T0 + 3]), np.array([0.5, 0.5, np.nan]), found)
    assert parts.prefill_s == pytest.approx([0.5, 0, 0])
    assert parts.decode_s == pytest.approx([0, 0, 0])
    assert parts.midpoint.tolist()[1] == "outside"
    assert parts.inside("decode").sum() == 0


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(*[st.floats(0, 3)] * 3), min_size=1, max_size=8), st.integers(0, 99))
def test_the_parts_of_samples_that_tile_the_span_are_the_windows(requests, seed):
    gaps, ttft, decode = np.array(requests).T
    start = T0 + np.cumsum(gaps + ttft + decode) - ttft - decode
    found = phases.windows(start, ttft, start + ttft + decode)
    first, last = found.span
    cuts = np.sort(np.random.default_rng(seed).uniform(first - 1, last + 1, 60))
    edges = np.concatenate([[first - 2], cuts, [last + 2]])
    parts = phases.split(edges[1:], np.diff(edges), found)
    assert parts.prefill_s.sum() == pytest.approx(ttft.sum(), abs=1e-5)
    assert parts.decode_s.sum() == pytest.approx(decode.sum(), abs=1e-5)
    assert parts.between_s.sum() == pytest.approx(last - first - ttft.sum() - decode.sum(), abs=1e-5)
    assert (parts.prefill_s + parts.decode_s + parts.between_s <= parts.elapsed_s + 2e-6).all()


# --- estimators against truth ---


@pytest.mark.parametrize(("ctx", "seeds"), [(256, 40), (512, 10), (1024, 10), (2048, 10), (4096, 10)])
def test_twenty_requests_prefill_within_1_and_decode_within_03_percent(ctx, seeds):
    found = [solve(s) for s in synthetic_cell.many(Spec(ctx=ctx), range(seeds))]
    assert worst_pct([f[0].power_W for f in found], 17.5) < 0.1
    assert worst_pct([f[1].power_W for f in found], 13.0) < 0.1
    assert {f[0].estimator for f in found} == {"median"}
    assert min(f[0].samples for f in found) >= 52


def test_the_longest_prompt():
    found = [solve(s) for s in synthetic_cell.many(Spec(ctx=30720), range(3))]
    assert worst_pct([f[0].power_W for f in found], 17.5) < 0.1
    assert worst_pct([f[1].power_W for f in found], 13.0) < 0.1


@pytest.fixture(scope="module")
def short_cells():
    """Five requests with 120 ms of prefill and 64 tokens, forty times."""
    return [solve(s) for s in synthetic_cell.many(SHORT, range(40))]


def test_few_short_requests_prefill_within_2_percent_where_midpoints_are_far_off(short_cells):
    found = short_cells
    assert {f[0].estimator for f in found} == {"fit"}
    assert worst_pct([f[0].power_W for f in found], 17.5) < 0.2
    assert worst_pct([f[1].power_W for f in found], 13.0) < 0.1
    integral_W = np.array([f[0].integral_W for f in found])
    assert -9 < 100 * (integral_W.mean() / 17.5 - 1) < -5
    assert worst_pct([f[0].median_W for f in found], 17.5) > 7


def test_mean_of_midpoint_samples_is_about_seven_percent_low():
    """What is left without overlaps: every sample counted wholly to the phase its middle falls in."""
    low = []
    for spec in synthetic_cell.many(SHORT, range(40)):
        made = synthetic_cell.make(spec)
        parts = phases.split(made.sample_end_s, made.elapsed_ms / 1e3, windows_of(made))
        low.append(power_of(made)[parts.midpoint == "prefill"].mean())
    assert -9 < 100 * (np.mean(low) / 17.5 - 1) < -4


def test_stamps_taken_as_they_are_pull_prefill_down_to_decode():
    """Whole-second stamps as sample times: about 13.1 W is read where prefill has 17.5 W."""
    read_W = []
    for spec in synthetic_cell.many(Spec(ctx=256), range(20)):
        made = synthetic_cell.make(spec)
        stamps = np.floor(made.sample_end_s)
        parts = phases.split(stamps + made.elapsed_ms / 2e3, made.elapsed_ms / 1e3, windows_of(made))
        read_W.append(np.median(power_of(made)[parts.midpoint == "prefill"]))
    assert np.median(read_W) == pytest.approx(13.1, abs=0.25)


def test_spread_across_generation_lengths_is_no_sampling_floor():
    """The published prefill band is 2 to 3.6 W wide at ctx 256 and 512; one truth leaves 0.02 W of it."""
    for ctx in (256, 512):
        specs = [s for gen in (256, 512, 1024) for s in synthetic_cell.many(Spec(ctx=ctx, gen=gen), range(3))]
        power_W = [solve(s)[0].power_W for s in specs]
        assert max(power_W) - min(power_W) < 0.02


# --- alignment ---


def test_alignment_mends_the_clock_of_a_short_log_and_stays_within_its_bound(short_cells):
    still = [solve(s, aligned=False)[3] for s in synthetic_cell.many(SHORT, range(40))]
    assert max(still) > 4
    assert max(error_ms for *_, error_ms, _ in short_cells) < 0.5
    assert all(abs(fitted.shift_s) * 1e3 <= bound_ms for _, _, fitted, _, bound_ms in short_cells)


def test_a_log_that_is_further_off_than_the_bound_is_moved_by_the_bound_only():
    made = synthetic_cell.make(SHORT)
    late_s = made.sample_end_s + 0.040
    fitted = phases.aligned_fit(power_of(made), late_s, made.elapsed_ms / 1e3, windows_of(made), 0.010)
    assert abs(fitted.shift_s) <= 0.010
    fitted = phases.aligned_fit(power_of(made), late_s, made.elapsed_ms / 1e3, windows_of(made), 0.060)
    assert fitted.shift_s == pytest.approx(-0.040, abs=5e-4)


def test_noisy_power_does_not_drive_the_shift():
    """0.5 W of noise a sample: the shift stays inside the bound and the powers stay within their standard errors."""
    for spec in synthetic_cell.many(replace(SHORT, noise_W=0.5), range(20)):
        prefill, decode, fitted, _, bound_ms = solve(spec)
        assert abs(fitted.shift_s) * 1e3 <= bound_ms
        assert abs(prefill.fit_W - 17.5) < 4 * prefill.fit_error_W + 0.2
        assert abs(decode.fit_W - 13.0) < 4 * fitted.error_W["decode"]


def test_power_without_steps_does_not_move_the_log():
    """The same power everywhere, or a log with too few samples around edges, says nothing of the clock."""
    made = synthetic_cell.make(SHORT)
    times_s, elapsed_s, found = made.sample_end_s, made.elapsed_ms / 1e3, windows_of(made)
    shifts_s = []
    for seed in range(20):
        power_W = np.random.default_rng(seed).normal(10, 1, len(times_s))
        shifts_s.append(phases.aligned_fit(power_W, times_s, elapsed_s, found, 0.030).shift_s)
    assert np.sqrt(np.mean(np.square(shifts_s))) < 0.012
    few = slice(0, phases.MIN_SHIFT_ROWS - 1)
    near = np.argsort(np.abs(times_s - made.first_ns[1] / 1e9))[few]
    assert phases.aligned_fit(power_of(made)[near], times_s[near], elapsed_s[near], found, 0.030).shift_s == 0.0


def test_a_shift_is_not_better_because_it_drops_a_phase(monkeypatch):
    """A log that begins late holds 2.3 samples of prefill, odd ones; moved by 50 ms it would hold too few to count."""
    monkeypatch.setattr(phases, "MIN_SHIFT_ROWS", 4)
    found = phases.windows(np.array([T0]), np.array([1.0]), np.array([T0 + 10]))
    times_s = T0 + 0.87 + 0.1 * np.arange(60)
    power_W = np.full(60, 13.0)
    power_W[:3] = 19.0, 15.0, 14.0
    fitted = phases.aligned_fit(power_W, times_s, np.full(60, 0.1), found, 0.2)
    assert fitted.known == ("prefill", "decode")


# --- the fit and who leads ---


def test_fit_without_time_between_and_without_prefill():
    found = phases.windows(np.array([T0]), np.array([0.0]), np.array([T0 + 5]))
    ends = T0 + np.arange(1, 50) * 0.1
    fitted = phases.fit(np.full(49, 13.0), phases.split(ends, np.full(49, 0.1), found))
    assert fitted.power_W["decode"] == pytest.approx(13.0)
    assert np.isnan(fitted.power_W["prefill"])
    assert np.isnan(fitted.power_W["between"])
    assert not fitted.leads("prefill")


def test_fit_that_cannot_tell_two_phases_apart_gives_none():
    """Every sample holds the same half of prefill and half of decode: only their sum is known."""
    start = T0 + np.arange(20) * 0.1
    found = phases.windows(start, np.full(20, 0.05), start + 0.1)
    parts = phases.split(start + 0.1, np.full(20, 0.1), found)
    fitted = phases.fit(np.full(20, 15.0), parts)
    assert not fitted.leads("prefill")
    power = phases.phase_power("prefill", np.full(20, 15.0), parts, found, fitted)
    assert power.estimator in ("midpoint", "")


def test_an_unsure_fit_does_not_lead():
    rng = np.random.default_rng(1)
    made = synthetic_cell.make(replace(SHORT, requests=2, ttft_s=0.07))
    parts = phases.split(made.sample_end_s, made.elapsed_ms / 1e3, windows_of(made))
    wild_W = power_of(made) + rng.normal(0, 6, len(made.elapsed_ms))
    fitted = phases.fit(wild_W, parts)
    assert fitted.error_W["prefill"] > 0.05 * fitted.power_W["prefill"]
    assert phases.phase_power("prefill", wild_W, parts, windows_of(made), fitted).estimator != "fit"


def test_missing_power_is_left_out_everywhere():
    made = synthetic_cell.make(Spec(ctx=512))
    found, power_W = windows_of(made), power_of(made)
    power_W[::3] = np.nan
    parts = phases.split(made.sample_end_s, made.elapsed_ms / 1e3, found)
    prefill = phases.phase_power("prefill", power_W, parts, found, phases.fit(power_W, parts))
    assert prefill.power_W == pytest.approx(17.5, abs=0.02)
    assert prefill.fit_W == pytest.approx(17.5, abs=0.02)
    assert 16.5 < prefill.integral_W < 17.5
    assert prefill.coverage_pct == pytest.approx(66.7, abs=4)


def test_no_samples_is_no_power_with_a_reason():
    made = synthetic_cell.make(SHORT)
    found, nothing = windows_of(made), np.array([])
    parts = phases.split(nothing, nothing, found)
    fitted = phases.aligned_fit(nothing, nothing, nothing, found, 0.01)
    power = phases.phase_power("decode", nothing, parts, found, fitted)
    assert np.isnan(power.power_W)
    assert power.reason == "no decode power: 0 ms of decode under power samples"


def test_a_midpoint_says_nothing_of_a_phase_shorter_than_the_clock_is_known():
    found = phases.windows(np.array([0.0, 1.0]), np.array([0.02, 0.02]), np.array([0.5, 1.5]))
    ends_s = 0.035 + 0.05 * np.arange(40)
    parts = phases.split(ends_s, np.full(40, 0.05), found)
    power_W = np.full(40, 5.0)
    unfit = phases.Fit(dict.fromkeys(("prefill", "decode", "between"), np.nan),
                       dict.fromkeys(("prefill", "decode", "between"), np.nan), float("inf"), 0.0, 0)  # fmt: skip
    sure = phases.phase_power("prefill", power_W, parts, found, unfit, doubt_s=0.005)
    assert (sure.power_W, sure.estimator) == (5.0, "midpoint")
    doubtful = phases.phase_power("prefill", power_W, parts, found, unfit, doubt_s=0.03)
    assert np.isnan(doubtful.power_W) and doubtful.estimator == ""
    assert doubtful.reason == "no prefill power: it lasts 20 ms and the log's clock is known to 30 ms"
