"""Medians, intervals and marks against values worked out by hand or by scipy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import bootstrap

from lib import stats

NAN = float("nan")


def test_percentile_is_linear_between_ranks():
    assert stats.percentile([10, 20, 30, 40], 50) == 25
    assert stats.percentile([10, 20, 30, 40], 90) == pytest.approx(37)
    assert stats.percentile([4.0], 99) == 4


def test_percentile_leaves_missing_values_out():
    assert stats.percentile([NAN, 1, 3], 50) == 2
    assert np.isnan(stats.percentile([NAN], 50))
    assert np.isnan(stats.percentile([], 50))


def test_median_ci_agrees_with_scipy():
    x = np.random.default_rng(1).normal(50, 5, 20)
    low, high = stats.median_ci(x)
    other = bootstrap((x,), np.median, method="percentile", n_resamples=10_000, rng=2).confidence_interval
    assert (low, high) == pytest.approx((other.low, other.high), abs=0.4)
    assert low < np.median(x) < high


def test_median_ci_is_the_same_for_the_same_seed_and_in_blocks(monkeypatch):
    x = np.arange(30.0)
    whole = stats.median_ci(x, seed=5)
    assert whole == stats.median_ci(x, seed=5)
    monkeypatch.setattr(stats, "_BLOCK", 100)  # 3 resamples at a time
    assert stats.median_ci(x, seed=5) == whole


@pytest.mark.parametrize("x", [[], [3.0], [3.0, NAN]])
def test_an_interval_needs_two_values(x):
    assert np.isnan(stats.median_ci(x)).all()
    assert np.isnan(stats.ratio_ci(x, [1.0, 2.0])).all()
    assert np.isnan(stats.ratio_ci([1.0, 2.0], x)).all()


def test_ratio_and_difference_of_constant_samples():
    assert stats.ratio_ci([6.0] * 5, [3.0] * 5) == (2, 2)
    assert stats.difference_ci([6.0] * 5, [3.0] * 5) == (3, 3)


def test_ratio_ci_holds_the_true_ratio_and_one_only_where_samples_are_alike():
    rng = np.random.default_rng(3)
    a, b = rng.normal(120, 3, 20), rng.normal(100, 3, 20)
    low, high = stats.ratio_ci(a, b)
    assert 1 < low < 1.2 < high < 1.3
    low, high = stats.ratio_ci(b, rng.permutation(b))
    assert low < 1 < high


def test_ratio_to_zero_is_missing():
    assert np.isnan(stats.ratio_ci([1.0, 2.0], [0.0, 0.0])).all()


def test_p99_of_fewer_than_a_hundred_is_the_maximum():
    assert stats.p99_is_max(20) and stats.p99_is_max(99)
    assert not stats.p99_is_max(100)


def test_outliers_by_modified_z_score():
    # median 10, MAD 1: 0.6745 * 5 = 3.37 is inside, 0.6745 * 6 = 4.05 is outside
    values = [9, 9, 9, 10, 10, 11, 11, 15, 16, NAN]
    assert stats.outliers(values).tolist() == [False] * 8 + [True, False]


def test_outliers_where_most_values_are_equal():
    assert stats.outliers([5.0] * 19 + [9.0]).tolist() == [False] * 19 + [True]
    assert not stats.outliers([5.0] * 20).any()
    assert stats.outliers([]).shape == (0,)
    assert not stats.outliers([NAN, NAN]).any()


@given(arrays(float, st.integers(2, 40), elements=st.floats(0.1, 1e6)))
def test_interval_lies_within_the_sample_and_in_order(x):
    low, high = stats.median_ci(x, n_resamples=200)
    assert x.min() <= low <= high <= x.max()
    assert stats.outliers(x).shape == x.shape
