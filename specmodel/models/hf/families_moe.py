"""Rows of families with routed experts and attention in all layers; columns: `family.py`."""

from dataclasses import replace

from specmodel.models.hf.families_dense import QWEN, WINDOWED
from specmodel.models.hf.family import (
    BLOCKS,
    CHUNKED,
    COMPRESSED,
    FULL,
    INDEXED,
    MTP_KEYS,
    SLIDING,
    Family,
)

GROUP_KEYS = "topk_group topk_method "
STREAM_KEYS = "hc_eps hc_sinkhorn_iters "
MINIMAX_KEYS = """
    layernorm_full_attention_alpha layernorm_full_attention_beta layernorm_linear_attention_beta
    layernorm_mlp_alpha layernorm_mlp_beta postnorm shared_moe_mode
"""
_QWEN_MOE = replace(
    QWEN, experts="num_experts", expert_size="moe_intermediate_size", dense_layers="by step"
)
_QWEN3_MOE = replace(_QWEN_MOE, kv_heads=4)
ALL_ROUTED = Family(
    experts="num_local_experts", expert_size="intermediate_size", dense_size=None, kv_heads=8
)
_MIXTRAL = replace(ALL_ROUTED, has_windows=True)
_OLMOE = Family(experts="num_experts", expert_size="intermediate_size", dense_size=None)
_GRANITE_MOE = replace(ALL_ROUTED, kv_heads=None)
GRANITE_SHARED = replace(_GRANITE_MOE, shared_size="shared_intermediate_size")
_MINIMAX_M3 = Family(
    experts="num_local_experts",
    expert_size="intermediate_size",
    num_shared="n_shared_experts",
    shared_size="shared_intermediate_size",
    dense_size="dense_intermediate_size",
    dense_layers="leading",
    num_leading=0,
    head_dim=128,
    kinds=(FULL, BLOCKS),
    plan="blocks",
    own_rules="MiniMax-M3",
    harmless=MTP_KEYS + "img_token_compression_config",
)
DEEPSEEK = Family(
    experts="n_routed_experts",
    expert_size="moe_intermediate_size",
    num_shared="n_shared_experts",
    shared_size="moe_intermediate_size",
    dense_layers="leading",
    harmless=MTP_KEYS + GROUP_KEYS,
)
DEEPSEEK_V2 = replace(DEEPSEEK, attention="latent")
SPARSE = replace(
    DEEPSEEK,
    attention="sparse",
    kinds=INDEXED,
    harmless=DEEPSEEK.harmless + "index_share_for_mtp_iteration indexer_rope_interleave ",
)
_DEEPSEEK_V4 = replace(
    DEEPSEEK,
    dense_layers=None,
    dense_size=None,
    kinds=(SLIDING, *COMPRESSED),
    has_windows=True,
    plan="compress ratios",
    own_rules="DeepSeek-V4",
    harmless=DEEPSEEK.harmless
    + STREAM_KEYS
    + "compress_rope_theta first_k_dense_replace moe_layer_freq num_hash_layers "
    + "num_key_value_heads ",
)
_GLM4_MOE = replace(DEEPSEEK, kv_heads=8)
_MIMO_V2 = replace(
    DEEPSEEK,
    num_shared=None,
    shared_size=None,
    num_leading=1,
    has_windows=True,
    plan="MiMo",
    own_rules="MiMo",
    untold_mtp=3,
    has_windowed_mtp=True,
    harmless=DEEPSEEK.harmless + "attention_chunk_size",
)
_LONGCAT = Family(
    dense_size="ffn_hidden_size",
    attention="latent",
    own_rules="LongCat",
    untold_mtp=1,
    harmless=MTP_KEYS
    + GROUP_KEYS
    + "disable_quant_module mla_scale_kv_lora mla_scale_q_lora router_bias",
)
_INKLING = Family(
    own_rules="Inkling",
    plan="Inkling",
    kinds=(FULL, SLIDING, "hybrid", "hybrid_sliding"),
    has_windows=True,
    window_key="sliding_window_size",
    sliding_window=512,
    harmless=MTP_KEYS
    + """
    chain_hidden_post_norm inference_moe_w13_interleaved logits_mup_width_multiplier
    model_max_length mtp_hidden_states_first norm_after_topk rms_norm_eps_moe_gate
    shared_expert_sink shared_experts_size unpadded_vocab_size
    """,
)

