"""Architectures of version 2: what their files may hold, faults by place, copies."""

import copy
import os
import pickle
import subprocess
import sys

import pytest
from msgspec.structs import replace
from printed import refused
from rows import one_case

from specmodel import InputError, load_architecture
from specmodel.core.base.records import toml_text

FILE = toml_text(load_architecture("deepseek-v3"))
MIXER, EXPERTS = r"layers\[0\]\.mixer", r"layers\[1\]\.feed_forward"


@one_case(
    "old new fault",
    ("v_head_dim = 128", "v_head_dim = 128\nwindw = 3", rf"{MIXER}\.windw: got 3; .*window"),
    ("v_head_dim = 128\n", "", rf"{MIXER}\.v_head_dim: got None; .*a value for"),
    ('"experts"', '"expert"', rf"{EXPERTS}\.kind: got 'expert'; expected dense or experts"),
    ("s_per_token = 8", "s_per_token = 999", rf"{EXPERTS}\.experts_per_token: got 999; .*num_"),
)
def test_fault_of_a_layer_is_one_line_that_names_file_key_and_value(tmp_path, old, new, fault):
    path = tmp_path / "small.toml"
    path.write_text(FILE.replace(old, new, 1))
    refused(rf"^target \S*small\.toml\.{fault}", load_architecture, path)


def test_fault_of_a_change_carries_the_name_that_was_changed():
    for name, key, value, expected in (
        ("mixtral-8x7b", "num_kv_heads", 3, "a divisor"),
        ("mixtral-8x7b", "num_layers", 0, "a whole number >= 1"),
        ("mixtral-8x7b", "kind", "dense", "a field"),
        ("deepseek-v3", "num_layers", 10, ".*differ"),
        ("deepseek-v3", "shared_expert_size", 0, "a width above 0, as num_shared_experts = 1"),
        ("qwen3.5-35b-a3b", "num_key_heads", 3, "a divisor of num_value_heads = 32"),
        ("nemotron-3-super-120b-a12b", "num_state_groups", 3, "a divisor of num_state_heads"),
    ):
        with pytest.raises(InputError, match=rf"^target\.{key}: got .*expected {expected}"):
            load_architecture(name).with_changes("target", {key: value})


def test_what_was_computed_makes_no_difference_to_equality():
    fresh = replace(load_architecture("gpt-oss-20b"))
    used = replace(fresh)
    assert used.stream
    assert used.mixers
    for same in (used, pickle.loads(pickle.dumps(used)), copy.deepcopy(used)):
        assert (same, hash(same)) == (fresh, hash(fresh))


def test_the_hash_of_a_model_is_not_taken_to_a_process_with_another_seed():
    model = load_architecture("gpt-oss-20b")
    assert hash(model) == hash(replace(model))
    code = "import pickle, sys; from msgspec.structs import replace; "
    code += "m = pickle.load(sys.stdin.buffer); sys.exit({replace(m): 1}.get(m) != 1)"
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", code]
        subprocess.run(command, input=pickle.dumps(model), env=environment, check=True)
