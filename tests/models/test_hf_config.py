"""The reader of config.json: one test for each trap, over all families that have it."""

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from configs import CONFIGS, flat, plain, read
from msgspec.structs import replace
from printed import refused
from rows import each_row, listed, one_case

from specmodel import Architecture, InputError, load_architecture
from specmodel.core.models.hf.keys import table

OTHER_TYPES = table("other_model_types")
LATENT = ("kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")


LLAMA = plain("meta-llama--Meta-Llama-3.1-8B")
QWEN2 = plain("Qwen--Qwen2-0.5B-Instruct")
QWEN3 = plain("Qwen--Qwen3-32B")
OPT = plain("facebook--opt-30b")
MIXTRAL = plain("mistralai--Mixtral-8x7B-v0.1")
PHIMOE = plain("microsoft--Phi-3.5-MoE-instruct")
OLMOE = plain("allenai--OLMoE-1B-7B-0924")
QWEN2_MOE = plain("Qwen--Qwen1.5-MoE-A2.7B-Chat")
QWEN3_MOE = plain("Qwen--Qwen3-30B-A3B")
DEEPSEEK_V2 = plain("blis--deepseek-v2-lite")
DEEPSEEK_V3 = plain("deepseek-ai--DeepSeek-V3")
KIMI_K2 = plain("moonshotai--Kimi-K2-Instruct")
GLM4_MOE = plain("zai-org--GLM-4.5-Air")
MINIMAX_M2 = plain("MiniMaxAI--MiniMax-M2.5")
GPT_OSS = plain("openai--gpt-oss-20b")
LLAMA4 = plain("meta-llama--Llama-4-Scout-17B-16E-Instruct")
MISTRAL = LLAMA | {"model_type": "mistral", "vocab_size": 32000}
DEEPSEEK = {key: value for key, value in DEEPSEEK_V2.items() if key not in LATENT}
DEEPSEEK |= {"model_type": "deepseek", "num_hidden_layers": 28}
QWEN2_MOE |= {"intermediate_size": 5632}
QWEN3_MOE |= {"intermediate_size": 6144}
DENSE = [LLAMA, MISTRAL, QWEN2, QWEN3, OPT]
LATENT_MOE = [DEEPSEEK_V2, DEEPSEEK_V3, KIMI_K2]
LEADING = [DEEPSEEK, *LATENT_MOE, GLM4_MOE]
ALL = [*DENSE, MIXTRAL, PHIMOE, OLMOE, QWEN2_MOE, QWEN3_MOE, *LEADING, MINIMAX_M2, GPT_OSS, LLAMA4]
SWITCHED = [QWEN2, QWEN3, QWEN2_MOE, QWEN3_MOE]
SPARSE = [QWEN2_MOE, QWEN3_MOE]
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
MXFP4 = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}


def without(config, *keys):
    return {key: value for key, value in config.items() if key not in keys}


def refusal(config, **changes):
    """The message with which a configuration is refused, empty if it is read."""
    try:
        read(config, **changes)
    except InputError as error:
        return str(error)
    return ""


def windows(model):
    """How many layers have each window."""
    counts = {getattr(mixer, "window", None): n for mixer, n in model.mixers.items()}
    return {window: n for window, n in counts.items() if window}


def dense_layers(model):
    """How many layers have a dense feed-forward block of each width."""
    return {part.ffn_size: n for part, n in model.feed_forwards.items() if part.kind == "dense"}


def first_mixer(model):
    return next(iter(model.mixers))


def counted(width, count):
    return {width: count} if count else {}


def test_a_value_of_another_kind_is_refused_by_its_key_or_changes_nothing():
    """Of each key of each family, also one missing: nothing is read to another shape unnoticed."""
    seen = set()
    for name in CONFIGS:
        config = flat(name)
        if name == "nvidia--MiniMax-M3-NVFP4":
            continue  # of which half is in its wrapper
        as_it_is = read(config)
        for key in config:
            if (config["model_type"], key) in seen or isinstance(config[key], dict):
                continue
            seen.add((config["model_type"], key))
            for value in ("x", -1):
                if message := refusal(config, **{key: value}):
                    assert key in message, (name, key, value)
                    assert "\n" not in message
                else:
                    assert read(config, **{key: value}) == as_it_is, (name, key, value)
    assert len(seen) > 1000


@listed
def test_the_longest_context_is_the_stretched_one(told, scaling, longest):
    llama = without(LLAMA, "max_position_embeddings", "rope_scaling") | scaling
    assert read(llama, max_position_embeddings=told).max_context_length == longest


