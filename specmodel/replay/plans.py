"""Draft lengths that are settled before a replay, because they know the trace: the oracle's.

It is a bound to measure policies by. Like any policy that may draft, it pays the upkeep of a
drafter that pauses; noise is unknown to it. Times grow with context as they do in the serial loop.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specmodel.base.units import FloatArray
from specmodel.replay.times import ReplayTimes
from specmodel.replay.traces import Trace

CHUNK = 1_000_000
"""Positions worked on at a time, to bound the memory [token]."""


class Plan:
    """Draft lengths by position of one request [token], as a policy that is asked and told."""

    def __init__(self, draft_length: NDArray[np.uint8]) -> None:
        self._draft_length, self._position = draft_length.tolist(), 0

    def propose(self) -> int:
        """Return the draft length planned at the position [token]."""
        return int(self._draft_length[self._position])

    def observe(self, emitted_tokens: int, step_time: float) -> None:
        """Go on by what was emitted [token], whatever time it took [s]."""
        self._position += emitted_tokens


def oracle_plan(trace: Trace, times: ReplayTimes) -> NDArray[np.uint8]:
    """Return the draft lengths with the least total time, by dynamic programming [token].

    Requests are planned from their last position to their first. Column r of `least` is the least
    time of the last r tokens of each request: that of one step and of what it leaves to be done,
    minimised over the draft length of the step.
    """
    plan, held = np.empty(len(trace.proposed_tokens), np.uint8), _held(trace, times)
    ends, later = trace.starts + trace.output_tokens, context_at(trace, times)
    # requests of similar length together, because each is padded to the longest of its chunk
    waiting = np.argsort(-trace.output_tokens, kind="stable")
    while len(waiting):
        at_once = max(CHUNK // int(trace.output_tokens[waiting[0]]), 1)
        chunk, waiting = waiting[:at_once], waiting[at_once:]
        lengths = trace.output_tokens[chunk]
        least = np.zeros((len(chunk), int(lengths.max()) + 1))
        for left in range(1, least.shape[1]):
            lanes = np.flatnonzero(lengths >= left)
            at = ends[chunk[lanes]] - left
            after = np.maximum(left - 1 - held(at), 0)
            taken = _step_times(trace.proposed_tokens[at], later[at], times)
            total = taken + least[lanes[:, None], after]
            plan[at] = np.argmin(total, axis=1)
            least[lanes, left] = total.min(axis=1)
    return plan


def first_context(trace: Trace, times: ReplayTimes) -> NDArray[np.int64]:
    """Return how much more context requests begin with than the first row of times [token]."""
    if trace.prompt_tokens is None or times.context_length is None or not times.later:
        return np.zeros(trace.num_requests, np.int64)
    return trace.prompt_tokens - int(times.context_length)


def context_at(trace: Trace, times: ReplayTimes) -> NDArray[np.int64]:
    """Return how much more context each position has than the first row of times [token]."""
    lengths = trace.output_tokens
    begins = first_context(trace, times) - trace.starts
    later = np.repeat(begins, lengths)
    later += np.arange(len(later))
    return later


def _step_times(
    proposed: NDArray[np.uint8], later: NDArray[np.int64], times: ReplayTimes
) -> FloatArray:
    """Return the step time of each draft length, shape (positions, longest + 1) [s]."""
    base, _ = times.by_column(pauses=True)
    asked, offered = np.arange(times.max_draft_length + 1), np.arange(256)[:, None]
    by_proposal = base[:, np.minimum(asked, offered) + (asked > 0)]
    if not times.later:
        return np.asarray(by_proposal[0][proposed])
    row, part = np.divmod(later / times.context_step, 1)
    row = row.astype(np.int64)
    below, above = by_proposal[row, proposed], by_proposal[row + 1, proposed]
    return np.asarray(below + part[:, None] * (above - below))


def _held(trace: Trace, times: ReplayTimes) -> Callable[[Any], NDArray[np.int64]]:
    """Return a function of positions: what is accepted of drafts of each length [token]."""
    asked = np.arange(times.max_draft_length + 1)
    rows, which = trace.by_length(times.max_draft_length)
    return lambda at: np.minimum(asked, rows[:, at].T[:, which].astype(np.int64))
