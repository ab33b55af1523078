"""Parts with dtypes of their own: bytes, work and kernels, by hand and against published sizes."""

import pytest
from printed import refused
from rows import listed
from strategies import pass_of

from specmodel import Architecture, deploy, load_architecture
from specmodel.core.base import as_table, build
from specmodel.core.base.notes import Note
from specmodel.core.layers import Layout

H, V, F = 64, 100, 128
MIXER = {"kind": "attention", "num_heads": 8, "num_kv_heads": 2, "head_dim": 8}
DENSE = {"kind": "dense", "ffn_size": F}
EXPERTS = {"kind": "experts", "num_experts": 8, "experts_per_token": 2, "expert_size": 32}
EXPERTS |= {"num_shared_experts": 1, "shared_expert_size": 16}
INPUTS, OUTPUT = H * (8 + 2 + 2) * 8, 8 * 8 * H  # queries, keys and values; after the core
NORMS = 2.0 * H  # each, in 16 bits


def model(*layers, **fields):
    groups = [{"mixer": MIXER, "feed_forward": DENSE, **layer} for layer in layers]
    shape = {"hidden_size": H, "vocabulary_size": V, "layers": groups}
    data = {"schema_version": 2, "name": "m", "source": "made up", **shape, **fields}
    return build(Architecture, data, "target")


MIXED = [{"count": 2, "mixer_dtype": "fp8", "output_dtype": "fp4"}]
MIXED += [{"count": 3, "ffn_dtype": "mxfp8"}]
DTYPES = {"weight_dtype": "int4_g32", "attention_dtype": "bf16", "embedding_dtype": "bf16"}
DTYPES |= {"head_dtype": "fp8"}


def bytes_by_hand(n=1):
    """Two layers of fp8, then fp4, and int4; three of bf16 and MXFP8."""
    matrices = 2 * (INPUTS * 1 + OUTPUT * 4.5 / 8 + 3 * H * F * 4.5 / 8)
    matrices += 3 * ((INPUTS + OUTPUT) * 2 + 3 * H * F * 8.25 / 8)
    return (matrices + V * H * (2 + 1)) / n + 11 * NORMS


def test_weight_bytes_by_hand():
    for n in (1, 2):
        held = model(*MIXED, **DTYPES).weight_bytes(Layout(n))
        assert held == pytest.approx(bytes_by_hand(n), rel=1e-12)


def test_a_pass_reads_the_weights_that_there_are_but_the_embedding():
    work = pass_of(model(*MIXED, **DTYPES), batch_size=3, context_length=10)
    read = sum(float(one.weight_bytes) for one in work.components.values())
    assert read == pytest.approx(bytes_by_hand() - V * H * 2, rel=1e-12)
    plain = pass_of(model({"count": 5}), batch_size=3, context_length=10)
    for name in ("flop", "activation_bytes", "cache_bytes", "kernels"):
        made = [[getattr(one, name) for one in own.components.values()] for own in (work, plain)]
        assert float(sum(made[0])) == pytest.approx(float(sum(made[1])), rel=1e-12), name


def test_parts_of_other_dtypes_are_components_of_their_own():
    mixed = model(*MIXED, **DTYPES, activation_dtype="fp8")
    parts = pass_of(mixed, batch_size=3, context_length=10).components
    dtypes = {name: (one.dtype, one.stored_dtype) for name, one in parts.items()}
    assert dtypes == {
        "embedding": ("fp8", "bf16"), "norms": ("fp8", "bf16"),
        "attention_projections": ("fp8", "fp8"), "elementwise": ("fp8", "bf16"),
        "output_projections": ("fp8", "fp4"), "attention_core": ("bf16", "bf16"),
        "attention_projections_bf16": ("bf16", "bf16"), "dense_ffn": ("fp8", "int4_g32"),
        "dense_ffn_mxfp8": ("fp8", "mxfp8"), "lm_head": ("fp8", "fp8"),
    }  # fmt: skip
    same = model({"count": 2, "output_dtype": "bf16"}, weight_dtype="fp4", attention_dtype="bf16")
    assert "output_projections" not in pass_of(same, batch_size=3).components
    by_hand = 2 * 3 * (INPUTS + OUTPUT) * 2  # tokens x layers x weights x bytes, of three layers
    assert parts["attention_projections_bf16"].weight_bytes == by_hand / 2
    assert parts["output_projections"].flop == 3 * 2 * (2 * OUTPUT)
    assert parts["attention_projections"].flop == 3 * 2 * (2 * INPUTS)


