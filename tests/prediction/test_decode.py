"""Plain decoding, and engines whose steps carry the prefill of other requests."""

import numpy as np
import pytest
from carried import added_by_prompt, draft_prefill_pass
from printed import refused
from rows import each_row

import specmodel
from specmodel.core.cost import prefill_pass
from specmodel.core.cost.steps import time_by_cause

WHERE = {"target": "qwen3-30b-a3b", "hardware": "h200_sxm", "tensor_parallel": 2}
SIZES = np.array([1, 16, 128])
LOAD = {"prompt_length": 4096, "output_length": 512}


def _predict(**options):
    common = {"drafter": "eagle3", "draft_length": [[1], [3]], "batch_size": SIZES}
    return specmodel.predict(**WHERE | common | {"acceptance": 0.7} | options)


def test_a_deployment_without_drafter_has_the_weights_of_the_target_alone():
    alone, assumed = specmodel.deploy(**WHERE)
    beside, _ = specmodel.deploy(**WHERE, drafter="ngram")
    assert not alone.has_drafter
    assert beside.has_drafter
    assert not {"draft_dtype", "proposal_rate", "lookup_time"} & assumed.keys()
    refused("lookup_time", specmodel.core.cost.deploying.resolve, {**WHERE, "lookup_time": 1e-3})
    refused("drafter", _predict, drafter="none")


def test_decoding_is_the_plain_pass_of_a_prediction():
    plain, p = specmodel.decode(**WHERE, batch_size=SIZES), _predict()
    np.testing.assert_allclose(plain.tpot, p.forward_time[0], rtol=1e-12)
    np.testing.assert_allclose(plain.throughput, SIZES / p.forward_time[0], rtol=1e-12)
    np.testing.assert_array_equal(plain.active_experts, p.active_experts[0])
    assert (plain.memory_bytes < p.memory_bytes[0]).all()
    assert (plain.max_batch_size >= p.max_batch_size[0]).all()


def test_causes_of_a_plain_pass_sum_to_it_and_the_largest_is_named():
    plain = specmodel.decode(**WHERE, batch_size=SIZES, context_length=100_000)
    causes = time_by_cause(plain.times.forward)
    np.testing.assert_allclose(sum(causes.values()), plain.tpot, rtol=1e-12)
    for place, name in enumerate(plain.largest_share):
        largest = max(causes, key=lambda cause: np.broadcast_to(causes[cause], (3,))[place])
        assert name == largest
    assert plain.largest_share[-1] == "KV"


def test_under_load_each_token_takes_the_others_prefill_over_the_output_length():
    idle = specmodel.decode(**WHERE, batch_size=SIZES, context_length=4352)
    loaded = specmodel.decode(**WHERE, batch_size=SIZES, **LOAD)
    assert loaded.assumptions["context_length"] == 4096 + 256
    prefill = prefill_pass(loaded.deployment, 4096).total_time
    np.testing.assert_allclose(loaded.prefill_time, prefill, rtol=1e-12)
    carried = (SIZES - 1) / 512 * added_by_prompt(loaded.deployment, idle.tpot, 4096, SIZES, 4352)
    np.testing.assert_allclose(loaded.tpot, idle.tpot + carried, rtol=1e-12)
    assert (loaded.largest_share[-1], loaded.tpot[0]) == ("prefill", idle.tpot[0])


def test_a_speculating_step_carries_as_many_times_the_prefill_as_it_makes_tokens():
    context = {"context_length": 4352}
    idle, loaded = _predict(**context), _predict(**context, **LOAD)
    added = added_by_prompt(idle.deployment, idle.forward_time, 4096, SIZES, 4352)
    tokens, carried = idle.tokens_per_step, (SIZES - 1) / 512 * added
    by_head = (SIZES - 1) / 512 * draft_prefill_pass(idle.deployment, 4096).total_time
    plain, verify = idle.forward_time + carried, idle.verify_time + tokens * carried
    step = idle.step_time + tokens * (carried + by_head)
    np.testing.assert_allclose(loaded.step_time, step, rtol=1e-12)
    np.testing.assert_allclose(loaded.tpot, idle.tpot + carried + by_head, rtol=1e-12)
    np.testing.assert_allclose(loaded.target_efficiency, plain / verify, rtol=1e-12)
    np.testing.assert_allclose(loaded.speedup, tokens * plain / step, rtol=1e-12)
    needed = [p.break_even_acceptance_rate for p in (loaded, idle)]
    np.testing.assert_allclose(*needed, rtol=1e-12)


def test_the_best_draft_of_a_loaded_engine_has_the_largest_of_its_speedups():
    lengths = np.arange(1, 11)[:, None]
    loaded = _predict(**LOAD, draft_length=lengths)
    best = lengths[loaded.speedup.argmax(axis=0), 0]
    best = np.where(loaded.speedup.max(axis=0) > 1, best, 0)
    np.testing.assert_array_equal(loaded.best_draft_length[0], best)


def test_intervals_hold_what_is_predicted_and_widen_with_load():
    loaded = specmodel.decode(**WHERE, batch_size=SIZES, **LOAD, interval=True)
    assert set(loaded.intervals) == {"tpot", "throughput", "prefill_time"}
    ends = loaded.intervals["tpot"]
    assert (ends.low < loaded.tpot).all()
    assert (loaded.tpot < ends.high).all()


def test_lengths_that_cannot_be_are_refused():
    lengths = [{"prompt_length": prompt, "output_length": 8} for prompt in (0, 8.5)]
    for bad in (*lengths, {"output_length": 8}, {"lockstep": True}):
        message = r"prompt_length|output_length|lockstep"
        refused(message, specmodel.decode, **WHERE, batch_size=1, **bad)


TIMED = {1: 5.11, 8: 5.35, 16: 5.59, 32: 6.26, 64: 7.90, 128: 9.43, 256: 11.30}


@each_row(("tokens", "milliseconds"), TIMED.items())
def test_passes_of_tokens_all_alike_take_what_vllm_timed_at_its_start(tokens, milliseconds):
    """DeepSeek-V4-Flash on four B300, figure 2 of vLLM's post of 2026-08-14 (vector graphic).

    Steps timed there have one token a request, all of id 0 on a cache of zeros (`make_dummy` and
    `set_dummy_context` of ``v1/worker/gpu/input_batch.py``, 0.28): all choose the same six experts.
    """
    where = {"target": "deepseek-v4-flash", "hardware": "b300", "tensor_parallel": 4}
    alike = [1.0] * 6 + [0.0] * 250
    found = specmodel.decode(**where, batch_size=tokens, context_length=8191, popularity=alike)
    assert found.active_experts == 6
    assert 1e3 * found.times.forward.gpu_time == pytest.approx(milliseconds, rel=0.15)
