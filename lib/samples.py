"""The table of power samples, read in part: a sweep has millions of rows and no figure needs all their columns."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from lib.metrics import KEYS


def read(run_dir: Path, columns: list[str], **keys: str | int) -> pd.DataFrame:
    """Columns of samples.parquet, with backend, model, ctx and gen, of the cells that `keys` name (ctx=256, ...).

    Backend, model and phase come as categories. Raises FileNotFoundError if the run's tables were not made.
    """
    wanted = [*KEYS, *columns]
    filters = [(name, "==", value) for name, value in keys.items()] or None
    table = pq.read_table(Path(run_dir) / "tables" / "samples.parquet", columns=wanted, filters=filters)
    for place, field in enumerate(table.schema):
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            table = table.set_column(place, field.name, table.column(place).dictionary_encode())
    return table.to_pandas()


def of_cell(run_dir: Path, columns: list[str], cell: pd.Series) -> pd.DataFrame:
    """Those of one cell: `cell` is its row."""
    return read(run_dir, columns, **{key: cell[key] for key in KEYS})
