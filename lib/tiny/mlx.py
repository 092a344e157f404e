"""A tiny model as a 4-bit MLX-LM checkpoint, written without MLX itself.

MLX's affine quantisation keeps, for 64 values along a row, a scale and a bias: value = scale * q + bias
with q in 0..15, eight of them in a 32-bit word, the first one lowest. Scales are float32: on a CPU MLX is
about twenty times slower with 16-bit ones.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from lib.tiny import tokenizer
from lib.tiny.shapes import Shape
from lib.tiny.weights import MATRIX, Weight

GROUP, BITS = 64, 4

# llama.cpp's names of a layer's tensors, and MLX-LM's. Two that share a name are one matrix there, stacked.
_ATTENTION = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
}
_MLP = {"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
_SWITCH = {"ffn_gate_exps": "gate_proj", "ffn_up_exps": "up_proj", "ffn_down_exps": "down_proj"}


def _experts(prefix: str) -> dict[str, str]:
    """Names of the experts' three matrices under `prefix`."""
    return {theirs: f"{prefix}.{ours}" for theirs, ours in _SWITCH.items()}


LAYER = {
    "lfm2moe": {
        **_ATTENTION,
        "attn_norm": "operator_norm",
        "attn_output": "self_attn.out_proj",
        "attn_q_norm": "self_attn.q_layernorm",
        "attn_k_norm": "self_attn.k_layernorm",
        "shortconv.in_proj": "conv.in_proj",
        "shortconv.conv": "conv.conv",
        "shortconv.out_proj": "conv.out_proj",
        "ffn_norm": "ffn_norm",
        "ffn_gate": "feed_forward.gate_proj",
        "ffn_up": "feed_forward.up_proj",
        "ffn_down": "feed_forward.down_proj",
        "ffn_gate_inp": "feed_forward.gate",
        "exp_probs_b.bias": "feed_forward.expert_bias",
        **_experts("feed_forward.switch_mlp"),
    },
    "afmoe": {
        **_ATTENTION,
        **_MLP,
        "attn_gate": "self_attn.gate_proj",
        "ffn_norm": "pre_mlp_layernorm",
        "post_attention_norm": "post_attention_layernorm",
        "post_ffw_norm": "post_mlp_layernorm",
        "ffn_gate_inp": "mlp.router.gate",
        "exp_probs_b.bias": "mlp.expert_bias",
        "ffn_gate_shexp": "mlp.shared_experts.gate_proj",
        "ffn_up_shexp": "mlp.shared_experts.up_proj",
        "ffn_down_shexp": "mlp.shared_experts.down_proj",
        **_experts("mlp.experts"),
    },
    "granitehybrid": {
        **_ATTENTION,
        "ssm_in": "mamba.in_proj",
        "ssm_conv1d": "mamba.conv1d",
        "ssm_conv1d.bias": "mamba.conv1d.bias",
        "ssm_dt.bias": "mamba.dt_bias",
        "ssm_a": "mamba.A_log",
        "ssm_d": "mamba.D",
        "ssm_norm": "mamba.norm",
        "ssm_out": "mamba.out_proj",
        "ffn_norm": "post_attention_layernorm",
        "ffn_gate_inp": "block_sparse_moe.router.layer",
        "ffn_gate_shexp": "shared_mlp.input_linear",
        "ffn_up_shexp": "shared_mlp.input_linear",
        "ffn_down_shexp": "shared_mlp.output_linear",
        **_experts("block_sparse_moe.switch_mlp"),
    },
    "gemma4": {
        **_ATTENTION,
        **_MLP,
        "ffn_norm": "pre_feedforward_layernorm",
        "post_attention_norm": "post_attention_layernorm",
        "post_ffw_norm": "post_feedforward_layernorm",
        "inp_gate": "per_layer_input_gate",
        "proj": "per_layer_projection",
        "post_norm": "post_per_layer_input_norm",
        "layer_output_scale": "layer_scalar",
    },
    "smallthinker": {
        **_ATTENTION,
        "ffn_norm": "post_attention_layernorm",
        "ffn_gate_inp": "block_sparse_moe.primary_router",
        **_experts("block_sparse_moe.experts"),
    },
}
ENDS = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "per_layer_token_embd": "model.embed_tokens_per_layer",
    "per_layer_model_proj": "model.per_layer_model_projection",
    "per_layer_proj_norm": "model.per_layer_projection_norm",
}
# Parameters of a module itself: MLX-LM's names have no ".weight" after them.
BARE = ("A_log", "D", "dt_bias", "expert_bias", "layer_scalar", "conv1d.bias")


