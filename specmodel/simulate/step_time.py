"""Look up the time of a scheduled step, and decide how many drafted tokens it verifies.

Adaptive verification follows vLLM 0.33 (``AdaptiveVerificationManager.get_num_tokens`` in
``v1/worker/gpu/spec_decode/adaptive_verification.py``). All drafts are made in full. A step
verifies the drafted tokens that are most likely to be accepted. Their number maximises the expected
tokens divided by the time of the step. The time includes prompts, so a step with a prompt verifies
fewer tokens, to stay within the largest CUDA graph. vLLM's table of times is constant between
captured sizes, jumps above the last size, and is for a single context.

vLLM ranks tokens by the drafter's confidence. No trace records it, so all requests have the mean
survival here: they verify drafts of the same length, or the number that fills the largest graph.
"""

from specmodel.simulate.state import OWN, Engine, Server, Step
from specmodel.simulate.tables import Tables, at_context, prompt_time


def step_time(tables: Tables, server: Server, engine: Engine, step: Step) -> float:
    """Return the time of a step [s].

    The time of requests that verify one more token is interpolated between the two draft lengths.
    If requests have their own drafts, the time is the mean over requests of the time of a step in
    which all requests have that draft length.
    """
    seconds = 0.0
    if step.decoding > 0:
        context = step.context / step.decoding
        if server.kind == OWN:
            seconds = own_time(tables, engine, step, context)
        else:
            seconds = at_context(tables, step.draft_length, step.decoding, context)
            if step.longer > 0:
                column = step.draft_length - 1 if step.draft_length > 0 else 0
                low = at_context(tables, column, step.decoding, context)
                high = at_context(tables, column + 1, step.decoding, context)
                seconds += (high - low) * step.longer / step.decoding
    if step.prompt_tokens > 0:
        seconds += prefill_time(tables, engine, step)
    return seconds


def prefill_time(tables: Tables, engine: Engine, step: Step) -> float:
    """Return the time that chunks of prompts add to a step [s].

    It is the mean over the chunks, weighted by their tokens, of the time that the step's prompt
    tokens would add if all had the context of that chunk. Requests that prefill were admitted last,
    so the search for them starts at the end.
    """
    seconds, left, i = 0.0, step.chunks, engine.state.running
    while left > 0:
        i -= 1
        request = engine.requests[engine.running[i]]
        part = request.scheduled_tokens
        if request.prefill_tokens > 0 and part > 0:
            left -= 1
            seen = request.context + 0.5 * (part + 1)
            added = prompt_time(tables, step.draft_length, step.decoding, step.prompt_tokens, seen)
            seconds += added * part / step.prompt_tokens
    return seconds


def own_time(tables: Tables, engine: Engine, step: Step, context: float) -> float:
    """Return the mean over requests of the time of a step if all had the same draft length [s]."""
    seconds = 0.0
    for i in range(engine.state.running):
        request = engine.requests[engine.running[i]]
        if request.prefill_tokens == 0 and request.scheduled_tokens > 0:
            verified = request.scheduled_tokens - 1
            seconds += at_context(tables, verified, step.decoding, context)
    return seconds / step.decoding


def cut_drafts(tables: Tables, server: Server, engine: Engine, step: Step) -> None:
    """Cut the drafts of a step to the tokens that are verified.

    All requests of the step emit. If the step's budget is used up, one of them does not, because
    its prompt continues in the next step.
    """
    most, expected = step.draft_length, float(step.batch - (step.budget == 0))
    beside = step.decoding + step.prompt_tokens * tables.spread
    best, length, longer = 0.0, 0, 0
    for k in range(most + 1):
        room = tables.graph_tokens - beside - k * step.decoding
        for filled in range(2 if k < most and 0 < room < step.decoding else 1):
            step.draft_length, step.longer = k, int(room) if filled else 0
            more = step.longer * server.survival[k] if filled else 0.0
            pace = (expected + more) / step_time(tables, server, engine, step)
            if pace > best:
                best, length, longer = pace, step.draft_length, step.longer
        if k < most:
            expected += step.decoding * server.survival[k]
    step.draft_length, step.longer = length, longer
    for i in range(engine.state.running):
        request = engine.requests[engine.running[i]]
        if request.prefill_tokens == 0 and request.scheduled_tokens > 0:
            verified = 1 + length + (longer > 0)
            longer -= longer > 0
            request.scheduled_tokens = min(request.scheduled_tokens, verified)
