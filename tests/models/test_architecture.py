"""Shapes and parameter counts of the architectures that ship, and what is refused."""

import pytest
from printed import refused
from published_tables import read_table
from rows import each_row

from specmodel import Architecture, list_architectures, load_architecture
from specmodel.core.base import records

CORRECTIONS = {
    "as ours: LM head in, input embedding out": lambda shape: 0,
    "input embedding counted": lambda shape: shape.embedding_parameters,
    "neither": lambda shape: -shape.head_parameters,
}


COUNTS = read_table("parameter_counts.csv")
MOE_COUNTS = [row for row in COUNTS if row["published_active_parameters"]]


def by_name(row):
    return row["architecture"]


ATTENTION = {"kind": "attention", "num_heads": 8, "num_kv_heads": 2, "head_dim": 16}
EXPERTS = {"kind": "experts", "num_experts": 8, "experts_per_token": 2, "expert_size": 32}
DENSE = {"kind": "dense", "ffn_size": 256}


def grouped_shape(*layers, **changes):
    outer = {"hidden_size": 64, "vocabulary_size": 1000} | changes
    return {"schema_version": 2, "name": "g", "source": "made up", **outer, "layers": list(layers)}


def dense_shape(mixer=ATTENTION, block=DENSE, **changes):
    return grouped_shape({"count": 4, "mixer": mixer, "feed_forward": block}, **changes)


def moe_shape(**changes):
    inner = {name for name in changes if "expert" in name}
    experts = EXPERTS | {name: changes.pop(name) for name in inner}
    return dense_shape(block=experts, **changes)


def build(shape):
    return records.build(Architecture, shape, "target")


def test_every_shipped_architecture_has_a_published_count():
    assert sorted(map(by_name, COUNTS)) == list_architectures()
    moe = [name for name in list_architectures() if load_architecture(name).is_moe]
    assert sorted(map(by_name, MOE_COUNTS)) == moe


@each_row("row", COUNTS)
def test_total_parameters_as_published(row):
    model, tolerance = load_architecture(row["architecture"]), float(row["total_tolerance"])
    assert model.total_parameters == pytest.approx(float(row["total_parameters"]), rel=tolerance)
    assert model.name.lower() == row["architecture"]
    assert model.source


@each_row("row", MOE_COUNTS)
def test_active_parameters_as_published(row):
    shape = load_architecture(row["architecture"])
    active = shape.active_parameters + CORRECTIONS[row["active_convention"]](shape)
    tolerance = float(row["active_tolerance"])
    assert active == pytest.approx(float(row["published_active_parameters"]), rel=tolerance)


def test_parameters_by_hand():
    attention, norms = 4 * (2 * 64 * 128 + 2 * 64 * 32), 9 * 64
    dense = build(dense_shape())
    assert dense.active_parameters == 64_000 + attention + norms + 4 * 3 * 64 * 256
    assert dense.total_parameters == dense.active_parameters + 64_000
    tied = build(dense_shape(has_tied_embeddings=True))
    assert tied.active_parameters == tied.total_parameters == dense.active_parameters
    ungated = build(dense_shape(block=DENSE | {"is_gated": False}))
    assert dense.total_parameters - ungated.total_parameters == 4 * 64 * 256
    moe = build(moe_shape(num_shared_experts=2, shared_expert_size=16))
    expert, shared, router = 3 * 64 * 32, 2 * 3 * 64 * 16, 64 * 8
    common = attention + norms + 4 * (shared + router)
    assert moe.active_parameters == 64_000 + common + 4 * 2 * expert
    assert moe.total_parameters == 2 * 64_000 + common + 4 * 8 * expert
    assert (dense.activation_ratio, dense.is_moe) == (1, False)


# Groups of layers


def test_groups_are_the_sum_of_their_parts():
    """Attention alone, a feed-forward block alone, and both in one layer: as many norms."""
    attending, feeding = {"count": 3, "mixer": ATTENTION}, {"count": 3, "feed_forward": DENSE}
    apart = build(grouped_shape(attending, feeding))
    together = build(grouped_shape(attending | feeding))
    assert (apart.num_layers, together.num_layers) == (6, 3)
    assert apart.total_parameters == together.total_parameters
    assert apart.sequence_bytes(100.0) == together.sequence_bytes(100.0)
    neither = grouped_shape(attending, {"count": 2, "mixer": None})
    refused(r"mixer: got None.*a mixer, a feed_forward, or both", build, neither)


def test_of_two_kinds_of_experts_those_of_most_layers_are_told():
    first = {"count": 2, "mixer": ATTENTION, "feed_forward": EXPERTS}
    second = first | {"count": 3, "feed_forward": EXPERTS | {"expert_size": 64}}
    both = build(grouped_shape(first, second))
    assert (both.experts.expert_size, list(both.kinds_of_experts.values())) == (64, [2, 3])
    alone = [build(grouped_shape(group)).total_parameters for group in (first, second)]
    outer = 2 * 1000 * 64 + 64
    assert both.total_parameters == sum(alone) - outer
    assert list(build(grouped_shape(first, first)).kinds_of_experts.values()) == [4]


def test_a_changed_field_of_a_part_changes_all_layers_that_have_it():
    plain = load_architecture("gpt-oss-20b")
    windows = plain.with_changes("target", {"head_dim": 32})
    found = [(m.head_dim, m.window, n) for m, n in windows.mixers.items()]
    assert found == [(32, 128, 12), (32, None, 12)]
    assert windows.feed_forwards == plain.feed_forwards
    latent = load_architecture("deepseek-v3")
    changed = latent.with_changes("target", {"is_gated": False, "num_experts": 512})
    gated = [(part.is_gated, n) for part, n in changed.feed_forwards.items()]
    assert gated == [(False, 3), (False, 58)]
    assert (changed.num_experts, changed.mixers) == (512, latent.mixers)
