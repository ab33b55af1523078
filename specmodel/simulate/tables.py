"""Look up times of steps by draft length, requests and context, for the loop of a server."""

from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct

from specmodel.core.base.units import FloatArray, Numeric


class Tables(NamedTuple):
    """Step times as loops read them: flat arrays or lists, and their sizes.

    `base` is by draft length, requests and row of context, with `rows_per_token` rows per token.
    `more` is by draft length and by nodes of requests, chunks' tokens and entries seen. Its first
    `lengths` draft lengths are for steps of up to `graph_tokens`, and as many more are for larger
    steps. Each prompt token counts `spread` times towards `graph_tokens`, because the other
    replicas wait for the one that reads the prompt.
    """

    base: Any
    requests: int
    rows: int
    rows_per_token: float
    lengths: int
    graph_tokens: float
    spread: float
    more: Any
    at_requests: Any
    at_tokens: Any
    at_seen: Any


class TabulatedTimes(Struct, frozen=True, kw_only=True, eq=False):
    """Times of mixed steps at nodes, between which they are interpolated.

    Parameters
    ----------
    base
        Steps without prompts, by draft length, requests from 0, and row of context [s].
    context_step
        Context between two rows, the first of which has none [token].
    more, nodes
        Time that chunks of prompts add, by draft length and three nodes, or the time of the step if
        nothing decodes [s]. The nodes are requests that decode [request], tokens of all chunks, and
        the mean number of entries that such a token sees, including itself [token].
    graph_tokens, spread
        Most tokens of a step with prompts that runs in piecewise graphs [token]. If finite, `more`
        has a second row of larger steps for each draft length. `spread` is the number of replicas
        that wait for the one that reads a prompt [-].
    """

    base: FloatArray
    context_step: float
    more: FloatArray
    nodes: tuple[FloatArray, FloatArray, FloatArray]
    graph_tokens: float = np.inf
    spread: float = 1.0

    @property
    def max_draft_length(self) -> int:
        """Longest draft with a time [token]."""
        return len(self.base) - 1

    @property
    def max_requests(self) -> int:
        """Most requests with a time [request]."""
        return int(self.base.shape[1]) - 1

    def step_time(self, draft_length: int, requests: Numeric, context: Numeric) -> FloatArray:
        """Return the time of steps without prompts, at a batch size and mean context [s]."""
        table, size = self.base[draft_length], np.asarray(requests, dtype=float)
        rows = np.minimum(np.asarray(context) / self.context_step, table.shape[1] - 1.001)
        row, low = rows.astype(int), np.minimum(size.astype(int), self.max_requests - 1)
        ends = [table[n, row] + (rows - row) * (table[n, row + 1] - table[n, row])
                for n in (low, low + 1)]  # fmt: skip
        return np.asarray(ends[0] + (size - low) * (ends[1] - ends[0]))

    def prompt_time(
        self, draft_length: int, requests: Numeric, tokens: Numeric, seen: Numeric
    ) -> FloatArray:
        """Return the time that `tokens` prompt tokens add, at a mean context of `seen` [s].

        Tokens beyond the token budget of one step are spread over several steps.
        """
        size = np.multiply(requests, draft_length + 1) + np.multiply(tokens, self.spread)
        is_beyond = np.where(size > self.graph_tokens, len(self.base), 0)
        place, found = draft_length + is_beyond, []
        for values, given in zip(self.nodes, (requests, tokens, seen), strict=True):
            value = np.clip(given, values[0], values[-1])
            at = np.clip(np.searchsorted(values, value, "right") - 1, 0, len(values) - 2)
            found.append((at, (value - values[at]) / (values[at + 1] - values[at])))
        (i, a), (j, b), (k, c) = found
        total = 0.0
        for di, dj, dk in np.ndindex(2, 2, 2):
            weight = (a if di else 1 - a) * (b if dj else 1 - b) * (c if dk else 1 - c)
            total = total + weight * self.more[place, i + di, j + dj, k + dk]
        return np.asarray(total * np.maximum(tokens / self.nodes[1][-1], 1.0))

    def flat(self) -> Tables:
        """Return the tables as the loop reads them."""
        _, requests, rows = self.base.shape
        arrays = (self.base, self.more, *self.nodes)
        base, more, *nodes = (np.ascontiguousarray(each.ravel(), float) for each in arrays)
        sizes = requests, rows, 1 / self.context_step, len(self.base)
        return Tables(base, *sizes, self.graph_tokens, float(self.spread), more, *nodes)


def below(nodes: Any, value: float) -> int:
    """Return the index of the last node at or below a value, without the last node [-]."""
    low, high = 0, len(nodes) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if nodes[middle] <= value:
            low = middle
        else:
            high = middle
    return low


def at_context(tables: Tables, length: int, requests: int, context: float) -> float:
    """Return the time of a step without prompts, at a mean context [s]."""
    rows = context * tables.rows_per_token
    row = int(rows)
    if row > tables.rows - 2:
        row = tables.rows - 2
    at = (length * tables.requests + requests) * tables.rows + row
    low: float = tables.base[at]
    high: float = tables.base[at + 1]
    return low + (rows - row) * (high - low)


def prompt_time(tables: Tables, length: int, requests: int, tokens: float, seen: float) -> float:
    """Return the time that chunks of prompts add to a step [s]."""
    sizes, lengths, sights = tables.at_requests, tables.at_tokens, tables.at_seen
    i, j, k = below(sizes, requests), below(lengths, tokens), below(sights, seen)
    a = (requests - sizes[i]) / (sizes[i + 1] - sizes[i])
    b = (tokens - lengths[j]) / (lengths[j + 1] - lengths[j])
    c = (seen - sights[k]) / (sights[k + 1] - sights[k])
    c = 0.0 if c < 0 else 1.0 if c > 1 else c
    row, plane = len(sights), len(sights) * len(lengths)
    is_beyond = requests * (length + 1) + tokens * tables.spread > tables.graph_tokens
    place = length + tables.lengths if is_beyond else length
    at = (place * len(sizes) + i) * plane + j * row + k
    total, more = 0.0, tables.more
    for corner in range(4):
        di, dj = corner >> 1, corner & 1
        here = at + di * plane + dj * row
        value = more[here] + c * (more[here + 1] - more[here])
        total += (a if di else 1 - a) * (b if dj else 1 - b) * value
    return total
