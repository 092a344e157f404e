"""Dimensions of the six tiny models. One shape serves both backends.

Each keeps the plan of the model it stands for: which layers attend, slide, convolve or scan, and where the
experts are. gemma4's are dense, with per-layer embeddings, as the real ones are; unlike there, every layer
has its own keys and values.

The sizes are what MLX-LM bears on a CPU. It multiplies at about 1 GFLOP/s there, so that a million parameters
a token make 500 prompt tokens a second. llama.cpp is some eight times faster on the same model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Shape:
    """Sizes of one model; 0 or () for what it does not have.

    width: channels. ff: hidden size of a dense feed-forward block. experts, experts_used, expert_ff,
    shared_ff: mixture of experts. dense_layers: the first layers, which have no experts. full: the layers
    with full attention; the others slide over `window` tokens, convolve or scan. state, ssm_heads: Mamba-2.
    per_layer: channels of the per-layer embeddings. tied: the output matrix is the embedding. embed_scale:
    what the architecture multiplies embeddings by.
    """

    architecture: str
    layers: int
    width: int = 128
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    ff: int = 256
    experts: int = 0
    experts_used: int = 0
    expert_ff: int = 64
    shared_ff: int = 0
    dense_layers: int = 0
    full: tuple[int, ...] = ()
    window: int = 0
    state: int = 64
    ssm_heads: int = 8
    per_layer: int = 0
    tied: bool = False
    embed_scale: float = 1.0
    eps: float = 1e-5
    rope_base: float = 10000.0

    @property
    def inner(self) -> int:
        """Channels inside a Mamba-2 block; llama.cpp takes only twice the width."""
        return 2 * self.width

    @property
    def conv_channels(self) -> int:
        """Channels of a Mamba-2 block that pass its convolution: x, B and C."""
        return self.inner + 2 * self.state


_MOE = {"experts": 16, "experts_used": 4}
_GEMMA = Shape(
    "gemma4", 4, kv_heads=1, ff=192, full=(3,), window=512, per_layer=64, tied=True,
    embed_scale=128**0.5, eps=1e-6, rope_base=1e6,
)  # fmt: skip

SHAPES = {
    "tiny-lfm2.5": Shape("lfm2moe", 6, full=(2, 5), dense_layers=2, tied=True, rope_base=1e6, **_MOE),
    "tiny-trinity": Shape(
        "afmoe", 4, full=(3,), window=2048, dense_layers=1, shared_ff=64, embed_scale=128**0.5, **_MOE
    ),
    "tiny-smallthinker": Shape("smallthinker", 8, full=(3, 7), window=4096, rope_base=1.5e6, **_MOE),
    "tiny-granite4-h": Shape("granitehybrid", 4, ff=64, full=(3,), experts=16, experts_used=2, shared_ff=64, tied=True),
    "tiny-gemma4-e2b": _GEMMA,
    "tiny-gemma4-e4b": replace(_GEMMA, layers=6, kv_heads=2, full=(2, 5)),
}
