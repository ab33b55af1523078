"""The loop over the steps of a server: written once, for Python as it stands and for numba.

A step takes the time of its groups, emits, and lets go of those that are done. The draft length
follows from the requests of the step before. A token is emitted by the step that prefills the last
chunk, and a draft is verified whole, also where fewer tokens are left.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from specmodel.replay.machine_code import compiled_function
from specmodel.replay.policies import kinds
from specmodel.replay.policies.goodput import STEP_TIMES, best_length
from specmodel.replay.policies.kinds import react
from specmodel.replay.policies.policy import ASKED
from specmodel.replay.policies.sglang import adapt
from specmodel.serving import scheduling
from specmodel.serving.scheduling import arrive, schedule
from specmodel.serving.state import (
    AREA,
    ARRIVED,
    BATCH,
    BIN,
    BUSY,
    BY_BATCH,
    CHUNKS,
    CONTEXT,
    CONTEXT_AREA,
    DECODERS,
    DECODING,
    DONE,
    DRAFT,
    DRAFTED_STEPS,
    EMITTED,
    ENTRIES,
    FREE,
    FREE_BLOCKS,
    FRONT,
    GAINED,
    HEAD,
    HITS,
    LAST_PREFILL,
    LEAST_FREE,
    LOGGED,
    MOST_RUNNING,
    NOW,
    PARTS_OF_PROMPTS,
    PREFILLED,
    PROMPT_TOKENS,
    REQUEST_STEPS,
    RUNNING,
    RUNNING_AREA,
    RUNNING_NOW,
    SECONDS,
    SEEN,
    SHARED,
    SIGHT,
    SLOTS,
    STEPS,
    TIME,
    TOKENS,
    WAITING,
    Asked,
    Limits,
    Outcomes,
    Records,
    Server,
    Slots,
)
from specmodel.serving.times import LOOKUPS, Tables, decode_time, prompt_time

GOLDEN, FIRST_FACTOR, SECOND_FACTOR = 0x9E3779B9, 0x7FEB352D, 0x846CA68B
"""Weyl increment by output position, and the factors of Wellons' 32-bit mix (lowbias32)."""
LOW = 0xFFFFFFFF


def lucky(key: int, position: int) -> int:
    """Return a number below 2^32 that is random in key and position, and depends on nothing else.

    Products stay right in 64 bits, as only their low 32 bits are kept.
    """
    x = (key + position * GOLDEN) & LOW
    x = ((x ^ (x >> 16)) * FIRST_FACTOR) & LOW
    x = ((x ^ (x >> 15)) * SECOND_FACTOR) & LOW
    return x ^ (x >> 16)


def draft_length(server: Server, batch: int) -> int:
    """Return the draft length after a step of so many requests [token]."""
    at = batch if batch < len(server.by_batch) else len(server.by_batch) - 1
    if server.kind == BY_BATCH:
        return int(server.by_batch[at])
    return int(server.whole[server.by_batch[at]][ASKED])


def learn(
    server: Server, tables: Tables, batch: int, decoding: int, accepted: int, context: float
) -> None:
    """Let the policy take in a step: how many requests decoded, and what they had accepted."""
    at = batch if batch < len(server.by_batch) else len(server.by_batch) - 1
    whole, real = server.whole[server.by_batch[at]], server.real[server.by_batch[at]]
    if server.kind == SLOTS:
        adapt(whole, real, accepted / decoding)
        return
    if server.rule != kinds.GOODPUT:
        return
    is_plain = whole[ASKED] == 0
    if is_plain:
        react(server.rule, whole, real, 1, 0.0, 0)  # a step without drafts counts once
    if not is_plain or whole[ASKED] == 0:
        for k in range(len(real) - STEP_TIMES):
            real[STEP_TIMES + k] = decode_time(tables, k, decoding, context)
        whole[ASKED] = best_length(whole, real)


