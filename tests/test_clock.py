"""Rebuilt sample times against the true ones, which the generator knows."""

import os
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from powerlog import times

from lib.clock import rebuild


def synthetic(**options):
    ends, stamps, elapsed = map(np.array, zip(*times(**options), strict=True))
    return ends, stamps.astype(float), elapsed


def worst_ms(clock, ends) -> float:
    return float(np.abs(clock.times_s - ends).max() * 1e3)


@pytest.mark.parametrize("seconds, limit_ms", [(60, 2), (120, 2), (600, 2), (1800, 2)])
@pytest.mark.parametrize("seed", range(4))
def test_without_drift(seconds, limit_ms, seed):
    ends, stamps, elapsed = synthetic(n=int(seconds / 0.0564), seed=seed, start_s=1.78e9 + seed * 0.13)
    clock = rebuild(stamps, elapsed)
    assert worst_ms(clock, ends) < limit_ms
    assert worst_ms(clock, ends) <= clock.error_ms < 6
    assert clock.roundtrip_pct >= 99.9 and clock.gaps == []
    assert (np.diff(clock.times_s) > 0).all()


@pytest.mark.parametrize("drift", [-100, -37, 12, 100])
def test_any_drift_over_half_an_hour(drift):
    ends, stamps, elapsed = synthetic(n=31915, seed=drift + 100, drift_ppm=drift)
    clock = rebuild(stamps, elapsed)
    assert worst_ms(clock, ends) < 5 and worst_ms(clock, ends) <= clock.error_ms < 5
    assert clock.drift_ppm == pytest.approx(drift, abs=2)
    assert clock.roundtrip_pct >= 99.9


@pytest.mark.parametrize("lost_s", [1.2, 3.3, 26.0, 3600.0])
def test_each_side_of_a_gap(lost_s):
    ends, stamps, elapsed = synthetic(n=4000, seed=3, lost=((1500, lost_s),), drift_ppm=20)
    clock = rebuild(stamps, elapsed)
    assert [(g.index, g.kind) for g in clock.gaps] == [(1500, "lost")]
    assert clock.gaps[0].seconds == pytest.approx(lost_s, abs=0.01)
    assert worst_ms(clock, ends) < 5 and worst_ms(clock, ends) <= clock.error_ms
    assert clock.roundtrip_pct >= 99.9


@pytest.mark.parametrize("seed", range(6))
def test_gap_of_less_than_a_second_is_placed_as_far_as_stamps_tell(seed):
    ends, stamps, elapsed = synthetic(n=3000, seed=seed, lost=((1500, 0.3),))
    clock = rebuild(stamps, elapsed)
    assert len(clock.gaps) == 1 and abs(clock.gaps[0].index - 1500) < 18
    error = np.abs(clock.times_s - ends) * 1e3
    assert error[:1480].max() < 5 and error[1520:].max() < 5 and error.max() <= clock.error_ms


def test_sleep_by_the_long_sample_after_it():
    ends, stamps, elapsed = synthetic(n=2000, lost=((700, 26.0),))
    elapsed[700] += 100.0
    clock = rebuild(stamps, elapsed)
    assert [(g.index, g.kind) for g in clock.gaps] == [(700, "sleep")]
    assert clock.gaps[0].seconds == pytest.approx(25.9, abs=0.01)
    assert worst_ms(clock, ends) < 5


def test_clock_set_forwards_and_back():
    _, stamps, elapsed = synthetic(n=3000, lost=((1000, 7.0),))
    assert [g.index for g in rebuild(stamps, elapsed).gaps] == [1000]
    ends, stamps, elapsed = synthetic(n=3000, lost=((1000, -7.0),))
    clock = rebuild(stamps, elapsed)
    assert [(g.index, g.kind) for g in clock.gaps] == [(1000, "back")]
    assert clock.gaps[0].seconds == pytest.approx(-7.0, abs=0.01)
    assert (np.diff(clock.times_s) > 0).all()
    assert np.abs(clock.times_s[:1000] - ends[:1000]).max() < 0.005
    assert np.abs(clock.times_s[1000:] + clock.gaps[0].seconds - ends[1000:]).max() < 0.01


def test_a_few_late_stamps_are_left_out():
    ends, stamps, elapsed = synthetic(n=10000, seed=5)
    late = np.flatnonzero((ends % 1) > 0.96)[::9][:12]
    stamps[late] += 1
    assert len(late) == 12
    clock = rebuild(stamps, elapsed)
    assert clock.gaps == [] and worst_ms(clock, ends) < 2


@pytest.mark.parametrize("n", [1, 2, 5, 18, 36, 54, 90, 150])
@pytest.mark.parametrize("seed", range(5))
def test_short_logs_have_honest_bounds(n, seed):
    ends, stamps, elapsed = synthetic(n=n, seed=seed, start_s=1.78e9 + 0.19 * seed, drift_ppm=50)
    clock = rebuild(stamps, elapsed)
    assert worst_ms(clock, ends) <= clock.error_ms <= 500.1
    assert abs(clock.drift_ppm) <= 200 and clock.roundtrip_pct == 100


def test_nothing_one_and_no_durations():
    empty = rebuild([], [])
    assert len(empty.times_s) == 0 and np.isnan(empty.error_ms) and empty.gaps == []
    one = rebuild([1.78e9], [56.4])
    assert one.times_s.tolist() == [1.78e9 + 0.5] and one.error_ms == pytest.approx(500, abs=0.1)
    ends, stamps, _ = synthetic(n=200)
    clock = rebuild(stamps, np.full(200, np.nan))
    assert worst_ms(clock, ends) <= clock.error_ms <= 1000 and clock.roundtrip_pct == 100
    assert (np.diff(clock.times_s) > 0).all()
    assert np.isnan(rebuild([np.nan] * 3, [56.0] * 3).times_s).all()
    with pytest.raises(ValueError, match="one length"):
        rebuild([1.0], [1.0, 2.0])


def test_one_missing_duration_and_missing_stamps():
    ends, stamps, elapsed = synthetic(n=4000)
    elapsed[2000] = np.nan
    stamps[100:200] = np.nan
    clock = rebuild(stamps, elapsed)
    assert [(g.index, g.kind) for g in clock.gaps] == [(2000, "no elapsed")] and np.isnan(clock.gaps[0].seconds)
    assert worst_ms(clock, ends) < 5


def test_zone_of_the_machine_changes_nothing(monkeypatch):
    _, stamps, elapsed = synthetic(n=2000)
    results = []
    for zone in ("UTC", "Asia/Kolkata", "America/New_York"):
        monkeypatch.setitem(os.environ, "TZ", zone)
        time.tzset()
        results.append(rebuild(stamps, elapsed).times_s)
    monkeypatch.undo()
    time.tzset()
    assert (results[0] == results[1]).all() and (results[0] == results[2]).all()


@given(
    hnp.arrays(float, st.integers(0, 60), elements=st.floats(1.7e9, 1.7e9 + 100).map(np.floor) | st.just(np.nan)),
    st.data(),
)
@settings(max_examples=50, deadline=None)
def test_wild_input_gives_times_that_never_go_back(stamps, data):
    elapsed = data.draw(hnp.arrays(float, len(stamps), elements=st.floats(0, 1e5) | st.just(np.nan)))
    clock = rebuild(stamps, elapsed)
    known = clock.times_s[np.isfinite(clock.times_s)]
    assert len(clock.times_s) == len(stamps) and (np.diff(known) >= -1e-6).all()
