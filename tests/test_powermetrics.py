"""The parser against logs whose truth is known, real captures where they are at hand, and damage of every kind."""

import gzip
import random
import re
from pathlib import Path

import numpy as np
import pandas as pd
import powerlog
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from powerlog import DIALECTS, FIXTURES

from lib import decimals, powermetrics, text_log
from lib.powermetrics import PowerLogError, read

HERE = Path(__file__).parent
REAL = HERE.parents[1] / "shared" / "powermetrics"
real_files = sorted(REAL.glob("[0-9]*")) if REAL.is_dir() else []
with_real = pytest.mark.skipif(not real_files, reason="the real captures are not at hand")


def read_bytes(folder: Path, text: bytes, fast: bool = True) -> pd.DataFrame:
    path = folder / "x.log"
    path.write_bytes(text)
    return read(path, fast)


def assert_is(frame: pd.DataFrame, rows: list[dict], tolerance: float = 0.0) -> None:
    """The frame holds these rows and nothing else."""
    assert len(frame) == len(rows)
    for column in frame.columns:
        for k, value in enumerate(frame[column]):
            want = rows[k].get(column)
            if column == "cluster_from_cores":
                continue
            if isinstance(want, str) or column == "thermal_pressure":
                assert value == want
            else:
                assert value == pytest.approx(np.nan if want is None else want, rel=tolerance, abs=1e-9, nan_ok=True)
    assert {c for row in rows for c in row} <= set(frame.columns)


def note(frame: pd.DataFrame, start: str) -> str:
    found = [n for n in frame.attrs["notes"] if n.startswith(start)]
    assert len(found) == 1, frame.attrs["notes"]
    return found[0]


# --- values ---


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect(tmp_path, dialect, fast):
    log = powerlog.log(dialect, n=40, seed=1, zone="-0730")
    frame = read_bytes(tmp_path, log.text, fast)
    assert_is(frame, log.rows)
    assert frame.attrs == {"machine": DIALECTS[dialect].machine, "os_build": DIALECTS[dialect].build, "notes": []}


@pytest.mark.parametrize("name", FIXTURES)
def test_fixtures_are_those_of_the_generator(name):
    assert (HERE / "fixtures" / "powermetrics" / name).read_bytes() == FIXTURES[name]()


def test_columns_of_a_fixture():
    frame = read(HERE / "fixtures" / "powermetrics" / "m1-12.log")
    assert list(frame.columns) == [*powermetrics.COLUMNS, "E_freq_MHz", "E_active_pct", "P_freq_MHz", "P_active_pct"]
    assert frame["combined_mW"].isna().all() and frame["package_mW"].notna().all()
    assert frame["thermal_pressure"].tolist() == [None] * 3


@pytest.mark.parametrize("fast", [True, False])
def test_cluster_that_reads_zero_is_taken_from_its_cores(tmp_path, fast):
    log = powerlog.log("m4", n=60, seed=2, zero=0.5)
    frame = read_bytes(tmp_path, log.text, fast)
    assert_is(frame, log.rows)
    count = frame["cluster_from_cores"].tolist().count("E,P")
    assert 10 < count < 50 and set(frame["cluster_from_cores"]) == {"E,P", None}
    assert note(frame, "clusters").endswith(f"E in {count} blocks, P in {count} blocks")


@pytest.mark.parametrize("fast", [True, False])
def test_idle_cluster_stays_zero_and_nan_cores_make_nan(tmp_path, fast):
    text = powerlog.log("m4", n=3, seed=3, zero=1.0).text.decode()
    blocks = text.split("*** Sampled")
    blocks[1] = re.sub(r"(CPU \d+ (active residency|frequency): +)[\d.]+", r"\g<1>0", blocks[1])
    blocks[2] = re.sub(r"(CPU 1 active residency: +)[\d.]+", r"\g<1>nan", blocks[2])
    frame = read_bytes(tmp_path, "*** Sampled".join(blocks).encode(), fast)
    assert frame["E_freq_MHz"][0] == 0 and frame["E_active_pct"][0] == 0 and frame["cluster_from_cores"][0] is None
    assert np.isnan(frame["E_active_pct"][1]) and frame["P_active_pct"][1] > 0
    assert frame["cluster_from_cores"][1] == "E,P" and frame["E_active_pct"][2] > 0


