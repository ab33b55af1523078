"""Keys of each family: those that say the same, and those refused in one line that names them."""

import re

from configs import CONFIGS, flat, read
from printed import refused
from rows import each_row
from shapes import without_fields

FULL, SLIDING, LINEAR = "full_attention", "sliding_attention", "linear_attention"


def plain(name):
    """A configuration without what rows change."""
    left_out = ("torch_dtype", "dtype", "quantization_config", "sliding_window", "layer_types")
    return {key: value for key, value in flat(name).items() if key not in left_out}


# Configurations

LLAMA, QWEN3 = plain("meta-llama--Meta-Llama-3.1-8B"), plain("Qwen--Qwen3-32B")
MIXTRAL = plain("mistralai--Mixtral-8x7B-v0.1")
QWEN2_MOE = plain("Qwen--Qwen1.5-MoE-A2.7B-Chat")
DEEPSEEK_V3, MINIMAX_M2 = plain("deepseek-ai--DeepSeek-V3"), plain("MiniMaxAI--MiniMax-M2.5")
GPT_OSS = plain("openai--gpt-oss-20b")
LLAMA4 = plain("meta-llama--Llama-4-Scout-17B-16E-Instruct")
QWEN_35 = flat("Qwen--Qwen3.5-35B-A3B", model_type="qwen3_5_moe_text")
GLM_52, EXAONE = flat("zai-org--GLM-5.2"), flat("transformers--exaone4")
STEP = flat("transformers--step3p7", model_type="step3p5")
STEP5 = flat("vllm--step5", model_type="step5")
ROUTED = STEP | {"mlp_layer_types": ["dense"] * 3 + ["sparse"] * 42}
LAGUNA, HY4 = flat("transformers--laguna"), flat("transformers--hy_v4", model_type="hy_v4")
LARGE4 = flat("transformers--mistral_large4", model_type="mistral_large4_text")
DOTS = flat("transformers--dots3_note", model_type="dots3_note_text")
FLASH_NEXT = flat("Qwen--Qwen3.8-Flash-Next", model_type="qwen4_exp_text")
GEMMA = flat("google--gemma-4-26B-A4B", model_type="gemma4_text")
OTHER_HEADS = {f"{i:02}": {"head_dim": 128} for i in range(5, 30, 6)}
MIMO, INKLING = flat("XiaomiMiMo--MiMo-V2-Flash"), flat("transformers--inkling")
KIMI, LING = CONFIGS["transformers--kimi_linear"], CONFIGS["transformers--bailing_hybrid"]
DELTA, GLM_FLASH = KIMI["linear_attn_config"], flat("zai-org--GLM-5.3-Flash")
V4_KINDS = ("compressed_sparse", "heavily_compressed")
V4, V41 = CONFIGS["deepseek-ai--DeepSeek-V4-Flash"], flat("deepseek-ai--DeepSeek-V4.1-Flash")
RATIOS, V4_NAMES = V4["compress_ratios"], [f"{how}_attention" for how in V4_KINDS]
FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
NANO = flat("nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16")
GRANITE, BAMBA = flat("transformers--granitemoehybrid"), flat("transformers--bamba")
FALCON, TEXT_01 = flat("transformers--falcon_h1"), CONFIGS["MiniMaxAI--MiniMax-Text-01"]
LFM = CONFIGS["LiquidAI--LFM2-1.2B"]
LONGCAT = CONFIGS["transformers--longcat_flash"]
NGRAMS = {"ngram_vocab_size_ratio": 78, "emb_split_num": 4, "emb_neighbor_num": 3}
# What is added, or said otherwise

