"""Lightning attention: weights, states and work, counted by hand on MiniMax-Text-01."""

import configs
import numpy as np
import pytest
from configs import CONFIGS
from shapes import without_fields
from strategies import pass_of

from specmodel import predict
from specmodel.base.errors import InputError
from specmodel.cost.deploying import deploy
from specmodel.drafters import ngram_drafter
from specmodel.layers import LightningAttention
from specmodel.layers.batch import Layout
from specmodel.layers.states import StateKeeping
from specmodel.models.architecture import load_architecture

TEXT_01 = load_architecture("minimax-text-01")
LAYER = next(mixer for mixer in TEXT_01.mixers if isinstance(mixer, LightningAttention))
H, HEADS, WIDTH, LAYERS = 6144, 64, 128, 70
STATE = HEADS * WIDTH * WIDTH
CONFIG = CONFIGS["MiniMaxAI--MiniMax-Text-01"]


def read(**changes):
    return configs.read(CONFIG, **changes)


def test_sizes_are_those_of_the_published_model():
    """456B, of which 45.9B are active without embedding and head; 10 layers have a cache."""
    assert TEXT_01.total_parameters == pytest.approx(456_089_655_296, rel=1e-6)
    assert TEXT_01.active_parameters == pytest.approx(47_174_113_280, rel=1e-5)
    empty, one = TEXT_01.sequence_bytes(np.array([0.0, 1.0]))
    assert one - empty == 10 * 2 * 8 * 128 * 2
    assert empty == LAYERS * STATE * 4


@pytest.mark.parametrize("degree", [1, 2, 8, 64])
def test_a_gpu_has_its_heads(degree):
    """Queries, keys, values, gate and output by head, and the norm between them."""
    assert LAYER.weights(H, degree) == (5 * H * HEADS * WIDTH + HEADS * WIDTH) / degree
    assert LAYER.state_bytes(degree) == STATE * 4 / degree
    assert LAYER.cuts(degree)
    assert not LAYER.cuts(3)


def test_no_convolution_keeps_anything():
    for states in (StateKeeping(), StateKeeping(slots="scratch"), StateKeeping(slots="aligned")):
        reserved = LAYER.reserved_bytes(np.array(4.0), states, TEXT_01.stream, 1)
        assert reserved == float(states.states(np.array(4.0))) * STATE * 4
    assert "short_convolution" not in pass_of(TEXT_01, batch_size=1).components


def test_verified_tokens_write_a_state_each():
    for tokens in (1, 2, 5):
        work = pass_of(TEXT_01, batch_size=3, tokens_per_sequence=tokens, context_length=1000)
        found = work.components["recurrence"]
        assert found.cache_bytes == pytest.approx(3 * (1 + tokens) * LAYERS * STATE * 4, rel=1e-12)
        assert found.flop == pytest.approx(3 * tokens * 6 * LAYERS * STATE, rel=1e-12)
        assert found.memory_cause == "state"
        values = 3 * tokens * LAYERS * 4 * HEADS * WIDTH * 2
        assert found.activation_bytes == pytest.approx(values, rel=1e-12)


def test_projections_of_a_pass_by_hand():
    work = pass_of(TEXT_01, batch_size=7, layout=Layout(4)).components["recurrent_projections"]
    weights = LAYERS * (5 * H + 1) * HEADS * WIDTH / 4
    assert work.weight_bytes == pytest.approx(2 * weights, rel=1e-12)
    assert work.flop == pytest.approx(2 * 7 * weights, rel=1e-12)
    assert work.kernels == 3 * LAYERS


def test_nobody_timed_it_so_that_errors_are_larger():
    point = {"target": "minimax-text-01", "hardware": "h200_sxm", "drafter": "ngram"}
    deployment, said = deploy(**point, tensor_parallel=8, stack="vllm")
    own = deployment.kernels.fit("recurrence", "fp32")
    taken = deployment.kernels.fit("state_space", "fp32")
    assert taken.parameters.launch_time == own.parameters.launch_time
    assert taken.mean_error > own.mean_error
    assert "state_space" in said


def test_states_limit_verification_of_many_sequences():
    p = predict(
        target="minimax-text-01", hardware="h200_sxm", drafter=ngram_drafter(), draft_length=3,
        acceptance=0.8, batch_size=512, context_length=1000, tensor_parallel=8,
    )  # fmt: skip
    least = 3 * 512 * LAYERS * STATE * 4 / 8 / 4.8e12  # three more states written, at the peak
    assert float(p.verify_time - p.forward_time) > least > 0.2 * float(p.forward_time)


# Configurations


def test_families_of_it_are_one_shape():
    shapes = [read(model_type=name) for name in ("minimax_text_01", "minimax_m1", "minimax")]
    labels = {"name", "source"}
    assert without_fields(shapes[0], labels) == without_fields(shapes[1], labels)
    assert without_fields(shapes[0], labels) == without_fields(shapes[2], labels)


def test_width_of_a_head_that_is_null_follows_from_the_models():
    assert {mixer.head_dim for mixer in read(head_dim=None).mixers} == {6144 // 64}


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"attn_type_list": None}, "layer_types: got None; expected 80 kinds of layers"),
        ({"attn_type_list": [1] * 79}, "attn_type_list: got '79 entries'"),
        ({"attn_type_list": [2] * 80}, "attn_type_list: got 2; expected 0 or 1"),
        ({"layer_types": ["full_attention"] * 80}, "layer_types: got .*attn_type_list"),
        ({"shared_intermediate_size": 512}, "shared_intermediate_size: got 512; expected no such"),
    ],
)
def test_what_is_not_known_is_refused(changes, match):
    with pytest.raises(InputError, match=match):
        read(**changes)