def test_nan_is_missing(tmp_path):
    log = powerlog.log("m4", n=3, seed=3)
    text = re.sub(rb"GPU idle residency: +[\d.]+%", b"GPU idle residency:    nan%", log.text)
    frame = read_bytes(tmp_path, re.sub(rb"(CPU 4 \w+ residency:) +[\d.]+%", rb"\1    nan%", text))
    assert frame["gpu_idle_pct"].isna().all() and frame["gpu_active_pct"].notna().all()
    assert frame.attrs["notes"] == []


def test_gpu_section_never_touches_the_rail(tmp_path):
    log = powerlog.log("m4", n=50, seed=4)
    frame = read_bytes(tmp_path, log.text)
    assert (frame["gpu_mW"] != frame["gpu_section_mW"]).any()
    assert (frame["combined_mW"] - frame["cpu_mW"] - frame["gpu_mW"] - frame["ane_mW"]).between(0, 1).all()


def test_offline_cluster(tmp_path):
    frame = read_bytes(tmp_path, powerlog.log("m4pro", n=3).text)
    assert (frame["P0_freq_MHz"] == 0).all() and (frame["P0_active_pct"] == 0).all()
    assert frame["cluster_from_cores"].tolist() == [None] * 3


def test_thermal_levels_are_an_open_set(tmp_path):
    levels = ("Nominal", "Moderate", "Trapping", "Very odd")
    frame = read_bytes(tmp_path, powerlog.log("m4", n=8, levels=levels).text)
    assert frame["thermal_pressure"].tolist() == [v for v in levels for _ in range(2)]


@pytest.mark.parametrize("zone", ["-0800", "+0000", "+0530", "+1300"])
def test_zone_changes_nothing(tmp_path, zone):
    assert_is(read_bytes(tmp_path, powerlog.log("m4", 40, zone=zone).text), powerlog.log("m4", 40).rows)


def test_daylight_saving_inside_the_log(tmp_path):
    change = 1792889200  # 2026-10-25 01:00 UTC is 1792890000
    log = powerlog.log("m4", n=40, start_s=change + 799.0, zone=lambda s: "+0200" if s < 1792890000 else "+0100")
    assert b"+0200" in log.text and b"+0100" in log.text
    frame = read_bytes(tmp_path, log.text)
    assert_is(frame, log.rows)
    assert frame.attrs["notes"] == []


def test_date_with_padded_day_and_edited_headers(tmp_path):
    text = powerlog.log("m4-cpu", n=1).text
    for stamp, want in [("Sat Jan  6 00:00:00 2024 +0000", 1704499200), ("Thu Feb 29 23:59:59 2024 +0530", 1709231399)]:
        frame = read_bytes(tmp_path, re.sub(rb"\(... ... .. [\d: +]+\)", f"({stamp})".encode(), text))
        assert frame["stamp_s"].tolist() == [want]
    frame = read_bytes(tmp_path, re.sub(rb"\(... ... .. [\d: +]+\)", b"(Mon Feb 30 00:00:00 2026 +0000)", text))
    assert frame["stamp_s"].isna().all() and note(frame, "date")
    frame = read_bytes(tmp_path, re.sub(rb" \([\d.]+ms elapsed\)", b"", text))
    assert frame["elapsed_ms"].isna().all() and note(frame, "elapsed")
    frame = read_bytes(tmp_path, re.sub(rb"\([\d.]+ms elapsed\)", b"(501.02 ms elapsed)", text))
    assert frame["elapsed_ms"].tolist() == [501.02]


# --- forms ---


def test_gzip_by_content_even_in_members(tmp_path):
    log = powerlog.log("m4", n=20)
    half = len(log.text) // 2
    packed = gzip.compress(log.text[:half]) + gzip.compress(log.text[half:])
    assert_is(read_bytes(tmp_path, packed), log.rows)


