"""Define acceptance traces: proposed and accepted tokens at each output position.

With both numbers at every position, any draft-length policy can be replayed exactly. A step at
position p with draft length K verifies min(K, proposed[p]) tokens, accepts min(K, accepted[p]) of
them, and emits one more. A drafter that writes a block at once makes another draft for each length.
Its accepted tokens are recorded by the requested length.
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
"""Longest prompt of a trace: ten times the longest context of a present model [token]."""

Counts = NDArray[np.uint8]
"""Numbers of tokens by position."""
COLUMNS = ("proposed_tokens", "accepted_tokens")
"""Columns with the numbers of tokens at each position."""


class Trace(Struct, frozen=True, kw_only=True, eq=False):
    """Acceptance of many requests, position by position.

    Parameters
    ----------
    proposed_tokens, accepted_tokens
        Number of tokens that the drafter would propose at each output position, with all requests
        in a row, and number of them that the target would accept [token].
    output_tokens
        Length of each request's output [token].
    max_draft_length, metadata
        Longest recorded draft, which no policy may exceed [token]; source of the trace.
    prompt_tokens
        Length of each request's prompt, if it is known [token].
    accepted_at
        Accepted tokens of shorter drafts, by draft length, if these drafts are not the beginning of
        longer ones. A draft of a length in between is the beginning of the next longer one [token].
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
        """Number of requests [request]."""
        return len(self.output_tokens)

    @property
    def starts(self) -> NDArray[np.int64]:
        """Index of the first position of each request."""
        return np.cumsum(self.output_tokens) - self.output_tokens

    def by_length(self, longest: int) -> tuple[Counts, NDArray[np.int64]]:
        """Return rows of accepted tokens [token], and the index of each draft length's row."""
        lengths = sorted(self.accepted_at)
        rows = self.accepted_tokens[None]
        if lengths:
            rows = np.stack([*(self.accepted_at[length] for length in lengths), *rows])
        return rows, np.searchsorted(lengths, np.arange(longest + 1))

    def part(self, first: int, last: int) -> "Trace":
        """Return the requests from `first` to `last`, without `last`."""
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
    """Return the checked columns of a request, proposed tokens first, if known [token].

    Errors contain `where`.
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
        All requests, with the smallest `max_draft_length` of the traces. Prompts are known if they
        are known in all traces.
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
