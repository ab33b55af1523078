"""GGUF: sizes and dtypes of its header, names of ids and files, and what is refused."""

import pytest

pytest.importorskip("gguf", reason="needs gguf")

from pathlib import Path

from configs import flat, read
from gguf_files import F32, FILE_TYPES, I32, MXFP4, Q4_K, Q6_K, Q8_0, tensors_of, write
from printed import refused
from rows import values_of

from specmodel import deploy, load_architecture
from specmodel.core.base.records import as_table
from specmodel.core.models.gguf import _TABLES

CONVERTED = values_of("cases/models.txt", "converted to gguf")


def test_all_architectures_that_are_read_are_among_those_converted():
    rows = {name.partition(" ")[0] for name in _TABLES["families"]}
    assert rows == {architecture for architecture, _, _ in CONVERTED}


OF_FILE = ("name", "source", "weight_dtype", "expert_dtype", "embedding_dtype", "head_dtype")


@pytest.mark.parametrize(("architecture", "name", "changed"), CONVERTED)
def test_a_header_has_the_sizes_of_its_configuration(tmp_path, architecture, name, changed):
    config = flat(name, quantization_config=None)
    written = write(tmp_path / "model.gguf", architecture, config, tensors_of(config))
    own, expected = as_table(load_architecture(written)), as_table(read(config)) | changed
    assert {k: v for k, v in own.items() if k not in OF_FILE} == {
        k: v for k, v in expected.items() if k not in OF_FILE
    }


def converted(path, name="Qwen--Qwen3-30B-A3B", architecture="qwen3moe", **tensors):
    """Return the header of a converted model as a file, with other tensors."""
    config = flat(name, quantization_config=None)
    return write(path, architecture, config, tensors_of(config) | tensors)


def named(path, file_type):
    """Return a file whose header names its type, and whose weights are of several."""
    config = flat("Qwen--Qwen3-30B-A3B")
    tensors = tensors_of(config, Q4_K, Q6_K)
    return write(path, "qwen3moe", config, tensors, file_type)


def test_the_type_of_a_file_is_that_of_its_weights_but_for_those_of_another(tmp_path):
    model = load_architecture(named(tmp_path / "a.gguf", FILE_TYPES.MOSTLY_IQ4_XS))
    assert (model.weight_dtype, model.expert_dtype) == ("iq4_xs", None)
    assert (model.embedding_dtype, model.head_dtype) == ("q4_k_m", "q6_k")


def test_without_a_type_of_the_file_most_weights_tell_it(tmp_path):
    experts, sizes = "blk.0.ffn_down_exps.weight", (128, 2048, 768)
    other = {experts: (sizes, Q6_K), "blk.0.ffn_gate_inp.weight": ((128, 2048), F32)}
    model = load_architecture(converted(tmp_path / "a.gguf", **other))
    assert (model.weight_dtype, model.embedding_dtype) == ("q6_k", "q8_0")
    written = converted(tmp_path / "b.gguf", **{experts: (sizes, I32)})
    refused(r"target tensors: got 'I32'; expected a type of weights", load_architecture, written)


def test_experts_in_mxfp4_leave_other_weights_what_most_of_them_are(tmp_path):
    config = flat("openai--gpt-oss-20b", quantization_config=None)
    experts = {"blk.0.ffn_up_exps.weight": ((2880, 2880, 32), MXFP4)}
    path = tmp_path / "gpt-oss-20b-mxfp4.gguf"
    write(path, "gpt-oss", config, tensors_of(config) | experts, FILE_TYPES.MOSTLY_MXFP4_MOE)
    model = load_architecture(path)
    assert model.name == "gpt-oss-20b"
    assert (model.weight_dtype, model.expert_dtype, model.head_dtype) == ("q8_0", "mxfp4", "q8_0")
    named = load_architecture("ggml-org/gpt-oss-20b-GGUF")
    assert [getattr(named, key) for key in OF_FILE[2:-1]] == [
        getattr(model, key) for key in OF_FILE[2:-1]
    ]


def test_weights_of_another_dtype_are_those_of_all_matrices(tmp_path):
    path = named(tmp_path / "a.gguf", FILE_TYPES.MOSTLY_Q4_K_M)
    model = load_architecture(path, weight_dtype="q8_0")
    assert (model.weight_dtype, model.outer_dtype, model.head_dtype) == ("q8_0", "q8_0", None)


def test_a_gguf_is_a_target_of_llama_cpp_and_a_draft_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = converted(Path("Qwen3-0.6B-Q8_0.gguf"), "Qwen--Qwen3-0.6B", "qwen3")
    for drafter in (path, str(path), "./Qwen3-0.6B-Q8_0.gguf"):
        deployment, _ = deploy(target="qwen3-30b-a3b", hardware="rtx_4090", drafter=drafter)
        assert deployment.drafter.architectures[0].weight_dtype == "q8_0"
        assert deployment.engine.name != "llama.cpp"
    deployment, _ = deploy(target=str(path), hardware="rtx_4090")
    assert (deployment.target.name, deployment.engine.name) == ("Qwen3-0.6B", "llama.cpp")
    deployment, _ = deploy(target=str(path), hardware="rtx_4090", engine="vllm")
    assert deployment.engine.name != "llama.cpp"


def test_a_file_may_have_any_name(tmp_path):
    model = load_architecture(converted(tmp_path / "my-own-Q4_9.gguf"))
    assert (model.name, model.weight_dtype) == ("my-own", "q8_0")


def test_a_split_file_is_read_by_its_first_part(tmp_path):
    config = flat("Qwen--Qwen3-30B-A3B")
    first, second = (tmp_path / f"a-{n:05}-of-00002.gguf" for n in (1, 2))
    tensors = tensors_of(config)
    head = {"output.weight": tensors.pop("output.weight")}
    write(first, "qwen3moe", config, tensors, split=(0, 2))
    refused(r"a-00002-of-00002.gguf'; expected a readable GGUF", load_architecture, first)
    write(second, "qwen3moe", {}, head, split=(1, 2))
    assert not load_architecture(first).has_tied_embeddings
    refused("the first of its 2 parts, such as model-00001-of-00002", load_architecture, second)


def test_what_is_no_whole_gguf_is_refused_in_one_line(tmp_path):
    path = converted(tmp_path / "a.gguf")
    with path.open("rb") as file:
        content = file.read(20_000)
    infos = content.index(b"blk.0.attn_q")
    for size in (0, 3, 20, 100, 500, 2000, infos + 20, len(content)):
        path.write_bytes(content[:size])
        refused(r"expected a complete GGUF file of a known version", load_architecture, path)
    path.write_bytes(b"PK\3\4" * 100)
    refused("GGUF magic invalid", load_architecture, path)


def test_an_unknown_architecture_and_a_vocabulary_are_refused(tmp_path):
    path = tmp_path / "a.gguf"
    config = flat("Qwen--Qwen3-0.6B")
    write(path, "rwkv7", config, tensors_of(config))
    refused(r"architecture: got 'rwkv7'; expected one of llama, ", load_architecture, path)
    for tensors in ({}, {"blk.28.nextn.eh_proj.weight": ((1024, 2048), Q8_0)}):
        write(path, "qwen3", config, tensors)
        refused("a model; this is only a vocabulary or a head", load_architecture, path)


def test_a_size_that_is_missing_is_named_by_its_key_of_a_configuration(tmp_path):
    config = flat("Qwen--Qwen3-0.6B", num_attention_heads=None)
    path = write(tmp_path / "a.gguf", "qwen3", config, tensors_of(config))
    refused("num_attention_heads: got None; expected a whole number", load_architecture, path)
