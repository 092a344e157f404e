"""Make every tiny model that the cache lacks, for both backends; one line each.

python -m lib.tiny
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from lib import models, tiny
from lib.paths import CACHE, relative


def main() -> int:
    """Make them all; returns 0."""
    for model in models.TINY:
        for backend in (tiny.GGUF_BACKEND, tiny.MLX_BACKEND):
            start = time.perf_counter()
            path = tiny.ensure(model, backend, CACHE)
            seconds = time.perf_counter() - start
            size_MB = _size_MB(path)
            print(f"{models.label(model.name):32s} {size_MB:5.1f} MB {seconds:5.1f} s  {relative(path)}")
    return 0


def _size_MB(path: Path) -> float:
    files = [path] if path.is_file() else path.iterdir()
    return sum(f.stat().st_size for f in files) / 1e6


if __name__ == "__main__":
    sys.exit(main())
