"""The loop over the steps of a server: written once, for Python as it stands and for numba.

What a step takes is scheduled as vLLM 0.33 does it (``v1/core/sched/scheduler.py``): running
requests in order of admission take their tokens from the budget, those that decode one and their
drafts, those that prefill a chunk. Where KV blocks run out, the last ones are preempted, to be
computed anew. Then waiting requests are admitted, first come first served, if blocks for all their
tokens are free. The step takes the time of its groups, emits, and lets go of those that are done.
The draft length follows from the requests of the step before. A token is emitted by the step that
prefills the last chunk, which drafts too, and a draft is verified whole, also where fewer tokens
are left.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from specmodel.replay.machine_code import Function, compiled_function
from specmodel.serving import state as s
from specmodel.serving.state import Asked, Limits, Outcomes, Records, Server, Slots
from specmodel.serving.times import Tables, decode_time, prompt_time

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
    if server.kind == s.BY_BATCH:
        return int(server.by_batch[at])
    return int(server.states[server.by_batch[at]].draft_length)


def learn(
    end_step: Function,
    server: Server,
    tables: Tables,
    batch: int,
    decoding: int,
    accepted: int,
    context: float,
) -> None:
    """Let the policy take in a step: how many requests decoded, and what they had accepted."""
    at = batch if batch < len(server.by_batch) else len(server.by_batch) - 1
    end_step(server.states[server.by_batch[at]], tables, decoding, accepted, context)


def blocks_for(limits: Limits, tokens: int) -> int:
    """Return the KV blocks of a request with so many entries, its fixed state included."""
    return (tokens + limits.block - 1) // limits.block + limits.fixed_blocks


def arrive(asked: Asked, at: Any, sums: Any) -> None:
    """Let requests come that came until now; an idle server goes on to the next."""
    arrival, total = asked.arrival, len(asked.prompt)
    if asked.users > 0:
        return
    if at[s.RUNNING_NOW] == 0 and at[s.FRONT] == 0 and at[s.HEAD] == at[s.ARRIVED]:
        nothing_came = at[s.ARRIVED] == total or arrival[at[s.ARRIVED]] > sums[s.NOW]
        if nothing_came:
            sums[s.NOW] = arrival[at[s.ARRIVED]]
    while at[s.ARRIVED] < total and arrival[at[s.ARRIVED]] <= sums[s.NOW]:
        sums[s.AREA] += sums[s.NOW] - arrival[at[s.ARRIVED]]
        at[s.ARRIVED] += 1


def carry(at: Any, context: int, needed: int, granted: int) -> None:
    """Count what the step carries for a request [token]."""
    at[s.BUDGET] -= granted
    at[s.BATCH] += 1
    if needed == 0:
        at[s.DECODERS] += 1
        at[s.ENTRIES] += context
    else:
        at[s.PARTS_OF_PROMPTS] += 1
        at[s.PROMPT_TOKENS] += granted


def defers(limits: Limits, slots: Slots, at: Any) -> bool:
    """Return whether the step leaves prefill out, as the last one is not long enough ago."""
    if limits.interval == 1 or at[s.STEPS] - at[s.LAST_PREFILL] >= limits.interval:
        return False
    decoding = 0
    for i in range(at[s.RUNNING_NOW]):
        decoding += slots.needed[i] == 0
    return decoding > 0


def make_room(limits: Limits, slots: Slots, records: Records, i: int, short: int) -> bool:
    """Give a running request blocks, preempting the last ones; tell whether it still runs."""
    at = records.wholes
    more = (short + limits.block - 1) // limits.block
    while more > at[s.FREE_BLOCKS] and at[s.RUNNING_NOW] > i:
        at[s.RUNNING_NOW] -= 1
        last = at[s.RUNNING_NOW]
        at[s.FREE_BLOCKS] += slots.blocks[last]
        slots.front[at[s.FRONT]] = slots.request[last]
        at[s.FRONT] += 1
        at[s.PREEMPTIONS] += 1
        records.last[slots.request[last]] = records.sums[s.NOW]
    if at[s.RUNNING_NOW] == i:
        return False
    at[s.FREE_BLOCKS] -= more
    slots.blocks[i] += more
    slots.room[i] += more * limits.block
    return True


def grant(limits: Limits, slots: Slots, records: Records, verified: int) -> None:
    """Give running requests their tokens of the step."""
    at = records.wholes
    needed, room, reserve = slots.needed, slots.room, limits.reserve
    i = 0
    while i < at[s.RUNNING_NOW]:
        wanted = needed[i]
        if wanted == 0:
            wanted = verified
        elif at[s.DEFERRED] > 0:
            wanted = 0
        if wanted > at[s.BUDGET]:
            wanted = at[s.BUDGET]
        short = wanted + reserve - room[i]
        if wanted > 0 and short > 0 and not make_room(limits, slots, records, i, short):
            return
        slots.granted[i] = wanted
        if wanted > 0:
            carry(at, slots.context[i], needed[i], wanted)
        i += 1


def admit(asked: Asked, limits: Limits, slots: Slots, records: Records, verified: int) -> None:
    """Admit waiting requests, the preempted ones first, as long as tokens and blocks are left."""
    at, sums = records.wholes, records.sums
    while at[s.BUDGET] > 0 and at[s.RUNNING_NOW] < limits.requests:
        if at[s.FRONT] > 0:
            r = slots.front[at[s.FRONT] - 1]
        elif at[s.HEAD] < at[s.ARRIVED]:
            r = at[s.HEAD]
        else:
            return
        made = records.emitted[r]
        is_new = made <= asked.ready
        ahead = asked.cached[r] if is_new else 0
        whole = asked.prompt[r] + (0 if is_new else made)
        rest = whole - ahead
        if (at[s.DEFERRED] > 0 and rest > 1) or (rest > at[s.BUDGET] and not limits.chunked):
            return
        wanted = verified if rest == 0 else rest
        if wanted > at[s.BUDGET]:
            wanted = at[s.BUDGET]
        blocks = blocks_for(limits, ahead + wanted + limits.reserve)
        if blocks > at[s.FREE_BLOCKS] or blocks_for(limits, whole) > at[s.FREE_BLOCKS]:
            return
        if at[s.FRONT] > 0:
            at[s.FRONT] -= 1
        else:
            at[s.HEAD] += 1
            records.started[r] = sums[s.NOW]
        at[s.FREE_BLOCKS] -= blocks
        n = at[s.RUNNING_NOW]
        slots.request[n], slots.key[n], slots.blocks[n] = r, asked.key[r], blocks
        slots.context[n], slots.needed[n], slots.granted[n] = ahead, rest, wanted
        slots.left[n] = asked.output[r] - made
        slots.room[n] = (blocks - limits.fixed_blocks) * limits.block - ahead
        at[s.RUNNING_NOW] += 1
        carry(at, ahead, rest, wanted)


def schedule(asked: Asked, limits: Limits, slots: Slots, records: Records, verified: int) -> None:
    """Say what each request has in the step; none is admitted where one was preempted."""
    at, preempted = records.wholes, records.wholes[s.PREEMPTIONS]
    at[s.BUDGET], at[s.BATCH], at[s.DECODERS], at[s.PARTS_OF_PROMPTS] = limits.tokens, 0, 0, 0
    at[s.PROMPT_TOKENS], at[s.ENTRIES] = 0, 0
    at[s.DEFERRED] = 1 if defers(limits, slots, at) else 0
    grant(limits, slots, records, verified)
    if at[s.PREEMPTIONS] == preempted:
        admit(asked, limits, slots, records, verified)


def prompts_time(tables: Tables, slots: Slots, at: Any, length: int) -> float:
    """Return what chunks of prompts add to a step: each as if all tokens were its own, in part.

    Those that prefill were admitted last, so that they are looked for from the end.
    """
    seconds, left, i, tokens = 0.0, at[s.PARTS_OF_PROMPTS], at[s.RUNNING_NOW], at[s.PROMPT_TOKENS]
    while left > 0:
        i -= 1
        part = slots.granted[i]
        if slots.needed[i] > 0 and part > 0:
            left -= 1
            seen = slots.context[i] + 0.5 * (part + 1)
            added = prompt_time(tables, length, at[s.DECODERS], tokens, seen)
            seconds += added * part / tokens
    return seconds


def advance(tables: Tables, slots: Slots, records: Records, length: int) -> float:
    """Let the step run with a draft length, and return its time [s]."""
    at, sums = records.wholes, records.sums
    decoders, tokens, seconds = at[s.DECODERS], at[s.PROMPT_TOKENS], 0.0
    if decoders > 0:
        seconds = decode_time(tables, length, decoders, at[s.ENTRIES] / decoders)
    if tokens > 0:
        seconds += prompts_time(tables, slots, at, length)
        sums[s.PREFILLED] += tokens
        at[s.LAST_PREFILL] = at[s.STEPS]
    sums[s.AREA] += (at[s.RUNNING_NOW] + at[s.FRONT] + at[s.ARRIVED] - at[s.HEAD]) * seconds
    sums[s.RUNNING_AREA] += at[s.RUNNING_NOW] * seconds
    sums[s.NOW] += seconds
    at[s.STEPS] += 1
    at[s.REQUEST_STEPS] += at[s.BATCH]
    if at[s.FREE_BLOCKS] < at[s.LEAST_FREE]:
        at[s.LEAST_FREE] = at[s.FREE_BLOCKS]
    if decoders > 0:
        at[s.BIN] = bin_of(records.edges, seconds, at[s.BIN])
        records.intervals[at[s.BIN]] += decoders
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
    r, now = slots.request[i], records.sums[s.NOW]
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
    at, now = records.wholes, records.sums[s.NOW]
    records.last[slots.request[i]] = now
    at[s.FREE_BLOCKS] += slots.blocks[i]
    at[s.DONE] += 1 if slots.request[i] < asked.until else 0
    if asked.users > 0 and at[s.ARRIVED] < len(asked.prompt):
        asked.arrival[at[s.ARRIVED]] = now
        at[s.ARRIVED] += 1


def move(slots: Slots, i: int, to: int) -> None:
    """Move a running request to the place of one that left."""
    slots.request[to], slots.context[to], slots.needed[to] = (
        slots.request[i], slots.context[i], slots.needed[i]
    )  # fmt: skip
    slots.left[to], slots.key[to], slots.room[to] = slots.left[i], slots.key[i], slots.room[i]
    slots.blocks[to] = slots.blocks[i]


def emit(
    take_in: Function,
    asked: Asked,
    outcomes: Outcomes,
    server: Server,
    slots: Slots,
    records: Records,
    seconds: float,
) -> None:
    """Let requests emit what the step gave them; those that are done leave."""
    at, kept, hits, gained = records.wholes, 0, 0, 0
    request, granted, needed, left = slots.request, slots.granted, slots.needed, slots.left
    context, room, key = slots.context, slots.room, slots.key
    emitted, drafted, accepted = records.emitted, records.drafted, records.accepted
    for i in range(at[s.RUNNING_NOW]):
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
            if server.kind == s.SHARED:
                take_in(server.states[0], held + 1, seconds, offered)
        gained += made
        left[i] -= made
        if left[i] == 0:
            finish(asked, slots, records, i)
        else:
            if kept != i:
                move(slots, i, kept)
            kept += 1
    at[s.RUNNING_NOW], at[s.HITS], at[s.GAINED] = kept, hits, gained


def log_step(records: Records, seconds: float, length: int) -> None:
    """Record a step, while there is room."""
    at, row = records.wholes, records.log[records.wholes[s.LOGGED]]
    row[s.TIME], row[s.SECONDS] = records.sums[s.NOW], seconds
    row[s.DECODING], row[s.DRAFT], row[s.CONTEXT] = at[s.DECODERS], length, at[s.ENTRIES]
    row[s.TOKENS], row[s.CHUNKS] = at[s.PROMPT_TOKENS], at[s.PARTS_OF_PROMPTS]
    row[s.EMITTED], row[s.FREE] = at[s.GAINED], at[s.FREE_BLOCKS]
    row[s.RUNNING], row[s.WAITING] = at[s.RUNNING_NOW], at[s.FRONT] + at[s.ARRIVED] - at[s.HEAD]
    at[s.LOGGED] += 1


def serve(  # noqa: PLR0913 - two functions, and seven records
    take_in: Function,
    end_step: Function,
    asked: Asked,
    outcomes: Outcomes,
    limits: Limits,
    tables: Tables,
    server: Server,
    slots: Slots,
    records: Records,
) -> None:
    """Serve requests until those that are asked for have left; record when each began and ended.

    The policy's functions take in a request of a step, and a step.
    """
    at, sums, logs = records.wholes, records.sums, len(records.log)
    at[s.FREE_BLOCKS] = at[s.LEAST_FREE] = limits.blocks
    at[s.BATCH], at[s.LAST_PREFILL] = 1, -limits.interval
    at[s.ARRIVED] = min(asked.users, len(asked.prompt))
    while at[s.DONE] < asked.until:
        arrive(asked, at, sums)
        length = draft_length(server, at[s.BATCH])
        schedule(asked, limits, slots, records, length + 1)
        seconds = advance(tables, slots, records, length)
        emit(take_in, asked, outcomes, server, slots, records, seconds)
        if server.kind != s.BY_BATCH and at[s.DECODERS] > 0:
            mean = at[s.ENTRIES] / at[s.DECODERS]
            learn(end_step, server, tables, at[s.BATCH], at[s.DECODERS], at[s.HITS], mean)
        if at[s.LOGGED] < logs:
            log_step(records, seconds, length)


@cache
def compiled_serve(take_in: Function, end_step: Function) -> Callable[..., None] | None:
    """Return the loop as numba compiles it for a policy, or None where numba is not installed."""
    return compiled_function(serve, (take_in, end_step), hot=(lucky, accepted_tokens))
