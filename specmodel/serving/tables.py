"""What the loop over steps reads, in Python and in numba: step times, and what is accepted."""

from typing import Any, NamedTuple

from specmodel.serving.state import Outcomes, Request

GOLDEN, FIRST_FACTOR, SECOND_FACTOR = 0x9E3779B9, 0x7FEB352D, 0x846CA68B
"""Weyl increment by output position, and the factors of Wellons' 32-bit mix (lowbias32)."""
LOW = 0xFFFFFFFF


class Tables(NamedTuple):
    """Step times as the loop reads them: flat arrays or lists, and their sizes.

    `base` is by draft length, requests and row of context, of which `rows_per_token` make a token;
    `more` by draft length and nodes of requests, chunks' tokens and entries seen, `lengths` of them
    for steps of up to `graph_tokens`, and as many for others, of which tokens of prompts count
    `spread` times, where other replicas wait for the one that reads them.
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


def below(nodes: Any, value: float) -> int:
    """Return the place of the last node at or below a value, at most the last but one."""
    low, high = 0, len(nodes) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if nodes[middle] <= value:
            low = middle
        else:
            high = middle
    return low


def decode_time(tables: Tables, length: int, requests: int, context: float) -> float:
    """Return a step without prompts, at a mean context [s]."""
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


def uniform_hash(key: int, position: int) -> int:
    """Return a hash of key and position that is uniform below 2^32 [-].

    Products stay right in 64 bits, as only their low 32 bits are kept.
    """
    x = (key + position * GOLDEN) & LOW
    x = ((x ^ (x >> 16)) * FIRST_FACTOR) & LOW
    x = ((x ^ (x >> 15)) * SECOND_FACTOR) & LOW
    return x ^ (x >> 16)


def accepted_tokens(outcomes: Outcomes, request: Request, place: int, length: int) -> int:
    """Return how many of the tokens drafted for a request are accepted [token]."""
    trace = outcomes.accepted
    if len(trace) > 0:
        own = place % len(outcomes.first)
        found = trace[outcomes.first[own] + request.emitted_tokens % outcomes.lengths[own]]
        return int(found) if found < length else length
    noise = uniform_hash(request.key, request.emitted_tokens)
    held, first = 0, length * outcomes.longest
    if outcomes.classes > 1 or len(outcomes.contexts) > 0:
        first += table_of(outcomes, request) * (outcomes.longest + 1) * outcomes.longest
    for j in range(first, first + length):
        held += noise < outcomes.thresholds[j]
    return held


def table_of(outcomes: Outcomes, request: Request) -> int:
    """Return the index of the table of thresholds for a request's class and context [-]."""
    table = (request.key * outcomes.classes >> 32) * (len(outcomes.contexts) + 1)
    for least in outcomes.contexts:
        table += request.context >= least
    return int(table)
