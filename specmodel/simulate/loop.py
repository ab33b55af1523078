"""The loop over the steps of a server, written once for Python and for numba.

A step is scheduled as in vLLM 0.33 (``v1/core/sched/scheduler.py``). Running requests get tokens
from the budget of the step, in order of admission: one and a draft to decode, or a chunk of their
prompt. If KV blocks run out, the requests admitted last are preempted, and computed anew later.
Then waiting requests are admitted, first come first served, if blocks for all their tokens are
free. The clock advances by the time of the step. Its requests emit tokens, and those that are done
leave.

The draft length follows from the number of requests in the previous step, or each request has its
own. The step that prefills the last chunk of a prompt also drafts, and emits a token. A draft is
verified as a whole, even if the request needs fewer tokens.
"""

from typing import Any

from specmodel.simulate.accepted import accepted_tokens
from specmodel.simulate.machine_code import Function
from specmodel.simulate.state import (
    BY_BATCH,
    OWN,
    SHARED,
    Engine,
    Limits,
    Outcomes,
    Request,
    Server,
    Step,
)
from specmodel.simulate.step_time import cut_drafts, step_time
from specmodel.simulate.tables import Tables


def draft_length(server: Server, batch: int) -> int:
    """Return the draft length of the next step, after a step with `batch` requests [token].

    It is 0 if each request has its own draft length.
    """
    at = batch if batch < len(server.by_batch) else len(server.by_batch) - 1
    if server.kind == BY_BATCH:
        return int(server.by_batch[at])
    if server.kind == OWN:
        return 0
    return int(server.states[server.by_batch[at]].draft_length)


def learn(end_step: Function, server: Server, tables: Tables, step: Step) -> None:
    """Update the policy with a step's number of decoding requests and accepted tokens."""
    at = step.batch if step.batch < len(server.by_batch) else len(server.by_batch) - 1
    policy, context = server.states[server.by_batch[at]], step.context / step.decoding
    end_step(policy, tables, step.decoding, step.accepted_tokens, context)


def blocks_for(limits: Limits, tokens: int) -> int:
    """Return the KV blocks of a request with `tokens` entries, its fixed state included [-]."""
    return (tokens + limits.block_size - 1) // limits.block_size + limits.fixed_blocks


def arrive(engine: Engine) -> None:
    """Queue the requests that have arrived; an idle server first waits for the next arrival."""
    requests, state = engine.requests, engine.state
    if engine.users > 0:
        return
    is_idle = state.running == 0 and state.preempted == 0 and state.admitted == state.arrived
    if is_idle and requests[state.arrived].arrival > state.now:
        state.now = requests[state.arrived].arrival
    while state.arrived < len(requests) and requests[state.arrived].arrival <= state.now:
        state.arrived += 1


def allocate(limits: Limits, engine: Engine, i: int, tokens: int) -> bool:
    """Allocate KV blocks for `tokens` more tokens of running request `i`, preempting if needed.

    The requests admitted last are preempted first; return whether request `i` still runs.
    """
    state = engine.state
    blocks = (tokens + limits.block_size - 1) // limits.block_size
    while blocks > state.free_blocks and state.running > i:
        preempt(engine)
    if state.running == i:
        return False
    request = engine.requests[engine.running[i]]
    state.free_blocks -= blocks
    request.blocks += blocks
    request.free_slots += blocks * limits.block_size
    return True


def release(engine: Engine, request: Request) -> None:
    """Free a request's KV blocks, except those that running requests of its group share."""
    engine.sharers[request.group] -= 1
    kept = request.shared_blocks if engine.sharers[request.group] > 0 else 0
    engine.state.free_blocks += request.blocks - kept


def preempt(engine: Engine) -> None:
    """Preempt the running request admitted last: free its KV blocks, to recompute it later."""
    state = engine.state
    state.running -= 1
    place = engine.running[state.running]
    request = engine.requests[place]
    release(engine, request)
    request.last_token = state.now
    engine.preempted[state.preempted] = place
    state.preempted += 1
    state.preemptions += 1


