"""Choosing a meter, and running the stand-in as a process: its text reaches the log, and it ends with its pipe."""

import os
import stat
import sys
import time

import psutil
import pytest

from lib import plan, power, powermetrics

BASE = dict(backends=["llama.cpp"], models=["tiny-trinity"], prompts=[8], gens=[8], requests=1)


def source(**kwargs):
    return power.choose(plan.Plan(**BASE, **kwargs))


def test_none_is_none(tmp_path):
    found = source(power="none")
    assert (found.kind, found.basis, found.scope) == ("none", "none", "none")
    meter = power.Meter(found, 1, tmp_path / "powermetrics.log")
    meter.start()
    meter.stop()
    assert not (tmp_path / "powermetrics.log").exists()
    assert power.idle(found, tmp_path) is None


def test_modelled_says_so_with_its_numbers():
    found = source(power="modelled", modelled_power=plan.ModelledPower(idle_W=2.5, slope_W_per_core=3.0))
    assert (found.kind, found.basis, found.idle_W, found.slope_W_per_core) == ("stand-in meter", "modelled", 2.5, 3.0)
    assert found.note.startswith("asked for by the plan; power = 2.5 W + 3 W x")


def test_auto_off_a_mac_is_the_stand_in_with_the_reason(monkeypatch):
    monkeypatch.setattr(power.machine, "is_macos", lambda: False)
    found = source(power="auto")
    assert found.kind == "stand-in meter"
    assert "powermetrics exists on macOS only" in found.note


def test_powermetrics_that_cannot_be_had_is_an_error(monkeypatch):
    monkeypatch.setattr(power.machine, "is_macos", lambda: False)
    with pytest.raises(power.PowerError, match="powermetrics exists on macOS only; or set 'power: modelled'"):
        source(power="powermetrics")


def sudo(tmp_path, monkeypatch, script):
    """A program called sudo, first on PATH, that does what `script` says; the machine is a Mac."""
    program = tmp_path / "bin" / "sudo"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(power.machine, "is_macos", lambda: True)


def test_powermetrics_that_sudo_allows_is_measured(tmp_path, monkeypatch):
    sudo(
        tmp_path,
        monkeypatch,
        'printf "%s\\n" "$*" > "$0.said"; echo "*** Sampled system activity (x) (50.00ms elapsed) ***"',
    )
    found = source(power="auto")
    assert (found.kind, found.basis, found.scope) == ("powermetrics", "measured", "package")
    said = (tmp_path / "bin" / "sudo.said").read_text().split()
    assert said[:2] == ["-n", "/usr/bin/powermetrics"], "sudo must be asked for powermetrics alone, without a prompt"


def test_a_password_prompt_is_a_refusal(tmp_path, monkeypatch):
    sudo(tmp_path, monkeypatch, 'echo "sudo: a password is required" >&2; exit 1')
    assert "said: sudo: a password is required" in power.powermetrics_refusal()
    with pytest.raises(power.PowerError, match="a password is required"):
        source(power="powermetrics")
    assert source(power="auto").basis == "modelled"


@pytest.fixture
def stand_in():
    return source(power="modelled")


def test_the_stand_in_runs_and_ends_with_its_pipe(tmp_path, stand_in):
    meter = power.Meter(stand_in, os.getpid(), tmp_path / "powermetrics.log")
    meter.start()
    child = psutil.Process(meter._process.pid)
    meter.stop()
    assert not child.is_running(), "the meter outlived its pipe"
    assert meter.trouble == ""
    frame = powermetrics.read(tmp_path / "powermetrics.log")
    assert len(frame) == meter.samples >= 2
    assert (frame["combined_mW"] >= 1000).all()
    assert meter.cpu_s > 0 and meter.pump_cpu_s > 0
    meter.stop()  # twice does no harm


def test_a_meter_without_a_server_says_its_own_words(tmp_path, stand_in):
    meter = power.Meter(stand_in, 2**22 + 54321, tmp_path / "powermetrics.log")
    with pytest.raises(power.PowerError, match="ended before it was stopped; it said: lib.meter: no process"):
        meter.start()


def test_a_meter_that_is_killed_is_trouble(tmp_path, stand_in):
    meter = power.Meter(stand_in, os.getpid(), tmp_path / "powermetrics.log")
    meter.start()
    psutil.Process(meter._process.pid).kill()
    meter._thread.join(5)
    meter.stop()
    assert meter.trouble == "the power meter ended before it was stopped"


def test_a_log_that_cannot_be_written_is_trouble(tmp_path, stand_in):
    meter = power.Meter(stand_in, os.getpid(), tmp_path / "missing" / "powermetrics.log")
    with pytest.raises(power.PowerError, match=r"powermetrics.log could not be written \(No such file or directory\)"):
        meter.start()


def test_idle_of_the_stand_in_is_its_constant(tmp_path, stand_in):
    assert power.idle(stand_in, tmp_path) == {"power_W": 1.0, "basis": "modelled", "samples": 0}


# --- a meter that falls silent ---


def silent_meter(tmp_path, monkeypatch, source, pause_s):
    """A meter that gives samples, says nothing for `pause_s`, and goes on."""
    head = "*** Sampled system activity (Tue Dec  1 00:00:00 2026 +0000) (50.00ms elapsed) ***"
    block = f"{head}\\nCombined Power (CPU + GPU + ANE): 1 mW\\n"
    program = tmp_path / "meter.py"
    program.write_text(
        f"import time\nfor n in range(200):\n    print({block!r}.encode().decode('unicode_escape'), flush=True)\n"
        f"    time.sleep({pause_s} if n == 3 else 0.05)\n"
    )
    monkeypatch.setattr(power, "command", lambda *_: [sys.executable, str(program)])
    alarms = []
    return power.Meter(source, os.getpid(), tmp_path / "powermetrics.log", alarms.append), alarms


def test_a_silent_meter_raises_the_alarm_and_leaves_the_reason(tmp_path, monkeypatch, stand_in):
    monkeypatch.setattr(power, "SILENT_S", 0.3)
    meter, alarms = silent_meter(tmp_path, monkeypatch, stand_in, 0.8)
    meter.start()
    time.sleep(1.5)
    meter.stop()
    assert alarms == ["power meter: silent for 0.3 s; this cell will have no power"]
    assert meter.trouble.startswith("the power meter was silent for 0.") and meter.longest_silence_s > 0.7


def test_a_meter_in_time_raises_none(tmp_path, monkeypatch, stand_in):
    meter, alarms = silent_meter(tmp_path, monkeypatch, stand_in, 0.05)
    meter.start()
    time.sleep(0.5)
    meter.stop()
    assert alarms == [] and meter.trouble == ""
