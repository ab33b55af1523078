"""Lightning attention: weights, states and work, counted by hand on MiniMax-Text-01."""

import configs
import numpy as np
import pytest
from configs import CONFIGS
from strategies import pass_of

from specmodel import deploy, load_architecture
from specmodel.layers import LightningAttention
from specmodel.layers.states import StateKeeping

TEXT_01 = load_architecture("minimax-text-01")
LAYER = next(mixer for mixer in TEXT_01.mixers if isinstance(mixer, LightningAttention))
H, HEADS, WIDTH = 6144, 64, 128
STATE = HEADS * WIDTH * WIDTH
CONFIG = CONFIGS["MiniMaxAI--MiniMax-Text-01"]


def read(**changes):
    return configs.read(CONFIG, **changes)


@pytest.mark.parametrize("degree", [1, 64])
def test_a_gpu_has_its_heads(degree):
    """Queries, keys, values, gate and output by head, and the norm between them."""
    assert LAYER.weights(H, degree) == (5 * H * HEADS * WIDTH + HEADS * WIDTH) / degree
    assert LAYER.state_bytes(degree) == STATE * 4 / degree
    assert LAYER.cuts(degree)
    assert not LAYER.cuts(3)


def test_no_convolution_keeps_anything():
    states = StateKeeping(slots="scratch")
    reserved = LAYER.reserved_bytes(np.array(4.0), states, TEXT_01.stream, 1)
    assert reserved == float(states.states(np.array(4.0))) * STATE * 4
    assert "short_convolution" not in pass_of(TEXT_01, batch_size=1).components


def test_nobody_timed_it_so_that_errors_are_larger():
    point = {"target": "minimax-text-01", "hardware": "h200_sxm", "drafter": "ngram"}
    deployment, said = deploy(**point, tensor_parallel=8, stack="vllm")
    own = deployment.kernels.fit("recurrence", "fp32")
    taken = deployment.kernels.fit("state_space", "fp32")
    assert taken.parameters.launch_time == own.parameters.launch_time
    assert taken.mean_error > own.mean_error
    assert "state_space" in said


# Configurations


def test_width_of_a_head_that_is_null_follows_from_the_models():
    assert {mixer.head_dim for mixer in read(head_dim=None).mixers} == {6144 // 64}
