"""Steady states of a server, about: how long runs must be, and at which rates a search begins.

Each of the B - 1 others is prefilled once while a request makes its tokens. Prompts that come at
random share steps: with x prompts a step in the mean, a step has as many as Poisson's law says.
"""

from functools import partial

import numpy as np

from specmodel.core.algebra.acceptance import Acceptance
from specmodel.core.base.units import FloatArray
from specmodel.simulate.loop import blocks_for
from specmodel.simulate.requests import Requests
from specmodel.simulate.service import Service

_PROMPTS = 100
"""Prompts over which their time is averaged [request]."""
_COUNTS = np.array([1, 2, 3, 4, 6, 8, 12, 16, 32, 64])
"""Prompts of a step whose time is computed; others lie between, or follow in a line [request]."""


def steady_times(service: Service, requests: Requests, accepted: Acceptance) -> FloatArray:
    """Return TTFT, TPOT and how long a request stays, by how many run, from 1 [s].

    Of a policy with a draft length by batch size; nothing waits.
    """
    times, limits, drafts = service.times, service.limits, service.drafts
    context, output = requests.mean_context, float(requests.output_tokens.mean())
    shared = int(service.shared_blocks(requests)[1].mean())
    held = blocks_for(limits, int(context + drafts.max_draft_length + 1))
    fitting = (limits.blocks - shared) // max(held - shared, 1)
    most = max(min(limits.max_running, times.max_requests, fitting), 1)
    every = max(requests.count // _PROMPTS, 1)
    cached = service.cached_tokens(requests)[::every][:, None]
    prompts = (requests.prompt_tokens[::every][:, None] - cached).astype(float)
    seen = cached + (prompts + 1) / 2
    fill = max(limits.token_budget / prompts.mean(), 1.0)
    sizes = np.arange(1, most + 1)
    lengths, counts = drafts.lengths(sizes), np.arange(_COUNTS[-1] + 1.0)
    step, tokens, added = np.empty(most), np.ones(most), np.empty((len(counts), most))
    for k in map(int, np.unique(lengths)):
        own = lengths == k
        step[own] = times.step_time(k, sizes[own], context)
        if k:
            tokens[own] = float(accepted.expected_tokens_per_step(k))
        add = partial(times.prompt_time, k, np.maximum(sizes[own] - 1, 1))
        nodes = _COUNTS[: np.searchsorted(_COUNTS, fill, "right")]
        read = [add(n * prompts, seen).mean(axis=0) for n in nodes]
        between = [np.interp(counts, [0, *nodes], [0, *line]) for line in np.transpose(read)]
        # prompts past the budget come in later steps
        added[:, own] = np.transpose(between) * np.maximum(counts / nodes[-1], 1.0)[:, None]
    in_step = tokens * (sizes - 1) / output
    mean = np.clip(in_step, 1e-12, _COUNTS[-1] / 2)
    factorials = np.cumsum(np.log(np.maximum(counts, 1.0)))
    chances = np.exp(np.outer(counts, np.log(mean)) - factorials[:, None] - mean)
    chances *= np.maximum(in_step / mean, 1.0)
    tpot = (step + (chances * added).sum(axis=0)) / tokens
    ttft = (chances[:-1] * added[1:]).sum(axis=0) + chances[-1] * added[-1]
    ttft[1:] += np.ceil(prompts / limits.token_budget).mean() * step[:-1]
    ttft[0] = times.prompt_time(int(lengths[0]), 0, prompts, seen).mean()
    return np.array([ttft, tpot, ttft + (output - 1) * tpot])


def mean_running(leaves: FloatArray, rate: float) -> float:
    """Return the mean running requests of a birth-death chain [request].

    Where a few more requests would leave so much slower that they never became fewer, as where
    CUDA graphs end, the chain ends too: a server seldom goes there.

    Parameters
    ----------
    leaves, rate
        Requests that leave by how many run, from 1, and those that come, fewer than the most that
        leave [request/s].
    """
    first = int(np.argmax(leaves > rate))
    slower = np.flatnonzero(leaves[first:] <= rate)
    if len(slower):
        leaves = leaves[: first + slower[0]]
    last = 0.0 if len(slower) else rate / leaves[-1]
    logs = np.concatenate([[0.0], np.cumsum(np.log(rate / leaves))])
    weights = np.exp(logs - logs.max())
    tail = weights[-1] * last / (1 - last)  # beyond the limit, a geometric series
    running = (np.arange(len(weights)) * weights).sum() + len(leaves) * tail
    return float(running / (weights.sum() + tail))