OMNI_TOKENS = {"audio_start_token_id": 151647, "user_token_id": 872, "position_id_per_seconds": 25}
STEP_37 = CONFIGS["stepfun-ai--Step-3.7-Flash"]
STEP_TEXT = {"model_type": "step3p5", "num_hidden_layers": 45, "hidden_size": 4096}
STEP_TEXT |= {"sliding_window": None, "layer_types": [FULL] * 45}
GLM_TEXT = CONFIGS["zai-org--GLM-5.3-Flash"]["text_config"] | {"model_type": "glm5_next_text"}
OF_GLM = {"linear_num_heads": 64, "linear_conv_kernel_dim": 4, "linear_lower_bound": -5.0}
OF_LING = {"linear_num_heads": 32, "linear_head_dim": 128, "linear_conv_kernel_dim": 4}
ONE_DENSE = ["dense"] + ["sparse"] * 65
M3 = CONFIGS["transformers--minimax_m3_vl_text"]
NEMOTRON = CONFIGS["nvidia--Nemotron-H-56B-Base-8K"]
OF_NEMOTRON = {"moe_intermediate_size": 7688, "n_routed_experts": 8, "num_experts_per_tok": 2}
OF_KIMI = {"projection_hidden_size": 1152, "projection_layer_norm_eps": 1e-5}
WIDE = {"num_attention_heads": 96}
OF_WINDOWS = {"attention_type": SLIDING, "head_dim": 128, "num_attention_groups": 8} | WIDE
LING_2 = flat("vllm--bailing_moe_v2", first_k_dense_replace=1)
LATENT_LING = {key: LING_2[key] for key in LING_2 if not re.match("moe_sh|moe_ro|sco|.*wind", key)}
LATENT_LING |= {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64}
LATENT_LING |= {"v_head_dim": 128, "q_lora_rank": 0, "model_type": "deepseek_v2"}
OF_SARVAM = {key: LING_2[key] for key in LING_2 if re.match("moe_ro|sco", key)}
OF_SARVAM |= {"moe_shared_expert_intermediate_size": 1024, "q_lora_rank": None}
"""SarvamMoE and SarvamMLA of vLLM 0.33 are as Ling and DeepSeek: a dense layer unless one says."""
SHARING = GLM_52["indexer_types"]
NO_INDEXERS, BY_RULE = {"indexer_types": None}, {"index_topk_freq": 4, "index_skip_topk_offset": 3}
MIMO_TYPES = [(FULL, SLIDING)[x] for x in MIMO["hybrid_layer_pattern"]]
NO_WINDOWS = {key: None for key in MIMO if key.startswith("swa_")}
NO_GLOBALS = {"global_head_dim": None, "num_global_key_value_heads": None}
TWO_HEADS = {f"{i:02}": {"head_dim": 512, "num_key_value_heads": 2} for i in range(5, 30, 6)}
INKLING_OWN = {"dense_intermediate_size": 24576, "intermediate_size": 3072}
LOCAL = [i for i in range(66) if i % 6 != 5]
NAME_OF = {"M": "mamba", "E": "moe", "*": "attention"}
NAMES = [NAME_OF[letter] for letter in NANO["hybrid_override_pattern"]]
GENERICS = [{"mamba": LINEAR, "attention": FULL}.get(name, name) for name in NAMES]
GRANITE_TYPES = ["mamba" if x == LINEAR else "attention" for x in GRANITE["layer_types"]]
BAMBA_TYPES = ["attention" if i in (9, 18, 27) else "mamba" for i in range(32)]
V4_TYPES = [SLIDING] * 2 + V4_NAMES * 20 + V4_NAMES[:1]
CONV = [FULL if i in (2, 5, 8, 10, 12, 14) else "conv" for i in range(16)]


def same(config, **changes):
    return without_fields(read(config, **changes), ("name", "source"))


