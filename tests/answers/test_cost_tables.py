"""Tables of step times: against predictions, by hand, and as SGLang's own code reads them."""

import json

import numpy as np
import pytest
from engine_modules import own_module
from hypothesis import HealthCheck, given, settings, strategies as st
from msgspec.structs import replace
from printed import refused

from specmodel import InputError, deploy, load_engine
from specmodel.answers import CostTable, cost_table, sglang_costs
from specmodel.answers.cost_tables import MOST_STEPS, costs_step_time, costs_text
from specmodel.prediction import decode_deployed, predict_deployed

DEPLOYMENTS = {
    "moe": {"target": "qwen3-30b-a3b", "hardware": "h200_sxm", "engine": "sglang"},
    "dense": {"target": "llama-3.1-8b", "hardware": "h100_sxm", "engine": "ideal"},
    "recurrent": {"target": "qwen3.5-35b-a3b", "hardware": "h200_sxm", "engine": "vllm-moesd-2025"},
    "replicas": {
        "target": "deepseek-v3", "hardware": "h200_sxm", "data_parallel": 4, "expert_parallel": 4,
        "tensor_parallel": 2, "engine": "ideal",
    },
}  # fmt: skip
SIZES, CONTEXTS, LENGTH = [1, 3, 16, 100], [512, 9000], 5
SGLANG = "sglang/srt/speculative/dspark_components/dspark_sps.py"


def deployed(name):
    return deploy(**DEPLOYMENTS[name], drafter="parallel")[0]


def made(name, sizes=SIZES, contexts=1024, length=LENGTH):
    return cost_table(
        deployed(name), draft_length=length, batch_size=sizes, context_length=contexts
    )


def planted(sizes, length, step):
    """A table of steps whose time is a function of requests and tokens."""
    sizes = np.array(sizes)
    tokens = np.outer(sizes, np.arange(1, length + 2))
    none = np.zeros((1, len(sizes), 1))
    return CostTable(
        draft_length=length, context_length=np.array([100]), batch_size=sizes, draft_time=none,
        verify_time=step(sizes[:, None].astype(float), tokens)[None], reject_time=none,
    )  # fmt: skip


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_times_are_those_of_predictions(name):
    deployment, table = deployed(name), made(name, contexts=CONTEXTS)
    points = {
        "batch_size": np.array(SIZES) * deployment.layout.replicas,
        "context_length": np.array(CONTEXTS)[:, None],
    }
    whole = predict_deployed(deployment, {}, acceptance=0.5, draft_length=LENGTH, **points)
    np.testing.assert_allclose(table.step_time[..., -1], whole.step_time, rtol=1e-12)
    np.testing.assert_allclose(table.draft_time[..., -1], whole.draft_time, rtol=1e-12)
    if deployment.engine.hides_host != "none":
        return  # what a part takes depends on the others, which hide more or less of the host
    np.testing.assert_allclose(table.draft_time[..., 0], whole.draft_time, rtol=1e-12)
    for tokens in range(2, LENGTH + 2):
        drafts = tokens - 1  # whose target pass has as many tokens
        p = predict_deployed(deployment, {}, acceptance=0.5, draft_length=drafts, **points)
        np.testing.assert_allclose(table.verify_time[..., drafts], p.verify_time, rtol=1e-12)
    plain = decode_deployed(deployment, {}, **points)
    np.testing.assert_allclose(table.verify_time[..., 0], plain.tpot, rtol=1e-12)


def test_steps_that_hide_the_host_take_the_hypotenuse_of_gpu_and_host():
    deployment, table = deployed("moe"), made("moe", contexts=CONTEXTS)
    engine = deployment.engine
    idle = load_engine("ideal").with_changes("engine", {"stack": engine.stack})
    points = {"draft_length": LENGTH, "batch_size": SIZES, "context_length": CONTEXTS}
    gpu = cost_table(replace(deployment, engine=idle), **points).step_time
    assert (engine.hides_host, engine.kernel_time, engine.reject_time_per_token) == ("all", 0, 0)
    host = engine.pass_time + engine.draft_pass_time + engine.reject_time
    host = host + engine.reject_time_per_request * np.array(SIZES)[:, None]
    np.testing.assert_allclose(table.step_time, np.sqrt(gpu**2 + host**2), rtol=1e-12)


def test_trees_are_refused():
    tree = replace(deployed("moe"), tree_width=2)
    with pytest.raises(InputError, match=r"^tree_width: got 2; expected 1, a chain"):
        cost_table(tree, draft_length=3, batch_size=1, context_length=100)


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_more_of_anything_takes_no_less(name):
    step = made(name, sizes=[1, 2, 5, 40, 41, 300], contexts=[0, 100, 30000]).step_time
    for axis in range(3):
        assert (np.diff(step, axis=axis) >= 0).all()