def test_plist_stream(tmp_path):
    for options in ({}, {"zero": True}, {"gpu_only": True}):
        log = powerlog.plist(4, **options)
        frame = read_bytes(tmp_path, log.text)
        rows = [{**r, "gpu_mW": r.get("gpu_mW", r["gpu_section_mW"])} for r in log.rows]
        assert_is(frame, rows, tolerance=1e-6)
        assert frame.attrs["machine"] == "Mac16,10" and frame.attrs["os_build"] == "25C56"
        assert frame["cluster_from_cores"].tolist() == ["E,P" if options.get("zero") else None] * 4
        assert_is(read_bytes(tmp_path, gzip.compress(log.text)), rows, tolerance=1e-6)


def test_gpu_sampler_alone(tmp_path):
    text = re.sub(rb"\n\*\*\*\* Processor.*?(?=\n\*\*\*\* Thermal)", b"", powerlog.log("m4", n=5).text, flags=re.S)
    frame = read_bytes(tmp_path, text)
    assert (frame["gpu_mW"] == frame["gpu_section_mW"]).all() and note(frame, "no Processor section")


# --- damage ---


def test_stale_fragments(tmp_path):
    log = powerlog.log("m4-cpu", n=6)
    for tail in (b"W\n8 mW\n", b"82 mW\n", b" 614 mW", b"+ ANE): 62 mW\nANE Power: 0 mW\n"
                 b"Combined Power (CPU + GPU + ANE): 4006 mW\n", b"GPU Power: 1 mW"):  # fmt: skip
        frame = read_bytes(tmp_path, log.text + tail)
        assert_is(frame, log.rows)
        assert note(frame, "stale tail")


def test_stale_whole_blocks_of_an_older_run(tmp_path):
    new, old = powerlog.log("m4-cpu", n=4), powerlog.log("m4-cpu", n=9, seed=9, start_s=1.7e9)
    frame = read_bytes(tmp_path, new.text + old.text[len(new.text) :])
    assert_is(frame, new.rows)
    assert any(n.startswith("stale tail") and "blocks after torn text" in n for n in frame.attrs["notes"])


def test_nul_prefix(tmp_path):
    log = powerlog.log("m4", n=5)
    cut = log.text.index(b"\n*** Sampled", 3000)
    for count in (100, 5 << 20):
        frame = read_bytes(tmp_path, b"\0" * count + log.text[cut:])
        assert_is(frame, log.rows[1:])
        assert note(frame, "NUL bytes").startswith(f"NUL bytes: {count} (first at byte 0)")
        assert frame.attrs["machine"] is None


def test_number_with_nul_inside_is_not_read(tmp_path):
    log = powerlog.log("m4-cpu", n=3)
    text = re.sub(rb"(Combined Power[^\n]*: \d)", b"\\1\0\0", log.text, count=1)
    frame = read_bytes(tmp_path, text)
    assert np.isnan(frame["combined_mW"][0]) and note(frame, "NUL bytes: 2") and note(frame, "torn lines")


def test_summary_is_compared_and_not_counted(tmp_path):
    log = powerlog.log("m4", n=12)
    for factor, word in ((1.0, "agrees"), (1.2, "disagrees")):
        text = log.text + powerlog.summary(DIALECTS["m4"], log.rows, factor).encode()
        frame = read_bytes(tmp_path, text)
        assert_is(frame, log.rows)
        assert f"; {word} with" in note(frame, "summary")
    again = log.text.split(b"\n\n\n", 1)[1]
    frame = read_bytes(tmp_path, text + again)
    assert_is(frame, log.rows)
    assert any("12 blocks after it" in n for n in frame.attrs["notes"])


def test_once_in_a_loop_is_legal(tmp_path):
    logs = [powerlog.log("m4", n=1, seed=k, start_s=1.78e9 + k) for k in range(6)]
    frame = read_bytes(tmp_path, b"".join(log.text for log in logs))
    assert_is(frame, [log.rows[0] for log in logs])
    assert frame.attrs["notes"] == []