def advance(tables: Tables, records: Records, verifying: int) -> float:
    """Let the step run, and return its time [s]."""
    at, sums = records.wholes, records.sums
    decoders, tokens, seconds = at[DECODERS], at[PROMPT_TOKENS], 0.0
    if decoders > 0:
        seconds = decode_time(tables, verifying, decoders, at[ENTRIES] / decoders)
    if tokens > 0:
        seconds += prompt_time(tables, verifying, decoders, tokens, sums[SIGHT] / tokens)
        sums[PREFILLED] += tokens
        at[LAST_PREFILL] = at[STEPS]
    sums[AREA] += (at[RUNNING_NOW] + at[FRONT] + at[ARRIVED] - at[HEAD]) * seconds
    sums[RUNNING_AREA] += at[RUNNING_NOW] * seconds
    sums[CONTEXT_AREA] += at[ENTRIES] * seconds
    sums[BUSY] += seconds
    sums[NOW] += seconds
    at[STEPS] += 1
    at[DRAFTED_STEPS] += 1 if verifying > 0 else 0
    at[REQUEST_STEPS] += at[BATCH]
    if at[RUNNING_NOW] > at[MOST_RUNNING]:
        at[MOST_RUNNING] = at[RUNNING_NOW]
    if at[FREE_BLOCKS] < at[LEAST_FREE]:
        at[LEAST_FREE] = at[FREE_BLOCKS]
    if decoders > 0:
        at[BIN] = bin_of(records.edges, seconds, at[BIN])
        records.intervals[at[BIN]] += decoders
    return seconds


def bin_of(edges: Any, seconds: float, near: int) -> int:
    """Return the bin of an interval, looked for from a near one."""
    while near > 0 and seconds < edges[near]:
        near -= 1
    while near < len(edges) - 1 and seconds >= edges[near + 1]:
        near += 1
    return near


def accepted_tokens(outcomes: Outcomes, key: int, request: int, position: int, length: int) -> int:
    """Return how many of the tokens drafted at an output position are accepted [token]."""
    trace = outcomes.accepted
    if len(trace) > 0:
        own = request % len(outcomes.first)
        found = trace[outcomes.first[own] + position % outcomes.lengths[own]]
        return int(found) if found < length else length
    luck, held, first = lucky(key, position), 0, length * outcomes.longest
    for j in range(first, first + length):
        held += luck < outcomes.thresholds[j]
    return held


def prefilled(slots: Slots, records: Records, i: int) -> int:
    """Take in a chunk of a prompt; return the tokens emitted, one after the last chunk [token]."""
    r, now = slots.request[i], records.sums[NOW]
    slots.needed[i] -= slots.granted[i]
    slots.context[i] += slots.granted[i]
    slots.room[i] -= slots.granted[i]
    if slots.needed[i] > 0:
        return 0
    if records.emitted[r] == 0:
        records.first[r] = now
    else:  # after a preemption
        records.intervals[bin_of(records.edges, now - records.last[r], 0)] += 1
    return 1


def finish(asked: Asked, slots: Slots, records: Records, i: int) -> None:
    """Let a request leave; a user sends the next one."""
    at, now = records.wholes, records.sums[NOW]
    records.last[slots.request[i]] = now
    at[FREE_BLOCKS] += slots.blocks[i]
    at[DONE] += 1
    if asked.users > 0 and at[ARRIVED] < len(asked.prompt):
        asked.arrival[at[ARRIVED]] = now
        at[ARRIVED] += 1


def move(slots: Slots, i: int, to: int) -> None:
    """Move a running request to the place of one that left."""
    slots.request[to], slots.context[to], slots.needed[to] = (
        slots.request[i], slots.context[i], slots.needed[i]
    )  # fmt: skip
    slots.left[to], slots.key[to], slots.room[to] = slots.left[i], slots.key[i], slots.room[i]
    slots.blocks[to] = slots.blocks[i]


