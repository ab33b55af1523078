"""Draft lengths that are settled before a replay: constant ones, and those that know the trace.

The greedy plan is the best for each step, the oracle's the best of all: bounds to measure policies
by. Like any policy that may draft, they pay the upkeep of a drafter that pauses; luck is unknown
to them.
"""

import numpy as np
from numpy.typing import NDArray

from specmodel.base.units import FloatArray
from specmodel.replay.times import ReplayTimes
from specmodel.replay.traces import Trace

CHUNK = 1_000_000
"""Positions worked on at a time, to bound the memory [token]."""


class Plan:
    """Draft lengths by position of the trace [token], as a policy of many requests at once."""

    is_testing = None

    def __init__(self, draft_length: NDArray[np.uint8]) -> None:
        self._draft_length = draft_length

    def propose(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the draft length planned at each position [token]."""
        return np.take(self._draft_length, positions, mode="clip").astype(np.int64)

    def observe(self, emitted_tokens: NDArray[np.int64], step_time: FloatArray) -> None:
        """Ignore tokens [token] and times [s]."""

    def keep(self, lanes: NDArray[np.intp]) -> None:
        """Do nothing: a plan keeps nothing by lane."""


def constant_plan(trace: Trace, times: ReplayTimes, draft_length: int) -> NDArray[np.uint8]:
    """Return the same draft length at every position [token]."""
    return np.full(len(trace.proposed_tokens), draft_length, np.uint8)


def greedy_plan(trace: Trace, times: ReplayTimes) -> NDArray[np.uint8]:
    """Return the draft length with the most tokens per second at each position [token]."""
    ends = np.repeat(trace.starts + trace.output_tokens, trace.output_tokens)
    left = ends - np.arange(len(ends))
    plan = np.empty(len(ends), np.uint8)
    for first in range(0, len(plan), CHUNK):
        part = slice(first, first + CHUNK)
        taken = _step_times(trace.proposed_tokens[part], times)
        emitted = _emitted(trace.accepted_tokens[part], times)
        np.minimum(emitted, left[part, None], out=emitted)
        plan[part] = np.argmax(emitted / taken, axis=1)
    return plan


def oracle_plan(trace: Trace, times: ReplayTimes) -> NDArray[np.uint8]:
    """Return the draft lengths with the least total time, by dynamic programming [token]."""
    plan = np.empty(len(trace.proposed_tokens), np.uint8)
    ends = trace.starts + trace.output_tokens
    # requests of similar length together, because each is padded to the longest of its chunk
    waiting = np.argsort(-trace.output_tokens, kind="stable")
    while len(waiting):
        at_once = max(CHUNK // int(trace.output_tokens[waiting[0]]), 1)
        chunk, waiting = waiting[:at_once], waiting[at_once:]
        _plan_backwards(plan, ends[chunk], trace.output_tokens[chunk], trace, times)
    return plan


def _plan_backwards(
    plan: NDArray[np.uint8],
    ends: NDArray[np.int64],
    lengths: NDArray[np.int64],
    trace: Trace,
    times: ReplayTimes,
) -> None:
    """Fill the plan of some requests, from their last position to their first.

    Column r of `least` is the least time of the last r tokens of each request: that of one step
    and of what it leaves to be done, minimised over the draft length of the step.
    """
    least = np.zeros((len(ends), int(lengths.max()) + 1))
    for left in range(1, least.shape[1]):
        lanes = np.flatnonzero(lengths >= left)
        at = ends[lanes] - left
        after = np.maximum(left - _emitted(trace.accepted_tokens[at], times), 0)
        total = _step_times(trace.proposed_tokens[at], times) + least[lanes[:, None], after]
        plan[at] = np.argmin(total, axis=1)
        least[lanes, left] = total.min(axis=1)


def _step_times(proposed: NDArray[np.uint8], times: ReplayTimes) -> FloatArray:
    """Return the step time of each draft length, shape (positions, longest + 1) [s]."""
    base, _ = times.by_column(times.paused_time)
    asked, offered = np.arange(times.max_draft_length + 1), np.arange(256)[:, None]
    return np.asarray(base[np.minimum(asked, offered) + (asked > 0)][proposed])


def _emitted(accepted: NDArray[np.uint8], times: ReplayTimes) -> NDArray[np.int64]:
    """Return the tokens that each draft length emits, shape (positions, longest + 1) [token]."""
    asked = np.arange(times.max_draft_length + 1)
    return np.minimum(asked, accepted[:, None].astype(np.int64)) + 1
