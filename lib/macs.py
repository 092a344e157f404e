"""Multiply-accumulates per token by component, from a model's config.json. Relative magnitudes, not timings.

Counted: d_in x d_out of each linear layer; 2 x heads x attended tokens x head size of each attention block, where a
sliding layer attends to its window at most; d_inner x d_state of each Mamba scan. Left out: norms, embeddings, the
output head, convolutions and gates (section 2.1 of the published report).
"""

from __future__ import annotations

from dataclasses import dataclass

from lib.files import TinymoeError


class MacsError(TinymoeError):
    """A configuration whose kind of model is not known here."""


@dataclass(frozen=True)
class Macs:
    """MACs per token: of state-space or convolution layers, of attention, of experts and other feed-forward layers."""

    mixer: int
    attention: int
    feed_forward: int

    @property
    def total(self) -> int:
        """All components together."""
        return self.mixer + self.attention + self.feed_forward


def per_token(config: dict, ctx: int) -> Macs:
    """MACs to process one token with `ctx` tokens to attend to. MacsError for a model_type that is not known.

    `config` is the parsed config.json; nested checkpoints keep their text model's under text_config.
    """
    config = config.get("text_config", config)
    kind = config.get("model_type", "")
    if kind not in _COUNT:
        raise MacsError(f"no count of MACs for model_type {kind!r}; known: {', '.join(_COUNT)}")
    return _COUNT[kind](config, ctx)


def _head_size(c: dict) -> int:
    return c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]


def _attention(c: dict, attended: int) -> int:
    """Projections q, k, v and o, then scores and values over the attended tokens."""
    heads, kv_heads, size = c["num_attention_heads"], c["num_key_value_heads"], _head_size(c)
    return c["hidden_size"] * size * 2 * (heads + kv_heads) + 2 * heads * attended * size


def _experts(c: dict, experts: int, used: int, width: int, shared_width: int = 0) -> int:
    """Router, then gate, up and down of the experts used and of the shared one."""
    return c["hidden_size"] * experts + 3 * c["hidden_size"] * (used * width + shared_width)


def _granite(c: dict, ctx: int) -> Macs:
    d, inner, state = c["hidden_size"], c["mamba_n_heads"] * c["mamba_d_head"], c["mamba_d_state"]
    entry = d * (2 * inner + 2 * c["mamba_n_groups"] * state + c["mamba_n_heads"])
    mamba = entry + inner * d + inner * state
    kinds = c["layer_types"]
    experts = _experts(
        c, c["num_local_experts"], c["num_experts_per_tok"], c["intermediate_size"], c["shared_intermediate_size"]
    )  # fmt: skip
    full = kinds.count("attention")
    return Macs((len(kinds) - full) * mamba, full * _attention(c, ctx), len(kinds) * experts)


def _afmoe(c: dict, ctx: int) -> Macs:
    width = c["moe_intermediate_size"]
    experts = _experts(c, c["num_experts"], c["num_experts_per_tok"], width, c.get("num_shared_experts", 1) * width)
    dense = 3 * c["hidden_size"] * c["intermediate_size"]
    layers, first = len(c["layer_types"]), c.get("num_dense_layers", 0)
    return Macs(0, _windowed(c, ctx), first * dense + (layers - first) * experts)


def _windowed(c: dict, ctx: int) -> int:
    """Attention of layers that are sliding or full, by layer_types."""
    sliding = c["layer_types"].count("sliding_attention")
    near = _attention(c, min(ctx, c["sliding_window"]))
    return sliding * near + (len(c["layer_types"]) - sliding) * _attention(c, ctx)


def _lfm2(c: dict, ctx: int) -> Macs:
    d, kinds, first = c["hidden_size"], c["layer_types"], c["num_dense_layers"]
    full = kinds.count("full_attention")
    experts = _experts(c, c["num_experts"], c["num_experts_per_tok"], c["moe_intermediate_size"])
    feed_forward = first * 3 * d * c["intermediate_size"] + (len(kinds) - first) * experts
    return Macs((len(kinds) - full) * 4 * d * d, full * _attention(c, ctx), feed_forward)


def _smallthinker(c: dict, ctx: int) -> Macs:
    layers = c["num_hidden_layers"]
    layout = c.get("sliding_window_layout") or [0] * layers
    near = _attention(c, min(ctx, c.get("sliding_window_size") or ctx))
    attention = sum(near if slides else _attention(c, ctx) for slides in layout)
    experts = _experts(
        c, c["moe_num_primary_experts"], c["moe_num_active_primary_experts"], c["moe_ffn_hidden_size"]
    )  # fmt: skip
    return Macs(0, attention, layers * experts)


def _gemma4(c: dict, ctx: int) -> Macs:
    """Dense; full layers have heads of their own size, and a projection from the per-layer embeddings in each layer."""
    d, layers, per_layer = c["hidden_size"], c["num_hidden_layers"], c.get("hidden_size_per_layer_input", 0)
    full = c | {"head_dim": c.get("global_head_dim") or _head_size(c)}
    kinds = c["layer_types"]
    sliding = kinds.count("sliding_attention")
    attention = sliding * _attention(c, min(ctx, c["sliding_window"])) + (layers - sliding) * _attention(full, ctx)
    shared = min(c.get("num_kv_shared_layers", 0), layers) if c.get("use_double_wide_mlp") else 0
    feed_forward = 3 * d * c["intermediate_size"] * (layers + shared)
    return Macs(0, attention, feed_forward + layers * 2 * d * per_layer)


_COUNT = {
    "granitemoehybrid": _granite, "afmoe": _afmoe, "lfm2_moe": _lfm2, "smallthinker": _smallthinker,
    "gemma4_text": _gemma4,
}  # fmt: skip
