"""How many of how many, in words."""

from __future__ import annotations


def of_all(count: int, total: int, word: str) -> str:
    """How many of `total` things: "all 152 cells", "151 of 152 cells", "none of 152 cells", "the one cell"."""
    if total == 1:
        return f"the one {word}" if count else f"not the one {word}"
    if count == total:
        return f"all {total} {word}s"
    return f"{count or 'none'} of {total} {word}s"
