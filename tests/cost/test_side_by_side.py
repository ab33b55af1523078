"""Components on a second stream share the GPU with those that they run beside."""

import numpy as np
import pytest
from msgspec.structs import replace
from printed import refused

import specmodel
from specmodel import load_engine
from specmodel.core.cost import resolve
from specmodel.core.layers.engines import NO_ENGINE, engine_code
from specmodel.core.prediction import decode_deployed

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
    vars(deployment)["code"] = replace(deployment.code, beside_tokens=1e-9)
    return decode_deployed(deployment, {}, batch_size=SIZES)


def test_shared_experts_hide_behind_the_routed_ones_up_to_the_engines_threshold(alone):
    """By the formula as it stands in theory.md, term by term."""
    own, apart = times(decoded("vllm")), times(alone)
    parts = alone.times.forward.components
    both = parts["router"], parts["routed_experts"]
    second = parts["shared_experts"]
    first = sum(part.total_time for part in both)
    longer = np.maximum(first, second.total_time)
    read = sum(part.reading_time for part in both) * second.reading_time
    computed = sum(part.compute_time for part in both) * second.compute_time
    together = longer + np.maximum(read, computed) / longer
    share = np.clip(2 - SIZES / 256, 0, 1)
    hidden = share * (first + second.total_time - together)
    np.testing.assert_allclose(own["shared_experts"], apart["shared_experts"] - hidden, rtol=1e-9)
    beside = decoded("vllm").times.forward.components["shared_experts"]
    np.testing.assert_allclose(beside.hidden_time, hidden, rtol=1e-9)
    np.testing.assert_allclose(beside.own_time, apart["shared_experts"], rtol=1e-9)
    for name in apart.keys() - {"shared_experts"}:
        np.testing.assert_array_equal(own[name], apart[name])
    assert hidden[0] > 4e-4
    assert hidden[-1] == 0


def test_a_wide_shared_expert_takes_the_time_of_its_bytes():
    """MoESD's target: 27.4 GB in a pass, 12.3 of them a shared expert's, took 0 s beside."""
    plain = specmodel.decode(target="qwen2-57b-a14b", hardware="h200_sxm", batch_size=[1, 64, 256])
    work = plain.times.forward.work().components
    moved = sum(part.weight_bytes + part.cache_bytes for part in work.values())
    assert (moved / 4.8e12 < plain.tpot).all()
    parts = plain.times.forward.components
    both = parts["routed_experts"].total_time + parts["shared_experts"].total_time
    names = "routed_experts", "shared_experts"
    assert (both > sum(parts[name].reading_time for name in names)).all()
    assert (parts["shared_experts"].hidden_time > 0).all()


def test_the_activation_function_of_shared_experts_runs_with_them(alone):
    one_after_another, _ = resolve({**WHERE, "stack": "vllm", "engine": "vllm"})
    vars(one_after_another)["code"] = NO_ENGINE
    apart = times(decode_deployed(one_after_another, {}, batch_size=SIZES))
    joined = times(alone)
    launches = 58  # one for each layer with experts, of elementwise kernels or of products
    fewer, more = (apart[n] - joined[n] for n in ("elementwise", "shared_experts"))
    assert (fewer > launches * 1e-6).all()
    assert (-more > launches * 1e-6).all()


@pytest.mark.parametrize("name", ["attention_core", "shared_experts", "lm_head", "routers"])
def test_what_cannot_run_beside_shared_experts_is_refused(name):
    changes = {"shared_beside": ["router", name]}
    message = rf"shared_beside.*{name}.*router.*routed_experts"
    refused(message, load_engine("vllm").with_changes, "engine", changes)


def test_engines_without_a_row_run_one_after_another():
    assert engine_code("torch") is engine_code(None) is NO_ENGINE
    assert not NO_ENGINE.beside_tokens
    for name in ("vllm", "sglang", "trtllm"):
        assert engine_code(name).beside_tokens >= 256
