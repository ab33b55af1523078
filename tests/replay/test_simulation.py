"""The simulator: identities, the oracle, both forms of a replay, luck, workers."""

import itertools
from dataclasses import replace
from functools import partial
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from readable_cascade import ReadableCascade

from specmodel import predict
from specmodel.algebra.routing import sample_routing
from specmodel.base.errors import InputError
from specmodel.cost.deploying import deploy
from specmodel.drafters.by_name import ngram_drafter
from specmodel.models.architecture import load_architecture
from specmodel.replay import (
    ReplayTimes,
    Sample,
    Variation,
    replay_times,
    simulate,
    summarise,
    timeline,
)
from specmodel.replay.blocks import block_bounds
from specmodel.replay.chance import draw_luck
from specmodel.replay.choices import choose
from specmodel.replay.plans import Plan, greedy_plan
from specmodel.replay.policies import Cascade, CascadeSettings, Goodput
from specmodel.replay.policies.cascade import CascadeLanes
from specmodel.replay.traces import (
    Trace,
    iid_process,
    load_preset,
    make_trace,
    position_process,
)
from specmodel.replay.walk import replay_lanes, replay_policy

NONE = Variation(timing_noise=0.0, request_expert_spread=0.0, step_expert_spread=0.0)
SMALL = load_architecture("qwen2-0.5b").with_changes("drafter", {"vocabulary_size": 50_304})
OLMOE = {"target": "olmoe-1b-7b", "hardware": "rtx_6000_ada", "engine": "vllm-moesd-2025"}
POLICIES = (
    "none", "fixed:1", "fixed:3", "best-fixed", "cascade", "cascade:backoff_factor=1", "goodput",
    "sglang", "bandit", "bandit:method=thompson", "table:1-8=2:9-64=1", "greedy", "oracle",
)  # fmt: skip


@pytest.fixture(scope="module")
def times() -> ReplayTimes:
    deployment, _ = deploy(**OLMOE, drafter="ngram")
    return replay_times(deployment, max_draft_length=7, context_length=1024)


@pytest.fixture(scope="module")
def eagle_times() -> ReplayTimes:
    deployment, _ = deploy(**OLMOE, drafter="eagle")
    return replay_times(deployment, max_draft_length=7, context_length=1024, drafter_upkeep=0.03)


def bursty_trace(num_requests: int, seed: int, longest: int = 9) -> Trace:
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


def iid_sample(rate: float, num_requests: int = 400, output_tokens: int = 400) -> Sample:
    process = iid_process(rate, 12)
    return Sample(processes=[process], num_requests=num_requests, output_tokens=output_tokens)


# identities


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.8, 1.0])
@pytest.mark.parametrize(
    "drafter", [ngram_drafter(proposal_rate=1), "eagle", SMALL], ids=["ngram", "eagle", "model"]
)
def test_a_fixed_length_on_independent_tokens_gives_the_prediction(rate, drafter) -> None:
    deployment, _ = deploy(**OLMOE, drafter=drafter)
    times = replay_times(deployment, max_draft_length=7, context_length=700)
    lengths = (1, 2, 4, 7)
    records = simulate(iid_sample(rate, 300, 2000), times, [f"fixed:{n}" for n in lengths], seed=1)
    predicted = predict(
        **OLMOE,
        drafter=drafter,
        batch_size=1,
        draft_length=list(lengths),
        acceptance=rate,
        context_length=700,
    ).speedup
    records["speedup"] = records["plain_time"] / records["time"]
    by_policy = records.groupby("policy", observed=True)
    for length, expected in zip(lengths, predicted, strict=True):
        own = by_policy.get_group(f"fixed:{length}")
        speedup = own["plain_time"].sum() / own["time"].sum()
        error = own["speedup"].std() / np.sqrt(len(own))
        cut = 8 / 2000  # the last step of an output is cut short
        assert abs(speedup - expected) < 4 * error + cut * expected


def test_by_position_too(times) -> None:
    rates = [0.9, 0.6, 0.3, 0.8]
    sample = Sample(processes=[position_process(rates)], num_requests=300, output_tokens=2000)
    records = simulate(sample, times, ["fixed:4"], seed=2)
    tokens = 1 + np.cumprod(rates).sum()
    per_request = records["output_tokens"] / records["steps"]
    error = per_request.std() / np.sqrt(len(records))
    assert abs(per_request.mean() - tokens) < 4 * error + tokens * 5 / 2000


