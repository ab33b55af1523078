"""Kimi delta attention: weights, states and work by hand."""

import numpy as np
import pytest
from msgspec.structs import replace

from specmodel import Architecture
from specmodel.core.base import as_table, build
from specmodel.core.layers import KimiDeltaAttention
from specmodel.core.layers.states import StateKeeping

K3 = KimiDeltaAttention(num_heads=96, head_dim=128, conv_kernel=4, has_low_rank_gate=False)
STATE = 96 * 128 * 128 * 4
H, WIDE = 7168, 96 * 128


def one(mixer):
    """A model of ten layers with a mixer, as wide as Kimi-K3."""
    layer = {"count": 10, "mixer": as_table(mixer)}
    fields = {"schema_version": 2, "name": "x", "source": "y", "hidden_size": H}
    return build(Architecture, fields | {"vocabulary_size": 1000, "layers": [layer]}, "model")


def test_weights_of_kimi_k3_by_hand():
    """Queries, keys, values and a gate of full rank; what is forgotten by two matrices."""
    low = H * 128 + 128 * WIDE
    assert K3.weights(H) == 4 * H * WIDE + low + H * 96 + 3 * WIDE * 4 + 96 + WIDE + WIDE * H + 128


@pytest.mark.parametrize(("decay", "gate"), [(True, True), (True, False), (False, False)])
def test_first_matrices_of_gates_are_copied_to_each_gpu(decay, gate):
    mixer = replace(K3, has_low_rank_decay=decay, has_low_rank_gate=gate)
    copied = (decay + gate) * H * 128 + 128
    assert mixer.weights(H, 8) == pytest.approx((mixer.weights(H) - copied) / 8 + copied)


def test_states_and_windows_are_those_published():
    """69 layers of Kimi-K3: 434.11 and 15.26 MB of a sequence, 54.3 and 1.9 MB on each of 8."""
    model = one(K3)
    window = 3 * K3.past_token_bytes(model.stream)
    assert 69 * K3.state_bytes() / 1e6 == pytest.approx(434.11, abs=0.005)
    assert 69 * window / 1e6 == pytest.approx(15.26, abs=0.005)
    assert 69 * K3.state_bytes(8) / 1e6 == pytest.approx(54.3, abs=0.05)
    assert 69 * window / 8 / 1e6 == pytest.approx(1.9, abs=0.05)
    assert float(model.sequence_bytes(np.array(5.0), 8)) == 10 * (STATE + window) / 8


def test_reservations_for_seven_drafted_tokens_are_those_reported():
    """vLLM keeps 8 states and windows of a sequence: 462 MiB on each of 8 GPUs, as one ran."""
    keeping, stream = StateKeeping(slots="chain"), one(K3).stream
    reserved = 69 * K3.reserved_bytes(np.array(8.0), keeping, stream, 8)
    states = 69 * 8 * K3.state_bytes(8)
    assert states / 2**20 == pytest.approx(8 * 51.75)
    assert reserved - states == 69 * 8 * (3 + 7) * 3 * WIDE / 8 * 2
    assert reserved / 2**20 == pytest.approx(462, abs=0.6)
    assert reserved / 2**20 == pytest.approx(8 * 57.81, abs=0.05)  # ATOM's blocks (ATOM#1883)
