"""State that the loop over steps reads and writes by name: objects in Python, records in numba.

numba compiles access to the fields of NumPy records by name, so the loop is written only once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

BY_BATCH, BY_STEP, SHARED, OWN = range(4)
"""Kinds of policies.

`BY_BATCH` has a draft length for each batch size. The states of `BY_STEP` and `SHARED` are shared
by all requests; `SHARED` learns from each request and step, `BY_STEP` from whole steps only. `OWN`
has a state for each request.
"""


@dataclass(slots=True)
class Request:
    """A request, its state while it runs, and its record.

    Parameters
    ----------
    arrival, prompt_tokens, cached_tokens, output_tokens, key
        Time of arrival [s], lengths, tokens of the prompt in the prefix cache [token], and the key
        of its noise [-].
    started, first_token, last_token
        Times at which it was first scheduled, and emitted its first and its last token [s].
    drafted_tokens, accepted_tokens, emitted_tokens
        Totals until now [token].
    context, prefill_tokens, scheduled_tokens
        KV entries, tokens of the prompt that are left, and tokens of the current step [token].
    blocks, free_slots
        Allocated KV blocks [-], and free entries in them [token].
    group, shared_blocks
        Group of requests with the same beginning, and KV blocks that its running requests share
        [-].
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
    """State of the server, and totals of a run.

    Parameters
    ----------
    now, last_batch
        The clock [s] and requests of the last step [request].
    arrived, admitted, running, preempted, finished
        Requests that arrived, left the queue, run, wait to be computed anew, and are done
        [request].
    free_blocks
        Free KV blocks [-].
    steps, request_steps, preemptions, prefilled_tokens
        Steps [-], requests of all steps [request], preemptions [-], and tokens prefilled [token].
    running_time
        Number of running requests, integrated over time [s].
    bin
        Bin of the last interval between steps, where the search for the next bin starts [-].
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
    """A step: what is scheduled in it, and its results.

    Parameters
    ----------
    step_time
        Duration [s].
    budget, batch, draft_length, longer
        Tokens that are left for the step [token], its requests [request], and tokens of a draft
        [token]. If drafts are cut, `longer` requests verify one more token [request].
    decoding, context
        Requests that decode [request], and their KV entries [token].
    chunks, prompt_tokens
        Chunks of prompts [-], and their tokens [token].
    accepted_tokens, emitted_tokens
        Accepted and emitted tokens of all requests [token].
    running, free_blocks
        Running requests [request] and free KV blocks [-] after the step.
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
"""A field of `Outcomes` that the loop does not read."""


class Outcomes(NamedTuple):
    """Outcomes of drafts, read from a trace or decided at random by thresholds of noise.

    Request i of a trace has `lengths[i]` positions from `first[i]` on. `accepted` is the number of
    accepted tokens at each position [token].

    `thresholds` are by draft length, at most `longest`, and position. Each of `contexts`, in
    ascending order, is the context from which the next table of thresholds applies [token]. Each
    of the `classes` equally large classes of requests has its own tables. The key of a request
    decides its class.
    """

    accepted: Any = np.zeros(0, np.uint8)
    first: Any = NOTHING
    lengths: Any = NOTHING
    thresholds: Any = NOTHING
    longest: int = 1
    contexts: Any = NOTHING
    classes: int = 1


class Limits(NamedTuple):
    """Limits of memory, and the fields of `limits.Scheduler`.

    `blocks` is the number of KV blocks in memory. `fixed_blocks` is the number of blocks for one
    request's recurrent states and full windows [-]. If memory does not grow with context, a block
    is large enough for any request [token].
    """

    blocks: int
    fixed_blocks: int = 0
    block_size: int = 16
    max_running: int = 1024
    token_budget: int = 8192
    reserved_tokens: int = 0


class Server(NamedTuple):
    """The draft-length policy of a server, as the simulation loop reads it.

    `by_batch` has an entry for each batch size from 0; the last one applies to larger batches. An
    entry is a draft length if `kind` is `BY_BATCH` [token], or else the index of a state in
    `states`. If `kind` is `OWN`, the states are by request. If drafts are cut before they are
    verified, `survival` contains the mean probabilities that at least 1, 2, ... tokens are
    accepted; otherwise it is empty [-].
    """

    kind: int
    by_batch: Any
    states: Any
    survival: Any


class Engine(NamedTuple):
    """All requests in order of arrival, which of them run or are preempted, and the totals.

    `emitted_before` is the number of tokens of each request that a prefill server emitted. With
    `users`, the next request arrives when a request is done. The loop ends when the first `until`
    requests are done. `running` is in order of admission. The last request in `preempted` is the
    next to run. `sharers` counts the running requests of each group. Every step that is not logged
    overwrites the last record of `log`.
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
    """Return records as an array for numba or objects for Python; missing columns are zero."""
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
