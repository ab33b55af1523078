"""``--ignore-config-key``: for every command that reads a model, target or drafter."""

import json

import pytest
from rows import each_row, rows_of
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
    refuse(words, "--ignore-config-key zeta_dense_every leaves it out")
    told = "" if name in (*SILENT, "list") else " --verbose"
    out = run(f"{words} --ignore-config-key zeta_dense_every{told}")
    assert "zeta_dense_every" in out or name in SILENT
