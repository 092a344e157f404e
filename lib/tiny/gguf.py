"""A tiny model as a GGUF file, for llama.cpp."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

from lib.tiny import tokenizer
from lib.tiny.shapes import Shape
from lib.tiny.weights import MATRIX, Weight

QUANT = gguf.GGMLQuantizationType.Q8_0
FILE_TYPE = gguf.LlamaFileType.MOSTLY_Q8_0
NORMAL, CONTROL = gguf.TokenType.NORMAL, gguf.TokenType.CONTROL


def write(path: Path, name: str, shape: Shape, weights: list[Weight], ctx: int) -> None:
    """Write the model `name` to `path`; the same arguments give the same bytes on every machine."""
    writer = gguf.GGUFWriter(path, shape.architecture)
    _describe(writer, name, ctx)
    _tokenizer(writer)
    _sizes(writer, shape)
    EXTRAS[shape.architecture](writer, shape)
    for weight in weights:
        _tensor(writer, shape, weight)
    if shape.architecture == "gemma4":
        writer.add_tensor("rope_freqs.weight", _rope_factors(shape))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _describe(w: gguf.GGUFWriter, name: str, ctx: int) -> None:
    w.add_type("model")
    w.add_name(name)
    w.add_description("random weights, made locally to exercise servers; what it writes means nothing")
    w.add_license("CC0-1.0")
    w.add_context_length(ctx)
    w.add_file_type(FILE_TYPE)
    w.add_quantization_version(gguf.GGML_QUANT_VERSION)


def _tokenizer(w: gguf.GGUFWriter) -> None:
    tok = tokenizer.build()
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list(list(tok.tokens))
    w.add_token_types([NORMAL] * tok.plain + [CONTROL] * (len(tok.tokens) - tok.plain))
    w.add_token_merges([f"{a} {b}" for a, b in tok.merges])
    w.add_bos_token_id(tok.id(tokenizer.BOS))
    w.add_eos_token_id(tok.id(tokenizer.EOS))
    w.add_pad_token_id(tok.id(tokenizer.PAD))
    w.add_add_bos_token(False)
    w.add_chat_template(tokenizer.CHAT_TEMPLATE)
    w.add_vocab_size(len(tok.tokens))


def _sizes(w: gguf.GGUFWriter, s: Shape) -> None:
    """Keys that every architecture has."""
    w.add_block_count(s.layers)
    w.add_embedding_length(s.width)
    w.add_feed_forward_length(s.ff)
    w.add_head_count(s.heads)
    scans = s.architecture in ("lfm2moe", "granitehybrid")
    w.add_head_count_kv([s.kv_heads * (i in s.full) for i in range(s.layers)] if scans else s.kv_heads)
    w.add_key_length(s.head_dim)
    w.add_value_length(s.head_dim)
    w.add_rope_dimension_count(s.head_dim)
    w.add_rope_freq_base(s.rope_base)
    w.add_layer_norm_rms_eps(s.eps)
    if s.experts:
        w.add_expert_count(s.experts)
        w.add_expert_used_count(s.experts_used)
        w.add_expert_feed_forward_length(s.expert_ff)


def _lfm2moe(w: gguf.GGUFWriter, s: Shape) -> None:
    w.add_shortconv_l_cache(3)
    w.add_leading_dense_block_count(s.dense_layers)
    w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)


def _afmoe(w: gguf.GGUFWriter, s: Shape) -> None:
    w.add_sliding_window(s.window)
    w.add_leading_dense_block_count(s.dense_layers)
    w.add_expert_shared_count(1)
    w.add_expert_weights_norm(True)
    w.add_expert_weights_scale(2.0)
    w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)


def _smallthinker(w: gguf.GGUFWriter, s: Shape) -> None:
    w.add_sliding_window(s.window)
    w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)


def _granitehybrid(w: gguf.GGUFWriter, s: Shape) -> None:
    w.add_expert_shared_feed_forward_length(s.shared_ff)
    w.add_rope_scaling_finetuned(False)  # this is how llama.cpp is told that there are no positions at all
    w.add_embedding_scale(1.0)
    w.add_residual_scale(0.5)
    w.add_logit_scale(1.0)
    w.add_attention_scale(s.head_dim**-0.5)
    w.add_ssm_conv_kernel(4)
    w.add_ssm_inner_size(s.inner)
    w.add_ssm_state_size(s.state)
    w.add_ssm_time_step_rank(s.ssm_heads)
    w.add_ssm_group_count(1)


def _gemma4(w: gguf.GGUFWriter, s: Shape) -> None:
    w.add_sliding_window(s.window)
    w.add_sliding_window_pattern([i not in s.full for i in range(s.layers)])
    w.add_key_length_swa(s.head_dim)
    w.add_value_length_swa(s.head_dim)
    w.add_rope_dimension_count_swa(s.head_dim)
    w.add_rope_freq_base_swa(10000.0)
    w.add_shared_kv_layers(0)
    w.add_embedding_length_per_layer_input(s.per_layer)
    w.add_final_logit_softcapping(30.0)


EXTRAS = {
    "lfm2moe": _lfm2moe,
    "afmoe": _afmoe,
    "smallthinker": _smallthinker,
    "granitehybrid": _granitehybrid,
    "gemma4": _gemma4,
}


def _rope_factors(s: Shape) -> np.ndarray:
    """Divisors of the rotation's speed: full attention in gemma4 turns only a quarter of its channels."""
    factors = np.full(s.head_dim // 2, 1e30, np.float32)
    factors[: s.head_dim // 8] = 1
    return factors


def _tensor(w: gguf.GGUFWriter, s: Shape, weight: Weight) -> None:
    """One tensor in the form and under the name that llama.cpp expects."""
    name = weight.name if weight.name.endswith(".bias") else f"{weight.name}.weight"
    value = weight.value
    match weight.name.rpartition(".")[2]:
        case "output_norm" if s.architecture == "lfm2moe":
            name = "token_embd_norm.weight"
        case "ssm_a" | "ssm_d":
            name, value = weight.name, value[:, None]
        case "ssm_norm":
            value = value[None, :]
    if weight.kind == MATRIX:
        w.add_tensor(name, gguf.quants.quantize(value, QUANT), raw_dtype=QUANT)
    else:
        w.add_tensor(name, value)
