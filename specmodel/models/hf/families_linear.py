"""Rows of families with linear attention, state spaces or convolutions; columns: `family.py`."""

from dataclasses import replace

from specmodel.models.hf.families_moe import (
    ALL_ROUTED,
    DEEPSEEK,
    DEEPSEEK_V2,
    GRANITE_SHARED,
    GROUP_KEYS,
    MINIMAX_KEYS,
    SPARSE,
    STREAM_KEYS,
)
from specmodel.models.hf.family import FULL, INDEXED, LINEAR, MTP_KEYS, Family

_STATE_KEYS = """
    mamba_chunk_size mamba_conv_bias mamba_d_conv mamba_d_head mamba_d_state mamba_expand
    mamba_n_groups mamba_n_heads mamba_proj_bias time_step_floor time_step_limit time_step_max
    time_step_min time_step_rank
"""
"""Models without state spaces have keys of their sizes as well."""
_CONVOLUTION_KEYS = """
    block_dim block_mlp_init_scale block_norm_eps block_out_init_scale block_use_swiglu
    block_use_xavier_init conv_bias conv_use_xavier_init num_heads use_pos_enc
"""
_GATED_DELTA = Family(
    kv_heads=4,
    head_dim=256,
    has_output_gate=True,
    kinds=(FULL, LINEAR),
    plan="interval",
    interval=4,
    interval_key="full_attention_interval",
    harmless=MTP_KEYS + "output_gate_type",
)
_GATED_DELTA_MOE = replace(
    _GATED_DELTA,
    kv_heads=2,
    experts="num_experts",
    expert_size="moe_intermediate_size",
    shared_size="shared_expert_intermediate_size",
    dense_layers="by step",
)
_MINIMAX = replace(
    ALL_ROUTED,
    linear="lightning",
    kinds=(FULL, LINEAR),
    plan="by type",
    harmless=MINIMAX_KEYS
    + """
    block_size full_attn_alpha_factor full_attn_beta_factor layernorm_linear_attention_alpha
    linear_attn_alpha_factor linear_attn_beta_factor mlp_alpha_factor mlp_beta_factor
    """,
)
_KIMI_LINEAR = replace(
    DEEPSEEK_V2,
    num_leading=0,
    has_query_latent=False,
    linear="kimi delta",
    kinds=(FULL, LINEAR),
    plan="lists",
    first_layer=1,
    latent_size="routed_expert_hidden_size",
    has_residuals=True,
    harmless=DEEPSEEK.harmless
    + """
    activation_situ_linear_beta latent_moe_use_norm mla_use_nope moe_renormalize
    moe_router_activation_func num_expert_group use_grouped_topk
    """,
)
_LFM2 = Family(
    kv_heads=8,
    ties_embeddings=True,
    linear="short convolution",
    kinds=(FULL, LINEAR, "conv", "short_conv"),
    plan="convolutions",
    own_rules="LFM2",
    harmless=_CONVOLUTION_KEYS,
)

RECURRENT = {
    "bailing_hybrid": replace(
        _KIMI_LINEAR,
        num_leading=2,
        shared_size="moe_shared_expert_intermediate_size",
        linear="ling delta",
        plan="groups",
        harmless=_KIMI_LINEAR.harmless
        + """
        kda_lower_bound kda_safe_gate moe_router_enable_expert_bias mtp_loss_scaling_factor
        router_dtype router_type use_mla_nope
        """,
    ),
    "bamba": Family(
        kv_heads=8,
        linear="mamba",
        kinds=(FULL, LINEAR, "attention", "mamba"),
        plan="by number",
        harmless=_STATE_KEYS,
    ),
    "falcon_h1": Family(
        kv_heads=8,
        linear="falcon",
        kinds=(FULL, LINEAR),
        plan="side by side",
        own_rules="Falcon-H1",
        harmless=_STATE_KEYS
        + """
        attention_in_multiplier attention_out_multiplier key_multiplier lm_head_multiplier
        mamba_norm_before_gate mamba_rms_norm mlp_multipliers projectors_bias ssm_in_multiplier
        ssm_multipliers ssm_out_multiplier
        """,
    ),
    "glm5_next": replace(
        SPARSE,
        linear="kimi delta",
        kinds=(*INDEXED, LINEAR),
        plan="lists",
        has_residuals=True,
        harmless=SPARSE.harmless
        + STREAM_KEYS
        + "index_kpool_always_select_tail linear_lower_bound mla_use_nope",
    ),
    "granitemoehybrid": replace(
        GRANITE_SHARED,
        may_lack_experts=True,
        dense_size="shared_intermediate_size",
        linear="mamba",
        kinds=(FULL, LINEAR, "attention", "mamba"),
        plan="by name",
        harmless=_STATE_KEYS,
    ),
    "kimi_linear": _KIMI_LINEAR,
    "lfm2": _LFM2,
    "lfm2_moe": replace(
        _LFM2,
        own_rules=None,
        experts="num_experts",
        expert_size="moe_intermediate_size",
        dense_layers="number",
        harmless=_CONVOLUTION_KEYS + "use_expert_bias",
    ),
    "minimax": _MINIMAX,
    "minimax_m1": _MINIMAX,
    "minimax_text_01": _MINIMAX,
    "nemotron_h": Family(
        kv_heads=8,
        head_dim=128,
        experts="n_routed_experts",
        expert_size="moe_intermediate_size",
        latent_size="moe_latent_size",
        num_shared="n_shared_experts",
        shared_size="moe_shared_expert_intermediate_size",
        is_gated=False,
        linear="nemotron",
        plan="block types",
        own_rules="Nemotron-H",
        harmless=GROUP_KEYS
        + MTP_KEYS
        + _STATE_KEYS
        + """
        chunk_size expand mamba_hidden_act moe_shared_expert_overlap mtp_hybrid_override_pattern
        mtp_layers_block_type use_conv_bias use_mamba_kernels
        """,
    ),
    "qwen3_5": _GATED_DELTA,
    "qwen3_5_moe": _GATED_DELTA_MOE,
    "qwen3_next": replace(_GATED_DELTA_MOE, untold_mtp=1),
}
