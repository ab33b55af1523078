"""What holds of every run: Little's law, conservation, memory, order, the same with numba."""

from importlib.util import find_spec

import numpy as np
import pytest
from constant_steps import constant_times, requests_of, tpot_of
from engine_rules import AdaptiveServer
from hypothesis import given, strategies as st
from msgspec.structs import replace
from printed import refused

from specmodel import Acceptance, deploy
from specmodel.core.cost import MemoryUse
from specmodel.simulate import Arrivals, Lengths, Scheduler, Service, draw_requests
from specmodel.simulate.accepted import spread_survival, survival
from specmodel.simulate.drafting import Drafting, drafting, scheduled
from specmodel.simulate.limits import check_fits, limits_for
from specmodel.simulate.state import Limits
from specmodel.simulate.tables import TabulatedTimes

ACCEPTED = Acceptance(acceptance_rate=0.7)
HALF = Lengths(prompt_tokens=50, output_tokens=20, prompt_spread=1.0, output_spread=0.8)


def growing_times(longest, most):
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
        nodes=(sizes, tokens, seen),
    )


@st.composite
def cases(draw):
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
    if draw(st.booleans()):
        requests = replace(requests, cached_tokens=requests.prompt_tokens * 2 // 3)
    longest = draw(st.integers(0, 4))
    limits = Limits(
        blocks=0,
        fixed_blocks=draw(st.integers(0, 3)),
        block_size=draw(st.sampled_from([1, 16, 100])),
        max_running=draw(st.integers(1, 12)),
        token_budget=draw(st.sampled_from([1, 7, 64, 4096])),
        reserved_tokens=draw(st.sampled_from([0, longest])),
    )
    entries = requests.longest + longest + 1 + limits.reserved_tokens
    least = -(-entries // limits.block_size) + limits.fixed_blocks
    limits = limits._replace(blocks=least + draw(st.sampled_from([0, 1, 5, 1000])))
    times = growing_times(longest, limits.max_running)
    name = draw(st.sampled_from(["fixed", "schedule", "sglang", "goodput", "cascade"]))
    drafts = scheduled([longest])
    if longest and name != "fixed":
        drafts = learned(name, times)
    how = {"drafts": drafts, "acceptance_by_request": draw(st.sampled_from([0.0, 1.0]))}
    return requests, Service(times=times, limits=limits, acceptance=ACCEPTED, **how)


def server(times, drafts=None, *, acceptance=ACCEPTED, **limits):
    """Return a server of ample memory unless `limits` say otherwise, which drafts nothing."""
    limits = Limits(**{"blocks": 10_000} | limits)
    return Service(times=times, limits=limits, drafts=drafts or Drafting(), acceptance=acceptance)


def learned(name, times, acceptance=ACCEPTED, state=None):
    """Return a policy by name for a server with these step times."""
    longest = times.max_draft_length
    options = {"acceptance": acceptance, "max_draft_length": longest, "context": 50.0}
    return drafting(name, times=times, state=state, **options)


def ran(requests, service, *, compiled=False, seed=0):
    return service.run(requests, compiled=compiled, log_steps=20_000, seed=seed)


@given(cases(), st.integers(0, 9))
@pytest.mark.search
def test_invariants_of_every_run(case, seed):
    requests, service = case
    run = ran(requests, service, seed=seed)
    if run.state.steps <= 20_000:
        assert run.log["emitted_tokens"].sum() == requests.output_tokens.sum(), (
            "tokens are conserved"
        )
        assert (run.log["running"] <= service.limits.max_running).all()
        assert (run.log["free_blocks"] >= 0).all(), "memory is never exceeded"
    assert run.state.finished == requests.count, "nobody is starved"
    assert run.state.free_blocks == service.limits.blocks, "all blocks come back"
    assert (run.requests.arrival_time <= run.started).all()
    assert (run.started < run.first).all()
    assert (run.first <= run.last).all()
    assert (np.diff(run.started) >= 0).all(), "first come, first served"
    assert (run.accepted_tokens <= run.drafted_tokens).all()


def test_a_full_memory_preempts_and_all_are_served():
    requests = draw_requests(Arrivals(request_rate=1000.0), HALF, 60, 3)
    limits = {"max_running": 32, "reserved_tokens": 2}
    limits["blocks"] = -(-(requests.longest + 9) // 16) + 1
    service = server(growing_times(2, 32), scheduled([2]), **limits)
    run = ran(requests, service)
    assert run.state.preemptions > 10
    roomy = ran(requests, replace(service, limits=service.limits._replace(blocks=10_000)))
    assert roomy.state.preemptions == 0
    assert roomy.state.now < run.state.now


def test_a_request_holds_its_fixed_blocks_beside_those_of_its_entries():
    """50 and 20 tokens in blocks of 16: 5 blocks, the last token's entry never being written."""
    alone = requests_of(50, 20)
    for fixed_blocks in (0, 3):
        limits = {"blocks": 20, "fixed_blocks": fixed_blocks, "max_running": 4}
        service = server(growing_times(0, 4), **limits)
        assert ran(alone, service).log["free_blocks"].min() == 20 - (5 + fixed_blocks)


@pytest.mark.skipif(find_spec("numba") is None, reason="needs numba")
@pytest.mark.parametrize(
    ("policy", "state"),
    [(name, "server") for name in ("fixed:3", "schedule", "sglang", "goodput", "cascade")]
    + [("cascade", "request"), ("goodput", "request")],
)
@pytest.mark.parametrize("blocks", [60, 10_000])
def test_numba_gives_the_same_event_by_event(policy, state, blocks):
    requests = draw_requests(Arrivals(request_rate=400.0), HALF, 200, 5)
    requests = replace(requests, prompt_tokens=np.minimum(requests.prompt_tokens, 400))
    times = growing_times(3, 24)
    limits = {"blocks": blocks, "max_running": 24, "token_budget": 256, "reserved_tokens": 3}
    service = server(times, learned(policy, times, state=state), **limits)
    by_context = {0: ACCEPTED, 100: Acceptance(acceptance_rate=0.3)}
    service = replace(service, by_context=by_context, acceptance_by_request=0.5)
    slow, fast = (ran(requests, service, compiled=compiled) for compiled in (False, True))
    names = ("started", "first", "last", "drafted_tokens", "accepted_tokens", "intervals", "log")
    for name in names:
        np.testing.assert_array_equal(getattr(slow, name), getattr(fast, name))
    assert slow.state == fast.state
    assert (slow.state.preemptions > 0) == (blocks == 60)


def test_requests_that_draft_apart_take_the_mean_of_steps_alike():
    """Four requests, each under a Cascade of its own."""
    requests = draw_requests(Arrivals(users=4), Lengths(prompt_tokens=5, output_tokens=60), 12, 3)
    times = growing_times(3, 4)
    log = ran(requests, server(times, learned("cascade", times))).log
    alike = log[(log["chunks"] == 0) & (log["decoding"] == 4)]
    own = 4 * (alike["step_time"] - 0.004) - 4 * 4e-4 - 4 * 4e-6 * alike["context"] / 4
    drafted = own / (4 * 1e-4 + 5e-4)  # tokens of all four drafts
    np.testing.assert_allclose(drafted, np.rint(drafted), atol=1e-6)
    assert (np.rint(drafted) < 4 * alike["draft_length"]).any()
    assert (np.rint(drafted) <= 4 * alike["draft_length"]).all()


def test_a_server_of_sglang_decides_as_the_rule_does_from_what_batches_accept():
    requests = draw_requests(Arrivals(users=9), Lengths(prompt_tokens=5, output_tokens=200), 60)
    times, likely = growing_times(7, 12), Acceptance(acceptance_rate=0.95)
    service = server(times, learned("sglang", times, likely), acceptance=likely)
    rule, batch, log = AdaptiveServer(), 1, ran(requests, service).log
    for step in log:
        assert step["draft_length"] == rule.propose(batch)
        batch = step["batch"]
        if step["decoding"]:
            rule.observe([step["accepted_tokens"] / step["decoding"]], batch)
    assert len({*log["draft_length"]}) > 1


def test_noise_is_of_a_position_and_not_of_the_order_of_steps():
    requests = draw_requests(Arrivals(request_rate=20.0), HALF, 100, 5)
    alone, together = (
        server(growing_times(3, most), scheduled([3]), reserved_tokens=3) for most in (1, 8)
    )
    accepted = ran(requests, alone, seed=4).accepted_tokens
    np.testing.assert_array_equal(accepted, ran(requests, together, seed=4).accepted_tokens)
    assert (ran(requests, alone, seed=5).accepted_tokens != accepted).any()


def test_a_step_takes_the_draft_length_of_the_batch_before():
    requests = draw_requests(Arrivals(users=4), Lengths(prompt_tokens=5, output_tokens=40), 4)
    by_batch = Drafting(by_batch=(2, 2, 1, 0, 0), max_draft_length=2)
    run = ran(requests, server(growing_times(2, 8), by_batch, reserved_tokens=2))
    batch = run.log["decoding"] + run.log["chunks"]
    expected = np.array(by_batch.by_batch)[batch[:-1]]
    np.testing.assert_array_equal(run.log["draft_length"][1:], expected)


def test_prompts_found_in_the_cache_are_not_prefilled():
    requests = draw_requests(Arrivals(users=1), Lengths(prompt_tokens=160, output_tokens=2), 10)
    service = server(growing_times(0, 8))
    for share, prefilled in ((0.0, 1600), (0.5, 800), (1.0, 10)):
        run = ran(requests, replace(service, prefix_hit_rate=share))
        assert run.state.prefilled_tokens == prefilled
    run = ran(requests, replace(service, shared_prefix=100))
    assert run.state.prefilled_tokens == 1600 - 9 * 96, "whole blocks, of all but the first"
    told = replace(requests, cached_tokens=np.arange(10) * 16)
    run = ran(told, replace(service, prefix_hit_rate=0.5))
    assert run.state.prefilled_tokens == 1600 - 45 * 16, "a recording that tells it decides"


@pytest.mark.parametrize("longest", [1, 3, 7])
@pytest.mark.parametrize("spread", [0.4, 1.0])
def test_a_spread_of_acceptance_keeps_tokens_per_step(longest, spread):
    """Of classes that make equally many tokens, so that slow ones have more of the steps."""
    rates = Acceptance(acceptance_by_position=[0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3])
    reached = survival(rates, longest)
    by_class = spread_survival(reached[None], spread)[:, 0]
    tokens = 1 + by_class.sum(axis=-1)
    assert (np.diff(tokens[:, 1:], axis=0) > 0).all()
    np.testing.assert_allclose(1 / (1 / tokens).mean(axis=0), 1 + reached.sum(axis=-1), rtol=1e-9)
    first = by_class[:, 1, 0]
    assert np.log(first / (1 - first)).std() == pytest.approx(spread)
    assert (spread_survival(reached[None], 0.0) == reached).all()


@pytest.mark.search
def test_requests_differ_by_the_spread_and_together_fare_as_without():
    requests = draw_requests(Arrivals(users=8), Lengths(prompt_tokens=5, output_tokens=600), 1000)
    service = server(growing_times(3, 8), scheduled([3]))
    alike, spread = (ran(requests, replace(service, acceptance_by_request=sd)) for sd in (0.0, 1.0))
    assert spread.tokens_per_step == pytest.approx(alike.tokens_per_step, rel=0.02)
    assert tpot_of(spread) == pytest.approx(tpot_of(alike), rel=0.03)
    rates = [np.std(run.accepted_tokens / run.drafted_tokens) for run in (alike, spread)]
    assert rates[1] > 5 * rates[0]
    assert np.quantile(spread.tpot, 0.9) > 1.2 * np.quantile(alike.tpot, 0.9)


@pytest.mark.parametrize(("load", "is_steady"), [(0.7, True), (1.4, False)])
def test_a_rate_that_is_not_carried_is_told(load, is_steady):
    requests = draw_requests(
        Arrivals(request_rate=load), Lengths(prompt_tokens=5, output_tokens=1), 2000, 1
    )
    run = server(constant_times(1.0, 1.0)).run(requests)
    assert run.is_steady == is_steady
    assert run.carried_rate == pytest.approx(min(load, 1.0), rel=0.1)


@pytest.mark.parametrize(
    ("target", "hardware"), [("qwen3-30b-a3b", "h100"), ("qwen3.5-35b-a3b", "h200")]
)
def test_blocks_hold_the_batch_that_memory_holds(target, hardware):
    """The same bytes as `predict`'s largest batch, recurrent states among them."""
    deployment, _ = deploy(
        target=target, hardware=hardware, drafter="mtp" if "3.5" in target else "eagle3"
    )
    requests = draw_requests(Arrivals(users=1), Lengths(prompt_tokens=3000, output_tokens=400), 9)
    limits = limits_for(deployment, Scheduler(), 3, requests)
    held = MemoryUse(deployment, requests.longest, 4).max_batch_size
    own = -(-(requests.longest + 4) // limits.block_size) + limits.fixed_blocks
    assert limits.blocks / own == pytest.approx(float(held), rel=0.02)
    assert (limits.fixed_blocks > 0) == ("3.5" in target)


@pytest.mark.parametrize("longest", [50, 200])
def test_memory_that_holds_no_request_is_refused(longest):
    requests = requests_of(longest, 9)
    refused("memory", check_fits, Limits(blocks=3), 0, requests)


def test_drafts_longer_than_those_with_times_are_refused():
    options = {"acceptance": ACCEPTED, "max_draft_length": 3, "context": 50.0}
    refused("at most 3", drafting, "table:1-8=5", times=growing_times(3, 4), **options)
