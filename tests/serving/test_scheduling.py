"""What holds of every run: Little's law, conservation, memory, order, the same with numba."""

from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from constant_steps import constant_times
from hypothesis import given, strategies as st
from made_traces import make_trace

from specmodel.algebra.acceptance import Acceptance
from specmodel.base.errors import InputError
from specmodel.cost.deploying import deploy
from specmodel.cost.memory import MemoryUse
from specmodel.serving import state
from specmodel.serving.limits import Memory, Scheduler, memory_for
from specmodel.serving.outcome import Run
from specmodel.serving.policies import Drafting, drafting, fixed, no_drafts
from specmodel.serving.requests import Arrivals, Lengths, Requests, draw_requests
from specmodel.serving.run import simulate
from specmodel.serving.times import TabulatedTimes

ACCEPTED = Acceptance(acceptance_rate=0.7)
HALF = Lengths(prompt_tokens=50, output_tokens=20, prompt_spread=1.0, output_spread=0.8)


def growing_times(longest: int, most: int) -> TabulatedTimes:
    """Return times that grow with drafts, requests, contexts and chunks."""
    k, n, row = np.ogrid[: longest + 1, : most + 1, :40]
    base = 0.004 + 0.0005 * k + 0.0001 * n * (k + 1) + 1e-6 * n * row * 10.0
    base = base * (n > 0)
    sizes, tokens, seen = np.arange(most + 1.0), np.array([1.0, 50.0, 5000.0]), np.array([1.0, 500])
    more = 1e-5 * tokens[:, None] + 1e-7 * seen + 0 * sizes[:, None, None]
    return TabulatedTimes(
        base=base,
        context_step=10.0,
        more=np.broadcast_to(more, (longest + 1, *more.shape)),
        at_requests=sizes,
        at_tokens=tokens,
        at_seen=seen,
    )


