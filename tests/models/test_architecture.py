"""Shapes and parameter counts of the architectures that ship, and what is refused."""

import pytest
from published_tables import read_table
from pydantic import ValidationError

from specmodel.base import records
from specmodel.base.errors import InputError
from specmodel.layers.batch import Layout
from specmodel.models.architecture import (
    Architecture,
    list_architectures,
    load_architecture,
)

CORRECTIONS = {
    "as ours: LM head in, input embedding out": lambda shape: 0,
    "input embedding counted": lambda shape: shape.embedding_parameters,
    "neither": lambda shape: -shape.head_parameters,
}


COUNTS = read_table("parameter_counts.csv")
MOE_COUNTS = [row for row in COUNTS if row["published_active_parameters"]]


def by_name(row):
    return row["architecture"]


def dense_shape(**changes):
    return {
        "schema_version": 1,
        "name": "dense",
        "source": "made up",
        "hidden_size": 64,
        "num_layers": 4,
        "num_heads": 8,
        "num_kv_heads": 2,
        "head_dim": 16,
        "vocabulary_size": 1000,
        "num_dense_layers": 4,
        "dense_ffn_size": 256,
        **changes,
    }


def moe_shape(**changes):
    experts = {"num_experts": 8, "experts_per_token": 2, "expert_size": 32}
    return dense_shape(num_dense_layers=0, dense_ffn_size=0, **experts) | changes


def build(shape):
    return records.build(Architecture, shape, "target")


def test_every_shipped_architecture_has_a_published_count():
    assert sorted(map(by_name, COUNTS)) == list_architectures()


@pytest.mark.parametrize("row", COUNTS, ids=by_name)
def test_total_parameters_as_published(row):
    total = load_architecture(row["architecture"]).total_parameters
    tolerance = float(row["total_tolerance"])
    assert total == pytest.approx(float(row["total_parameters"]), rel=tolerance)


@pytest.mark.parametrize("row", MOE_COUNTS, ids=by_name)
def test_active_parameters_as_published(row):
    shape = load_architecture(row["architecture"])
    active = shape.active_parameters + CORRECTIONS[row["active_convention"]](shape)
    tolerance = float(row["active_tolerance"])
    assert active == pytest.approx(float(row["published_active_parameters"]), rel=tolerance)


def test_every_moe_architecture_has_a_published_active_count():
    moe = [name for name in list_architectures() if load_architecture(name).is_moe]
    assert sorted(map(by_name, MOE_COUNTS)) == moe


@pytest.mark.parametrize("name", list_architectures())
def test_shipped_architecture_loads(name):
    shape = load_architecture(name)
    assert shape.source
    assert shape.name.lower() == name
    parts = sum(shape.mixers.values()), sum(shape.feed_forwards.values())
    single = sum(g.count for g in shape.layers if not (g.mixer and g.feed_forward))
    assert sum(parts) == single + 2 * (shape.num_layers - single)
    assert single in (0, shape.num_layers, shape.num_layers / 3)  # experts of two layers
    assert 0 < shape.activation_ratio <= 1
    assert 0 < shape.active_parameters <= shape.total_parameters
    assert shape.is_moe == (shape.num_experts > 1)


def test_parameters_by_hand():
    attention = 4 * (2 * 64 * 128 + 2 * 64 * 32)
    norms = 9 * 64
    dense = build(dense_shape())
    assert dense.active_parameters == 64_000 + attention + norms + 4 * 3 * 64 * 256
    assert dense.total_parameters == dense.active_parameters + 64_000
    moe = build(moe_shape(num_shared_experts=2, shared_expert_size=16))
    expert, shared, router = 3 * 64 * 32, 2 * 3 * 64 * 16, 64 * 8
    common = attention + norms + 4 * (shared + router)
    assert moe.active_parameters == 64_000 + common + 4 * 2 * expert
    assert moe.total_parameters == 2 * 64_000 + common + 4 * 8 * expert


def test_tied_embeddings_are_counted_once():
    tied, untied = build(dense_shape(has_tied_embeddings=True)), build(dense_shape())
    assert untied.total_parameters - tied.total_parameters == 64_000
    assert untied.active_parameters == tied.active_parameters == tied.total_parameters


