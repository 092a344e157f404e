"""The sweep: every cell of a plan on real servers, each measured once, whatever happens on the way.

    python -m lib.sweep --plan quick [--run NAME] [--only PART] [--dry-run] [--retry] [--skip-doctor]

Exit codes: 0 every cell that a backend can serve is ok; 1 a mistake to correct first (one line says which);
3 some cells failed (they are listed); 130 interrupted (what was measured is kept, the same command goes on).
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from lib import backends, command, cooldown, doctor, ledger, machine, models, power, progress, store
from lib.awake import awake
from lib.estimate import Estimate, clock
from lib.files import TinymoeError, free_MB, read_optional, write_json
from lib.measure import Prepared, failure, measure
from lib.paths import cell_folder, relative, run_folder, server_folder
from lib.plan import Cell, Plan, load, selected
from lib.prompts import prompts
from lib.server import Server, ServerError, end_orphans

# A server that died in a cell is started again for the next cell, at most this often.
SERVER_LIVES = 3


class Sweep:
    """One run of a plan in `run_dir`. `go()` returns the exit code."""

    def __init__(self, plan: Plan, run_dir: Path, only: str, retry: bool, console: Console):
        self.plan, self.run_dir, self.console = plan, run_dir, console
        self.cells = list(selected(plan, only))
        self.todo = [c for c in self.cells if not self._settled(c, retry)]
        self.estimate = Estimate(plan)
        for cell in self.cells:
            if seconds := ledger.seconds(run_dir, cell):
                self.estimate.learn(cell, seconds)

    def _settled(self, cell: Cell, retry: bool) -> bool:
        found = ledger.read(self.run_dir, cell)
        if found is None or found["plan_hash"] != self.plan.cell_hash(cell):
            return False
        return found["state"] == "ok" or not retry

    def dry_run(self) -> int:
        """Say what would run and for how long."""
        for cell in self.todo:
            what = f"would run {cell}: about {clock(self.estimate.seconds(cell))}"
            if not models.get(cell.model).is_published(cell.backend):
                what = f"would record {cell}: no conversion for {cell.backend} is published"
            self.console.print(what, markup=False)
        self.console.print(
            f"plan {self.plan.name}, run {self.run_dir.name}: {len(self.todo)} of {len(self.cells)} cells to run, "
            f"{self.plan.requests} requests each after {self.plan.warmup} warm-up, "
            f"about {clock(self.estimate.total(self.todo))} "
            f"(power: {self.plan.power}; times are assumed until cells have been measured)", markup=False,
        )  # fmt: skip
        return 0

    def go(self) -> int:
        """Run what is not settled yet, then print the summary."""
        if self.todo:
            ledger.check_kind(self.run_dir, synthetic=False)
            self._check_space()
            with ledger.lock(self.run_dir), awake() as kept_awake:
                source = power.choose(self.plan)
                for orphan in end_orphans(self.run_dir):
                    self.console.print(f"ended a server that a killed sweep left running: {orphan}", markup=False)
                self._begin_manifest(source)
                with progress.SweepProgress(self.estimate, self.todo, self._requests(), self.console) as self.bars:
                    self.bars.say(f"power: {source.kind}: {source.note}")
                    if kept_awake:
                        self.bars.say(kept_awake)
                    for backend, model in dict.fromkeys((c.backend, c.model) for c in self.todo):
                        self._serve(backend, model, source)
                self._end_manifest()
        return self._conclude()

    def _requests(self) -> int:
        return self.plan.requests + self.plan.warmup

    def _check_space(self) -> None:
        need_MB = self.estimate.space_MB(self.todo)
        have_MB = free_MB(self.run_dir)
        if have_MB < need_MB:
            raise TinymoeError(
                f"{relative(self.run_dir)}: {have_MB:.0f} MB free, about {need_MB:.0f} MB needed; "
                "free some space or shrink the plan"
            )

    def _serve(self, backend_name: str, model_name: str, source: power.Source) -> None:
        """Run one server's cells; a server that cannot be had fails its cells with the reason, and the others go on."""
        cells = [c for c in self.todo if (c.backend, c.model) == (backend_name, model_name)]
        folder = server_folder(self.run_dir, backend_name, model_name)
        for _ in range(SERVER_LIVES):
            self.bars.begin(f"{backend_name} {model_name}: starting the server")
            try:
                with self._server(backend_name, model_name, folder) as server:
                    self._ready(server, folder)
                    first = True
                    while cells and server.alive():
                        self._cell(cells[0], server, source, first)
                        del cells[0]
                        first = False
            except Exception as e:  # one server's trouble, of whatever kind, must not cost the others their turn
                self._fail(cells, e)
                return
            if not cells:
                self._note_idle(folder, source)
                return
        self._fail(cells, ServerError(f"{backend_name} {model_name}: the server died {SERVER_LIVES} times"))

    def _note_idle(self, folder: Path, source: power.Source) -> None:
        """Power of the machine at rest before the server's start and after its end, into server.json.

        Before is what was measured last: after the server before it, or at the start of the sweep.
        """
        before, self.idle = self.idle, power.idle(source, self.run_dir)
        path = folder / "server.json"
        if path.exists():
            write_json(path, read_optional(path) | {"idle": {"before": before, "after": self.idle}})

    def _server(self, backend_name: str, model_name: str, folder: Path) -> Server:
        ledger.put_aside(self.run_dir, folder / "server.log", folder / "server.json")
        folder.mkdir(parents=True, exist_ok=True)
        backend, model = backends.get(backend_name), models.get(model_name)
        path = store.locate(model, backend_name, self.plan.ctx_size)
        extra_flags = self.plan.flags.get(backend_name, [])
        return Server(backend, model, path, folder, ctx_size=self.plan.ctx_size, extra_flags=extra_flags)

    def _ready(self, server: Server, folder: Path) -> None:
        server.wait_ready(self.plan.ready_timeout_s)
        smoke = server.smoke(tuple(self.plan.smoke))
        write_json(folder / "server.json", server.describe() | {"smoke": smoke})

    def _cell(self, cell: Cell, server: Server, source: power.Source, first: bool) -> None:
        self.bars.begin(str(cell))
        folder = cell_folder(self.run_dir, cell.backend, cell.model, cell.ctx, cell.gen)
        ledger.put_aside(self.run_dir, folder)
        folder.mkdir(parents=True)
        cooled = self._cool_down(cell, server, source, folder)
        began_s = time.monotonic()
        try:
            facts = measure(
                self.plan, cell, server, source, self._prepare(cell, server), folder, self.bars.tick, self.bars.say
            )  # fmt: skip
        except Exception as e:  # recorded as this cell's reason; the next cell goes on
            facts = failure(e)
        self.estimate.learn(cell, time.monotonic() - began_s)
        seconds = time.monotonic() - began_s
        about = {"server": server.identity(), "first_of_life": first, "seconds": seconds, "cooldown": cooled}
        self._record(cell, facts | about)

    def _cool_down(self, cell: Cell, server: Server, source: power.Source, folder: Path) -> dict:
        plan, idle_W = self.plan, (self.manifest["idle"] or {}).get("power_W")
        if plan.cooldown_s:
            self.bars.begin(f"{cell}: cooling down")
        return cooldown.wait(
            source, server.pid, idle_W, plan.cooldown_s, plan.cooldown_within_pct, folder / "cooldown.log"
        )  # fmt: skip

    def _prepare(self, cell: Cell, server: Server) -> Prepared:
        extras = {} if self.plan.ends_freely(cell) else server.request_extras
        if self.plan.load == "aiperf":  # it makes its own prompts
            return Prepared([], extras, server.model_field, store.tokenizer(server.model, self.plan.ctx_size).parent)
        texts = prompts(server.count_tokens, cell.ctx, cell.gen, self._requests(), self.plan.seed)
        return Prepared(texts, extras, server.model_field)

    def _record(self, cell: Cell, facts: dict) -> None:
        ledger.write(self.run_dir, cell, self.plan, facts)
        self.bars.end(cell, facts["state"], facts["reason"] or ledger.headline(self.run_dir, cell))

    def _fail(self, cells: list[Cell], error: Exception) -> None:
        for cell in cells:
            ledger.put_aside(self.run_dir, cell_folder(self.run_dir, cell.backend, cell.model, cell.ctx, cell.gen))
            unsupported = getattr(error, "unsupported", False)  # by the server, or nobody has published it
            self._record(cell, failure(error) | {"unsupported": unsupported})

    def _begin_manifest(self, source: power.Source) -> None:
        path = self.run_dir / "manifest.json"
        before = read_optional(path)
        self.idle = power.idle(source, self.run_dir)
        self.manifest = {
            "schema": 1,
            "run": self.run_dir.name,
            "plan": self.plan.model_dump(),
            "seed": self.plan.seed,
            "power": vars(source),
            "idle": self.idle,
            "synthetic": False,
            **machine.facts(),
            "attempts": [*before.get("attempts", []), {"started": _now(), "ended": None, "cells": len(self.todo)}],
        }
        write_json(path, self.manifest)

    def _end_manifest(self) -> None:
        self.manifest["attempts"][-1]["ended"] = _now()
        write_json(self.run_dir / "manifest.json", self.manifest)

    def _conclude(self) -> int:
        rows, bad = ledger.summary(self.run_dir, self.cells)
        progress.summary(self.console, f"run {self.run_dir.name}", rows)
        what = f"{len(self.todo)} cells measured" if self.todo else "nothing to do, every cell is settled"
        again = "; 'make sweep RETRY=1' measures them again" if bad else ""
        self.console.print(
            f"run {self.run_dir.name}: {what}; {len(self.cells) - bad} of {len(self.cells)} cells ok or not served by "
            f"the backend, {bad} failed or invalid{again}; artifacts in {relative(self.run_dir)}", markup=False,
        )  # fmt: skip
        return 3 if bad else 0


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run a plan's cells on real servers.")
    parser.add_argument("--plan", default="quick", help="name of a plan in runs/plans, or a YAML file")
    parser.add_argument("--run", default="", help="name of the run; the plan's name if not given")
    parser.add_argument("--only", default="", help="part of a backend's or model's name")
    parser.add_argument("--requests", type=int, help="requests a cell, instead of the plan's")
    parser.add_argument("--interval-ms", type=int, help="interval asked of the power meter (ms), instead of the plan's")
    parser.add_argument("--dry-run", action="store_true", help="say what would run and for how long")
    parser.add_argument("--retry", action="store_true", help="measure failed and invalid cells again")
    parser.add_argument(
        "--skip-doctor", action="store_true",
        help="do not check the machine first (lib.doctor), whose errors end the sweep; make sweep DOCTOR=0 says this",
    )  # fmt: skip
    args = parser.parse_args(argv)
    # Sent by `kill` and by a closing terminal: end like Ctrl-C does, so that servers and meters are stopped.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    return command.run("sweep", lambda: _run(args), "what was measured is kept, the same command goes on from here")


def _run(args: argparse.Namespace) -> int:
    plan = load(args.plan, {"requests": args.requests, "power_interval_ms": args.interval_ms})
    run_dir = run_folder(args.run or plan.name)
    if plan.synthetic:
        from lib.synthetic import writer  # only here: a measured sweep needs none of it

        return writer.run(plan, run_dir, args.only, progress.console(), args.dry_run)
    sweep = Sweep(plan, run_dir, args.only, args.retry, progress.console())
    if args.dry_run:
        return sweep.dry_run()
    if sweep.todo and not args.skip_doctor:
        doctor.check(plan, sweep.todo, sweep.estimate, run_dir, sweep.console)
    return sweep.go()


if __name__ == "__main__":
    sys.exit(main())
