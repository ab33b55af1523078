"""Acceptance traces: what a drafter would offer at each output position, and what of it holds.

With both numbers known at every position, any draft-length policy can be replayed exactly: a step
at position p with draft length K verifies min(K, proposed[p]) tokens, accepts min(K, accepted[p])
of them, and emits one more. Where drafts of another length are other drafts, as a drafter that
writes a block at once makes them, what is accepted is recorded by the length asked for.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace
from numpy.typing import NDArray

from specmodel.core.base.errors import InputError
from specmodel.core.base.units import check

LONGEST_DRAFT = 255
"""Longest draft that a trace can record [token]."""
LONGEST_PROMPT = 10**7
"""Longest prompt of a trace: ten times the context of any model of today [token]."""

Counts = NDArray[np.uint8]
"""Tokens by position."""
COLUMNS = ("proposed_tokens", "accepted_tokens")
"""What is known of each position."""


class Trace(Struct, frozen=True, kw_only=True, eq=False):
    """Acceptance of many requests, position by position.

    Parameters
    ----------
    proposed_tokens, accepted_tokens
        How many tokens the drafter would offer at each output position, with all requests in a row,
        and how many of them the target would accept [token].
    output_tokens
        Length of each request's output [token].
    max_draft_length, metadata
        Longest draft recorded, above which no policy may ask [token]; where the trace comes from.
    prompt_tokens
        Length of each request's prompt, if it is known [token].
    accepted_at
        Accepted tokens of shorter drafts, by draft length, where these are other drafts and not the
        first tokens of longer ones; a length in between is the beginning of the next one [token].
    """

    proposed_tokens: Counts
    accepted_tokens: Counts
    output_tokens: NDArray[np.int64]
    max_draft_length: int
    metadata: Mapping[str, str] = field(default_factory=dict)
    prompt_tokens: NDArray[np.int64] | None = None
    accepted_at: Mapping[int, Counts] = field(default_factory=dict)

    @property
    def num_requests(self) -> int:
        """Requests [request]."""
        return len(self.output_tokens)

    @property
    def starts(self) -> NDArray[np.int64]:
        """Where each request starts in the arrays."""
        return np.cumsum(self.output_tokens) - self.output_tokens

    def by_length(self, longest: int) -> tuple[Counts, NDArray[np.int64]]:
        """Return rows of accepted tokens, and which of them is that of each draft length."""
        lengths = sorted(self.accepted_at)
        rows = self.accepted_tokens[None]
        if lengths:
            rows = np.stack([*(self.accepted_at[length] for length in lengths), *rows])
        return rows, np.searchsorted(lengths, np.arange(longest + 1))

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
            prompt_tokens=None if self.prompt_tokens is None else self.prompt_tokens[first:last],
            accepted_at={n: counts[positions] for n, counts in self.accepted_at.items()},
        )


def check_request(counts: Mapping[str, Any], longest: int, where: str) -> tuple[Counts, ...]:
    """Return what a request has by position, checked: proposed tokens first, if told.

    Errors say that it is `where`.
    """
    checked = [
        whole_numbers(values, f"{where} {name}", longest).astype(np.uint8)
        for name, values in counts.items()
    ]
    proposed, told = checked[0], next(iter(counts))
    for name, accepted in zip(counts, checked, strict=True):
        if len(accepted) != len(proposed):
            expected = f"{len(proposed)} positions, as in {told}"
            raise InputError(f"{where} {name}", f"{len(accepted)} positions", expected)
        beyond = np.flatnonzero((accepted > proposed) & (told == COLUMNS[0]))
        if len(beyond):
            p = int(beyond[0])
            expected = f"at most proposed_tokens, {proposed[p]}"
            raise InputError(f"{where} {name}[{p}]", int(accepted[p]), expected)
    return tuple(checked)


def join_traces(traces: Sequence[Trace]) -> Trace:
    """Return the requests of several traces in order.

    Parameters
    ----------
    traces
        At least one trace.

    Returns
    -------
    Trace
        All requests; the shortest `max_draft_length` of the traces holds for all of them. Prompts
        are known if those of all traces are.
    """
    prompts = [trace.prompt_tokens for trace in traces if trace.prompt_tokens is not None]
    longest = min(trace.max_draft_length for trace in traces)
    proposed = np.concatenate([trace.proposed_tokens for trace in traces])
    parts = [trace.by_length(longest) for trace in traces]
    lengths = sorted({n for trace in traces for n in trace.accepted_at if n < longest})
    every = (*lengths, longest)
    accepted = [np.concatenate([rows[which[n]] for rows, which in parts]) for n in every]
    return Trace(
        proposed_tokens=np.minimum(proposed, longest).astype(np.uint8),
        accepted_tokens=np.minimum(accepted[-1], longest).astype(np.uint8),
        accepted_at=dict(zip(lengths, accepted[:-1], strict=True)),
        output_tokens=np.concatenate([trace.output_tokens for trace in traces]),
        max_draft_length=longest,
        prompt_tokens=np.concatenate(prompts) if len(prompts) == len(traces) else None,
    )


def whole_numbers(values: Any, name: str, maximum: int) -> NDArray[np.int64]:
    """Return a list of whole numbers from 0 to a maximum as an array."""
    found = check(name, values, minimum=0, maximum=maximum, whole=True)
    if found.ndim != 1:
        raise InputError(name, values, "a list of whole numbers")
    return found.astype(np.int64)