def test_no_speculation_gives_exactly_1_with_and_without_a_drafter(times, eagle_times) -> None:
    for own in (times, eagle_times):
        records = simulate(bursty_trace(50, 3), own, ["none", "fixed:0", "table:1-8=0"], seed=4)
        assert (records["time"] == records["plain_time"]).all()
        assert (records["steps"] == records["output_tokens"]).all()
        assert summarise(records, np.random.default_rng(0))["speedup"].tolist() == [1.0] * 3


def test_tokens_are_conserved_and_utility_is_the_speedup(times) -> None:
    trace = bursty_trace(60, 5)
    for name in ("fixed:3", "cascade", "goodput"):
        records = simulate(trace, times, [name], seed=6)
        for request in (0, 17, 59):
            steps = timeline(trace, times, name, request=request, seed=6)
            row = records.iloc[request]
            assert steps["emitted_tokens"].sum() == trace.output_tokens[request]
            assert len(steps) == row["steps"]
            assert steps["drafted_tokens"].sum() == row["drafted_tokens"]
            assert steps["step_time"].sum() == pytest.approx(row["time"], rel=1e-12)
            assert (steps["phase"] == "test").sum() == row["test_steps"]
            per_step = row["output_tokens"] / row["steps"]
            relative = (row["time"] / row["steps"]) / (row["plain_time"] / row["output_tokens"])
            assert per_step / relative == pytest.approx(row["plain_time"] / row["time"])


def test_steps_advance_as_recorded(times) -> None:
    trace = make_trace([[3, 0, 2, 2, 1, 0, 3]], [[2, 0, 1, 2, 0, 0, 3]], max_draft_length=3)
    steps = timeline(trace, times, "fixed:2", request=0, seed=0, variation=NONE)
    assert steps["position"].tolist() == [0, 3, 6]
    assert steps["drafted_tokens"].tolist() == [2, 2, 2]
    assert steps["emitted_tokens"].tolist() == [3, 3, 1]  # the last is cut at the end
    nothing = make_trace([[0, 2, 0]], [[0, 1, 0]], max_draft_length=2)
    steps = timeline(nothing, times, "fixed:2", request=0, seed=0, variation=NONE)
    assert steps["step_time"].tolist() == [times.step_time[0], times.step_time[2]]


def test_a_look_up_takes_its_time_whether_it_finds_anything_or_not(times) -> None:
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


def test_upkeep_is_paid_by_policies_that_may_resume(eagle_times) -> None:
    trace = make_trace([[3] * 300], [[0] * 300], max_draft_length=3)
    records = simulate(trace, eagle_times, ["cascade", "fixed:0"], seed=0, variation=NONE)
    for name in ("cascade", "greedy", "oracle"):
        steps = timeline(trace, eagle_times, name, request=0, seed=0, variation=NONE)
        plain = steps[steps["draft_length"] == 0]["step_time"]
        assert plain.unique() == pytest.approx([1.03 * eagle_times.forward_time])
    bounds = simulate(trace, eagle_times, ["greedy", "oracle"], seed=0, variation=NONE)
    paused = 300 * eagle_times.paused_time
    assert bounds["expected_time"].tolist() == pytest.approx([paused, paused])
    fixed = records[records["policy"] == "fixed:0"]
    assert fixed["time"].tolist() == pytest.approx([300 * eagle_times.forward_time])


# the oracle


def best_by_hand(trace: Trace, times: ReplayTimes) -> float:
    """Least time of a short request, over all choices of draft lengths."""
    proposed, accepted = trace.proposed_tokens.tolist(), trace.accepted_tokens.tolist()

    def least(position: int) -> float:
        if position >= len(proposed):
            return 0.0
        options = [times.paused_time + least(position + 1)]
        for length in range(1, times.max_draft_length + 1):
            verified = min(length, proposed[position])
            after = position + min(length, accepted[position]) + 1
            options.append(times.step_time[verified] + least(after))
        return min(options)

    return least(0)


@pytest.mark.parametrize("seed", range(12))
def test_the_oracle_is_the_least_time_of_all_choices(seed: int, times, eagle_times) -> None:
    generator = np.random.default_rng(seed)
    size = int(generator.integers(1, 8))
    proposed = generator.integers(0, 4, size)
    accepted = np.minimum(generator.integers(0, 4, size), proposed)
    trace = make_trace([proposed], [accepted], max_draft_length=3)
    for own in (times.up_to(3), eagle_times.up_to(3)):
        records = simulate(trace, own, ["oracle"], seed=0)
        assert records["expected_time"].iloc[0] == pytest.approx(best_by_hand(trace, own))


