"""Architectures of version 2: what their files may hold, faults by place, copies."""

import copy
import os
import pickle
import subprocess
import sys
from dataclasses import replace

import pytest

from specmodel.base.errors import InputError
from specmodel.base.records import unchecked
from specmodel.models.architecture import load_architecture

FILE = """\
schema_version = 2
name = "small"
source = "a test"
hidden_size = 512
vocabulary_size = 1000

[[layers]]
count = 1
[layers.mixer]
kind = "attention"
num_heads = 8
num_kv_heads = 8
head_dim = 64
[layers.feed_forward]
kind = "dense"
ffn_size = 100

[[layers]]
count = 3
[layers.mixer]
kind = "attention"
num_heads = 8
num_kv_heads = 4
head_dim = 64
[layers.feed_forward]
kind = "experts"
num_experts = 8
experts_per_token = 2
expert_size = 256
"""
MIXER, EXPERTS = r"layers\[1\]\.mixer", r"layers\[1\]\.feed_forward"


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("num_kv_heads = 4", "num_kv_heads = 4\nwindw = 3", rf"{MIXER}\.windw: got 3; .*window"),
        ("num_kv_heads = 4", "num_kv_head = 4", rf"{MIXER}\.num_kv_head: got 4; .*num_kv_heads"),
        ("hidden_size", "hiden_size", "hiden_size: got 512; expected a known field: hidden_size"),
        ("num_kv_heads = 4\n", "", rf"{MIXER}\.num_kv_heads: got None; .*given"),
        ("num_kv_heads = 4", "num_kv_heads = 3", rf"{MIXER}\.num_kv_heads: got 3; .*divisor"),
        ("num_kv_heads = 4", 'num_kv_heads = "4"', rf"{MIXER}\.num_kv_heads: got '4'; .*integer"),
        ('"experts"', '"expert"', rf"{EXPERTS}\.kind: got 'expert'; expected dense or experts"),
        ('kind = "experts"\n', "", rf"{EXPERTS}\.kind: got None; expected dense or experts"),
        ("per_token = 2", "per_token = 9", rf"{EXPERTS}\.experts_per_token: got 9; .*num_experts"),
        ("= 256", "= 256\nnum_shared_experts = 1", rf"{EXPERTS}\.shared_expert_size: got 0"),
        ("count = 3\n", "", r"layers\[1\]\.count: got None"),
        ("name =", 'weight_dtype = "bf17"\nname =', r"weight_dtype: got 'bf17'; .*'bf16'"),
        (
            "expert_size = 256",
            "expert_size = 256\n[[layers]]\ncount = 1",
            r"layers\[2\]\.mixer: got",
        ),
    ],
)
def test_fault_of_a_layer_is_one_line_that_names_file_key_and_value(tmp_path, old, new, fault):
    path = tmp_path / "small.toml"
    path.write_text(FILE.replace(old, new))
    with pytest.raises(InputError, match=rf"^target \S*small\.toml\.{fault}") as error:
        load_architecture(path)
    assert "\n" not in str(error.value)


def test_fault_of_a_change_carries_the_name_that_was_changed():
    mixtral, deepseek = load_architecture("mixtral-8x7b"), load_architecture("deepseek-v3")
    for key, value, expected in (
        ("num_kv_heads", 3, "a divisor"),
        ("num_kv_heads", "4", "a valid integer"),
        ("num_layers", 0, "greater than"),
        ("kind", "dense", "a field"),
    ):
        with pytest.raises(InputError, match=rf"^target\.{key}: got .*expected {expected}"):
            mixtral.with_changes("target", {key: value})
    with pytest.raises(InputError, match=r"^target\.num_layers: got 10; .*not all alike"):
        deepseek.with_changes("target", {"num_layers": 10})


def test_copy_forgets_what_was_computed_from_the_fields():
    model = load_architecture("llama-4-scout")
    assert model.stream.hidden_size == model.hidden_size
    update = {"layers": model.layers[:1], "hidden_size": 256}
    for changed in (replace(model, **update), unchecked(model, update)):
        assert changed.stream.hidden_size == 256
        assert sum(changed.mixers.values()) == changed.num_layers < model.num_layers


def test_what_was_computed_makes_no_difference_to_equality():
    fresh = replace(load_architecture("gpt-oss-20b"))
    used = replace(fresh)
    assert used.stream
    assert used.mixers
    for same in (used, pickle.loads(pickle.dumps(used)), copy.deepcopy(used)):
        assert same == fresh
        assert hash(same) == hash(fresh)


def test_the_hash_of_a_model_is_not_taken_to_a_process_with_another_seed():
    model = load_architecture("gpt-oss-20b")
    assert hash(model) == hash(replace(model))
    read = "import pickle, sys; from dataclasses import replace; m = pickle.load(sys.stdin.buffer)"
    code = f"{read}; sys.exit({{replace(m): 1}}.get(m) != 1)"
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", code]
        subprocess.run(command, input=pickle.dumps(model), env=environment, check=True)
