"""Components on a second stream take what they take beyond those that they run beside."""

from dataclasses import replace

import numpy as np
import pytest

import specmodel
from specmodel.cost.deploying import resolve
from specmodel.cost.passes import pass_time, side_by_side
from specmodel.layers.engines import NO_ENGINE, engine_code
from specmodel.machines.engine import load_engine
from specmodel.prediction.decoding import decode_deployed

WHERE = {"target": "deepseek-r1", "hardware": "h200_sxm", "tensor_parallel": 8}
SIZES = np.array([1, 16, 128, 384, 1024])


def decoded(engine, **options):
    return specmodel.decode(**WHERE, stack="vllm", engine=engine, batch_size=SIZES, **options)


def times(plain):
    return {name: time.total_time for name, time in plain.times.forward.components.items()}


@pytest.fixture(scope="module")
def alone():
    """The same kernels, one after another."""
    deployment, _ = resolve({**WHERE, "stack": "vllm", "engine": "vllm"})
    vars(deployment)["code"] = replace(engine_code("vllm"), beside_tokens=1e-9)
    return decode_deployed(deployment, {}, batch_size=SIZES)


def test_shared_experts_hide_behind_the_routed_ones_up_to_the_engines_threshold(alone):
    own, apart = times(decoded("vllm")), times(alone)
    behind = apart["router"] + apart["routed_experts"]
    share = np.clip(2 - SIZES / 256, 0, 1)
    hidden = share * np.minimum(apart["shared_experts"], behind)
    np.testing.assert_allclose(own["shared_experts"], apart["shared_experts"] - hidden, atol=1e-12)
    for name in apart.keys() - {"shared_experts"}:
        np.testing.assert_array_equal(own[name], apart[name])
    assert hidden[0] > 5e-4
    assert hidden[-1] == 0


def test_the_activation_function_of_shared_experts_runs_with_them(alone):
    one_after_another, _ = resolve({**WHERE, "stack": "vllm", "engine": "vllm"})
    vars(one_after_another)["code"] = NO_ENGINE
    apart = times(decode_deployed(one_after_another, {}, batch_size=SIZES))
    joined = times(alone)
    launches = 58  # one for each layer with experts, of elementwise kernels or of products
    fewer, more = (apart[n] - joined[n] for n in ("elementwise", "shared_experts"))
    assert (fewer > launches * 1e-6).all()
    assert (-more > launches * 1e-6).all()


def test_components_still_sum_to_the_pass(alone):
    plain = decoded("vllm")
    np.testing.assert_allclose(sum(times(plain).values()), plain.times.forward.gpu_time, rtol=1e-12)
    assert (plain.tpot <= alone.tpot).all()


def test_the_work_gives_the_time_that_the_program_gives():
    plain = decoded(replace(load_engine("ideal"), runs_shared_beside=True))
    d, forward = plain.deployment, plain.times.forward
    again = pass_time(forward.work(), d.hardware, d.kernels)
    np.testing.assert_allclose(again.gpu_time, forward.gpu_time, rtol=1e-12)
    assert (times(plain)["shared_experts"][:2] == 0).all()


def test_what_takes_longer_than_the_others_takes_the_difference(alone):
    """Shared experts beside the router alone, which is shorter."""
    forward = alone.times.forward
    works = forward.work().components
    beside = replace(works["shared_experts"], beside=("router",), beside_tokens=np.inf)
    found = side_by_side(forward.timed, {"shared_experts": beside}, SIZES)
    rows = {name: time for stack in found for name, time in stack.rows.items()}
    left = rows["shared_experts"].total_time
    expected = times(alone)["shared_experts"] - times(alone)["router"]
    np.testing.assert_allclose(left, np.maximum(expected, 0), rtol=1e-9, atol=1e-15)


def test_more_tokens_never_take_less_time():
    sizes = np.arange(240, 512, dtype=float)
    plain = specmodel.decode(**WHERE, engine="vllm", batch_size=sizes)
    growth = np.diff(plain.tpot)
    assert (growth > 0).all()
    assert (growth / plain.tpot[:-1] < 0.01).all()


def test_engines_without_a_row_run_one_after_another():
    assert engine_code("torch") is engine_code(None) is NO_ENGINE
    assert not NO_ENGINE.beside_tokens
    for name in ("vllm", "sglang", "trtllm"):
        assert engine_code(name).beside_tokens >= 256
