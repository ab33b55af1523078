"""Ids and file names of GGUF without a file: the model by its name, and the dtype by its tag."""

import sys

import pytest
from printed import refused
from rows import each_listed

from specmodel import deploy, load_architecture, load_drafter


@each_listed
def test_a_name_tells_the_model_and_the_dtype_of_all_weights(typed, name, dtype):
    model, shipped = load_architecture(typed), load_architecture(name)
    assert (model.name, model.layers) == (shipped.name, shipped.layers)
    assert (model.weight_dtype, model.outer_dtype, model.head_dtype) == (dtype, dtype, None)
    assert (model.activation_dtype, model.kv_dtype) == ("bf16", "bf16")


def test_a_tag_is_the_dtype_that_is_given_by_name():
    for name in ("qwen3-30b-a3b", "gpt-oss-20b", "kimi-k2.5", "qwen3.5-35b-a3b"):
        given = load_architecture(name, weight_dtype="q5_k_m")
        assert load_architecture(f"unsloth/{name}-GGUF:Q5_K_M") == given
        assert (given.weight_dtype, given.mtp_dtype) == ("q5_k_m", None)
        assert given.expert_dtype == ("mxfp4" if name == "gpt-oss-20b" else None)
    assert load_architecture("unsloth/qwen3-8b-GGUF", weight_dtype="bf16").weight_dtype == "bf16"


@pytest.mark.parametrize(
    "target", ["unsloth/Qwen3-8B-GGUF:Q4_K_M", "ggml-org/gpt-oss-20b-GGUF", "Qwen3-8B-BF16.gguf"]
)
def test_a_name_of_gguf_is_run_by_llama_cpp_unless_an_engine_is_named(target):
    deployment, _ = deploy(target=target, hardware="rtx_4090")
    assert deployment.engine.name == "llama.cpp"
    deployment, _ = deploy(target=target, hardware="rtx_4090", engine="sglang")
    assert deployment.engine.name != "llama.cpp"


def test_a_draft_model_is_named_so_too():
    drafter = load_drafter("unsloth/Qwen3-0.6B-GGUF:Q8_0", load_architecture("qwen3-8b"))
    assert drafter.architectures[0].weight_dtype == "q8_0"


@pytest.mark.parametrize(
    "typed", ["models/Qwen3-8B-Q4_K_M.gguf", "models/Qwen3-8B.gguf", "model.gguf"]
)
def test_a_path_that_is_not_there_is_no_name(typed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "gguf", None)
    refused(rf"target: got '{typed}'; expected a readable GGUF file", load_architecture, typed)


def test_a_tag_that_nobody_knows_and_a_model_that_nobody_knows_are_refused():
    refused(
        "weight_dtype: got 'Q4_9'; expected one of", load_architecture, "unsloth/Qwen3-8B-GGUF:Q4_9"
    )
    refused("a known name such as", load_architecture, "unsloth/Nothing-7B-GGUF")


def test_a_file_needs_the_package_that_reads_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "gguf", None)
    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    refused(r"not installed: pip install '.\[gguf\]'", load_architecture, tmp_path / "a.gguf")
