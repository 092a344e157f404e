"""The pause before a cell ends when power is low, or when its time is over; what it was is recorded."""

import os
import time

import pytest

from lib import cooldown, plan, power

BASE = dict(backends=["llama.cpp"], models=["tiny-trinity"], prompts=[8], gens=[8], requests=1)


@pytest.fixture
def stand_in():
    return power.choose(plan.Plan(**BASE, power="modelled", modelled_power=plan.ModelledPower(idle_W=2.0)))


@pytest.fixture
def idle_child():
    """A process that does nothing."""
    pid = os.spawnlp(os.P_NOWAIT, "sleep", "sleep", "60")
    yield pid
    os.kill(pid, 9)
    os.waitpid(pid, 0)


def test_power_back_at_idle_ends_the_pause(stand_in, idle_child, tmp_path):
    facts = cooldown.wait(stand_in, idle_child, 2.0, 60.0, 5.0, tmp_path / "cooldown.log")
    assert facts["reached"] is True and facts["power_W"] == pytest.approx(2.0, abs=0.1)
    assert facts["seconds"] < 30 and facts["limit_s"] == 60.0
    assert (tmp_path / "cooldown.log").stat().st_size > 0, "the log of the pause is kept"


def test_power_above_idle_waits_for_the_limit(stand_in, idle_child, tmp_path):
    facts = cooldown.wait(stand_in, idle_child, 1.0, 3.0, 5.0, tmp_path / "cooldown.log")
    assert facts["reached"] is False and facts["power_W"] == pytest.approx(2.0, abs=0.1)
    assert facts["seconds"] >= 3.0


@pytest.mark.parametrize(("power_kind", "idle_W"), [("none", 1.0), ("modelled", None)])
def test_without_a_comparison_the_whole_limit_is_waited(power_kind, idle_W, tmp_path, monkeypatch):
    slept = []
    monkeypatch.setattr(time, "sleep", slept.append)
    source = power.choose(plan.Plan(**BASE, power=power_kind))
    facts = cooldown.wait(source, os.getpid(), idle_W, 7.0, 5.0, tmp_path / "cooldown.log")
    assert facts["reached"] is None and sum(slept) == pytest.approx(7.0, abs=0.5)


def test_no_limit_is_no_pause(stand_in, tmp_path):
    facts = cooldown.wait(stand_in, os.getpid(), 2.0, 0.0, 5.0, tmp_path / "cooldown.log")
    assert facts["seconds"] < 0.5 and facts["reached"] is None and not (tmp_path / "cooldown.log").exists()


def test_a_meter_that_cannot_start_costs_only_the_comparison(stand_in, tmp_path, monkeypatch):
    monkeypatch.setattr(power, "command", lambda *_: ["false"])
    facts = cooldown.wait(stand_in, os.getpid(), 2.0, 0.2, 5.0, tmp_path / "cooldown.log")
    assert facts["reached"] is None and "power meter" in facts["trouble"]
