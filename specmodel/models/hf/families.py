"""Families of models as their ``config.json`` names the parts of the shape: tables, no code."""

from dataclasses import dataclass, replace

FULL, SLIDING, CHUNKED, LINEAR = (
    "full_attention",
    "sliding_attention",
    "chunked_attention",
    "linear_attention",
)
INDEXED = ("indexed_attention", "deepseek_sparse_attention")
COMPRESSED = ("compressed_sparse_attention", "heavily_compressed_attention")
"""Names of kinds of layers in `layer_types`; those of sparse attention with an indexer; those with
compressed entries, of which the first selects."""

BLOCKS = "minimax_m3_sparse"
"""Name of block-sparse attention among them, as transformers 5.23 writes it."""

MTP_COUNTS = (
    "num_mtp_modules",
    "num_nextn_predict_layers",
    "mtp_num_hidden_layers",
    "num_mtp_layers",
)
"""Names of the number of modules for multi-token prediction, of which the first that is given is
meant: MiniMax-M3 has seven modules of one layer each, and says both."""


@dataclass(frozen=True)
class Family:
    """How a family names the parts of its shape; None where it has no such part.

    Feed-forward blocks: keys of the number of experts, of an expert's width, of the width that
    experts read and write where it is not the model's, of how many are shared (one if None), of a
    shared one's width, of a dense block's width; the rule for which layers are dense, how many lead
    where no key says it, whether blocks have three matrices, and whether models of 0 experts are
    dense.

    Attention: its form; whether queries have a latent, in latent attention, unless a key says
    otherwise; heads of keys and their width where no key says them; whether a gate is as wide as
    the queries; the rule by which layers differ in their heads; how linear attention is read.

    Kinds of layers: their names in `layer_types`, the usual one first; the rule that gives them
    where they are not listed, every how many layers the first kind comes, or from which number on
    lists of layers count, and the key that says so; key, default and switch of a window, and the
    layer from which on it is used; whether lists of layers may go on with those for several
    tokens; how many modules for these checkpoints have where no key tells, and whether their layer
    has a window and a dense block.

    Rules of its own for mixers, blocks and the rest, by the name of the family that has them.

    Last, what is around the layers, whether residuals may be mixed, and keys that change no shape
    here.
    """

    experts: str | None = None
    expert_size: str | None = None
    latent_size: str | None = None
    num_shared: str | None = None
    shared_size: str | None = None
    dense_size: str | None = "intermediate_size"
    dense_layers: str | None = None
    num_leading: int | None = None
    is_gated: bool = True
    may_lack_experts: bool = False
    attention: str = "grouped"
    has_query_latent: bool = True
    kv_heads: int | None = None
    head_dim: int | None = None
    has_output_gate: bool = False
    heads: str | None = None
    linear: str = "gated delta net"
    attention_types: str | None = None
    kinds: tuple[str, ...] = (FULL, SLIDING)
    plan: str | None = None
    interval: int | None = None
    interval_key: str | None = None
    has_windows: bool = False
    window_key: str = "sliding_window"
    sliding_window: int | None = None
    window_switch: str | None = None
    first_windowed: int | None = None
    lists_mtp: bool = False
    untold_mtp: int = 0
    has_windowed_mtp: bool = False
    own_rules: str | None = None
    ties_embeddings: bool = False
    positions_offset: int | None = None
    has_residuals: bool = False
    harmless: tuple[str, ...] = ()


