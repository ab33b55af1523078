"""Step times: those of the program, and the table beside the program."""

import numpy as np
import pytest
from carried import draft_prefill_pass
from engine_rules import verified_drafts
from msgspec.structs import replace
from rows import each_listed

import under_load
from specmodel import Acceptance, deploy
from specmodel.core.cost import prefill_pass, step_times
from specmodel.core.layers import sequence_group
from specmodel.simulate import tables, times
from specmodel.simulate.accepted import survival
from specmodel.simulate.drafting import best_lengths

QWEN = {"target": "qwen3-30b-a3b", "hardware": "h100", "drafter": "eagle3"}


def chunk(tokens, context=0.0):
    return sequence_group(
        batch_size=1, tokens_per_sequence=tokens, context_length=context, logits_per_sequence=1
    )


@pytest.fixture(scope="module")
def tabled():
    """A deployment and the table of its steps."""
    deployment, _ = deploy(**QWEN)
    limits = {"max_draft_length": 3, "max_requests": 200, "token_budget": 4096}
    return deployment, times.tabulate(deployment, **limits, max_context=4000, mean_context=500)


@pytest.mark.parametrize("drafter", ["eagle3", "qwen2-0.5b"])
def test_a_prompt_alone_takes_its_prefill_pass(drafter):
    deployment, _ = deploy(**QWEN | {"drafter": drafter})
    for tokens in (300.0, 4000.0):
        taken = times.prompts_step_time(deployment, chunk(tokens))
        whole = prefill_pass(deployment, tokens).total_time
        own = draft_prefill_pass(deployment, tokens)
        assert taken == whole + (own.total_time if own else 0.0)


def test_the_step_of_a_prompt_drafts_too(tabled):
    """As vLLM does: drafts follow the token that the prompt emits, also where nothing decodes."""
    deployment, table = tabled
    reads = times.prompts_step_time(deployment, chunk(256.0))
    for k in (0, 3):
        at = {"batch_size": 1, "draft_length": k, "verify_tokens": k + 1}
        drafts = step_times(deployment, context_length=500, **at).draft_time
        assert float(table.prompt_time(k, 0, 256, 128)) == pytest.approx(reads + drafts, rel=0.002)
    assert drafts > 0.03 * reads
    in_full = times.drafting_in_full(deployment, table, 500.0)
    for side in (in_full.more[:4], in_full.more[4:]):
        assert (side[:, 0] == side[3, 0]).all()
    assert (in_full.more[3::4] == table.more[3::4]).all()


def test_without_prompts_it_is_the_step_of_predict():
    deployment, _ = deploy(**QWEN)
    at = {"draft_length": 3, "batch_size": 20, "verify_tokens": 4, "context_length": 700}
    taken = times.mixed_step_time(deployment, requests=20, draft_length=3, context=700)
    assert taken == step_times(deployment, **at).step_time


@each_listed
def test_a_chunk_beside_requests_is_as_timed_on_a_gpu(requests, tokens, measured):
    """Qwen3-30B of random weights on an H200, vLLM 0.24; both apart take 23 to 79 % more."""
    deployment, _ = deploy(
        **QWEN | {"hardware": "h200", "drafter": None, "engine": "vllm-0.24"},
        routing_correlation=0,
        popularity_exponent=0,
    )
    at = {"requests": requests, "draft_length": 0, "context": 512}
    taken = times.mixed_step_time(deployment, **at, prompts=(chunk(tokens),))
    assert 1e3 * float(taken) == pytest.approx(measured, rel=0.14)


@pytest.mark.parametrize(("tokens", "measured"), [(1024, 107.6), (2048, 215.5), (4096, 430.6)])
def test_a_prompt_of_a_dense_model_is_as_timed_on_a_gpu(tokens, measured):
    """Qwen3-32B of random weights on an H200, vLLM 0.24; at full clock it takes a seventh less."""
    deployment, _ = deploy(target="qwen3-32b", hardware="h200", engine="vllm-0.24")
    bf16 = replace(deployment.hardware.dtype["bf16"], sustained=1.0)
    hardware = replace(deployment.hardware, dtype=deployment.hardware.dtype | {"bf16": bf16})
    full = replace(deployment, hardware=hardware)
    at_power, at_full = (
        1e3 * float(prefill_pass(each, tokens).total_time) for each in (deployment, full)
    )
    assert at_power == pytest.approx(measured, rel=0.04)
    assert at_full < 0.9 * measured


