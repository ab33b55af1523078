"""What each request has of a step: scheduling as vLLM 0.33 does it.

After ``v1/core/sched/scheduler.py``: running requests in order of admission take their tokens from
the budget of the step, those that decode one and their drafts, those that prefill a chunk. Where KV
blocks run out, the last ones are preempted, to be computed anew. Then waiting requests are
admitted, first come first served, if blocks for all their tokens are free.
"""

from typing import Any

from specmodel.serving.state import (
    AREA,
    ARRIVED,
    BATCH,
    BUDGET,
    DECODERS,
    DEFERRED,
    ENTRIES,
    FREE_BLOCKS,
    FRONT,
    HEAD,
    LAST_PREFILL,
    NOW,
    PARTS_OF_PROMPTS,
    PREEMPTIONS,
    PROMPT_TOKENS,
    RUNNING_NOW,
    SIGHT,
    STEPS,
    Asked,
    Limits,
    Records,
    Slots,
)


def blocks_for(limits: Limits, tokens: int) -> int:
    """Return the KV blocks of a request with so many entries, its fixed state included."""
    return (tokens + limits.block - 1) // limits.block + limits.fixed_blocks


def arrive(asked: Asked, at: Any, sums: Any) -> None:
    """Let requests come that came until now; an idle server goes on to the next."""
    arrival, total = asked.arrival, len(asked.prompt)
    if asked.users > 0:
        return
    if at[RUNNING_NOW] == 0 and at[FRONT] == 0 and at[HEAD] == at[ARRIVED]:
        nothing_came = at[ARRIVED] == total or arrival[at[ARRIVED]] > sums[NOW]
        if nothing_came:
            sums[NOW] = arrival[at[ARRIVED]]
    while at[ARRIVED] < total and arrival[at[ARRIVED]] <= sums[NOW]:
        sums[AREA] += sums[NOW] - arrival[at[ARRIVED]]
        at[ARRIVED] += 1


def carry(at: Any, sums: Any, context: int, needed: int, granted: int) -> None:
    """Count what the step carries for a request [token]."""
    at[BUDGET] -= granted
    at[BATCH] += 1
    if needed == 0:
        at[DECODERS] += 1
        at[ENTRIES] += context
    else:
        at[PARTS_OF_PROMPTS] += 1
        at[PROMPT_TOKENS] += granted
        sums[SIGHT] += granted * (context + 0.5 * (granted + 1))


def defers(limits: Limits, slots: Slots, at: Any) -> bool:
    """Return whether the step leaves prefill out, as the last one is not long enough ago."""
    if limits.interval == 1 or at[STEPS] - at[LAST_PREFILL] >= limits.interval:
        return False
    decoding = 0
    for i in range(at[RUNNING_NOW]):
        decoding += slots.needed[i] == 0
    return decoding > 0


def make_room(limits: Limits, slots: Slots, records: Records, i: int, short: int) -> bool:
    """Give a running request blocks, preempting the last ones; tell whether it still runs."""
    at = records.wholes
    more = (short + limits.block - 1) // limits.block
    while more > at[FREE_BLOCKS] and at[RUNNING_NOW] > i:
        at[RUNNING_NOW] -= 1
        last = at[RUNNING_NOW]
        at[FREE_BLOCKS] += slots.blocks[last]
        slots.front[at[FRONT]] = slots.request[last]
        at[FRONT] += 1
        at[PREEMPTIONS] += 1
        records.last[slots.request[last]] = records.sums[NOW]
    if at[RUNNING_NOW] == i:
        return False
    at[FREE_BLOCKS] -= more
    slots.blocks[i] += more
    slots.room[i] += more * limits.block
    return True


def grant(limits: Limits, slots: Slots, records: Records, verified: int) -> None:
    """Give running requests their tokens of the step."""
    at, sums = records.wholes, records.sums
    needed, room, reserve = slots.needed, slots.room, limits.reserve
    i = 0
    while i < at[RUNNING_NOW]:
        wanted = needed[i]
        if wanted == 0:
            wanted = verified
        elif at[DEFERRED] > 0:
            wanted = 0
        if wanted > at[BUDGET]:
            wanted = at[BUDGET]
        short = wanted + reserve - room[i]
        if wanted > 0 and short > 0 and not make_room(limits, slots, records, i, short):
            return
        slots.granted[i] = wanted
        if wanted > 0:
            carry(at, sums, slots.context[i], needed[i], wanted)
        i += 1


def admit(asked: Asked, limits: Limits, slots: Slots, records: Records, verified: int) -> None:
    """Admit waiting requests, the preempted ones first, as long as tokens and blocks are left."""
    at, sums = records.wholes, records.sums
    while at[BUDGET] > 0 and at[RUNNING_NOW] < limits.requests:
        if at[FRONT] > 0:
            r = slots.front[at[FRONT] - 1]
        elif at[HEAD] < at[ARRIVED]:
            r = at[HEAD]
        else:
            return
        made = records.emitted[r]
        is_new = made <= asked.ready
        ahead = asked.cached[r] if is_new else 0
        whole = asked.prompt[r] + (0 if is_new else made)
        rest = whole - ahead
        if (at[DEFERRED] > 0 and rest > 1) or (rest > at[BUDGET] and not limits.chunked):
            return
        wanted = verified if rest == 0 else rest
        if wanted > at[BUDGET]:
            wanted = at[BUDGET]
        blocks = blocks_for(limits, ahead + wanted + limits.reserve)
        if blocks > at[FREE_BLOCKS] or blocks_for(limits, whole) > at[FREE_BLOCKS]:
            return
        if at[FRONT] > 0:
            at[FRONT] -= 1
        else:
            at[HEAD] += 1
            records.started[r] = sums[NOW]
        at[FREE_BLOCKS] -= blocks
        n = at[RUNNING_NOW]
        slots.request[n], slots.key[n], slots.blocks[n] = r, asked.key[r], blocks
        slots.context[n], slots.needed[n], slots.granted[n] = ahead, rest, wanted
        slots.left[n] = asked.output[r] - made
        slots.room[n] = (blocks - limits.fixed_blocks) * limits.block - ahead
        at[RUNNING_NOW] += 1
        carry(at, sums, ahead, rest, wanted)


def schedule(asked: Asked, limits: Limits, slots: Slots, records: Records, verified: int) -> None:
    """Say what each request has in the step; none is admitted where one was preempted."""
    at, preempted = records.wholes, records.wholes[PREEMPTIONS]
    at[BUDGET], at[BATCH], at[DECODERS], at[PARTS_OF_PROMPTS] = limits.tokens, 0, 0, 0
    at[PROMPT_TOKENS], at[ENTRIES], records.sums[SIGHT] = 0, 0, 0.0
    at[DEFERRED] = 1 if defers(limits, slots, at) else 0
    grant(limits, slots, records, verified)
    if at[PREEMPTIONS] == preempted:
        admit(asked, limits, slots, records, verified)


PARTS = (blocks_for, arrive, carry, defers, make_room, grant, admit, schedule)
"""The functions that numba compiles."""
