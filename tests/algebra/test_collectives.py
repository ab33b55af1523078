"""All-reduces send what their algorithms send, and take longer with bytes and GPUs."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from specmodel.core.algebra.collectives import AllReduceParameters, all_reduce_time

RATE = 4e11
FREE = AllReduceParameters(
    one_shot_latency=0.0, one_shot_hop_latency=0.0, one_shot_efficiency=1.0,
    two_shot_latency=0.0, two_shot_hop_latency=0.0, two_shot_efficiency=1.0,
)  # fmt: skip


def received(num_gpus, parts):
    """Values that the GPU which receives most receives, by doing it: row i is held by GPU i."""
    total, count = parts.sum(axis=0), np.zeros(num_gpus)
    pieces = np.array_split(np.arange(parts.shape[1]), num_gpus)
    held = np.zeros_like(parts)
    for gpu, piece in enumerate(pieces):  # each reduces its piece of all
        others = np.delete(parts, gpu, axis=0)[:, piece]
        count[gpu] += others.size
        held[gpu, piece] = parts[gpu, piece] + others.sum(axis=0)
    for gpu in range(num_gpus):  # and gets the reduced pieces of the others
        for other, piece in enumerate(pieces):
            if other != gpu:
                held[gpu, piece] = held[other, piece]
                count[gpu] += piece.size
    np.testing.assert_allclose(held, np.tile(total, (num_gpus, 1)))
    return float(count.max())


@pytest.mark.parametrize("num_gpus", [2, 4, 8])
def test_two_shot_sends_what_reducing_and_gathering_the_parts_sends(num_gpus):
    parts = np.random.default_rng(num_gpus).normal(size=(num_gpus, 64))
    seconds = all_reduce_time(64 * 2, num_gpus, RATE, FREE)
    assert seconds * RATE == pytest.approx(2 * received(num_gpus, parts), rel=1e-12)


@pytest.mark.parametrize("num_gpus", [2, 4, 8])
def test_one_shot_reads_the_tensor_of_every_other_gpu(num_gpus):
    slow = replace(FREE, two_shot_latency=1.0, one_shot_latency=2e-6, one_shot_hop_latency=1e-7)
    others = num_gpus - 1
    expected = 2e-6 + others * (1e-7 + 1e6 / RATE)
    assert all_reduce_time(1e6, num_gpus, RATE, slow) == pytest.approx(expected, rel=1e-12)


def test_many_tensors_take_as_long_as_each_of_them_in_turn():
    p = replace(FREE, one_shot_latency=3e-6, two_shot_latency=2e-5, one_shot_efficiency=0.5)
    sizes = np.geomspace(1e3, 1e9, 7)
    together = all_reduce_time(60 * sizes, 8, RATE, p, count=60)
    np.testing.assert_allclose(together, 60 * all_reduce_time(sizes, 8, RATE, p), rtol=1e-12)


def test_gpus_that_share_a_bus_have_a_part_of_it():
    bus = replace(FREE, contention=1.0)
    for num_gpus in (2, 4, 8):
        alone = all_reduce_time(1e8, num_gpus, RATE, FREE)
        shared = all_reduce_time(1e8, num_gpus, RATE, bus)
        assert shared == pytest.approx(num_gpus / 2 * alone, rel=1e-12)


positive = st.floats(1e-9, 1e-3)


@given(
    st.builds(
        AllReduceParameters,
        one_shot_latency=positive,
        one_shot_hop_latency=positive,
        one_shot_efficiency=st.floats(0.01, 1.5),
        two_shot_latency=positive,
        two_shot_hop_latency=positive,
        two_shot_efficiency=st.floats(0.01, 1.5),
        contention=st.floats(0, 3),
    )
)
def test_time_grows_with_bytes_and_gpus_and_never_jumps(p):
    size, num_gpus = np.geomspace(1, 1e10, 200), np.arange(2, 73)[:, None]
    seconds = all_reduce_time(size, num_gpus, RATE, p)
    assert (np.diff(seconds, axis=0) >= 0).all()
    assert (np.diff(seconds, axis=1) >= 0).all()
    more = all_reduce_time(1.001 * size, num_gpus, RATE, p)
    assert (more <= 1.001 * seconds * (1 + 1e-12)).all()
