"""Residual streams that are mixed (mHC) or attended to (AttnRes): weights and traffic by hand."""

import numpy as np
import pytest
from msgspec.structs import replace
from printed import refused
from rows import each_row, faults
from strategies import pass_of

from specmodel import decode, load_architecture, mtp_drafter
from specmodel.core.layers import Layout

PLAIN = load_architecture("deepseek-v3")
H, LAYERS = 7168, 61
HYPER = {"kind": "hyper_connections", "num_streams": 4}


def with_residuals(**fields):
    return PLAIN.with_changes("target", {"residuals": fields})


STREAMS = with_residuals(**HYPER)
SUMS = with_residuals(kind="attention_residuals", block_layers=12)


def norms(model, name="norms", **point):
    given = {"batch_size": 8, "context_length": 100} | point
    return pass_of(model, **given).components[name]


def test_weights_of_four_streams():
    """24 numbers of a token's four streams before each of 122 blocks, in 32 bits on each GPU."""
    own = 2 * LAYERS * (24 * 4 * H + 24 + 3)
    assert STREAMS.total_parameters - PLAIN.total_parameters == own
    assert STREAMS.active_parameters - PLAIN.active_parameters == own
    for degree in (1, 8):
        more = STREAMS.weight_bytes(Layout(degree)) - PLAIN.weight_bytes(Layout(degree))
        assert more == pytest.approx(4 * own)


def test_traffic_of_four_streams():
    """Read twice before a block and written as one; read with its result, and written, after it."""
    mixed, rows = norms(STREAMS, "residual_streams"), 8 * H * 2
    assert mixed.activation_bytes / rows == 2 * LAYERS * (4 + 4 + 1 + 1 + 4 + 4)
    assert mixed.flop == 8 * 2 * LAYERS * 2 * 24 * 4 * H
    assert mixed.weight_bytes == 2 * LAYERS * 24 * 4 * H * 4
    assert (mixed.kind, mixed.kernels) == ("hyper_connections", 2 * LAYERS * (4 + 1))
    assert mixed.depth == 2 * LAYERS * 2 * 4 * H


def test_few_tokens_are_written_back_and_read_for_the_next_block_by_one_kernel():
    """vLLM's up to 32 tokens: four kernels a block and one walk; from 64 on five and two."""
    sizes, apart = [1, 32, 48, 64, 500], np.array([0.0, 0.0, 0.5, 1.0, 1.0])
    run = {"hardware": "h200_sxm", "engine": "vllm", "tensor_parallel": 8, "stack": "vllm"}
    work = decode(target=STREAMS, batch_size=sizes, **run).times.forward.work()
    mixed = work.components["residual_streams"]
    np.testing.assert_allclose(mixed.kernels, 2 * LAYERS * (4 + apart))
    np.testing.assert_allclose(mixed.depth, 2 * LAYERS * (1 + apart) * 4 * H)


def test_norms_before_blocks_are_done_with_the_streams():
    """The norm before the LM head is left."""
    assert norms(PLAIN).activation_bytes / 8 / (H * 2) == 4 * (2 * LAYERS + 1)
    assert norms(STREAMS).activation_bytes / 8 / (H * 2) == 4
    assert (norms(PLAIN).kernels, norms(STREAMS).kernels) == (2 * LAYERS + 1, 1)


def test_streams_become_one_before_the_lm_head():
    """By a smaller matrix of as many columns as streams, read likewise."""
    model = with_residuals(**HYPER, has_head=True)
    assert model.total_parameters - STREAMS.total_parameters == 4 * 4 * H + 4 + 1
    more, less = (norms(each, "residual_streams") for each in (model, STREAMS))
    assert more.activation_bytes - less.activation_bytes == 8 * (4 + 4 + 1) * H * 2
    assert more.flop - less.flop == 8 * 2 * 4 * 4 * H


def test_earlier_sums_are_read_before_each_block():
    """Layers 0 to 60, a sum for every 12: none before the first, 6 before the LM head."""
    read = sum(-(-i // 12) + -(-(i + 1) // 12) for i in range(LAYERS)) + 6
    assert norms(SUMS).activation_bytes - norms(PLAIN).activation_bytes == 8 * read * H * 2
    assert norms(SUMS).kernels == norms(PLAIN).kernels
    assert SUMS.total_parameters - PLAIN.total_parameters == 2 * H * (2 * LAYERS + 1)


def test_layers_for_several_tokens_have_one_stream_unless_said():
    assert mtp_drafter(STREAMS).architectures[0].residuals is None
    model = with_residuals(**HYPER, in_modules=True)
    assert mtp_drafter(model).architectures[0].residuals == model.residuals


def test_streams_that_are_not_mixed_need_fewer_numbers():
    """As in Hy4: what is read of each stream, and what each gets; two scales, four biases each."""
    models = [with_residuals(**HYPER, is_mixed=False, gate_rank=rank) for rank in (0, 320)]
    plain, gated = (model.total_parameters - PLAIN.total_parameters for model in models)
    assert plain == 2 * LAYERS * (8 * (4 * H + 1) + 2)
    assert gated == pytest.approx(2 * LAYERS * 4 * H * (2 * 320 + 4), rel=1e-3)


def test_parts_beside_others_read_no_residual():
    group = PLAIN.layers[0]
    beside = replace(group, feed_forward=None, num_norms=0)
    model = replace(PLAIN, layers=(group, beside))
    assert (model.around.mixed_layers, model.around.mixed_blocks) == (group.count, 2 * group.count)


@each_row(("residuals", "message"), faults("residuals"))
def test_bad_sizes_are_named(residuals, message):
    refused(message, with_residuals, **residuals)