def test_narrow_embedding_has_two_projections():
    narrow = build(dense_shape(embedding_size=32, max_positions=100))
    assert narrow.embedding_parameters == 1000 * 32 + 100 * 64 + 64 * 32
    assert narrow.head_parameters == 1000 * 32 + 64 * 32


def test_ungated_feed_forward_has_two_matrices():
    gated, ungated = build(dense_shape()), build(dense_shape(has_gated_ffn=False))
    assert gated.total_parameters - ungated.total_parameters == 4 * 64 * 256


def test_moe_with_one_expert_is_dense():
    dense = build(dense_shape())
    one = build(moe_shape(num_experts=1, experts_per_token=1, expert_size=256))
    assert one.total_parameters == dense.total_parameters
    assert one.active_parameters == dense.active_parameters
    assert one.activation_ratio == 1
    assert not one.is_moe
    assert not dense.is_moe


def test_all_experts_active_is_all_parameters_but_the_embedding():
    shape = build(moe_shape(experts_per_token=8))
    assert shape.total_parameters == shape.active_parameters + shape.embedding_parameters


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("experts_per_token", {"experts_per_token": 9}),
        ("experts_per_token", {"experts_per_token": 0}),
        ("num_kv_heads", {"num_kv_heads": 3}),
        ("num_kv_heads", {"num_kv_heads": 16}),
        ("num_dense_layers", {"num_dense_layers": 5, "dense_ffn_size": 256}),
        ("num_sliding_layers", {"num_sliding_layers": 5, "sliding_window": 128}),
        ("dense_ffn_size", {"num_dense_layers": 1}),
        ("expert_size", {"expert_size": 0}),
        ("shared_expert_size", {"num_shared_experts": 1}),
        ("sliding_window", {"num_sliding_layers": 4}),
        ("sliding_window", {"num_sliding_layers": 4, "sliding_window": 0}),
        ("num_experts", {"num_experts": 0}),
        ("hidden_size", {"hidden_size": 0}),
        ("hidden_size", {"hidden_size": "64"}),
        ("hidden_size", {"hidden_size": 64.0}),
        ("num_layers", {"num_layers": True}),
        ("vocabulary_size", {"vocabulary_size": -1}),
        ("has_gated_ffn", {"has_gated_ffn": 1}),
        ("weight_dtype", {"weight_dtype": "float16"}),
        ("schema_version", {"schema_version": 3}),
        ("num_expert", {"num_expert": 8}),
    ],
)
def test_refuses(field, changes):
    with pytest.raises(InputError, match=rf"target\.{field}: got"):
        build(moe_shape(**changes))


@pytest.mark.parametrize(
    "field", [field for field in dense_shape() if field not in {"num_dense_layers", "name"}]
)
def test_refuses_missing(field):
    shape = dense_shape()
    del shape[field]
    with pytest.raises(InputError, match=rf"target\.{field}"):
        build(shape)


def test_dense_shape_without_dense_layers_is_refused():
    with pytest.raises(InputError, match="expert_size"):
        build(dense_shape(num_dense_layers=0))


# Files of version 1

