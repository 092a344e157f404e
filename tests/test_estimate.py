import pytest

from lib import estimate, plan

PLAN = plan.Plan(
    backends=["llama.cpp", "mlx-lm"],
    models=["tiny-trinity", "tiny-lfm2.5"],
    prompts=[200],
    gens=[20],
    requests=4,
    warmup=1,
)
CELL = plan.Cell("llama.cpp", "tiny-trinity", 200, 20)


def test_assumed_until_measured_then_scaled_per_server_then_per_backend():
    found = estimate.Estimate(PLAN)
    assumed = 5 * (200 / 2000 + 20 / 200) + estimate.CELL_OVERHEAD_S
    assert found.seconds(CELL) == pytest.approx(assumed)
    found.learn(CELL, 3 * assumed)
    assert found.seconds(CELL) == pytest.approx(3 * assumed)
    assert found.seconds(plan.Cell("llama.cpp", "tiny-lfm2.5", 200, 20)) == pytest.approx(3 * assumed)
    other = plan.Cell("mlx-lm", "tiny-lfm2.5", 200, 20)
    assert found.seconds(other) == pytest.approx(5 * (200 / 400 + 20 / 60) + estimate.CELL_OVERHEAD_S)


def test_total_counts_a_start_for_each_server():
    found = estimate.Estimate(PLAN)
    cells = [CELL, CELL, plan.Cell("mlx-lm", "tiny-trinity", 200, 20)]
    assert found.total(cells) == pytest.approx(sum(map(found.seconds, cells)) + 2 * estimate.SERVER_START_S[True])
    assert found.total([]) == 0


def test_clock():
    assert estimate.clock(3661.4) == "1:01:01"
