"""Families of the reader of config.json: shapes counted elsewhere, plans of layers, refusals.

`configurations.json` holds, for each public configuration, the keys that matter and what was
counted on transformers' own model of it, built without weights: none of these numbers is ours.
"""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from configs import TABLE, flat, read
from rows import each_row
from shapes import without_fields

from specmodel.base.errors import InputError
from specmodel.base.naming import checkpoint
from specmodel.cost.deploying import deploy
from specmodel.models.architecture import Architecture, list_architectures, load_architecture
from specmodel.models.hf.family import families
from specmodel.models.hf.keys import table

OTHER_TYPES = table("other_model_types")
WRAPPERS = OTHER_TYPES["wrappers"]

READ, REFUSED = TABLE["read"], TABLE["refused"]
BY_NAME = {name: row for row in READ for name in row["names"]}


def first_name(row):
    return row["names"][0]


GLM_52, DEEPSEEK_32, QWEN_35 = (
    flat("zai-org--GLM-5.2"),
    flat("deepseek-ai--DeepSeek-V3.2"),
    flat("Qwen--Qwen3.5-35B-A3B", model_type="qwen3_5_moe_text"),
)


def token_bytes(model, **changes):
    model = model.with_changes("target", changes) if changes else model
    return float(model.sequence_bytes(np.array(2.0)) - model.sequence_bytes(np.array(1.0)))


# Shapes


def test_every_family_has_a_configuration_or_a_test_of_its_own():
    inner = [row["config"].get("text_config", row["config"]) for row in READ]
    named = (config["model_type"] for config in inner if "model_type" in config)
    counted = {model_type.removesuffix("_text") for model_type in named}
    published = {"deepseek", "deepseek_v2", "mistral", "mixtral"}
    read_as_another = {
        "bailing_moe",
        "pangu_ultra_moe",
        "sarvam_mla",
        "sarvam_moe",
        "mimo_v2",
        "longcat_flash_ngram",
        "inkling_model",
        "minimax_m1",
        "nemotron_h_puzzle",
    }
    assert set(families()) <= counted | published | read_as_another


@each_row("row", READ)
def test_parameters_caches_and_states_are_those_of_the_model(row):
    model = read(row["config"])
    assert model.total_parameters == pytest.approx(row["parameters"], rel=5e-4)
    gates_of_a_number = 2e-3  # one for each head, which the shape leaves out
    assert model.active_parameters == pytest.approx(row["active_parameters"], rel=gates_of_a_number)
    assert token_bytes(model) == row["token_bytes"]
    assert float(model.sequence_bytes(np.zeros(()))) == row["state_bytes"]


