"""Models with two geometries of attention, read from config.json: figures by hand.

Sums of parameters and bytes of caches, counted on transformers' models, are in
`test_hf_families.py`; here is how they come about, layer by layer.
"""

import numpy as np
import pytest
from configs import flat, read
from strategies import pass_of

from specmodel import deploy, mtp_drafter
from specmodel.core.cost import MemoryUse
from specmodel.core.layers import Layout

GEMMA_SMALL = flat("transformers--gemma4_text-shared")
MIMO, STEP = flat("XiaomiMiMo--MiMo-V2-Flash"), flat("transformers--step3p7", model_type="step3p5")


# Weights by role


def test_embeddings_for_each_layer_are_looked_up():
    model, bare = read(GEMMA_SMALL), read(GEMMA_SMALL, hidden_size_per_layer_input=0)
    layers, h, size = 30, 2304, 256
    table, gates = 262_144 * layers * size, 3 * layers * h * size + size
    more_norms = layers * h
    cut, copied = table + layers * h * size, gates - layers * h * size + more_norms
    for gpus in (1, 4):
        added = model.weight_bytes(Layout(gpus)) - bare.weight_bytes(Layout(gpus))
        assert added == 2 * (cut / gpus + copied)


# Defaults


def test_defaults_of_gemma_are_those_of_transformers():
    kept = ("model_type", "hidden_size", "intermediate_size", "num_hidden_layers")
    bare = {key: GEMMA_SMALL[key] for key in kept}
    told = {"num_attention_heads": 8, "vocab_size": 262_144}
    assert read(bare | told) == read(flat("transformers--gemma4_text"))
    sliding_last = ["full_attention"] + ["sliding_attention"] * 29
    model = read(bare | told | {"layer_types": sliding_last})
    assert {mixer.window: n for mixer, n in model.mixers.items()} == {512: 28, None: 2}


def test_modules_attend_to_a_window_and_have_a_dense_block():
    attention, block = 4096 * (64 * 192 + 8 * (192 + 128)) + 64 * 128 * 4096, 3 * 4096 * 16384
    drafter = mtp_drafter(read(MIMO))
    (head, *others), norms = drafter.architectures, 3 * 4096
    (mixer,) = head.mixers
    assert (mixer.window, len(others), mixer.weights(4096)) == (128, 2, attention)
    inner = attention + block + 2 * 4096 * 4096 + norms
    assert head.total_parameters == head.outer_parameters + inner
    assert float(head.sequence_bytes(np.array(1e5))) == 128 * 2 * 8 * (192 + 128)
    (of_step,) = mtp_drafter(read(STEP)).architectures[0].mixers
    assert (of_step.window, of_step.num_heads) == (512, 96)


# Inkling: windows with heads of their own, convolutions and relative positions

H, KERNEL, HEADS, TERMS, EXTENT, WINDOW = 6144, 4, 64, 16, 1024, 512
FULL_KV, LOCAL_KV = 2 * 8 * 128, 2 * 16 * 128
"""Elements of the keys and values of a token in one layer of either kind."""

INKLING = flat("transformers--inkling")
SMALL = {key: INKLING[key] for key in INKLING if key != "layer_types"}
SMALL |= {"num_hidden_layers": 6, "num_mtp_layers": 3}
SMALL |= {"mlp_layer_types": ["dense"] + ["sparse"] * 5}


@pytest.mark.parametrize(("tokens", "degree"), [(1, 1), (4, 1), (4, 2)])
def test_work_by_hand(tokens, degree):
    given = {"batch_size": 3, "tokens_per_sequence": tokens, "layout": Layout(degree)}
    parts = pass_of(read(SMALL), **given).components
    t, channels = 3 * tokens, (FULL_KV + 5 * LOCAL_KV + 6 * 2 * H) / degree
    convolved = parts["short_convolution"]
    assert convolved.flop == t * 2 * KERNEL * channels
    # of each sequence the last rows are read, and one row is written for each token
    assert convolved.cache_bytes == 3 * (KERNEL - 1 + tokens) * channels * 2
    relative, terms = parts["relative_positions"], EXTENT + 5 * WINDOW
    made = H * HEADS * TERMS / degree
    assert (relative.activation_bytes, relative.kernels) == (t * 6 * HEADS / degree * TERMS * 2, 6)
    assert relative.weight_bytes == (6 * made + TERMS * terms) * 2
    assert relative.flop == pytest.approx(2 * t * (6 * made + HEADS / degree * TERMS * terms))
    reductions = 0 if degree == 1 else parts["all_reduce"].reductions
    assert reductions == (0 if degree == 1 else 6 + 6 + 1)


def test_memory_of_drafted_tokens_is_a_row_each():
    target = deploy(target=read(SMALL), hardware="b200", drafter="ngram", engine="ideal")[0]
    kept = [float(MemoryUse(target, 0.0, tokens).bytes_per_request) for tokens in (1.0, 4.0)]
    rows = FULL_KV + 5 * LOCAL_KV + 6 * 2 * H
    assert kept[0] == ((KERNEL - 1) * rows + FULL_KV + 5 * LOCAL_KV) * 2
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
