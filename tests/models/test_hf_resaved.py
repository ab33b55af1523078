"""Configurations that transformers saved again: other keys and defaults, the same shape."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import configs
import pytest
from configs import CONFIGS
from rows import each_row
from shapes import without_fields

ROOT = Path(__file__).parents[2]
V4 = CONFIGS["deepseek-ai--DeepSeek-V4-Flash"]
STEP = CONFIGS["stepfun-ai--Step-3.7-Flash"]
MIMO = CONFIGS["XiaomiMiMo--MiMo-V2-Flash"]
GLM = CONFIGS["zai-org--GLM-5.3-Flash"]["text_config"] | {"model_type": "glm5_next_text"}
VL = CONFIGS["Qwen--Qwen3-VL-30B-A3B-Instruct"]
NEMOTRON = CONFIGS["nvidia--Nemotron-H-56B-Base-8K"]
KIMI = CONFIGS["moonshotai--Kimi-K2.5"]
LING, INKLING = CONFIGS["transformers--bailing_hybrid"], CONFIGS["transformers--inkling"]
HEADS = CONFIGS["transformers--step3p7"]["text_config"]
BLOCKS = CONFIGS["transformers--minimax_m3_vl_text"]
OMNI = CONFIGS["Qwen--Qwen3-Omni-30B-A3B"]
OF_OMNI = {"audio_start_token_id": 151647, "user_token_id": 872, "position_id_per_seconds": 25}
LLAMA = CONFIGS["meta-llama--Meta-Llama-3.1-8B"]
OF_KIMI = {"projection_hidden_size": 1152, "projection_layer_norm_eps": 1e-5}
OF_NEMOTRON = {
    "moe_intermediate_size": 7688, "moe_shared_expert_intermediate_size": 7688,
    "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2, "moe_latent_size": None,
}  # fmt: skip
OF_GLM = {
    "linear_num_heads": 64, "linear_head_dim": 128, "linear_conv_kernel_dim": 4,
    "linear_lower_bound": -5.0,
}  # fmt: skip
STEP_TEXT = {
    "model_type": "step3p5", "num_hidden_layers": 45, "hidden_size": 4096, "sliding_window": None,
    "layer_types": ["full_attention"] * 45,
}  # fmt: skip
OF_LING = {
    "linear_num_heads": 32, "linear_head_dim": 128, "linear_conv_kernel_dim": 4, "head_dim": 64,
    "model_max_length": 262144, "num_expert_group": 8,
}  # fmt: skip
OF_ENGINES = ("vllm--", "sglang--")
"""Names of classes that transformers lacks, or has of another model."""
ROUTED = STEP | {"mlp_layer_types": ["dense"] * 3 + ["sparse"] * (STEP["num_hidden_layers"] - 3)}
ROUTED = {key: value for key, value in ROUTED.items() if key != "moe_layers_enum"}


def read(config, **changes):
    return without_fields(configs.read(config | changes), ("name", "source"))


@each_row(
    ("config", "changes"),
    [
        (V4, {"mlp_layer_types": ["hash_moe"] * 3 + ["moe"] * 40}),
        (MIMO, {"sliding_window": 129, "sliding_window_size": 128}),
        (GLM, OF_GLM),
        (STEP, {"text_config": STEP_TEXT, "projector_bias": True}),
        (ROUTED, {"first_k_dense_replace": 3}),
        (NEMOTRON, OF_NEMOTRON),
        (LING, OF_LING),
        (INKLING, {"number_of_conv_states": 4}),
        (HEADS, {"per_layer_config": {"01": {"num_attention_heads": 96}}}),
        (KIMI, OF_KIMI),
        (LING, {"max_window_layers": 20, "mrope_section": [12, 10, 10]}),
        (BLOCKS, {"n_shared_experts": None, "swiglu_beta": 1.0}),
        (OMNI, OF_OMNI),
        (LLAMA, {"tie_word_embeddings": None}),
    ],
)
def test_keys_that_transformers_adds_change_nothing(config, changes):
    assert read(config, **changes) == read(config)


def test_the_wrapper_says_whether_the_head_is_tied():
    """The head is the wrapper's; what is inside is a default of transformers."""
    for is_tied in (False, True):
        text = VL["text_config"] | {"tie_word_embeddings": not is_tied}
        model = read(VL, text_config=text, tie_word_embeddings=is_tied)
        assert model["has_tied_embeddings"] == is_tied


@pytest.mark.slow
@pytest.mark.skipif(not find_spec("transformers"), reason="transformers writes the files")
def test_what_transformers_saves_again_is_read_to_the_same_shape(tmp_path):
    """Those of the configurations that it knows; the table holds no key that does not matter.

    It adds how Inkling-2-Small is quantised, which no file of the hub says.
    """
    own = {name: config for name, config in CONFIGS.items() if not name.startswith(OF_ENGINES)}
    for name, config in own.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config), encoding="utf-8")
    script = ROOT / "calibration/resaved.py"
    done = subprocess.run(
        [sys.executable, script, tmp_path], capture_output=True, text=True, check=True
    )
    (different,) = [line for line in done.stdout.splitlines() if ": differs" in line]
    assert different.startswith("transformers--inkling2: differs: expert_dtype None -> mxfp8")
    assert done.stdout.count(": equal") > 50