@st.composite
def cases(draw: st.DrawFn) -> tuple[Requests, dict[str, object]]:
    """Draw requests and a server that holds the longest of them."""
    count = draw(st.integers(1, 40))
    open_ = draw(st.booleans())
    arrivals = Arrivals(
        request_rate=draw(st.sampled_from([0.5, 5.0, 50.0, 1000.0])) if open_ else 0.0,
        users=0 if open_ else draw(st.integers(1, 50)),
        process=draw(st.sampled_from(["poisson", "gamma", "bursts"])),
        variation=2.0,
        burst=draw(st.integers(1, 7)),
    )
    requests = draw_requests(arrivals, HALF, count, draw(st.integers(0, 1000)))
    longest = draw(st.integers(0, 4))
    scheduler = Scheduler(
        max_running=draw(st.integers(1, 12)),
        token_budget=draw(st.sampled_from([1, 7, 64, 4096])),
        block_size=draw(st.sampled_from([1, 16, 100])),
        reserved_tokens=draw(st.sampled_from([0, longest])),
        prefill_interval=draw(st.sampled_from([1, 1, 4])),
    )
    fixed_blocks = draw(st.integers(0, 3))
    entries = requests.longest + longest + 1 + scheduler.reserved_tokens
    least = -(-entries // scheduler.block_size) + fixed_blocks
    blocks = least + draw(st.sampled_from([0, 1, 5, 1000]))
    memory = Memory(blocks=blocks, fixed_blocks=fixed_blocks, block_size=scheduler.block_size)
    times = growing_times(longest, scheduler.max_running)
    name = draw(st.sampled_from(["fixed", "schedule", "sglang", "goodput"]))
    drafts = fixed(longest)
    if longest and name != "fixed":
        drafts = drafting(
            name, times=times, acceptance=ACCEPTED, max_draft_length=longest, context=50.0
        )
    setting = {"times": times, "scheduler": scheduler, "memory": memory, "drafts": drafts}
    return requests, setting | {"acceptance": ACCEPTED, "seed": draw(st.integers(0, 9))}


def ran(requests: Requests, setting: dict[str, Any], compiled: bool = False) -> Run:
    return simulate(requests, compiled=compiled, log_steps=20_000, **setting)


@given(cases())
def test_invariants_of_every_run(case: tuple[Requests, dict[str, object]]) -> None:
    requests, setting = case
    run = ran(requests, setting)
    present = (run.last - run.requests.arrival_time).sum()
    assert run.area == pytest.approx(present, rel=1e-9, abs=1e-9), "Little's law"
    if run.steps <= 20_000:
        assert run.log["emitted"].sum() == requests.output_tokens.sum(), "tokens are conserved"
        assert (run.log["running"] <= run.limits.requests).all()
        assert (run.log["free"] >= 0).all()
        assert (np.diff(run.log["time"]) >= 0).all()
    assert run.counts[state.DONE] == requests.count, "nobody is starved"
    assert run.counts[state.LEAST_FREE] >= 0, "memory is never exceeded"
    assert run.counts[state.FREE_BLOCKS] == run.limits.blocks, "all blocks come back"
    assert (run.requests.arrival_time <= run.started).all()
    assert (run.started < run.first).all()
    assert (run.first <= run.last).all()
    assert (np.diff(run.started) >= 0).all(), "first come, first served"
    assert (run.accepted_tokens <= run.drafted_tokens).all()


def test_a_full_memory_preempts_and_all_are_served() -> None:
    requests = draw_requests(Arrivals(request_rate=1000.0), HALF, 60, 3)
    memory = Memory(blocks=-(-(requests.longest + 9) // 16) + 1)
    setting: dict[str, object] = {
        "times": growing_times(2, 32),
        "scheduler": Scheduler(max_running=32, reserved_tokens=2),
        "memory": memory,
        "drafts": fixed(2),
        "acceptance": ACCEPTED,
    }
    run = ran(requests, setting)
    assert run.preemptions > 10
    roomy = ran(requests, setting | {"memory": Memory(blocks=10_000)})
    assert roomy.preemptions == 0
    assert roomy.end < run.end


@pytest.mark.skipif(find_spec("numba") is None, reason="needs numba")
@pytest.mark.parametrize("policy", ["fixed:3", "schedule", "sglang", "goodput", "cascade"])
@pytest.mark.parametrize("blocks", [60, 10_000])
def test_numba_gives_the_same_event_by_event(policy: str, blocks: int) -> None:
    requests = draw_requests(Arrivals(request_rate=400.0), HALF, 200, 5)
    requests = replace(requests, prompt_tokens=np.minimum(requests.prompt_tokens, 400))
    times = growing_times(3, 24)
    options = {"acceptance": ACCEPTED, "max_draft_length": 3, "context": 50.0, "state": "server"}
    setting: dict[str, object] = {
        "times": times,
        "scheduler": Scheduler(max_running=24, token_budget=256, reserved_tokens=3),
        "memory": Memory(blocks=blocks),
        "drafts": drafting(policy, times=times, **options),
        "acceptance": ACCEPTED,
    }
    slow, fast = (ran(requests, setting, compiled) for compiled in (False, True))
    names = ("started", "first", "last", "drafted_tokens", "accepted_tokens", "intervals", "sums")
    for name in (*names, "counts"):
        np.testing.assert_array_equal(getattr(slow, name), getattr(fast, name))
    for name, column in slow.log.items():
        np.testing.assert_array_equal(column, fast.log[name])
    assert (slow.preemptions > 0) == (blocks == 60)


def test_luck_is_of_a_position_and_not_of_the_order_of_steps() -> None:
    requests = draw_requests(Arrivals(request_rate=20.0), HALF, 100, 5)
    setting: dict[str, object] = {"drafts": fixed(3), "acceptance": ACCEPTED, "seed": 4}
    setting |= {"times": growing_times(3, 8), "memory": Memory(blocks=10_000)}
    alone, together = (
        ran(requests, setting | {"scheduler": Scheduler(max_running=most, reserved_tokens=3)})
        for most in (1, 8)
    )
    np.testing.assert_array_equal(alone.accepted_tokens, together.accepted_tokens)
    other = ran(requests, setting | {"scheduler": Scheduler(), "seed": 5})
    assert (other.accepted_tokens != alone.accepted_tokens).any()


def test_drafts_fare_as_their_acceptance_says() -> None:
    requests = draw_requests(Arrivals(users=1), Lengths(prompt_tokens=5, output_tokens=60_001), 1)
    requests = replace(requests, output_tokens=np.array([60_001]))
    run = simulate(
        requests,
        times=growing_times(3, 1),
        scheduler=Scheduler(),
        memory=Memory(blocks=10_000),
        drafts=fixed(3),
        acceptance=ACCEPTED,
    )
    expected = float(ACCEPTED.expected_tokens_per_step(3))
    error = 1.2 / (60_000 / expected) ** 0.5
    assert run.tokens_per_step == pytest.approx(expected, abs=4 * error)


def test_recorded_acceptance_is_met_position_by_position() -> None:
    trace = make_trace([[3] * 10], [[2, 0, 0, 1, 0, 3, 0, 0, 0, 0]], 3)
    requests = Requests(
        arrival_time=np.zeros(1), prompt_tokens=np.array([4]), output_tokens=np.array([10])
    )
    run = simulate(
        requests,
        times=constant_times(1.0, 1.0, max_draft_length=3),
        scheduler=Scheduler(),
        memory=Memory(blocks=10),
        drafts=fixed(3),
        acceptance=trace,
    )
    # the first token comes with prefill; steps at positions 1, 2, 3, 5 accept 0, 0, 1 and 3 tokens
    # and reach 2, 3, 5 and 9; the last, at 9, accepts none and ends the output
    assert run.accepted_tokens.tolist() == [4]
    assert run.steps == 6
    assert run.last.tolist() == [6.0]


def test_a_step_takes_the_draft_length_of_the_batch_before() -> None:
    requests = draw_requests(Arrivals(users=4), Lengths(prompt_tokens=5, output_tokens=40), 4)
    by_batch = Drafting(name="by batch", by_batch=(2, 2, 1, 0, 0), max_draft_length=2)
    setting: dict[str, object] = {"drafts": by_batch, "acceptance": ACCEPTED}
    setting |= {"times": growing_times(2, 8), "memory": Memory(blocks=10_000)}
    run = ran(requests, setting | {"scheduler": Scheduler(max_running=8, reserved_tokens=2)})
    batch = run.log["decoding"] + run.log["chunks"]
    expected = np.array(by_batch.by_batch)[batch[:-1].astype(int)]
    np.testing.assert_array_equal(run.log["draft"][1:], expected)


def test_prompts_found_in_the_cache_are_not_prefilled() -> None:
    requests = draw_requests(Arrivals(users=1), Lengths(prompt_tokens=160, output_tokens=2), 10)
    setting: dict[str, object] = {"times": growing_times(0, 8), "drafts": no_drafts()}
    setting |= {"memory": Memory(blocks=10_000), "scheduler": Scheduler()}
    for share, prefilled in ((0.0, 1600), (0.5, 800), (1.0, 10)):
        run = ran(requests, setting | {"prefix_hit_rate": share})
        assert run.sums[state.PREFILLED] == prefilled


@pytest.mark.parametrize(("load", "is_steady"), [(0.7, True), (1.4, False)])
def test_a_rate_that_is_not_carried_is_told(load: float, is_steady: bool) -> None:
    requests = draw_requests(
        Arrivals(request_rate=load), Lengths(prompt_tokens=5, output_tokens=1), 2000, 1
    )
    run = simulate(
        requests,
        times=constant_times(1.0, 1.0),
        scheduler=Scheduler(max_running=1),
        memory=Memory(blocks=10),
    )
    assert run.is_steady == is_steady
    assert run.carried_rate == pytest.approx(min(load, 1.0), rel=0.1)


@pytest.mark.parametrize(
    ("target", "hardware"), [("qwen3-30b-a3b", "h100"), ("qwen3.5-35b-a3b", "h200")]
)
def test_blocks_hold_the_batch_that_memory_holds(target: str, hardware: str) -> None:
    """The same bytes as `predict`'s largest batch, recurrent states among them."""
    deployment, _ = deploy(
        target=target, hardware=hardware, drafter="mtp" if "3.5" in target else "eagle3"
    )
    requests = draw_requests(Arrivals(users=1), Lengths(prompt_tokens=3000, output_tokens=400), 9)
    memory = memory_for(deployment, Scheduler(), 3, requests)
    held = MemoryUse(deployment, requests.longest, 4).max_batch_size
    own = -(-(requests.longest + 4) // memory.block_size) + memory.fixed_blocks
    assert memory.blocks / own == pytest.approx(float(held), rel=0.02)
    assert (memory.fixed_blocks > 0) == ("3.5" in target)


@pytest.mark.parametrize("longest", [50, 200])
def test_memory_that_holds_no_request_is_refused(longest: int) -> None:
    requests = Requests(
        arrival_time=np.zeros(1), prompt_tokens=np.array([longest]), output_tokens=np.array([9])
    )
    with pytest.raises(InputError, match="memory"):
        simulate(
            requests, times=constant_times(1, 1), scheduler=Scheduler(), memory=Memory(blocks=3)
        )


def test_policies_with_a_state_for_each_request_are_refused() -> None:
    options = {"acceptance": ACCEPTED, "max_draft_length": 3, "context": 50.0}
    with pytest.raises(InputError, match="policy-state server"):
        drafting("cascade", times=growing_times(3, 4), **options)
    with pytest.raises(InputError, match="at most 3"):
        drafting("table:1-8=5", times=growing_times(3, 4), **options)
