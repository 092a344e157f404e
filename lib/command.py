"""How every command of the project ends: an exit code, and one line instead of a traceback."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from lib.files import TinymoeError
from lib.paths import relative


def run(name: str, action: Callable[[], int], interrupted: str = "the same command goes on from here") -> int:
    """Exit code of `action`; 1 after a mistake or a file that cannot be used, 130 after Ctrl-C, each said in one line.

    `interrupted` says what the person can expect after Ctrl-C. Errors that nobody foresaw keep their traceback.
    """
    try:
        return action()
    except TinymoeError as e:
        code, said = 1, str(e)
    except OSError as e:
        where = relative(Path(e.filename)) if e.filename else "a file"
        code, said = 1, f"{where}: {e.strerror}; make room or move it, then the same command goes on"
    except KeyboardInterrupt:
        code, said = 130, f"interrupted; {interrupted}"
    print(f"{name}: {said}", file=sys.stderr)
    return code
