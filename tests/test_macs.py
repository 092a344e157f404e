"""The published table of MACs per token comes back to the digit from the dimensions of its two models."""

import pytest

from lib import macs

GRANITE = {
    "model_type": "granitemoehybrid", "hidden_size": 1536, "num_attention_heads": 12, "num_key_value_heads": 4,
    "head_dim": 128, "mamba_n_heads": 48, "mamba_d_head": 64, "mamba_d_state": 128, "mamba_n_groups": 1,
    "num_local_experts": 64, "num_experts_per_tok": 6, "intermediate_size": 512, "shared_intermediate_size": 1024,
    "layer_types": ["mamba"] * 36 + ["attention"] * 4,
}  # fmt: skip
TRINITY = {
    "model_type": "afmoe", "hidden_size": 1024, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 128,
    "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 256, "num_shared_experts": 1,
    "intermediate_size": 3072, "sliding_window": 2048, "num_dense_layers": 0,
    "layer_types": ["sliding_attention"] * 42 + ["full_attention"] * 14,
}  # fmt: skip


def millions(config, ctx):
    found = macs.per_token(config, ctx)
    return [round(value / 1e6, 1) for value in (found.mixer, found.attention, found.feed_forward, found.total)]


def test_the_published_table():
    assert millions(GRANITE, 256) == [540.6, 28.3, 758.9, 1327.8]
    assert millions(GRANITE, 30720) == [540.6, 402.7, 758.9, 1702.1]
    assert millions(TRINITY, 256) == [0.0, 176.2, 403.7, 579.9]  # 176.161: published as 176.1, its total as 579.9
    assert millions(TRINITY, 30720) == [0.0, 1203.8, 403.7, 1607.5]


def test_the_architecture_has_its_first_layers_dense_and_counts_less():
    real = macs.per_token(TRINITY | {"num_dense_layers": 2}, 256)
    assert real.feed_forward == 54 * 7_208_960 + 2 * 3 * 1024 * 3072
    assert real.feed_forward != macs.per_token(TRINITY, 256).feed_forward


def test_a_nested_checkpoint_and_an_unknown_model():
    assert macs.per_token({"model_type": "x", "text_config": GRANITE}, 256) == macs.per_token(GRANITE, 256)
    with pytest.raises(macs.MacsError, match="no count of MACs for model_type 'gpt2'"):
        macs.per_token({"model_type": "gpt2"}, 256)
