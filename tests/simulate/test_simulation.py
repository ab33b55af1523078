"""The simulator: identities, the oracle, both forms of a replay, noise, workers."""

from copy import deepcopy
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from made_traces import iid_process, make_trace
from msgspec.structs import replace
from printed import refused
from rows import cases, each_listed, values_of

from specmodel import InputError, deploy, load_architecture, predict
from specmodel.core.algebra.routing import sample_routing
from specmodel.core.drafters import ngram_drafter
from specmodel.simulate import (
    ReplayTimes,
    Sample,
    Variation,
    replay_times,
    simulate,
    summarise,
    timeline,
)
from specmodel.simulate.blocks import DrawnBlock, make_blocks, replay_adapted, serial_loop
from specmodel.simulate.feedback import Policies
from specmodel.simulate.machine_code import compiled_function
from specmodel.simulate.policies import AdaptiveSteps, Cascade, CascadeSettings, Goodput, Step
from specmodel.simulate.policies.policy import LearningPolicy, learn_nothing
from specmodel.simulate.sampling import draw_noise
from specmodel.simulate.traces import trace_statistics

NONE = Variation(timing_noise=0.0, request_expert_spread=0.0, step_expert_spread=0.0)
SMALL = load_architecture("qwen2-0.5b").with_changes("drafter", {"vocabulary_size": 50_304})
OLMOE = {"target": "olmoe-1b-7b", "hardware": "rtx_6000_ada", "engine": "vllm-moesd-2025"}
POLICIES = (
    "none", "fixed:1", "fixed:3", "best-fixed", "cascade", "cascade:backoff_factor=1", "goodput",
    "sglang", "cascade:max_trials=2", "table:1-8=2:9-64=1", "oracle",
)  # fmt: skip


@pytest.fixture(scope="module")
def times():
    deployment, _ = deploy(**OLMOE, drafter="ngram")
    return replay_times(deployment, max_draft_length=7, context_length=1024)


@pytest.fixture(scope="module")
def eagle_times():
    deployment, _ = deploy(**OLMOE, drafter="eagle")
    return replay_times(deployment, max_draft_length=7, context_length=1024, drafter_upkeep=0.03)


@pytest.fixture(scope="module")
def growing_times():
    deployment, _ = deploy(**OLMOE, drafter="eagle")
    return replay_times(deployment, max_draft_length=7, context_length=700, growth=800)