ROUTED = {
    "afmoe": replace(
        DEEPSEEK,
        dense_layers="number",
        head_dim=128,
        has_output_gate=True,
        has_windows=True,
        sliding_window=1024,
        plan="interval",
        interval=4,
        interval_key="global_attn_every_n_layers",
        harmless=DEEPSEEK.harmless
        + "load_balance_coeff num_expert_groups num_limited_groups route_norm score_func"
        + " use_grouped_mm",
    ),
    "axk1": replace(DEEPSEEK_V2, num_leading=1),
    "cohere2_moe": replace(
        WINDOWED,
        plan="listed",
        sliding_window=4096,
        head_dim=128,
        ties_embeddings=True,
        experts="num_experts",
        expert_size="intermediate_size",
        num_shared="num_shared_experts",
        shared_size="intermediate_size",
        dense_size="prefix_dense_intermediate_size",
        dense_layers="leading",
        num_leading=0,
        harmless="""
        expert_selection_fn prefix_dense_sliding_window_pattern shared_expert_combination_strategy
        sliding_window_pattern
        """,
    ),
    "deepseek": DEEPSEEK,
    "deepseek_ref": _DEEPSEEK_V4,
    "deepseek_v2": DEEPSEEK_V2,
    "deepseek_v3": DEEPSEEK_V2,
    "deepseek_v32": SPARSE,
    "deepseek_v4": _DEEPSEEK_V4,
    "deepseek_v41": replace(
        _DEEPSEEK_V4,
        plan="shared entries",
        harmless=_DEEPSEEK_V4.harmless
        + """
        candidate_block_size candidate_source_layer_id candidate_topk_blocks dspark_markov_rank
        dspark_n_routed_experts dspark_noise_token_id dspark_num_experts_per_tok
        dspark_target_layer_ids engram_compressed_vocab_size engram_pad_token_id engram_vocab_size
        """,
    ),
    "dots1": replace(
        DEEPSEEK, num_leading=0, has_windows=True, sliding_window=4096, first_windowed=62
    ),
    "ernie4_5_moe": replace(
        DEEPSEEK,
        kv_heads=4,
        ties_embeddings=True,
        dense_layers="from start to end",
        harmless=MTP_KEYS + "moe_capacity moe_gate moe_norm_min moe_use_aux_free use_moe",
    ),
    "exaone_moe": replace(
        DEEPSEEK,
        num_leading=1,
        has_windows=True,
        sliding_window=4096,
        plan="interval",
        interval=4,
        interval_key="sliding_window_pattern",
    ),
    "flex_olmo": _OLMOE,
    "gemma4": replace(
        WINDOWED,
        ties_embeddings=True,
        interval=6,
        interval_key=None,
        sliding_window=512,
        own_rules="Gemma",
    ),
    "glm4_moe": _GLM4_MOE,
    "glm4_moe_lite": replace(DEEPSEEK_V2, num_leading=1),
    "glm4v_moe": _GLM4_MOE,
    "glm_moe_dsa": SPARSE,
    "gpt_oss": replace(_MIXTRAL, head_dim=64, sliding_window=128, plan="interval", interval=2),
    "granitemoe": _GRANITE_MOE,
    "granitemoe_swa": replace(GRANITE_SHARED, has_windows=True, plan="listed"),
    "granitemoeshared": GRANITE_SHARED,
    "hunyuan_v1_moe": Family(
        experts="num_experts",
        expert_size="moe_intermediate_size",
        num_shared="num_shared_expert",
        shared_size="intermediate_size",
        dense_size=None,
        harmless="moe_drop_tokens moe_random_routing_dropped_token use_mixed_mlp_moe",
    ),
    "hy_v3": replace(
        DEEPSEEK,
        kv_heads=8,
        head_dim=128,
        num_leading=1,
        harmless=DEEPSEEK.harmless
        + "enable_moe_fp32_combine moe_router_enable_expert_bias moe_router_use_sigmoid",
    ),
    "inkling": _INKLING,
    "inkling_model": _INKLING,
    "kimi_k2": DEEPSEEK_V2,
    "laguna": replace(
        _QWEN3_MOE,
        kv_heads=8,
        shared_size="shared_expert_intermediate_size",
        dense_layers="leading",
        num_leading=1,
        heads="listed",
        head_dim=128,
        sliding_window=512,
        window_switch=None,
        plan="listed",
        harmless="""
        moe_routed_scaling_factor moe_router_logit_softcapping num_attention_heads_per_layer
        """,
    ),
    "llama4": Family(
        experts="num_local_experts",
        expert_size="intermediate_size",
        shared_size="intermediate_size",
        dense_size="intermediate_size_mlp",
        dense_layers="interleaved",
        kv_heads=8,
        head_dim=128,
        kinds=(FULL, CHUNKED),
        plan="by rotary embedding",
        has_windows=True,
        window_key="attention_chunk_size",
        sliding_window=8192,
        interval=4,
        interval_key="no_rope_layer_interval",
    ),
    "longcat_flash": _LONGCAT,
    "longcat_flash_ngram": replace(_LONGCAT, untold_mtp=0),
    "mellum": replace(
        _QWEN3_MOE,
        dense_layers=None,
        head_dim=128,
        sliding_window=1024,
        window_switch=None,
        plan="listed",
        harmless=MTP_KEYS,
    ),
    "mimo_v2": _MIMO_V2,
    "mimo_v2_flash": _MIMO_V2,
    "minimax_m2": replace(
        ALL_ROUTED,
        head_dim=128,
        attention_types="attn_type_list",
        harmless=MTP_KEYS + MINIMAX_KEYS,
    ),
    "minimax_m3": _MINIMAX_M3,
    "minimax_m3_vl": _MINIMAX_M3,
    "mistral4": replace(DEEPSEEK_V2, num_leading=0),
    "mixtral": _MIXTRAL,
    "olmoe": _OLMOE,
    "phimoe": _MIXTRAL,
    "qwen2_moe": replace(_QWEN_MOE, shared_size="shared_expert_intermediate_size", kv_heads=16),
    "qwen3_moe": _QWEN3_MOE,
    "qwen3_vl_moe": replace(
        _QWEN3_MOE, kv_heads=16, has_windows=False, window_switch=None, sliding_window=None
    ),
    "solar_open": replace(DEEPSEEK, kv_heads=8, head_dim=128, num_leading=0),
    "step3p5": replace(
        DEEPSEEK,
        num_shared=None,
        shared_size="share_expert_dim",
        dense_layers="enumerated",
        kv_heads=8,
        head_dim=128,
        heads="of windows",
        has_windows=True,
        plan="listed",
        lists_mtp=True,
        has_windowed_mtp=True,
        harmless=DEEPSEEK.harmless
        + """
        moe_every_n_layer moe_router_activation moe_router_scaling_factor per_layer_config use_moe
        use_moe_router_bias
        """,
    ),
}
