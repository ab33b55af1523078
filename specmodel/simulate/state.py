"""State that the loop over steps reads and writes by name: objects in Python, records in numba.

numba compiles access by name to the fields of NumPy records, so that the loop is written once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

BY_BATCH, BY_STEP, SHARED, OWN = range(4)
"""Kinds of policies: a draft length by batch; states that all requests share, which learn from
whole steps, or from each request too; a state of each request."""


@dataclass(slots=True)
class Request:
    """What a request asks, what it has while it runs, and what is recorded of it.

    Parameters
    ----------
    arrival, prompt_tokens, cached_tokens, output_tokens, key
        When it comes [s], its lengths, the prompt's tokens that are found in the prefix cache
        [token], and what its noise follows from [-].
    started, first_token, last_token
        When it was first scheduled, and emitted its first and last token [s].
    drafted_tokens, accepted_tokens, emitted_tokens
        Of it until now [token].
    context, prefill_tokens, scheduled_tokens
        Its KV entries, tokens still to be prefilled, and tokens that the step computes [token].
    blocks, free_slots
        KV blocks that it holds [-], and entries that these still take [token].
    group, shared_blocks
        Requests with the same beginning, and its blocks, which all that run hold together [-].
    """

    arrival: float
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    key: int
    started: float
    first_token: float
    last_token: float
    drafted_tokens: int
    accepted_tokens: int
    emitted_tokens: int
    context: int
    prefill_tokens: int
    scheduled_tokens: int
    blocks: int
    free_slots: int
    group: int
    shared_blocks: int


@dataclass(slots=True)
class State:
    """State of the server, and what is counted over a run.

    Parameters
    ----------
    now, last_batch
        The clock [s] and requests of the last step [request].
    arrived, admitted, running, preempted, finished
        Requests that came, left the queue, run, wait to be computed anew, and ended [request].
    free_blocks
        KV blocks that are free [-].
    steps, request_steps, preemptions, prefilled_tokens
        Steps [-], requests of all steps [request], preemptions [-], and tokens prefilled [token].
    running_time
        Requests that run, integrated over time [s].
    bin
        Bin of the last interval between steps, near which the next one is looked for [-].
    """

    now: float
    last_batch: int
    arrived: int
    admitted: int
    running: int
    preempted: int
    finished: int
    free_blocks: int
    steps: int
    request_steps: int
    preemptions: int
    prefilled_tokens: int
    running_time: float
    bin: int


@dataclass(slots=True)
class Step:
    """A step: what is scheduled in it, and what came of that.

    Parameters
    ----------
    step_time
        How long it took [s].
    budget, batch, draft_length, longer
        Tokens that it may still take [token], its requests [request], tokens of a draft [token],
        and how many requests verify one more, where drafts are cut [request].
    decoding, context
        Requests that decode [request], and their KV entries [token].
    chunks, prompt_tokens
        Chunks of prompts [-], and their tokens [token].
    accepted_tokens, emitted_tokens
        What came of it [token].
    running, free_blocks
        Requests behind it [request], and KV blocks [-].
    """

    step_time: float
    budget: int
    batch: int
    draft_length: int
    longer: int
    decoding: int
    context: int
    chunks: int
    prompt_tokens: int
    accepted_tokens: int
    emitted_tokens: int
    running: int
    free_blocks: int


NOTHING = np.zeros(0, np.int64)
"""A field of `Outcomes` that is not read."""


class Outcomes(NamedTuple):
    """What comes of drafts: as a trace has it, or at random by thresholds of noise.

    Request i of a trace starts at `first[i]` and has `lengths[i]` positions, at which as many
    tokens of a draft are `accepted` [token].

    `thresholds` are by draft length, of at most `longest`, and position. `contexts`, in ascending
    order, are where the next table of thresholds begins to hold. There is such a set of tables for
    each of `classes` classes of requests, equally many in each; a request's key decides its class.
    """

    accepted: Any = np.zeros(0, np.uint8)
    first: Any = NOTHING
    lengths: Any = NOTHING
    thresholds: Any = NOTHING
    longest: int = 1
    contexts: Any = NOTHING
    classes: int = 1


class Limits(NamedTuple):
    """Fields of `limits.Scheduler`, and what memory holds.

    These are KV blocks in all, and those of one request's recurrent states and full windows [-]. A
    block is so large that it holds any request where nothing grows [token].
    """

    blocks: int
    fixed_blocks: int = 0
    block_size: int = 16
    max_running: int = 1024
    token_budget: int = 8192
    reserved_tokens: int = 0


class Server(NamedTuple):
    """The draft-length policy of a server, as the simulation loop reads it.

    `by_batch` has, for each batch size from 0, a draft length if `kind` is `BY_BATCH` [token], else
    the index of one of the `states` of learning policies; if it is `OWN` these are by request. The
    last entry holds for larger batches. Where drafts are cut before they are verified, `survival`
    has the mean chances that at least 1, 2, ... tokens are accepted, by which it is done; else it
    is empty [-].
    """

    kind: int
    by_batch: Any
    states: Any
    survival: Any


class Engine(NamedTuple):
    """All requests in order of arrival, which of them run or are preempted, and what is counted.

    `emitted_before` is the number of tokens of each request that a prefill server emitted. With
    `users`, the next request arrives when one ends. The loop ends when the first `until` requests
    are done. Running requests are in order of admission; the last of the preempted ones is the next
    to run. `sharers` counts the running requests of each group. The last record of `log` is
    overwritten by every step that is not logged.
    """

    requests: Any
    emitted_before: int
    users: int
    until: int
    running: Any
    preempted: Any
    sharers: Any
    state: Any
    log: Any
    intervals: Any
    edges: Any


def records(kind: type, count: int, columns: Mapping[str, Any], *, compiled: bool) -> Any:
    """Return records, zero where no column is given: an array for numba, objects for Python."""
    found = np.zeros(count, _layout(kind))
    for name, values in columns.items():
        found[name] = values
    return found if compiled else [kind(*row) for row in found.tolist()]


def as_array(kind: type, found: Any) -> NDArray[Any]:
    """Return the records that `records` made, as a structured array."""
    if isinstance(found, np.ndarray):
        return found
    layout = _layout(kind)
    return np.array([*map(attrgetter(*layout.names or ()), found)], layout)


def _layout(kind: type) -> np.dtype[Any]:
    return np.dtype([(field.name, field.type) for field in fields(kind)], align=True)
