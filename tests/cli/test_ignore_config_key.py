"""``--ignore-config-key``: for every command that reads a model, target or drafter."""

import json

import pytest
from configs import HEADS
from rows import each_row, one_case, rows_of
from shapes import CONFIG

SILENT = {"sweep", "schedule"}
"""Their output is data that an engine or a program reads."""


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(CONFIG | {"zeta_dense_every": 4}), encoding="utf-8")
    return file


@each_row(("command",), rows_of("commands.txt", "config key"))
def test_a_key_is_ignored_and_said(run, refuse, path, command):
    words, name = command.format(path=path), command.split()[0]
    refuse(words, "shapes, add --ignore-config-key zeta_dense_every")
    told = "" if name in (*SILENT, "list") else " --verbose"
    out = run(f"{words} --ignore-config-key zeta_dense_every{told}")
    assert "zeta_dense_every" in out or name in SILENT


@one_case(
    "key value",
    ("zeta_rank", 4),
    ("num_extra_layers", 2),
    ("layer_scale_size", 8),
    ("max_window_blocks", 48),
)
def test_a_head_says_the_same_and_is_then_read(run, refuse, tmp_path, key, value):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(HEADS["specforge"] | {key: value}), encoding="utf-8")
    words = f"predict qwen3-30b-a3b h100 --drafter {path} --acceptance-rate 0.7"
    told = f"config.json has a key specmodel does not know for llama: {key}. If it does not change"
    refuse(words, f"{told} tensor shapes, add --ignore-config-key {key}")
    assert key in run(f"{words} --ignore-config-key {key} --verbose")