SHIPPED = {
    "llama-3.1-8b": "meta-llama--Meta-Llama-3.1-8B",
    "llama-3.1-70b": "meta-llama--Meta-Llama-3.1-70B",
    "qwen2-0.5b": "Qwen--Qwen2-0.5B-Instruct",
    "qwen3-32b": "Qwen--Qwen3-32B",
    "opt-30b": "facebook--opt-30b",
    "mixtral-8x7b": "mistralai--Mixtral-8x7B-v0.1",
    "phi-3.5-moe": "microsoft--Phi-3.5-MoE-instruct",
    "olmoe-1b-7b": "allenai--OLMoE-1B-7B-0924",
    "qwen1.5-moe-a2.7b": "Qwen--Qwen1.5-MoE-A2.7B-Chat",
    "deepseek-v2-lite": "blis--deepseek-v2-lite",
    "deepseek-v3": "deepseek-ai--DeepSeek-V3",
    "kimi-k2": "moonshotai--Kimi-K2-Instruct",
    "glm-4.5-air": "zai-org--GLM-4.5-Air",
    "gpt-oss-20b": "openai--gpt-oss-20b",
    "gpt-oss-120b": "openai--gpt-oss-120b",
    "llama-4-scout": "meta-llama--Llama-4-Scout-17B-16E-Instruct",
    "llama-4-maverick": "meta-llama--Llama-4-Maverick-17B-128E-Instruct",
    "qwen3.5-27b": "Qwen--Qwen3.5-27B",
    "qwen3.5-35b-a3b": "Qwen--Qwen3.5-35B-A3B",
    "qwen3.5-122b-a10b": "Qwen--Qwen3.5-122B-A10B",
    "qwen3.5-397b-a17b": "Qwen--Qwen3.5-397B-A17B",
    "qwen3.6-27b": "nvidia--Qwen3.6-27B-NVFP4",
    "qwen3.6-35b-a3b": "nvidia--Qwen3.6-35B-A3B-NVFP4",
    "qwen3.8-2.4t-a95b": "Qwen--Qwen3.8-2.4T-A95B",
    "qwen3-next-80b-a3b": "transformers--qwen3_next",
    "deepseek-v3.1": "nvidia--DeepSeek-V3.1-NVFP4",
    "deepseek-v3.2": "deepseek-ai--DeepSeek-V3.2",
    "glm-5": "zai-org--GLM-5",
    "glm-5.1": "nvidia--GLM-5.1-NVFP4",
    "glm-5.2": "zai-org--GLM-5.2",
    "glm-5.3": "zai-org--GLM-5.3",
    "kimi-k2.5": "moonshotai--Kimi-K2.5",
    "kimi-k2.6": "nvidia--Kimi-K2.6-NVFP4",
    "kimi-k2.7-code": "nvidia--Kimi-K2.7-Code-NVFP4",
    "minimax-m2.7": "MiniMaxAI--MiniMax-M2.7",
    "minimax-m3": "MiniMaxAI--MiniMax-M3",
    "minimax-text-01": "MiniMaxAI--MiniMax-Text-01",
    "gemma-4-26b-a4b": "google--gemma-4-26B-A4B",
    "gemma-4-31b": "nvidia--Gemma-4-31B-IT-NVFP4",
    "mimo-v2-flash": "XiaomiMiMo--MiMo-V2-Flash",
    "step-3.7-flash": "transformers--step3p7",
    "nemotron-3-nano-30b-a3b": "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
    "nemotron-3-super-120b-a12b": "nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-FP8",
    "nemotron-3-ultra-550b-a55b": "nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-FP8",
    "kimi-k3": "moonshotai--Kimi-K3",
    "kimi-linear-48b-a3b": "transformers--kimi_linear",
    "glm-5.3-flash": "zai-org--GLM-5.3-Flash",
    "lfm2-8b-a1b": "LiquidAI--LFM2-8B-A1B",
    "longcat-flash": "transformers--longcat_flash",
    "deepseek-v4.1-flash": "deepseek-ai--DeepSeek-V4.1-Flash",
    "mimo-v2.5": "XiaomiMiMo--MiMo-V2-Flash",
    "qwen3.8-27b": "Qwen--Qwen3.5-27B",
    "ling-3.0-flash": "transformers--bailing_hybrid-saved",
    "laguna-xs.2": "transformers--laguna",
    "inkling-2-small": "transformers--inkling2",
    "mistral-small-4": "transformers--mistral4",
    "qwen3-coder-30b-a3b": "Qwen--Qwen3-30B-A3B",
    "qwen3-4b": "Qwen--Qwen3-VL-4B-Instruct",
    "qwen3-8b": "Qwen--Qwen3-8B",
    "qwen3-14b": "blis--qwen3-14b",
    "qwen3-vl-30b-a3b": "Qwen--Qwen3-VL-30B-A3B-Instruct",
    "nemotron-3.5-lightning-30b-a3b": "nvidia--NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4",
    "ling-flash-2.0": "vllm--bailing_moe_v2",
}
WITH_MODULES = {
    "hy3": "transformers--hy_v3",
    "glm-4.7-flash": "transformers--glm4_moe_lite",
    "qwen3.8-flash-next": "Qwen--Qwen3.8-Flash-Next",
    "inkling": "transformers--inkling",
}
"""Those whose modules for multi-token prediction engines load, but no key of the class tells."""


@each_row("name", SHIPPED)
def test_what_ships_is_what_the_configuration_says(name):
    shipped, model = load_architecture(name), read(BY_NAME[SHIPPED[name]]["config"])
    for shape in (lambda model: model.mixers, lambda model: model.feed_forwards):
        assert shape(shipped) == shape(model)
    names = ("hidden_size", "vocabulary_size", "has_tied_embeddings", "num_mtp_modules")
    for key in (*names, "residuals", "shares_mtp_index"):
        assert getattr(shipped, key) == getattr(model, key)
    assert shipped.mtp_layer == model.mtp_layer
    assert shipped.num_norms == model.num_norms


@pytest.mark.parametrize("name", WITH_MODULES)
def test_layers_that_ship_are_what_the_configuration_says(name):
    shipped, model = load_architecture(name), read(BY_NAME[WITH_MODULES[name]]["config"])
    names = (
        "hidden_size",
        "vocabulary_size",
        "layers",
        "residuals",
        "ngram_inputs",
        "ngram_memory",
    )
    for key in names:
        assert getattr(shipped, key) == getattr(model, key)
    assert shipped.num_mtp_modules > 0 == model.num_mtp_modules


@pytest.mark.parametrize(
    ("typed", "known"),
    [
        ("deepseek-ai/DeepSeek-V3.2-Foo", "deepseek-v3.2"),
        ("Kimi-K2.7-Thinking", "kimi-k2.7-code"),
        ("LiquidAI/LFM2.5-8B-A1B", "lfm2-8b-a1b"),
    ],
)
def test_what_is_no_name_is_told_the_nearest(typed, known):
    with pytest.raises(InputError, match=f"got '{typed}'.*{known}"):
        load_architecture(typed)


