"""Figures of a trace that studies of acceptance publish: tokens per step, and how they cluster."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specmodel.base.records import Record
from specmodel.base.units import check
from specmodel.replay.traces.record import Trace

DRAFT_LENGTHS = (1, 2, 3, 5, 7, 10, 20)
"""Draft lengths at which tokens per step are usually published [token]."""

REFERENCE_LENGTH = 3
"""Draft length at which all other figures are published [token]."""

WINDOW_STEPS = 16
"""Successive steps whose mean is one value in the window correlation [-]."""


@dataclass(frozen=True, kw_only=True)
class TraceStatistics(Record):
    """Figures of a trace, or those that a study measured; None stands for an unknown figure.

    Tokens per step are means over the steps of all requests at fixed draft lengths [token], the
    proposal share is over output positions [-]. All others are at draft length 3: the correlation
    of the accepted tokens of successive steps of a request, that of means over successive windows
    of 16 steps [-], and the tokens per step of the slowest and of the fastest request [token].
    """

    num_requests: int
    draft_lengths: list[int]
    tokens_per_step: list[float]
    proposal_share: float | None = None
    autocorrelation: float | None = None
    window_correlation: float | None = None
    smallest_tokens_per_step: float | None = None
    largest_tokens_per_step: float | None = None


def trace_statistics(trace: Trace, draft_lengths: Sequence[int] = DRAFT_LENGTHS) -> TraceStatistics:
    """Return tokens per step at fixed draft lengths, and how acceptance clusters.

    Figures at draft length 3 are None if the trace does not record so long a draft, and a
    correlation is None without two steps or windows, or where nothing varies. Correlations are
    Pearson's, over the pairs of all requests together; steps that do not fill a window of 16 are
    left out. The last step of a request emits no more than is left of its output, so that tokens
    per step grow a little with the length of the output.

    Parameters
    ----------
    trace, draft_lengths
        Any trace; fixed lengths, of which those above the trace's longest are left out [token].

    Examples
    --------
    >>> from specmodel.replay.traces.record import make_trace
    >>> trace = make_trace([[2, 0, 2, 2]], [[1, 0, 2, 0]], max_draft_length=2)
    >>> trace_statistics(trace).tokens_per_step
    [2.0, 2.0]
    """
    if len(draft_lengths):
        check("draft_lengths", draft_lengths, minimum=0, whole=True)
    lengths = [length for length in draft_lengths if length <= trace.max_draft_length]
    at_reference: dict[str, float | None] = {}
    if trace.max_draft_length >= REFERENCE_LENGTH:
        at_reference = _clustering(trace)
    return TraceStatistics(
        num_requests=trace.num_requests,
        draft_lengths=lengths,
        tokens_per_step=[steps_at(trace, length)[0] for length in lengths],
        proposal_share=np.count_nonzero(trace.proposed_tokens) / len(trace.proposed_tokens),
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
    """Yield live requests, their positions and accepted tokens, step by step, at a fixed length."""
    accepted = np.minimum(trace.accepted_tokens, np.uint8(draft_length))
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
    steps, window, before_window, before = np.zeros((4, trace.num_requests), dtype=np.int64)
    step_pairs, window_pairs = np.zeros((2, 6), dtype=np.int64)
    for i, (requests, _, held) in enumerate(fixed_length_steps(trace, REFERENCE_LENGTH)):
        if i > 0:
            step_pairs += _moments(before[requests], held)
        steps[requests] += 1
        window[requests] += held
        before[requests] = held
        if i % WINDOW_STEPS == WINDOW_STEPS - 1:
            if i > WINDOW_STEPS:
                window_pairs += _moments(before_window[requests], window[requests])
            before_window, window = window, np.zeros_like(window)
    means = trace.output_tokens / steps
    return {
        "autocorrelation": _correlation(step_pairs),
        "window_correlation": _correlation(window_pairs),
        "smallest_tokens_per_step": float(means.min()),
        "largest_tokens_per_step": float(means.max()),
    }


def _moments(x: NDArray[np.int64], y: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the sums that a correlation needs, in whole numbers, so that they add up exactly."""
    return np.array([len(x), x.sum(), y.sum(), x @ x, y @ y, x @ y])


def _correlation(moments: NDArray[np.int64]) -> float | None:
    """Return Pearson's correlation: cov(x, y) / sqrt(var x var y), each of them times n²."""
    n, x, y, xx, yy, xy = (int(moment) for moment in moments)
    variance = (n * xx - x * x) * (n * yy - y * y)
    return (n * xy - x * y) / variance**0.5 if variance > 0 else None