@pytest.mark.parametrize("drafter", ["ngram", "eagle"])
def test_nothing_beats_the_oracles_expected_time(drafter: str, times, eagle_times) -> None:
    own = times if drafter == "ngram" else eagle_times
    records = simulate(bursty_trace(80, 7), own, POLICIES, seed=8)
    expected = records.pivot_table(
        index="request", columns="policy", values="expected_time", observed=True
    )
    assert len(expected.columns) == len(POLICIES)
    never_drafts = {"none"} if drafter == "eagle" else set()  # and so pays no upkeep
    for policy in set(expected) - never_drafts:
        assert (expected[policy] >= expected["oracle"] * (1 - 1e-12)).all(), policy
    assert (expected.drop(columns="oracle").sum() > 1.01 * expected["oracle"].sum()).all()
    summary = summarise(records, np.random.default_rng(0)).set_index("policy")
    assert summary.loc["oracle", "regret"] == 0
    assert summary["speedup"].idxmax() == "oracle"


def test_greedy_takes_the_most_tokens_per_second_of_each_step(eagle_times) -> None:
    trace, times = bursty_trace(5, 9), eagle_times
    plan = greedy_plan(trace, times)
    starts = trace.starts
    for request, at in [(0, 0), (2, 3), (4, 0), (4, int(trace.output_tokens[4]) - 1)]:
        position = starts[request] + at
        left = trace.output_tokens[request] - at
        rates = []
        for length in range(times.max_draft_length + 1):
            verified = min(length, trace.proposed_tokens[position])
            time = times.step_time[verified] if length else times.paused_time
            rates.append(min(min(length, trace.accepted_tokens[position]) + 1, left) / time)
        assert rates[plan[position]] == max(rates)


def test_the_best_fixed_length_is_the_best_of_all_and_named(times) -> None:
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

VARIED = [
    {},
    *({"first_draft_length": n} for n in (1, 3, 7)),
    {"climb_step": 2, "first_draft_length": 3},
    {"first_direction": "up"},
    {"first_direction": "down", "first_draft_length": 4},
    {"baseline_iterations": 3, "baseline_interval": 10},
    {"trial_iterations": 5, "max_trials": 3, "set_iterations": 9},
    {"max_trials": 1},
    {"max_trials": 20, "early_exit": False, "first_draft_length": 4},
    {"tolerance": 0.0},
    {"tolerance": 0.5},
    {"backoff_factor": 1},
    {"backoff_factor": 3},
    {"plain_competes": False, "first_draft_length": 3},
    {"climb": False},
    {"climb": False, "max_draft_length": 3, "plain_competes": False},
    {"early_exit": False},
    {"max_draft_length": 1, "first_draft_length": 1},
]


@pytest.mark.parametrize("changes", VARIED, ids=str)
def test_the_fast_form_of_cascade_equals_the_readable_one_step_by_step(
    changes, times, eagle_times
) -> None:
    settings, trace = CascadeSettings(**changes), bursty_trace(60, 11)
    luck = draw_luck(trace, Variation(timing_noise=0.1), np.random.default_rng(12))

    class Recorded(CascadeLanes):
        """Lanes that keep what they proposed and saw."""

        def __init__(self) -> None:
            super().__init__(settings, trace.num_requests)
            self.requests = list(range(trace.num_requests))
            self.steps: list[list[tuple[int, int, float, bool]]] = [[] for _ in self.requests]

        def observe(self, emitted_tokens, step_time) -> None:
            asked, testing = self.propose(emitted_tokens).tolist(), self.is_testing.tolist()
            seen = zip(asked, emitted_tokens.tolist(), step_time.tolist(), testing, strict=True)
            for request, step in zip(self.requests, seen, strict=True):
                if step[1]:
                    self.steps[request].append(step)
            super().observe(emitted_tokens, step_time)

        def keep(self, lanes) -> None:
            self.requests = [self.requests[lane] for lane in lanes]
            super().keep(lanes)

    for own in (times, eagle_times):
        lanes, log = Recorded(), []
        fast = replay_lanes(lanes, trace, own, luck, own.paused_time)
        slow = replay_policy(
            lambda _: ReadableCascade(settings), trace, own, luck, own.paused_time, log
        )
        for name in vars(fast):
            np.testing.assert_array_equal(getattr(fast, name), getattr(slow, name), name)
        seen = ("draft_length", "emitted_tokens", "step_time")
        walked = [(*(step[name] for name in seen), step["phase"] == "test") for step in log]
        assert list(itertools.chain(*lanes.steps)) == walked