def test_replicas_that_share_experts_wait_for_a_prompt_of_one():
    added = []
    for shared in (1, 2):
        where = {"data_parallel": 2, "expert_parallel": shared} if shared > 1 else {}
        deployment, _ = deploy(**QWEN | {"drafter": None}, **where)
        limits = {"max_draft_length": 0, "max_requests": 64, "token_budget": 8192}
        table = times.tabulate(deployment, **limits, max_context=4000, mean_context=900)
        added.append(float(table.prompt_time(0, 32 * shared, 2048, 1024)))
    assert added[1] > 0.8 * added[0]  # not half, as if both read a part


def test_the_loop_reads_the_table_as_it_stands(tabled):
    _, table = tabled
    flat = table.flat()
    random = np.random.default_rng(0)
    for _ in range(50):
        k, n, c = int(random.integers(3)), int(random.integers(1, 41)), random.uniform(0, 2900)
        assert tables.at_context(flat, k, n, c) == pytest.approx(
            float(table.step_time(k, n, c)), rel=1e-12
        )
        tokens, seen = random.uniform(1, 2048), random.uniform(1, 2900)
        found = tables.prompt_time(flat, k, n, tokens, seen)
        assert found == pytest.approx(float(table.prompt_time(k, n, tokens, seen)), rel=1e-12)


@pytest.mark.parametrize("name", under_load.CASES)
def test_the_table_is_near_the_program_in_mixed_steps(name):
    """Figures of 1,000 steps each are printed by ``calibration/under_load.py table``."""
    study = under_load.case(name, 250)
    steps = under_load.watched_steps(study, "fixed:3", 5.0)
    mixed = [step for step in steps if step.chunks and step.contexts][::4]
    errors = np.abs([under_load.table_error(study, step) for step in mixed])
    assert len(errors) > 40
    assert np.median(errors) < 0.01
    assert errors.max() < 0.045


def test_times_never_fall_with_work(tabled):
    _, table = tabled
    assert (np.diff(table.base, axis=2) >= -1e-12).all()
    assert (np.diff(table.base[:, 1:], axis=1) >= -1e-12).all()
    in_graphs, beyond = np.split(table.more[:, 1:], 2)
    is_large = table.nodes[1] >= table.graph_tokens
    assert (np.diff(in_graphs, axis=2) >= -1e-6).all()
    assert (np.diff(beyond[:, :, is_large], axis=2) >= -1e-6).all()
    assert (beyond[:, :, is_large] > in_graphs[:, :, is_large] - 1e-12).all()


def test_drafts_in_full_cost_their_drafting_whatever_is_verified(tabled):
    deployment, table = tabled
    full = times.drafting_in_full(deployment, table, 500.0)
    at = {"batch_size": 8, "context_length": 500}
    drafts = [
        float(step_times(deployment, draft_length=k, verify_tokens=k + 1, **at).draft_time)
        for k in (1, 3)
    ]
    more = full.step_time(1, 8, 500) - table.step_time(1, 8, 500)
    assert float(more) == pytest.approx(drafts[1] - drafts[0], rel=1e-6)
    np.testing.assert_array_equal(full.base[3], table.base[3])
    acceptance = Acceptance(acceptance_rate=0.6)
    lengths = best_lengths(full, acceptance, 3, 500.0)
    chances = survival(acceptance, 3)[3].tolist()
    for n in (1, 5, 20):  # the rule on every number of tokens takes whole lengths too
        at_lengths = [float(full.step_time(k, n, 500.0)) for k in range(4)]
        by_tokens = np.interp(np.arange(4 * n + 1), n * np.arange(1, 5), at_lengths)
        assert verified_drafts(chances, n, n, by_tokens, n) == n * lengths[n - 1]