def bursty_trace(num_requests, seed, longest=9):
    """Requests of uneven length, with stretches that have a proposal and stretches without."""
    generator = np.random.default_rng(seed)
    lengths = generator.integers(1, 400, num_requests)
    size = int(lengths.sum())
    has_proposal = np.repeat(generator.random(size // 16 + 1) < 0.6, 16)[:size]
    proposed = np.where(has_proposal, generator.integers(1, longest + 1, size), 0)
    accepted = np.minimum(generator.geometric(generator.uniform(0.2, 0.7), size) - 1, proposed)
    ends = np.cumsum(lengths)
    parts = [slice(end - length, end) for end, length in zip(ends, lengths, strict=True)]
    columns = ([column[part] for part in parts] for column in (proposed, accepted))
    return make_trace(*columns, max_draft_length=longest)


def iid_sample(rate, num_requests=400, output_tokens=400):
    process = iid_process(rate, 12)
    return Sample(processes=[process], num_requests=num_requests, output_tokens=output_tokens)


# identities


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rate", "drafter"),
    [(0.0, "eagle"), (0.3, ngram_drafter(proposal_rate=1)), (0.8, SMALL), (1.0, "eagle")],
)
def test_a_fixed_length_on_independent_tokens_gives_the_prediction(rate, drafter):
    deployment, _ = deploy(**OLMOE, drafter=drafter)
    times = replay_times(deployment, max_draft_length=7, context_length=700)
    lengths = (1, 2, 4, 7)
    records = simulate(iid_sample(rate, 300, 2000), times, [f"fixed:{n}" for n in lengths], seed=1)
    predicted = predict(
        **OLMOE, drafter=drafter, batch_size=1, draft_length=list(lengths), acceptance=rate,
        context_length=700,
    ).speedup  # fmt: skip
    records["speedup"] = records["plain_time"] / records["time"]
    by_policy = records.groupby("policy", observed=True)
    for length, expected in zip(lengths, predicted, strict=True):
        own = by_policy.get_group(f"fixed:{length}")
        speedup = own["plain_time"].sum() / own["time"].sum()
        error = own["speedup"].std() / np.sqrt(len(own))
        cut = 8 / 2000  # the last step of an output is cut short
        assert abs(speedup - expected) < 4 * error + cut * expected


def test_no_speculation_gives_exactly_1_with_and_without_a_drafter(times, eagle_times):
    for own in (times, eagle_times):
        records = simulate(bursty_trace(50, 3), own, ["none", "fixed:0", "table:1-8=0"], seed=4)
        assert (records["time"] == records["plain_time"]).all()
        assert (records["steps"] == records["output_tokens"]).all()
        assert summarise(records, np.random.default_rng(0))["speedup"].tolist() == [1.0] * 3


def test_steps_advance_as_recorded(times):
    trace = make_trace([[3, 0, 2, 2, 1, 0, 3]], [[2, 0, 1, 2, 0, 0, 3]], max_draft_length=3)
    steps = timeline(trace, times, "fixed:2", request=0, seed=0, variation=NONE)
    assert steps["position"].tolist() == [0, 3, 6]
    assert steps["drafted_tokens"].tolist() == [2, 2, 2]
    assert steps["emitted_tokens"].tolist() == [3, 3, 1]  # the last is cut at the end
    nothing = make_trace([[0, 2, 0]], [[0, 1, 0]], max_draft_length=2)
    steps = timeline(nothing, times, "fixed:2", request=0, seed=0, variation=NONE)
    assert steps["step_time"].tolist() == [times.step_time[0], times.step_time[2]]


def test_a_look_up_takes_its_time_whether_it_finds_anything_or_not(times):
    deployment, _ = deploy(**OLMOE, drafter="ngram")
    drafter = replace(deployment.drafter, lookup_time=2e-3)
    deployment = replace(deployment, drafter=drafter)
    slow = replay_times(deployment, max_draft_length=7, context_length=1024)
    assert slow.forward_time == slow.paused_time == times.forward_time
    np.testing.assert_allclose(slow.step_time - times.step_time, 2e-3, rtol=1e-9)
    trace = make_trace([[0] * 50, [3] * 50], [[0] * 50, [0] * 50], max_draft_length=3)
    spent = [
        simulate(trace, own, ["fixed:0", "fixed:2"], seed=0, variation=NONE)["time"].to_numpy()
        for own in (times, slow)
    ]
    np.testing.assert_allclose(spent[1] - spent[0], [0, 0, 0.1, 0.1], rtol=1e-9, atol=1e-12)


def test_upkeep_is_paid_by_policies_that_may_resume(eagle_times):
    trace = make_trace([[3] * 300], [[0] * 300], max_draft_length=3)
    records = simulate(trace, eagle_times, ["cascade", "fixed:0"], seed=0, variation=NONE)
    steps = timeline(trace, eagle_times, "cascade", request=0, seed=0, variation=NONE)
    plain = steps[steps["draft_length"] == 0]["step_time"]
    assert plain.unique() == pytest.approx([1.03 * eagle_times.forward_time])
    bound = simulate(trace, eagle_times, ["oracle"], seed=0, variation=NONE)
    assert bound["expected_time"].tolist() == pytest.approx([300 * eagle_times.paused_time])
    fixed = records[records["policy"] == "fixed:0"]
    assert fixed["time"].tolist() == pytest.approx([300 * eagle_times.forward_time])


# the oracle


def best_by_hand(trace, times):
    """Least time of a short request, over all choices of draft lengths."""
    proposed = trace.proposed_tokens.tolist()

    def least(position):
        if position >= len(proposed):
            return 0.0
        own = by_context(times, position) if times.later else times
        options = [own.paused_time + least(position + 1)]
        for length in range(1, times.max_draft_length + 1):
            verified = min(length, proposed[position])
            at = [n for n in trace.accepted_at if n >= length]
            accepted = trace.accepted_at[min(at)] if at else trace.accepted_tokens
            after = position + min(length, int(accepted[position])) + 1
            options.append(own.step_time[verified] + least(after))
        return min(options)

    return least(0)


@pytest.mark.parametrize("seed", range(6))
def test_the_oracle_is_the_least_time_of_all_choices(seed, times, eagle_times, growing_times):
    generator = np.random.default_rng(seed)
    size = int(generator.integers(1, 8))
    proposed = generator.integers(0, 4, size)
    accepted = np.minimum(generator.integers(0, 4, size), proposed)
    trace = make_trace([proposed], [accepted], max_draft_length=3)
    others = replace(trace, accepted_at=shorter_drafts(trace, (1, 2), generator))
    growing = replace(growing_times, context_step=3.0)  # by much from token to token
    for own in (times.up_to(3), eagle_times.up_to(3), growing.up_to(3)):
        for each in (trace, others):
            records = simulate(each, own, ["oracle"], seed=0)
            assert records["expected_time"].iloc[0] == pytest.approx(best_by_hand(each, own))


def shorter_drafts(trace, lengths, generator):
    """What is accepted of drafts of some lengths, whatever longer ones have."""
    proposed = trace.proposed_tokens
    return {n: generator.integers(0, np.minimum(proposed, n) + 1, dtype=np.uint8) for n in lengths}


def test_acceptance_may_depend_on_the_length_asked_for(times):
    trace = make_trace([[3] * 8], [[3, 0, 0, 0, 3, 0, 0, 0]], max_draft_length=3)
    ones = np.array([0, 1, 0, 1, 0, 1, 0, 1], np.uint8)
    trace = replace(trace, accepted_at={1: ones})
    records = simulate(trace, times, ["fixed:1", "fixed:2", "fixed:3"], seed=0)
    assert records["steps"].tolist() == [5, 4, 2]
    found = [trace_statistics(trace, [n]).tokens_per_step for n in (1, 2, 3)]
    assert found == [[1.6], [2.0], [4.0]]


@pytest.mark.parametrize("drafter", ["ngram", "eagle"])
def test_nothing_beats_the_oracles_expected_time(drafter, times, eagle_times):
    own = times if drafter == "ngram" else eagle_times
    records = simulate(bursty_trace(80, 7), own, POLICIES, seed=8)
    expected = records.pivot_table(
        index="request", columns="policy", values="expected_time", observed=True
    )
    assert len(expected.columns) == len(POLICIES)
    never_drafts = set() if drafter == "ngram" else {"none"}  # and so pays no upkeep
    for policy in set(expected) - never_drafts:
        assert (expected[policy] >= expected["oracle"] * (1 - 1e-12)).all(), policy
    assert (expected.drop(columns="oracle").sum() > 1.01 * expected["oracle"].sum()).all()
    summary = summarise(records, np.random.default_rng(0)).set_index("policy")
    assert summary.loc["oracle", "regret"] == 0
    assert summary["speedup"].idxmax() == "oracle"


def test_the_best_fixed_length_is_the_best_of_all_and_named(times):
    trace = bursty_trace(40, 10)
    every = [f"fixed:{length}" for length in range(8)]
    records = simulate(trace, times, [*every, "best-fixed"], seed=0)
    alone = simulate(trace, times, ["best-fixed"], seed=0)
    total = records.groupby("policy", observed=True)["time"].sum()
    best = str(total[every].idxmin())
    assert alone["policy"].unique().tolist() == [best.replace("fixed", "best-fixed")]
    assert total[best.replace("fixed", "best-fixed")] == total[every].min()
    assert alone["time"].sum() == pytest.approx(total[best])


# both forms of a replay

VARIED = values_of("cases/simulate.txt", "settings of cascades")


def assert_equal(totals, others):
    for name in totals._fields:
        np.testing.assert_array_equal(getattr(totals, name), getattr(others, name), name)


LEARNING = [
    *(Cascade(CascadeSettings(**changes)) for (changes,) in VARIED),
    *(Goodput([1.0, 1.2, 1.4, 1.5, 1.8, 2.0, 2.2, 2.3], window=size) for size in (1, 7, 50)),
    Goodput([1.0, 1.9], probe_interval=3),
    AdaptiveSteps(7),
    AdaptiveSteps(7, {"1": {"candidate_steps": [0, 2, 4], "ceiling_coeff": 1.5}}),
]


@pytest.mark.parametrize("servers", [0, 8])
def test_machine_code_and_python_replay_the_same(servers, growing_times):
    """Totals of every request: in Python, of policies as objects, and by numba if it is there."""
    usual, generator = bursty_trace(25, 13), np.random.default_rng(14)
    noise = draw_noise(usual, Variation(timing_noise=0.1), generator)
    others = replace(usual, accepted_at=shorter_drafts(usual, (1, 4), generator))
    for own, trace in ((growing_times, usual), (replace(growing_times, later=()), others)):
        slow, fast = (
            DrawnBlock(trace=trace, times=own, noise=noise, first=5, compiles=compiles)
            for compiles in (False, True)
        )
        plan = np.arange(len(trace.proposed_tokens), dtype=np.uint8) % 8

        def both(policy, slow=slow, fast=fast, **options):
            rule = type(policy).rule
            plain, compiled = (
                each.replayed(rule, each.states(policy, servers), **options)
                for each in (slow, fast)
            )
            assert_equal(compiled, plain)
            return plain

        both(LearningPolicy(3), pauses=False)
        both(LearningPolicy(), plan=plan)
        for policy in LEARNING:
            own_copies = Policies(lambda _, policy=policy: deepcopy(policy), servers)
            assert_equal(replay_adapted(own_copies, slow), both(policy))


def test_numba_compiles_the_loop():
    """Where it is installed; the test above would pass without."""
    pytest.importorskip("numba")
    loop = compiled_function(serial_loop, (learn_nothing,))
    assert loop is not None
    assert type(loop).__module__.startswith("numba.")


# context


def by_context(times, context, pauses=True):
    """Times at so much more context, by NumPy's interpolation."""
    at = np.arange(len(times.rows)) * times.context_step

    def of(name):
        columns = np.array([np.atleast_1d(getattr(row, name)) for row in times.rows]).T
        found = [np.interp(context, at, column) for column in columns]
        return np.array(found) if len(found) > 1 else found[0]

    names = ("forward_time", "paused_time", "step_time", "expert_time")
    return ReplayTimes(**{name: of(name) for name in names})


def check_times(trace, times, policy, request, prompt=0):
    """Compare the time of each step with that of its context, with so much more at the first."""
    steps = timeline(trace, times, policy, request=request, seed=0, variation=NONE)
    expected = [
        by_context(times, prompt + position).step_time[drafted]
        for position, drafted in zip(steps["position"], steps["drafted_tokens"], strict=True)
    ]
    assert steps["step_time"].tolist() == pytest.approx(expected, rel=1e-12)


def test_steps_take_longer_as_context_grows(growing_times):
    trace = bursty_trace(3, 30)
    for request in range(3):
        check_times(trace, growing_times, "fixed:3", request)
        none = timeline(trace, growing_times, "none", request=request, seed=0, variation=NONE)
        plain = [by_context(growing_times, position).forward_time for position in none["position"]]
        assert none["step_time"].tolist() == pytest.approx(plain, rel=1e-12)
    records = simulate(trace, growing_times, ["none", "fixed:0", "cascade"], seed=0)
    assert (records["time"] == records["plain_time"])[:6].all()
    flat = replace(growing_times, later=())
    for name in ("none", "fixed:3"):
        longer, shorter = (simulate(trace, each, [name], seed=0) for each in (growing_times, flat))
        assert (longer["expected_time"] > shorter["expected_time"]).all()


def test_requests_begin_with_their_prompts(growing_times):
    trace = replace(bursty_trace(3, 32), prompt_tokens=np.array([700, 900, 1000]))
    for request, prompt in enumerate((0, 200, 300)):
        check_times(trace, growing_times, "fixed:2", request, prompt)
    before = replace(trace, prompt_tokens=np.array([700, 699, 900]))
    with pytest.raises(InputError, match=r"prompt_tokens: got 699; expected at least 700"):
        simulate(before, growing_times, ["none"], seed=0)
    beyond = replace(trace, prompt_tokens=np.array([700, 900, 100_000]))
    with pytest.raises(InputError, match=r"times: got '.* rows'; expected step times up to .*"):
        simulate(beyond, growing_times, ["none"], seed=0)


# whose state


@cases("name usual", ("cascade", "request"), ("goodput", "server"), ("sglang", "server"))
def test_requests_or_servers_keep_what_a_policy_learned(name, usual, times):
    """By default as its source does; the first request of each server finds nothing learned."""
    trace = bursty_trace(40, 33)
    own = {state: simulate(trace, times, [name], seed=0, policy_state=state)
           for state in ("request", "server")}  # fmt: skip
    assert simulate(trace, times, [name], seed=0).equals(own[usual])
    assert not own["request"].equals(own["server"])
    assert own["request"]["steps"][:8].equals(own["server"]["steps"][:8])


# noise, seeds, workers


def test_noise_has_the_spread_that_was_asked_for():
    trace = make_trace([[1] * 500] * 400, [[0] * 500] * 400, max_draft_length=1)
    wanted = Variation(timing_noise=0.1, request_expert_spread=0.08, step_expert_spread=0.05)
    drawn_noise = draw_noise(trace, wanted, np.random.default_rng(15))
    noise = drawn_noise.noise_levels[drawn_noise.noise_draws]
    steps = drawn_noise.expert_levels[drawn_noise.expert_draws]
    for drawn, mean, spread in (
        (noise, 1.0, 0.1), (steps, 0.0, 0.05), (drawn_noise.experts, 0.0, 0.08)
    ):  # fmt: skip
        error = spread / np.sqrt(drawn.size)
        assert drawn.mean() == pytest.approx(mean, abs=4 * error)
        # the fourth moment of a triangular law is 2.4 times the squared variance
        assert drawn.std() == pytest.approx(spread, abs=4 * error * np.sqrt((2.4 - 1) / 4))
    assert noise.min() > 0.7
    assert abs(np.corrcoef(steps, noise)[0, 1]) < 4 / np.sqrt(steps.size)
    still = draw_noise(trace, NONE, np.random.default_rng(15))
    assert set(still.noise_levels) == {1}
    assert set(still.expert_levels) == {0}


def test_expert_time_is_what_more_experts_take():
    """A routing correlation between two others lies on the line through them."""
    where = {"target": "olmoe-1b-7b", "hardware": "l40s", "drafter": "ngram"}
    times, extra = {}, {}
    for correlation in (0.15, 0.18, 0.21):
        own = where | {"routing_correlation": correlation}
        times[correlation] = replay_times(deploy(**own)[0], max_draft_length=5, context_length=512)
        point = {"batch_size": 1, "acceptance": 0.5, "context_length": 512}
        union = predict(**own, **point, draft_length=np.arange(6))
        extra[correlation] = union.active_experts_verify - union.active_experts
    middle = times[0.18]
    for other in (0.15, 0.21):
        change = extra[other][1:] / extra[0.18][1:] - 1
        line = middle.step_time[1:] + middle.expert_time[1:] * change
        np.testing.assert_allclose(line, times[other].step_time[1:], rtol=0.01)
    assert middle.expert_time[0] == 0
    assert (np.diff(middle.expert_time) > 0).all()


def test_the_default_spread_of_a_step_is_that_of_random_routing():
    """Layers independent of each other, four MoEs of the paper, three draft lengths."""
    spreads = []
    for num_experts, per_token, layers in ((8, 2, 32), (16, 2, 32), (64, 8, 16), (60, 4, 24)):
        for tokens in (2, 4, 8):
            chosen = sample_routing(
                1500, tokens, num_experts, per_token, 0.18, np.random.default_rng(16)
            )
            unions = np.array([len(np.unique(one)) for one in chosen])
            spreads.append(unions.std() / (unions.mean() - per_token) / np.sqrt(layers))
    assert min(spreads) > 0.02
    assert max(spreads) < 0.1
    assert np.median(spreads) == pytest.approx(Variation().step_expert_spread, rel=0.2)


def test_the_same_seed_gives_the_same_records_on_any_number_of_workers(times, monkeypatch):
    monkeypatch.setattr("specmodel.simulate.sources.BLOCK_REQUESTS", 16)
    policies = ["cascade", "goodput", "sglang", "cascade:max_trials=2", "oracle", "best-fixed"]
    sample = Sample(
        processes=[iid_process(0.6, 9), iid_process(0.2, 9)], num_requests=50, output_tokens=60
    )
    for source, workers in ((sample, 1), (bursty_trace(50, 17), 2)):  # drawn ones: by the command
        seen = []
        alone = simulate(source, times, policies, seed=18, progress=seen.append)
        assert seen == [16, 16, 16, 2]
        again = simulate(source, times, policies, seed=18, workers=workers)
        pd.testing.assert_frame_equal(alone, again)
        noise = [block.draw().noise for block in make_blocks(source, times, Variation(), 18)]
        assert len({each.noise_draws[:9].tobytes() for each in noise}) == 4
        other = simulate(source, times, ["goodput"], seed=19)
        same = alone.loc[alone["policy"] == "goodput", "time"]
        assert (other["time"].to_numpy() != same.to_numpy()).any()
        for request in (0, 20, 49):
            row = alone[(alone["policy"] == "cascade:max_trials=2")].iloc[request]
            steps = timeline(source, times, "cascade:max_trials=2", request=request, seed=18)
            assert len(steps) == row["steps"]
            assert steps["step_time"].sum() == pytest.approx(row["time"], rel=1e-12)


def test_intervals_cover_the_speedup_of_the_process(times):
    """Of 60 workloads of 40 requests, some 95 % hold the speedup of a large one."""
    truth = simulate(iid_sample(0.6, 4000, 100), times, ["fixed:3"], seed=99)
    speedup = truth["plain_time"].sum() / truth["time"].sum()
    held = 0
    for seed in range(60):
        records = simulate(iid_sample(0.6, 40, 100), times, ["fixed:3"], seed=seed)
        row = summarise(records, np.random.default_rng(seed)).iloc[0]
        held += row["speedup_low"] <= speedup <= row["speedup_high"]
    assert 51 <= held <= 60


def test_policies_are_compared_by_a_bootstrap_over_the_same_requests(times):
    """Ends are those of resampled requests, within what 20,000 draws against 1,000 differ by.

    Noise that both share leaves the ratio: two workloads apart would tell less.
    """
    records = simulate(iid_sample(0.6, 50, 200), times, ["fixed:1", "fixed:3", "oracle"], seed=4)
    summary = summarise(records, np.random.default_rng(0)).set_index("policy")
    best, other = sorted(("fixed:1", "fixed:3"), key=lambda name: -summary["speedup"][name])
    by_request = records.pivot_table("time", "request", "policy", observed=True)
    drawn = np.random.default_rng(1).integers(0, 50, (20_000, 50))
    above, below = (by_request[name].to_numpy()[drawn].sum(axis=1) for name in (other, best))
    ratios, own = above / below, summary.loc[other]
    ends = own[["time_over_best_low", "time_over_best_high"]].to_numpy(dtype=float)
    # the standard error of a quantile is some 2.7 standard deviations over the root of the draws
    spread = 3 * 2.7 * ratios.std() / np.sqrt(1000)
    np.testing.assert_allclose(ends, np.quantile(ratios, (0.025, 0.975)), atol=spread, rtol=0)
    assert own["time_over_best"] == by_request[other].sum() / by_request[best].sum()
    unpaired = np.quantile(above / np.roll(below, 1), (0.025, 0.975))
    assert np.diff(ends) < 0.9 * np.diff(unpaired)
    assert summary.loc["oracle", "time_over_best":].isna().all()


# a policy of the user's own


def test_a_policy_may_take_all_of_a_step(growing_times):
    class Told:
        seen: ClassVar[list[Step]] = []

        def propose(self):
            return 2

        def observe(self, emitted_tokens, step_time):
            raise AssertionError("the step is taken in its place")

        def observe_step(self, step):
            self.seen.append(step)

    trace = make_trace([[3, 0, 2, 1, 1, 0, 0]], [[2, 0, 1, 0, 1, 0, 0]], max_draft_length=3)
    trace = replace(trace, prompt_tokens=np.array([900]))
    simulate(trace, growing_times, [Told], seed=0)
    steps = timeline(trace, growing_times, "fixed:2", request=0, seed=0)
    assert [step.drafted_tokens for step in Told.seen] == [2, 1, 1, 0]
    assert [step.accepted_tokens for step in Told.seen] == [2, 0, 1, 0]
    assert [step.context_length - 900 for step in Told.seen] == steps["position"].tolist()
    assert [step.step_time for step in Told.seen] == steps["step_time"].tolist()
    assert {step.batch_size for step in Told.seen} == {1}


@each_listed
def test_what_cannot_be_simulated(policies, options, message, times):
    refused(message, simulate, bursty_trace(3, 0), times, policies, **{"seed": 0} | options)


def test_replays_walk_no_trees():
    chain, _ = deploy(target="mixtral-8x7b", hardware="h200_sxm", drafter="eagle3", engine="vllm")
    tree = replace(chain, tree_width=4)
    with pytest.raises(InputError, match=r"^tree_width: got 4; expected 1 \(a chain\); .*"):
        replay_times(tree, max_draft_length=3, context_length=100)