@pytest.mark.parametrize("row", REFUSED, ids=first_name)
@pytest.mark.parametrize("nested", [True, False])
def test_what_is_not_understood_is_refused_by_name(row, nested):
    model_type, key = row["model_type"], row["key"]
    config = QWEN_35 | {"model_type": model_type}
    if nested:
        config["text_config"] = QWEN_35
    with pytest.raises(InputError, match=rf"json {key}: got ") as error:
        read(config)
    assert "\n" not in str(error.value)
    kinds = [kind for kind, names in OTHER_TYPES["refused"].items() if model_type in names]
    expected = f"this has {kinds[0]}, not known here" if kinds else WRAPPERS[model_type][0]
    assert expected in str(error.value)


@pytest.mark.parametrize("prefix", ["", "nvidia--model_"])
def test_a_record_of_quantisation_beside_a_configuration_has_its_prefix(tmp_path, prefix):
    path = tmp_path / f"{prefix}config.json"
    path.write_text(json.dumps(flat("Qwen--Qwen3-8B")), encoding="utf-8")
    other = tmp_path / f"other_{prefix}hf_quant_config.json"
    beside = tmp_path / f"{prefix}hf_quant_config.json"
    for file, dtype in ((other, "bf16"), (beside, "fp8")):
        record = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
        file.write_text(json.dumps(record), encoding="utf-8")
        assert Architecture.from_hf_config(path).weight_dtype == dtype


# Wrappers


def nested(outer, inner, config, **keys):
    text = {key: value for key, value in config.items() if key != "model_type"}
    vision = {"vision_config": {"hidden_size": 8}, "audio_config": {"hidden_size": 8}}
    return {"model_type": outer, "text_config": {"model_type": inner} | text, **vision, **keys}


def plain(inner):
    """A configuration of a language model that wrappers may hold."""
    if inner == "qwen3_omni_moe_text":
        thinker = BY_NAME["Qwen--Qwen3-Omni-30B-A3B"]["config"]["thinker_config"]
        return thinker["text_config"]
    names = {
        "mistral": "blis--mistral-nemo-instruct-2407",
        "ministral3": "transformers--ministral3",
        "mistral4": "transformers--mistral4",
        "deepseek_v3": "deepseek-ai--DeepSeek-V3",
        "kimi_k2": "moonshotai--Kimi-K2-Instruct",
        "muse_glimmer_text": "meta-models--Muse-Glimmer-30B",
        "step3p5": "transformers--step3p7",
        "glm4v_text": "transformers--glm4v",
        "glm4v_moe_text": "transformers--glm4v_moe",
        "gemma3_text": "transformers--gemma3_text",
        "gemma4_text": "google--gemma-4-26B-A4B",
        "llama4_text": "meta-llama--Llama-4-Scout-17B-16E-Instruct",
        "qwen3_vl_text": "Qwen--Qwen3-VL-8B-Instruct",
        "qwen3_vl_moe_text": "Qwen--Qwen3-VL-30B-A3B-Instruct",
        "qwen3_5_text": "Qwen--Qwen3.5-27B",
        "qwen3_5_moe_text": "Qwen--Qwen3.5-35B-A3B",
        "kimi_linear": "transformers--kimi_linear",
        "bailing_hybrid": "transformers--bailing_hybrid",
        "inkling_text": "transformers--inkling",
        "inkling_model": "transformers--inkling",
        "qwen4_exp_text": "Qwen--Qwen3.8-Flash-Next",
        "step5": "vllm--step5",
        "interns1_pro_text": "vllm--interns1_pro",
        "qwen3_moe": "Qwen--Qwen3-30B-A3B",
        "moondream3_text": "vllm--moondream3",
        "nemotron_h": "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
        "lfm2": "LiquidAI--LFM2-1.2B",
        "lfm2_moe": "LiquidAI--LFM2-8B-A1B",
        "glm5_next_text": "zai-org--GLM-5.3-Flash",
        "minimax_m3": "MiniMaxAI--MiniMax-M3",
        "minimax_m3_text": "MiniMaxAI--MiniMax-M3",
        "minimax_m3_vl_text": "transformers--minimax_m3_vl_text",
        "deepseek_v41_text": "deepseek-ai--DeepSeek-V4.1-Flash",
    }
    name = names.get(inner, f"transformers--{inner.removesuffix('_text')}")
    return flat(name, model_type=inner)


PAIRS = [(outer, inner) for outer, inners in WRAPPERS.items() for inner in inners]


@each_row(("outer", "inner"), PAIRS)
def test_wrapped_and_plain_are_one_shape(outer, inner):
    config = plain(inner)
    labels = {"name", "source"}
    wrapped, bare = read(nested(outer, inner, config)), read(config)
    assert without_fields(wrapped, labels) == without_fields(bare, labels)


@each_row("outer", WRAPPERS)
@each_row("text", [None, {"model_type": "gemma9_text"}])
def test_wrapped_family_must_be_known(outer, text):
    config = {"model_type": outer, "hidden_size": 8}
    with pytest.raises(InputError, match=rf"text_config: got .*{WRAPPERS[outer][0]}"):
        read(config | ({} if text is None else {"text_config": text}))