def write(folder: Path, shape: Shape, weights: list[Weight], ctx: int) -> None:
    """Write config.json, tokenizer and model.safetensors into `folder`, which exists."""
    tokenizer.write(folder, ctx)
    (folder / "config.json").write_text(json.dumps(config(shape, ctx), indent=1), encoding="utf-8")
    tensors: dict[str, np.ndarray] = {}
    for name, (value, kind) in _named(shape, weights).items():
        tensors |= _quantised(name, value) if kind == MATRIX else {_full_name(name): value}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "mlx"})


def _named(shape: Shape, weights: list[Weight]) -> dict[str, tuple[np.ndarray, str]]:
    """Values and kinds under MLX-LM's names, parts that share a name stacked in order."""
    named: dict[str, tuple[np.ndarray, str]] = {}
    for weight in weights:
        name = _mlx_name(shape, weight.name)
        value = _mlx_value(name, weight.value)
        if name in named:
            value = np.concatenate([named[name][0], value])
        named[name] = (value, weight.kind)
    return named


def _mlx_name(shape: Shape, name: str) -> str:
    """MLX-LM's name, without ".weight", of a tensor that llama.cpp calls `name`."""
    prefix = "language_model." if shape.architecture == "gemma4" else ""
    if not name.startswith("blk."):
        if name == "output_norm" and shape.architecture == "lfm2moe":
            return "model.embedding_norm"
        return prefix + ENDS[name]
    _, layer, rest = name.split(".", 2)
    return f"{prefix}model.layers.{layer}.{LAYER[shape.architecture][rest]}"


def _mlx_value(name: str, value: np.ndarray) -> np.ndarray:
    """`value` in the form that MLX-LM keeps: the logarithm of the decay, and a third axis of convolutions."""
    if name.endswith("A_log"):
        return np.log(-value)
    if name.endswith(("conv1d", "conv.conv")):
        return value[..., None]
    return value


def _full_name(name: str) -> str:
    return name if name.endswith(BARE) else f"{name}.weight"


