"""Requests through the simulator: what is prepared once, and a run of it."""

from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specmodel.algebra.acceptance import Acceptance
from specmodel.base.errors import InputError
from specmodel.base.units import FloatArray, check
from specmodel.cost.deployment import Deployment
from specmodel.replay.traces import Trace
from specmodel.serving import state
from specmodel.serving.apart import Apart, ready_times
from specmodel.serving.limits import Memory, Scheduler, limits_of, memory_for
from specmodel.serving.loop import compiled_serve, serve
from specmodel.serving.outcome import EDGES, Run
from specmodel.serving.policies import Drafting, no_drafts, survival
from specmodel.serving.requests import Requests
from specmodel.serving.state import Asked, Limits, Outcomes, Records, Slots
from specmodel.serving.times import TabulatedTimes, tabulate

WORTH_COMPILING = 1_000_000
"""Output tokens from which numba is imported, where it is installed: Python takes some 3 seconds
for them, and numba half of one to be ready, 20 the very first time [token]."""

_LOG = [
    name.lower()
    for name in (
        *("TIME", "SECONDS", "DECODING", "DRAFT", "CONTEXT", "TOKENS"),
        *("CHUNKS", "EMITTED", "FREE", "RUNNING", "WAITING"),
    )
]


@dataclass(frozen=True, kw_only=True, eq=False)
class Service:
    """A server ready to run: step times, limits and memory for some requests or any like them.

    Parameters
    ----------
    times, scheduler, memory
        Step times of the deployment, what its scheduler takes, and its KV blocks.
    context
        Mean KV entries of a request that decodes [token].
    max_draft_length
        Longest draft of any policy [token].
    """

    times: TabulatedTimes
    scheduler: Scheduler
    memory: Memory
    context: float = 0.0
    max_draft_length: int = 0

    def run(
        self,
        requests: Requests,
        drafts: Drafting | None = None,
        acceptance: Acceptance | Trace | None = None,
        **options: Any,
    ) -> Run:
        """Serve requests to their end; options are those of `simulate`."""
        return simulate(
            requests,
            times=self.times,
            scheduler=self.scheduler,
            memory=self.memory,
            drafts=drafts,
            acceptance=acceptance,
            **options,
        )