def verified_tokens(server: Server, place: int, step: Step) -> int:
    """Return the tokens that a decoding request verifies [token].

    If requests have their own drafts, the draft length of the step becomes that of the longest.
    """
    if server.kind != OWN:
        return step.draft_length + 1
    asked = int(server.states[place].draft_length)
    step.draft_length = max(step.draft_length, asked)
    return asked + 1


def schedule_running(limits: Limits, server: Server, engine: Engine, step: Step) -> None:
    """Schedule the running requests, in order of admission.

    Requests already scheduled are never preempted, so their totals are kept in local variables.
    """
    state, requests, running = engine.state, engine.requests, engine.running
    verified = 0 if server.kind == OWN else step.draft_length + 1
    i = decoding = context = chunks = 0
    budget = step.budget
    while i < state.running:
        request = requests[running[i]]
        rest = request.prefill_tokens
        tokens = verified if rest == 0 else rest
        if tokens == 0:
            tokens = verified_tokens(server, running[i], step)
        if tokens > budget:
            tokens = budget
        short = tokens + limits.reserved_tokens - request.free_slots
        if tokens > 0 and short > 0 and not allocate(limits, engine, i, short):
            break
        request.scheduled_tokens = tokens
        budget -= tokens
        if rest > 0:
            chunks += tokens > 0
            step.prompt_tokens += tokens
        elif tokens > 0:
            decoding += 1
            context += request.context
        i += 1
    step.budget, step.batch, step.chunks = budget, decoding + chunks, chunks
    step.decoding, step.context = decoding, context


def schedule_waiting(limits: Limits, server: Server, engine: Engine, step: Step) -> None:
    """Admit waiting requests, preempted requests first, while tokens and blocks are left."""
    state = engine.state
    while step.budget > 0 and state.running < limits.max_running:
        if state.preempted > 0:
            place = engine.preempted[state.preempted - 1]
        elif state.admitted < state.arrived:
            place = state.admitted
        else:
            return
        request = engine.requests[place]
        is_new = request.emitted_tokens <= engine.emitted_before
        held = request.shared_blocks if engine.sharers[request.group] > 0 else 0
        cached = request.cached_tokens if is_new or held > 0 else 0
        whole = request.prompt_tokens + (0 if is_new else request.emitted_tokens)
        rest = whole - cached
        tokens = rest
        if rest == 0:
            tokens = verified_tokens(server, place, step)
        if tokens > step.budget:
            tokens = step.budget
        blocks = blocks_for(limits, cached + tokens + limits.reserved_tokens)
        if max(blocks, blocks_for(limits, whole)) - held > state.free_blocks:
            return
        if state.preempted > 0:
            state.preempted -= 1
        else:
            state.admitted += 1
            request.started = state.now
        state.free_blocks -= blocks - held
        engine.sharers[request.group] += 1
        request.blocks, request.context, request.prefill_tokens = blocks, cached, rest
        request.free_slots = (blocks - limits.fixed_blocks) * limits.block_size - cached
        engine.running[state.running] = place
        state.running += 1
        request.scheduled_tokens = tokens
        step.budget -= tokens
        step.batch += 1
        if rest > 0:
            step.chunks += 1
            step.prompt_tokens += tokens
        else:
            step.decoding += 1
            step.context += request.context


def schedule(limits: Limits, server: Server, engine: Engine, step: Step, length: int) -> None:
    """Set the tokens of each request in the step; admit no request if one was preempted."""
    step.draft_length, step.longer, step.budget = length, 0, limits.token_budget
    step.batch = step.decoding = step.context = step.chunks = step.prompt_tokens = 0
    step.accepted_tokens = step.emitted_tokens = 0
    preemptions = engine.state.preemptions
    schedule_running(limits, server, engine, step)
    if engine.state.preemptions == preemptions:
        schedule_waiting(limits, server, engine, step)


def advance(tables: Tables, server: Server, engine: Engine, step: Step) -> None:
    """Compute the time of the step, advance the clock by it, and update the totals."""
    state, seconds = engine.state, step_time(tables, server, engine, step)
    state.prefilled_tokens += step.prompt_tokens
    state.running_time += state.running * seconds
    state.now += seconds
    state.steps += 1
    state.last_batch = step.batch
    state.request_steps += step.batch
    if step.decoding > 0:
        state.bin = bin_of(engine.edges, seconds, state.bin)
        engine.intervals[state.bin] += step.decoding
    step.step_time = seconds