def test_folder_or_file_gives_the_name(tmp_path):
    folder, path = tmp_path / "my-model", tmp_path / "my-mixtral.json"
    folder.mkdir()
    refused(r"config\.json", Architecture.from_hf_config, folder)
    for file, name in ((folder / "config.json", "my-model"), (path, "my-mixtral")):
        file.write_text(json.dumps(MIXTRAL), encoding="utf-8")
        assert Architecture.from_hf_config(file).name == load_architecture(file).name == name
    assert Architecture.from_hf_config(str(folder)) == load_architecture(folder / "config.json")


# Sliding windows


@listed
def test_windows_by_keys_lists_and_defaults(name, changes, expected):
    found = windows(read(plain(name) | changes))
    assert {str(window): n for window, n in found.items()} == expected


def test_a_window_with_a_switch_is_of_the_layers_above_a_number():
    for config in SWITCHED:
        keys = {"num_hidden_layers": 24, "sliding_window": 512, "max_window_layers": 2}
        for switch in ({}, {"use_sliding_window": False}):
            assert windows(read(without(config, "use_sliding_window"), **keys, **switch)) == {}
        for full in (0, 21, 24):
            switch = {"use_sliding_window": True, "max_window_layers": full}
            model = read(config | keys | switch)
            assert windows(model) == counted(512, 24 - full), config["model_type"]


# Nested configurations


def nested(text, **keys):
    vision = {"vision_config": {"hidden_size": 8}}
    return {"model_type": "llama4", "text_config": text, **vision, **keys}


def test_nested_text_config():
    assert read(nested(without(LLAMA4, "model_type"))) == read(LLAMA4)
    own = {"quantization_config": FP8}
    assert read(nested(LLAMA4, **own)) == read(nested(LLAMA4 | own)) == read(LLAMA4 | own)
    text = LLAMA4 | {"tie_word_embeddings": None}
    model = read(nested(text, torch_dtype="float16", tie_word_embeddings=True))
    assert (model.weight_dtype, model.has_tied_embeddings) == ("fp16", True)


@one_case(
    "config message",
    *((nested(text), "text_config: got") for text in (None, [], LLAMA, MIXTRAL)),
    (nested(LLAMA4 | {"torch_dtype": "bfloat16"}, torch_dtype="float16"), "text_config.torch"),
    (nested(LLAMA4 | {"quantization_config": MXFP4}, quantization_config=FP8),
     r" quantization_config: got .*text_config\.quantization_config"),
    (nested(LLAMA4, compression_config={"format": "dense"}), "compression_config"),
)  # fmt: skip
def test_wrappers_that_contradict_what_they_hold(config, message):
    assert re.search(message, refusal(config))


@one_case(
    "config key alias",
    (GPT_OSS, "num_experts_per_tok", "experts_per_token"),
    (MINIMAX_M2, "num_local_experts", "n_routed_experts"),
    (DEEPSEEK_V3, "moe_intermediate_size", "expert_ffn_hidden_size"),
    (LLAMA | {"torch_dtype": "bfloat16"}, "torch_dtype", "dtype"),
)
def test_two_names_of_one_thing_agree(config, key, alias):
    assert read(config, **{alias: config[key]}) == read(config)
    message = refusal(config, **{alias: "float16" if alias == "dtype" else 2 * config[key]})
    assert key in message
    assert alias in message


# Dense layers among sparse ones


@listed
def test_layers_that_are_dense_by_number_or_by_step(changes, num_dense):
    for config in SPARSE:
        model = read(config | {"num_hidden_layers": 24}, **changes)
        assert dense_layers(model) == counted(config["intermediate_size"], num_dense)


@listed
def test_leading_dense_layers(num_leading, frequency, num_dense):
    keys = {"first_k_dense_replace": num_leading, "moe_layer_freq": frequency}
    for config in LEADING:
        model = read(config, num_hidden_layers=8, **keys)
        width = config["intermediate_size"]
        assert dense_layers(model) == counted(width, num_dense), config["model_type"]
        assert model.num_layers == 8


def test_interleaved_dense_layers():
    bare = without(LLAMA4, "moe_layers", "interleave_moe_layer_step")
    bare |= {"intermediate_size_mlp": 16384}
    for num_dense, keys in (
        (0, {}),
        (39, {"interleave_moe_layer_step": 5}),
        (24, {"moe_layers": list(range(1, 48, 2)), "interleave_moe_layer_step": 2}),
        (46, {"moe_layers": [0, 47]}),
    ):
        assert dense_layers(read(bare, **keys)) == counted(16384, num_dense)


# Experts, attention, and prediction of several tokens


def test_shared_experts_by_number():
    for config in LEADING:
        for given, size in ((None, 0), (3, config["moe_intermediate_size"])):
            experts = read(config | {"n_shared_experts": given}).experts
            found = experts.num_shared_experts, experts.shared_expert_size
            assert found == (given or 0, size)


