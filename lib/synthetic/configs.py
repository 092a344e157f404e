"""What the two models of the published table of MACs have in their config.json, as far as that table needs it.

The published count takes every layer of trinity-nano as a mixture of experts (num_dense_layers 0 here); in the real
model the first layers are dense.
"""

CONFIGS = {
    "granite4-h-tiny": {
        "model_type": "granitemoehybrid", "hidden_size": 1536, "num_attention_heads": 12, "num_key_value_heads": 4,
        "head_dim": 128, "mamba_n_heads": 48, "mamba_d_head": 64, "mamba_d_state": 128, "mamba_n_groups": 1,
        "num_local_experts": 64, "num_experts_per_tok": 6, "intermediate_size": 512, "shared_intermediate_size": 1024,
        "layer_types": ["mamba"] * 36 + ["attention"] * 4,
    },
    "trinity-nano": {
        "model_type": "afmoe", "hidden_size": 1024, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 128,
        "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 256, "num_shared_experts": 1,
        "intermediate_size": 3072, "sliding_window": 2048, "num_dense_layers": 0,
        "layer_types": ["sliding_attention"] * 42 + ["full_attention"] * 14,
    },
}  # fmt: skip
