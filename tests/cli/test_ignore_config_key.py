"""``--ignore-config-key``: for every command that reads a model, target or drafter."""

import json

import pytest
from rows import each_row
from shapes import CONFIG

WHERE = "--target {path} --drafter ngram --hardware h100_sxm"
POINT = f"{WHERE} --batch-size 2 --draft-length 2 --acceptance-rate 0.5"
RANGE = f"{WHERE} --batch-size 2 --acceptance-rate 0.5"
COMMANDS = {
    "predict": f"predict {POINT}",
    "explain": f"predict --view terms {POINT}",
    "decode": "predict --view plain --target {path} --hardware h100_sxm --batch-size 2",
    "best-draft-length": f"predict --view lengths {RANGE}",
    "break-even": f"break-even {WHERE} --batch-size 2 --draft-length 2",
    "compare": f"compare {RANGE}",
    "sweet-spot": f"predict --view peak {RANGE} --draft-length 2",
    "sensitivity": f"sensitivity {POINT}",
    "schedule": f"schedule --for vllm {WHERE} --acceptance-rate 0.5",
    "sweep": f"sweep {POINT} --columns speedup",
    "list": "list {path}",
}
SILENT = {"sweep", "schedule"}
"""Their output is data that an engine or a program reads."""


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(CONFIG | {"zeta_dense_every": 4}), encoding="utf-8")
    return file


@each_row("name", COMMANDS)
def test_a_key_is_ignored_and_said(run, refuse, path, name):
    words = COMMANDS[name].format(path=path)
    refuse(words, "--ignore-config-key zeta_dense_every leaves it out")
    told = "" if name in (*SILENT, "list") else " --verbose"
    out = run(f"{words} --ignore-config-key zeta_dense_every{told}")
    assert "zeta_dense_every" in out or name in SILENT
