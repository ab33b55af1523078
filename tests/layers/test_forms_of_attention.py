"""Grouped attention whose values are narrower, or keys, or those of an earlier layer: by hand."""

import numpy as np
import pytest
from msgspec.structs import replace
from printed import refused
from rows import cases, each_row

from specmodel import load_architecture
from specmodel.core.base import build
from specmodel.core.layers import GroupedAttention, Layout, sequence_group
from specmodel.core.layers.batch import Batch, Carried
from specmodel.core.layers.run import Pass
from specmodel.core.layers.stream import Stream

H = 4096
SIZES = {"num_heads": 64, "num_kv_heads": 8, "head_dim": 192}
PLAIN = GroupedAttention(**SIZES)
NARROW = GroupedAttention(**SIZES, value_head_dim=128)
KEYS_ALONE = GroupedAttention(**SIZES, has_value_projection=False)
READER = GroupedAttention(**SIZES, has_own_cache=False)
STREAM = Stream(H, *("bf16",) * 5)


def pass_of(mixer, *, tensor_parallel=1, tokens=1, context=1000.0, batch=3):
    group = sequence_group(batch_size=batch, tokens_per_sequence=tokens, context_length=context)
    carried, layout = Carried(Batch((group,))), Layout(tensor_parallel=tensor_parallel)
    run = Pass(STREAM, layout, taken_by=carried.taken_by)
    return {name: work.at(carried) for name, work in mixer.work(run, 1).items()}


@cases(
    "mixer made_by_kv_heads outputs",
    (PLAIN, 8 * 192 + 8 * 192, 64 * 192), (NARROW, 8 * 192 + 8 * 128, 64 * 128),
    (KEYS_ALONE, 8 * 192, 64 * 192), (READER, 0, 64 * 192),
)  # fmt: skip
@pytest.mark.parametrize("gpus", [1, 8, 16])
def test_matrices(mixer, made_by_kv_heads, outputs, gpus):
    whole = H * (64 * 192 + made_by_kv_heads) + outputs * H
    cut_of_kv = min(gpus, 8)  # beyond the number of key-value heads these are copied
    by_kv = H * made_by_kv_heads
    assert mixer.weights(H) == whole
    assert mixer.weights(H, gpus) == (whole - by_kv) / gpus + by_kv / cut_of_kv
    read = pass_of(mixer, tensor_parallel=gpus)["attention_projections"]
    assert read.weight_bytes == 2 * mixer.weights(H, gpus)
    assert float(read.flop) == pytest.approx(2 * 3 * mixer.weights(H, gpus), rel=1e-15)


@cases("mixer width", (PLAIN, 384), (NARROW, 192 + 128), (KEYS_ALONE, 384), (READER, 0))
@pytest.mark.parametrize("window", [None, 128])
def test_cache_of_a_sequence(mixer, width, window):
    entries = np.array([0.0, 100.0, 128.0, 5000.0])
    windowed = replace(mixer, window=window)
    kept = entries if window is None else np.array([0.0, 100.0, 128.0, 128.0])
    for gpus in (1, 4):
        on_each = windowed.sequence_bytes(entries, STREAM, gpus)
        np.testing.assert_array_equal(on_each, kept * 8 * width * 2 / gpus)


def test_narrow_values_make_less_of_the_core():
    core = pass_of(NARROW)["attention_core"]
    assert float(core.flop) == pytest.approx(3 * 1001 * 2 * 64 * (192 + 128))
    assert float(core.cache_bytes) == 3 * (1001 + 1) * 8 * (192 + 128) * 2
    assert float(core.groups) == 3 * 8 * (0.5 + 0.5 * 192 / 128)


@pytest.mark.parametrize("tokens", [1, 4, 2048])
def test_a_layer_without_a_cache_reads_the_other_and_writes_nothing(tokens):
    name = "prompt_attention" if tokens > 1000 else "attention_core"
    own, other = (pass_of(mixer, tokens=tokens)[name] for mixer in (PLAIN, READER))
    written = 3 * tokens * 8 * 384 * 2
    assert float(own.cache_bytes - other.cache_bytes) == pytest.approx(written)
    assert float(other.cache_bytes) == pytest.approx(3 * (1000 + tokens) * 8 * 384 * 2)
    assert float(own.flop) == float(other.flop)
    made = written if name == "prompt_attention" else 0.0
    assert float(own.activation_bytes - other.activation_bytes) == pytest.approx(made)
    turned = [pass_of(mixer, tokens=tokens)["elementwise"] for mixer in (PLAIN, READER)]
    queries, entry = 64 * 192, 8 * 384  # each read, turned and written; without a cache queries
    moved = [float(part.activation_bytes) for part in turned]
    assert moved == [3 * tokens * 2 * (queries + entry) * 2, 3 * tokens * 2 * queries * 2]


def test_values_that_are_keys_have_their_width():
    same = GroupedAttention(**SIZES, has_value_projection=False, value_head_dim=192)
    assert same.weights(H) == KEYS_ALONE.weights(H)
    fields = SIZES | {"has_value_projection": False, "value_head_dim": 128}
    expected = r"value_head_dim: got 128; expected head_dim = 192"
    refused(expected, build, GroupedAttention, fields, "mixer")


@each_row("other", [{}, {"window": 128}, {"head_dim": 128}, {"num_kv_heads": 4}])
def test_what_layers_read_must_be_kept_by_another(other):
    mixers = [{"kind": "attention", **SIZES} | own for own in (other, {"has_own_cache": False})]
    changes = {"layers": [{"count": 1, "mixer": mixer} for mixer in mixers]}
    llama = load_architecture("llama-3.1-8b")
    if not other:
        assert llama.with_changes("target", changes).num_layers == 2
        return
    expected = r"has_own_cache: got False; expected true in one layer"
    refused(expected, llama.with_changes, "target", changes)