def prepare(
    deployment: Deployment, scheduler: Scheduler, requests: Requests, max_draft_length: int
) -> Service:
    """Return a server of a deployment for requests, with its step times tabulated.

    Parameters
    ----------
    deployment, scheduler, requests
        What runs where, what a step takes, and what is asked, whose contexts decide the table.
    max_draft_length
        Longest draft of any policy [token].
    """
    positions = deployment.target.max_positions
    if 0 < positions < requests.longest:
        expected = (
            f"prompts and outputs of at most {positions} tokens together, the model's context"
        )
        raise InputError("lengths", requests.longest, expected)
    memory = memory_for(deployment, scheduler, max_draft_length, requests)
    limits = limits_of(scheduler, memory, max_draft_length, requests)
    slots = (limits.blocks // (limits.fixed_blocks + 1)) if limits.blocks else 1
    times = tabulate(
        deployment,
        max_draft_length=max_draft_length,
        max_requests=min(scheduler.max_running, slots, requests.count),
        max_context=requests.longest,
        mean_context=requests.mean_context,
        token_budget=scheduler.token_budget,
    )
    return Service(
        times=times,
        scheduler=scheduler,
        memory=memory,
        context=requests.mean_context,
        max_draft_length=max_draft_length,
    )


def has_numba() -> bool:
    """Tell whether numba is installed."""
    return find_spec("numba") is not None


def is_worth_compiling(tokens: float) -> bool:
    """Tell whether numba is there and soon makes up for its start with so many tokens [token]."""
    return tokens >= WORTH_COMPILING and has_numba()


def simulate(  # noqa: PLR0913 - all keyword-only but for the requests
    requests: Requests,
    *,
    times: TabulatedTimes,
    scheduler: Scheduler,
    memory: Memory,
    drafts: Drafting | None = None,
    acceptance: Acceptance | Trace | None = None,
    prefix_hit_rate: float = 0.0,
    apart: Apart | None = None,
    seed: int = 0,
    log_steps: int = 0,
    until: int | None = None,
    compiled: bool | None = None,
) -> Run:
    """Serve requests to their end, and return what was recorded.

    Parameters
    ----------
    requests, times, scheduler, memory
        What is asked, seconds of a step, what a step takes, and what memory holds.
    drafts, acceptance
        What decides draft lengths (nothing is drafted if None), and how drafts fare: at random by
        position, or as recorded.
    prefix_hit_rate
        Share of every prompt, in whole blocks, that is found in the prefix cache [-].
    apart
        Servers that prefill, whose first tokens come before a request starts here; None for none.
    seed
        What decides the luck of every request and output position [-].
    log_steps
        How many steps to log, the first ones [-].
    until
        How many of the first requests to serve to their end, and to record; None for all
        [request].
    compiled
        Whether numba is used; if None, where it is installed and worth its start.
    """
    drafts = drafts or no_drafts()
    check("prefix_hit_rate", prefix_hit_rate, minimum=0, maximum=1)
    check("seed", seed, minimum=0, whole=True)
    if drafts.max_draft_length > times.max_draft_length:
        expected = f"at most {times.max_draft_length}, the longest draft with a time"
        raise InputError("draft_length", drafts.max_draft_length, expected)
    limits = limits_of(scheduler, memory, drafts.max_draft_length, requests)
    limits = limits._replace(requests=min(limits.requests, times.max_requests))
    wants = compiled
    if compiled is None:
        wants = is_worth_compiling(float(requests.output_tokens.sum()))
    run = compiled_serve(*drafts.rules) if wants else None
    if compiled and run is None:
        raise InputError("compiled", compiled, "numba, which is not installed (the extra fast)")
    for_python = run is None
    asked = _asked(requests, prefix_hit_rate, memory.block_size, seed)
    outcomes = _outcomes(acceptance, drafts.max_draft_length)
    slots, records = _slots(limits.requests, requests.count), _records(requests.count, log_steps)
    order, until = np.arange(requests.count), until or requests.count
    asked = asked._replace(until=until)
    if apart is not None:
        ready = ready_times(apart, requests, times, scheduler.token_budget)
        order = np.argsort(ready, kind="stable")
        asked, records = _prefilled(asked, records, ready, order)
        asked = asked._replace(until=int(np.argsort(order)[:until].max()) + 1)
    parts: list[Any] = [asked, outcomes, slots, records]
    if for_python:
        parts = [_as_lists(part) for part in parts]
    asked, outcomes, slots, records = parts
    tables, server = times.flat(for_python=for_python), drafts.fresh(for_python=for_python)
    run = run or partial(serve, *drafts.rules)
    run(asked, outcomes, limits, tables, server, slots, records)
    return _run(requests, asked, records, limits, np.argsort(order)[:until])


def _prefilled(
    asked: Asked, records: Records, ready: FloatArray, order: NDArray[np.int64]
) -> tuple[Asked, Records]:
    """Return requests in the order in which they are prefilled, with their first tokens."""
    moved = {n: getattr(asked, n)[order] for n in ("prompt", "output", "key")}
    asked = asked._replace(arrival=ready[order], cached=moved["prompt"], ready=1, **moved)
    return asked, records._replace(first=ready[order], emitted=records.emitted + np.int32(1))


def _asked(requests: Requests, hit_rate: float, block: int, seed: int) -> Asked:
    hits = np.floor(hit_rate * requests.prompt_tokens / block).astype(np.int64) * block
    return Asked(
        arrival=np.array(requests.arrival_time, dtype=float),
        prompt=requests.prompt_tokens,
        cached=np.minimum(hits, requests.prompt_tokens - 1),
        output=requests.output_tokens,
        key=requests.keys(seed),
        ready=0,
        users=requests.users,
        until=requests.count,
    )


def _outcomes(acceptance: Acceptance | Trace | None, longest: int) -> Outcomes:
    """Return what is accepted, as thresholds of luck or as recorded."""
    nothing = np.zeros(0, np.int64)
    if isinstance(acceptance, Trace):
        if longest > acceptance.max_draft_length:
            expected = f"at most {acceptance.max_draft_length}, the longest draft of the trace"
            raise InputError("draft_length", longest, expected)
        accepted = acceptance.accepted_tokens.astype(np.int64)
        lengths = np.asarray(acceptance.output_tokens, np.int64)
        return Outcomes(nothing, 1, accepted, np.asarray(acceptance.starts, np.int64), lengths)
    if acceptance is None and longest:
        raise InputError("acceptance", None, "how often drafted tokens are accepted")
    chances = survival(acceptance, longest) if acceptance else np.zeros((1, 1))
    levels = np.rint(chances * 2**32).astype(np.int64)
    return Outcomes(levels.ravel(), levels.shape[1], nothing, nothing, nothing)


def _slots(most: int, count: int) -> Slots:
    """Return empty slots of running requests; any number may have been preempted."""
    sizes = [min(most, count)] * (len(Slots._fields) - 1)
    return Slots(*(np.zeros(size, np.int64) for size in (*sizes, count)))


def _records(count: int, log_steps: int) -> Records:
    """Return empty records; four bytes a count, as there may be many requests."""
    started, first, last = (np.zeros(count) for _ in range(3))
    drafted, accepted, emitted = (np.zeros(count, np.int32) for _ in range(3))
    return Records(
        started=started,
        first=first,
        last=last,
        drafted=drafted,
        accepted=accepted,
        emitted=emitted,
        intervals=np.zeros(len(EDGES), np.int64),
        edges=EDGES,
        log=np.zeros((log_steps, state.LOG_COLUMNS)),
        wholes=np.zeros(state.WHOLES, np.int64),
        sums=np.zeros(state.SUMS),
    )


def _as_lists(part: Any) -> Any:
    return part._replace(
        **{n: v.tolist() for n, v in part._asdict().items() if isinstance(v, np.ndarray)}
    )


def _run(
    requests: Requests,
    asked: Asked,
    records: Records,
    limits: Limits,
    own: NDArray[np.int64],
) -> Run:
    """Return what was recorded of the requests at some places, in the order in which they came."""
    counts, emitted = np.zeros(state.BEGUN + 1, np.int64), np.asarray(records.emitted)
    counts[: state.WHOLES] = records.wholes
    counts[state.ALL_EMITTED :] = emitted.sum(), np.sum(records.drafted), (emitted > 0).sum()
    log = np.asarray(records.log, dtype=float)[: counts[state.LOGGED]]
    requests = requests.first(len(own))
    if requests.users:
        requests = replace(requests, arrival_time=np.asarray(asked.arrival)[: len(own)])
    return Run(
        requests=requests,
        started=np.asarray(records.started)[own],
        first=np.asarray(records.first)[own],
        last=np.asarray(records.last)[own],
        drafted_tokens=np.asarray(records.drafted)[own],
        accepted_tokens=np.asarray(records.accepted)[own],
        intervals=np.asarray(records.intervals),
        counts=counts,
        sums=np.asarray(records.sums),
        log={name: log[:, i] for i, name in enumerate(_LOG)} if len(log) else {},
        limits=limits,
    )