def test_groups_of_experts_by_the_method_that_uses_them():
    assert read(DEEPSEEK_V3).experts.groups_per_token == 4
    assert read(DEEPSEEK_V3, topk_method="greedy").experts.expert_groups == 1


def test_next_token_layers_are_left_out():
    for config in LEADING:
        bare = without(config, "num_nextn_predict_layers")
        assert read(bare).num_mtp_modules == 0
        for key in ("num_nextn_predict_layers", "num_mtp_layers"):
            assert read(bare, **{key: 1}) == replace(read(bare), num_mtp_modules=1)
    both = {"num_mtp_modules": 7, "num_nextn_predict_layers": 1}  # as MiniMax-M3 has it
    assert read(MINIMAX_M2, **both).num_mtp_modules == 7


# Missing keys


def test_head_dim_missing_or_null():
    """Of Qwen3, whose 64 heads make 80; rounded down in GLM, as engines and transformers do."""
    text_01 = CONFIGS["MiniMaxAI--MiniMax-Text-01"], 6144 // 64
    widths = (LLAMA, 128), (QWEN2, 64), (QWEN3, 128), (GLM4_MOE, 4096 // 96), text_01
    for config, head_dim in widths:
        missing = read(without(config, "head_dim"))
        assert first_mixer(missing).head_dim == head_dim
        assert read(config | {"head_dim": None}) == missing


def test_tie_word_embeddings():
    for config in ALL:
        missing = read(without(config, "tie_word_embeddings"))
        assert missing.has_tied_embeddings == (config is OPT), config["model_type"]
        for is_tied in (True, False):
            assert read(config, tie_word_embeddings=is_tied).has_tied_embeddings == is_tied


def test_num_key_value_heads_missing():
    wide = QWEN2 | {"num_attention_heads": 64, "head_dim": 14}
    found = {32: (LLAMA, QWEN3, wide), 8: (MISTRAL, MIXTRAL, GPT_OSS), 56: (OPT,), 16: (DEEPSEEK,)}
    for num_kv_heads, configs in found.items():
        for config in configs:
            bare = without(config, "num_key_value_heads")
            assert first_mixer(read(bare)).num_kv_heads == num_kv_heads, config["model_type"]


def test_every_size_is_needed():
    needed = {"hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"}
    needed |= {"n_routed_experts", "num_experts_per_tok", "num_local_experts", "v_head_dim"}
    needed |= {"moe_intermediate_size", "kv_lora_rank", "qk_nope_head_dim"}
    for config in ALL:
        bare = without(config, "experts_per_token")  # another name in some
        for key in config.keys() & needed:
            message = refusal(bare, **{key: None})
            assert f"config.json {key}: got None" in message, (config["model_type"], key)


# Families and keys that are not understood


NEAR = {"chatglm": "glm", "gpt2": "gpt_oss", "qwen3_5": "qwen3_5_text", "Mixtral": "mixtral"}
NEAR |= {"_text": "minimax_text_01", "": "afmoe.* more"}
"""Families that are not known, and what is named instead."""


@each_row("model_type", NEAR)
def test_unknown_family_is_refused_by_name(model_type):
    message = refusal(MIXTRAL, model_type=model_type)
    assert re.search(f"(model_type|text_config): got .*{NEAR[model_type]}", message), message


@each_row("kind", OTHER_TYPES["refused"])
def test_other_kind_of_layer_is_refused_by_name(kind):
    for model_type in OTHER_TYPES["refused"][kind]:
        message = refusal(MIXTRAL, model_type=model_type)
        assert f"model_type: got '{model_type}'" in message
        assert f"The {kind} of this family" in message


# Configurations that transformers saved again

VL = CONFIGS["Qwen--Qwen3-VL-30B-A3B-Instruct"]
OF_ENGINES = ("vllm--", "sglang--")
"""Names of classes that transformers lacks, or has of another model."""


def test_the_wrapper_says_whether_the_head_is_tied():
    """The head is the wrapper's; what is inside is a default of transformers."""
    for is_tied in (False, True):
        text = VL["text_config"] | {"tie_word_embeddings": not is_tied}
        model = read(VL, text_config=text, tie_word_embeddings=is_tied)
        assert model.has_tied_embeddings == is_tied


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
    script = Path(__file__).parents[2] / "calibration/resaved.py"
    command = [sys.executable, script, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (different,) = [line for line in done.stdout.splitlines() if ": differs" in line]
    assert different.startswith("transformers--inkling2: differs: expert_dtype None -> mxfp8")
    assert done.stdout.count(": equal") > 50
