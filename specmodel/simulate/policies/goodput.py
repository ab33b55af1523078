"""Goodput: the draft length with the most expected tokens per second."""

from __future__ import annotations

from collections.abc import Sequence

from specmodel.core.base.errors import InputError
from specmodel.core.base.units import check
from specmodel.simulate.policies.policy import LearningPolicy, is_number
from specmodel.simulate.tables import Tables, at_context

PAIR = 256
"""Factor of drafted tokens in the number that stores a step: drafted x `PAIR` + accepted [-]."""
MOST_STEPS = 10**6
"""Longest window [-]."""


def goodput(s: Goodput, emitted_tokens: int, step_time: float, drafted_tokens: int) -> None:
    """Update the policy after a step of emitted and drafted tokens [token]; ignore its time."""
    if drafted_tokens == 0 or take_in(s, drafted_tokens, emitted_tokens - 1) or s.idle > 0:
        next_length(s)


def goodput_request(s: Goodput, emitted_tokens: int, step_time: float, drafted_tokens: int) -> None:
    """Update the policy after one request of a server's step, if it drafted anything."""
    if drafted_tokens > 0:
        take_in(s, drafted_tokens, emitted_tokens - 1)


def goodput_step(
    s: Goodput, tables: Tables, decoding: int, accepted_tokens: int, context: float
) -> None:
    """Choose the draft length of a server's next step, by the times of this batch."""
    for k in range(s.longest + 1):
        s.step_time[k] = at_context(tables, k, decoding, context)
    next_length(s)


def take_in(s: Goodput, drafted: int, accepted: int) -> bool:
    """Count a step that drafted something; return whether the counts change."""
    pair = drafted * PAIR + accepted
    leaves = s.steps[s.oldest]
    s.steps[s.oldest] = pair
    s.oldest = 0 if s.oldest + 1 == s.window else s.oldest + 1
    s.has_drafted = True
    if pair == leaves:
        return False
    if leaves > 0:
        count(s, leaves, -1)
    count(s, pair, 1)
    return True


def count(s: Goodput, pair: int, sign: int) -> None:
    """Add a step to tries and hits by position, or remove it if `sign` is -1."""
    drafted, accepted = pair // PAIR, pair % PAIR
    for i in range(min(drafted, accepted + 1)):
        s.tries[i] += sign
    for i in range(accepted):
        s.hits[i] += sign


def next_length(s: Goodput) -> None:
    """Choose the draft length of the next step; a probe continues until something is drafted."""
    if s.draft_length == 0:
        s.idle += 1
    elif not s.has_drafted:
        return
    else:
        s.idle = 0
    s.has_drafted, s.draft_length = False, best_length(s)
    if s.draft_length == 0 and s.idle >= s.probe_interval:
        s.draft_length = min(1, s.longest)


def best_length(s: Goodput) -> int:
    """Return the draft length with the most expected tokens per second [token]."""
    rate, best, most = s.first_rate, 0, 1 / s.step_time[0]
    tokens = survival = 1.0
    for i in range(s.longest):
        rate = (s.hits[i] + rate) / (s.tries[i] + 1)
        survival *= rate
        tokens += survival
        gained = tokens / s.step_time[i + 1]
        if gained > most:
            best, most = i + 1, gained
    return best


class Goodput(LearningPolicy):
    """Choose the draft length with the most expected tokens per second.

    Goodput-driven schedulers work this way. The policy counts, over a window of the last steps that
    drafted anything, how many steps reached each position of the draft, and how many accepted it.
    The rate of a position also counts one step with the rate of the position before. A position
    that was never reached then has the rate of the last position reached. A step without a proposal
    does not count. Times are read from a profile of the deployment.

    Parameters
    ----------
    step_time
        Time of a step at draft length 0, 1, ... [s].
    first_acceptance_rate
        Estimate of acceptance before the first step [-].
    window, probe_interval
        Number of steps in the window, and steps without speculation after which one token is
        drafted, to learn again [-].
    """

    name = "goodput"
    words = "drafts the length with the most tokens per second at the acceptance observed so far"
    policy_state = "server"
    rule = staticmethod(goodput)
    shared_rule = staticmethod(goodput_request)
    step_rule = staticmethod(goodput_step)

    def __init__(
        self,
        step_time: Sequence[float],
        first_acceptance_rate: float = 0.5,
        window: int = 50,
        probe_interval: int = 16,
    ) -> None:
        super().__init__()
        rate = first_acceptance_rate
        if not (is_number(rate) and 0 < rate < 1):
            raise InputError("goodput first_acceptance_rate", rate, "a number above 0 and below 1")
        times = check("goodput step_time", step_time, above=0)
        if times.ndim != 1:
            raise InputError("goodput step_time", step_time, "one list of times")
        self.first_rate, self.step_time = float(rate), times.tolist()
        self.longest = len(times) - 1
        steps = check("goodput window", window, minimum=1, maximum=MOST_STEPS, whole=True)
        idle = check("goodput probe_interval", probe_interval, minimum=1, maximum=1e9, whole=True)
        self.window, self.probe_interval = int(steps), int(idle)
        self.steps, self.oldest = [0] * self.window, 0  # of the window, and index of the oldest
        self.tries, self.hits = [0] * len(times), [0] * len(times)  # by position
        self.idle, self.has_drafted = 0, False  # steps without a draft; since the last choice
        self.draft_length = best_length(self)
