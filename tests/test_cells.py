"""A run as tables: what is read again and what is not, damaged caches, two readers at once, folders that are no run."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lib import cells, parts
from lib.files import TinymoeError
from lib.paths import ROOT
from tests import synthetic_cell
from tests.synthetic_cell import Spec


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run of six older cells of two models, made once."""
    run = tmp_path_factory.mktemp("made") / "run"
    for m, model in enumerate(("a", "b")):
        for c, ctx in enumerate((256, 512, 1024)):
            spec = Spec(requests=3, gen=32, ttft_s=0.3, ctx=ctx, start_s=1.783e9 + 1000 * m + 100 * c, seed=c)
            synthetic_cell.write(run / "llamacpp" / model / "gen32" / f"ctx{ctx}", spec, kind="older")
    cells.read_run(run)
    return run


@pytest.fixture
def run(made, tmp_path):
    """A copy with its tables, dates kept."""
    shutil.copytree(made, tmp_path / "run", copy_function=shutil.copy2)
    return tmp_path / "run"


@pytest.fixture
def read(monkeypatch):
    """Names of the cells that were parsed, in this process."""
    seen = []
    whole = parts.make

    def make(run: Path, folder: Path) -> None:
        seen.append("/".join(folder.parts[-3:]))
        whole(run, folder)

    monkeypatch.setattr(parts, "make", make)
    monkeypatch.setattr(cells, "PARALLEL_FROM", 99)
    return seen


def touch(path: Path) -> None:
    facts = path.stat()
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns + 10**9))


def test_every_cell_is_a_row_in_order(run):
    table = cells.read_run(run)
    assert list(table["model"]) == ["a"] * 3 + ["b"] * 3
    assert list(table["ctx"]) == [256, 512, 1024] * 2
    assert list(table["warmup"]) == [True, False, False] * 2
    assert (table["backend"] == "llama.cpp").all()
    assert table.loc[~table["warmup"], "decode_power_W"].to_numpy() == pytest.approx(np.full(4, 13.0), abs=0.05)


def test_one_cell_read_alone_says_what_its_run_says(run):
    table = cells.read_run(run)
    for at in (0, 1, 5):
        row = cells.read_cell(run / table.loc[at, "folder"])
        for name in ("warmup", "power_reason", "state", "n", "decode_power_W", "prefill_J", "output_tok_s"):
            want = table.loc[at, name]
            assert row[name] == want or (row[name] != row[name] and want != want), name


def test_what_has_not_changed_is_not_read_again_nor_written(run, read):
    dates = {p: p.stat().st_mtime_ns for p in (run / "tables").rglob("*")}
    assert cells.update(run) == (0, 6)
    assert read == []
    assert {p: p.stat().st_mtime_ns for p in (run / "tables").rglob("*")} == dates


@pytest.mark.parametrize("name", ["profile_export.jsonl", "powermetrics.log", "rss.log", "combo_info.json"])
def test_only_the_changed_cell_is_read_again(run, read, name):
    touch(run / "llamacpp" / "a" / "gen32" / "ctx512" / name)
    assert cells.update(run) == (1, 6)
    assert read == ["a/gen32/ctx512"]
    assert cells.update(run) == (0, 6)


def test_new_and_gone_cells(run, read):
    gone = run / "llamacpp" / "b" / "gen32" / "ctx1024"
    shutil.move(gone, run / "superseded")
    assert cells.update(run) == (0, 5)
    assert len(cells.read_run(run)) == 5
    assert len(list((run / "tables" / "parts").iterdir())) == 15
    shutil.move(run / "superseded", gone)
    assert cells.update(run) == (1, 6)
    assert read == ["b/gen32/ctx1024"]


def test_a_new_manifest_or_other_code_makes_every_cell_stale(run, read, monkeypatch):
    (run / "manifest.json").write_text(json.dumps({"idle": {"power_W": 2.0}}))
    with pytest.raises(TinymoeError, match="no cell yet"):
        cells.update(run)  # a manifest of ours: only cells with cell.json count
    (run / "manifest.json").unlink()
    monkeypatch.setattr(cells, "ANALYSIS", cells.ANALYSIS[1:])
    assert cells.update(run) == (6, 6)


def test_every_module_that_reads_a_cell_is_in_the_key():
    code = "import sys, lib.cells, lib.parts; print(*sorted(m for m in sys.modules if m.startswith('lib.')))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    used = {name.removeprefix("lib.") for name in done.stdout.split()}
    assert used - set(cells.ANALYSIS) == set()