def bin_of(edges: Any, seconds: float, near: int) -> int:
    """Return the index of the histogram bin of an interval, searching from bin `near` [-]."""
    while near > 0 and seconds < edges[near]:
        near -= 1
    while near < len(edges) - 1 and seconds >= edges[near + 1]:
        near += 1
    return near


def prefill(engine: Engine, request: Request) -> int:
    """Finish a chunk of a prompt; return the tokens emitted, 1 for the last chunk or 0 [token]."""
    now = engine.state.now
    request.prefill_tokens -= request.scheduled_tokens
    request.context += request.scheduled_tokens
    request.free_slots -= request.scheduled_tokens
    if request.prefill_tokens > 0:
        return 0
    if request.emitted_tokens == 0:
        request.first_token = now
    else:  # after a preemption
        engine.intervals[bin_of(engine.edges, now - request.last_token, 0)] += 1
    return 1


def verify(
    take_in: Function, outcomes: Outcomes, server: Server, request: Request, place: int, step: Step
) -> tuple[int, int]:
    """Verify the draft of a request; return the numbers of emitted and accepted tokens [token]."""
    drafted, held = request.scheduled_tokens - 1, 0
    left = request.output_tokens - request.emitted_tokens
    if drafted > 0:
        held = accepted_tokens(outcomes, request, place, drafted)
        request.drafted_tokens += drafted
        request.accepted_tokens += held
    made = held + 1 if held < left else left
    request.context += made
    request.free_slots -= made
    if server.kind >= SHARED:
        own = place if server.kind == OWN else 0
        take_in(server.states[own], held + 1, step.step_time, drafted)
    return made, held


def finish(engine: Engine, request: Request, place: int) -> None:
    """Record the end of a request and free its blocks; a user then sends the next request."""
    state = engine.state
    request.last_token = state.now
    release(engine, request)
    state.finished += 1 if place < engine.until else 0
    if engine.users > 0 and state.arrived < len(engine.requests):
        engine.requests[state.arrived].arrival = state.now
        state.arrived += 1


def emit(take_in: Function, outcomes: Outcomes, server: Server, engine: Engine, step: Step) -> None:
    """Emit the tokens of the step for each running request, and finish those that are done."""
    requests, running, state, kept = engine.requests, engine.running, engine.state, 0
    emitted = accepted = 0
    for i in range(state.running):
        place = running[i]
        request, made, held = requests[place], 0, 0
        if request.scheduled_tokens > 0:
            if request.prefill_tokens > 0:
                made = prefill(engine, request)
            else:
                made, held = verify(take_in, outcomes, server, request, place, step)
        request.emitted_tokens += made
        emitted += made
        accepted += held
        if request.emitted_tokens == request.output_tokens:
            finish(engine, request, place)
        else:
            running[kept] = place
            kept += 1
    state.running = step.running = kept
    step.emitted_tokens, step.accepted_tokens = emitted, accepted
    step.free_blocks = state.free_blocks


def serve(
    take_in: Function,
    end_step: Function,
    limits: Limits,
    outcomes: Outcomes,
    tables: Tables,
    server: Server,
    engine: Engine,
) -> None:
    """Serve requests until the first `engine.until` are done; record start and end of each.

    `take_in` updates the policy after each request of a step, and `end_step` after each step.
    """
    state, log = engine.state, engine.log
    state.free_blocks = limits.blocks
    state.last_batch = 1
    state.arrived = min(engine.users, len(engine.requests))
    while state.finished < engine.until:
        step = log[min(state.steps, len(log) - 1)]
        arrive(engine)
        length = draft_length(server, state.last_batch)
        schedule(limits, server, engine, step, length)
        if len(server.survival) > 0 and step.decoding > 0:
            cut_drafts(tables, server, engine, step)
        advance(tables, server, engine, step)
        emit(take_in, outcomes, server, engine, step)
        if BY_BATCH < server.kind < OWN and step.decoding > 0:
            learn(end_step, server, tables, step)