VERSION_1 = {
    "qwen3-30b-a3b": """
        hidden_size = 2048
        num_layers = 48
        num_heads = 32
        num_kv_heads = 4
        head_dim = 128
        vocabulary_size = 151936
        num_experts = 128
        experts_per_token = 8
        expert_size = 768
        """,
    "gpt-oss-20b": """
        hidden_size = 2880
        num_layers = 24
        num_heads = 64
        num_kv_heads = 8
        head_dim = 64
        vocabulary_size = 201088
        num_experts = 32
        experts_per_token = 4
        expert_size = 2880
        num_sliding_layers = 12
        sliding_window = 128
        expert_dtype = "mxfp4"
        """,
    "deepseek-v3": """
        hidden_size = 7168
        num_layers = 61
        num_heads = 128
        num_kv_heads = 128
        head_dim = 128
        vocabulary_size = 129280
        num_experts = 256
        experts_per_token = 8
        expert_size = 2048
        num_shared_experts = 1
        shared_expert_size = 2048
        num_dense_layers = 3
        dense_ffn_size = 18432
        weight_dtype = "fp8_block"
        embedding_dtype = "bf16"
        activation_dtype = "fp8"

        [latent]
        kv_lora_rank = 512
        q_lora_rank = 1536
        qk_nope_head_dim = 128
        qk_rope_head_dim = 64
        v_head_dim = 128
        """,
    "opt-350m": """
        hidden_size = 1024
        num_layers = 24
        num_heads = 16
        num_kv_heads = 16
        head_dim = 64
        vocabulary_size = 50272
        embedding_size = 512
        max_positions = 2050
        has_tied_embeddings = true
        has_gated_ffn = false
        num_dense_layers = 24
        dense_ffn_size = 4096
        weight_dtype = "fp16"
        activation_dtype = "fp16"
        kv_dtype = "fp16"
        """,
}
"""Shipped models as version 1 had them: plain, with windows, with latents, and around layers."""


@pytest.mark.parametrize("name", VERSION_1)
def test_file_of_version_1_gives_the_same_numbers(name, tmp_path):
    path = tmp_path / "old.toml"
    head = 'schema_version = 1\nname = "old"\nsource = "made up"\n'
    path.write_text(head + VERSION_1[name], encoding="utf-8")
    old, new = load_architecture(path), load_architecture(name)
    assert (old.mixers, old.feed_forwards) == (new.mixers, new.feed_forwards)
    labels = {"name", "source", "num_mtp_modules"}
    assert old.model_dump(exclude=labels) == new.model_dump(exclude=labels)
    assert old.total_parameters == new.total_parameters
    assert old.active_parameters == new.active_parameters
    assert old.weight_bytes(Layout()) == new.weight_bytes(Layout())
    assert old.sequence_bytes(5000.0) == new.sequence_bytes(5000.0)


def test_layers_of_version_1_that_are_dense_and_windowed_overlap():
    """Which layers are dense or windowed is not said: the first ones, which changes no sum."""
    shape = moe_shape(
        num_dense_layers=1, dense_ffn_size=256, num_sliding_layers=3, sliding_window=8
    )
    model = build(shape)
    kinds = [(g.count, g.mixer.window, g.feed_forward.kind) for g in model.layers]
    assert kinds == [(1, 8, "dense"), (2, 8, "experts"), (1, None, "experts")]


# Groups of layers

ATTENTION = {"kind": "attention", "num_heads": 8, "num_kv_heads": 2, "head_dim": 16}
EXPERTS = {"kind": "experts", "num_experts": 8, "experts_per_token": 2, "expert_size": 32}
DENSE = {"kind": "dense", "ffn_size": 256}


def grouped_shape(*layers):
    """A shape of version 2."""
    outer = {"hidden_size": 64, "vocabulary_size": 1000}
    return {"schema_version": 2, "name": "g", "source": "made up", **outer, "layers": list(layers)}


def test_groups_are_the_sum_of_their_parts():
    """Attention alone, a feed-forward block alone, and both in one layer: as many norms."""
    apart = build(
        grouped_shape({"count": 3, "mixer": ATTENTION}, {"count": 3, "feed_forward": DENSE})
    )
    together = build(grouped_shape({"count": 3, "mixer": ATTENTION, "feed_forward": DENSE}))
    assert (apart.num_layers, together.num_layers) == (6, 3)
    assert apart.total_parameters == together.total_parameters
    assert apart.sequence_bytes(100.0) == together.sequence_bytes(100.0)


@pytest.mark.parametrize(
    "layer", [{"count": 2}, {"count": 2, "mixer": None}, {"count": 2, "feed_forward": None}]
)
def test_group_with_neither_mixer_nor_feed_forward_is_refused(layer):
    with pytest.raises(
        InputError, match=r"target.*mixer: got None.*a mixer, a feed_forward, or both"
    ):
        build(grouped_shape({"count": 2, "mixer": ATTENTION, "feed_forward": DENSE}, layer))


