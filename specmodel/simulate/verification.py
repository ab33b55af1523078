"""How much of its drafts a step verifies, as vLLM's adaptive verification chooses it.

All drafts are made in full. Of the drafted tokens of all requests, a step verifies as many of those
that are likeliest to be accepted as give most expected tokens over its time, in which tokens of
prompts take part: a step that reads a prompt verifies less, to stay within the largest CUDA graph
(vLLM 0.33, ``AdaptiveVerificationManager.get_num_tokens`` in
``v1/worker/gpu/spec_decode/adaptive_verification.py``; its table of times is flat between captured
sizes, jumps behind the last one, and knows one context).

vLLM ranks tokens by the drafter's confidence in each. Nothing records it, so that requests are
alike here, by mean survival: they verify whole lengths, or what fills the largest graph.
"""

from specmodel.simulate.state import Engine, Server, Step
from specmodel.simulate.step_time import step_time
from specmodel.simulate.tables import Tables


def cut_drafts(tables: Tables, server: Server, engine: Engine, step: Step) -> None:
    """Cut the drafts of a step to those tokens that are verified.

    All its requests emit, but for one whose prompt goes on, where the step's tokens ran out.
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
