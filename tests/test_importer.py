"""Artifacts of the earlier scripts become a run whose numbers are those of the artifacts."""

import json
import shutil

import in_process
import pandas as pd
import pytest

from lib import cells, importer, paths

FIXTURE = paths.RUNS / "fixture"


@pytest.fixture
def earlier(tmp_path):
    """The fixture as the earlier scripts would have left it: other names, rss.log, no cell.json, a folder above."""
    root = tmp_path / "artifacts" / "2026-07"
    for cell in FIXTURE.glob("*/tiny-trinity/gen*/ctx*"):
        backend, model, gen, ctx = cell.relative_to(FIXTURE).parts
        target = root / {"llama.cpp": "llamacpp"}.get(backend, backend) / model / gen / ctx
        target.mkdir(parents=True)
        for name in importer.REQUESTS:
            shutil.copy(cell / name, target)
        shutil.copy(cell / "powermetrics.log", target)
        kb = pd.read_csv(cell / "rss.csv")["rss_kb"]
        (target / "rss.log").write_text("\n".join(map(str, kb)) + "\n")
        (target / "combo_info.json").write_text("{}")
    return tmp_path / "artifacts"


def bring(source, run):
    return importer.main(["--from", str(source), "--run", run])


def test_the_numbers_are_those_of_the_artifacts(earlier, scratch_run, capfd):
    assert bring(earlier, scratch_run) == 0
    assert "8 of 8 cells of 2 servers copied" in capfd.readouterr().out
    keys = ["backend", "model", "ctx", "gen"]
    got = cells.read_run(paths.run_folder(scratch_run)).set_index(keys).sort_index()
    own = cells.read_run(FIXTURE).set_index(keys).sort_index().loc[got.index]
    assert len(got) == 8 and set(got["state"]) == {"ok"}
    for name in ("ttft_ms", "output_tok_s", "osl", "peak_ram_MB"):
        pd.testing.assert_series_equal(got[name], own[name])
    steady = ~own["warmup"]
    pd.testing.assert_series_equal(got.loc[steady, "decode_power_W"], own.loc[steady, "decode_power_W"])
    assert got["warmup"].tolist() == own["warmup"].tolist(), "the first cell of each server is found by its time"
    assert (got["power_basis"] == "measured").all()


def test_again_copies_what_has_come_since(earlier, scratch_run, capfd):
    assert bring(earlier, scratch_run) == 0
    cell = paths.run_folder(scratch_run) / "mlx-lm" / "tiny-trinity" / "gen16" / "ctx32"
    before = (cell / "profile_export.jsonl").stat().st_mtime_ns
    lengths = earlier / "2026-07" / "mlx-lm" / "tiny-trinity" / "gen16"
    shutil.copytree(lengths / "ctx32", lengths / "ctx64")
    capfd.readouterr()
    assert bring(earlier, scratch_run) == 0
    assert "1 of 9 cells of 2 servers copied" in capfd.readouterr().out
    assert (cell / "profile_export.jsonl").stat().st_mtime_ns == before
    assert json.loads((paths.run_folder(scratch_run) / "manifest.json").read_text())["grid"]["prompts"] == [32, 64, 128]


def test_the_report_of_an_imported_run(earlier, scratch_run):
    assert bring(earlier, scratch_run) == 0
    text = in_process.build(scratch_run, draw=False)
    assert "Imported" in text and "tiny-trinity under MLX-LM" in text


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda root: root / "nowhere", "no such folder"),
        (lambda root: (root / "empty").mkdir() or root / "empty", "no cell here"),
        (lambda root: _cell(root / "odd", "vllm/some-model/gen16/ctx32"), "backend folder 'vllm' is not known"),
        (lambda root: _cell(root / "bad", "llamacpp/so me/gen16/ctx32"), "model 'so me' cannot be a folder name"),
        (
            lambda root: _cell(root / "two", "a/mlx/m/gen16/ctx32", "b/mlx-lm/m/gen16/ctx32"),
            "are both mlx-lm/m/gen16/ctx32; import them into two runs",
        ),
    ],
)
def test_what_cannot_be_imported_is_one_line(make, said, tmp_path, scratch_run, capfd):
    assert bring(make(tmp_path), scratch_run) == 1
    err = capfd.readouterr().err
    assert said in err and err.count("\n") == 1
    assert not paths.run_folder(scratch_run).exists()


def _cell(root, *places):
    for place in places:
        (root / place).mkdir(parents=True)
        (root / place / "profile_export.jsonl").write_text("")
    return root


def test_a_measured_run_is_not_written_into(earlier, scratch_run, capfd):
    target = paths.run_folder(scratch_run)
    target.mkdir()
    shutil.copy(FIXTURE / "manifest.json", target)
    assert bring(earlier, scratch_run) == 1
    assert "is a measured run; choose another RUN" in capfd.readouterr().err
