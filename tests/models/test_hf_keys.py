"""Keys of each family: those that say the same, and those refused in one line that names them."""

import json
import re

from configs import CONFIGS, flat, plain, read
from printed import refused
from rows import one_case, rows_of
from shapes import without_fields

FULL, SLIDING, LINEAR = "full_attention", "sliding_attention", "linear_attention"


# Configurations

LLAMA = plain("meta-llama--Meta-Llama-3.1-8B")
DEEPSEEK_V3, MINIMAX_M2 = plain("deepseek-ai--DeepSeek-V3"), plain("MiniMaxAI--MiniMax-M2.5")
GPT_OSS = plain("openai--gpt-oss-20b")
LLAMA4 = plain("meta-llama--Llama-4-Scout-17B-16E-Instruct")
QWEN_35 = flat("Qwen--Qwen3.5-35B-A3B", model_type="qwen3_5_moe_text")
GLM_52 = flat("zai-org--GLM-5.2")
STEP = flat("transformers--step3p7", model_type="step3p5")
STEP5 = flat("vllm--step5", model_type="step5")
ROUTED = STEP | {"mlp_layer_types": ["dense"] * 3 + ["sparse"] * 42}
LAGUNA = flat("transformers--laguna")
LARGE4 = flat("transformers--mistral_large4", model_type="mistral_large4_text")
GEMMA = flat("google--gemma-4-26B-A4B", model_type="gemma4_text")
OTHER_HEADS = {f"{i:02}": {"head_dim": 128} for i in range(5, 30, 6)}
MIMO, INKLING = flat("XiaomiMiMo--MiMo-V2-Flash"), flat("transformers--inkling")
KIMI, LING = CONFIGS["transformers--kimi_linear"], CONFIGS["transformers--bailing_hybrid"]
DELTA = KIMI["linear_attn_config"]
V4_KINDS = ("compressed_sparse", "heavily_compressed")
V4, V41 = CONFIGS["deepseek-ai--DeepSeek-V4-Flash"], flat("deepseek-ai--DeepSeek-V4.1-Flash")
RATIOS, V4_NAMES = V4["compress_ratios"], [f"{how}_attention" for how in V4_KINDS]
NANO = flat("nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16")
GRANITE, BAMBA = flat("transformers--granitemoehybrid"), flat("transformers--bamba")
FALCON = flat("transformers--falcon_h1")
LFM = CONFIGS["LiquidAI--LFM2-1.2B"]
# What is added, or said otherwise

OMNI_TOKENS = {"audio_start_token_id": 151647, "user_token_id": 872, "position_id_per_seconds": 25}
STEP_37 = CONFIGS["stepfun-ai--Step-3.7-Flash"]
STEP_TEXT = {"model_type": "step3p5", "num_hidden_layers": 45, "hidden_size": 4096}
STEP_TEXT |= {"sliding_window": None, "layer_types": [FULL] * 45}
GLM_TEXT = CONFIGS["zai-org--GLM-5.3-Flash"]["text_config"] | {"model_type": "glm5_next_text"}
OF_GLM = {"linear_num_heads": 64, "linear_conv_kernel_dim": 4, "linear_lower_bound": -5.0}
OF_LING = {"linear_num_heads": 32, "linear_head_dim": 128, "linear_conv_kernel_dim": 4}
ONE_DENSE = ["dense"] + ["sparse"] * 65
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
NO_INDEXERS = {"indexer_types": None}
MIMO_TYPES = [(FULL, SLIDING)[x] for x in MIMO["hybrid_layer_pattern"]]
NO_WINDOWS = {key: None for key in MIMO if key.startswith("swa_")}
NO_GLOBALS = {"global_head_dim": None, "num_global_key_value_heads": None}
TWO_HEADS = {f"{i:02}": {"head_dim": 512, "num_key_value_heads": 2} for i in range(5, 30, 6)}
LOCAL = [i for i in range(66) if i % 6 != 5]
NAME_OF = {"M": "mamba", "E": "moe", "*": "attention"}
NAMES = [NAME_OF[letter] for letter in NANO["hybrid_override_pattern"]]
GENERICS = [{"mamba": LINEAR, "attention": FULL}.get(name, name) for name in NAMES]
GRANITE_TYPES = ["mamba" if x == LINEAR else "attention" for x in GRANITE["layer_types"]]
BAMBA_TYPES = ["attention" if i in (9, 18, 27) else "mamba" for i in range(32)]
V4_TYPES = [SLIDING] * 2 + V4_NAMES * 20 + V4_NAMES[:1]
CONV = [FULL if i in (2, 5, 8, 10, 12, 14) else "conv" for i in range(16)]


