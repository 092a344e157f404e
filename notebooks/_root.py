"""`import _root` in a notebook puts the repository root on the path, whichever program runs the notebook."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))
