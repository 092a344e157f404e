"""`make bench`: the project's own speed against its targets, written as one table to .cache/bench/bench.md.

Speed is asserted nowhere: ratios are against a baseline in the same run, and the table says which targets were met.
"""

from __future__ import annotations

import argparse
import importlib
import sys

from lib.paths import CACHE, relative

PARTS = ("client", "observer", "report", "power", "cells", "synthetic")


def table(rows: list[dict]) -> str:
    """Rows of {name, value, unit, target, met} as Markdown."""
    lines = ["| what | measured | unit | target | met |", "| --- | ---: | --- | ---: | --- |"]
    for row in rows:
        target = "" if row.get("target") is None else f"{row['target']:g}"
        met = "" if row.get("met") is None else "yes" if row["met"] else "NO"
        lines.append(f"| {row['name']} | {row['value']:.4g} | {row['unit']} | {target} | {met} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0, help="part of the full size, for a quick look")
    parser.add_argument("--only", default="", help=f"one of {', '.join(PARTS)}")
    args = parser.parse_args()
    rows: list[dict] = []
    for part in PARTS:
        if args.only in part:
            rows += importlib.import_module(f"bench.{part}").bench(args.scale)
    path = CACHE / "bench" / "bench.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(table(rows))
    print(table(rows))
    print(f"bench: {len(rows)} rows, also in {relative(path)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