_MTP = (
    *MTP_COUNTS,
    "mtp_transformer_layers",
    "mtp_use_dedicated_embeddings",
    "mtp_layer_types",
    "mtp_mlp_layer_types",
    "use_mtp",
)
_GROUPED_CHOICE = ("topk_group", "topk_method")
_WINDOWED = Family(has_windows=True, plan="interval", interval_key="sliding_window_pattern")
_MIXTRAL = Family(
    experts="num_local_experts",
    expert_size="intermediate_size",
    dense_size=None,
    kv_heads=8,
    has_windows=True,
)
_QWEN = Family(
    kv_heads=32,
    has_windows=True,
    sliding_window=4096,
    window_switch="use_sliding_window",
    first_windowed=28,
)
_QWEN3 = replace(_QWEN, head_dim=128)
_QWEN_MOE = replace(
    _QWEN,
    experts="num_experts",
    expert_size="moe_intermediate_size",
    dense_layers="by step",
)
_QWEN3_MOE = replace(_QWEN_MOE, kv_heads=4)
_GATED_DELTA = Family(
    kv_heads=4,
    head_dim=256,
    has_output_gate=True,
    kinds=(FULL, LINEAR),
    plan="interval",
    interval=4,
    interval_key="full_attention_interval",
    harmless=(*_MTP, "output_gate_type"),
)
_GATED_DELTA_MOE = replace(
    _GATED_DELTA,
    kv_heads=2,
    experts="num_experts",
    expert_size="moe_intermediate_size",
    shared_size="shared_expert_intermediate_size",
    dense_layers="by step",
)
_DEEPSEEK = Family(
    experts="n_routed_experts",
    expert_size="moe_intermediate_size",
    shared_size="moe_intermediate_size",
    num_shared="n_shared_experts",
    dense_layers="leading",
    harmless=(*_GROUPED_CHOICE, *_MTP),
)
_DEEPSEEK_V2 = replace(_DEEPSEEK, attention="latent")
_SPARSE = replace(
    _DEEPSEEK,
    attention="sparse",
    kinds=INDEXED,
    harmless=(*_DEEPSEEK.harmless, "index_share_for_mtp_iteration", "indexer_rope_interleave"),
)
_KIMI_LINEAR = replace(
    _DEEPSEEK_V2,
    num_leading=0,
    has_query_latent=False,
    linear="kimi delta",
    kinds=(FULL, LINEAR),
    plan="lists",
    interval=1,
    latent_size="routed_expert_hidden_size",
    has_residuals=True,
    harmless=(
        *_DEEPSEEK.harmless,
        "activation_situ_linear_beta",
        "latent_moe_use_norm",
        "mla_use_nope",
        "moe_renormalize",
        "moe_router_activation_func",
        "num_expert_group",
        "use_grouped_topk",
    ),
)
_LING = replace(
    _KIMI_LINEAR,
    num_leading=2,
    shared_size="moe_shared_expert_intermediate_size",
    linear="ling delta",
    plan="groups",
    interval=None,
    harmless=(
        *_KIMI_LINEAR.harmless,
        "moe_router_enable_expert_bias",
        "router_dtype",
        "router_type",
        "use_mla_nope",
        "mtp_loss_scaling_factor",
        "kda_lower_bound",
        "kda_safe_gate",
    ),
)
_HYPER = ("hc_eps", "hc_sinkhorn_iters")
_DEEPSEEK_V4 = replace(
    _DEEPSEEK,
    dense_layers=None,
    dense_size=None,
    kinds=(SLIDING, *COMPRESSED),
    has_windows=True,
    plan="compress ratios",
    own_rules="DeepSeek-V4",
    harmless=(
        *_DEEPSEEK.harmless,
        "compress_rope_theta",
        *_HYPER,
        "num_hash_layers",
        "num_key_value_heads",
        "first_k_dense_replace",
        "moe_layer_freq",
        "intermediate_size",
    ),
)
_STEP_ROUTING = (
    "moe_router_activation",
    "moe_router_scaling_factor",
    "use_moe_router_bias",
    "moe_every_n_layer",
    "use_moe",
    "per_layer_config",
)
_GLM4 = Family(kv_heads=2, head_dim=128)
_GLM4_MOE = replace(_DEEPSEEK, kv_heads=8)
_OLMOE = Family(experts="num_experts", expert_size="intermediate_size", dense_size=None)
_GRANITE_MOE = replace(_MIXTRAL, kv_heads=None, has_windows=False)
_GRANITE_SHARED = replace(_GRANITE_MOE, shared_size="shared_intermediate_size")
_MAMBA = (
    "time_step_floor",
    "time_step_limit",
    "time_step_max",
    "time_step_min",
    "time_step_rank",
    "mamba_chunk_size",
    "mamba_conv_bias",
    "mamba_d_conv",
    "mamba_d_head",
    "mamba_d_state",
    "mamba_expand",
    "mamba_n_groups",
    "mamba_n_heads",
    "mamba_proj_bias",
)
"""Keys of state spaces, which models without such layers have as well."""
_GEMMA = Family(ties_embeddings=True, head_dim=256)
_MIMO_V2 = replace(
    _DEEPSEEK,
    num_shared=None,
    shared_size=None,
    num_leading=1,
    has_windows=True,
    plan="MiMo",
    own_rules="MiMo",
    untold_mtp=3,
    has_windowed_mtp=True,
    harmless=(*_DEEPSEEK.harmless, "attention_chunk_size"),
)
_LONGCAT = Family(
    dense_size="ffn_hidden_size",
    attention="latent",
    own_rules="LongCat",
    untold_mtp=1,
    harmless=(
        *_GROUPED_CHOICE,
        *_MTP,
        "mla_scale_q_lora",
        "mla_scale_kv_lora",
        "router_bias",
        "disable_quant_module",
    ),
)
_INKLING = Family(
    own_rules="Inkling",
    plan="Inkling",
    kinds=(FULL, SLIDING, "hybrid", "hybrid_sliding"),
    has_windows=True,
    window_key="sliding_window_size",
    sliding_window=512,
    harmless=(
        *_MTP,
        "inference_moe_w13_interleaved",
        "mtp_hidden_states_first",
        "norm_after_topk",
        "rms_norm_eps_moe_gate",
        "shared_expert_sink",
        "shared_experts_size",
        "chain_hidden_post_norm",
        "logits_mup_width_multiplier",
        "model_max_length",
        "unpadded_vocab_size",
    ),
)
_CONVOLUTIONS = (
    "block_dim",
    "block_mlp_init_scale",
    "block_norm_eps",
    "block_out_init_scale",
    "block_use_swiglu",
    "block_use_xavier_init",
    "conv_bias",
    "conv_use_xavier_init",
    "num_heads",
    "use_pos_enc",
)
_LFM2 = Family(
    kv_heads=8,
    ties_embeddings=True,
    linear="short convolution",
    kinds=(FULL, LINEAR, "conv", "short_conv"),
    plan="convolutions",
    own_rules="LFM2",
    harmless=_CONVOLUTIONS,
)

