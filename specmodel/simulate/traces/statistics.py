"""Compute published figures of traces: tokens per step, and how acceptance clusters."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from specmodel.core.base.bounds import Count, Finite
from specmodel.core.base.records import Record
from specmodel.core.base.units import FloatArray, check
from specmodel.simulate.traces.record import Trace

DRAFT_LENGTHS = (1, 2, 3, 5, 7, 10, 20)
"""Draft lengths at which tokens per step are usually published [token]."""

REFERENCE_LENGTH = 3
"""Draft length at which all other figures are published [token]."""


class TraceStatistics(Record, frozen=True, kw_only=True):
    """Figures of a trace, or of the traces that a study measured; None is an unknown figure.

    `tokens_per_step` contains means over the steps of all requests at fixed draft lengths [token].
    `proposal_share` is the share of output positions with a proposal. `wrong_endings` is the share
    of ends of runs with a proposal; an end is a position without accepted tokens after a position
    with some [-].

    The other figures are at draft length 3. `proposing_steps` is the share of steps with a proposal
    [-], and `request_spread` the standard deviation over requests of tokens per step [token].
    `pooled_autocorrelation` is the correlation of the accepted tokens of successive steps, with the
    pairs of all requests pooled. `autocorrelation_within` is the mean of the correlations within
    requests [-].
    """

    num_requests: Count
    draft_lengths: list[Count]
    tokens_per_step: list[Finite]
    proposing_steps: Finite | None = None
    request_spread: Finite | None = None
    pooled_autocorrelation: Finite | None = None
    autocorrelation_within: Finite | None = None
    proposal_share: Finite | None = None
    wrong_endings: Finite | None = None


def trace_statistics(trace: Trace, draft_lengths: Sequence[int] = DRAFT_LENGTHS) -> TraceStatistics:
    """Return tokens per step at fixed draft lengths, and autocorrelations of accepted tokens.

    Figures at draft length 3 are None if the trace has no drafts of 3 tokens. Correlations are
    Pearson's, between successive steps. They are None if there are fewer than two steps or nothing
    varies. The pooled correlation includes differences between requests. The correlation within
    requests does not, and is biased down in short requests; do not compare the two. The last step
    of a request is cut at the end of its output, so tokens per step grow a little with the length
    of the output.

    Parameters
    ----------
    trace, draft_lengths
        A trace, and fixed draft lengths; lengths above the trace's longest are left out [token].

    Examples
    --------
    >>> trace = Trace(proposed_tokens=np.array([2, 0, 2, 2]), output_tokens=np.array([4]),
    ...               accepted_tokens=np.array([1, 0, 2, 0]), max_draft_length=2)
    >>> trace_statistics(trace).tokens_per_step
    [2.0, 2.0]
    """
    if len(draft_lengths):
        check("draft_lengths", draft_lengths, minimum=0, whole=True)
    lengths = [length for length in draft_lengths if length <= trace.max_draft_length]
    accepted, proposes = trace.accepted_tokens, trace.proposed_tokens > 0
    is_end = np.zeros(len(accepted), dtype=bool)
    is_end[1:] = (accepted[1:] == 0) & (accepted[:-1] > 0)
    is_end[trace.starts] = False
    ends = np.count_nonzero(is_end)
    at_reference = _clustering(trace) if trace.max_draft_length >= REFERENCE_LENGTH else {}
    return TraceStatistics(
        num_requests=trace.num_requests,
        draft_lengths=lengths,
        tokens_per_step=[steps_at(trace, length)[0] for length in lengths],
        proposal_share=np.count_nonzero(proposes) / len(proposes),
        wrong_endings=np.count_nonzero(is_end & proposes) / ends if ends else None,
        **at_reference,
    )


def steps_at(trace: Trace, draft_length: int) -> tuple[float, float]:
    """Return tokens per step [token] and share of steps with a proposal [-] at a fixed length."""
    steps = proposing = 0
    for _, positions, _ in fixed_length_steps(trace, draft_length):
        steps += len(positions)
        proposing += int(np.count_nonzero(trace.proposed_tokens[positions]))
    return float(trace.output_tokens.sum() / steps), proposing / steps


def fixed_length_steps(
    trace: Trace, draft_length: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
    """Yield requests, positions and accepted tokens step by step, at a fixed draft length."""
    rows, which = trace.by_length(draft_length)
    accepted = np.minimum(rows[which[draft_length]], np.uint8(draft_length))
    requests, positions = np.arange(trace.num_requests), trace.starts
    ends = positions + trace.output_tokens
    while len(requests):
        held = np.minimum(accepted[positions], ends - positions - 1)
        yield requests, positions, held
        positions = positions + held + 1
        going = positions < ends
        if not going.all():
            requests, positions, ends = requests[going], positions[going], ends[going]


def _clustering(trace: Trace) -> dict[str, float | None]:
    """Return how acceptance clusters in steps of the reference length."""
    moments = np.zeros((6, trace.num_requests), dtype=np.int64)  # of pairs, by request
    steps, before = np.zeros((2, trace.num_requests), dtype=np.int64)
    proposing = 0
    for i, (requests, positions, held) in enumerate(fixed_length_steps(trace, REFERENCE_LENGTH)):
        if i > 0:
            x, y = before[requests], held.astype(np.int64)
            moments[:, requests] += np.array([np.ones_like(x), x, y, x * x, y * y, x * y])
        steps[requests] += 1
        before[requests] = held
        proposing += int(np.count_nonzero(trace.proposed_tokens[positions]))
    within = _correlations(moments)
    known = within[np.isfinite(within)]
    pooled = float(_correlations(moments.sum(axis=1, keepdims=True))[0])
    return {
        "proposing_steps": proposing / int(steps.sum()),
        "request_spread": float((trace.output_tokens / steps).std()),
        "pooled_autocorrelation": pooled if np.isfinite(pooled) else None,
        "autocorrelation_within": float(known.mean()) if len(known) else None,
    }


def _correlations(moments: NDArray[np.int64]) -> FloatArray:
    """Return Pearson's correlations: cov(x, y) / sqrt(var x var y), each of them times n²."""
    n, x, y, xx, yy, xy = moments.astype(object)  # numbers of any size, which do not overflow
    variance = ((n * xx - x * x) * (n * yy - y * y)).astype(float)
    covariance = (n * xy - x * y).astype(float)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(variance > 0, covariance / np.sqrt(variance), np.nan))