def test_plans_and_policies_replay_the_same(times) -> None:
    trace = bursty_trace(50, 13)
    luck = draw_luck(trace, Variation(), np.random.default_rng(14))

    class Three:
        def propose(self) -> int:
            return 3

        def observe(self, emitted_tokens: int, step_time: float) -> None:
            pass

    plan = Plan(np.full(len(trace.proposed_tokens), 3, np.uint8))
    fast = replay_lanes(plan, trace, times, luck, times.forward_time)
    slow = replay_policy(lambda _: Three(), trace, times, luck, times.forward_time)
    for name in vars(fast):
        np.testing.assert_array_equal(getattr(fast, name), getattr(slow, name), name)


# luck, seeds, workers


def test_luck_has_the_spread_that_was_asked_for() -> None:
    trace = make_trace([[1] * 500] * 400, [[0] * 500] * 400, max_draft_length=1)
    wanted = Variation(timing_noise=0.1, request_expert_spread=0.08, step_expert_spread=0.05)
    luck = draw_luck(trace, wanted, np.random.default_rng(15))
    noise = luck.noise_levels[luck.noise_draws]
    steps = luck.expert_levels[luck.expert_draws]
    for drawn, mean, spread in (
        (noise, 1.0, 0.1), (steps, 0.0, 0.05), (luck.request_experts, 0.0, 0.08)
    ):  # fmt: skip
        error = spread / np.sqrt(drawn.size)
        assert drawn.mean() == pytest.approx(mean, abs=4 * error)
        # the fourth moment of a triangular law is 2.4 times the squared variance
        assert drawn.std() == pytest.approx(spread, abs=4 * error * np.sqrt((2.4 - 1) / 4))
    assert noise.min() > 0.7
    assert abs(np.corrcoef(steps, noise)[0, 1]) < 4 / np.sqrt(steps.size)
    np.testing.assert_allclose(
        luck.noise_sums(trace), noise.reshape(400, 500).sum(axis=1), rtol=1e-12
    )
    still = draw_luck(trace, NONE, np.random.default_rng(15))
    assert set(still.noise_levels) == {1}
    assert set(still.expert_levels) == {0}


def test_expert_time_is_what_more_experts_take() -> None:
    """A routing correlation between two others lies on the line through them."""
    for target in ("mixtral-8x7b", "olmoe-1b-7b"):
        at = {}
        for correlation in (0.15, 0.18, 0.21):
            deployment, _ = deploy(
                target=target, hardware="l40s", drafter="ngram", routing_correlation=correlation
            )
            at[correlation] = replay_times(deployment, max_draft_length=5, context_length=512)
            union = predict(
                target=target, hardware="l40s", drafter="ngram", batch_size=1, acceptance=0.5,
                draft_length=np.arange(6), routing_correlation=correlation, context_length=512,
            )  # fmt: skip
            at[correlation, "extra"] = union.active_experts_verify - union.active_experts
        for other in (0.15, 0.21):
            change = at[other, "extra"][1:] / at[0.18, "extra"][1:] - 1
            line = at[0.18].step_time[1:] + at[0.18].expert_time[1:] * change
            np.testing.assert_allclose(line, at[other].step_time[1:], rtol=0.01)
        assert at[0.18].expert_time[0] == 0
        assert (np.diff(at[0.18].expert_time) > 0).all()


def test_the_default_spread_of_a_step_is_that_of_random_routing() -> None:
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


