"""Whether this machine is fit to measure a plan: a line for each check, with what to do about it. Nothing is changed.

    python -m lib.doctor --plan quick [--only PART]

Exit codes: 0 no error (warnings may be left); 1 errors, or a mistake in the options.
"""

from __future__ import annotations

import argparse
import getpass
import importlib.metadata
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from lib import backends, busy, command, hashes, machine, macos, models, options, power, progress, store
from lib.estimate import Estimate, clock
from lib.files import TinymoeError, free_MB, read_optional
from lib.finding import ERROR, OK, WARNING, Finding, count, show
from lib.paths import RUNS, relative
from lib.plan import Cell, Plan, load, selected

PYTHONS = ((3, 11), (3, 13))
# A server maps its model: beyond this share of memory the rest of the machine starts to swap.
MODEL_MEMORY = 0.7
# Busy cores that belong to no process that can be seen: below this, noise of the measurement.
UNSEEN_CORES = 0.5
NAMED_PROCESSES = 5


class DoctorError(TinymoeError):
    """A machine on which the plan cannot be measured as it is."""


def examine(plan: Plan, cells: list[Cell], estimate: Estimate, folder: Path) -> Iterator[Finding]:
    """Findings for measuring `cells` of the plan into `folder`, in the order of the checks, as they come."""
    yield _machine()
    yield _python()
    if plan.synthetic:
        yield Finding(OK, "plan", f"{plan.name} is synthetic: no server and no meter runs")
        return
    yield from _power(plan)
    for name in dict.fromkeys(cell.backend for cell in cells):
        yield from _server(plan, name)
    yield from _models(plan, cells)
    yield _disk(cells, estimate, folder)
    yield from macos.findings() if machine.is_macos() else _clock()
    yield from _others()


def _machine() -> Finding:
    memory_GB = machine.memory_bytes() / 2**30
    build = f" ({machine.os_build()})" if machine.is_macos() else ""
    about = f"{machine.chip() or platform.machine()}, {memory_GB:.0f} GB, {machine.os_name()}{build}"
    if machine.is_macos() and macos.translated():
        return Finding(ERROR, "machine", f"{about}; this Python is one for Intel, run by Rosetta",
                       "make .venv again with a Python for Apple silicon")  # fmt: skip
    return Finding(OK, "machine", about)


def _python() -> Finding:
    low, high = (".".join(map(str, version)) for version in PYTHONS)
    if PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1]:
        return Finding(OK, "python", platform.python_version())
    return Finding(ERROR, "python", f"{platform.python_version()} is not one of {low} to {high}",
                   f"make .venv again: make env PYTHON=python{high}")  # fmt: skip


def _power(plan: Plan) -> Iterator[Finding]:
    if plan.power not in ("auto", "powermetrics"):
        yield Finding(OK, "power", f"{plan.power}, as the plan says; powermetrics is not asked for")
        return
    refusal = power.powermetrics_refusal().removesuffix("; allow that one program in sudoers")
    if not refusal:
        yield Finding(OK, "power", f"powermetrics runs by 'sudo -n {power.POWERMETRICS}'")
    elif plan.power == "powermetrics":
        yield Finding(ERROR, "power", refusal, _allow(refusal) or "set 'power: modelled' or 'none' in the plan")
    elif machine.is_macos():
        yield Finding(WARNING, "power", f"power will be modelled: {refusal}", _allow(refusal))
    else:
        yield Finding(OK, "power", f"modelled from CPU time: {refusal}")


def _allow(refusal: str) -> str:
    """How to allow powermetrics, that one program and nothing more; "" if it was not sudo that refused."""
    if not re.search(r"password is required|not allowed|not in the sudoers", refusal):
        return ""
    user = getpass.getuser()
    who = user if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", user) else f"#{os.getuid()}"  # other names need escapes
    return f"put this line into a file of its own by 'sudo visudo -f /etc/sudoers.d/powermetrics': {sudoers(who)}"


def sudoers(user: str) -> str:
    """The line of sudoers that lets `user` run powermetrics as root without a password, and no other program."""
    return f"{user} ALL=(root) NOPASSWD: {power.POWERMETRICS}"


def _server(plan: Plan, name: str) -> Iterator[Finding]:
    model = Path("MODEL")
    try:
        backend = backends.get(name)
        words = backend.command(model, 0, plan.ctx_size, plan.flags.get(name, []))
    except TinymoeError as e:
        yield Finding(ERROR, name, str(e))
        return
    try:
        version = backend.version()
    except importlib.metadata.PackageNotFoundError as e:
        yield Finding(ERROR, name, f"the package {e.name} is not installed", "run 'make env'")
        return
    except (TinymoeError, OSError, subprocess.TimeoutExpired) as e:
        yield Finding(WARNING, name, f"version unknown: {e}")
        return
    if str(model) not in words:
        yield Finding(OK, name, version)
        return
    first = words.index(str(model)) - 1
    yield from _flags(plan, backend, version, words[:first], options.used(words[first:]))


def _flags(plan: Plan, backend: backends.Backend, version: str, program: list[str], used: list[str]) -> Iterator:
    known = options.known(program, version, backend.environment())
    if known is None:
        yield Finding(WARNING, backend.name, f"{version}: its --help lists no options, so that ours are not checked")
        return
    unknown = [option for option in used if option not in known]
    for option in unknown:
        yield Finding(ERROR, backend.name, f"{version} does not know {option}", _instead(plan, backend, option, known))
    if not unknown:
        yield Finding(OK, backend.name, f"{version}; knows all {len(used)} options of its command line")
    if "--mlock" in used and {"--mlock", "--load-mode"} <= known:
        yield Finding(WARNING, backend.name, "--mlock gives way to --load-mode, and goes in later versions",
                      "write '--load-mode mlock' in the plan's flags")  # fmt: skip


