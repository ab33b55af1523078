"""Real quantised checkpoints, by their records; and what two records, or damaged ones, come to.

``tests/data/quantised_checkpoints.json`` has the records of public checkpoints as published, with
``{0-2}`` in place of names that differ in the number of a layer only, and the dtypes that their
lists of names say, written down by hand.
"""

import json
import re
from pathlib import Path

import pytest
from printed import refused
from rows import each_row, listed, values_of
from shapes import CONFIG

from specmodel import Architecture, deploy, load_architecture
from specmodel.core.base import as_table, build
from specmodel.core.base.notes import Note
from specmodel.core.models.hf.quantization import checkpoint_dtypes

DATA = Path(__file__).parents[1] / "data/quantised_checkpoints.json"
CHECKPOINTS = json.loads(DATA.read_text(encoding="utf-8"))
MIXERS = {
    mixer.kind: as_table(mixer)
    for name in ("deepseek-v3", "glm-5", "qwen3.5-35b-a3b", "minimax-m3", "deepseek-v4-flash")
    for mixer in load_architecture(name).mixers
} | {"mamba2": as_table(next(iter(load_architecture("nemotron-3-nano-30b-a3b").mixers)))}
"""A mixer of each kind; names do not depend on its sizes."""


def numbers(text):
    """Return the numbers of "0-2,5"."""
    ends = [part.partition("-")[::2] for part in text.split(",")]
    return [i for first, last in ends for i in range(int(first), int(last or first) + 1)]


def expanded(names):
    found = []
    for name in names:
        match = re.fullmatch(r"(.*)\{([\d,-]+)\}(.*)", name)
        each = [f"{match[1]}{i}{match[3]}" for i in numbers(match[2])] if match else []
        found += expanded(each) if match else [name]
    return found


def whole(record, own=None):
    """Return a record as published, with the names that a compact one stands for."""
    if record is None:
        return None
    found = dict(record)
    for key in ("ignore", "exclude_modules", "modules_to_not_convert"):
        if key in found:
            found[key] = expanded(own["ignore"] if found[key] == "ignore" else found[key])
    if "quantized_layers" in found:
        same = found["quantized_layers"] == "quantized_layers"
        listed = own["quantized_layers"] if same else found["quantized_layers"]
        found["quantized_layers"] = {n: spec for spec, names in listed for n in expanded(names)}
    return found


def layers_of(plan):
    """Return the layers of a plan; the sizes of blocks are made up."""
    layers = []
    for count, mixer, block in plan["layers"] * plan.get("times", 1):
        part = {"kind": block, "ffn_size": 16}
        if block == "experts":
            names = ("num_experts", "num_shared_experts", "is_shared_apart")
            part = {name: plan[name] for name in names if name in plan}
            part |= {"kind": "experts", "expert_size": 16, "experts_per_token": 2}
            part |= {"shared_expert_size": 16} if plan.get("num_shared_experts") else {}
        one = {"mixer": MIXERS[mixer]} if mixer else {}
        one |= {"feed_forward": part} if block else {}
        layers += [one] * count
    owners = numbers(plan["index_owners"]) if "index_owners" in plan else range(len(layers))
    for number, layer in enumerate(layers):
        if layer.get("mixer", {}).get("kind") == "sparse_attention" and number not in owners:
            mixer = layer["mixer"] | {"has_indexer": False}
            layers[number] = layer | {"mixer": mixer}
    return layers


def architecture(config, layers, beside=None, argument="target config.json"):
    fields, layers = checkpoint_dtypes(config, argument, "bf16", layers, beside=beside)
    groups = [{"count": 1, **layer} for layer in layers]
    sizes = {"hidden_size": 64, "vocabulary_size": 100, "layers": groups}
    data = {"schema_version": 2, "name": "", "source": "", **sizes, **fields}
    return build(Architecture, data, "target")


def parts_of(model):
    """Return the dtypes of each kind of part, those of all layers, with + between several."""
    found = {}
    for one in model.parts:
        dtype, kind = one.stream.weight_dtype, one.part.kind
        if kind == "dense":
            found.setdefault("dense", set()).add(dtype)
        elif kind == "experts":
            found.setdefault("experts", set()).add(one.stream.expert_dtype)
            if one.part.num_shared_experts:
                found.setdefault("shared", set()).add(dtype)
        else:
            found.setdefault("attention", set()).add(dtype)
            found.setdefault("output", set()).add(one.output_dtype or dtype)
    ends = {"head": model.head_dtype or model.outer_dtype, "mtp": model.mtp_dtype}
    ends |= {"activations": model.activation_dtype, "kv": model.kv_dtype}
    assert model.outer_dtype == "bf16"
    return {name: "+".join(sorted(dtypes)) for name, dtypes in found.items()} | ends


@each_row("name", CHECKPOINTS)
def test_published_checkpoint(name):
    one = CHECKPOINTS[name]
    own = whole(one.get("quantization_config"))
    beside = whole(one.get("hf_quant_config"), one.get("quantization_config"))
    config = one | ({"quantization_config": own} if own else {})
    file = None if beside is None else {"producer": {"name": "modelopt"}, "quantization": beside}
    model = architecture(config, layers_of(one["plan"]), file)
    assert parts_of(model) == one["dtypes"]
    is_weight_only = model.activation_dtype == "bf16" != one["dtypes"]["attention"]
    assert model.attention_activation_dtype == ("fp8" if is_weight_only else None)