def emit(
    asked: Asked,
    outcomes: Outcomes,
    server: Server,
    slots: Slots,
    records: Records,
    length: int,
    seconds: float,
) -> None:
    """Let requests emit what the step gave them; those that are done leave."""
    at, kept, hits, gained = records.wholes, 0, 0, 0
    request, granted, needed, left = slots.request, slots.granted, slots.needed, slots.left
    context, room, key = slots.context, slots.room, slots.key
    emitted, drafted, accepted = records.emitted, records.drafted, records.accepted
    for i in range(at[RUNNING_NOW]):
        wanted, made = granted[i], 0
        if needed[i] > 0:
            made = prefilled(slots, records, i) if wanted > 0 else 0
            emitted[request[i]] += made
        elif wanted > 0:
            r, offered = request[i], wanted - 1
            position = emitted[r]
            held = accepted_tokens(outcomes, key[i], r, position, offered)
            made = held + 1 if held < left[i] else left[i]
            hits += held
            context[i] += made
            room[i] -= made
            emitted[r] = position + made
            drafted[r] += offered
            accepted[r] += held
            if server.kind == SHARED and (offered > 0 or server.rule != kinds.GOODPUT):
                react(server.rule, server.whole[0], server.real[0], held + 1, seconds, offered)
        gained += made
        left[i] -= made
        if left[i] == 0:
            finish(asked, slots, records, i)
        else:
            if kept != i:
                move(slots, i, kept)
            kept += 1
    at[RUNNING_NOW], at[HITS], at[GAINED] = kept, hits, gained


def log_step(records: Records, seconds: float, verifying: int) -> None:
    """Record a step, while there is room."""
    at, row = records.wholes, records.log[records.wholes[LOGGED]]
    row[TIME], row[SECONDS] = records.sums[NOW], seconds
    row[DECODING], row[DRAFT], row[CONTEXT] = at[DECODERS], verifying, at[ENTRIES]
    row[TOKENS], row[SEEN] = at[PROMPT_TOKENS], records.sums[SIGHT]
    row[CHUNKS], row[EMITTED], row[FREE] = at[PARTS_OF_PROMPTS], at[GAINED], at[FREE_BLOCKS]
    row[RUNNING], row[WAITING] = at[RUNNING_NOW], at[FRONT] + at[ARRIVED] - at[HEAD]
    at[LOGGED] += 1


def serve(
    asked: Asked,
    outcomes: Outcomes,
    limits: Limits,
    tables: Tables,
    server: Server,
    slots: Slots,
    records: Records,
) -> None:
    """Serve all requests to their end, and record when each began and ended."""
    at, sums, logs = records.wholes, records.sums, len(records.log)
    at[FREE_BLOCKS] = at[LEAST_FREE] = limits.blocks
    at[BATCH], at[LAST_PREFILL] = 1, -limits.interval
    at[ARRIVED] = min(asked.users, len(asked.prompt))
    while at[DONE] < len(asked.prompt):
        arrive(asked, at, sums)
        length = draft_length(server, at[BATCH])
        schedule(asked, limits, slots, records, length + 1)
        verifying = length if at[DECODERS] > 0 else 0
        seconds = advance(tables, records, verifying)
        emit(asked, outcomes, server, slots, records, length, seconds)
        if server.kind != BY_BATCH and at[DECODERS] > 0:
            mean = at[ENTRIES] / at[DECODERS]
            learn(server, tables, at[BATCH], at[DECODERS], at[HITS], mean)
        if at[LOGGED] < logs:
            log_step(records, seconds, verifying)


@cache
def compiled_serve() -> Callable[..., None] | None:
    """Return the loop as numba compiles it, or None where numba is not installed."""
    return compiled_function(serve, PARTS, HOT)


PARTS = (
    *LOOKUPS, *scheduling.PARTS, *kinds.PARTS,
    lucky, draft_length, learn, advance, bin_of, accepted_tokens, prefilled, finish, move, emit,
    log_step, serve,
)  # fmt: skip
"""The functions that numba compiles."""
HOT = (lucky, accepted_tokens)
"""Those that it copies into the loop."""
