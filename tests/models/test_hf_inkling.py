"""Inkling: windows with heads of their own, convolutions and relative positions, by hand."""

import pytest
from configs import flat, read
from strategies import pass_of

from specmodel import deploy, mtp_drafter
from specmodel.cost import MemoryUse
from specmodel.layers.batch import Layout

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
