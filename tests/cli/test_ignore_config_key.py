"""``--ignore-config-key``: for every command that reads a model, target or drafter."""

import json

import pytest

LLAMA = {
    "model_type": "llama",
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "num_hidden_layers": 4,
    "intermediate_size": 2048,
    "vocab_size": 32000,
}
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
    file.write_text(json.dumps(LLAMA | {"zeta_dense_every": 4}), encoding="utf-8")
    return file


@pytest.mark.parametrize("name", COMMANDS)
def test_a_key_is_ignored_and_said(ended, refuse, path, name):
    words = COMMANDS[name].format(path=path)
    refuse(words, "--ignore-config-key zeta_dense_every leaves it out")
    told = "" if name in (*SILENT, "list") else " --verbose"
    status, out, error = ended(f"{words} --ignore-config-key zeta_dense_every{told}")
    assert (status, error.count("error")) == (0, 0)
    if name not in SILENT:
        assert "zeta_dense_every" in out


def test_a_shown_model_says_what_was_ignored(run, path):
    out = run(f"list {path} --ignore-config-key zeta_dense_every")
    assert 'ignored_config_keys = ["zeta_dense_every"]' in out.splitlines()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_key_that_no_file_has_is_refused(refuse, path, name):
    words = COMMANDS[name].format(path=path)
    told = "--ignore-config-key: got 'eta'; expected a key of"
    refuse(f"{words} --ignore-config-key eta", told, "config.json")


def test_a_key_of_a_drafter(run, path):
    words = RANGE.replace(
        "--target {path} --drafter ngram", "--target mixtral-8x7b --drafter {path}"
    )
    words += " --draft-length 2 --ignore-config-key zeta_dense_every --verbose"
    out = run(f"predict {words}".format(path=path))
    assert "ignored_config_key zeta_dense_every" in " ".join(out.split())


def test_no_file_at_all(refuse):
    words = COMMANDS["predict"].format(path="qwen3-32b")
    refuse(f"{words} --ignore-config-key eta", "--ignore-config-key: got 'eta'; expected none, as")
