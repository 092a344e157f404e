"""What one cell gave, kept as a row and two small Parquet files, and the joining of all cells into a run's tables.

    python -m lib.parts RUN_FOLDER      a worker: reads a cell's folder a line, answers each with a line

Parts are a cache: they hold nothing that the raw artifacts do not.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from lib import cell
from lib.files import digest, write_atomic
from lib.metrics import KEYS

SAMPLE_COLUMNS = (
    "time_s", "elapsed_ms", "phase", "power_W", "cpu_mW", "gpu_mW", "ane_mW", "gpu_freq_MHz", "gpu_active_pct",
    "p_freq_MHz", "p_active_pct", "e_freq_MHz", "e_active_pct", "thermal_pressure",
)  # fmt: skip
REQUEST_COLUMNS = (
    "index", "phase", "start_ns", "ack_ns", "end_ns", "ttft_ms", "ttfv_ms", "rl_ms", "itl_ms", "isl", "osl",
    "output_tok_s_per_user", "prefill_tok_s_per_user", "cached_tokens", "token_source", "error", "censored",
    "wall_s", "monotonic_s", "prompt_sha256",
)  # fmt: skip
_TEXT = ("phase", "thermal_pressure", "token_source", "error", "prompt_sha256")
_WHOLE = ("index", "start_ns", "ack_ns", "end_ns")
ENDINGS = ("json", "requests.parquet", "samples.parquet")


def files(run_dir: Path, folder: Path) -> list[Path]:
    """The three parts of a cell, there or not."""
    return [_part(run_dir, folder, ending) for ending in ENDINGS]


def _part(run_dir: Path, folder: Path, ending: str) -> Path:
    return run_dir / "tables" / "parts" / f"{digest(str(folder.relative_to(run_dir)))}.{ending}"


def make(run_dir: Path, folder: Path) -> None:
    """Read one cell and keep what it gave. Whatever its files do to the reader, the other cells must not lose by it."""
    try:
        row, requests, samples = cell.read_whole(folder)
    except Exception as e:
        row, requests, samples = cell.unreadable(folder, e), pd.DataFrame(), pd.DataFrame()
    row["folder"] = str(folder.relative_to(run_dir))
    _write(_part(run_dir, folder, "requests.parquet"), row, requests, REQUEST_COLUMNS)
    _write(_part(run_dir, folder, "samples.parquet"), row, samples, SAMPLE_COLUMNS)
    write_atomic(_part(run_dir, folder, "json"), json.dumps(row, default=_plain))


def _plain(value: object) -> object:
    """NumPy scalars as Python's own."""
    return value.item() if hasattr(value, "item") else str(value)


def _schema(columns: tuple[str, ...]) -> pa.Schema:
    kinds = dict.fromkeys(_TEXT, pa.string()) | dict.fromkeys(_WHOLE, pa.int64()) | {"censored": pa.bool_()}
    fields = [("backend", pa.string()), ("model", pa.string()), ("ctx", pa.int64()), ("gen", pa.int64())]
    return pa.schema(fields + [(c, kinds.get(c, pa.float64())) for c in columns])


def _write(path: Path, row: dict, frame: pd.DataFrame, columns: tuple[str, ...]) -> None:
    wide = frame.reindex(columns=list(columns)).astype({c: object for c in columns if c in _TEXT})
    wide.attrs = {}  # the parser's notes are in the cell's row
    for place, key in enumerate(KEYS):
        wide.insert(place, key, row[key])
    table = pa.Table.from_pandas(wide, schema=_schema(columns), preserve_index=False)
    with _draft(path) as draft:
        pq.write_table(table, draft, compression="zstd")


@contextmanager
def _draft(path: Path) -> Iterator[Path]:
    """A name of this process's own to write to; what is there at the end appears whole under `path`."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield draft
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def join(run_dir: Path, folders: list[Path]) -> None:
    """Join the parts of `folders` into the run's three tables; parts of cells that are gone are removed."""
    tables = run_dir / "tables"
    rows = [json.loads(_part(run_dir, f, "json").read_text()) for f in folders]
    _write_cells(rows, tables / "cells.parquet")
    for name, columns in (("requests", REQUEST_COLUMNS), ("samples", SAMPLE_COLUMNS)):
        pieces = [_part(run_dir, f, f"{name}.parquet") for f in folders]
        _concatenate(pieces, _schema(columns), tables / f"{name}.parquet")
    wanted = {digest(str(f.relative_to(run_dir))) for f in folders}
    for part in (tables / "parts").iterdir():
        if part.name.split(".")[0] not in wanted:
            part.unlink()


def _write_cells(rows: list[dict], path: Path) -> None:
    frame = _void_first_cells(pd.DataFrame(rows)).sort_values(["backend", "model", "gen", "ctx"], ignore_index=True)
    with _draft(path) as draft:
        frame.to_parquet(draft, index=False)


def _void_first_cells(frame: pd.DataFrame) -> pd.DataFrame:
    """The warm-up rule for servers whose cells do not say which came first: void the one whose requests began earliest.

    Our own cells say so themselves (`first_of_life` in cell.json); folders of the earlier scripts do not. A cell of
    which no request succeeded did not run.
    """
    ran = frame[frame["first_start_ns"].notna()]
    for (backend, model), own in ran.groupby(["backend", "model"]):
        if not frame.loc[(frame["backend"] == backend) & (frame["model"] == model), "says_warmup"].any():
            first = own["first_start_ns"].idxmin()
            frame.loc[first, "warmup"] = True
            if frame.loc[first, "state"] == "ok" and pd.notna(frame.loc[first, "total_power_W"]):
                for name, value in cell.void().items():
                    frame.loc[first, name] = value
    return frame


def _concatenate(pieces: list[Path], schema: pa.Schema, path: Path) -> None:
    """One file from many, piece by piece, so that a run of millions of samples needs the memory of one cell."""
    with _draft(path) as draft, pq.ParquetWriter(draft, schema, compression="zstd") as out:
        for piece in pieces:
            with pq.ParquetFile(piece) as read:  # quicker by far than read_table, which looks for a data set
                out.write_table(read.read())


def main() -> None:
    """Answer each folder on standard input once its parts are written."""
    run_dir = Path(sys.argv[1])
    for line in sys.stdin.buffer:
        make(run_dir, Path(os.fsdecode(line.rstrip(b"\n"))))
        print("done", flush=True)


if __name__ == "__main__":
    main()