@pytest.mark.parametrize("name", ["deepseek-v3", "qwen3.5-35b-a3b", "glm-5.2"])
def test_matrix_after_the_core_of_any_mixer(name):
    """It is narrower by a byte a weight."""
    mixer = next(iter(load_architecture(name).mixers))
    outputs = {"deepseek-v3": 128 * 128, "qwen3.5-35b-a3b": 32 * 128, "glm-5.2": 64 * 256}[name]
    layer = {"count": 2, "mixer": as_table(mixer)}
    made, narrow = (model(layer | {"output_dtype": dtype}) for dtype in (None, "fp8"))
    saved = made.weight_bytes(Layout()) - narrow.weight_bytes(Layout())
    assert saved == pytest.approx(2 * outputs * H, rel=1e-12)
    parts = [pass_of(one, batch_size=3, context_length=10).components for one in (made, narrow)]
    read = [sum(float(one.weight_bytes) for one in found.values()) for found in parts]
    assert read[0] - read[1] == pytest.approx(saved, rel=1e-12)
    assert parts[1]["output_projections"].weight_bytes == 2 * outputs * H


def test_activations_of_mixers_may_be_narrower_than_those_of_blocks():
    """As in Qwen3.6-27B-NVFP4: attention in fp8, and blocks of fp4 weights in 16 bits."""
    mixed = model({"count": 2}, weight_dtype="fp4", attention_dtype="fp8")
    own = mixed.with_changes("target", {"attention_activation_dtype": "fp8"})
    for target, dtype in ((mixed, "bf16"), (own, "fp8")):
        parts = pass_of(target, batch_size=3, context_length=10).components
        assert (parts["attention_projections"].dtype, parts["dense_ffn"].dtype) == (dtype, "bf16")
        assert parts["norms"].dtype == parts["lm_head"].dtype == "bf16"
    assert own.weight_bytes(Layout()) == mixed.weight_bytes(Layout())


def test_shared_experts_have_the_dtype_of_their_layers_block():
    layers = [{"count": 2, "feed_forward": EXPERTS, "ffn_dtype": own} for own in (None, "fp8")]
    plain, narrow = (model(layer, expert_dtype="fp4") for layer in layers)
    saved = plain.weight_bytes(Layout()) - narrow.weight_bytes(Layout())
    assert saved == pytest.approx(2 * 3 * 16 * H, rel=1e-12)
    assert narrow.active_parameters == plain.active_parameters


@listed
def test_dtype_of_a_part_that_layers_lack(layer, match):
    refused(match, model, {"count": 1, **layer})


def test_a_tied_head_has_the_dtype_of_the_embedding():
    own = {"has_tied_embeddings": True, "head_dtype": "fp4"}
    refused("head_dtype: got 'fp4'; expected bf16, as the LM head", model, {"count": 1}, **own)
    tied = model({"count": 1}, has_tied_embeddings=True, head_dtype="bf16")
    assert tied.outer_bytes == tied.embedding_bytes == V * H * 2
    assert model({"count": 1}, head_dtype="fp4").outer_bytes == V * H * (2 + 4.5 / 8)


def test_what_has_a_dtype_of_its_own_is_told():
    target = model(*MIXED, **DTYPES)
    _, assumed = deploy(target=target, hardware="h200_sxm", drafter="ngram")
    assert assumed["attention_dtype"] == Note("dtypes", {"dtypes": ["fp8", "bf16"]})
    told = {name: assumed[name] for name in ("output_dtype", "ffn_dtype", "head_dtype")}
    assert told == {"output_dtype": "fp4", "ffn_dtype": "mxfp8", "head_dtype": "fp8"}
    plain = model({"count": 5}, attention_dtype="bf16")
    assert "attention_dtype" not in deploy(target=plain, hardware="h200_sxm", drafter="ngram")[1]


# Published sizes


def test_published_sizes_of_kimi_k2_checkpoints():
    """Kimi K2 has 1.03 TB, and K2 Thinking, which is of its shape, 594 GB.

    S. Willison, "Kimi K2 Thinking," simonwillison.net, Nov. 2025.
    """
    plain = load_architecture("kimi-k2")
    assert plain.weight_bytes(Layout()) == pytest.approx(1.03e12, rel=0.01)
    narrow = {"weight_dtype": "bf16", "expert_dtype": "int4_g32", "activation_dtype": "bf16"}
    thinking = plain.with_changes("target", narrow)
    assert thinking.weight_bytes(Layout()) == pytest.approx(594e9, rel=0.01)


def test_published_sizes_of_gpt_oss():
    """OpenAI, "gpt-oss-120b & gpt-oss-20b Model Card," 2025, table 1."""
    for name, gibibytes in {"gpt-oss-120b": 60.8, "gpt-oss-20b": 12.8}.items():
        held = load_architecture(name).weight_bytes(Layout())
        assert held == pytest.approx(gibibytes * 2**30, rel=0.01)
