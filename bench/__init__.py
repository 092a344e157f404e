"""The project's own speed. Each module has `bench(scale)`, which returns rows of the table that `make bench` prints."""

from __future__ import annotations


def row(name: str, value: float, unit: str, at_most: float | None = None, at_least: float | None = None) -> dict:
    """One row: what was measured, in what unit, against which target (none: for information)."""
    target = at_most if at_most is not None else at_least
    met = None if target is None else (value <= target if at_most is not None else value >= target)
    return {"name": name, "value": float(value), "unit": unit, "target": target, "met": met}