def test_keys_beside_the_wrapped_model():
    key, inner, outer = "dtype", "bfloat16", "float16"
    config = plain("qwen3_5_text") | {key: None}
    text = {name: value for name, value in config.items() if value is not None}
    assert read(nested("qwen3_5", "qwen3_5_text", text, **{key: inner}))
    with pytest.raises(InputError, match=rf"{key}: got {outer!r}; .*text_config\.{key}"):
        read(nested("qwen3_5", "qwen3_5_text", text | {key: inner}, **{key: outer}))


@pytest.mark.parametrize("attention", ["latent", "grouped"])
def test_sarvam_is_as_ling_and_deepseek(attention):
    """As SarvamMoE and SarvamMLA of vLLM 0.33 read their keys: a dense layer unless one says."""
    ling = flat("vllm--bailing_moe_v2", first_k_dense_replace=None)
    if attention == "grouped":
        other, model_type = read(ling, first_k_dense_replace=1), "sarvam_moe"
    else:
        ling |= {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64}
        ling = {
            key: ling[key] for key in ling if key not in ("use_sliding_window", "max_window_layers")
        }
        ling |= {"v_head_dim": 128, "moe_shared_expert_intermediate_size": 1024}
        same = {key: ling[key] for key in ling if not key.startswith(("moe_sh", "moe_ro", "score"))}
        other = read(
            same | {"model_type": "deepseek_v2", "q_lora_rank": 0}, first_k_dense_replace=1
        )
        model_type = "sarvam_mla"
    own = read(ling, model_type=model_type)
    assert without_fields(own, {"name", "source"}) == without_fields(other, {"name", "source"})


# Names of one thing


@pytest.mark.parametrize(
    ("name", "key", "alias"),
    [
        ("deepseek-ai--DeepSeek-V3", "n_routed_experts", "num_experts"),
        ("deepseek-ai--DeepSeek-V3", "n_shared_experts", "num_shared_experts"),
        ("deepseek-ai--DeepSeek-V3", "num_experts_per_tok", "moe_topk"),
        ("deepseek-ai--DeepSeek-V3", "moe_intermediate_size", "expert_ffn_hidden_size"),
        ("transformers--ernie4_5_moe", "moe_num_shared_experts", "n_shared_experts"),
    ],
)
def test_a_key_by_another_name(name, key, alias):
    config = {k: v for k, v in flat(name).items() if k not in (key, alias)}
    value = BY_NAME[name]["config"][key]
    expected = read(flat(name))
    assert read(config | {alias: value}) == expected
    assert read(config | {key: value, alias: value}) == expected
    with pytest.raises(InputError) as error:
        read(config | {key: value, alias: value + 1})
    assert re.search(rf"{key}|{alias}: got {value + 1}.*another name", str(error.value))
    with pytest.raises(InputError, match=f"{alias}: got 'many'"):
        read(config | {alias: "many"})


@pytest.mark.parametrize("key", ["moe_topk", "num_shared_expert", "moe_intermediate_size"])
def test_a_number_for_each_layer_must_be_the_same_in_all(key):
    config = flat("transformers--hunyuan_v1_moe")
    value = config[key][0]
    assert read(config | {key: value}) == read(config)
    for listed in ([value] * 31 + [value + 1], [value] * 31, [], ["8"] * 32, [True] * 32):
        with pytest.raises(InputError, match=f"{key}: got"):
            read(config, **{key: listed})


# Plans of layers


def mixers_by_kind(model):
    counts = {}
    for mixer, count in model.mixers.items():
        counts[mixer.kind] = counts.get(mixer.kind, 0) + count
    return counts


def test_one_layer_in_four_attends():
    assert mixers_by_kind(read(QWEN_35)) == {"gated_delta_net": 30, "attention": 10}
    by_rule = QWEN_35 | {"layer_types": None}
    assert read(by_rule) == read(by_rule, full_attention_interval=None) == read(QWEN_35)
    halves = read(by_rule, full_attention_interval=2)
    assert mixers_by_kind(halves) == {"gated_delta_net": 20, "attention": 20}
    plan = ["linear_attention", "full_attention", "linear_attention", "linear_attention"] * 10
    assert mixers_by_kind(read(QWEN_35, layer_types=plan, full_attention_interval=None))


def test_attention_of_gated_families_has_a_gate():
    gates = {mixer.has_output_gate for mixer in read(QWEN_35).mixers if mixer.kind == "attention"}
    assert gates == {True}
    bare = read(QWEN_35, attn_output_gate=False)
    head = 16 * 256 * 2048 * 10
    assert read(QWEN_35).total_parameters - bare.total_parameters == head