_MINIMAX_SCALES = (
    "layernorm_full_attention_alpha",
    "layernorm_full_attention_beta",
    "layernorm_linear_attention_beta",
    "layernorm_mlp_alpha",
    "layernorm_mlp_beta",
    "postnorm",
    "shared_moe_mode",
)
_MINIMAX = Family(
    experts="num_local_experts",
    expert_size="intermediate_size",
    dense_size=None,
    kv_heads=8,
    linear="lightning",
    kinds=(FULL, LINEAR),
    plan="by type",
    harmless=(
        *_MINIMAX_SCALES,
        "layernorm_linear_attention_alpha",
        "block_size",
        "full_attn_alpha_factor",
        "full_attn_beta_factor",
        "linear_attn_alpha_factor",
        "linear_attn_beta_factor",
        "mlp_alpha_factor",
        "mlp_beta_factor",
    ),
)
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
    own_rules="blocks",
    harmless=(*_MTP, "img_token_compression_config"),
)

FAMILIES = {
    "llama": Family(),
    "mistral": Family(kv_heads=8, has_windows=True, sliding_window=4096),
    "ministral3": Family(),
    "qwen2": _QWEN,
    "qwen3": _QWEN3,
    "qwen3_vl": Family(kv_heads=32, head_dim=128),
    "mimo": replace(_QWEN, harmless=_MTP),
    "granite": Family(),
    "olmo2": Family(),
    "olmo3": replace(_WINDOWED, interval=4, interval_key=None, sliding_window=4096),
    "seed_oss": Family(kv_heads=8, head_dim=128),
    "arcee": Family(is_gated=False),
    "smollm3": Family(
        kv_heads=4,
        ties_embeddings=True,
        window_switch="use_sliding_window",
        harmless=("no_rope_layers", "no_rope_layer_interval"),
    ),
    "glm": _GLM4,
    "glm4": _GLM4,
    "glm4v": _GLM4,
    "hunyuan_v1_dense": Family(),
    "ernie4_5": Family(kv_heads=2, head_dim=128, ties_embeddings=True),
    "exaone4": replace(_WINDOWED, interval=4, sliding_window=4096),
    "cohere2": replace(_WINDOWED, interval=4, sliding_window=4096, ties_embeddings=True),
    "gemma": _GEMMA,
    "gemma2": replace(
        _GEMMA, has_windows=True, plan="interval", interval=2, kv_heads=4, sliding_window=4096
    ),
    "gemma3": replace(
        _WINDOWED,
        head_dim=256,
        ties_embeddings=True,
        interval=6,
        kv_heads=4,
        sliding_window=4096,
    ),
    "gemma4": replace(
        _WINDOWED,
        ties_embeddings=True,
        interval=6,
        interval_key=None,
        sliding_window=512,
        own_rules="Gemma",
    ),
    "mimo_v2": _MIMO_V2,
    "mimo_v2_flash": _MIMO_V2,
    "muse_glimmer": replace(
        _WINDOWED, kv_heads=2, head_dim=128, has_output_gate=True, interval=4, interval_key=None
    ),
    "longcat_flash": _LONGCAT,
    "longcat_flash_ngram": replace(_LONGCAT, untold_mtp=0),
    "inkling": _INKLING,
    "inkling_model": _INKLING,
    "lfm2": _LFM2,
    "lfm2_moe": replace(
        _LFM2,
        own_rules=None,
        experts="num_experts",
        expert_size="moe_intermediate_size",
        dense_layers="number",
        harmless=(*_CONVOLUTIONS, "use_expert_bias"),
    ),
    "nemotron-nas": Family(dense_size=None, own_rules="search", harmless=("block_configs",)),
    "opt": Family(
        dense_size="ffn_dim",
        ties_embeddings=True,
        is_gated=False,
        positions_offset=2,
        harmless=("_remove_final_layer_norm",),
    ),
    "mixtral": _MIXTRAL,
    "phimoe": _MIXTRAL,
    "granitemoe": _GRANITE_MOE,
    "granitemoeshared": _GRANITE_SHARED,
    "granitemoehybrid": replace(
        _GRANITE_SHARED,
        may_lack_experts=True,
        dense_size="shared_intermediate_size",
        linear="mamba",
        kinds=(FULL, LINEAR, "attention", "mamba"),
        plan="by name",
        harmless=_MAMBA,
    ),
    "bamba": Family(
        kv_heads=8,
        linear="mamba",
        kinds=(FULL, LINEAR, "attention", "mamba"),
        plan="by number",
        harmless=_MAMBA,
    ),
    "falcon_h1": Family(
        kv_heads=8,
        linear="falcon",
        kinds=(FULL, LINEAR),
        plan="side by side",
        harmless=(
            *_MAMBA,
            "attention_in_multiplier",
            "attention_out_multiplier",
            "key_multiplier",
            "lm_head_multiplier",
            "mlp_multipliers",
            "projectors_bias",
            "mamba_norm_before_gate",
            "mamba_rms_norm",
            "ssm_multipliers",
            "ssm_in_multiplier",
            "ssm_out_multiplier",
        ),
    ),
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
        harmless=(
            *_GROUPED_CHOICE,
            *_MTP,
            *_MAMBA,
            "mtp_layers_block_type",
            "mtp_hybrid_override_pattern",
            "moe_shared_expert_overlap",
            "mamba_hidden_act",
            "use_mamba_kernels",
            "chunk_size",
            "expand",
            "use_conv_bias",
        ),
    ),
    "granitemoe_swa": replace(_GRANITE_SHARED, has_windows=True, plan="listed"),
    "olmoe": _OLMOE,
    "flex_olmo": _OLMOE,
    "qwen2_moe": replace(_QWEN_MOE, shared_size="shared_expert_intermediate_size", kv_heads=16),
    "qwen3_moe": _QWEN3_MOE,
    "qwen3_vl_moe": replace(
        _QWEN3_MOE, kv_heads=16, has_windows=False, window_switch=None, sliding_window=None
    ),
    "qwen3_next": replace(_GATED_DELTA_MOE, untold_mtp=1),
    "qwen3_5": _GATED_DELTA,
    "qwen3_5_moe": _GATED_DELTA_MOE,
    "deepseek": _DEEPSEEK,
    "deepseek_v2": _DEEPSEEK_V2,
    "deepseek_v3": _DEEPSEEK_V2,
    "deepseek_v32": _SPARSE,
    "glm_moe_dsa": _SPARSE,
    "deepseek_v4": _DEEPSEEK_V4,
    "deepseek_ref": _DEEPSEEK_V4,
    "deepseek_v41": replace(
        _DEEPSEEK_V4,
        plan="shared entries",
        harmless=(
            *_DEEPSEEK_V4.harmless,
            "candidate_topk_blocks",
            "candidate_block_size",
            "candidate_source_layer_id",
            "dspark_markov_rank",
            "dspark_noise_token_id",
            "dspark_target_layer_ids",
            "engram_vocab_size",
            "engram_pad_token_id",
            "engram_compressed_vocab_size",
            "dspark_n_routed_experts",
            "dspark_num_experts_per_tok",
        ),
    ),
    "glm5_next": replace(
        _SPARSE,
        linear="kimi delta",
        kinds=(*INDEXED, LINEAR),
        plan="lists",
        interval=0,
        has_residuals=True,
        harmless=(
            *_SPARSE.harmless,
            *_HYPER,
            "mla_use_nope",
            "index_kpool_always_select_tail",
            "linear_lower_bound",
        ),
    ),
    "kimi_k2": _DEEPSEEK_V2,
    "kimi_linear": _KIMI_LINEAR,
    "bailing_hybrid": _LING,
    "mistral4": replace(_DEEPSEEK_V2, num_leading=0),
    "glm4_moe_lite": replace(_DEEPSEEK_V2, num_leading=1),
    "axk1": replace(_DEEPSEEK_V2, num_leading=1),
    "glm4_moe": _GLM4_MOE,
    "glm4v_moe": _GLM4_MOE,
    "solar_open": replace(_DEEPSEEK, kv_heads=8, head_dim=128, num_leading=0),
    "dots1": replace(
        _DEEPSEEK, num_leading=0, has_windows=True, sliding_window=4096, first_windowed=62
    ),
    "hy_v3": replace(
        _DEEPSEEK,
        kv_heads=8,
        head_dim=128,
        num_leading=1,
        harmless=(
            *_DEEPSEEK.harmless,
            "enable_moe_fp32_combine",
            "moe_router_enable_expert_bias",
            "moe_router_use_sigmoid",
        ),
    ),
    "exaone_moe": replace(
        _DEEPSEEK,
        num_leading=1,
        has_windows=True,
        sliding_window=4096,
        plan="interval",
        interval=4,
        interval_key="sliding_window_pattern",
    ),
    "afmoe": replace(
        _DEEPSEEK,
        dense_layers="number",
        harmless=(
            *_DEEPSEEK.harmless,
            "num_expert_groups",
            "load_balance_coeff",
            "num_limited_groups",
            "route_norm",
            "score_func",
            "use_grouped_mm",
        ),
        head_dim=128,
        has_output_gate=True,
        has_windows=True,
        sliding_window=1024,
        plan="interval",
        interval=4,
        interval_key="global_attn_every_n_layers",
    ),
    "step3p5": replace(
        _DEEPSEEK,
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
        harmless=(*_DEEPSEEK.harmless, *_STEP_ROUTING),
    ),
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
        harmless=(
            "moe_routed_scaling_factor",
            "moe_router_logit_softcapping",
            "num_attention_heads_per_layer",
        ),
    ),
    "mellum": replace(
        _QWEN3_MOE,
        dense_layers=None,
        head_dim=128,
        sliding_window=1024,
        window_switch=None,
        plan="listed",
        harmless=_MTP,
    ),
    "cohere2_moe": replace(
        _WINDOWED,
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
        harmless=(
            "shared_expert_combination_strategy",
            "expert_selection_fn",
            "sliding_window_pattern",
            "prefix_dense_sliding_window_pattern",
        ),
    ),
    "hunyuan_v1_moe": Family(
        experts="num_experts",
        expert_size="moe_intermediate_size",
        num_shared="num_shared_expert",
        shared_size="intermediate_size",
        dense_size=None,
        harmless=("use_mixed_mlp_moe", "moe_drop_tokens", "moe_random_routing_dropped_token"),
    ),
    "ernie4_5_moe": replace(
        _DEEPSEEK,
        kv_heads=4,
        ties_embeddings=True,
        dense_layers="from start to end",
        harmless=(*_MTP, "use_moe", "moe_capacity", "moe_gate", "moe_use_aux_free", "moe_norm_min"),
    ),
    "minimax_m2": Family(
        experts="num_local_experts",
        expert_size="intermediate_size",
        dense_size=None,
        kv_heads=8,
        head_dim=128,
        attention_types="attn_type_list",
        harmless=(*_MINIMAX_SCALES, *_MTP),
    ),
    "minimax": _MINIMAX,
    "minimax_m1": _MINIMAX,
    "minimax_text_01": _MINIMAX,
    "minimax_m3": _MINIMAX_M3,
    "minimax_m3_vl": _MINIMAX_M3,
    "gpt_oss": Family(
        experts="num_local_experts",
        expert_size="intermediate_size",
        dense_size=None,
        kv_heads=8,
        head_dim=64,
        has_windows=True,
        sliding_window=128,
        plan="interval",
        interval=2,
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
}
