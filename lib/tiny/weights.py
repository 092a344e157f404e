"""Random weights of a tiny model, in float32, under llama.cpp's names; both writers take them from here.

What may be sampled is under control. Channel 0 of each embedding is a constant which no block sees or
changes, so at the output the tokens split by the sign of their row's channel 0: those of printable ASCII
far ahead, all others far behind. A random model then never ends a text early, and each token is a piece of
text that streams on its own.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lib.tiny import tokenizer
from lib.tiny.shapes import Shape

SEED = 20
CONSTANT = 8.0  # channel 0 of an embedding; the other channels have standard deviation 1
SHARPNESS = 0.3  # scale of the final norm: smaller is flatter, so that sampled text varies

MATRIX, PLAIN = "matrix", "plain"


@dataclass(frozen=True)
class Weight:
    """One tensor.

    name: llama.cpp's, without ".weight" ("blk.0.attn_q"). value: float32 as PyTorch lays it out, (..., out,
    in). kind: a MATRIX may be quantised, a PLAIN one stays float32. used: the share that one token uses.
    """

    name: str
    value: np.ndarray
    kind: str = PLAIN
    used: float = 1.0


def count(weights: list[Weight]) -> tuple[int, int]:
    """Parameters in all, and those that one token uses.

    A token uses its own row of the per-layer embeddings and its own experts; embeddings count in full, as
    published counts have it.
    """
    total = sum(w.value.size for w in weights)
    return total, round(sum(w.value.size * w.used for w in weights))


def make(shape: Shape, seed: int = SEED, eos_prone: bool = False) -> list[Weight]:
    """All weights of a model. eos_prone: the end of text always wins, to test how it is ignored."""
    layers = [w for i in range(shape.layers) for w in _Layer(shape, seed, i).all()]
    return [*_ends(shape, seed, eos_prone), *layers]


def _uniform(seed: int, name: str, dims: tuple[int, ...], std: float) -> np.ndarray:
    """Random values from seed and name alone: uniform, since a normal draw calls the machine's libm."""
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    return (rng.random(dims, dtype=np.float32) - np.float32(0.5)) * np.float32(std * math.sqrt(12))


def _ends(s: Shape, seed: int, eos_prone: bool) -> Iterator[Weight]:
    """What lies before and after the layers: embeddings, final norm, output."""
    tok = tokenizer.build()
    rows = (len(tok.tokens), s.width)
    channel = np.full(rows[0], CONSTANT, np.float32)
    channel[list(tok.banned)] = -CONSTANT
    if eos_prone:
        channel[tok.id(tokenizer.EOS)] = 3 * CONSTANT
    embed = _uniform(seed, "token_embd", rows, 1.0)
    embed[:, 0] = channel if s.tied else CONSTANT
    yield Weight("token_embd", embed / np.float32(s.embed_scale), MATRIX)
    # Signs that alternate keep a tied output from repeating the token it was given.
    norm = np.where(np.arange(s.width) % 2, -1, 1) * np.float32(SHARPNESS)
    yield Weight("output_norm", (norm * np.float32(s.embed_scale if s.tied else 1)).astype(np.float32))
    if not s.tied:
        output = _uniform(seed, "output", rows, 1.0)
        output[:, 0] = channel
        yield Weight("output", output, MATRIX)
    if s.per_layer:
        wide = s.layers * s.per_layer
        table = _uniform(seed, "per_layer_token_embd", (rows[0], wide), s.per_layer**-0.5)
        yield Weight("per_layer_token_embd", table, MATRIX, used=1 / rows[0])
        project = _uniform(seed, "per_layer_model_proj", (wide, s.width), 1.0)
        yield Weight("per_layer_model_proj", project, MATRIX)
        yield Weight("per_layer_proj_norm", np.ones(s.per_layer, np.float32))


