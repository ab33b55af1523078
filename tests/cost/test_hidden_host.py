"""Engines whose host works beside the GPU: what a step takes, part by part, and in every answer."""

import math

import pytest
from rows import cases

from specmodel import deploy, load_engine, ngram_drafter
from specmodel.core.cost import step_times

HOST = {"pass_time": 2e-3, "draft_pass_time": 5e-4, "reject_time": 1e-3}
HOST |= {"reject_time_per_request": 4e-5, "tree_time": 3e-4}
WHERE = {"target": "qwen3-30b-a3b", "drafter": "eagle3", "hardware": "h200_sxm", "stack": "sglang"}
POINT = {"batch_size": 8, "draft_length": 3, "context_length": 1000}


def engine(hides, **changes):
    return load_engine("ideal").with_changes("engine", {**HOST, "hides_host": hides, **changes})


def times(hides, **changes):
    own, _ = deploy(**WHERE, engine=engine(hides, **changes))
    return step_times(own, **POINT, verify_tokens=4)


GPU = times("none", **dict.fromkeys(HOST, 0.0))
"""What the GPU takes alone."""

HOST_OF_STEP = 2e-3 + 3 * 5e-4 + 1e-3 + 8 * 4e-5


@cases(
    "hides plain step",
    ("none", GPU.forward_time + 2e-3, GPU.step_time + HOST_OF_STEP),
    ("plain", math.hypot(GPU.forward_time, 2e-3), GPU.step_time + HOST_OF_STEP),
    ("all", math.hypot(GPU.forward_time, 2e-3), math.hypot(GPU.step_time, HOST_OF_STEP)),
)
def test_what_is_hidden_and_what_adds(hides, plain, step):
    found = times(hides)
    assert float(found.forward_time) == pytest.approx(float(plain), rel=1e-12)
    assert float(found.step_time) == pytest.approx(float(step), rel=1e-12)


def test_causes_and_parts_sum_to_the_step():
    found = times("all")
    growth = sum(found.growth_by_cause().values())
    assert float(growth) == pytest.approx(float(found.step_time - found.forward_time), rel=1e-12)
    parts = found.draft_time + found.verify_time + found.reject_time
    assert float(parts) == pytest.approx(float(found.step_time), rel=1e-12)
    assert all(part > 0 for part in (found.draft_time, found.verify_time, found.reject_time))


def test_a_host_twice_as_fast_takes_half_and_the_gpu_s_share_of_trees_stays():
    own, _ = deploy(**WHERE, engine=engine("none", host_speed=2.0), tree_width=2)
    found = step_times(own, **POINT, verify_tokens=4)
    expected = GPU.step_time + HOST_OF_STEP / 2 + 3e-4
    assert float(found.step_time) == pytest.approx(float(expected), rel=1e-12)


def test_a_slower_gpu_takes_longer_in_all_passes_and_the_host_does_not():
    found = times("none", gpu_time_factor=1.25)
    assert float(found.forward_time) == pytest.approx(float(1.25 * GPU.forward_time + 2e-3))
    assert float(found.step_time) == pytest.approx(float(1.25 * GPU.step_time + HOST_OF_STEP))


STEP = {**WHERE, "engine": "vllm-0.24"}


def terms(drafter, **changes):
    own, _ = deploy(**STEP | {"drafter": drafter} | changes)
    return step_times(own, **POINT, verify_tokens=4)


def test_a_draft_that_is_waited_for_shows_scheduling_and_hides_launches():
    """vLLM 0.24 schedules steps with n-gram after the last: GPU, scheduling and sampling add."""
    seconds = load_engine("vllm-0.24").overheads
    python = seconds.pass_time + seconds.reject_time + 8 * seconds.reject_time_per_request
    found = terms(ngram_drafter())
    gpu = float(found.verify_pass.gpu_time)
    assert float(found.step_time) == pytest.approx(gpu + python, rel=1e-9)
    eager = terms(ngram_drafter(), enforce_eager=True)
    launched = float(eager.verify_pass.launch_time)
    shown = math.hypot(float(eager.verify_pass.gpu_time), launched)
    assert float(eager.speculating.total_time) == pytest.approx(shown + seconds.pass_time, rel=1e-9)


def test_a_step_in_which_nothing_is_proposed_waits_too():
    """The arm is scheduled synchronously as a whole, as with --no-async-scheduling."""
    seconds, never = load_engine("vllm-0.24").overheads, terms(ngram_drafter(proposal_rate=0.0))
    python = seconds.pass_time + seconds.reject_time
    assert float(never.step_time) == pytest.approx(float(never.plain_pass.gpu_time) + python)
    found = terms(ngram_drafter(proposal_rate=0.1))
    growth = float(sum(found.growth_by_cause().values()))
    assert growth == pytest.approx(float(found.step_time - found.forward_time), rel=1e-12)
    assert float(found.step_time) > float(never.step_time)


def test_a_model_that_is_waited_for_is_launched_beside_the_verify_pass():
    """vLLM 0.24 drafts from tokens on the GPU; scheduling and sampling add, by hand."""
    seconds, found = load_engine("vllm-0.24").overheads, terms("qwen3-0.6b")
    parts = [(float(part.passes.count), part.each) for part in found.draft_passes]
    gpu = float(found.verify_pass.gpu_time + sum(n * each.gpu_time for n, each in parts))
    launched = sum(n * float(each.launch_time) for n, each in parts)
    host = launched + 3 * seconds.draft_pass_time
    python = seconds.pass_time + seconds.reject_time + 8 * seconds.reject_time_per_request
    longest = max(math.hypot(gpu, 3 * seconds.draft_pass_time), math.hypot(gpu, launched), host)
    assert float(found.step_time) == pytest.approx(longest + python, rel=1e-9)


def test_hosts_of_desktop_cards_are_faster_unless_told():
    card = {"drafter": "ngram", "hardware": "rtx_5090", "stack": "typical", "weight_dtype": "int4"}
    found = [terms(**card, **told).plain_pass.host_time for told in ({}, {"host_speed": 1.0})]
    assert 1.5 * float(found[0]) == pytest.approx(float(found[1]))


@cases("version each", ("0.24", 11), ("0.26", 4), ("0.30", 4), ("0.33", 11))
def test_draft_models_are_launched_as_the_version_does(version, each):
    """By hand: 24 layers of Qwen2-0.5B, four launches each in pieces, some eleven one by one."""
    where = {"target": "qwen2-57b-a14b", "drafter": "qwen2-0.5b", "hardware": "h200_sxm"}
    own, _ = deploy(**where, engine=f"vllm-{version}")
    found = step_times(own, **POINT, verify_tokens=4)
    seconds = load_engine("vllm").eager_kernel_time
    assert own.hides_host == ("drafts" if version < "0.28" else "all")
    for part in found.draft_passes:
        assert float(part.each.launch_time) / seconds == pytest.approx(24 * each, rel=0.3)


def test_drawing_tokens_moves_what_greedy_ones_do_not():
    """8 x 4 rows of 151,936 words, 48 bytes each, at H200's 4.8 TB/s at most."""
    greedy, drawn = terms("eagle3"), terms("eagle3", temperature=1.0)
    least = 8 * 4 * 151_936 * 48 / 4.8e12
    more = float(drawn.verify_pass.gpu_time - greedy.verify_pass.gpu_time)
    assert least < more < 2 * least + 50e-6