def _instead(plan: Plan, backend: backends.Backend, option: str, known: set[str]) -> str:
    if option == "--mlock" and "--load-mode" in known:
        return "write '--load-mode mlock' in the plan's flags"
    if option == "--load-mode" and "--mlock" in known:
        return "write '--mlock' in the plan's flags"
    if option in options.used(plan.flags.get(backend.name, [])):
        return f"take it out of the plan's flags for {backend.name}, or use a version that knows it"
    return "use a version that knows it: the benchmark's own settings need it"


def _models(plan: Plan, cells: list[Cell]) -> Iterator[Finding]:
    pairs = list(dict.fromkeys((cell.backend, cell.model) for cell in cells))
    tiny = {model for _, model in pairs if models.get(model).tiny}
    if tiny:
        yield Finding(OK, "models", f"{len(tiny)} tiny, made here from random weights when they are needed")
    for backend, name in pairs:
        if name not in tiny:
            yield from _model(plan, backend, name)


def _model(plan: Plan, backend: str, name: str) -> Iterator[Finding]:
    about = "models"
    try:
        path = store.locate(models.get(name), backend, plan.ctx_size)
    except TinymoeError as e:
        if getattr(e, "unsupported", False):
            yield Finding(OK, about, f"{e}: its cells keep that as their reason")
        else:
            yield Finding(ERROR, about, str(e))
        return
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    size = sum(file.stat().st_size for file in files)
    yield Finding(OK, about, f"{name} for {backend}: {_GB(size)}, {_checksums(files)}")
    if size > MODEL_MEMORY * machine.memory_bytes():
        yield Finding(WARNING, about, f"{name} for {backend} fills more than {MODEL_MEMORY:.0%} of memory",
                      "expect swapping, or leave it out with ONLY=")  # fmt: skip


def _checksums(files: list[Path]) -> str:
    """What is recorded of the weights' SHA-256, without computing any: of one file its first digits, else how many."""
    record = read_optional(hashes.RECORD)
    kept = [(file.stat(), record.get(str(file.resolve()), {})) for file in files]
    same = [k["sha256"] for now, k in kept if (k.get("size"), k.get("mtime_ns")) == (now.st_size, now.st_mtime_ns)]
    if not same:
        return "SHA-256 not recorded"
    return f"SHA-256 {same[0][:12]}... recorded" if len(files) == 1 else f"SHA-256 of {len(same)} files recorded"


def _disk(cells: list[Cell], estimate: Estimate, folder: Path) -> Finding:
    have_MB, need_MB = free_MB(folder), estimate.space_MB(cells)
    found = f"{_GB(have_MB * 1e6)} free, about {_GB(need_MB * 1e6)} needed for {len(cells)} cells in about " \
            f"{clock(estimate.total(cells))}"  # fmt: skip
    if have_MB < need_MB:
        return Finding(ERROR, "disk", f"{relative(folder)}: {found}", "free some space or shrink the plan")
    return Finding(OK, "disk", found)


def _clock() -> Iterator[Finding]:
    """Whether the clock is kept, where the system can say so."""
    kept = machine.said("timedatectl", "show", "-p", "NTPSynchronized", "--value")
    if kept == "yes":
        yield Finding(OK, "clock", "synchronised")
    elif kept == "no":
        yield Finding(WARNING, "clock", "not synchronised", "run 'timedatectl set-ntp true'")


def _others() -> Iterator[Finding]:
    heavy, unseen = busy.look()
    named = [_process(p) for p in heavy[:NAMED_PROCESSES]]
    if len(heavy) > NAMED_PROCESSES:
        named.append(f"{len(heavy) - NAMED_PROCESSES} more")
    if unseen >= UNSEEN_CORES:
        named.append(f"{unseen:.1f} cores by processes that cannot be seen from here")
    if named:
        yield Finding(WARNING, "others", f"at work beside the sweep: {', '.join(named)}",
                      "close what is not needed: it takes cores, and its power is measured too")  # fmt: skip
    else:
        yield Finding(OK, "others", "no heavy process")


def _process(p: busy.Heavy) -> str:
    return f"{p.name} (pid {p.pid}) {p.cores:.1f} cores, {_GB(p.memory_bytes)}"


def _GB(n_bytes: float) -> str:
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 1e8 else f"{n_bytes / 1e6:.0f} MB"


def check(plan: Plan, cells: list[Cell], estimate: Estimate, folder: Path, console: Console) -> None:
    """What a sweep does first: print warnings and errors only. DoctorError if there are errors."""
    findings = [f for f in examine(plan, cells, estimate, folder) if f.level != OK]
    for finding in findings:
        show(finding, console, "doctor: ")
    if errors := count(findings, ERROR):
        raise DoctorError(f"the doctor found {errors}; correct that first, or pass it over (--skip-doctor, DOCTOR=0)")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Check whether this machine is fit to measure a plan.")
    parser.add_argument("--plan", default="quick", help="name of a plan in runs/plans, or a YAML file")
    parser.add_argument("--only", default="", help="part of a backend's or model's name")
    args = parser.parse_args(argv)
    return command.run("doctor", lambda: _run(args), "nothing was changed")


def _run(args: argparse.Namespace) -> int:
    plan, console, findings = load(args.plan), progress.console(), []
    for finding in examine(plan, list(selected(plan, args.only)), Estimate(plan), RUNS):
        findings.append(finding)
        show(finding, console)
    said = ", ".join(filter(None, (count(findings, ERROR), count(findings, WARNING)))) or "nothing to object to"
    console.print(f"doctor: plan {plan.name}: {said}", markup=False)
    return 1 if count(findings, ERROR) else 0


if __name__ == "__main__":
    sys.exit(main())
