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
LLAMA4 = plain("meta-llama--Llama-4-Scout-17B-16E-Instruct")
QWEN_35 = flat("Qwen--Qwen3.5-35B-A3B", model_type="qwen3_5_moe_text")
GLM_52 = flat("zai-org--GLM-5.2")
STEP = flat("transformers--step3p7", model_type="step3p5")
ROUTED = STEP | {"mlp_layer_types": ["dense"] * 3 + ["sparse"] * 42}
MIMO, INKLING = flat("XiaomiMiMo--MiMo-V2-Flash"), flat("transformers--inkling")
KIMI, LING = CONFIGS["transformers--kimi_linear"], CONFIGS["transformers--bailing_hybrid"]
V4 = CONFIGS["deepseek-ai--DeepSeek-V4-Flash"]
V4_NAMES = ["compressed_sparse_attention", "heavily_compressed_attention"]
NANO = flat("nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16")
FALCON = flat("transformers--falcon_h1")
# What is added, or said otherwise

STEP_37 = CONFIGS["stepfun-ai--Step-3.7-Flash"]
STEP_TEXT = {"model_type": "step3p5", "num_hidden_layers": 45, "hidden_size": 4096}
STEP_TEXT |= {"sliding_window": None, "layer_types": [FULL] * 45}
GLM_TEXT = CONFIGS["zai-org--GLM-5.3-Flash"]["text_config"] | {"model_type": "glm5_next_text"}
OF_GLM = {"linear_num_heads": 64, "linear_conv_kernel_dim": 4, "linear_lower_bound": -5.0}
ONE_DENSE = ["dense"] + ["sparse"] * 65
OF_KIMI = {"projection_hidden_size": 1152, "projection_layer_norm_eps": 1e-5}
WIDE = {"num_attention_heads": 96}
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
NAME_OF = {"M": "mamba", "E": "moe", "*": "attention"}
NAMES = [NAME_OF[letter] for letter in NANO["hybrid_override_pattern"]]
GENERICS = [{"mamba": LINEAR, "attention": FULL}.get(name, name) for name in NAMES]
V4_TYPES = [SLIDING] * 2 + V4_NAMES * 20 + V4_NAMES[:1]


@one_case(
    "config changes",
    *((flat(n), json.loads(changes)) for n, changes in rows_of("config_keys.txt", "same")),
    # what transformers adds where it saves a configuration again
    (GLM_TEXT, OF_GLM | {"linear_head_dim": 128}),
    (STEP_37, {"text_config": STEP_TEXT, "projector_bias": True}),
    (ROUTED, {"first_k_dense_replace": 3, "moe_layers_enum": None}),
    (CONFIGS["moonshotai--Kimi-K2.5"], OF_KIMI),
    (LLAMA | {"tie_word_embeddings": None}, {"tie_word_embeddings": False}),
    # other ways of saying the same
    (GLM_52, NO_INDEXERS | {"index_topk_pattern": SHARING}),
    (STEP, {"per_layer_config": {str(i): WIDE for i in range(45) if i % 4}}),
    (STEP, {"layer_types": STEP["layer_types"][:45]}),
    (STEP, {"moe_layers_enum": None, "mlp_layer_types": ROUTED["mlp_layer_types"]}),
    (STEP, {"mlp_layer_types": [*ROUTED["mlp_layer_types"], "dense", "dense", "dense"]}),
    (MIMO, {"layer_types": MIMO_TYPES}),
    (MIMO, {"layer_types": MIMO_TYPES, "hybrid_layer_pattern": None}),
    (INKLING | {"mlp_layer_types": ONE_DENSE}, {"mlp_layer_types": None, "dense_mlp_idx": 1}),
    (V4, {"compress_ratios": None, "layer_types": V4_TYPES}),
    (V4, {"compress_ratios": None, "layer_types": V4_TYPES,
          "compress_rates": dict(zip(V4_NAMES, (4, 128), strict=True))}),
    (NANO, {"hybrid_override_pattern": None, "layers_block_type": NAMES}),
    (NANO, {"hybrid_override_pattern": None, "layers_block_type": GENERICS}),
    (NANO, {"layers_block_type": NAMES}),
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
    (LLAMA4, {"no_rope_layers": [1] * 48, "layer_types": [FULL] * 48}, "_types: .*no_rope_layer"),
    (plain("openai--gpt-oss-20b") | {"sliding_window": None}, {}, "sliding_window: got None"),
    # plans of layers, and modules
    (QWEN_35, {"layer_types": [FULL, "mamba"] * 20}, "got 'mamba'; expected full_att.*layer 1"),
    (QWEN_35, {"layer_types": [LINEAR] * 39 + [FULL]}, "layer_types: .*attention_interval"),
    (GLM_52, {"mlp_layer_types": ["dense"] * 78}, "first_k_dense_replace = 3"),
    (GLM_52, {"mlp_layer_types": ["mlp"] * 78}, "mlp_layer_types: got 'mlp'"),
    (GLM_52, {"indexer_types": ["shared"] * 78}, "indexer_types: .*indexer in layer 0"),
    (GLM_52, {"indexer_types": ["full", "none"] * 39}, "indexer_types: got 'none'"),
    # heads that differ by layer
    (STEP, {"layer_types": [FULL] * 46 + [SLIDING] * 2}, "layer_types"),
    (MIMO, {"layer_types": [FULL] * 48}, "layer_types: .*hybrid_layer_pattern"),
    # delta attention, and what is compressed
    (KIMI, {"layer_types": [FULL] * 27}, "layer_types: got .*linear_attention in layer 0"),
    (LING, {"layer_types": [LINEAR] * 42}, "layer_types: got .*full_attention in layer 5"),
    (V4, {"compress_ratios": None, "layer_types": V4_NAMES * 21 + V4_NAMES[:1],
      "compress_rates": {V4_NAMES[0]: 8}}, "compress_rates: got"),
    (V4, {"layer_types": V4_NAMES * 21 + V4_NAMES[:1]}, "_types: .*sliding_attention in layer 0"),
    # state spaces, convolutions, and experts without weights
    (NANO, {"layers_block_type": ["mamba"] * 51 + ["conv"]}, "block_type: got 'conv'; .*r 51"),
    (NANO, {"layers_block_type": ["mamba"] * 52}, "override_pattern: .*in layers_block_type"),
    (FALCON, {"layer_types": [FULL] * 64}, "layer_types: got .*linear_attention in layer 1"),
)  # fmt: skip
def test_what_does_not_add_up_is_refused_by_its_key(config, changes, message):
    refused(message, read, config, **changes)