@one_case(
    "config changes",
*((flat(n), json.loads(changes)) for n, changes in rows_of("config_keys.txt", "same")),
# what transformers adds where it saves a configuration again
(V4, {"mlp_layer_types": ["hash_moe"] * 3 + ["moe"] * 40}),
(GLM_TEXT, OF_GLM | {"linear_head_dim": 128}),
(STEP_37, {"text_config": STEP_TEXT, "projector_bias": True}),
(ROUTED, {"first_k_dense_replace": 3, "moe_layers_enum": None}),
(NEMOTRON, OF_NEMOTRON | {"n_shared_experts": 1, "moe_latent_size": None}),
(LING, OF_LING | {"head_dim": 64, "model_max_length": 262144, "num_expert_group": 8}),
(CONFIGS["moonshotai--Kimi-K2.5"], OF_KIMI),
(CONFIGS["Qwen--Qwen3-Omni-30B-A3B"], OMNI_TOKENS),
(LLAMA | {"tie_word_embeddings": None}, {"tie_word_embeddings": False}),
# other ways of saying the same
(GLM_52, NO_INDEXERS | {"index_topk_pattern": SHARING}),
(STEP, {"per_layer_config": {str(i): WIDE for i in range(45) if i % 4}}),
(STEP, {"layer_types": STEP["layer_types"][:45]}),
(STEP, {"moe_layers_enum": list(range(3, 45))}),
(STEP, {"moe_layers_enum": None, "mlp_layer_types": ROUTED["mlp_layer_types"]}),
(STEP, {"mlp_layer_types": [*ROUTED["mlp_layer_types"], "dense", "dense", "dense"]}),
(STEP5, {"attention_other_setting": OF_WINDOWS, "swa_num_attention_heads": None}),
(GEMMA, {"per_layer_config": TWO_HEADS}),
(GEMMA, NO_GLOBALS | {"per_layer_config": TWO_HEADS}),
(MIMO, {"model_type": "mimo_v2"} | NO_WINDOWS),
(MIMO, {"layer_types": MIMO_TYPES}),
(MIMO, {"layer_types": MIMO_TYPES, "hybrid_layer_pattern": None}),
(INKLING | {"mlp_layer_types": ONE_DENSE}, {"mlp_layer_types": None, "dense_mlp_idx": 1}),
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
(LFM, {"full_attn_idxs": None, "layer_types": CONV}),
(LFM, {"layer_types": ["short_conv" if x == "conv" else x for x in CONV]}),
(LATENT_LING, OF_SARVAM | {"first_k_dense_replace": None, "model_type": "sarvam_mla"}),
)  # fmt: skip
def test_what_says_the_same_changes_nothing(config, changes):
    assert without_fields(read(config, **changes)) == without_fields(read(config))