@each_row(
    ("name", "changes", "message"),
    [
        ("Qwen--Qwen3.5-35B-A3B", {"layer_types": ["full_attention"] * 39}, "got '39 entries'"),
        (
            "Qwen--Qwen3.5-35B-A3B",
            {"layer_types": ["full_attention", "mamba"] * 20},
            "layer_types: got 'mamba'; expected full_attention or linear_attention .*layer 1",
        ),
        (
            "Qwen--Qwen3.5-35B-A3B",
            {"layer_types": ["linear_attention"] * 39 + ["full_attention"]},
            "layer_types: .*full_attention_interval = 4",
        ),
        (
            "Qwen--Qwen3.5-35B-A3B",
            {"full_attention_interval": 100, "layer_types": None},
            "full_attention_interval: got 100; expected one that makes a layer of 40 full",
        ),
        (
            "Qwen--Qwen3.5-35B-A3B",
            {"full_attention_interval": None, "layer_types": ["linear_attention"] * 40},
            "layer_types: got .*expected one that makes a layer of 40 full",
        ),
        ("transformers--exaone4", {"sliding_window_pattern": "LLGL"}, "_pattern: got 'LLGL'"),
        ("transformers--exaone4", {"sliding_window_pattern": 5}, "layer_types: .*_pattern = 5"),
        ("transformers--mellum", {"layer_types": None}, "layer_types: got None; expected 28"),
        ("zai-org--GLM-5.2", {"mlp_layer_types": ["dense"] * 78}, "first_k_dense_replace = 3"),
        ("zai-org--GLM-5.2", {"mlp_layer_types": ["mlp"] * 78}, "mlp_layer_types: got 'mlp'"),
        ("transformers--ernie4_5_moe", {"moe_layer_end_index": 0}, "start_index = 1 to 27"),
    ],
)
def test_plans_that_do_not_add_up(name, changes, message):
    config = flat(name)
    if "text_config" in BY_NAME[name]["config"]:
        config["model_type"] = BY_NAME[name]["config"]["text_config"]["model_type"]
    with pytest.raises(InputError, match=message) as error:
        read(config, **changes)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("keys", "num_dense"),
    [
        ({}, 1),
        ({"moe_layer_start_index": 3}, 3),
        ({"moe_layer_end_index": 25}, 3),
        ({"moe_layer_start_index": 0, "moe_layer_interval": 2}, 14),
    ],
)
def test_layers_that_route_from_start_to_end(keys, num_dense):
    model = read(flat("transformers--ernie4_5_moe"), **keys)
    dense = [n for part, n in model.feed_forwards.items() if part.kind == "dense"]
    assert sum(dense) == num_dense


def test_listed_layers_that_route_need_no_other_key():
    bare = {key: value for key, value in GLM_52.items() if key != "first_k_dense_replace"}
    assert read(bare) == read(GLM_52)
    with pytest.raises(InputError, match="first_k_dense_replace: got None"):
        read(bare, mlp_layer_types=None)


@pytest.mark.parametrize(
    ("name", "num_dense"),
    [
        ("transformers--laguna", 1),
        ("transformers--solar_open", 0),
        ("transformers--hy_v3", 1),
        ("transformers--dots1", 0),
    ],
)
def test_layers_that_are_dense_where_no_key_says_it(name, num_dense):
    config = {"intermediate_size": 64} | flat(name)
    model = read(config, first_k_dense_replace=None, mlp_layer_types=None)
    dense = [n for part, n in model.feed_forwards.items() if part.kind == "dense"]
    assert sum(dense) == num_dense
    model = read(config, first_k_dense_replace=5, mlp_layer_types=None)
    dense = [n for part, n in model.feed_forwards.items() if part.kind == "dense"]
    assert sum(dense) == 5


@pytest.mark.parametrize(("first", "num_windowed"), [(None, 0), (0, 62)])
def test_windows_of_the_upper_layers(first, num_windowed):
    config = flat("transformers--dots1", layer_types=None, sliding_window=256)
    windows = {mixer.window: 0 for mixer in read(config, max_window_layers=first).mixers}
    for mixer, count in read(config, max_window_layers=first).mixers.items():
        windows[mixer.window] += count
    assert windows.get(256, 0) == num_windowed


@pytest.mark.parametrize(
    ("pattern", "num_full"),
    [
        ("LLLG", 8),
        ("LG", 16),
    ],
)
def test_windows_by_a_pattern(pattern, num_full):
    config = flat("transformers--exaone4", layer_types=None)
    model = read(config, sliding_window_pattern=pattern)
    windows = {mixer.window: count for mixer, count in model.mixers.items()}
    assert windows == {4096: 32 - num_full, None: num_full}


# Heads that differ by layer

STEP, LAGUNA = flat("transformers--step3p7", model_type="step3p5"), flat("transformers--laguna")


def heads_by_window(model):
    return {(mixer.window, mixer.num_heads): count for mixer, count in model.mixers.items()}


