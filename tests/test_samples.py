"""Parts of the table of samples."""

import pytest

from lib import cells, paths, samples

FIXTURE = paths.RUNS / "fixture"


def test_only_the_asked_columns_and_cells_are_read():
    rows = cells.read_run(FIXTURE)
    every = samples.read(FIXTURE, ["phase", "power_W"])
    assert list(every.columns) == ["backend", "model", "ctx", "gen", "phase", "power_W"]
    assert str(every["phase"].dtype) == "category" and every["power_W"].notna().all()
    one = rows[rows["state"] == "ok"].iloc[0]
    own = samples.of_cell(FIXTURE, ["time_s"], one)
    assert 0 < len(own) < len(every) and set(own["ctx"]) == {one["ctx"]} and set(own["model"]) == {one["model"]}
    assert (own["time_s"].diff().dropna() > 0).all()


def test_a_run_without_tables_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        samples.read(tmp_path, ["phase"])
