"""caffeinate runs while a sweep does, for its process and no other, and only on macOS."""

import os
import stat
import time

import pytest

from lib import awake


@pytest.fixture
def caffeinate(tmp_path, monkeypatch):
    """A stand-in first on PATH that writes down how it was called, and waits."""
    program = tmp_path / "bin" / "caffeinate"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "$*" > "$0.said"\nexec sleep 60\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(awake.machine, "is_macos", lambda: True)
    return program.with_name("caffeinate.said")


def test_it_is_bound_to_this_process_and_ends_with_the_sweep(caffeinate):
    with awake.awake() as said:
        while not caffeinate.exists() or not caffeinate.read_text():
            time.sleep(0.01)
        assert caffeinate.read_text().split() == ["-dims", "-w", str(os.getpid())]
        assert "sleep is off" in said
        child = _sleeping_child()
        assert child
    assert not _sleeping_child()


def _sleeping_child():
    import psutil

    return [p for p in psutil.Process().children() if p.is_running() and "sleep" in p.name()]


def test_without_the_program_the_sweep_goes_on_and_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(awake.machine, "is_macos", lambda: True)
    monkeypatch.setenv("PATH", str(tmp_path))
    with awake.awake() as said:
        assert said.startswith("the machine may fall asleep: caffeinate did not start")


def test_elsewhere_nothing_is_done(monkeypatch):
    monkeypatch.setattr(awake.machine, "is_macos", lambda: False)
    with awake.awake() as said:
        assert said == ""
