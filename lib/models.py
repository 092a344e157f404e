"""The one table of models: six small LLMs of the benchmark, and a tiny random-weight stand-in for each.

The order of the table is the order of every legend, table and axis.
"""

from __future__ import annotations

from dataclasses import dataclass

from lib.files import TinymoeError

MOE, HYBRID, DENSE = "MoE", "hybrid MoE", "dense"
# Backends that load a GGUF file; the others load an MLX checkpoint.
GGUF_BACKENDS = ("llama.cpp", "ollama")


@dataclass(frozen=True)
class Model:
    """One model, under the name that plans, folders and figures use.

    total_B, active_B: parameters in 10^9, all of them and those that one token uses.
    architecture: llama.cpp's name for it.
    gguf_repo, gguf_file: Hugging Face repository and file pattern of the Q4_K_M file; "" for a tiny model.
    mlx_repo: repository of the 4-bit MLX conversion; "" where none is published.
    tokenizer_repo: repository of the original tokenizer.
    unverified: names of fields that the published benchmark does not state; a report has to mark them.
    tiny, base: a tiny model is made locally and shares colour and architecture with the full model `base`.
    """

    name: str
    total_B: float
    active_B: float
    architecture: str
    kind: str
    gguf_repo: str = ""
    gguf_file: str = ""
    mlx_repo: str = ""
    tokenizer_repo: str = ""
    unverified: tuple[str, ...] = ()
    tiny: bool = False
    base: str = ""

    def repo_field(self, backend: str) -> str:
        """Name of the field with the repository of what `backend` loads."""
        return "gguf_repo" if backend in GGUF_BACKENDS else "mlx_repo"

    def is_published(self, backend: str) -> bool:
        """Whether there is anything for `backend` to load; of a tiny model it is made."""
        return self.tiny or bool(getattr(self, self.repo_field(backend)))


FULL = (
    Model(
        "lfm2.5-8b-a1b", 8.3, 1.5, "lfm2moe", HYBRID,
        "LiquidAI/LFM2.5-8B-A1B-GGUF", "*Q4_K_M.gguf", "LiquidAI/LFM2.5-8B-A1B-MLX-4bit",
        "LiquidAI/LFM2.5-8B-A1B",
        unverified=("mlx_repo",),
    ),
    Model(
        "trinity-nano", 6, 1, "afmoe", MOE,
        "arcee-ai/Trinity-Nano-Preview-GGUF", "*Q4_K_M.gguf", "mlx-community/Trinity-Nano-Preview-4bit",
        "arcee-ai/Trinity-Nano-Preview",
        unverified=("mlx_repo",),
    ),
    Model(
        "smallthinker-4b-a0.6b", 4, 0.6, "smallthinker", MOE,
        "gabriellarson/SmallThinker-4BA0.6B-Instruct-GGUF", "*Q4_K_M.gguf", "",
        "PowerInfer/SmallThinker-4BA0.6B-Instruct",
    ),
    Model(
        "granite4-h-tiny", 7, 1, "granitehybrid", HYBRID,
        "unsloth/granite-4.0-h-tiny-GGUF", "*Q4_K_M.gguf", "mlx-community/granite-4.0-h-tiny-4bit",
        "ibm-granite/granite-4.0-h-tiny",
        unverified=("mlx_repo",),
    ),
    Model(
        "gemma4-e2b", 5.1, 2.3, "gemma4", DENSE,
        "unsloth/gemma-4-E2B-it-GGUF", "*Q4_K_M.gguf", "mlx-community/gemma-4-e2b-it-4bit",
        "google/gemma-4-E2B-it",
        unverified=("gguf_repo", "mlx_repo"),
    ),
    Model(
        "gemma4-e4b", 8, 4.5, "gemma4", DENSE,
        "unsloth/gemma-4-E4B-it-GGUF", "*Q4_K_M.gguf", "mlx-community/gemma-4-e4b-it-4bit",
        "google/gemma-4-E4B-it",
        unverified=("gguf_repo", "mlx_repo"),
    ),
)  # fmt: skip

_OF = {m.name: m for m in FULL}


def _tiny(name: str, base: str, total: int, active: int) -> Model:
    """The tiny model `name`; total and active are whole counts of the made file (tests hold them to it)."""
    full = _OF[base]
    return Model(name, total / 1e9, active / 1e9, full.architecture, full.kind, tiny=True, base=base)


TINY = (
    _tiny("tiny-lfm2.5", "lfm2.5-8b-a1b", 2_297_152, 1_117_504),
    _tiny("tiny-trinity", "trinity-nano", 1_933_744, 1_049_008),
    _tiny("tiny-smallthinker", "smallthinker-4b-a0.6b", 3_868_800, 1_509_504),
    _tiny("tiny-granite4-h", "granite4-h-tiny", 2_239_048, 862_792),
    _tiny("tiny-gemma4-e2b", "gemma4-e2b", 1_027_012, 715_972),
    _tiny("tiny-gemma4-e4b", "gemma4-e4b", 1_511_750, 1_045_190),
)

MODELS = FULL + TINY
_BY_NAME = {m.name: m for m in MODELS}


def get(name: str) -> Model:
    """The model called `name`. TinymoeError with the known names if there is none."""
    if name not in _BY_NAME:
        raise TinymoeError(f"model {name!r} is not in lib/models.py; known: {', '.join(_BY_NAME)}")
    return _BY_NAME[name]


def find(name: str) -> Model | None:
    """The model called `name`, or None for one that is not in the table (a run of somebody else's models)."""
    return _BY_NAME.get(name)


def label(name: str) -> str:
    """Name with its parameters, as legends show it: "granite4-h-tiny (7B=1B)" is total = active."""
    model = get(name)
    return f"{name} ({count(model.total_B)}={count(model.active_B)})"


def count(billions: float) -> str:
    """A parameter count with one decimal at most: 8.3B, 0.6B, 1.9M."""
    if billions >= 0.1:
        return f"{round(billions, 1):g}B"
    return f"{round(billions * 1000, 1):g}M"