def test_the_same_seed_gives_the_same_records_on_any_number_of_workers(times, monkeypatch) -> None:
    monkeypatch.setattr("specmodel.replay.blocks.BLOCK_REQUESTS", 16)
    policies = ["cascade", "goodput", "bandit:method=thompson", "oracle", "best-fixed"]
    sample = Sample(
        processes=[iid_process(0.6, 9), iid_process(0.2, 9)], num_requests=50, output_tokens=60
    )
    for source, workers in ((sample, 1), (bursty_trace(50, 17), 2)):  # drawn ones: by the command
        seen: list[int] = []
        alone = simulate(source, times, policies, seed=18, progress=seen.append)
        assert seen == [16, 16, 16, 2]
        again = simulate(source, times, policies, seed=18, workers=workers)
        pd.testing.assert_frame_equal(alone, again)
        other = simulate(source, times, ["goodput"], seed=19)
        same = alone.loc[alone["policy"] == "goodput", "time"]
        assert (other["time"].to_numpy() != same.to_numpy()).any()
        for request in (0, 20, 49):
            row = alone[(alone["policy"] == "bandit:method=thompson")].iloc[request]
            steps = timeline(source, times, "bandit:method=thompson", request=request, seed=18)
            assert len(steps) == row["steps"]
            assert steps["step_time"].sum() == pytest.approx(row["time"], rel=1e-12)


def test_workers_need_policies_that_can_be_imported(times, monkeypatch) -> None:
    monkeypatch.setattr("specmodel.replay.blocks.BLOCK_REQUESTS", 2)
    with pytest.raises(InputError, match="workers: got 2; expected 1, as not all policies can be"):
        simulate(bursty_trace(5, 0), times, [lambda: Cascade()], seed=0, workers=2)


def test_blocks_hold_all_requests_once(monkeypatch) -> None:
    monkeypatch.setattr("specmodel.replay.blocks.BLOCK_POSITIONS", 500)
    monkeypatch.setattr("specmodel.replay.blocks.BLOCK_REQUESTS", 7)
    trace = bursty_trace(40, 20)
    for source in (trace, iid_sample(0.5, 23, 100), iid_sample(0.5, 3, 10_000)):
        bounds = block_bounds(source)
        assert [first for first, _ in bounds] == [0, *(last for _, last in bounds[:-1])]
        assert bounds[-1][1] == source.num_requests
        for first, last in bounds:
            assert 1 <= last - first <= 7
            if isinstance(source, Trace):
                assert source.output_tokens[first:last].sum() <= 500 or last == first + 1


def test_a_mixed_workload_has_equal_parts(times) -> None:
    processes = [position_process([1.0]), position_process([0.0])]
    sample = Sample(processes=processes, num_requests=101, output_tokens=10)
    records = simulate(sample, times, ["fixed:1"], seed=0)
    assert sorted(records["steps"].unique()) == [5, 10]
    assert abs((records["steps"] == 5).sum() - 50.5) == 0.5


def test_runaways_are_as_many_as_asked_for_and_as_long_as_known(times, monkeypatch) -> None:
    monkeypatch.setattr("specmodel.replay.blocks.BLOCK_REQUESTS", 60)
    processes = [load_preset("code-ngram"), load_preset("chat-ngram")]
    sizes = {"num_requests": 200, "output_tokens": 30}
    sample = Sample(processes=processes, runaway_share=0.03, **sizes)
    records = simulate(sample, times, ["fixed:1"], seed=0)
    assert sorted(records["output_tokens"])[-7:] == [30] + [8192] * 6
    without = Sample(processes=processes, **sizes)
    assert simulate(without, times, ["fixed:1"], seed=0)["output_tokens"].max() == 30
    with pytest.raises(InputError, match=r"runaway_share: got 0.1; expected 0, as no runaways"):
        Sample(processes=[load_preset("math-ngram")], runaway_share=0.1, **sizes)


def test_intervals_cover_the_speedup_of_the_process(times) -> None:
    """Of 60 workloads of 40 requests, some 95 % hold the speedup of a large one."""
    truth = simulate(iid_sample(0.6, 4000, 100), times, ["fixed:3"], seed=99)
    speedup = truth["plain_time"].sum() / truth["time"].sum()
    held = 0
    for seed in range(60):
        records = simulate(iid_sample(0.6, 40, 100), times, ["fixed:3"], seed=seed)
        row = summarise(records, np.random.default_rng(seed)).iloc[0]
        held += row["speedup_low"] <= speedup <= row["speedup_high"]
    assert 51 <= held <= 60


# a policy of the user's own


class Own:
    """Takes everything that a policy can be given."""

    def __init__(self, step_time, max_draft_length, generator, length=2) -> None:
        assert len(step_time) == max_draft_length + 1
        self.generator, self.length = generator, length

    def propose(self):
        return np.int64(self.length)

    def observe(self, emitted_tokens, step_time):
        assert type(emitted_tokens) is int
        assert type(step_time) is float


