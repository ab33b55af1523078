"""Models with two geometries of attention, read from config.json: figures by hand, refusals.

Sums of parameters and bytes of caches, counted on transformers' models, are in
`test_hf_families.py`; here is how they come about, layer by layer.
"""

import numpy as np
import pytest
from configs import flat, read
from strategies import pass_of

from specmodel import mtp_drafter
from specmodel.layers.batch import Layout

GEMMA, GEMMA_DENSE = flat("google--gemma-4-26B-A4B"), flat("nvidia--Gemma-4-31B-IT-NVFP4")
GEMMA_SMALL = flat("transformers--gemma4_text-shared")
MIMO, STEP = flat("XiaomiMiMo--MiMo-V2-Flash"), flat("transformers--step3p7")


# Weights by role


def test_embeddings_for_each_layer_are_looked_up():
    model, bare = read(GEMMA_SMALL), read(GEMMA_SMALL, hidden_size_per_layer_input=0)
    layers, h, size = 30, 2304, 256
    table = 262_144 * layers * size
    gates = 3 * layers * h * size + size
    more_norms = layers * h
    assert model.total_parameters - bare.total_parameters == table + gates + more_norms
    assert model.active_parameters - bare.active_parameters == gates + more_norms
    cut, copied = table + layers * h * size, gates - layers * h * size + more_norms
    for gpus in (1, 4):
        added = model.weight_bytes(Layout(gpus)) - bare.weight_bytes(Layout(gpus))
        assert added == 2 * (cut / gpus + copied)


def test_embeddings_for_each_layer_in_a_pass():
    model, bare = read(GEMMA_SMALL), read(GEMMA_SMALL, hidden_size_per_layer_input=0)
    works = [pass_of(one, batch_size=5, context_length=10).components for one in (model, bare)]
    own = works[0]["layer_inputs"]
    assert "layer_inputs" not in works[1]
    gates = 3 * 30 * 2304 * 256 + 256
    assert (own.weight_bytes, float(own.flop)) == (2 * gates, 5 * 2 * gates)
    looked_up = [float(work["embedding"].activation_bytes) for work in works]
    assert looked_up[0] - looked_up[1] == 5 * 2 * 2 * 30 * 256  # a row read and written, no table
    cut = [
        pass_of(one, batch_size=5, layout=Layout(2)).components["all_reduce"]
        for one in (model, bare)
    ]
    assert cut[0].reductions - cut[1].reductions == 1
    assert float(cut[0].reduced_bytes - cut[1].reduced_bytes) == 5 * 30 * 256 * 2


# Caches

CACHES = [
    (GEMMA, 20_480, 204_800, 1024),
    (GEMMA_DENSE, 81_920, 819_200, 1024),
    (MIMO, 23_040, 199_680, 128),
]
"""Bytes of a token in full layers, and in those with a window while it is in it."""


@pytest.mark.parametrize(("config", "full", "windowed", "window"), CACHES)
def test_bytes_of_a_sequence(config, full, windowed, window):
    model = read(config)
    for entries in (1, window, window + 1, 100_000):
        kept = entries * full + min(entries, window) * windowed
        assert float(model.sequence_bytes(np.array(float(entries)))) == kept


def test_a_pass_reads_caches_that_are_shared_once_for_each_layer():
    shared, own = (
        pass_of(read(GEMMA_SMALL, num_kv_shared_layers=n), batch_size=2, context_length=400)
        for n in (10, 0)
    )
    shared, own = (work.components["attention_core"] for work in (shared, own))
    written = 2 * (8 * 4 * 2 * 256 + 2 * 4 * 2 * 512) * 2
    assert float(own.cache_bytes - shared.cache_bytes) == written
    assert float(own.flop) == float(shared.flop)


# Defaults


def test_defaults_of_gemma_are_those_of_transformers():
    bare = {
        key: GEMMA_SMALL[key]
        for key in ("model_type", "hidden_size", "intermediate_size", "num_hidden_layers")
    }
    told = {"num_attention_heads": 8, "vocab_size": 262_144}
    assert read(bare | told) == read(flat("transformers--gemma4_text"))
    sliding_last = ["full_attention"] + ["sliding_attention"] * 29
    model = read(bare | told | {"layer_types": sliding_last})
    assert {mixer.window: n for mixer, n in model.mixers.items()} == {512: 28, None: 2}


# Drafters


def head_of(model):
    drafter = mtp_drafter(model)
    return drafter, drafter.architectures[0]


@pytest.mark.parametrize(
    ("config", "attention", "ffn_size"),
    [
        (MIMO, 4096 * (64 * 192 + 8 * (192 + 128)) + 64 * 128 * 4096, 16384),
        (STEP, 4096 * (96 * 128 + 2 * 8 * 128) + 96 * 128 * 4096, 11264),
    ],
)
def test_modules_attend_to_a_window_and_have_a_dense_block(config, attention, ffn_size):
    model = read(config, model_type=config["model_type"].replace("3p7", "3p5"))
    drafter, head = head_of(model)
    assert model.num_mtp_modules == len(drafter.architectures) == 3
    (mixer,), (block,) = head.mixers, head.feed_forwards
    assert mixer.window == {16384: 128, 11264: 512}[ffn_size]
    assert mixer.weights(4096) == attention
    assert block.parameters(4096) == 3 * 4096 * ffn_size
    ends = head.outer_parameters
    norms = 3 * 4096
    inner = attention + 3 * 4096 * ffn_size + 2 * 4096 * 4096 + norms
    assert head.total_parameters == ends + inner
    kept = 2 * mixer.num_kv_heads * (mixer.head_dim + mixer.value_size)
    assert float(head.sequence_bytes(np.array(1e5))) == mixer.window * kept
