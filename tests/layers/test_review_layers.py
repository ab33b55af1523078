"""Architectures of version 2: what their files may hold, faults by place, copies."""

import copy
import os
import pickle
import subprocess
import sys

from msgspec.structs import replace
from printed import refused
from rows import listed

from specmodel import load_architecture
from specmodel.core.base.records import toml_text

FILE = toml_text(load_architecture("deepseek-v3"))


@listed
def test_fault_of_a_layer_is_one_line_that_names_file_key_and_value(tmp_path, old, new, fault):
    path = tmp_path / "small.toml"
    path.write_text(FILE.replace(old, new, 1))
    refused(rf"^target \S*small\.toml\.{fault}", load_architecture, path)


@listed
def test_fault_of_a_change_carries_the_name_that_was_changed(name, key, value, expected):
    told = rf"^target\.{key}: got .*expected {expected}"
    refused(told, load_architecture(name).with_changes, "target", {key: value})


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
