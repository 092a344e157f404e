"""Which options a server's program knows: read from its own --help, once per version of it."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

from lib.files import digest, read_optional, write_json
from lib.paths import CACHE, ROOT

HELP_TIMEOUT_S = 60


def known(program: list[str], version: str, environment: dict[str, str], cache: Path | None = None) -> set[str] | None:
    """Options that `program` (first words of a command line) lists in its help; None if it lists none.

    They are kept in `cache` (the project's), under a name that changes with `version` and with the program's file:
    MLX-LM needs seconds to print its help.
    """
    path = (cache or CACHE) / "options" / f"{_stamp(program, version)}.json"
    if kept := read_optional(path):
        return set(kept["options"])
    found = listed(_help(program, environment))
    if found:
        write_json(path, {"version": version, "options": sorted(found)})
    return found or None


def listed(text: str) -> set[str]:
    """Options that a help text defines: those at the start of a line, not those that a description mentions."""
    heads = [re.split(r"\s{2,}(?![\s-])", line.strip())[0] for line in text.splitlines() if re.match(r"\s*-", line)]
    return {option for head in heads for option in re.findall(r"(?<![\w-])-{1,2}[A-Za-z][\w-]*", head)}


def used(words: Iterable[str]) -> list[str]:
    """Options among the words of a command line, each once: "--cache-ram", not its value, nor a value such as -1."""
    return list(dict.fromkeys(w.split("=", 1)[0] for w in words if re.match(r"-{1,2}[A-Za-z]", w)))


def _help(program: list[str], environment: dict[str, str]) -> str:
    try:
        done = subprocess.run(
            [*program, "--help"], capture_output=True, text=True, errors="replace", timeout=HELP_TIMEOUT_S,
            stdin=subprocess.DEVNULL, cwd=ROOT, env=os.environ | environment,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout or done.stderr if done.returncode == 0 else ""


def _stamp(program: list[str], version: str) -> str:
    files = [Path(program[0])]
    if "-m" in program[:-1]:
        found = importlib.util.find_spec(program[program.index("-m") + 1])
        files += [Path(found.origin)] if found and found.origin else []
    facts = [f.stat() for f in files if f.exists()]
    return digest([program, version, [[fact.st_size, fact.st_mtime_ns] for fact in facts]])
