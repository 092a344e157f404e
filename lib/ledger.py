"""What a run has settled: cell.json of each cell, attempts moved aside, the lock on a run."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lib.files import TinymoeError, read_json, read_optional, write_json
from lib.paths import ASIDE, cell_folder, relative
from lib.plan import Cell, Plan

SCHEMA = 1


class LedgerError(TinymoeError):
    """A run that another sweep is writing."""


def _path(run_dir: Path, cell: Cell) -> Path:
    return cell_folder(run_dir, cell.backend, cell.model, cell.ctx, cell.gen) / "cell.json"


def read(run_dir: Path, cell: Cell) -> dict | None:
    """The cell's record, or None if it is not settled."""
    path = _path(run_dir, cell)
    if not path.exists():
        return None
    found = read_json(path)
    if not isinstance(found, dict) or not {"state", "reason", "plan_hash"} <= found.keys():
        raise LedgerError(f"{relative(path)}: not the record of a cell; remove its folder, and it is measured again")
    return found


def write(run_dir: Path, cell: Cell, plan: Plan, facts: dict) -> None:
    """Settle a cell. cell.json appears whole and last: a folder without it is an unfinished attempt."""
    identity = {
        "schema": SCHEMA,
        "backend": cell.backend,
        "model": cell.model,
        "ctx": cell.ctx,
        "gen": cell.gen,
        "plan": plan.name,
        "plan_hash": plan.cell_hash(cell),
        "settled_ns": time.time_ns(),
    }
    write_json(_path(run_dir, cell), identity | facts)


def seconds(run_dir: Path, cell: Cell) -> float | None:
    """How long the cell took when it was measured well; None if it was not."""
    found = read(run_dir, cell)
    return found.get("seconds") if found and found["state"] == "ok" else None


def put_aside(run_dir: Path, *paths: Path) -> None:
    """Move what an earlier attempt left under the same names to the run's `superseded` folder; nothing is deleted."""
    for path in paths:
        if path.exists():
            target = run_dir / ASIDE / f"{time.time_ns()}" / path.relative_to(run_dir)
            target.parent.mkdir(parents=True)
            path.rename(target)


def headline(run_dir: Path, cell: Cell) -> str:
    """The cell's median rates in a few words, from its summary file."""
    path = _path(run_dir, cell).with_name("profile_export_aiperf.json")
    if not path.exists():
        return "no summary"
    medians = {key: value.get("p50") for key, value in read_json(path).items() if isinstance(value, dict)}
    rate, ttft_ms = medians.get("output_token_throughput_per_user"), medians.get("time_to_first_token")
    rate_text = f"{rate:.1f} tok/s" if rate is not None else "no decode rate"
    return f"{rate_text}, TTFT {ttft_ms:.0f} ms" if ttft_ms is not None else rate_text


def summary(run_dir: Path, cells: list[Cell]) -> tuple[list[dict], int]:
    """One row of text a server, and how many cells failed or are invalid though the backend can serve them."""
    found = {cell: read(run_dir, cell) for cell in cells}
    rows, bad = [], 0
    for backend, model in dict.fromkeys((c.backend, c.model) for c in cells):
        own = {c: facts for c, facts in found.items() if (c.backend, c.model) == (backend, model)}
        wrong = [facts for facts in own.values() if facts is None or facts["state"] != "ok"]
        bad += sum(not (facts and facts.get("unsupported")) for facts in wrong)
        rows.append(_row(run_dir, own, wrong))
    return rows, bad


def _row(run_dir: Path, own: dict[Cell, dict | None], wrong: list[dict | None]) -> dict:
    """One server's cells (with their records) in text; `wrong` are the records of those without a result."""
    good = [c for c, facts in own.items() if facts and facts["state"] == "ok"]
    longest = max(good, key=lambda c: (c.ctx, c.gen), default=None)
    first = next(iter(own))
    return {
        "backend": first.backend,
        "model": first.model,
        "cells ok": f"{len(good)} of {len(own)}",
        "longest cell": f"ctx {longest.ctx} gen {longest.gen}" if longest else "-",
        "its medians": headline(run_dir, longest) if longest else "-",
        "reason": next((facts["reason"] if facts else "not run" for facts in wrong), ""),
    }


def check_kind(run_dir: Path, synthetic: bool) -> None:
    """Refuse to mix what was measured, imported and synthetic in one run. LedgerError if the run is of another kind."""
    before = read_optional(run_dir / "manifest.json")
    if not isinstance(before, dict) or not before:
        return
    kind = "synthetic" if before.get("synthetic") else "imported" if "imported" in before else "measured"
    wanted = "synthetic" if synthetic else "measured"
    if kind != wanted:
        raise LedgerError(f"{relative(run_dir)} is {kind}, and no {wanted} cell belongs in it; choose another RUN")


@contextmanager
def lock(run_dir: Path) -> Iterator[None]:
    """Hold the run for one sweep. LedgerError with the holder's pid if another has it; a dead one's lock is free."""
    run_dir.mkdir(parents=True, exist_ok=True)
    with (run_dir / ".lock").open("a+", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise LedgerError(
                f"{relative(run_dir)}: another sweep (pid {holder}) writes this run; wait for it or choose another RUN"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
