"""Steady states in closed form: the running batch, TPOT and TTFT that follow from a rate.

Each of the B - 1 others is prefilled once while a request makes its tokens. Prompts that come at
random share steps: with x prompts a step in the mean, a step has as many as Poisson's law says.
"""

from functools import partial

import numpy as np
from msgspec import Struct

from specmodel.core.algebra.acceptance import Acceptance
from specmodel.core.base.units import FloatArray, Numeric, check
from specmodel.simulate.requests import Requests
from specmodel.simulate.service import Service
from specmodel.simulate.state import BY_BATCH

_PROMPTS = 100
"""Prompts over which their time is averaged [request]."""
_COUNTS = np.array([1, 2, 3, 4, 6, 8, 12, 16, 32, 64])
"""Prompts of a step whose time is computed; others lie between, or follow in a line [request]."""


class LoadCurves(Struct, frozen=True, kw_only=True, eq=False):
    """Times of a request by how many run, itself included: the input of the closed forms.

    Parameters
    ----------
    tpot, prefill, joining
        By running requests from 1 to the limit: time per output token, with the prefill of the
        others; the step that prefills its own prompt; and how long it waits to join, which is what
        is left of a step [s].
    output_tokens
        Mean tokens of an output; the first comes with the prefill [token].
    """

    tpot: FloatArray
    prefill: FloatArray
    joining: FloatArray
    output_tokens: float

    @property
    def limit(self) -> int:
        """Most running requests [request]."""
        return len(self.tpot)

    @property
    def residence(self) -> FloatArray:
        """Time from the start of a request to its last token, by running requests [s]."""
        return self.prefill + (self.output_tokens - 1) * self.tpot


class SteadyState(Struct, frozen=True, kw_only=True, eq=False):
    """Time averages at each request rate; NaN where the server cannot keep up with it.

    Parameters
    ----------
    running, waiting
        Requests that run and that wait [request].
    tpot, ttft
        Time per output token, each token counted once, and time to the first token [s].
    largest_rate
        The rate from which requests come faster than they leave [request/s].
    """

    running: FloatArray
    waiting: FloatArray
    tpot: FloatArray
    ttft: FloatArray
    largest_rate: float


