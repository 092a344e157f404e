"""Parts of single cells and their joining: types, the warm-up rule over a run, atomic writing."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lib import cell, metrics, parts
from tests import synthetic_cell
from tests.synthetic_cell import Spec

SMALL = Spec(requests=3, gen=32, ttft_s=0.3)


def place(run: Path, ctx: int, gen: int = 32, backend: str = "llamacpp", model: str = "m") -> Path:
    return run / backend / model / f"gen{gen}" / f"ctx{ctx}"


def fill(run: Path, starts: dict[int, float], **more) -> list[Path]:
    """Older cells by prompt length, each with the second at which it began."""
    folders = []
    for ctx, start_s in starts.items():
        folders.append(place(run, ctx))
        spec = Spec(requests=3, gen=32, ttft_s=0.3, ctx=ctx, start_s=start_s, seed=ctx)
        synthetic_cell.write(folders[-1], spec, kind="older", **more)
    return folders


def joined(run: Path, folders: list[Path]) -> pd.DataFrame:
    (run / "tables" / "parts").mkdir(parents=True, exist_ok=True)
    for folder in folders:
        parts.make(run, folder)
    parts.join(run, folders)
    return pd.read_parquet(run / "tables" / "cells.parquet").set_index("ctx")


def test_the_earliest_cell_of_the_earlier_scripts_is_void_for_power_whatever_its_place(tmp_path):
    """ctx 512 ran first (ctx 256 did not run first, as in the published run of one model)."""
    table = joined(tmp_path, fill(tmp_path, {256: 1.783e9 + 900, 512: 1.783e9, 1024: 1.783e9 + 400}))
    assert table["warmup"].to_dict() == {256: False, 512: True, 1024: False}
    first = table.loc[512]
    assert first["power_reason"] == cell.VOID
    assert all(np.isnan(first[m.name]) for m in metrics.ALL if m.from_power)
    assert all(np.isnan(first[name]) for name in metrics.ALSO_FROM_POWER)
    assert first["output_tok_s"] == pytest.approx(80, rel=0.05)
    assert first["decode_power_median_W"] == pytest.approx(13.0, abs=0.1)
    assert table.loc[[256, 1024], "decode_power_W"].notna().all()


def test_a_cell_whose_requests_all_failed_was_not_the_first_to_run(tmp_path):
    folders = fill(tmp_path, {256: 1.783e9, 512: 1.783e9 + 400, 1024: 1.783e9 + 800})
    path = folders[0] / "profile_export.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    broken = [{"metadata": r["metadata"], "error": {"type": "HTTP", "message": "500"}} for r in records]
    path.write_text("".join(json.dumps(r) + "\n" for r in broken))
    table = joined(tmp_path, folders)
    assert table["warmup"].to_dict() == {256: False, 512: True, 1024: False}
    assert table.loc[256, "state"] == "failed"


def test_a_first_cell_without_its_requests_is_found_by_its_log(tmp_path):
    folders = fill(tmp_path, {256: 1.783e9, 512: 1.783e9 + 400})
    (folders[0] / "profile_export.jsonl").unlink()
    table = joined(tmp_path, folders)
    assert table["warmup"].to_dict() == {256: True, 512: False}


def test_cells_that_say_themselves_are_believed(tmp_path):
    folders = [place(tmp_path, 256, backend="llama.cpp"), place(tmp_path, 512, backend="llama.cpp")]
    for number, folder in enumerate(folders):
        spec = Spec(requests=3, gen=32, ttft_s=0.3, ctx=(256, 512)[number], start_s=1.783e9 + 400 * number)
        synthetic_cell.write(folder, spec, first_of_life=number == 1)
    assert joined(tmp_path, folders)["warmup"].to_dict() == {256: False, 512: True}


def test_each_server_has_its_own_first_cell(tmp_path):
    folders = [place(tmp_path, 256, model=m) for m in ("a", "b")]
    for number, folder in enumerate(folders):
        synthetic_cell.write(folder, Spec(requests=3, gen=32, ttft_s=0.3, start_s=1.783e9 + 99 * number), kind="older")
    assert joined(tmp_path, folders)["warmup"].all()


def test_tables_of_requests_and_samples_have_fixed_types(tmp_path):
    folders = fill(tmp_path, {256: 1.783e9, 512: 1.783e9 + 400})
    (folders[1] / "powermetrics.log").unlink()
    joined(tmp_path, folders)
    requests = pd.read_parquet(tmp_path / "tables" / "requests.parquet")
    samples = pd.read_parquet(tmp_path / "tables" / "samples.parquet")
    assert len(requests) == 6
    assert (requests["start_ns"].dtype, requests["ttft_ms"].dtype) == ("int64", "float64")
    assert requests["start_ns"].min() > 1.7e18
    assert set(samples["ctx"]) == {256}
    assert set(samples["phase"]) == {"prefill", "decode", "between", "outside"}
    assert list(samples.columns) == [*parts.KEYS, *parts.SAMPLE_COLUMNS]
    assert np.diff(samples["time_s"]).min() > 0


def test_parts_of_cells_that_are_gone_and_drafts_are_removed(tmp_path):
    folders = fill(tmp_path, {256: 1.783e9, 512: 1.783e9 + 400})
    joined(tmp_path, folders)
    (tmp_path / "tables" / "parts" / ".0123.json.99.tmp").write_text("{")
    parts.join(tmp_path, folders[:1])
    left = sorted(p.name for p in (tmp_path / "tables" / "parts").iterdir())
    assert left == sorted(p.name for p in parts.files(tmp_path, folders[0]))
    assert not list((tmp_path / "tables").glob("*.tmp"))


def test_a_reader_that_breaks_costs_one_cell_and_not_the_run(tmp_path, monkeypatch):
    folders = fill(tmp_path, {256: 1.783e9, 512: 1.783e9 + 400})
    whole = cell.read_whole

    def broken(folder: Path):
        if folder.name == "ctx512":
            raise ZeroDivisionError("nobody\nforesaw this")
        return whole(folder)

    monkeypatch.setattr(cell, "read_whole", broken)
    row = joined(tmp_path, folders).loc[512]
    assert row["state"] == "invalid"
    assert row["reason"] == "could not be read: ZeroDivisionError: nobody foresaw this"
    assert np.isnan(row["output_tok_s"])


def test_a_failed_write_leaves_the_old_table(tmp_path, monkeypatch):
    folders = fill(tmp_path, {256: 1.783e9})
    joined(tmp_path, folders)
    before = (tmp_path / "tables" / "cells.parquet").read_bytes()

    def full(self, path, index):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pd.DataFrame, "to_parquet", full)
    with pytest.raises(OSError, match="No space"):
        parts.join(tmp_path, folders)
    assert (tmp_path / "tables" / "cells.parquet").read_bytes() == before
    assert not list((tmp_path / "tables").glob(".*.tmp"))