@each_row(
    ("config", "changes"),
    [
        # what transformers adds where it saves a configuration again
        (V4, {"mlp_layer_types": ["hash_moe"] * 3 + ["moe"] * 40}),
        (MIMO, {"sliding_window": 129, "sliding_window_size": 128}),
        (GLM_TEXT, OF_GLM | {"linear_head_dim": 128}),
        (STEP_37, {"text_config": STEP_TEXT, "projector_bias": True}),
        (ROUTED, {"first_k_dense_replace": 3, "moe_layers_enum": None}),
        (NEMOTRON, OF_NEMOTRON | {"n_shared_experts": 1, "moe_latent_size": None}),
        (LING, OF_LING | {"head_dim": 64, "model_max_length": 262144, "num_expert_group": 8}),
        (INKLING, {"number_of_conv_states": 4}),
        (STEP, {"per_layer_config": {"01": WIDE}}),
        (CONFIGS["moonshotai--Kimi-K2.5"], OF_KIMI),
        (LING, {"max_window_layers": 20, "mrope_section": [12, 10, 10]}),
        (M3, {"n_shared_experts": None, "swiglu_beta": 1.0}),
        (CONFIGS["Qwen--Qwen3-Omni-30B-A3B"], OMNI_TOKENS),
        (LLAMA | {"tie_word_embeddings": None}, {"tie_word_embeddings": False}),
        # other ways of saying the same
        (QWEN_35, {"layer_types": None}),
        (QWEN_35, {"layer_types": None, "full_attention_interval": None}),
        (QWEN_35, {"mtp_layer_types": [FULL], "mtp_mlp_layer_types": ["sparse"]}),
        (GLM_52, {"mtp_layer_types": ["deepseek_sparse_attention"]}),
        (GLM_52, {"first_k_dense_replace": None}),
        (GLM_52, NO_INDEXERS | BY_RULE),
        (GLM_52, NO_INDEXERS | {"index_topk_pattern": SHARING}),
        (GLM_52, NO_INDEXERS | {"index_topk_pattern": "".join(x[0].upper() for x in SHARING)}),
        (STEP, {"attention_other_setting": None, "num_sliding_attention_heads": 96}),
        (STEP, {"per_layer_config": {str(i): WIDE for i in range(45) if i % 4}}),
        (STEP, {"layer_types": STEP["layer_types"][:45]}),
        (STEP, {"moe_layers_enum": list(range(3, 45))}),
        (STEP, {"moe_layers_enum": None, "mlp_layer_types": ROUTED["mlp_layer_types"]}),
        (STEP, {"mlp_layer_types": [*ROUTED["mlp_layer_types"], "dense", "dense", "dense"]}),
        (STEP, {"n_shared_experts": None}),
        (STEP5, {"attention_other_setting": OF_WINDOWS, "swa_num_attention_heads": None}),
        (HY4, NO_INDEXERS),
        (LARGE4, {"no_rope_layers": None}),
        (DOTS, {"per_layer_config": None, "sliding_window": None, "sliding_window_size": 512,
                "swa_kv_lora_rank": 1024}),
        (DEEPSEEK_V3, {"model_type": "pangu_ultra_moe", "sandwich_norm": True}),
        (GEMMA, {"per_layer_config": TWO_HEADS}),
        (GEMMA, NO_GLOBALS | {"per_layer_config": TWO_HEADS}),
        (MIMO, {"model_type": "mimo_v2"} | NO_WINDOWS),
        (MIMO, {"layer_types": MIMO_TYPES}),
        (MIMO, {"layer_types": MIMO_TYPES, "hybrid_layer_pattern": None}),
        (INKLING, INKLING_OWN | {"moe_intermediate_size": None}),
        (INKLING, {"conv_kernel_size": None, "sconv_kernel_size": 4}),
        (INKLING | {"mlp_layer_types": ONE_DENSE}, {"mlp_layer_types": None, "dense_mlp_idx": 1}),
        (INKLING, {"layer_types": None, "model_type": "inkling_model"}),
        (INKLING, {"layer_types": None, "local_layer_ids": LOCAL}),
        (INKLING, {"local_layer_ids": LOCAL}),
        (V4, {"compress_ratios": None, "layer_types": V4_TYPES}),
        (V4, {"compress_ratios": None, "layer_types": V4_TYPES,
              "compress_rates": dict(zip(V4_NAMES, (4, 128), strict=True))}),
        (NANO, {"hybrid_override_pattern": None, "layers_block_type": NAMES}),
        (NANO, {"hybrid_override_pattern": None, "layers_block_type": GENERICS}),
        (NANO, {"layers_block_type": NAMES}),
        (GRANITE, {"layer_types": GRANITE_TYPES}),
        (BAMBA, {"layer_types": BAMBA_TYPES}),
        (BAMBA, {"mamba_d_head": "auto"}),
        (BAMBA, {"mamba_d_head": None}),
        (TEXT_01, {"model_type": "minimax_m1"}),
        (TEXT_01, {"model_type": "minimax"}),
        (LFM, {"full_attn_idxs": None, "layer_types": CONV}),
        (LFM, {"layer_types": ["short_conv" if x == "conv" else x for x in CONV]}),
        (LFM, {"conv_dim": 2048, "conv_dim_out": 2048}),
        (LONGCAT, {"num_hidden_layers": 28}),
        (LONGCAT, {"num_hidden_layers": 56}),
        (LONGCAT, {"ffn_hidden_size": None, "intermediate_size": 12288}),
        (LONGCAT, {"disable_quant_module": ["mtp"]}),
        (LING_2, {"first_k_dense_replace": None, "model_type": "sarvam_moe"}),
        (LATENT_LING, OF_SARVAM | {"first_k_dense_replace": None, "model_type": "sarvam_mla"}),
    ],
)  # fmt: skip
def test_what_says_the_same_changes_nothing(config, changes):
    assert same(config, **changes) == same(config)