def test_no_layers_are_refused():
    with pytest.raises(InputError, match=r"target\.layers"):
        build(grouped_shape())


def test_two_kinds_of_experts_are_refused():
    first = {"count": 2, "mixer": ATTENTION, "feed_forward": EXPERTS}
    for field, value in (("num_experts", 16), ("experts_per_token", 4), ("expert_size", 64)):
        second = first | {"feed_forward": EXPERTS | {field: value}}
        with pytest.raises(InputError, match=r"target\.layers: got '?2 kinds of experts"):
            build(grouped_shape(first, second))
    assert build(grouped_shape(first, first)).num_layers == 4


def test_unknown_field_suggests_the_nearest():
    with pytest.raises(InputError, match="num_experts"):
        build(moe_shape(num_expertss=8))


def test_records_are_frozen():
    shape = load_architecture("mixtral-8x7b")
    with pytest.raises(ValidationError, match="frozen"):
        shape.num_experts = 16


def test_changes_give_a_new_checked_record():
    shape = load_architecture("mixtral-8x7b")
    wider = shape.with_changes("target", {"num_experts": 16})
    assert (shape.num_experts, wider.num_experts) == (8, 16)
    with pytest.raises(InputError, match=r"target\.experts_per_token"):
        shape.with_changes("target", {"experts_per_token": 9})
    with pytest.raises(InputError, match=r"target\.top_k"):
        shape.with_changes("target", {"top_k": 2})


def test_a_changed_field_of_a_part_changes_all_layers_that_have_it():
    windows = load_architecture("gpt-oss-20b").with_changes("target", {"head_dim": 32})
    assert [(m.head_dim, m.window, n) for m, n in windows.mixers.items()] == [
        (32, 128, 12),
        (32, None, 12),
    ]
    assert windows.feed_forwards == load_architecture("gpt-oss-20b").feed_forwards
    latent = load_architecture("deepseek-v3")
    ungated = latent.with_changes("target", {"is_gated": False, "kv_lora_rank": 256})
    assert [(part.is_gated, n) for part, n in ungated.feed_forwards.items()] == [
        (False, 3),
        (False, 58),
    ]
    assert [(mixer.kv_lora_rank, n) for mixer, n in ungated.mixers.items()] == [(256, 61)]
    wider = latent.with_changes("target", {"num_experts": 512, "hidden_size": 1024})
    assert (wider.num_experts, wider.hidden_size, wider.num_layers) == (512, 1024, 61)
    assert next(iter(wider.feed_forwards)) == next(iter(latent.feed_forwards))


@pytest.mark.parametrize("name", ["mixtral_8x7b", "Mixtral-8x7B", "MIXTRAL_8X7B"])
def test_names_are_normalised(name):
    assert load_architecture(name) == load_architecture("mixtral-8x7b")


@pytest.mark.parametrize("name", ["mixtral", "gpt-5", "", "mixtral-8x7b "])
def test_unknown_name_is_refused(name):
    with pytest.raises(InputError, match=f"target: got '{name}'; expected .*known name such as"):
        load_architecture(name)


def write_toml(path, shape):
    lines = (f"{key} = {value!r}" for key, value in shape.items())
    path.write_text("\n".join(lines), encoding="utf-8")


def test_toml_file(tmp_path):
    path = tmp_path / "mine.toml"
    write_toml(path, moe_shape())
    assert load_architecture(path) == load_architecture(str(path)) == build(moe_shape())


def test_toml_file_error_names_file_and_field(tmp_path):
    path = tmp_path / "mine.toml"
    write_toml(path, moe_shape(experts_per_token=9))
    with pytest.raises(InputError, match=r"drafter .*mine\.toml\.experts_per_token: got 9"):
        load_architecture(path, "drafter")


@pytest.mark.parametrize("content", [b"hidden_size = ", b"\xff\xfe"])
def test_malformed_toml_file(tmp_path, content):
    path = tmp_path / "mine.toml"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"mine\.toml"):
        load_architecture(path)


def test_missing_toml_file(tmp_path):
    with pytest.raises(InputError, match=r"none\.toml"):
        load_architecture(tmp_path / "none.toml")