def test_windowed_layers_have_heads_of_their_own():
    assert heads_by_window(read(STEP)) == {(None, 64): 12, (512, 96): 33}
    assert heads_by_window(read(LAGUNA)) == {(None, 48): 10, (512, 64): 30}
    by_key = {"attention_other_setting": None, "num_sliding_attention_heads": 96}
    each = {str(i): {"num_attention_heads": 96} for i in range(45) if i % 4}
    assert read(STEP, **by_key) == read(STEP) == read(STEP, per_layer_config=each)
    listed = STEP["layer_types"]
    assert len(listed) == 48
    assert read(STEP, layer_types=listed[:45]) == read(STEP)
    routed = [int(number) for number in STEP["moe_layers_enum"].split(",")]
    types = ["dense"] * 3 + ["sparse"] * 42
    assert read(STEP, moe_layers_enum=routed) == read(STEP)
    assert read(STEP, moe_layers_enum=None, mlp_layer_types=types) == read(STEP)
    assert read(STEP, mlp_layer_types=[*types, "dense", "dense", "dense"]) == read(STEP)
    untold = read(STEP, attention_other_setting=None)  # as in transformers and vLLM
    assert heads_by_window(untold) == {(None, 64): 12, (512, 64): 33}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attention_other_setting": {}}, "attention_other_setting: got {}"),
        ({"attention_other_setting": "x"}, "expected an object"),
        ({"attention_other_setting": {"num_attention_heads": 90}}, "a multiple of num_key"),
        ({"per_layer_config": {"1": {"num_attention_heads": 64}}}, "per_layer_config: got"),
        ({"layer_types": ["full_attention"] * 47}, "layer_types: got '47 entries'"),
        ({"moe_layers_enum": "3-44"}, "moe_layers_enum: got '3-44'"),
        ({"mlp_layer_types": ["sparse"] * 45}, "mlp_layer_types: .*moe_layers_enum"),
    ],
)
def test_heads_of_windows_that_do_not_add_up(changes, message):
    with pytest.raises(InputError, match=message):
        read(STEP, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_attention_heads_per_layer": [48] * 39}, "per_layer: got .*; expected 40 whole"),
        ({"num_attention_heads_per_layer": [48] * 39 + [50]}, "multiples of num_key_value_heads"),
        ({"gating": "per-element"}, "gating: got 'per-element'"),
    ],
)
def test_listed_heads_that_do_not_add_up(changes, message):
    with pytest.raises(InputError, match=message):
        read(LAGUNA, **changes)
    assert read(LAGUNA, num_attention_heads_per_layer=None).num_layers == 40


KEYS_THAT_CHANGE_SHAPES = {
    "num_attention_heads_per_layer": [32] * 36,
    "attention_other_setting": {"num_attention_heads": 96},
    "num_kv_shared_layers": 4,
    "kv_source_layer_ids": [2, 8],
    "layers_block_type": ["mamba", "attention"] * 18,
    "hc_mult": 4,
    "ngram_vocab_size_ratio": 78,
}


@pytest.mark.parametrize("key", KEYS_THAT_CHANGE_SHAPES)
def test_key_that_another_family_has_is_refused(key):
    with pytest.raises(InputError, match=f"{key}: got .*its meaning in a qwen3 model"):
        read(flat("Qwen--Qwen3-8B"), **{key: KEYS_THAT_CHANGE_SHAPES[key]})


# Indexers


def indexers(model):
    counts = {True: 0, False: 0}
    for mixer, count in model.mixers.items():
        counts[mixer.has_indexer] += count
    return counts[True], counts[False]


def test_layers_share_an_indexer():
    assert indexers(read(GLM_52)) == (21, 57)
    assert indexers(read(DEEPSEEK_32)) == (61, 0)
    by_rule = {"indexer_types": None, "index_topk_freq": 4, "index_skip_topk_offset": 3}
    assert indexers(read(GLM_52, **by_rule)) == (21, 57)
    assert read(GLM_52, **by_rule) == read(GLM_52)
    letters = "".join(kind[0].upper() for kind in GLM_52["indexer_types"])
    assert read(GLM_52, indexer_types=None, index_topk_pattern=letters) == read(GLM_52)
    names = {"indexer_types": None, "index_topk_pattern": GLM_52["indexer_types"]}
    assert read(GLM_52, **names) == read(GLM_52)
    two_first = {"indexer_types": None, "index_topk_freq": 4, "index_skip_topk_offset": None}
    assert indexers(read(GLM_52, **two_first)) == (21, 57)
    two_first = {"indexer_types": None, "index_topk_freq": 3, "index_skip_topk_offset": None}
    assert indexers(read(GLM_52, **two_first)) == (2 + 76 // 3, 76 - 76 // 3)
    every = {"indexer_types": None, "index_topk_freq": None}
    assert indexers(read(GLM_52, **every)) == (78, 0)


@pytest.mark.parametrize("key", ["index_topk", "index_n_heads", "index_head_dim", "q_lora_rank"])
def test_an_indexer_needs_its_keys(key):
    for config in (GLM_52, DEEPSEEK_32):
        with pytest.raises(InputError, match=f"json {key}: got None"):
            read(config, **{key: None})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"indexer_types": ["shared"] * 78}, "indexer_types: .*indexer in the first layer"),
        ({"indexer_types": ["full", "none"] * 39}, "indexer_types: got 'none'"),
        (
            {"indexer_types": None, "index_topk_pattern": "FS"},
            "index_topk_pattern: got '2 entries'",
        ),
        ({"index_topk_freq": 2}, "indexer_types: got .* what index_topk_freq = 2 says"),
        ({"index_topk_pattern": "F" * 78}, "indexer_types: got .* what index_topk_pattern = 'F"),
    ],
)
def test_indexers_that_do_not_add_up(changes, message):
    with pytest.raises(InputError, match=message):
        read(GLM_52, **changes)