def test_two_writers(tmp_path):
    a, b = powerlog.log("m4-cpu", n=100, seed=1), powerlog.log("m4-cpu", n=100, seed=2)
    parts = [re.split(rb"(?=\n\*\*\* Sampled)", log.text) for log in (a, b)]
    mixed = b"".join(x + y for x, y in zip(*parts, strict=True))
    frame = read_bytes(tmp_path, mixed)
    assert len(frame) == 200 and note(frame, "second writer")


def test_torn_in_the_middle(tmp_path):
    log = powerlog.log("m4-cpu", n=5)
    places = [m.start() for m in re.finditer(rb"\n\*\*\* Sampled", log.text)]
    cut = log.text.index(b"CPU 9 active", places[1])
    for glue in (b"\n\n**\n\n", b""):
        frame = read_bytes(tmp_path, log.text[: cut + 40] + glue + log.text[places[2] + 1 :])
        assert len(frame) == 5 and np.isnan(frame["combined_mW"][1])
        assert frame["combined_mW"].tolist()[2:] == [r["combined_mW"] for r in log.rows[2:]]
        assert frame["E_freq_MHz"].tolist() == [r["E_freq_MHz"] for r in log.rows]
        assert any(n.startswith(("torn", "unknown")) for n in frame.attrs["notes"])


def test_block_without_its_end_is_noted_and_keeps_what_it_has(tmp_path):
    log = powerlog.log("m4-cpu", n=12)
    for count in (1, 9):
        text = re.sub(rb"CPU Power: .*?Combined[^\n]*\n", b"", log.text, count=count, flags=re.S)
        for fast in (True, False):
            frame = read_bytes(tmp_path, text, fast)
            assert len(frame) == 12 and int(frame["combined_mW"].isna().sum()) == count
            assert f"unfinished blocks: {count} " in note(frame, "unfinished")


def test_junk_in_a_block_is_counted_and_not_followed_for_ever(tmp_path):
    log = powerlog.log("m4-cpu", n=3)
    cut = log.text.index(b"CPU 3 frequency")
    frame = read_bytes(tmp_path, log.text[:cut] + b"a: b\n" * 500_000 + log.text[cut:])
    assert len(frame) == 3 and note(frame, "unknown lines: 201")
    assert frame["combined_mW"].notna().tolist() == [False, True, True]


def test_rails_that_do_not_add_up(tmp_path):
    text = re.sub(rb"ANE Power: \d+", b"ANE Power: 5000", powerlog.log("m4", n=4).text, count=2)
    assert "in 2 blocks" in note(read_bytes(tmp_path, text), "rails")


def test_gap_long_sample_and_step_back(tmp_path):
    log = powerlog.log("m4", n=30, lost=((10, 26.0),))
    assert note(read_bytes(tmp_path, log.text), "gap: block 11 is 2")
    text = re.sub(rb"\([\d.]+ms", b"(660000.00ms", log.text, count=1)
    assert note(read_bytes(tmp_path, text), "gap: block 1 covers 660.000 s")
    log = powerlog.log("m4", n=30, lost=((10, -26.0),))
    assert note(read_bytes(tmp_path, log.text), "time goes back: block 11")


def test_counters_that_lie(tmp_path):
    log = powerlog.log("m4-cpu", n=41).text
    stuck = re.sub(rb"(CPU|GPU|ANE|Combined)( Power[^\n]*): \d+ mW", rb"\1\2: 0 mW", log)
    assert any("not measured" in n for n in read_bytes(tmp_path, stuck).attrs["notes"])
    last = stuck.rindex(b"CPU Power: 0")
    batch = stuck[:last] + b"CPU Power: 90000 mW\nGPU Power: 0 mW\nANE Power: 0 mW\n" \
        b"Combined Power (CPU + GPU + ANE): 90000 mW\n"  # fmt: skip
    assert any("in batches" in n for n in read_bytes(tmp_path, batch).attrs["notes"])


# --- cutting ---


