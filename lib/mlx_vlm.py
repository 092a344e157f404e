"""MLX-VLM: mlx_vlm.server, for checkpoints with vision or audio around the language model that MLX-LM does not load.

Nobody has run this with a real MLX-VLM yet: it is written from its documentation and tested with a stand-in.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from lib.backend import HOST, VERSION_TIMEOUT_S, BackendError, Serving, chosen_program
from lib.mlx_lm import MlxLm

_ASK_VERSION = "import importlib.metadata as m; print(', '.join(f'{p} {m.version(p)}' for p in ('mlx-vlm', 'mlx')))"


class MlxVlm(MlxLm):
    """$MLX_VLM_SERVER, else mlx_vlm.server on PATH or beside this Python. It may live in an environment of its own.

    Its requests and its tokenizer are those of MLX-LM. A version that does not heed the logit bias against the end of
    a text gives answers shorter than asked, which the cell counts.
    """

    name = "mlx-vlm"
    reasons = (r"\[Errno \d+\].*address already in use", *MlxLm.reasons)

    def command(self, model_path: Path, port: int, ctx_size: int, extra_flags: Iterable[str] = ()) -> list[str]:
        """The host has to be said: it listens on every interface otherwise."""
        return [
            self.program(), "--model", str(model_path), "--host", HOST, "--port", str(port), *extra_flags,
        ]  # fmt: skip

    def program(self) -> str:
        """Path of mlx_vlm.server."""
        beside = Path(sys.executable).with_name("mlx_vlm.server")
        found = chosen_program("MLX_VLM_SERVER") or shutil.which("mlx_vlm.server") or shutil.which(beside)
        if not found:
            raise BackendError(
                "mlx_vlm.server is not installed; 'pip install mlx-vlm' into an environment of its own, and set "
                "MLX_VLM_SERVER to its bin/mlx_vlm.server"
            )
        return found

    def version(self) -> str:
        """Asked of the Python that the program's first line names: it need not be this one."""
        first = Path(self.program()).read_bytes().splitlines()[0].decode(errors="replace")
        if python := re.fullmatch(r"#!(\S*python\S*)", first):
            run = subprocess.run(
                [python[1], "-c", _ASK_VERSION], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=False
            )
            if run.returncode == 0:
                return run.stdout.strip()
        return "mlx-vlm, of a version that its program does not say"

    def model_field(self, serving: Serving) -> str:
        """The path as at its start: any other name makes it load another model."""
        return str(serving.path)
