"""The stand-in meter: its text is powermetrics' own form, its power the stated model of CPU time."""

import os
import re
import threading
import time

import numpy as np
import pytest

from lib import meter, powermetrics


class Closed(Exception):
    pass


def run(monkeypatch, cpu_s, n, idle_W=1.0, slope_W=4.0, period_s=0.01):
    """Blocks of a meter whose process uses CPU as the function `cpu_s` of call number says."""
    written, calls = [], iter(range(10_000))

    def write(_, data):
        written.append(data.decode())
        if len(written) == n:
            raise Closed

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(Closed):
        meter.sample(lambda: cpu_s(next(calls)), period_s, idle_W, slope_W, 1)
    return written


def test_power_is_idle_plus_slope_times_cpu_share(monkeypatch, tmp_path):
    blocks = run(monkeypatch, lambda call: 0.005 * call, 20)
    log = tmp_path / "log"
    log.write_text(meter.header() + "".join(blocks))
    frame = powermetrics.read(log)
    assert len(frame) == 20
    expected_mW = 1000 * (1.0 + 4.0 * 0.005 / (frame["elapsed_ms"] / 1000))
    # elapsed is printed to 0.01 ms of about 10 ms, so the power computed back from it is good to 0.1 %
    np.testing.assert_allclose(frame["combined_mW"], expected_mW, rtol=2e-3)
    assert (frame["cpu_mW"] == frame["combined_mW"]).all()
    assert frame["gpu_mW"].isna().all(), "no GPU rail, so none is printed"
    assert frame.attrs["notes"] == []
    assert "stand-in meter (modelled" in frame.attrs["machine"]


def test_stamps_are_whole_seconds_with_an_offset(monkeypatch):
    block = run(monkeypatch, lambda call: 0.0, 1)[0]
    stamp = r"\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4} [+-]\d{4}"
    head = rf"\n\*\*\* Sampled system activity \({stamp}\) \(\d+\.\d\dms elapsed\) \*\*\*\n"
    assert re.match(head, block)
    assert "GPU" not in block.replace("Combined Power (CPU + GPU + ANE)", "")


def test_cpu_clock_counts_this_process():
    read = meter.cpu_clock(os.getpid())
    before, own = read(), time.process_time()
    sum(i * i for i in range(300_000))
    assert read() - before == pytest.approx(time.process_time() - own, abs=5e-3)


def test_cpu_clock_of_no_process():
    with pytest.raises(LookupError, match="no process"):
        meter.cpu_clock(2**22 + 12345)


def test_a_closed_output_ends_the_meter():
    reader, writer = os.pipe()
    os.close(reader)
    with pytest.raises(BrokenPipeError):
        meter.sample(lambda: 0.0, 0.001, 1.0, 4.0, writer)
    os.close(writer)


def test_threads_are_counted():
    read = meter.cpu_clock(os.getpid())
    before = read()
    worker = threading.Thread(target=lambda: sum(i * i for i in range(500_000)))
    worker.start()
    worker.join()
    assert read() > before
