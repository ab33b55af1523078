"""Drains: what is conserved, and who is asked what."""

import numpy as np
import pytest
from constant_steps import requests_of

from specmodel import load
from specmodel.simulate.drains import answers
from specmodel.simulate.load_question import load_question
from specmodel.simulate.requests import WORKLOADS

WHERE = {"target": "qwen3-30b-a3b", "hardware": "h200", "drafter": "eagle3"}
EQUAL = {"prompt_length": 200, "output_length": 600}
SPREAD = {"prompt_length": 200, "output_length": "lognormal:300:0.8"}
MEMORY = ("hardware.memory.capacity_bytes=8e10",)
POLICIES = "none,fixed:3,schedule,below:16:4"


def drain_asked(**asked):
    """Return the drain that arguments ask about."""
    return load_question({**WHERE, **asked}).drain


def test_steps_without_drafts_add_up_to_the_makespan():
    """Two steps read the prompts; then each makes a token of all that still run, by hand."""
    drain = drain_asked(drain=40, policy="none", **SPREAD)
    study, (run,) = drain.study, drain.simulated("none")
    lengths, times = study.typical.output_tokens, study.service("none").times
    made = np.arange(1, lengths.max())
    running = (lengths[:, None] > made).sum(axis=0)
    steps = times.step_time(0, running, 200 + made)
    assert run.last.max() - run.first.max() == pytest.approx(steps.sum(), rel=0.002)


def test_answers_to_a_prompt_hold_its_cache_once():
    lengths = {"prompt_length": 8000, "output_length": "lognormal:600:0.5", "policy": "fixed:3"}
    for prompts, samples, running in ((64, 1, 13), (8, 8, 64)):
        asked = {**lengths, "drain": prompts, "samples": samples, "changes": MEMORY}
        (row,) = load(**WHERE, **asked).rows
        assert row["most_running"] == running
        drain = drain_asked(**asked)
        (run,) = drain.simulated("fixed:3")
        assert run.state.free_blocks == drain.study.drafting_service.limits.blocks


def test_a_shared_prefix_is_held_once_by_those_that_run():
    asked = {"request_rate": 8.0, "requests": 200, "prompt_length": 8200, "output_length": 200}
    asked |= {"policy": "none", "changes": MEMORY, "shared_prefix": 8000}
    (row,) = load(**WHERE, **asked).rows
    assert row["running"] > 25  # of which 13 fit, if each held its whole prompt


@pytest.mark.parametrize("servers", [1, 3])
def test_tokens_and_time_are_conserved(servers):
    """Tokens out are the lengths; times at all batch sizes, waiting included, are the makespan."""
    asked = {"drain": 30, "samples": 2, "servers": servers, **SPREAD}
    drain = drain_asked(**asked, policy=POLICIES)
    rows = load(**WHERE, **asked, policy=POLICIES).rows
    every = drain.study.typical.output_tokens.sum()
    for row in rows:
        runs = drain.simulated(row["policy"])
        made = sum(run.throughput * run.state.now for run in runs)
        assert made == pytest.approx(every, rel=1e-12)
        assert row["output_tokens"] == every
        assert row["throughput"] * row["makespan"] == pytest.approx(every, rel=1e-12)
        assert max(run.state.now for run in runs) == row["makespan"]
        shares = [value or 0.0 for name, value in row.items() if name.startswith("share_at_")]
        assert sum(shares) == pytest.approx(1.0, abs=1e-12)
        busy = sum(run.state.running_time for run in runs)
        assert row["running"] * row["makespan"] * servers == pytest.approx(busy, rel=1e-9)
        assert row["last_at_1"] == row["makespan"]
        assert row["gpu_hours"] == pytest.approx(servers * row["makespan"] / 3600)


