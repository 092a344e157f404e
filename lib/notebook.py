"""What every notebook starts from: a run's tables and manifest, the notes that must stand under its tables."""

from __future__ import annotations

import itertools
from functools import cached_property
from pathlib import Path

import pandas as pd

from lib import cells as run_cells
from lib import findings, macs, metrics, models, style
from lib.files import read_object
from lib.paths import run_folder

KEYS = metrics.KEYS
BY_REQUEST = {
    "output_tok_s": "output_tok_s_per_user", "prefill_tok_s": "prefill_tok_s_per_user", "ttft_ms": "ttft_ms",
    "rl_ms": "rl_ms",
}  # fmt: skip
"""Metrics of a cell that are medians over requests, and the column of the requests that they are medians of."""


class Run:
    """One run as a notebook sees it. `cells` has a row for every settled cell, `ok` only those that can be used."""

    def __init__(self, name: str):
        style.use()
        self.name = name
        self.folder: Path = run_folder(name)
        self.cells: pd.DataFrame = run_cells.read_run(self.folder)
        self.ok: pd.DataFrame = self.cells[self.cells["state"] == "ok"].reset_index(drop=True)

    @cached_property
    def manifest(self) -> dict:
        """The run's manifest; empty for folders of the earlier scripts, which have none."""
        return read_object(self.folder / "manifest.json")

    @cached_property
    def requests(self) -> pd.DataFrame:
        """Every request of every cell, warm-ups included."""
        return pd.read_parquet(self.folder / "tables" / "requests.parquet")

    @cached_property
    def samples(self) -> pd.DataFrame:
        """Every power sample with its rebuilt time and its phase."""
        return pd.read_parquet(self.folder / "tables" / "samples.parquet")

    def server(self, backend: str, model: str) -> dict:
        """server.json of a backend and model; empty if the server never became ready."""
        return read_object(self.folder / backend / model / "server.json")

    @property
    def canonical(self) -> tuple[int, int]:
        """The longest prompt and generation measured (tokens): the cell that the tables of single cells show."""
        return int(self.cells["ctx"].max()), int(self.cells["gen"].max())

    def at_canonical(self, backend: str) -> pd.DataFrame:
        """The usable canonical cells of one backend, in the order of models, with intervals of their medians."""
        return self._canonical_cells[self._canonical_cells["backend"] == backend].reset_index(drop=True)

    @cached_property
    def _canonical_cells(self) -> pd.DataFrame:
        ctx, gen = self.canonical
        found = self.ok[(self.ok["ctx"] == ctx) & (self.ok["gen"] == gen)]
        return in_order(findings.with_intervals(found, self.requests, BY_REQUEST))

    @cached_property
    def rates(self) -> pd.DataFrame:
        """The usable cells with the 95 % interval of their output rate."""
        return findings.with_intervals(self.ok, self.requests, {"output_tok_s": BY_REQUEST["output_tok_s"]})

    @property
    def power_note(self) -> str:
        """What stands under a table with watts or joules: scope, basis, and that warm-up cells are left out."""
        kinds = self.ok[["power_source", "power_basis", "power_scope"]].drop_duplicates()
        words = [f"{k.power_source}: {k.power_basis}, scope {k.power_scope}" for k in kinds.itertuples()]
        return f"Power by {'; '.join(words)}. Warm-up cells are void." if words else "No cell has power."

    @property
    def short_note(self) -> str:
        """Warns under a table of whole requests where answers ended early; empty where none did."""
        short = int((self.ok["osl_mismatch_pct"] < -findings.MISMATCH_PCT).sum())
        if not short:
            return ""
        what = "1 cell has answers" if short == 1 else f"{short} cells have answers"
        return (
            f"{what} more than {findings.MISMATCH_PCT:g} % shorter than asked ([Table 18b](#table-18b)): "
            "latency and energy of their requests are those of a shorter answer."
        )

    def why_missing(self, name: str) -> str:
        """Why the column `name` has no value in any usable cell; empty if it has one."""
        if self.ok.empty:
            return "no cell was measured"
        if name in self.ok and self.ok[name].notna().any():
            return ""
        if name.startswith("gpu") and (self.ok["power_source"] == "stand-in meter").all():
            return "this meter has no GPU rail"
        if name[:2] in ("p_", "e_") and (self.ok["power_source"] == "stand-in meter").all():
            return "this meter has no CPU cluster clocks"
        reasons = self.ok["power_reason"].replace("", pd.NA).dropna().unique()
        return reasons[0] if len(reasons) else f"no cell has a value of {metrics.BY_NAME[name].title}"

    def medians(self, names: list[str]) -> pd.DataFrame:
        """Median over the usable cells of each backend and model; `cells` is the number behind each value, in order of
        the columns where they differ: "2, 1, 1"."""
        grouped = self.ok.groupby(["backend", "model"])
        table, counts = grouped[names].median(), grouped[names].count()
        table.insert(0, "cells", [_numbers(row) for row in counts.to_numpy().tolist()])
        return in_order(table.reset_index())


