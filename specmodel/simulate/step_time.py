"""Seconds of a scheduled step, as the loop over steps looks them up."""

from specmodel.simulate.state import OWN, Engine, Server, Step
from specmodel.simulate.tables import Tables, at_context, prompt_time


def step_time(tables: Tables, server: Server, engine: Engine, step: Step) -> float:
    """Return the time of a step [s].

    Requests that verify one token more each add what the last one of all of them does. With drafts
    of their own, it is the mean over requests of what it would take if all were like them.
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

    It is the mean over the chunks, weighted by their tokens, of what all prompt tokens of the step
    would add if they were that chunk's. Requests that prefill were admitted last, so they are
    searched for from the end.
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
    """Return the mean over requests of what a step would take if all had drafts as long [s]."""
    seconds = 0.0
    for i in range(engine.state.running):
        request = engine.requests[engine.running[i]]
        if request.prefill_tokens == 0 and request.scheduled_tokens > 0:
            verified = request.scheduled_tokens - 1
            seconds += at_context(tables, verified, step.decoding, context)
    return seconds / step.decoding