def same_rows(cut: pd.DataFrame, whole: pd.DataFrame) -> None:
    """Each row is one of the whole file, or lacks sections that a lone block cannot be known to have had."""
    assert len(cut) <= len(whole)
    for column in cut.columns:
        a, b = cut[column].to_numpy(), whole[column].to_numpy()[: len(cut)]
        equal = np.array([x == y or (x is None or x != x) for x, y in zip(a, b, strict=True)], dtype=bool)
        assert equal.all(), column
        if len(cut) > 1:
            assert [x is None or x != x for x in a] == [x is None or x != x for x in b], column


def cuts(text: bytes, near: int, many: int) -> list[int]:
    """Where to cut: everywhere if short, else everywhere near the end and a sample before."""
    dense = range(max(0, len(text) - near), len(text) + 1)
    return sorted({*dense, *random.Random(1).sample(range(len(text)), min(many, len(text)))})


CUT = {
    "small": (powerlog.log("small", n=2).text, 4000, 0),
    "intel": (powerlog.log("intel", n=2).text, 100, 60),
    "m1-12": (powerlog.log("m1-12", n=2).text, 100, 60),
    "m4": (powerlog.log("m4", n=3).text, 120, 40),
    "stale": (FIXTURES["m4-stale-tail.log"](), 120, 20),
    "plist": (powerlog.plist(2).text, 100, 60),
    "gzip": (gzip.compress(powerlog.log("m4", n=3).text, mtime=0), 30, 60),
}


@pytest.mark.parametrize("name", CUT)
def test_cut_anywhere(tmp_path, name):
    text, near, many = CUT[name]
    whole = read_bytes(tmp_path, text)
    for k in cuts(text, near, many):
        same_rows(read_bytes(tmp_path, text[:k]), whole)


@with_real
@pytest.mark.parametrize("path", real_files, ids=lambda p: p.name[:12])
def test_cut_real_files_anywhere(tmp_path, path):
    text, whole = path.read_bytes(), read(path)
    for k in cuts(text, 12, 5):
        same_rows(read_bytes(tmp_path, text[:k]), whole)


def test_cut_number_is_not_read(tmp_path):
    text = powerlog.log("m4-cpu", n=3).text
    stop = text.rindex(b" mW")
    for k in range(stop - 4, stop + 3):
        frame = read_bytes(tmp_path, text[:k])
        assert len(frame) == 2 and "cut block: 1" in note(frame, "cut block")
    assert len(read_bytes(tmp_path, text[: stop + 3])) == 3


# --- both ways of reading ---


@given(st.integers(0, 10**6), st.sampled_from(sorted(DIALECTS)), st.data())
@settings(max_examples=40, deadline=None)
def test_fast_and_slow_agree_on_damaged_logs(tmp_path_factory, seed, dialect, data):
    folder = tmp_path_factory.getbasetemp()
    text = bytearray(powerlog.log(dialect, n=12, seed=seed, zero=0.3).text)
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(text)))
        length = data.draw(st.sampled_from([0, 1, 3, 50]))
        text[at : at + length] = data.draw(st.sampled_from([b"", b"\n", b"0", b"x", b"nan", b" 7 mW\n", b"\0", b"."]))
    a, b = (read_bytes(folder, bytes(text), fast) for fast in (True, False))
    pd.testing.assert_frame_equal(a, b, check_exact=True)
    assert sorted(a.attrs["notes"]) == sorted(b.attrs["notes"])