def test_rows_are_the_steps():
    table = made("moe", contexts=CONTEXTS)
    rows = iter(table.rows())
    for i, j, q in np.ndindex(table.step_time.shape):
        row = next(rows)
        assert (row["context_length"], row["batch_size"]) == (CONTEXTS[i], SIZES[j])
        assert row["num_tokens"] == row["batch_size"] * row["verify_tokens"] == SIZES[j] * (q + 1)
        assert row["step_time"] == table.step_time[i, j, q]
        parts = row["draft_time"] + row["verify_time"] + row["reject_time"]
        assert row["step_time"] == pytest.approx(parts, rel=1e-12)
    assert not [*rows]


SIZE_LISTS = st.lists(st.integers(1, 200), min_size=1, max_size=12, unique=True).map(sorted)
SLOPES = st.floats(0, 1e-3)


@given(sizes=SIZE_LISTS, length=st.integers(1, 9), a=SLOPES, b=SLOPES)
@settings(deadline=None)
def test_what_is_additive_is_found_again(sizes, length, a, b):
    table = planted(sizes, length, lambda n, m: 4e-3 + a * np.sqrt(n) + b * m)
    read_off = costs_step_time(sglang_costs(table), table)
    np.testing.assert_allclose(read_off, table.step_time[0], rtol=1e-8)


def read(costs, requests, tokens):
    """Seconds that a table says of one step, by the words of SGLang's documentation."""
    of_requests = np.interp(requests, costs["bs_probes"], costs["alpha_seconds"])
    of_tokens = np.interp(tokens, costs["m_probes"], costs["theta_seconds"])
    return costs["bias_seconds"] + of_requests + of_tokens


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_files_say_what_the_steps_take(name):
    table = made(name)
    costs = json.loads(costs_text(sglang_costs(table)))
    found = [[read(costs, n, n * q) for q in table.verify_tokens] for n in table.batch_size]
    np.testing.assert_allclose(costs_step_time(costs, table), found, rtol=1e-12)
    error = np.abs(found / table.step_time[0] - 1)
    assert error.max() < 0.05
    assert (np.diff(costs["alpha_seconds"]) >= 0).all()
    assert (np.diff(costs["theta_seconds"]) >= 0).all()


@pytest.mark.engine
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(sizes=SIZE_LISTS, length=st.integers(1, 9), requests=st.integers(1, 300))
def test_sglang_itself_reads_the_same_off_its_file(sizes, length, requests, tmp_path):
    pytest.importorskip("msgspec")
    module, path = own_module("sglang", SGLANG), tmp_path / "costs.json"
    table = made("moe", sizes=sizes, length=length)
    costs = sglang_costs(table)
    path.write_text(costs_text(costs), encoding="utf-8")
    loaded = module.load_sps_table_from_path(str(path))
    assert not module.is_uninitialized_sps_table(loaded)
    for n, steps in zip(table.batch_size.tolist(), costs_step_time(costs, table), strict=True):
        for q, step in enumerate(steps, start=1):
            told = loaded.step_time(num_reqs=n, budget=n * (q - 1))
            assert told == pytest.approx(step, rel=1e-12)
    assert json.loads(loaded.to_json()) == costs
    expected = read(costs, requests, 2 * requests)
    told = loaded.step_time(num_reqs=requests, budget=requests)
    assert told == pytest.approx(expected, rel=1e-12)


def test_what_cannot_be_tabulated_is_refused():
    message = r"^context_length: got \[512, 9000\]; expected a single one"
    refused(message, sglang_costs, made("dense", contexts=CONTEXTS))
    many = made("dense", sizes=range(1, MOST_STEPS // (LENGTH + 1) + 2))
    refused(r"^batch_size: got '683 of them'; expected at most 682", sglang_costs, many)
    d, _ = deploy(target="llama-3.1-8b", hardware="h100_sxm", drafter="ngram")
    with pytest.raises(InputError, match=r"^drafter: got .*; expected a head or a model"):
        cost_table(d, draft_length=3, batch_size=1, context_length=1)
    points = {"draft_length": 3, "batch_size": 1, "context_length": 1}
    bad = {"draft_length": (0, 1.5, 10**6), "batch_size": (0, 1.5, float("nan"))}
    for name, values in (bad | {"context_length": (-1,)}).items():
        for value in values:
            refused(f"^{name}: got", cost_table, deployed("dense"), **points | {name: value})