def load_curves(
    service: Service,
    requests: Requests,
    acceptance: Acceptance | None = None,
    *,
    at_random: bool = True,
) -> LoadCurves | None:
    """Return the step and prefill times of a request by how many requests run.

    None for a policy that learns or cuts drafts by step, of which there is no closed form.

    Parameters
    ----------
    service
        A server, whose limits bound how many run.
    requests, acceptance
        Requests whose lengths are averaged over, and how drafts fare at each position.
    at_random
        Whether requests come at random; else their prompts come evenly, at most one in a step, as
        `predict` takes them.
    """
    times, limits, drafts = service.times, service.limits, service.drafts
    if drafts.kind != BY_BATCH or drafts.survival:
        return None
    context = requests.mean_context
    held = -(-int(context + drafts.max_draft_length + 1) // limits.block_size)
    shared = int(service.shared_blocks(requests)[1].mean())
    fitting = (limits.blocks - shared) // max(held + limits.fixed_blocks - shared, 1)
    limit = max(min(limits.max_running, times.max_requests, fitting), 1)
    sizes = np.arange(1, limit + 1)
    lengths = drafts.lengths(sizes)
    output = float(requests.output_tokens.mean())
    step, tokens = np.empty(limit), np.empty(limit)
    added = np.empty((_COUNTS[-1] + 1, limit))
    every = max(requests.count // _PROMPTS, 1)
    cached = service.cached_tokens(requests)[::every][:, None]
    prompts = (requests.prompt_tokens[::every][:, None] - cached).astype(float)
    seen = cached + (prompts + 1) / 2
    for k in np.unique(lengths):
        own = lengths == k
        tokens[own] = float(acceptance.expected_tokens_per_step(k)) if acceptance and k else 1.0
        step[own] = times.step_time(int(k), sizes[own], context)
        others = np.maximum(sizes[own] - 1, 1)
        added[:, own] = _added_by_count(service, int(k), others, prompts, seen)
    alone = times.prompt_time(int(lengths[0]), 0, prompts, seen).mean()
    prompts_a_step = tokens * (sizes - 1) / output
    chances = _chances(prompts_a_step, at_random=at_random)
    by_others, square = (chances * added).sum(axis=0), (chances * added**2).sum(axis=0)
    left = (step**2 + 2 * step * by_others + square) / (step + by_others) / 2
    own_beside = (chances[:-1] * added[1:]).sum(axis=0) + chances[-1] * added[-1]
    own_steps = np.ceil(prompts / limits.token_budget).mean() * step
    return LoadCurves(
        tpot=(step + by_others) / tokens,
        prefill=np.concatenate([[alone], own_steps[:-1] + own_beside[1:]]),
        joining=np.concatenate([[0.0], left[:-1]]),
        output_tokens=output,
    )


def _added_by_count(
    service: Service, length: int, others: FloatArray, prompts: FloatArray, seen: FloatArray
) -> FloatArray:
    """Return the time that 0, 1, 2, ... prompts add to a step, by decoding requests beside [s]."""
    most = max(service.limits.token_budget / prompts.mean(), 1.0)
    counts = _COUNTS[: np.searchsorted(_COUNTS, most, "right")]
    add = partial(service.times.prompt_time, length, others)
    found = [add(n * prompts, seen).mean(axis=0) for n in counts]
    every = np.arange(_COUNTS[-1] + 1.0)
    by_size = [np.interp(every, [0, *counts], [0, *of_size]) for of_size in np.array(found).T]
    beyond = np.maximum(every / counts[-1], 1.0)  # prompts past the budget come in later steps
    return np.asarray(np.array(by_size).T * beyond[:, None])


def _chances(prompts_a_step: FloatArray, *, at_random: bool) -> FloatArray:
    """Return the probabilities of 0, 1, 2, ... prompts in a step, given their mean [-]."""
    every = np.arange(_COUNTS[-1] + 1.0)[:, None]
    if not at_random:  # each has a step of its own
        return np.where(every > 0, (every == 1) * prompts_a_step, 1 - prompts_a_step)
    counted = np.clip(prompts_a_step, 1e-12, _COUNTS[-1] / 2)
    logs = every * np.log(counted) - np.cumsum(np.log(np.maximum(every, 1.0)), axis=0)
    return np.asarray(np.exp(logs - counted) * np.maximum(prompts_a_step / counted, 1.0))


def chain_state(curves: LoadCurves, request_rate: Numeric) -> SteadyState:
    """Return the steady state of the birth-death chain with departures n'/(residence at n').

    n' are the requests that run, n or the limit; the others wait. Means follow by Little's law.
    Where a few more requests would leave so much slower that they never became fewer, as where
    CUDA graphs end, the chain ends too: a server seldom goes there. From about three quarters of
    the requests at that end it does at last, and stays: times are then up to twice as long.

    Parameters
    ----------
    curves, request_rate
        What a request takes by how many run, and rates [request/s].
    """
    rates = check("request_rate", request_rate, above=0)
    leaves = np.arange(1, curves.limit + 1) / curves.residence
    flat = [_chain(leaves, rate) for rate in rates.ravel()]
    running, waiting = np.reshape(np.array(flat).T, (2, *rates.shape))
    residence = running / rates
    sizes = np.arange(curves.limit)
    prefill, joining = (np.interp(running, sizes, c) for c in (curves.prefill, curves.joining))
    later = curves.output_tokens - 1
    after = np.maximum(residence - prefill, 0.0)  # where means of a curve differ by rounding
    return SteadyState(
        running=running,
        waiting=waiting,
        tpot=after / later if later else np.zeros_like(after),
        ttft=prefill + joining + waiting / rates,
        largest_rate=float(leaves.max()),
    )


def users_state(curves: LoadCurves, users: int) -> SteadyState:
    """Return the steady state of users who each ask again when answered: as many run, or the limit.

    Prompts come spread out, as `predict` has them: each is prefilled while the others decode.

    Parameters
    ----------
    curves, users
        What a request takes by how many run, and users [request].
    """
    running = min(users, curves.limit)
    at, waiting = running - 1, np.asarray(float(users - running))
    return SteadyState(
        running=np.asarray(float(running)),
        waiting=waiting,
        tpot=curves.tpot[at],
        ttft=curves.prefill[at] + curves.joining[at] + waiting * curves.residence[at] / running,
        largest_rate=float("nan"),
    )


def _chain(leaves: FloatArray, rate: float) -> tuple[float, float]:
    """Return mean running and waiting requests; NaN where the rate is not sustained [request]."""
    if rate >= leaves.max():
        return float("nan"), float("nan")
    first = int(np.argmax(leaves > rate))
    slower = np.flatnonzero(leaves[first:] <= rate)
    if len(slower):
        leaves = leaves[: first + slower[0]]
    last = 0.0 if len(slower) else rate / leaves[-1]
    logs = np.concatenate([[0.0], np.cumsum(np.log(rate / leaves))])
    weights = np.exp(logs - logs.max())
    tail = weights[-1] * last / (1 - last)  # beyond the limit, a geometric series
    total = weights.sum() + tail
    limit = len(leaves)
    running = (np.arange(limit + 1) * weights).sum() + limit * tail
    return float(running / total), float(weights[-1] * last / (1 - last) ** 2 / total)
