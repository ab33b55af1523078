"""Families of the reader of config.json: shapes counted elsewhere, plans of layers, refusals.

`configurations.json` holds, for each public configuration, the keys that matter and what was
counted on transformers' own model of it, built without weights: none of these numbers is ours.
"""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from configs import TABLE, flat, kinds, read
from printed import refused
from rows import each_row, listed, rows_of
from shapes import without_fields

from specmodel import Architecture, InputError, list_architectures, load_architecture
from specmodel.core.models.checkpoints import checkpoint
from specmodel.core.models.hf.family import families
from specmodel.core.models.hf.keys import table

OTHER_TYPES = table("other_model_types")
WRAPPERS = OTHER_TYPES["wrappers"]

READ, REFUSED = TABLE["read"], TABLE["refused"]
BY_NAME = {name: row for row in READ for name in row["names"]}


GLM_52, DEEPSEEK_32 = flat("zai-org--GLM-5.2"), flat("deepseek-ai--DeepSeek-V3.2")
QWEN_35 = flat("Qwen--Qwen3.5-35B-A3B", model_type="qwen3_5_moe_text")


def token_bytes(model, **changes):
    model = model.with_changes("target", changes) if changes else model
    return float(model.sequence_bytes(np.array(2.0)) - model.sequence_bytes(np.array(1.0)))


# Shapes


def test_every_family_has_a_configuration_or_a_test_of_its_own():
    inner = [row["config"].get("text_config", row["config"]) for row in READ]
    named = (config["model_type"] for config in inner if "model_type" in config)
    counted = {model_type.removesuffix("_text") for model_type in named}
    published = {"deepseek", "deepseek_v2", "mistral", "mixtral"}
    read_as_another = {"bailing_moe", "pangu_ultra_moe", "sarvam_mla", "sarvam_moe", "mimo_v2"}
    read_as_another |= {"longcat_flash_ngram", "inkling_model", "minimax_m1", "nemotron_h_puzzle"}
    assert set(families()) <= counted | published | read_as_another


@each_row("row", READ)
def test_parameters_caches_and_states_are_those_of_the_model(row):
    model = read(row["config"])
    assert model.total_parameters == pytest.approx(row["parameters"], rel=5e-4)
    gates_of_a_number = 2e-3  # one for each head, which the shape leaves out
    assert model.active_parameters == pytest.approx(row["active_parameters"], rel=gates_of_a_number)
    assert token_bytes(model) == row["token_bytes"]
    assert float(model.sequence_bytes(np.zeros(()))) == row["state_bytes"]


OF_NO_ID = dict(rows_of("cases/models.txt", "shapes by another name"))
"""Those whose shape a configuration has that goes by another name."""
WITH_MODULES = dict(rows_of("cases/models.txt", "shapes of which engines load modules"))
"""Those whose modules for multi-token prediction engines load, but no key of the class tells."""


def named_by_ids():
    """Shipped models, with the configurations whose ids name them."""
    found = {}
    for name in BY_NAME:
        if told := checkpoint(name.replace("--", "/", 1), list_architectures()):
            found.setdefault(told[0], []).append(name)
    return found


def test_what_ships_is_what_the_configuration_says():
    """Of one of several configurations: some are of a checkpoint with less or quantised names."""
    known = named_by_ids() | {n: [other] for n, other in (OF_NO_ID | WITH_MODULES).items()}
    names = ("mixers", "feed_forwards", "hidden_size", "vocabulary_size", "has_tied_embeddings")
    names += ("residuals", "num_norms", "ngram_inputs", "ngram_memory")
    of_modules = ("num_mtp_modules", "shares_mtp_index", "mtp_layer")
    other = set()
    for name, configs in known.items():
        shipped, models = load_architecture(name), [read(BY_NAME[c]["config"]) for c in configs]
        asked = names + (() if name in WITH_MODULES else of_modules)
        if not any(all(getattr(shipped, n) == getattr(m, n) for n in asked) for m in models):
            other.add(name)
        assert shipped.num_mtp_modules or name not in WITH_MODULES
    assert other == {"minimax-m2.5"}  # whose modules were left out
    assert len(known) > 70


def test_a_record_of_quantisation_beside_a_configuration_has_its_prefix(tmp_path):
    path = tmp_path / "nvidia--model_config.json"
    path.write_text(json.dumps(flat("Qwen--Qwen3-8B")), encoding="utf-8")
    record = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
    for prefix, dtype in (("other_", "bf16"), ("", "fp8")):
        beside = tmp_path / f"{prefix}nvidia--model_hf_quant_config.json"
        beside.write_text(json.dumps(record), encoding="utf-8")
        assert Architecture.from_hf_config(path).weight_dtype == dtype


# Wrappers


def nested(outer, inner, config, **keys):
    text = {key: value for key, value in config.items() if key != "model_type"}
    vision = {"vision_config": {"hidden_size": 8}, "audio_config": {"hidden_size": 8}}
    return {"model_type": outer, "text_config": {"model_type": inner} | text, **vision, **keys}


def inner_types():
    """Configurations of language models by the type that they have, or have in a wrapper."""
    found = {}
    for row in READ:
        config = row["config"].get("thinker_config", row["config"])
        flat = config | config.get("text_config", {})
        flat.pop("text_config", None)
        found.setdefault(flat["model_type"], flat)
    return found


OF_TYPE = inner_types()