def _quantised(name: str, value: np.ndarray) -> dict[str, np.ndarray]:
    """The three tensors of a quantised matrix: packed weight, scales, biases."""
    groups = value.reshape(*value.shape[:-1], -1, GROUP)
    low = groups.min(-1, keepdims=True)
    scale = (groups.max(-1, keepdims=True) - low) / np.float32(2**BITS - 1)
    steps = (groups - low) / np.where(scale > 0, scale, 1)
    nibbles = np.rint(steps).astype(np.uint32).reshape(*value.shape[:-1], -1, 32 // BITS)
    shifts = np.arange(0, 32, BITS, dtype=np.uint32)
    packed = np.bitwise_or.reduce(nibbles << shifts, axis=-1)
    return {f"{name}.weight": packed, f"{name}.scales": scale[..., 0], f"{name}.biases": low[..., 0]}


def config(shape: Shape, ctx: int) -> dict:
    """config.json: the sizes under the keys of the architecture's Hugging Face configuration."""
    tok = tokenizer.build()
    ends = {
        "bos_token_id": tok.id(tokenizer.BOS),
        "eos_token_id": _eos(shape, tok),
        "pad_token_id": tok.id(tokenizer.PAD),
        "torch_dtype": "float32",
        "quantization": {"group_size": GROUP, "bits": BITS},
    }
    sizes = _sizes(shape, ctx) | CONFIGS[shape.architecture](shape)
    if shape.architecture != "gemma4":
        return sizes | ends
    # gemma4 is a multimodal checkpoint: the language model is nested in it.
    outer = {"model_type": "gemma4", "vocab_size": sizes["vocab_size"], "text_config": sizes}
    return outer | ends


def _eos(shape: Shape, tok: tokenizer.Tokenizer) -> int | list[int]:
    """The end of a text; several for granitehybrid, whose published model is the one that stops early under MLX-LM.

    A random-weight model hardly ever picks one certain token. With every 12th token an end it stops somewhere on the
    way, unless a request forbids it: so that an early stop can be shown with a real server.
    """
    end = tok.id(tokenizer.EOS)
    if shape.architecture != "granitehybrid":
        return end
    return sorted({end, *range(0, len(tok.tokens), 12)})


def _sizes(s: Shape, ctx: int) -> dict:
    return {
        "vocab_size": len(tokenizer.build().tokens),
        "hidden_size": s.width,
        "num_hidden_layers": s.layers,
        "num_attention_heads": s.heads,
        "num_key_value_heads": s.kv_heads,
        "head_dim": s.head_dim,
        "intermediate_size": s.ff,
        "max_position_embeddings": ctx,
        "rms_norm_eps": s.eps,
        "rope_theta": s.rope_base,
        "tie_word_embeddings": s.tied,
        "num_experts_per_tok": s.experts_used,
    }


def _kinds(s: Shape, full: str, other: str) -> list[str]:
    """`layer_types`: which layers attend in full, and what the others do."""
    return [full if i in s.full else other for i in range(s.layers)]


def _lfm2moe(s: Shape) -> dict:
    return {
        "model_type": "lfm2_moe",
        "num_experts": s.experts,
        "moe_intermediate_size": s.expert_ff,
        "num_dense_layers": s.dense_layers,
        "norm_eps": s.eps,
        "norm_topk_prob": True,
        "use_expert_bias": True,
        "conv_bias": False,
        "conv_L_cache": 3,
        "layer_types": _kinds(s, "full_attention", "conv"),
    }


def _afmoe(s: Shape) -> dict:
    return {
        "model_type": "afmoe",
        "num_experts": s.experts,
        "moe_intermediate_size": s.expert_ff,
        "num_shared_experts": 1,
        "num_dense_layers": s.dense_layers,
        "route_norm": True,
        "route_scale": 2.0,
        "sliding_window": s.window,
        "mup_enabled": True,
        "layer_types": _kinds(s, "full_attention", "sliding_attention"),
    }


def _granitehybrid(s: Shape) -> dict:
    return {
        "model_type": "granitemoehybrid",
        "intermediate_size": s.expert_ff,
        "shared_intermediate_size": s.shared_ff,
        "num_local_experts": s.experts,
        "attention_bias": False,
        "attention_multiplier": s.head_dim**-0.5,
        "embedding_multiplier": 1.0,
        "residual_multiplier": 0.5,
        "logits_scaling": 1.0,
        "position_embedding_type": "nope",
        "mamba_n_heads": s.ssm_heads,
        "mamba_d_head": s.inner // s.ssm_heads,
        "mamba_d_state": s.state,
        "mamba_d_conv": 4,
        "mamba_n_groups": 1,
        "mamba_conv_bias": True,
        "mamba_proj_bias": False,
        "layer_types": _kinds(s, "attention", "mamba"),
    }


def _gemma4(s: Shape) -> dict:
    return {
        "model_type": "gemma4_text",
        "global_head_dim": s.head_dim,
        "vocab_size_per_layer_input": len(tokenizer.build().tokens),
        "hidden_size_per_layer_input": s.per_layer,
        "num_kv_shared_layers": 0,
        "use_double_wide_mlp": False,
        "sliding_window": s.window,
        "final_logit_softcapping": 30.0,
        "layer_types": _kinds(s, "full_attention", "sliding_attention"),
    }


def _smallthinker(s: Shape) -> dict:
    return {
        "model_type": "smallthinker",
        "moe_num_primary_experts": s.experts,
        "moe_ffn_hidden_size": s.expert_ff,
        "sliding_window_size": s.window,
    }


CONFIGS = {
    "lfm2moe": _lfm2moe,
    "afmoe": _afmoe,
    "granitehybrid": _granitehybrid,
    "gemma4": _gemma4,
    "smallthinker": _smallthinker,
}
