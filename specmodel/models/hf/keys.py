"""Keys of a ``config.json`` that change no shape, and keys with several names."""

_HARMLESS = {
    "bookkeeping": """
        _attn_implementation _attn_implementation_autoset _commit_hash _experts_implementation
        _name_or_path architectures attn_implementation auto_map finetuning_task for_llm_compressor
        gradient_checkpointing id2label ignore_index is_decoder label2id model_type name_or_path
        num_labels output_attentions output_hidden_states output_router_logits prefix problem_type
        return_dict task_specific_params tf_legacy_loss tokenizer_class torchscript
        transformers_version use_bfloat16 use_cache
    """,
    "tokens": """
        begin_suppress_tokens bos_token_id decoder_start_token_id eod_token_id eos_token_id
        forced_bos_token_id forced_eos_token_id pad_token_id sep_token_id suppress_tokens
    """,
    "generation": """
        bad_words_ids cache_implementation diversity_penalty do_sample early_stopping
        encoder_no_repeat_ngram_size encoder_repetition_penalty epsilon_cutoff eta_cutoff
        exponential_decay_length_penalty length_penalty max_length max_new_tokens min_length
        min_new_tokens min_p no_repeat_ngram_size num_beam_groups num_beams num_logits_to_keep
        num_return_sequences remove_invalid_values repetition_penalty return_dict_in_generate
        temperature top_k top_p typical_p
    """,
    "positions": """
        attn_temperature_tuning floor_scale initial_context_length layer_rope_theta
        log_scaling_alpha log_scaling_n_floor max_position_embeddings
        original_max_position_embeddings partial_rotary_factor position_embedding_type
        rope_interleave rope_parameters rope_scaling rope_theta rotary_dim swa_rope_theta
    """,
    "activations, norms, biases and scales": """
        activation_function activation_situ_beta add_swa_attention_sink_bias attention_bias
        attention_multiplier attention_out_bias attention_value_scale attn_logit_softcapping
        attn_scale clip_qkv do_layer_norm_before embedding_multiplier enable_bias
        final_logit_softcapping hidden_act hidden_activation layer_norm_elementwise_affine
        layer_norm_eps layer_norm_epsilon layernorm_epsilon lm_head_bias logit_scale logits_scaling
        mlp_bias mlp_hidden_act mup_enabled norm_eps normalization_function output_multiplier
        post_norm_eps qk_norm_type qk_scale_factor qkv_bias query_pre_attn_scalar residual_in_fp32
        residual_multiplier rms_norm_eps swiglu_alpha swiglu_limit swiglu_limits
        swiglu_limits_shared use_bias use_gemma_norm use_qk_norm
    """,
    "routing": """
        expert_capacity input_jitter_noise moe_router_dtype n_group norm_topk_prob route_scale
        routed_scaling_factor router_aux_loss_coef router_jitter_noise router_scaling_factor
        scoring_func use_routing_bias
    """,
    "training": """
        attention_dropout aux_loss_alpha dropout ep_size hidden_dropout init_method init_std
        initializer_range layerdrop pretraining_tp rescale_prenorm_residual residual_dropout seq_aux
        z_loss_coefficient
    """,
    "parts that see and hear": """
        audio_token_id boa_token_id boi_token_id boi_token_index eoa_token_id eoa_token_index
        eoi_token_id eoi_token_index image_end_token_id image_grid_pinpoints image_placeholder
        image_seq_length image_start_token_id image_token_id image_token_index
        media_placeholder_token_id mm_tokens_per_image multimodal_projector_bias out_hidden_size
        process_image_mode projector_hidden_act projector_hidden_size use_bidirectional_attention
        use_unified_vision_chunk video_end_token_id video_placeholder video_start_token_id
        video_token_id video_token_index vision_end_token_id vision_feature_layer
        vision_feature_select_strategy vision_soft_tokens_per_image vision_start_token_id
    """,
}
"""Keys that change no shape, whatever the family, by what they are about."""

HARMLESS_KEYS = frozenset(" ".join(_HARMLESS.values()).split())

HEAD_KEYS = """
    aux_hidden_state_layer_ids block_size confidence_head_with_markov dflash_config draft_vocab_size
    dspark_bonus_anchor dspark_config eagle_aux_hidden_state_layer_ids eagle_config
    enable_confidence_head fc_norm has_no_defaults_at_init mask_token mask_token_id
    max_window_layers modal_type norm_before_fc norm_before_residual norm_output
    num_aux_hidden_states num_target_layers parallel_drafting pard_token
    ptd_token_id speculators_config speculators_model_type speculators_version
    swa_window_size target_hidden_size target_layer_ids target_model_type transformer_layer_config
    use_aux_hidden_state use_swa
"""
"""Keys of draft heads that change no shape, or are read before others are checked."""

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
"""Other names of each key; values under several names must agree."""