def plain(inner):
    """A configuration of a language model that wrappers may hold."""
    alike = {"inkling_model": "inkling_text", "minimax_m3": "minimax_m3_vl_text"}
    names = (inner, alike.get(inner), inner.removesuffix("_text"), f"{inner}_text")
    return next(OF_TYPE[name] for name in names if name in OF_TYPE) | {"model_type": inner}


PAIRS = [(outer, inner) for outer, inners in WRAPPERS.items() for inner in inners]


@each_row(("outer", "inner"), PAIRS)
def test_wrapped_and_plain_are_one_shape(outer, inner):
    config = plain(inner)
    assert without_fields(read(nested(outer, inner, config))) == without_fields(read(config))


@each_row("outer", WRAPPERS)
@each_row("text", [None, {"model_type": "gemma9_text"}])
def test_wrapped_family_must_be_known(outer, text):
    config = {"model_type": outer, "hidden_size": 8, "text_config": text}
    refused(rf"text_config: got .*{WRAPPERS[outer][0]}", read, {}, **config)


# Names of one thing


@each_row("key", ["moe_topk", "num_shared_expert", "moe_intermediate_size"])
def test_a_number_for_each_layer_must_be_the_same_in_all(key):
    config = flat("transformers--hunyuan_v1_moe")
    value = config[key][0]
    assert read(config | {key: value}) == read(config)
    for values in ([value] * 31 + [value + 1], [value] * 31, [True] * 32):
        refused(f"{key}: got", read, config, **{key: values})


# Plans of layers


def test_one_layer_in_four_attends():
    assert kinds(read(QWEN_35)) == {"gated_delta_net": 30, "attention": 10}
    stored = {getattr(m, "state_dtype", None) for m in read(QWEN_35, mamba_ssm_dtype=None).mixers}
    assert stored == {"fp32", None}
    halves = read(QWEN_35, layer_types=None, full_attention_interval=2)
    assert kinds(halves) == {"gated_delta_net": 20, "attention": 20}


def dense_layers(model):
    return sum(n for part, n in model.feed_forwards.items() if part.kind == "dense")


@listed
def test_layers_that_route_from_start_to_end(keys, num_dense):
    assert dense_layers(read(flat("transformers--ernie4_5_moe"), **keys)) == num_dense


def test_listed_layers_that_route_need_no_other_key():
    bare = {"first_k_dense_replace": None}
    assert read(GLM_52, **bare) == read(GLM_52)
    refused("first_k_dense_replace: got None", read, GLM_52, **bare, mlp_layer_types=None)


@each_row(("name", "num_dense"), [("laguna", 1), ("solar_open", 0), ("hy_v3", 1), ("dots1", 0)])
def test_layers_that_are_dense_where_no_key_says_it(name, num_dense):
    config = {"intermediate_size": 64} | flat(f"transformers--{name}")
    for told, expected in ((None, num_dense), (5, 5)):
        keys = {"mlp_layer_types": None, "first_k_dense_replace": told}
        assert dense_layers(read(config, **keys)) == expected


@pytest.mark.parametrize(("pattern", "num_full"), [("LLLG", 8), ("LG", 16)])
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
    untold = read(STEP, attention_other_setting=None)  # as in transformers and vLLM
    assert heads_by_window(untold) == {(None, 64): 12, (512, 64): 33}


# Indexers


def indexers(model):
    own = sum(count for mixer, count in model.mixers.items() if mixer.has_indexer)
    return own, model.num_layers - own


def test_layers_share_an_indexer():
    assert indexers(read(GLM_52)) == (21, 57)
    assert indexers(read(DEEPSEEK_32)) == (61, 0)
    for frequency, own in ((4, 21), (3, 2 + 76 // 3), (None, 78)):  # two first ones have their own
        told = {"index_topk_freq": frequency, "index_skip_topk_offset": None}
        assert indexers(read(GLM_52, indexer_types=None, **told)) == (own, 78 - own)


# Every configuration in a folder

NEMOTRON = "nvidia--NVIDIA-Nemotron-3-{}-NVFP4"
INCOMPLETE = [NEMOTRON.format(size) for size in ("Super-120B-A12B", "Ultra-550B-A55B")]
"""Whose records in the package leave out the list without which engines read no NVFP4."""


def configurations():
    """Configurations in the folder that a variable names, and in the package of tables."""
    folder = os.environ.get("SPECMODEL_HF_CONFIGS")
    found = sorted(Path(folder).glob("*/config.json")) if folder else []
    package = pytest.importorskip("aiconfigurator_core")
    tables = Path(package.__file__).parent / "model_configs"
    found += [file for file in sorted(tables.glob("*_config.json")) if "_hf_quant" not in file.name]
    return found


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


# Selected blocks, and tables of n-grams


FLASH_NEXT = flat("Qwen--Qwen3.8-Flash-Next", model_type="qwen4_exp_text")
STEP5 = flat("vllm--step5", model_type="step5")


def test_step5_without_selected_blocks_and_tables_in_8_bits():
    dense = read(STEP5, sparse_config={"enabled": False})
    assert token_bytes(dense) == token_bytes(read(STEP5)) - 12 * 256 / 8
    assert read(FLASH_NEXT, ple_embedding_dtype="float8_e4m3fn").ngram_memory.row_dtype == "fp8"
    assert read(FLASH_NEXT, ple_layer_ids=None).ngram_memory is None
    keys = ("n_heads", "kv_heads", "head_dim", "budget", "compress_ratio")
    whole = read(FLASH_NEXT, **dict.fromkeys(f"indexer_{key}" for key in keys))
    assert token_bytes(whole) == token_bytes(read(FLASH_NEXT)) - 12 * 64
