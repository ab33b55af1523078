"""Keys of a ``config.json`` that mean the same, nothing, or too much, and families not read."""

import re

SUSPECT_KEY = re.compile(
    r"expert|moe|router|topk|top_k_|mlp_only|mlp_layer_types|sparse|first_k|lora_rank|mla|linear_"
    r"|mamba|ssm|nextn|mtp|quantiz|compress|attention_chunk|attn_type|no_rope|hybrid|per_layer"
    r"|text_config|ffn_config|qk_nope|v_head_dim|index_|shared_inter|^sliding_window$|output_gate"
    r"|indexer|kv_shared|kv_source|k_eq_v|block_configs|block_type|layer_period|layer_offset"
    r"|num_dense_layers|attention_other|hc_mult|use_cla|global_head_dim|attn_res|ngram|full_attention_interval"
)
"""Keys that could change a shape; those a family does not list are refused."""

HARMLESS_KEYS = {
    "norm_topk_prob",
    "output_router_logits",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "input_jitter_noise",
    "expert_capacity",
    "moe_router_dtype",
    "router_scaling_factor",
    "for_llm_compressor",
}
"""Keys that change no shape, in any family."""

_SAME = (
    ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
    (
        "num_experts_per_tok",
        "num_experts_per_token",
        "experts_per_token",
        "moe_topk",
        "moe_top_k",
        "moe_k",
        "top_k_experts",
    ),
    ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert"),
    ("moe_intermediate_size", "expert_ffn_hidden_size", "expert_hidden_dim"),
    ("sliding_window_pattern", "_sliding_window_pattern"),
    ("num_key_value_heads", "num_attention_groups"),
    ("head_dim", "attention_head_dim"),
    ("mamba_ssm_dtype", "mamba_ssm_cache_dtype"),
    ("share_expert_dim", "share_expert_dims"),
    ("intermediate_size", "block_ff_dim"),
    ("tie_word_embeddings", "tie_embedding"),
    ("sconv_kernel_size", "conv_kernel_size"),
    ("sparse_num_index_heads", "index_n_heads"),
    ("sparse_index_dim", "index_head_dim"),
    ("sparse_block_size", "index_block_size"),
    ("sparse_topk_blocks", "index_topk_blocks"),
)

ALIASES = {key: tuple(name for name in keys if name != key) for keys in _SAME for key in keys}
"""Other names of a key, which must agree with it."""

OTHER_KINDS = {
    "linear attention": ("bailing_moe_linear", "olmo_hybrid"),
    "state-space layers": (
        "mamba", "mamba2", "falcon_mamba", "jamba", "zamba", "zamba2", "nemotron_h_puzzle",
    ),
    "streams and low-rank blocks beside its layers (altup_num_inputs, laurel_rank)": ("gemma3n",),
    "short convolutions in its layers": ("inkling2",),
}  # fmt: skip
"""Families with layers that are not known here, by what these are and the key that they have."""

WRAPPERS = {
    "llama4": ("llama4_text",),
    "qwen3_vl": ("qwen3_vl_text",),
    "qwen3_vl_moe": ("qwen3_vl_moe_text",),
    "qwen3_5": ("qwen3_5_text",),
    "qwen3_5_moe": ("qwen3_5_moe_text",),
    "kimi_k25": ("kimi_k2", "deepseek_v3"),
    "kimi_k3": ("kimi_linear",),
    "glm5_next": ("glm5_next_text",),
    "deepseek_v41": ("deepseek_v41_text",),
    "bailing_moe_v3_vl": ("bailing_hybrid",),
    "mistral3": ("mistral", "ministral3", "mistral4", "deepseek_v3"),
    "kimi_vl": ("deepseek_v3",),
    "glm4v": ("glm4v_text",),
    "glm4v_moe": ("glm4v_moe_text",),
    "gemma3": ("gemma3_text",),
    "gemma4": ("gemma4_text",),
    "muse_glimmer": ("muse_glimmer_text",),
    "minimax_m3_vl": ("minimax_m3", "minimax_m3_text", "minimax_m3_vl_text"),
    "step3p7": ("step3p5",),
    "lfm2_vl": ("lfm2", "lfm2_moe"),
    "inkling_mm_model": ("inkling_text", "inkling_model"),
}
"""Models that see, and the families that the model in their `text_config` may have."""

FLAT = {"step3p7": "step3p5"}
"""Of these, what is also published as its language model alone, by the family of that."""