@pytest.mark.parametrize(
    "key",
    [
        "index_topk",
        "indexer_types",
    ],
)
def test_an_indexer_of_another_family_is_refused(key):
    with pytest.raises(InputError, match=f"{key}: got 4"):
        read(flat("deepseek-ai--DeepSeek-V3"), **{key: 4})


# Linear layers


@pytest.mark.parametrize(
    "key",
    [
        "linear_num_key_heads",
        "linear_num_value_heads",
        "linear_key_head_dim",
        "linear_value_head_dim",
        "linear_conv_kernel_dim",
    ],
)
def test_a_linear_layer_needs_its_keys(key):
    with pytest.raises(InputError, match=f"{key}: got None"):
        read(QWEN_35, **{key: None})


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (None, "fp32"),
    ],
)
def test_dtype_of_states(value, dtype):
    model = read(QWEN_35, mamba_ssm_dtype=value)
    assert {m.state_dtype for m in model.mixers if m.kind == "gated_delta_net"} == {dtype}


@pytest.mark.parametrize(("degree", "is_cut"), [(16, True), (3, False)])
def test_tensor_parallelism_that_does_not_cut_linear_heads(tmp_path, degree, is_cut):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(QWEN_35), encoding="utf-8")
    names = {"hardware": "h200_sxm", "drafter": "ngram", "target": path}
    if is_cut:
        assert deploy(**names, tensor_parallel=degree)
        return
    with pytest.raises(InputError, match=f"tensor_parallel: got {degree}"):
        deploy(**names, tensor_parallel=degree)


def test_linear_heads_limit_tensor_parallelism_where_attention_would_not(tmp_path):
    path = tmp_path / "config.json"
    config = QWEN_35 | {"linear_num_key_heads": 4, "linear_num_value_heads": 4}
    path.write_text(json.dumps(config), encoding="utf-8")
    names = {"hardware": "h200_sxm", "drafter": "ngram", "target": path}
    with pytest.raises(InputError, match=r"tensor_parallel: got 8; .*gated delta net.*1, 2, 4"):
        deploy(**names, tensor_parallel=8)


# Every configuration in a folder

INCOMPLETE = [
    "nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4",
    "nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-NVFP4",
]
"""Whose records in the package leave out the list without which engines read no NVFP4."""


def configurations():
    """Configurations in the folder that a variable names, and in the package of tables."""
    folder = os.environ.get("SPECMODEL_HF_CONFIGS")
    found = sorted(Path(folder).glob("*/config.json")) if folder else []
    package = pytest.importorskip("aiconfigurator_core")
    tables = Path(package.__file__).parent / "model_configs"
    found += [file for file in sorted(tables.glob("*_config.json")) if "_hf_quant" not in file.name]
    return found


def test_ids_of_checkpoints_name_shipped_models_of_their_size():
    ids = {name.replace("--", "/", 1): row["parameters"] for name, row in BY_NAME.items()}
    told = {typed: checkpoint(typed, list_architectures()) for typed in ids}
    named = {typed: found[0] for typed, found in told.items() if found}
    assert len(named) > 90
    for typed, name in named.items():
        size = load_architecture(name).total_parameters
        assert size == pytest.approx(ids[typed], rel=6e-3), typed


@pytest.mark.slow
@pytest.mark.dataset
def test_every_configuration_is_read_as_counted_or_refused_by_its_key():
    refused = {name: row["key"] for row in REFUSED for name in row["names"]}
    refused |= dict.fromkeys(INCOMPLETE, "quantization.exclude_modules")
    without_count = {"deepseek-ai--deepseek-moe-16b-base"}
    wrong, seen = [], 0
    for file in configurations():
        is_folder = file.name == "config.json"
        name = file.parent.name if is_folder else file.name.removesuffix("_config.json")
        name = name.replace("__", "--")
        try:
            model = Architecture.from_hf_config(file)
        except InputError as error:
            if f"json {refused.get(name)}: " not in str(error):
                wrong.append(f"{name}: {error}")
            continue
        seen += 1
        if name in without_count:
            continue
        row = BY_NAME.get(name)
        if row is None or model.total_parameters != pytest.approx(row["parameters"], rel=5e-4):
            wrong.append(f"{name}: {model.total_parameters}")
        elif float(model.sequence_bytes(np.zeros(()))) != row["state_bytes"]:
            wrong.append(f"{name}: state")
    assert wrong == []
    assert seen > 50


