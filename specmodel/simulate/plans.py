"""Plan the draft lengths of the oracle, the policy that knows the trace before the replay.

The oracle is a bound for other policies. Like any policy that may draft, it pays the upkeep of a
drafter that pauses. It does not know the noise. Times grow with context as in the serial loop.
"""

import numpy as np
from numpy.typing import NDArray

from specmodel.simulate.times_alone import ReplayTimes
from specmodel.simulate.traces import Trace

CHUNK = 1_000_000
"""Positions that are planned at a time, to bound the memory [token]."""


def oracle_plan(trace: Trace, times: ReplayTimes) -> NDArray[np.uint8]:
    """Return the draft lengths with the least total time, by dynamic programming [token].

    Requests are planned from their last position to their first. Column r of `least` is the least
    time of the last r tokens of each request. It is the time of one step plus the least time of the
    tokens that the step leaves, minimised over the draft length of the step.
    """
    plan = np.empty(len(trace.proposed_tokens), np.uint8)
    asked, table = np.arange(times.max_draft_length + 1), times.table(pauses=True)
    by_row = table.base.reshape(-1, table.rows).T
    by_proposal = by_row[:, np.minimum(asked, np.arange(256)[:, None]) + (asked > 0)]
    rows, which = trace.by_length(times.max_draft_length)
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
            held = np.minimum(asked, rows[:, at].T[:, which].astype(np.int64))
            after = np.maximum(left - 1 - held, 0)
            proposed = trace.proposed_tokens[at]
            row, part = np.divmod(later[at] * table.rows_per_token, 1)
            row = row.astype(np.int64)
            taken = by_proposal[row, proposed]
            taken = taken + part[:, None] * (by_proposal[row + 1, proposed] - taken)
            total = taken + least[lanes[:, None], after]
            plan[at] = np.argmin(total, axis=1)
            least[lanes, left] = total.min(axis=1)
    return plan


def first_context(trace: Trace, times: ReplayTimes) -> NDArray[np.int64]:
    """Return each request's first context minus that of the first row of times [token]."""
    if trace.prompt_tokens is None or times.context_length is None or not times.later:
        return np.zeros(trace.num_requests, np.int64)
    return trace.prompt_tokens - int(times.context_length)


def context_at(trace: Trace, times: ReplayTimes) -> NDArray[np.int64]:
    """Return each position's context minus that of the first row of times [token]."""
    begins = first_context(trace, times) - trace.starts
    later = np.repeat(begins, trace.output_tokens)
    later += np.arange(len(later))
    return later
