import os
import subprocess
import sys
import time

import psutil

from lib.cell import read_rss
from lib.memory import MemorySampler


def test_samples_of_this_process(tmp_path):
    sampler = MemorySampler(os.getpid(), tmp_path / "rss.csv")
    began_ns = time.time_ns()
    sampler.start()
    while sampler.samples < 3:
        time.sleep(0.01)
    sampler.stop()
    frame = read_rss(tmp_path / "rss.csv")
    assert len(frame) == sampler.samples >= 3
    assert frame["time_ns"].between(began_ns, time.time_ns()).all()
    assert frame["time_ns"].is_monotonic_increasing
    rss_kb = psutil.Process().memory_info().rss / 1024
    assert frame["rss_kb"].between(0.5 * rss_kb, 1.5 * rss_kb).all()
    assert sampler.trouble == ""


def test_a_process_that_ends_is_said(tmp_path):
    child = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    sampler = MemorySampler(child.pid, tmp_path / "rss.csv")
    child.communicate(b"\n")
    sampler.start()
    sampler.stop()
    assert sampler.trouble == "the server's process was gone"


def test_a_file_that_cannot_be_written_is_said(tmp_path):
    sampler = MemorySampler(os.getpid(), tmp_path / "missing" / "rss.csv")
    sampler.start()
    sampler.stop()
    assert sampler.trouble == "rss.csv could not be written (No such file or directory)"


def test_the_older_log_and_damaged_lines_are_read(tmp_path):
    old = tmp_path / "rss.log"
    old.write_text("1000\n2000\n\n3x\n1500\n")
    assert list(read_rss(old)["rss_kb"]) == [1000, 2000, 1500]
    cut = tmp_path / "rss.csv"
    cut.write_text("time_ns,rss_kb\n100,7\n200,8\n30")
    assert list(read_rss(cut)["rss_kb"]) == [7, 8]