# Blocks for multi-token prediction


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("mtp_use_dedicated_embeddings", True),
        ("mtp_layer_types", ["linear_attention"]),
        ("mtp_mlp_layer_types", ["dense"]),
    ],
)
def test_a_block_that_is_not_like_the_target_is_refused(key, value):
    with pytest.raises(InputError, match=rf"config.json {key}: got .*(true|false|full|sparse)"):
        read(QWEN_35, **{key: value})


def test_a_block_that_is_like_the_target_is_read():
    plain = read(QWEN_35)
    kinds = {"mtp_layer_types": ["full_attention"], "mtp_mlp_layer_types": ["sparse"]}
    assert read(QWEN_35, mtp_use_dedicated_embeddings=False, **kinds) == plain
    named = {"mtp_layer_types": ["deepseek_sparse_attention"]}
    assert read(GLM_52, **named) == read(GLM_52)


HY4, LARGE4, DOTS = (
    flat(f"transformers--{name}") for name in ("hy_v4", "mistral_large4", "dots3_note")
)
FLASH_NEXT, STEP5 = flat("Qwen--Qwen3.8-Flash-Next"), flat("vllm--step5")
HY4["model_type"], STEP5["model_type"] = "hy_v4", "step5"
LARGE4["model_type"], DOTS["model_type"] = "mistral_large4_text", "dots3_note_text"
FLASH_NEXT["model_type"] = "qwen4_exp_text"


@pytest.mark.parametrize(("config", "changes", "match"), [
    (HY4, {"gated_mla": False}, "gated_mla: got False; .*true"),
    (HY4, {"gating_type": "headwise"}, "gating_type: got 'headwise'; .*elementwise"),
    (LARGE4, {"kv_source_layers": [0] * 72}, "kv_source_layers: got .*0 to 71"),
    (DOTS, {"per_layer_config": {"2": {"v_head_dim": 64}}}, "per_layer_config: got .*windowed"),
    (FLASH_NEXT, {"indexer_kv_heads": 2}, "indexer_kv_heads: got 2; .*1"),
    (FLASH_NEXT, {"ple_layer_ids": [49]}, r"ple_layer_ids: got \[49\]; .*from 1 to 48"),
    (FLASH_NEXT, {"layer_types": ["linear_attention"] * 48}, "layer_types: got"),
    (STEP5, {"sparse_config": {"window": 8}}, "sparse_config window: got 8; .*no such key"),
    (STEP5, {"swa_num_attention_heads": 90}, "num_key_value_heads|num_attention_groups"),

])  # fmt: skip
def test_what_is_not_known_of_new_families_is_named(config, changes, match):
    with pytest.raises(InputError, match=match) as error:
        read(config, **changes)
    assert "\n" not in str(error.value)


def test_other_ways_of_saying_the_same():
    """Indexers of Hy4 as its class lists them; heads of Step-5's windows; dots3 by its own keys."""
    labels = {"name", "source"}
    other = {"attention_type": "sliding_attention", "num_attention_heads": 96, "head_dim": 128}
    by_setting = {"attention_other_setting": other | {"num_attention_groups": 8}}
    own = dict.fromkeys(("per_layer_config", "sliding_window")) | {"sliding_window_size": 512}
    for config, changes in (
        (HY4, {"indexer_types": None}),
        (LARGE4, {"no_rope_layers": None}),
        (STEP5, by_setting | {"swa_num_attention_heads": None}),
        (DOTS, own | {"swa_kv_lora_rank": 1024}),
    ):
        changed = without_fields(read(config, **changes), labels)
        assert changed == without_fields(read(config), labels)


def test_pangu_is_as_deepseek():
    config = flat("deepseek-ai--DeepSeek-V3", quantization_config=None)
    own = read(config, model_type="pangu_ultra_moe", sandwich_norm=True)
    labels = {"name", "source"}
    assert without_fields(own, labels) == without_fields(read(config), labels)


def test_step5_without_selected_blocks_and_tables_in_8_bits():
    dense = read(STEP5, sparse_config={"enabled": False})
    assert token_bytes(dense) == token_bytes(read(STEP5)) - 12 * 256 / 8
    assert read(FLASH_NEXT, ple_embedding_dtype="float8_e4m3fn").ngram_memory.row_dtype == "fp8"
    assert read(FLASH_NEXT, ple_layer_ids=None).ngram_memory is None
    keys = ("n_heads", "kv_heads", "head_dim", "budget", "compress_ratio")
    whole = read(FLASH_NEXT, **dict.fromkeys(f"indexer_{key}" for key in keys))
    assert token_bytes(whole) == token_bytes(read(FLASH_NEXT)) - 12 * 64