# Two records


LAYERS = layers_of({"layers": [[1, "attention", "dense"], [2, "attention", "experts"]],
                    "num_experts": 8, "num_shared_experts": 1})  # fmt: skip
NVFP4 = {"quant_algo": "NVFP4", "exclude_modules": ["lm_head"]}
OWN = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}


def read(own, beside, layers=LAYERS, **config):
    config |= {"quantization_config": own} if own else {}
    return architecture(config, layers, None if beside is None else {"quantization": beside})


@listed
def test_records_that_disagree_are_both_named(own, beside, match):
    both = rf"target config\.json quantization_config: got '{match}, as in hf_quant_config\.json"
    refused(both, read, OWN | own, NVFP4 | beside)


def test_what_config_json_does_not_say_of_the_cache_is_not_taken_from_the_other():
    beside = NVFP4 | {"kv_cache_quant_algo": "FP8"}
    assert read(None, beside).kv_dtype == "fp8"
    target = read(OWN, beside)
    assert (target.kv_dtype, target.other_kv_dtype) == ("bf16", "fp8")
    told = deploy(target=target, hardware="b200")[1]
    assert told["kv_dtype"] == Note("other_kv_dtype", {"dtype": "bf16", "other": "fp8"})
    assert "kv_dtype" not in deploy(target=target, hardware="b200", kv_dtype="fp8")[1]
    assert read(OWN, NVFP4).other_kv_dtype is None


# Sizes of groups


@each_row(("own", "weight", "activation"), values_of("quantisation.txt", "records of tools"))
def test_dtypes_by_the_records_of_tools(own, weight, activation):
    model = read(own, None)
    assert (model.weight_dtype, model.activation_dtype) == (weight, activation)
    assert model.head_dtype is None


def test_modelopt_quantises_a_head_that_it_does_not_leave_out():
    assert read(OWN | {"ignore": []}, None).head_dtype == "fp4"
    config = {"quantization_config": OWN | {"ignore": []}}
    fields, _ = checkpoint_dtypes(config, "config", "bf16", LAYERS, has_tied_embeddings=True)
    assert fields["head_dtype"] is None


# Experts of their own


FP8 = {"quant_method": "fp8", "weight_block_size": [32, 32], "scale_fmt": "ue8m0"}


def test_dtype_of_experts_inside_or_outside_of_the_record():
    for inside, outside in (({"expert_dtype": "fp4"}, {}), ({}, {"expert_dtype": "fp4"})):
        model = read(FP8 | inside, None, **outside)
        assert (model.weight_dtype, model.expert_dtype) == ("fp8_block", "mxfp4")
        assert model.activation_dtype == "fp8"
    assert read(FP8, None, expert_dtype="fp8").expert_dtype is None


@each_row(("file", "own", "beside", "match"), values_of("quantisation.txt", "refused files"))
def test_what_is_not_understood_is_named_with_its_file(file, own, beside, match):
    refused(rf"target {file}\.json.*{match}", read, own, beside)


def test_dtype_of_experts_that_is_not_understood():
    twice = "expert_dtype: got 'fp8'; expected the same as"
    refused(twice, read, FP8 | {"expert_dtype": "fp8"}, None, expert_dtype="fp4")
    other = "expert_dtype: got 'fp4'; expected no such key with quant_method modelopt"
    refused(other, read, OWN, None, expert_dtype="fp4")


# Files


@pytest.mark.parametrize("record", [{"quant_method": "hqq"}, "int4", FP8 | {"ignore": ["x"]}])
def test_a_dtype_that_is_given_stands_for_a_record_that_is_not_understood(tmp_path, record):
    whole = CONFIG | {"quantization_config": record}
    (tmp_path / "config.json").write_text(json.dumps(whole), encoding="utf-8")
    refused("quantization_config", load_architecture, tmp_path)
    given = load_architecture(tmp_path, weight_dtype="int4_g64")
    assert (given.weight_dtype, given.outer_dtype, given.kv_dtype) == ("int4_g64", "bf16", "bf16")


def test_a_dtype_that_is_given_leaves_experts_and_attention_as_a_record_has_them(tmp_path):
    kept = {"modules_to_not_convert": ["self_attn"], "expert_dtype": "fp4"}
    whole = CONFIG | {"quantization_config": FP8 | kept}
    (tmp_path / "config.json").write_text(json.dumps(whole), encoding="utf-8")
    read = load_architecture(tmp_path)
    assert (read.weight_dtype, read.expert_dtype) == ("bf16", "mxfp4")
    given = load_architecture(tmp_path, weight_dtype="fp8")
    assert (given.weight_dtype, given.expert_dtype) == ("fp8", "mxfp4")


def test_damaged_file_is_named(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    (tmp_path / "hf_quant_config.json").write_text('{"quantization": ', encoding="utf-8")
    refused(r"hf_quant_config\.json", load_architecture, tmp_path)
    assert load_architecture(tmp_path, weight_dtype="fp8").weight_dtype == "fp8"