def test_a_class_of_the_users_own_is_given_what_it_takes_by_name(times) -> None:
    records = simulate(bursty_trace(20, 21), times, [Own, "fixed:2"], seed=0)
    own, fixed = (records[records["policy"] == name] for name in ("Own", "fixed:2"))
    assert own["steps"].tolist() == fixed["steps"].tolist()
    assert records["policy"].cat.categories.tolist() == ["Own", "fixed:2"]


def test_a_policy_may_take_what_was_drafted(times) -> None:
    class Told:
        seen: ClassVar[list[int]] = []

        def propose(self) -> int:
            return 2

        def observe(self, emitted_tokens: int, step_time: float, *, drafted_tokens: int) -> None:
            self.seen.append(drafted_tokens)

    trace = make_trace([[3, 0, 2, 1, 1, 0, 0]], [[2, 0, 1, 0, 1, 0, 0]], max_draft_length=3)
    simulate(trace, times, [Told], seed=0)
    steps = timeline(trace, times, "fixed:2", request=0, seed=0)
    assert Told.seen == steps["drafted_tokens"].tolist() == [2, 1, 1, 0]


def test_goodput_on_look_ups_is_told_what_was_drafted(times) -> None:
    """Runs that are copied whole, with nothing to propose in between."""

    class Untold(Goodput):
        def observe(self, emitted_tokens: int, step_time: float) -> None:
            super().observe(emitted_tokens, step_time)

    proposed = ([7] * 24 + [0] * 40) * 20
    trace = make_trace([proposed] * 20, [proposed] * 20, max_draft_length=7)
    records = simulate(trace, times, ["goodput", Untold, "best-fixed"], seed=0)
    told, untold, best = records.groupby("policy", observed=True)["expected_time"].sum()
    assert told < 1.05 * best < 0.9 * untold


def test_cascade_by_its_settings(times) -> None:
    trace = bursty_trace(20, 22)
    by_name = simulate(trace, times, ["cascade:max_trials=2:climb_step=2"], seed=0)
    record = simulate(trace, times, [CascadeSettings(max_trials=2, climb_step=2)], seed=0)
    assert by_name["time"].tolist() == record["time"].tolist()


def test_settings_and_bound_classes_have_names_of_their_own(times) -> None:
    settings = [CascadeSettings(), CascadeSettings(first_draft_length=1, tolerance=0.2)]
    bound = [partial(Own, length=1), partial(Own, length=3)]
    records = simulate(bursty_trace(5, 23, longest=4), times, [*settings, *bound], seed=0)
    assert records["policy"].cat.categories.tolist() == [
        "cascade", "cascade:first_draft_length=1:tolerance=0.2", "Own:length=1", "Own:length=3",
    ]  # fmt: skip

    def oracle() -> Cascade:
        return Cascade()

    with pytest.raises(InputError, match="another name than oracle"):
        choose(oracle)
    assert choose("cascade:max_draft_length=1").settings == {"max_draft_length": 1}


@pytest.mark.parametrize(
    ("policies", "seed", "message"),
    [
        ([], 0, "policies"),
        (["none", "none"], 0, "policies: got 'none'; expected each policy once"),
        (["fixed:9"], 0, "expected at most 7"),
        (["cascade:max_draft_length=9"], 0, "cascade max_draft_length: got 9; expected at most 7"),
        (["cascade"], -1, "seed: got -1"),
        ([3], 0, "policy: got 3"),
    ],
)
def test_what_cannot_be_simulated(policies, seed, message, times) -> None:
    with pytest.raises(InputError, match=message):
        simulate(bursty_trace(3, 0), times, policies, seed=seed)


def test_a_short_trace_shortens_the_drafts(times) -> None:
    records = simulate(bursty_trace(10, 0, longest=2), times, ["cascade", "best-fixed"], seed=0)
    assert (records["drafted_tokens"] <= 2 * records["steps"]).all()
    with pytest.raises(InputError, match="at most 2, the longest"):
        simulate(bursty_trace(10, 0, longest=2), times, ["fixed:3"], seed=0)


def test_names_of_policies_read_back() -> None:
    assert choose("table:1-1=4:2-8=2").planner is not None
    assert choose("cascade:early_exit=false").settings == {"early_exit": False}
    assert choose("goodput:memory=20").settings == {"memory": 20}
