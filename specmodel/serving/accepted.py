"""What is accepted of drafts, as the loop over steps reads it."""

from specmodel.serving.state import Outcomes, Request

GOLDEN, FIRST_FACTOR, SECOND_FACTOR = 0x9E3779B9, 0x7FEB352D, 0x846CA68B
"""Weyl increment by output position, and the factors of Wellons' 32-bit mix (lowbias32)."""
LOW = 0xFFFFFFFF


def uniform_hash(key: int, position: int) -> int:
    """Return a hash of key and position that is uniform below 2^32 [-].

    Products stay right in 64 bits, as only their low 32 bits are kept.
    """
    x = (key + position * GOLDEN) & LOW
    x = ((x ^ (x >> 16)) * FIRST_FACTOR) & LOW
    x = ((x ^ (x >> 15)) * SECOND_FACTOR) & LOW
    return x ^ (x >> 16)


def drafted_tokens(outcomes: Outcomes, request: Request, place: int, asked: int) -> int:
    """Return how many tokens are drafted for a request of those asked for [token]."""
    if len(outcomes.proposed) == 0:
        return asked
    own = place % len(outcomes.first)
    at = outcomes.first[own] + request.emitted_tokens % outcomes.lengths[own]
    offered = outcomes.proposed[at]
    return int(offered) if offered < asked else asked


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
