"""Policies by hand: Cascade phase by phase against the paper's description, its rivals by rule."""

import runpy
import sys
from functools import partial

import numpy as np
import pytest
from printed import refused
from rows import cases, listed

from specmodel.core.prediction.by_batch import schedule_of
from specmodel.simulate import policies
from specmodel.simulate.policies import (
    AdaptiveSteps,
    Cascade,
    CascadeSettings,
    Goodput,
    known,
    scheduled_draft_lengths,
)
from specmodel.simulate.policies.goodput import next_length, take_in

BASE = 10e-3


def drive(policy, utility, iterations):
    """Feed iterations whose utility depends on the draft length; return length and phase of each.

    Each iteration emits one token, in the time that gives the utility.
    """
    seen = []
    for i in range(iterations):
        length, phase = policy.propose(), policy.phase
        seen.append((length, phase))
        gain = utility(length, i) if length else 1.0
        policy.observe(1, BASE / gain)
    return seen


def trials(seen, size=4):
    """Draft lengths of the trials of the first test."""
    lengths = [length for length, phase in seen if phase == "test"]
    return lengths[::size]


def first_test(utilities, **settings):
    """Return the trials of the first test and the draft length that it sets."""
    policy = Cascade(CascadeSettings(**settings))
    seen = drive(policy, lambda length, _: utilities[length - 1], 4)
    while policy.phase == "test":
        seen += drive(policy, lambda length, _: utilities[length - 1], 1)
    assert policy.phase == "set"
    return trials(seen, policy.settings.trial_iterations), policy.propose()


def test_it_starts_with_a_baseline_of_plain_iterations():
    seen = drive(Cascade(), lambda *_: 2.0, 6)
    assert seen == [(0, "baseline")] * 4 + [(2, "test")] * 2


@listed
def test_a_test_climbs_and_ends_as_described(utilities, settings, tried, chosen):
    assert first_test(utilities, **settings) == (tried, chosen)


def test_a_test_starts_at_the_past_length_of_highest_utility():
    policy = Cascade(CascadeSettings(first_draft_length=3))

    def starts(utilities, tests):
        phase, found = policy.phase, []
        while len(found) <= tests:
            if policy.phase == "test" and phase != "test":
                found.append(policy.propose())
            phase = policy.phase
            drive(policy, lambda length, _: utilities[length], 1)
        return found[:tests]

    assert starts({2: 1.5, 3: 2.2, 4: 1.6}, 2) == [3, 3]
    low = {1: 1.3, 2: 0.9, 3: 0.8}
    assert starts(low, 3) == [3, 3, 3]  # that of 1 is set, but 3 gave more when it was
    assert starts({2: 1.0, 3: 1.2, 4: 1.15}, 3) == [3, 3, 3]  # and gives less when set again
    assert starts(low, 4) == [3, 1, 1, 1]


def set_lengths(settings, gain, iterations):
    """Lengths of the set phases."""
    phases = [phase for _, phase in drive(Cascade(settings), gain, iterations)]
    lengths, run = [], 0
    for phase in phases:
        if phase == "set":
            run += 1
        elif run:
            lengths.append(run)
            run = 0
    return lengths


def test_back_off_doubles_while_speculation_does_not_pay_and_is_reset_when_it_does():
    def gain(length, iteration):
        return 2.0 if 230 < iteration < 330 else 0.5

    settings = CascadeSettings(first_draft_length=1, max_draft_length=1)
    assert set_lengths(settings, gain, 600)[:10] == [32, 64, 128, 16, 16, 16, 16, 16, 32, 64]
    assert set_lengths(settings, lambda *_: 0.5, 600) == [32, 64, 128, 256]
    assert set_lengths(settings, lambda *_: 1.5, 60) == [16, 16]
    unpaid = CascadeSettings(first_draft_length=1, backoff_factor=1)
    assert set(set_lengths(unpaid, lambda *_: 0.5, 300)) == {16}


def test_back_off_saves_the_test_iterations_of_the_papers_example():
    """250 iterations in which nothing pays: about 50 in tests without back-off, 18 with it."""

    def tested(factor):
        policy = Cascade(CascadeSettings(first_draft_length=1, backoff_factor=factor))
        return sum(phase == "test" for _, phase in drive(policy, lambda *_: 0.6, 250))

    assert 44 <= tested(1) <= 54
    assert 14 <= tested(2) <= 20


def test_the_baseline_is_measured_again_about_every_100_iterations():
    seen = drive(Cascade(), lambda length, _: 1.5 + 0.01 * length, 400)
    starts = [
        i for i, (_, phase) in enumerate(seen)
        if phase == "baseline" and (i == 0 or seen[i - 1][1] != "baseline")
    ]  # fmt: skip
    gaps = np.diff(starts)
    assert len(gaps) >= 3
    assert all(100 <= gap <= 130 for gap in gaps)
    plain = drive(Cascade(), lambda *_: 0.5, 400)
    assert [phase for _, phase in plain].count("baseline") == 4  # set phases at 0 measure it


def test_a_plain_set_phase_is_the_new_baseline():
    policy = Cascade(CascadeSettings(first_draft_length=1))
    for _ in range(4):
        policy.observe(1, 1.0)
    for _ in range(4):
        policy.observe(1, 2.0)  # utility 0.5
    assert (policy.propose(), policy.phase) == (0, "set")
    for _ in range(32):
        policy.observe(1, 3.0)
    for _ in range(4):
        policy.observe(2, 3.0)  # twice the tokens in the time of the new baseline
    assert policy.utility == pytest.approx(2.0)