@each_row(
    ("config", "changes", "message"),
    [
        (LLAMA, {"layer_types": [SLIDING]}, "layer_types: got '1 entries'"),
        (LLAMA, {"num_key_value_heads": 5}, "num_key_value_heads: got 5"),
        (LLAMA, {"torch_dtype": "float8_e4m3fn"}, " torch_dtype: got"),
        (LLAMA, {"hidden_size": 4096.0}, "hidden_size: got 4096.0"),
        (LLAMA, {"model_type": ["llama"]}, "model_type"),
        (LLAMA, {"num_hidden_layers": 10**7}, "num_hidden_layers: got 10000000; .* to 10000$"),
        (QWEN3, {"use_sliding_window": 0}, "use_sliding_window"),
        (LLAMA4, {"no_rope_layers": [1] * 48, "layer_types": [FULL] * 48}, "_types: .*no_rope"),
        (LLAMA4, {"no_rope_layers": [2] * 48}, "no_rope_layers"),
        (LLAMA4, {"moe_layers": ["1"]}, "moe_layers"),
        (LLAMA4, {"interleave_moe_layer_step": 0}, "interleave_moe_layer_step"),
        (MINIMAX_M2, {"attn_type_list": [1] * 61 + [0]}, "attn_type_list: .*linear attention"),
        (MINIMAX_M2, {"num_mtp_modules": 65}, "num_mtp_modules: .*from 0 to 64"),
        (GPT_OSS | {"sliding_window": None}, {}, "sliding_window: got None"),
        (QWEN2_MOE, {"mlp_only_layers": [0, 99]}, "mlp_only_layers"),
        (QWEN2_MOE, {"decoder_sparse_step": 0}, "decoder_sparse_step"),
        (DEEPSEEK_V3, {"moe_layer_freq": [2] * 61}, "moe_layer_freq"),
        (DEEPSEEK_V3, {"moe_layer_freq": [0, 0] + [1] * 59}, "_freq: .*first_k_dense_replace = 3"),
        (DEEPSEEK_V3, {"n_group": 7}, "a divisor of n_routed_experts = 256"),
        (DEEPSEEK_V3, {"topk_group": 9}, "from 1 to 8"),
        (MIXTRAL, {"num_experts_per_tok": 9}, "num_experts_per_tok: got 9"),
        # keys that another family has
        (LLAMA, {"text_config": {"hidden_size": 1}}, "text_config: got"),
        (QWEN3, {"no_rope_layers": [1, 0]}, "no_rope_layers: got"),
        # plans of layers, and modules
        (QWEN_35, {"layer_types": [FULL, "mamba"] * 20}, "got 'mamba'; expected full_att.*layer 1"),
        (QWEN_35, {"layer_types": [LINEAR] * 39 + [FULL]}, "layer_types: .*attention_interval = 4"),
        (QWEN_35, {"full_attention_interval": 100, "layer_types": None}, "interval: got 100"),
        (QWEN_35, {"mtp_use_dedicated_embeddings": True}, "mtp_use_dedicated_embeddings: .*false"),
        (QWEN_35, {"mtp_layer_types": [LINEAR]}, "mtp_layer_types: got .*full"),
        (EXAONE, {"sliding_window_pattern": "LLGL"}, "_pattern: got 'LLGL'"),
        (flat("transformers--mellum"), {"layer_types": None}, "layer_types: got None; expected 28"),
        (GLM_52, {"mlp_layer_types": ["dense"] * 78}, "first_k_dense_replace = 3"),
        (GLM_52, {"mlp_layer_types": ["mlp"] * 78}, "mlp_layer_types: got 'mlp'"),
        (GLM_52, {"indexer_types": ["shared"] * 78}, "indexer_types: .*indexer in the first layer"),
        (GLM_52, {"indexer_types": ["full", "none"] * 39}, "indexer_types: got 'none'"),
        (GLM_52, {"indexer_types": None, "index_topk_pattern": "FS"}, "_pattern: got '2 ent"),
        (GLM_52, {"index_topk_freq": 2}, "indexer_types: .* as index_topk_freq = 2 gives"),
        (GLM_52, {"index_topk_pattern": "F" * 78}, "indexer_types: .* index_topk_pattern = 'F"),
        (flat("transformers--ernie4_5_moe"), {"moe_layer_end_index": 0}, "start_index = 1 to 27"),
        # heads that differ by layer
        (STEP, {"attention_other_setting": {}}, "attention_other_setting: got {}"),
        (STEP, {"per_layer_config": {"1": {"num_attention_heads": 64}}}, "per_layer_config: got"),
        (STEP, {"layer_types": [FULL] * 46 + [SLIDING] * 2}, "layer_types"),
        (STEP, {"mtp_mlp_layer_types": ["sparse"]}, "mtp_mlp_layer_types: got"),
        (STEP, {"moe_layers_enum": "3-44"}, "moe_layers_enum: got '3-44'"),
        (STEP, {"n_shared_experts": 2}, "n_shared_experts: got 2; expected 1, as share_expert"),
        (STEP5, {"sparse_config": {"window": 8}}, "sparse_config window: got 8; .*no such key"),
        (STEP5, {"swa_num_attention_heads": 90}, "num_key_value_heads|num_attention_groups"),
        (LAGUNA, {"num_attention_heads_per_layer": [48] * 39}, "per_layer: got .*; expected 40"),
        (LAGUNA, {"num_attention_heads_per_layer": [48] * 39 + [50]}, "multiples of num_key_value"),
        (LAGUNA, {"gating": "per-element"}, "gating: got 'per-element'"),
        (HY4, {"gated_mla": False}, "gated_mla: got False; .*true"),
        (LARGE4, {"kv_source_layers": [0] * 72}, "kv_source_layers: got .*0 to 71"),
        (DOTS, {"per_layer_config": {"2": {"v_head_dim": 64}}}, "per_layer_config: got .*windowed"),
        (FLASH_NEXT, {"indexer_kv_heads": 2}, "indexer_kv_heads: got 2; .*1"),
        (FLASH_NEXT, {"ple_layer_ids": [49]}, r"ple_layer_ids: got \[49\]; .*from 1 to 48"),
        (GEMMA, {"num_key_value_heads": 3}, "num_key_value_heads: got 3; expected a divisor"),
        (GEMMA, {"num_global_key_value_heads": 3}, "num_global_key_value_heads: got 3"),
        (GEMMA, {"num_kv_shared_layers": 25}, "num_kv_shared_layers: got 25; expected fewer"),
        (GEMMA, {"num_kv_shared_layers": 6, "use_double_wide_mlp": True}, "wide_mlp: got True"),
        (GEMMA, {"per_layer_config": OTHER_HEADS}, "the head_dim that global_head_dim = 512 gives"),
        (GEMMA, {"per_layer_config": {"05": {"heads": 4}}}, "per_layer_config: got"),
        (MIMO, {"hybrid_layer_pattern": [0, 2] * 24}, "hybrid_layer_pattern: got 2; .*layer 1"),
        (MIMO, {"layer_types": [FULL] * 48}, "layer_types: .*hybrid_layer_pattern"),
        (MIMO, {"sliding_window_size": 64}, "sliding_window_size: got 64; .*window = 128"),
        (INKLING, {"num_key_value_heads": 3}, "num_key_value_heads: got 3; .*= 64"),
        (INKLING, {"swa_num_key_value_heads": 3}, "swa_num_key_value_heads: got 3; .*swa_num_att"),
        (INKLING, {"local_layer_ids": [66]}, "local_layer_ids: got .*from 0 to 65"),
        (INKLING, {"local_layer_ids": [1]}, "layer_types: .*local_layer_ids"),
        (INKLING, {"dense_mlp_idx": 5}, "mlp_layer_types: got .*dense in the first 5 layers"),
        (INKLING, {"num_experts_per_tok": 257}, "num_experts_per_tok: got 257; .*n_routed"),
        (INKLING, {"sconv_kernel_size": 3}, "conv_kernel_size: got .*another name"),
        (INKLING, {"num_mtp_layers": 3, "mtp_local_layer_ids": [0]}, "local_layer_ids: .*all mod"),
        # delta attention, and what is compressed
        (KIMI, {"linear_attn_config": None}, "linear_attn_config: got None; .*or layer_types"),
        (KIMI, {"linear_attn_config": DELTA | {"kda_layers": [1]}}, "kda_layers: .*each layer"),
        (KIMI, {"linear_attn_config": DELTA | {"expand_v": 2}}, "expand_v: got 2; .*not known"),
        (KIMI, {"layer_types": [FULL] * 27}, "layer_types: got .*linear_attn_config makes"),
        (LING, {"layer_types": [LINEAR] * 42}, "layer_types: got .*last of each 6"),
        (GLM_FLASH, {"index_kpool_compress": False}, "index_kpool_compress: got False"),
        (GLM_FLASH, {"attn_res_block_size": 12}, "mhc: got True; .*attn_res_block_size"),
        (GLM_FLASH, {"linear_head_dim": 64}, "linear_head_dim: got 64; expected 128, as the model"),
        (V4, {"compress_ratios": [0, 2, *RATIOS[2:]]}, "compress_ratios: .*0 or 4 or 12"),
        (V4, {"compress_ratios": [*RATIOS[:-1], 4]}, "compress_ratios: .*modules"),
        (V4, {"compress_ratios": None, "layer_types": V4_NAMES * 21 + V4_NAMES[:1],
              "compress_rates": {V4_NAMES[0]: 8}}, "compress_rates: got"),
        (V4, {"layer_types": V4_NAMES * 21 + V4_NAMES[:1]}, "layer_types: got .*compress_ratios"),
        (V4, {"o_groups": 7}, "o_groups: got 7; .*divisor of num_attention_heads = 64"),
        (V4, {"num_key_value_heads": 2}, "num_key_value_heads: got 2; expected 1"),
        (V4, {"quantization_config": FP8}, "expert_dtype: got None; expected fp4 or fp8"),
        (V41, {"compress_ratios": [0] * 20 + [4] * 20}, "compress_ratios: .*0 or 1 or 2"),
        (V41, {"kv_source_layer_ids": [8, 14, 20]}, "source_layer_ids: .*layer 2, the first"),
        (V41, {"kv_source_layer_ids": [1, 2, 8]}, "source_layer_ids: .*ratio in compress_ratios"),
        (V41, {"kv_source_layer_ids": [2, 8, 14]}, "compress_ratios: .*of layer 14 for layer"),
        (V41, {"engram_num_embeddings": [5]}, "engram_num_embeddings: got .*2 numbers"),
        # state spaces, convolutions, and experts without weights
        (NANO, {"hybrid_override_pattern": None}, "layers_block_type: got None; expected mamba or"),
        (NANO, {"hybrid_override_pattern": "MX"}, r"override_pattern: got 'MX'; .*M or \* or E"),
        (NANO, {"layers_block_type": ["mamba"] * 51 + ["conv"]}, "block_type: got 'conv'; .*r 51"),
        (NANO, {"layers_block_type": ["mamba"] * 52}, "override_pattern: .*in layers_block_type"),
        (NANO, {"num_hidden_layers": 6}, "num_hidden_layers: got 6; expected 52"),
        (NANO, {"n_groups": 3}, "n_groups: got 3; .*a divisor of mamba_num_heads = 64"),
        (NANO, {"mamba_ssm_cache_dtype": "int8"}, "mamba_ssm_cache_dtype: got 'int8'; .*float32"),
        (NANO, {"mtp_layers_block_type": ["mamba"]}, "mtp_layers_block_type: got .*'attention'"),
        (GRANITE, {"mamba_d_head": 32}, "mamba_d_head: got 32; .*= 64, or auto"),
        (GRANITE, {"mamba_n_heads": 50}, "mamba_n_heads: got 50; .*= 8192"),
        (FALCON, {"layer_types": [FULL] * 64}, "layer_types: got .*; expected none, as all"),
        (FALCON, {"mamba_d_ssm": 1000}, "mamba_n_heads: got 128; .*mamba_d_ssm = 1000"),
        (FALCON, {"quantization_config": {"bits": 8}}, "quantization_config: got .*expected none"),
        (TEXT_01, {"attn_type_list": None}, "layer_types: got None; expected 80 kinds of layers"),
        (LFM, {"full_attn_idxs": None}, "layer_types: got None; expected 16 .*full_attn_idxs"),
        (LFM, {"conv_dim": 128}, "conv_dim: got 128; expected hidden_size = 2048"),
        (LFM, {"intermediate_size": 999}, "block_ff_dim|intermediate_size: got .*another name"),
        (LFM, {"tie_embedding": False, "tie_word_embeddings": True}, "tie_embedding: got False"),
        (LONGCAT, {"num_hidden_layers": 3}, "num_hidden_layers: got 3; expected .* = 28, or twice"),
        (LONGCAT, {"intermediate_size": 511}, "intermediate_size: got 511; .*the same as ffn_"),
        (LONGCAT, {"n_routed_experts": 1}, "n_routed_experts: got 1"),
        (LONGCAT, {"moe_topk": 769}, "moe_topk: got 769; expected at most n_routed_experts"),
        (LONGCAT, {"ngram_vocab_size_ratio": 78}, "emb_split_num or oe_split_num: got None"),
        (LONGCAT, {"zero_expert_type": "copy"}, "zero_expert_type: got 'copy'; expected identity"),
        (LONGCAT, {"attention_method": "MHA"}, "attention_method: got 'MHA'; expected MLA"),
        (LONGCAT, NGRAMS | {"emb_split_num": 7}, "emb_split_num: got 7; expected .*here 14"),
        (LONGCAT, NGRAMS | {"emb_neighbor_num": 1}, "emb_neighbor_num: got 1"),
    ],
)  # fmt: skip
def test_what_does_not_add_up_is_refused_by_its_key(config, changes, message):
    refused(message, read, config, **changes)