# --- a damaged cache ---


CACHED = ["index.json", "cells.parquet", "requests.parquet", "samples.parquet", "parts/json", "parts/samples.parquet"]


def cached(run: Path, name: str) -> Path:
    kind, _, ending = name.partition("/")
    return sorted((run / "tables" / "parts").glob(f"*.{ending}"))[0] if ending else run / "tables" / kind


HARMS = [(name, "cut") for name in CACHED]
HARMS += [("index.json", "garbage"), ("index.json", "list"), ("cells.parquet", "gone"), ("parts/json", "gone")]
HARMS += [(name, "silent") for name in ("cells.parquet", "parts/json", "parts/samples.parquet")]


@pytest.mark.parametrize(("name", "harm"), HARMS)
def test_a_damaged_cache_is_made_again(run, made, read, name, harm):
    path = cached(run, name)
    before, facts = path.read_bytes(), path.stat()
    if harm == "gone":
        path.unlink()
    else:
        bad = {"cut": before[: len(before) // 2], "garbage": b"\xff" * 100, "list": b"[1, 2]"}
        path.write_bytes(bad.get(harm, b"\0" * len(before)))
    if harm == "silent":  # same size, same date
        os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    if harm == "silent" and name.startswith("parts"):
        touch(run / "llamacpp" / "a" / "gen32" / "ctx512" / "rss.log")  # nothing reads it until tables are joined
    pd.testing.assert_frame_equal(cells.read_run(run), pd.read_parquet(made / "tables" / "cells.parquet"))
    for table in ("requests", "samples"):
        want = pd.read_parquet(made / "tables" / f"{table}.parquet")
        pd.testing.assert_frame_equal(pd.read_parquet(run / "tables" / f"{table}.parquet"), want)


# --- who calls ---


def test_a_script_without_a_main_guard_and_two_at_once(run, made):
    """One reader from a file, one from standard input, at once, on a run without tables."""
    shutil.rmtree(run / "tables")
    code = f"from lib import cells\ncells.PARALLEL_FROM = 2\nprint(len(cells.read_run({str(run)!r})))\n"
    script = run.parent / "script.py"
    script.write_text(f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}")
    pipes = {"stdout": subprocess.PIPE, "text": True}
    jobs = [subprocess.Popen([sys.executable, str(script)], **pipes)]
    jobs.append(subprocess.Popen([sys.executable, "-"], cwd=ROOT, stdin=subprocess.PIPE, **pipes))
    said = [jobs[1].communicate(code)[0], jobs[0].communicate()[0]]
    assert said == ["6\n", "6\n"]
    assert [j.returncode for j in jobs] == [0, 0]
    pd.testing.assert_frame_equal(cells.read_run(run), pd.read_parquet(made / "tables" / "cells.parquet"))
    assert not [p for p in (run / "tables").rglob(".*") if p.name.endswith(".tmp")]


def test_a_worker_that_dies_is_one_line(run, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/true" if Path("/bin/true").exists() else "/usr/bin/true")
    monkeypatch.setattr(cells, "PARALLEL_FROM", 2)
    shutil.rmtree(run / "tables")
    with pytest.raises(TinymoeError, match="the process that read it ended"):
        cells.update(run)


def test_folders_that_are_no_run(tmp_path):
    for folder in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(TinymoeError) as caught:
            cells.read_run(folder)
        assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_folders_with_other_names_are_no_cells(run):
    odd = run / "llamacpp" / "a" / "gen32x" / "ctx12"
    odd.mkdir(parents=True)
    (odd / "profile_export.jsonl").write_text("")
    aside = run / "superseded" / "a" / "gen32" / "ctx256"
    aside.mkdir(parents=True)
    (aside / "profile_export.jsonl").write_text("")
    assert len(cells.cell_folders(run)) == 6


def test_the_command_line_says_what_it_did_and_fails_in_one_line(scratch_run, capsys):
    assert cells.main(["--run", scratch_run]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    where = ROOT / "runs" / scratch_run / "llama.cpp" / "m" / "gen32" / "ctx256"
    synthetic_cell.write(where, Spec(requests=3, gen=32, ttft_s=0.3))
    assert cells.main(["--run", scratch_run]) == 0
    assert capsys.readouterr().out == f"tables: 1 of 1 cells read, in runs/{scratch_run}/tables\n"
