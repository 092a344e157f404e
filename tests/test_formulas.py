"""The published formulas on numbers worked out by hand, and what they make of missing values and zeros."""

import inspect
import math

import numpy as np
import pytest

from lib import formulas as f

NAN = float("nan")


def test_one_request_by_hand():
    """17.5 W for 0.25 s, then 13 W for 3.2 s; 256 tokens in and out."""
    prefill_J, decode_J = f.prefill_J(17.5, 0.25), f.decode_J(13.0, 3.2)
    assert prefill_J == 4.375
    assert decode_J == pytest.approx(41.6)
    assert f.total_J(prefill_J, decode_J) == pytest.approx(45.975)
    assert f.prefill_pct(prefill_J, 45.975) == pytest.approx(9.5160413)
    assert f.output_tok_J(256, 13.0, 3.2) == pytest.approx(6.1538462)
    assert f.decode_tok_J(256, decode_J) == pytest.approx(f.output_tok_J(256, 13.0, 3.2))
    assert f.prefill_tok_J(256, prefill_J) == pytest.approx(58.514286)
    assert f.total_tok_J(256, 256, 45.975) == pytest.approx(11.136487)
    assert f.mJ_per_output_tok(decode_J, 256) == pytest.approx(162.5)
    assert f.mJ_per_output_tok(decode_J, 256) == pytest.approx(1000 / f.decode_tok_J(256, decode_J))
    assert f.request_J_avg(12.5, 3.45) == pytest.approx(43.125)
    assert f.net_J(45.975, 2.0, 3.45) == pytest.approx(39.075)


def test_rates_and_shares():
    assert f.prefill_tok_s(256, 0.25) == 1024.0
    assert f.retention_pct(34.8, 80.0) == pytest.approx(43.5)
    assert f.osl_mismatch_pct(250, 256) == pytest.approx(-2.34375)
    assert f.osl_mismatch_pct(256, 256) == 0.0
    assert f.apart_pct(103.0, 100.0) == pytest.approx(3.0)
    assert f.peak_ram_MB(np.array([1024, 3 * 1024 * 1024])) == 3072.0


def test_identity_counts_one_token_more_than_the_rate():
    """tok/J x W = 256 / decode time; the rate is 255 / decode time: 0.39 % apart by definition, 0.1 % at 1024."""
    for tokens, apart in ((256, 0.3922), (1024, 0.0978), (64, 1.5873)):
        rate = (tokens - 1) / 3.2
        found = f.identity_pct(f.output_tok_J(tokens, 13.0, 3.2), 13.0, rate)
        assert found == pytest.approx(apart, abs=1e-4)
        assert found < f.identity_bound_pct(tokens)
    assert f.identity_bound_pct(1024) == 1.3


def test_medians_and_means_leave_missing_samples_out():
    assert f.total_power_W(np.array([5.0, NAN, 9.0, 6.0])) == 6.0
    assert f.gpu_freq_MHz(np.array([0.0, 1500.0, NAN, 1400.0])) == 1450.0
    assert f.residency_pct(np.array([0.0, 99.0, NAN])) == 49.5
    assert f.best_total_tok_J(np.array([NAN, 3.0, 4.0])) == 4.0


@pytest.mark.parametrize("of_array", [f.total_power_W, f.gpu_freq_MHz, f.residency_pct, f.best_total_tok_J])
def test_nothing_known_is_missing_and_not_zero(of_array):
    assert math.isnan(of_array(np.array([NAN, NAN])))
    assert math.isnan(of_array(np.array([])))
    assert math.isnan(f.gpu_freq_MHz(np.array([0.0, 0.0])))
    assert math.isnan(f.peak_ram_MB(np.array([])))


RATIOS = [f.prefill_pct, f.prefill_tok_J, f.mJ_per_output_tok, f.retention_pct, f.osl_mismatch_pct, f.decode_tok_J,
          f.prefill_tok_s, f.apart_pct]  # fmt: skip


@pytest.mark.parametrize("ratio", RATIOS)
def test_zero_below_the_line_is_missing_and_never_infinite(ratio):
    assert math.isnan(ratio(1.0, 0.0))
    assert math.isnan(ratio(NAN, 2.0))
    assert math.isnan(ratio(1.0, NAN))


def test_zero_power_is_missing():
    assert math.isnan(f.output_tok_J(256, 0.0, 3.2))
    assert math.isnan(f.total_tok_J(256, 256, 0.0))
    assert math.isnan(f.identity_pct(NAN, 13.0, 80.0))
    assert math.isnan(f.identity_bound_pct(1))


def test_arrays_go_through_element_by_element():
    found = f.output_tok_J(np.array([256.0, 512.0]), np.array([13.0, 0.0]), 3.2)
    assert found[0] == pytest.approx(6.1538462)
    assert math.isnan(found[1])


def test_every_public_formula_names_its_source():
    for name, function in inspect.getmembers(f, inspect.isfunction):
        if not name.startswith("_"):
            said = function.__doc__
            known = "(I." in said or "section 3.1" in said or "not in the appendix" in said or "published 1.3" in said
            assert known or name == "apart_pct", name
