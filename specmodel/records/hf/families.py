"""Families of models as their ``config.json`` names the parts of the shape: tables, no code."""

import re
from dataclasses import dataclass, replace

SUSPECT_KEY = re.compile(
    r"expert|moe|router|topk|top_k_|mlp_only|mlp_layer_types|sparse|first_k|lora_rank|mla|linear_"
    r"|mamba|ssm|nextn|mtp|quantiz|compress|attention_chunk|attn_type|no_rope|hybrid|per_layer"
    r"|text_config|ffn_config|qk_nope|v_head_dim|index_|shared_inter|^sliding_window$"
)
"""Keys that could change a shape; those a family does not list are refused."""

HARMLESS_KEYS = {
    "norm_topk_prob",
    "output_router_logits",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "input_jitter_noise",
    "expert_capacity",
}
"""Keys that change no shape, in any family."""

ALIASES = {
    "num_experts": ("num_local_experts", "n_routed_experts"),
    "num_local_experts": ("num_experts", "n_routed_experts"),
    "n_routed_experts": ("num_experts", "num_local_experts"),
    "num_experts_per_tok": ("experts_per_token", "num_experts_per_token"),
}
"""Other names of a key, which must agree with it."""

OTHER_KINDS = {
    "linear attention": (
        "qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text", "kimi_linear",
        "minimax", "minimax_m1", "minimax_text_01", "olmo_hybrid", "bailing_hybrid",
    ),
    "state-space layers": (
        "mamba", "mamba2", "falcon_mamba", "bamba", "jamba", "falcon_h1", "granitemoehybrid",
        "nemotron_h", "zamba", "zamba2",
    ),
}  # fmt: skip
"""Families with layers of another kind than attention, by what these are."""


@dataclass(frozen=True)
class Family:
    """How a family names the parts of its shape; None where it has no such part."""

    experts: str | None = None
    expert_size: str | None = None
    shared_size: str | None = None
    num_shared: str | None = None
    dense_size: str | None = "intermediate_size"
    dense_layers: str | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    has_latent: bool = False
    attention_types: str | None = None
    has_windows: bool = False
    window_key: str = "sliding_window"
    window_type: str = "sliding_attention"
    sliding_window: int | None = None
    layer_types: str | None = None
    window_switch: str | None = None
    ties_embeddings: bool = False
    is_gated: bool = True
    positions_offset: int | None = None
    harmless: tuple[str, ...] = ()


_MIXTRAL = Family(
    experts="num_local_experts",
    expert_size="intermediate_size",
    dense_size=None,
    kv_heads=8,
    has_windows=True,
)
_QWEN = Family(
    kv_heads=32, has_windows=True, sliding_window=4096, window_switch="use_sliding_window"
)
_QWEN_MOE = replace(
    _QWEN,
    experts="num_experts",
    expert_size="moe_intermediate_size",
    dense_layers="by step",
)
_DEEPSEEK = Family(
    experts="n_routed_experts",
    expert_size="moe_intermediate_size",
    shared_size="moe_intermediate_size",
    num_shared="n_shared_experts",
    dense_layers="leading",
    harmless=("topk_group", "topk_method", "num_nextn_predict_layers", "num_mtp_layers"),
)
_DEEPSEEK_V2 = replace(_DEEPSEEK, has_latent=True)
FAMILIES = {
    "llama": Family(),
    "mistral": Family(kv_heads=8, has_windows=True, sliding_window=4096),
    "qwen2": _QWEN,
    "qwen3": replace(_QWEN, head_dim=128),
    "opt": Family(dense_size="ffn_dim", ties_embeddings=True, is_gated=False, positions_offset=2),
    "mixtral": _MIXTRAL,
    "phimoe": _MIXTRAL,
    "olmoe": Family(experts="num_experts", expert_size="intermediate_size", dense_size=None),
    "qwen2_moe": replace(_QWEN_MOE, shared_size="shared_expert_intermediate_size", kv_heads=16),
    "qwen3_moe": replace(_QWEN_MOE, kv_heads=4),
    "deepseek": _DEEPSEEK,
    "deepseek_v2": _DEEPSEEK_V2,
    "deepseek_v3": _DEEPSEEK_V2,
    "kimi_k2": _DEEPSEEK_V2,
    "glm4_moe": replace(_DEEPSEEK, kv_heads=8),
    "minimax_m2": Family(
        experts="num_local_experts",
        expert_size="intermediate_size",
        dense_size=None,
        kv_heads=8,
        head_dim=128,
        attention_types="attn_type_list",
        harmless=(
            "layernorm_linear_attention_beta",
            "shared_moe_mode",
            "use_mtp",
            "num_mtp_modules",
            "mtp_transformer_layers",
        ),
    ),
    "gpt_oss": Family(
        experts="num_local_experts",
        expert_size="intermediate_size",
        dense_size=None,
        kv_heads=8,
        head_dim=64,
        has_windows=True,
        sliding_window=128,
        layer_types="alternating",
    ),
    "llama4": Family(
        experts="num_local_experts",
        expert_size="intermediate_size",
        shared_size="intermediate_size",
        dense_size="intermediate_size_mlp",
        dense_layers="interleaved",
        kv_heads=8,
        head_dim=128,
        has_windows=True,
        window_key="attention_chunk_size",
        window_type="chunked_attention",
        sliding_window=8192,
        layer_types="by rotary embedding",
    ),
}