KEYS = [b"CPU Power", b"E-Cluster HW active frequency", b"GPU HW active residency", b"CPU 3 frequency"]
CHANGES = [rb"\1\2x", rb"\1\2 7", rb"\1\g<2>12345678", rb"\1x\2", rb"\1\2.5.5", rb"\1", rb"\1-\2"]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("change", CHANGES)
def test_fast_and_slow_agree_on_damaged_numbers(tmp_path, key, change):
    text = powerlog.log("m4", n=30, zero=0.5).text
    at = text.index(b"\n*** Sampled", len(text) // 2)
    damaged = text[:at] + re.sub(rb"(\n" + re.escape(key) + rb": +)([\d.]+)", change, text[at:], count=1)
    assert damaged != text
    a, b = (read_bytes(tmp_path, damaged, fast) for fast in (True, False))
    pd.testing.assert_frame_equal(a, b, check_exact=True)
    assert a.attrs == b.attrs and len(a) == 30


def test_decimals_are_what_float_reads():
    rng = random.Random(1)
    texts = ["".join(rng.choice("0123456789 ..%m") if rng.random() < 0.5 else rng.choice("  0123456789")
                     for _ in range(8)) for _ in range(20_000)]  # fmt: skip
    data = "".join(texts).encode() + b"\n" * 8
    words = np.ndarray((len(data) - 7,), dtype="<u8", buffer=data, strides=(1,))
    value, good, end = decimals.read(words, np.arange(len(texts)) * 8)
    for k, text in enumerate(texts):
        m = re.match(r" *(\d+(?:\.\d*)?)", text)
        assert good[k] == (m is not None and m.end() < 8), text
        assert not good[k] or (value[k] == float(m[1]) and end[k] == 8 * k + m.end())


@pytest.mark.parametrize("piece", [300, 5000, 70_000])
def test_pieces_of_any_size_give_the_same(tmp_path, monkeypatch, piece):
    log = powerlog.log("m4", n=40, zero=0.2)
    monkeypatch.setattr(text_log, "PIECE", piece)
    assert_is(read_bytes(tmp_path, log.text), log.rows)
    assert_is(read_bytes(tmp_path, log.text, fast=False), log.rows)


# --- wild input ---


@given(st.binary(max_size=3000))
@settings(max_examples=50, deadline=None)
def test_random_bytes(tmp_path_factory, data):
    assert len(read_bytes(tmp_path_factory.getbasetemp(), data)) == 0


@given(st.randoms(use_true_random=False))
@settings(max_examples=15, deadline=None)
def test_lines_in_random_order(tmp_path_factory, rng):
    lines = powerlog.log("m1-12", n=4).text.split(b"\n")
    rng.shuffle(lines)
    frame = read_bytes(tmp_path_factory.getbasetemp(), b"\n".join(lines))
    assert len(frame) <= 4


def test_nothing_and_no_file(tmp_path):
    frame = read_bytes(tmp_path, b"")
    assert frame.empty and list(frame.columns) == powermetrics.COLUMNS and note(frame, "no samples")
    for path in (tmp_path / "absent.log", tmp_path):
        with pytest.raises(PowerLogError, match=f"{path}: byte 0: expected a powermetrics log"):
            read(path)


def test_one_endless_line(tmp_path):
    log = powerlog.log("m4", n=4)
    for text in (b"x" * (30 << 20), log.text + b"x" * (30 << 20), b"x" * (30 << 20) + log.text):
        frame = read_bytes(tmp_path, text)
        assert len(frame) in (0, 3, 4) and (len(frame) == 0) == text.startswith(b"x" * len(text))
        assert any(n.startswith("no block") for n in frame.attrs["notes"])


# --- real captures ---

REAL_BLOCKS = {"03": 10, "05": 1, "06": 21, "12": 1, "15": 112, "17": 10, "18": 10, "22": 10, "25": 10, "28": 8,
               "31": 10, "34": 8, "35": 10, "37": 10, "39": 1, "40": 5, "44": 1, "46": 1, "49": 5}  # fmt: skip


@with_real
@pytest.mark.parametrize("path", real_files, ids=lambda p: p.name[:12])
def test_real_captures(path):
    if path.name[:2] not in REAL_BLOCKS:
        pytest.skip("not a capture that is known here")
    frame = read(path)
    pd.testing.assert_frame_equal(frame, read(path, fast=False), check_exact=True)
    assert len(frame) == REAL_BLOCKS[path.name[:2]]
    assert frame["stamp_s"].notna().all() and frame["elapsed_ms"].between(100, 6000).all()
    assert not any(n.startswith(("unknown", "torn", "rails", "cut")) for n in frame.attrs["notes"])


@with_real
def test_real_long_capture_values():
    frame = read(next(p for p in real_files if p.name.startswith("15-")))
    assert frame["elapsed_ms"].sum() == pytest.approx(56732, abs=500)
    assert int((frame["gpu_mW"] != frame["gpu_section_mW"]).sum()) == 27