def _numbers(counts: list[int]) -> str:
    return str(counts[0]) if len(set(counts)) == 1 else ", ".join(map(str, counts))


def in_order(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows by backend, then by model, in the fixed orders; then by gen and ctx where there are such columns."""
    backends = style.backends_in_order(list(frame["backend"]))
    names = style.in_order(list(frame["model"]))
    keyed = frame.assign(_b=frame["backend"].map(backends.index), _m=frame["model"].map(names.index))
    more = [c for c in ("gen", "ctx") if c in frame]
    return keyed.sort_values(["_b", "_m", *more]).drop(columns=["_b", "_m"]).reset_index(drop=True)


def macs_per_token(run: Run, model: str, ctx: int) -> int | None:
    """Multiply-accumulates of a token with `ctx` tokens before it, from the config.json that came with the model.

    None if no server of the run recorded one, or if its kind is not known.
    """
    for backend in style.backends_in_order(list(run.cells["backend"])):
        if config := run.server(backend, model).get("config"):
            try:
                return macs.per_token(config, ctx).total
            except (macs.MacsError, KeyError):
                return None
    return None


def equal_active(names: list[str]) -> list[tuple[str, str]]:
    """Pairs of full-size models with the same number of active parameters, in the fixed order, the later one first."""
    known = [m for name in style.in_order(names) if (m := models.find(name)) and not m.tiny]
    return [(b.name, a.name) for a, b in itertools.combinations(known, 2) if a.active_B == b.active_B]


def active_spread(names: list[str]) -> float | None:
    """Most over fewest active parameters among full-size models; None if one of them is tiny or unknown."""
    known = [models.find(name) for name in set(names)]
    if len(known) < 2 or any(m is None or m.tiny for m in known):
        return None
    return max(m.active_B for m in known) / min(m.active_B for m in known)


def planned(manifest: dict) -> int:
    """How many cells the plan has, without those that it leaves out on purpose; 0 if the run has no plan."""
    plan = manifest.get("plan") or {}
    grid = itertools.product(*(plan.get(key, []) for key in ("backends", "models", "prompts", "gens")))
    entries = plan.get("skip") or []
    return sum(not any(_covers(entry, cell) for entry in entries) for cell in grid)


def _covers(entry: dict, cell: tuple) -> bool:
    keys = ("backend", "model", "ctx", "gen")
    return all(entry.get(key) in (None, value) for key, value in zip(keys, cell, strict=True))


def skipped(manifest: dict) -> list[str]:
    """What the plan left out on purpose, with its reason: "mlx-lm trinity-nano, prompt 256, gen 256: ..."."""
    return [_left_out(entry) for entry in (manifest.get("plan") or {}).get("skip") or []]


def _left_out(entry: dict) -> str:
    lengths = [f"{word} {entry[key]}" for key, word in (("ctx", "prompt"), ("gen", "gen")) if entry.get(key)]
    what = f"{entry.get('model') or 'every model'} under {style.title(entry['backend'])}"
    return f"{', '.join([what, *lengths])}: {entry.get('reason', 'no reason given')}".rstrip(".")


def by_model(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of a frame without backend, by model in the fixed order, then by gen and ctx where it has them."""
    return in_order(frame.assign(backend="")).drop(columns="backend")


def check(frame: pd.DataFrame, names: list[str]) -> None:
    """Print a canonical rounded table of `names` for the checked last cell: four significant digits, sorted."""
    table = in_order(frame)[[*[k for k in KEYS if k in frame], *names]]
    print(table.to_csv(index=False, float_format="%.4g", na_rep="missing").strip())
