"""Heavy processes from two looks whose numbers are given; and that a real look finds its way."""

import itertools
import os
from types import SimpleNamespace

import pytest

from lib import busy
from lib.busy import Heavy, _Use

GB = 10**9
ME = os.getpid()


@pytest.fixture
def looks(monkeypatch):
    """A function that sets what two looks, one second apart, see: process id to (CPU s before, after, bytes)."""

    def see(uses, busy_s=0.0):
        times = itertools.count()
        monkeypatch.setattr(busy, "time", SimpleNamespace(monotonic=lambda: float(next(times)), sleep=lambda _: None))
        monkeypatch.setattr(busy, "_busy_s", iter((0.0, busy_s)).__next__)
        monkeypatch.setattr(busy.psutil, "virtual_memory", lambda: SimpleNamespace(total=16 * GB))
        monkeypatch.setattr(busy, "_name", lambda pid: f"program {pid}")
        before = {pid: _Use(10.0, use[0], use[2]) for pid, use in uses.items() if use[0] != "new"}
        after = {pid: _Use(11.0, use[1], use[2]) for pid, use in uses.items()}
        monkeypatch.setattr(busy, "_uses", iter((before, after)).__next__)
        return busy.look()

    return see


def test_who_takes_cores_or_memory_is_named_the_heaviest_first(looks):
    found, unseen = looks({1: (5.0, 5.1, GB), 2: (5.0, 5.25, GB), 3: (0.0, 0.9, GB), 4: (2.0, 2.0, 4 * GB)})
    assert found == [
        Heavy(3, "program 3", pytest.approx(0.9), GB), Heavy(2, "program 2", 0.25, GB),
        Heavy(4, "program 4", 0.0, 4 * GB),
    ]  # fmt: skip
    assert unseen == 0.0, "never less than nothing"


def test_this_process_is_left_out_but_counts_as_seen(looks):
    assert looks({ME: (1.0, 1.75, GB)}, busy_s=0.75) == ([], 0.0)


def test_what_cannot_be_read_is_cores_unseen(looks):
    found, unseen = looks({7: (None, None, GB), 8: (3.0, 3.5, GB), 9: ("new", 4.0, GB)}, busy_s=2.0)
    assert [p.pid for p in found] == [8]
    assert unseen == 1.5


def test_a_real_look():
    found, unseen = busy.look(0)
    assert unseen >= 0 and ME not in {p.pid for p in found}
    assert busy._name(ME) and busy._name(2**22 + 54321) == "a process that has ended"
