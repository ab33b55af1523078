"""Tables of step times: against predictions, by hand, and as SGLang's own code reads them."""

import json

import numpy as np
import pytest
from engine_modules import own_module
from hypothesis import HealthCheck, given, settings, strategies as st
from printed import refused

from specmodel import deploy
from specmodel.core.prediction import decode_deployed, predict_deployed
from specmodel.plan import sglang_costs, step_costs
from specmodel.plan.cost_tables import MOST_STEPS, verify_times
from specmodel.show.schedules import costs_text

DEPLOYMENTS = {
    "moe": {"target": "qwen3-30b-a3b", "hardware": "h200_sxm", "engine": "sglang"},
    "dense": {"target": "llama-3.1-8b", "hardware": "h100_sxm", "engine": "ideal"},
    "recurrent": {"target": "qwen3.5-35b-a3b", "hardware": "h200_sxm", "engine": "vllm-moesd-2025"},
    "replicas": {
        "target": "deepseek-v3", "hardware": "h200_sxm", "data_parallel": 4, "expert_parallel": 4,
        "tensor_parallel": 2, "engine": "ideal",
    },
}  # fmt: skip
SIZES, CONTEXT, LENGTH = np.array([1, 3, 16, 100]), 1024, 5
SGLANG = "sglang/srt/speculative/dspark_components/dspark_sps.py"


def deployed(name):
    return deploy(**DEPLOYMENTS[name], drafter="parallel")[0]


def made(name, sizes=SIZES, length=LENGTH, context=CONTEXT):
    return verify_times(deployed(name), length, np.array(sizes), context)


def read(costs, requests, tokens):
    """Seconds that a table says of steps, by the words of SGLang's documentation."""
    of_requests = np.interp(requests, costs["bs_probes"], costs["alpha_seconds"])
    of_tokens = np.interp(tokens, costs["m_probes"], costs["theta_seconds"])
    return costs["bias_seconds"] + of_requests + of_tokens


def read_all(costs, sizes, length=LENGTH):
    requests = np.array(sizes)[:, None]
    return read(costs, requests, requests * np.arange(1, length + 2))


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_times_are_those_of_predictions(name):
    deployment, found = deployed(name), made(name)
    points = {"batch_size": SIZES * deployment.layout.replicas, "context_length": CONTEXT}
    whole = predict_deployed(deployment, {}, acceptance=0.5, draft_length=LENGTH, **points)
    np.testing.assert_allclose(found[:, -1], whole.step_time, rtol=1e-12)
    if deployment.engine.hides_host != "none":
        return  # what a part takes depends on the others, which hide more or less of the host
    beside = whole.step_time - whole.verify_time
    for tokens in range(2, LENGTH + 2):
        drafts = tokens - 1  # whose target pass has as many tokens
        p = predict_deployed(deployment, {}, acceptance=0.5, draft_length=drafts, **points)
        np.testing.assert_allclose(found[:, drafts], p.verify_time + beside, rtol=1e-12)
    plain = decode_deployed(deployment, {}, **points)
    np.testing.assert_allclose(found[:, 0], plain.tpot + beside, rtol=1e-12)


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_more_requests_and_tokens_take_no_less(name):
    step = made(name, sizes=[1, 2, 5, 40, 41, 300])
    assert (np.diff(step, axis=0) >= 0).all()
    assert (np.diff(step, axis=1) >= 0).all()


SIZE_LISTS = st.lists(st.integers(1, 200), min_size=1, max_size=12, unique=True).map(sorted)
SLOPES = st.floats(0, 1e-3)


@given(sizes=SIZE_LISTS, length=st.integers(1, 9), a=SLOPES, b=SLOPES)
@settings(deadline=None)
def test_what_is_additive_is_found_again(sizes, length, a, b):
    requests = np.array(sizes, float)[:, None]
    step = 4e-3 + a * np.sqrt(requests) + b * requests * np.arange(1, length + 2)
    costs = sglang_costs(np.array(sizes), step)
    np.testing.assert_allclose(read_all(costs, sizes, length), step, rtol=1e-8)


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_files_say_what_the_steps_take(name):
    costs = json.loads(costs_text(sglang_costs(SIZES, made(name))))
    assert np.abs(read_all(costs, SIZES) / made(name) - 1).max() < 0.05
    assert (np.diff(costs["alpha_seconds"]) >= 0).all()
    assert (np.diff(costs["theta_seconds"]) >= 0).all()


@pytest.mark.engine
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(sizes=SIZE_LISTS, length=st.integers(1, 9), requests=st.integers(1, 300))
def test_sglang_itself_reads_the_same_off_its_file(sizes, length, requests, tmp_path):
    pytest.importorskip("msgspec")
    module, path = own_module("sglang", SGLANG), tmp_path / "costs.json"
    costs = sglang_costs(np.array(sizes), made("moe", sizes=sizes, length=length))
    path.write_text(costs_text(costs), encoding="utf-8")
    loaded = module.load_sps_table_from_path(str(path))
    assert not module.is_uninitialized_sps_table(loaded)
    for n, steps in zip(sizes, read_all(costs, sizes, length), strict=True):
        for q, step in enumerate(steps, start=1):
            told = loaded.step_time(num_reqs=n, budget=n * (q - 1))
            assert told == pytest.approx(step, rel=1e-12)
    assert json.loads(loaded.to_json()) == costs
    expected = read(costs, requests, 2 * requests)
    told = loaded.step_time(num_reqs=requests, budget=requests)
    assert told == pytest.approx(expected, rel=1e-12)


def test_what_cannot_be_tabulated_is_refused():
    asked = {"drafter": "dspark", "max_draft_length": 3, "batch_size": 1, "context_length": 1}
    wrong = {"max_draft_length": (1.5, 10**6), "batch_size": (0, 1.5), "context_length": (-1,)}
    wrong |= {"drafter": ("ngram", "eagle3"), "acceptance_rate": (0.7,), "tree_width": (2,)}
    wrong |= {"batch_size": (range(1, MOST_STEPS // 4 + 2), range(1, 90_000))}
    for name, values in (wrong | {"context_length": ([512, 9000],)}).items():
        for value in values:
            refused(f"^{name}: got", step_costs, "qwen3-30b-a3b", "h200", **asked | {name: value})