@one_case(
    "config changes message",
*(
    (flat(name), json.loads(changes), message)
    for name, changes, message in rows_of("config_keys.txt", "refused")
),
(LLAMA, {"torch_dtype": "float8_e4m3fn"}, " torch_dtype: got"),
(LLAMA4, {"no_rope_layers": [1] * 48, "layer_types": [FULL] * 48}, "_types: .*no_rope"),
(LLAMA4, {"no_rope_layers": [2] * 48}, "no_rope_layers"),
(MINIMAX_M2, {"attn_type_list": [1] * 61 + [0]}, "attn_type_list: .*linear attention"),
(GPT_OSS | {"sliding_window": None}, {}, "sliding_window: got None"),
(DEEPSEEK_V3, {"moe_layer_freq": [2] * 61}, "moe_layer_freq"),
(DEEPSEEK_V3, {"moe_layer_freq": [0, 0] + [1] * 59}, "_freq: .*first_k_dense_replace = 3"),
# keys that another family has
# plans of layers, and modules
(QWEN_35, {"layer_types": [FULL, "mamba"] * 20}, "got 'mamba'; expected full_att.*layer 1"),
(QWEN_35, {"layer_types": [LINEAR] * 39 + [FULL]}, "layer_types: .*attention_interval = 4"),
(GLM_52, {"mlp_layer_types": ["dense"] * 78}, "first_k_dense_replace = 3"),
(GLM_52, {"mlp_layer_types": ["mlp"] * 78}, "mlp_layer_types: got 'mlp'"),
(GLM_52, {"indexer_types": ["shared"] * 78}, "indexer_types: .*indexer in the first layer"),
(GLM_52, {"indexer_types": ["full", "none"] * 39}, "indexer_types: got 'none'"),
# heads that differ by layer
(STEP, {"layer_types": [FULL] * 46 + [SLIDING] * 2}, "layer_types"),
(LAGUNA, {"num_attention_heads_per_layer": [48] * 39}, "per_layer: got .*; expected 40"),
(LAGUNA, {"num_attention_heads_per_layer": [48] * 39 + [50]}, "multiples of num_key_value"),
(LARGE4, {"kv_source_layers": [0] * 72}, "kv_source_layers: got .*0 to 71"),
(GEMMA, {"per_layer_config": OTHER_HEADS}, "the head_dim that global_head_dim = 512 gives"),
(MIMO, {"hybrid_layer_pattern": [0, 2] * 24}, "hybrid_layer_pattern: got 2; .*layer 1"),
(MIMO, {"layer_types": [FULL] * 48}, "layer_types: .*hybrid_layer_pattern"),
# delta attention, and what is compressed
(KIMI, {"linear_attn_config": DELTA | {"kda_layers": [1]}}, "kda_layers: .*each layer"),
(KIMI, {"linear_attn_config": DELTA | {"expand_v": 2}}, "expand_v: got 2; .*not known"),
(KIMI, {"layer_types": [FULL] * 27}, "layer_types: got .*linear_attn_config makes"),
(LING, {"layer_types": [LINEAR] * 42}, "layer_types: got .*last of each 6"),
(V4, {"compress_ratios": [0, 2, *RATIOS[2:]]}, "compress_ratios: .*0 or 4 or 12"),
(V4, {"compress_ratios": [*RATIOS[:-1], 4]}, "compress_ratios: .*modules"),
(V4, {"compress_ratios": None, "layer_types": V4_NAMES * 21 + V4_NAMES[:1],
      "compress_rates": {V4_NAMES[0]: 8}}, "compress_rates: got"),
(V4, {"layer_types": V4_NAMES * 21 + V4_NAMES[:1]}, "layer_types: got .*compress_ratios"),
(V41, {"compress_ratios": [0] * 20 + [4] * 20}, "compress_ratios: .*0 or 1 or 2"),
# state spaces, convolutions, and experts without weights
(NANO, {"layers_block_type": ["mamba"] * 51 + ["conv"]}, "block_type: got 'conv'; .*r 51"),
(NANO, {"layers_block_type": ["mamba"] * 52}, "override_pattern: .*in layers_block_type"),
(FALCON, {"layer_types": [FULL] * 64}, "layer_types: got .*; expected none, as all"),
)  # fmt: skip
def test_what_does_not_add_up_is_refused_by_its_key(config, changes, message):
    refused(message, read, config, **changes)