def test_a_module_in_their_folder_is_all_that_a_policy_needs(tmp_path, monkeypatch):
    (tmp_path / "still.py").write_text(
        "from specmodel.simulate.policies.policy import LearningPolicy\n"
        "class Still(LearningPolicy):\n    name = 'still'\n"
    )
    monkeypatch.setattr(policies, "__path__", [*policies.__path__, str(tmp_path)])
    found = runpy.run_path(known.__file__)["KNOWN"]
    assert found.keys() - known.KNOWN.keys() == {"still"}
    monkeypatch.delitem(sys.modules, f"{policies.__name__}.still")


# rivals


def test_goodput_probes_until_something_was_drafted():
    policy = Goodput([1.0, 1.9], first_acceptance_rate=0.1, probe_interval=3)
    for _ in range(3):
        assert policy.propose() == 0
        policy.observe(1, 1.0, drafted_tokens=0)
    for _ in range(5):
        assert policy.propose() == 1
        policy.observe(1, 1.0, drafted_tokens=0)
    policy.observe(1, 1.0, drafted_tokens=1)
    assert policy.propose() == 0


def test_goodput_of_a_server_takes_many_requests_and_the_times_of_a_batch():
    """Drafting pays while the batch is small; as it grows and shrinks, the length follows."""
    few, many = [1.0, 1.1, 1.2, 1.3], [2.0, 6.0, 10.0, 14.0]
    policy = Goodput(few, first_acceptance_rate=0.7, window=64, probe_interval=4)
    lengths = []
    for step in range(60):
        times = few if step % 30 < 15 else many
        asked = policy.propose()
        for _ in range(8 if asked else 0):
            take_in(policy, asked, min(asked, 2))
        policy.step_time = times
        next_length(policy)
        lengths.append(policy.propose())
    assert set(lengths[:15]) == set(lengths[30:45]) == {2, 3}
    assert lengths[15:30] == lengths[45:] == [0, 0, 0, 0, 1] * 3


class ReadableGoodput:
    """Goodput by its description: the last steps that drafted, and rates from these."""

    def __init__(self, step_time, rate, window):
        self.step_time, self.rate, self.window, self.seen = step_time, rate, window, []

    def best(self):
        rate, survival, tokens, gains = self.rate, 1.0, 1.0, [1 / self.step_time[0]]
        for i in range(1, len(self.step_time)):
            came = [(d, a) for d, a in self.seen if d >= i and a >= i - 1]
            rate = (sum(a >= i for _, a in came) + rate) / (len(came) + 1)
            survival *= rate
            tokens += survival
            gains.append(tokens / self.step_time[i])
        return int(np.argmax(gains))

    def observe(self, drafted, accepted):
        self.seen = [*self.seen, (drafted, accepted)][-self.window :]


@pytest.mark.parametrize("window", [1, 5, 50])
def test_goodput_counts_by_position_over_its_window(window):
    step_time = [1.0, 1.3, 1.45, 1.6, 1.8, 2.1]
    policy = Goodput(step_time, first_acceptance_rate=0.6, window=window, probe_interval=4)
    readable, idle = ReadableGoodput(step_time, 0.6, window), 0
    generator = np.random.default_rng(5)
    lengths = set()
    for step in range(1500):
        asked = policy.propose()
        lengths.add(asked)
        assert asked in ((0, 1) if readable.best() == 0 else (readable.best(),))
        offered = int(generator.integers(0, 7))
        drafted = min(asked, offered)
        chance = 0.9 if step % 400 < 200 else 0.2
        accepted = min(drafted, int(generator.geometric(1 - chance)) - 1)
        policy.observe(accepted + 1, 1.0, drafted_tokens=drafted)
        idle = idle + 1 if asked == 0 else 0
        assert idle <= 4
        if drafted:
            readable.observe(drafted, accepted)
    assert {0, 1, 5} <= lengths


@cases(
    "policy ranges", ("below:4:2", [[1, 4, 2], [5, 5, 0]]), ("below:1:3", [[1, 1, 3], [2, 2, 0]])
)
def test_below_a_batch_size_is_a_schedule_that_ends_there(policy, ranges):
    assert schedule_of(policy, policy.split(":")[1:]) == ranges


def test_a_schedule_by_batch_size_reads_as_vllm_does():
    schedule = [[17, 64, 2], [1, 16, 3], [100, 4096, 0]]
    lengths = scheduled_draft_lengths(schedule, 200)
    assert [lengths[size] for size in (1, 16, 17, 80, 100, 200)] == [3, 3, 2, 2, 0, 0]
    assert scheduled_draft_lengths(schedule, 20) == [0, *[3] * 16, *[2] * 4]


MAKERS = {"lengths": partial(scheduled_draft_lengths, max_batch_size=3), "goodput": Goodput}
MAKERS |= {"sglang": partial(AdaptiveSteps, 7), "cascade": Cascade.by_settings}


@listed
def test_what_no_policy_has_is_refused(make, words, options, message):
    refused(message, MAKERS[make], *words, **options)
