"""Acceptance traces: what a drafter would offer at each output position, and what of it holds.

With both numbers known at every position, any draft-length policy can be replayed exactly: a step
at position p with draft length K verifies min(K, proposed[p]) tokens, accepts min(K, accepted[p])
of them, and emits one more.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from specmodel.base.errors import InputError

LONGEST_DRAFT = 255
"""Longest draft that a trace can record [token]."""

Counts = NDArray[np.uint8]
"""Tokens by position."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Trace:
    """Acceptance of many requests, position by position.

    Parameters
    ----------
    proposed_tokens
        How many tokens the drafter would offer at each output position, with all requests in a
        row; 0 where it has nothing [token].
    accepted_tokens
        How many of them the target would accept, of the same shape [token].
    output_tokens
        Length of each request's output [token].
    max_draft_length
        Longest draft recorded; no policy may ask for more [token].
    metadata
        Where the trace comes from, for people.
    """

    proposed_tokens: Counts = field(repr=False)
    accepted_tokens: Counts = field(repr=False)
    output_tokens: NDArray[np.int64] = field(repr=False)
    max_draft_length: int
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def num_requests(self) -> int:
        """Requests [request]."""
        return len(self.output_tokens)

    @property
    def starts(self) -> NDArray[np.int64]:
        """Where each request starts in the arrays."""
        return np.cumsum(self.output_tokens) - self.output_tokens

    def part(self, first: int, last: int) -> "Trace":
        """Return the requests from `first` up to, and without, `last`."""
        lengths = self.output_tokens[first:last]
        start = int(self.output_tokens[:first].sum())
        positions = slice(start, start + int(lengths.sum()))
        return replace(
            self,
            proposed_tokens=self.proposed_tokens[positions],
            accepted_tokens=self.accepted_tokens[positions],
            output_tokens=lengths,
        )


def make_trace(
    proposed_tokens: Sequence[Sequence[int]],
    accepted_tokens: Sequence[Sequence[int]],
    max_draft_length: int,
    metadata: Mapping[str, str] | None = None,
) -> Trace:
    """Return a trace from lists by request, checked.

    Parameters
    ----------
    proposed_tokens, accepted_tokens
        One sequence a request, of the same length for both [token].
    max_draft_length
        Longest draft recorded, from 1 to 255 [token].
    metadata
        Where the trace comes from.

    Returns
    -------
    Trace
        The requests in the order given.

    Raises
    ------
    InputError
        Names request and position of what is negative, not whole, above the maximum or accepted
        without having been proposed.

    Examples
    --------
    >>> trace = make_trace([[2, 0, 2]], [[1, 0, 2]], max_draft_length=2)
    >>> trace.num_requests
    1
    """
    if not 1 <= max_draft_length <= LONGEST_DRAFT:
        raise InputError("max_draft_length", max_draft_length, f"from 1 to {LONGEST_DRAFT}")
    if not len(proposed_tokens):
        raise InputError("trace", "no requests", "at least one request")
    if len(proposed_tokens) != len(accepted_tokens):
        given = f"{len(proposed_tokens)} and {len(accepted_tokens)} requests"
        raise InputError("accepted_tokens", given, "as many requests as proposed_tokens")
    requests = [
        check_request(offered, held, max_draft_length, f"request {i}")
        for i, (offered, held) in enumerate(zip(proposed_tokens, accepted_tokens, strict=True))
    ]
    return collect_trace(requests, max_draft_length, metadata or {})


def collect_trace(
    requests: Sequence[tuple[Counts, Counts]], max_draft_length: int, metadata: Mapping[str, str]
) -> Trace:
    """Return a trace of requests that were checked, each proposed and accepted tokens [token]."""
    proposed, accepted = zip(*requests, strict=True)
    return Trace(
        proposed_tokens=np.concatenate(proposed),
        accepted_tokens=np.concatenate(accepted),
        output_tokens=np.array([len(counts) for counts in proposed], dtype=np.int64),
        max_draft_length=max_draft_length,
        metadata=dict(metadata),
    )


def check_request(
    proposed_tokens: Sequence[int],
    accepted_tokens: Sequence[int],
    max_draft_length: int,
    where: str,
) -> tuple[Counts, Counts]:
    """Return the counts of one request as arrays.

    Parameters
    ----------
    proposed_tokens, accepted_tokens
        One number a position [token].
    max_draft_length
        Longest draft recorded [token].
    where
        Names the request in an error, such as "request 3" or "line 4".

    Returns
    -------
    tuple of ndarray
        Proposed and accepted tokens.

    Raises
    ------
    InputError
        Names the request, the column, the position and the value.
    """
    proposed = _counts(proposed_tokens, max_draft_length, f"{where} proposed_tokens")
    accepted = _counts(accepted_tokens, max_draft_length, f"{where} accepted_tokens")
    if len(accepted) != len(proposed):
        expected = f"{len(proposed)} positions, as in proposed_tokens"
        raise InputError(f"{where} accepted_tokens", f"{len(accepted)} positions", expected)
    beyond = np.flatnonzero(accepted > proposed)
    if len(beyond):
        p = int(beyond[0])
        expected = f"at most proposed_tokens, {proposed[p]}"
        raise InputError(f"{where} accepted_tokens[{p}]", int(accepted[p]), expected)
    return proposed, accepted


def join_traces(traces: Sequence[Trace], metadata: Mapping[str, str] | None = None) -> Trace:
    """Return the requests of several traces as one.

    Parameters
    ----------
    traces
        At least one.
    metadata
        Where the joined trace comes from.

    Returns
    -------
    Trace
        The requests in order; the shortest recorded maximum holds for all.
    """
    longest = min(trace.max_draft_length for trace in traces)
    proposed = np.concatenate([trace.proposed_tokens for trace in traces])
    accepted = np.concatenate([trace.accepted_tokens for trace in traces])
    return Trace(
        proposed_tokens=np.minimum(proposed, longest).astype(np.uint8),
        accepted_tokens=np.minimum(accepted, longest).astype(np.uint8),
        output_tokens=np.concatenate([trace.output_tokens for trace in traces]),
        max_draft_length=longest,
        metadata=dict(metadata or {}),
    )


def _counts(values: Sequence[int], maximum: int, name: str) -> Counts:
    """Return numbers of tokens by position as bytes, or refuse the first that is not one."""
    if not isinstance(values, list | tuple | np.ndarray) or not len(values):
        raise InputError(name, values, "a list with one whole number a position, at least one")
    try:
        array = np.asarray(values)
    except ValueError:
        array = np.array(values, dtype=object)
    # types are compared because an array takes true for 1
    has_truth = not isinstance(values, np.ndarray) and bool in set(map(type, values))
    if array.ndim != 1 or array.dtype.kind not in "iu" or has_truth:
        wrong = (v for v in values if isinstance(v, bool) or not isinstance(v, int | np.integer))
        raise InputError(name, next(wrong, values), "whole numbers, one a position")
    outside = np.flatnonzero((array < 0) | (array > maximum))
    if len(outside):
        p = int(outside[0])
        expected = f"from 0 to max_draft_length = {maximum}"
        raise InputError(f"{name}[{p}]", int(array[p]), expected)
    return array.astype(np.uint8)
