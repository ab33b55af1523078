"""Inkling: windows with heads of their own, convolutions and relative positions, by hand."""

import numpy as np
import pytest
from configs import read
from rows import each_row
from strategies import pass_of

from specmodel import predict
from specmodel.base.errors import InputError
from specmodel.cost.deploying import deploy
from specmodel.cost.memory import MemoryUse
from specmodel.drafters import mtp_drafter
from specmodel.layers.batch import Layout
from specmodel.layers.convolutions import BesideAttention

H, KERNEL, HEADS, TERMS, EXTENT, WINDOW = 1024, 4, 16, 8, 256, 64
FULL_KV, LOCAL_KV = 2 * 2 * 64, 2 * 4 * 64
"""Elements of the keys and values of a token in one layer of either kind."""

SMALL = {
    "model_type": "inkling_text",
    "hidden_size": H,
    "num_hidden_layers": 6,
    "num_attention_heads": HEADS,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "swa_num_attention_heads": HEADS,
    "swa_num_key_value_heads": 4,
    "swa_head_dim": 64,
    "sliding_window_size": WINDOW,
    "d_rel": TERMS,
    "rel_extent": EXTENT,
    "conv_kernel_size": KERNEL,
    "vocab_size": 2000,
    "intermediate_size": 2048,
    "moe_intermediate_size": 256,
    "n_routed_experts": 16,
    "num_experts_per_tok": 2,
    "n_shared_experts": 2,
    "mlp_layer_types": ["dense"] + ["sparse"] * 5,
    "num_mtp_layers": 3,
}


def test_parameters_by_hand():
    attention = 2 * H * HEADS * 64 + np.array([FULL_KV, LOCAL_KV]) * H
    relative = H * HEADS * TERMS + TERMS * np.array([EXTENT, WINDOW])
    convolved = KERNEL * (np.array([FULL_KV, LOCAL_KV]) + 2 * H)
    layers = (attention + relative + convolved) @ [1, 5]
    blocks = 3 * H * 2048 + 5 * ((16 + 2) * 3 * H * 256 + 16 * H)
    norms = (6 * 2 + 1) * H
    model = read(SMALL)
    assert model.total_parameters == 2 * 2000 * H + layers + blocks + norms
    assert model.num_norms == 13


def test_caches_and_windows_by_hand():
    model = read(SMALL)
    rows = FULL_KV + 5 * LOCAL_KV + 6 * 2 * H
    assert model.sequence_bytes(0) == (KERNEL - 1) * rows * 2
    assert model.sequence_bytes(2) - model.sequence_bytes(1) == (FULL_KV + 5 * LOCAL_KV) * 2
    assert model.sequence_bytes(500) - model.sequence_bytes(499) == FULL_KV * 2


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
    assert (mixer.window, mixer.num_kv_heads) == (None, 2)
    assert not head.is_moe
    local = read(SMALL, mtp_local_layer_ids=[0, 1, 2]).mtp_layer.mixer
    assert (local.window, local.num_kv_heads) == (WINDOW, 4)
    assert read(SMALL, num_mtp_layers=None).num_mtp_modules == 0


def test_it_speculates_in_chains():
    given = {
        "hardware": "h200_sxm",
        "drafter": "mtp",
        "acceptance": 0.7,
        "batch_size": 8,
        "engine": "ideal",
    }
    p = predict(target=read(SMALL), draft_length=[0, 3], **given)
    assert p.speedup[0] == 1
    assert 0 < p.target_efficiency[1] < 1
    with pytest.raises(InputError, match=r"verify_tokens: got 9; .*a chain"):
        predict(target=read(SMALL), draft_length=3, verify_tokens=9, **given)
    with pytest.raises(InputError, match=r"tensor_parallel: got 3"):
        predict(target=read(SMALL), draft_length=3, tensor_parallel=3, **given)


def test_names_of_its_own_files_mean_the_same():
    model = read(SMALL)
    own = {"dense_intermediate_size": 2048, "intermediate_size": 256, "moe_intermediate_size": None}
    assert read(SMALL, **own) == model
    kernel = {"conv_kernel_size": None, "sconv_kernel_size": KERNEL}
    assert read(SMALL, **kernel, model_type="inkling_model") == model
    assert read(SMALL, mlp_layer_types=None, dense_mlp_idx=1) == model
    assert read(SMALL, local_layer_ids=[0, 1, 2, 3, 4]) == model
    listed = ["hybrid_sliding"] * 5 + ["hybrid"]
    assert read(SMALL, layer_types=listed) == model
    assert read(SMALL, layer_types=listed, local_layer_ids=[0, 1, 2, 3, 4]) == model
    every = {mixer.window for mixer in read(SMALL, local_layer_ids=[]).mixers
             if not isinstance(mixer, BesideAttention)}  # fmt: skip
    assert every == {None}


@each_row(
    ("changes", "message"),
    [
        ({"num_key_value_heads": 3}, "num_key_value_heads: got 3; .*= 16"),
        ({"swa_num_key_value_heads": 3}, "swa_num_key_value_heads: got 3; .*swa_num_att"),
        ({"local_layer_ids": [6]}, "local_layer_ids: got .*from 0 to 5"),
        ({"local_layer_ids": [1], "layer_types": ["hybrid"] * 6}, "layer_types: .*local_layer_ids"),
        ({"dense_mlp_idx": 2}, "mlp_layer_types: got .*dense in the first 2 layers"),
        ({"num_experts_per_tok": 17}, "num_experts_per_tok: got 17; expected at most n_routed"),
        ({"sconv_kernel_size": 3}, "conv_kernel_size: got .*another name"),
        ({"mtp_local_layer_ids": [0]}, r"mtp_local_layer_ids: got \[0\]; expected all modules"),
    ],
)
def test_what_is_not_understood(changes, message):
    with pytest.raises(InputError, match=message) as error:
        read(SMALL, **changes)
    assert "\n" not in str(error.value)