class _Layer:
    """The weights of layer `i`."""

    def __init__(self, shape: Shape, seed: int, i: int):
        self.s, self.seed, self.i = shape, seed, i
        self.attends = i in shape.full or shape.architecture in ("afmoe", "smallthinker", "gemma4")

    def all(self) -> Iterator[Weight]:
        """Mixer (attention, convolution or scan), then feed-forward, then what only gemma4 has."""
        yield self._norm("attn_norm")
        if self.attends:
            yield from self._attention()
        elif self.s.architecture == "granitehybrid":
            yield from self._mamba()
        else:
            yield from self._short_conv()
        yield self._norm("ffn_norm")
        yield from self._feed_forward()
        if self.s.architecture in ("afmoe", "gemma4"):
            # These norms come after a block: small, so that the embedding stays in sight.
            yield self._norm("post_attention_norm", 0.3)
            yield self._norm("post_ffw_norm", 0.3)
        if self.s.per_layer:
            yield from self._per_layer_input()

    def _name(self, name: str) -> str:
        return f"blk.{self.i}.{name}"

    def _plain(self, name: str, value: np.ndarray) -> Weight:
        return Weight(self._name(name), value.astype(np.float32))

    def _norm(self, name: str, value: float = 1.0) -> Weight:
        """A norm over the channels, blind to channel 0."""
        ones = np.full(self.s.width, value, np.float32)
        ones[0] = 0
        return self._plain(name, ones)

    def _matrix(self, name: str, *dims: int, gain: float = 1.0, kind: str = MATRIX, used: float = 1.0) -> Weight:
        """Random matrix (..., out, in) whose output is about `gain` times as large as its input."""
        full = self._name(name)
        return Weight(full, _uniform(self.seed, full, dims, gain / math.sqrt(dims[-1])), kind, used)

    def _back(self, name: str, *dims: int, used: float = 1.0) -> Weight:
        """A matrix that writes to the channels, but not to channel 0."""
        weight = self._matrix(name, *dims, gain=0.7, used=used)
        weight.value[..., 0, :] = 0
        return weight

    def _attention(self) -> Iterator[Weight]:
        s = self.s
        q, kv = s.heads * s.head_dim, s.kv_heads * s.head_dim
        yield self._matrix("attn_q", q, s.width)
        yield self._matrix("attn_k", kv, s.width)
        yield self._matrix("attn_v", kv, s.width)
        yield self._back("attn_output", s.width, q)
        if s.architecture in ("lfm2moe", "afmoe", "gemma4"):
            yield self._plain("attn_q_norm", np.ones(s.head_dim))
            yield self._plain("attn_k_norm", np.ones(s.head_dim))
        if s.architecture == "afmoe":
            yield self._matrix("attn_gate", q, s.width)

    def _short_conv(self) -> Iterator[Weight]:
        s = self.s
        yield self._matrix("shortconv.in_proj", 3 * s.width, s.width)
        yield self._matrix("shortconv.conv", s.width, 3, kind=PLAIN)
        yield self._back("shortconv.out_proj", s.width, s.width)

    def _mamba(self) -> Iterator[Weight]:
        s = self.s
        yield self._matrix("ssm_in", s.inner + s.conv_channels + s.ssm_heads, s.width)
        yield self._matrix("ssm_conv1d", s.conv_channels, 4, kind=PLAIN)
        yield self._plain("ssm_conv1d.bias", _uniform(self.seed, "bias", (s.conv_channels,), 0.02))
        yield self._plain("ssm_dt.bias", np.linspace(-4, -1, s.ssm_heads))
        yield self._plain("ssm_a", -np.linspace(1, 8, s.ssm_heads))
        yield self._plain("ssm_d", np.ones(s.ssm_heads))
        yield self._plain("ssm_norm", np.ones(s.inner))
        yield self._back("ssm_out", s.width, s.inner)

    def _feed_forward(self) -> Iterator[Weight]:
        s = self.s
        if not s.experts or self.i < s.dense_layers:
            yield from self._mlp("", s.ff)
            return
        yield from self._experts()
        if s.shared_ff:
            yield from self._mlp("_shexp", s.shared_ff)

    def _mlp(self, suffix: str, hidden: int) -> Iterator[Weight]:
        yield self._matrix(f"ffn_gate{suffix}", hidden, self.s.width)
        yield self._matrix(f"ffn_up{suffix}", hidden, self.s.width)
        yield self._back(f"ffn_down{suffix}", self.s.width, hidden)

    def _experts(self) -> Iterator[Weight]:
        s = self.s
        used = s.experts_used / s.experts
        yield self._matrix("ffn_gate_inp", s.experts, s.width, kind=PLAIN)
        yield self._matrix("ffn_gate_exps", s.experts, s.expert_ff, s.width, used=used)
        yield self._matrix("ffn_up_exps", s.experts, s.expert_ff, s.width, used=used)
        yield self._back("ffn_down_exps", s.experts, s.width, s.expert_ff, used=used)
        if s.architecture in ("lfm2moe", "afmoe"):
            yield self._plain("exp_probs_b.bias", _uniform(self.seed, self._name("b"), (s.experts,), 0.02))

    def _per_layer_input(self) -> Iterator[Weight]:
        s = self.s
        yield self._matrix("inp_gate", s.per_layer, s.width)
        yield self._back("proj", s.width, s.per_layer)
        yield self._norm("post_norm", 0.3)
        yield self._plain("layer_output_scale", np.ones(1))
