"""Models with two geometries of attention, read from config.json: figures by hand.

Sums of parameters and bytes of caches, counted on transformers' models, are in
`test_hf_families.py`; here is how they come about, layer by layer.
"""

import numpy as np
import pytest
from configs import flat, read
from strategies import pass_of

from specmodel import deploy, mtp_drafter
from specmodel.cost import MemoryUse
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


# Inkling: windows with heads of their own, convolutions and relative positions

H, KERNEL, HEADS, TERMS, EXTENT, WINDOW = 6144, 4, 64, 16, 1024, 512
FULL_KV, LOCAL_KV = 2 * 8 * 128, 2 * 16 * 128
"""Elements of the keys and values of a token in one layer of either kind."""

INKLING = flat("transformers--inkling")
SMALL = {key: INKLING[key] for key in INKLING if key != "layer_types"}
SMALL |= {"num_hidden_layers": 6, "num_mtp_layers": 3}
SMALL |= {"mlp_layer_types": ["dense"] + ["sparse"] * 5}


def test_caches_and_windows_by_hand():
    model = read(SMALL)
    rows = FULL_KV + 5 * LOCAL_KV + 6 * 2 * H
    kept = (KERNEL - 1) * rows + WINDOW * (FULL_KV + 5 * LOCAL_KV)
    assert model.sequence_bytes(WINDOW) == kept * 2
    assert model.sequence_bytes(WINDOW + 1) - model.sequence_bytes(WINDOW) == FULL_KV * 2


@pytest.mark.parametrize(("tokens", "degree"), [(1, 1), (4, 1), (4, 2)])
def test_work_by_hand(tokens, degree):
    given = {"batch_size": 3, "tokens_per_sequence": tokens, "layout": Layout(degree)}
    parts = pass_of(read(SMALL), **given).components
    t, channels = 3 * tokens, (FULL_KV + 5 * LOCAL_KV + 6 * 2 * H) / degree
    convolved = parts["short_convolution"]
    assert convolved.flop == t * 2 * KERNEL * channels
    # of each sequence the last rows are read, and one row is written for each token
    assert convolved.cache_bytes == 3 * (KERNEL - 1 + tokens) * channels * 2
    relative = parts["relative_positions"]
    terms = EXTENT + 5 * WINDOW
    made = H * HEADS * TERMS / degree
    assert relative.activation_bytes == t * 6 * HEADS / degree * TERMS * 2
    assert relative.kernels == 6
    assert relative.weight_bytes == (6 * made + TERMS * terms) * 2
    assert relative.flop == pytest.approx(2 * t * (6 * made + HEADS / degree * TERMS * terms))
    reductions = 0 if degree == 1 else parts["all_reduce"].reductions
    assert reductions == (0 if degree == 1 else 6 + 6 + 1)


def test_memory_of_drafted_tokens_is_a_row_each():
    target = deploy(target=read(SMALL), hardware="b200", drafter="ngram")[0]
    kept = [float(MemoryUse(target, 0.0, tokens).bytes_per_request) for tokens in (1.0, 4.0)]
    rows = FULL_KV + 5 * LOCAL_KV + 6 * 2 * H
    assert kept[1] - kept[0] == 3 * (rows + FULL_KV + 5 * LOCAL_KV) * 2


def test_modules_have_dense_blocks():
    model = read(SMALL)
    assert model.num_mtp_modules == 3
    (head, *others) = mtp_drafter(model).architectures
    assert len(others) == 2
    (mixer,) = head.mixers
    assert (mixer.window, mixer.num_kv_heads) == (None, 8)
    assert not head.is_moe
    local = read(SMALL, mtp_local_layer_ids=[0, 1, 2]).mtp_layer.mixer
    assert (local.window, local.num_kv_heads) == (WINDOW, 16)
    assert read(SMALL, num_mtp_layers=None).num_mtp_modules == 0