def test_below_is_the_table_that_says_the_same():
    asked = {**WHERE, **SPREAD, "max_draft_length": 4}
    names = "below:8:3,table:1-8=3:9-1000=0"
    for own in ({"drain": 32}, {"request_rate": 4.0, "requests": 60}):
        below, table = load(**asked, **own, policy=names).rows
        assert {**below, "policy": ""} == {**table, "policy": ""}


def test_answers_to_a_prompt_share_it_and_lengths_keep_their_law():
    law, every = WORKLOADS["chat"], answers(WORKLOADS["chat"], 500, 4, longest=10**6)
    prompts = every.prompt_tokens.reshape(500, 4)
    assert (prompts == prompts[:, :1]).all()
    drawn = law.draw(2000, 0)[1]
    assert sorted(every.output_tokens) == sorted(drawn)
    logs = np.log([every.prompt_tokens, every.output_tokens])
    assert np.corrcoef(logs)[0, 1] == pytest.approx(law.correlation, abs=0.06)


def test_recorded_lengths_are_taken_in_order_and_again():
    recorded = requests_of([5, 3, 4], [50, 30, 40], np.arange(3.0))
    every = answers(recorded, 4, 1, longest=10**6)
    assert every.output_tokens.tolist() == [50, 30, 40, 50]
    assert answers(recorded, 3, 1, longest=52).output_tokens.tolist() == [47, 30, 40]


def test_only_the_first_answer_to_a_prompt_is_prefilled_whole():
    drain = drain_asked(drain=5, samples=4, servers=2, **EQUAL)
    runs = drain.simulated("none")
    prompts = [3, 2]  # dealt in turn
    block = drain.study.plain_service.limits.block_size
    for run, count in zip(runs, prompts, strict=True):
        left = 200 - 200 // block * block
        assert run.state.prefilled_tokens == count * (200 + 3 * left)


def test_each_server_reads_a_shared_prefix_once():
    drain = drain_asked(drain=4, samples=2, servers=2, shared_prefix=64, **EQUAL)
    service = drain.study.service("none")
    cached = [service.cached_tokens(part).tolist() for part in drain.parts]
    assert cached == [[0, 192, 64, 192]] * 2  # in whole blocks


def test_intervals_hold_the_predictions_and_none_speeds_up_itself():
    none, fixed = load(**WHERE, drain=24, policy="none,fixed:3", **SPREAD).rows
    for row in (none, fixed):
        assert row["makespan_low"] < row["makespan"] < row["makespan_high"]
    assert none["speedup_low"] == none["speedup_high"] == 1.0
    assert fixed["speedup_low"] < fixed["speedup"] < fixed["speedup_high"]


def test_partial_rollouts_end_with_the_share_asked_for():
    whole, part = (
        load(**WHERE, drain=40, policy="none", finished=share, **SPREAD).rows[0]
        for share in (1.0, 0.9)
    )
    assert part["makespan"] == whole["done_p90"]
    assert part["output_tokens"] < whole["output_tokens"]
    assert part["share_at_1"] == 0 < whole["share_at_1"]


def test_what_a_recording_had_cached_stays_cached():
    asked = np.array([600, 900, 1200, 700])
    recorded = requests_of(asked, asked, cached_tokens=asked // 2)
    drain = drain_asked(drain=4, servers=2, workload=recorded)
    found = np.concatenate([part.cached_tokens for part in drain.parts])
    assert sorted(found) == sorted(asked // 2)


def test_usual_policies_have_at_most_three_lengths_and_the_best_below():
    question = load_question({**WHERE, "drain": 64, **SPREAD})
    fixed = [name for name in question.policies if name.startswith("fixed")]
    assert [question.policies[0], question.policies[-2]] == ["none", "schedule"]
    assert 1 <= len(fixed) <= 3
    drain, best = question.drain, question.policies[-1]
    size, length = map(int, best.split(":")[1:])
    others = [f"below:{size // 2}:{length}", f"below:{size}:{length - 1}"]

    def takes(name):
        return float(drain.outcome(drain.simulated(name))["makespan"])

    assert takes(best) < 1.03 * min(map(takes, others))
