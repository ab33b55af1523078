"""Requests through the simulator: what is prepared once, and a run of it."""

from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specmodel.algebra.acceptance import Acceptance
from specmodel.base.errors import InputError
from specmodel.base.units import check
from specmodel.cost.deployment import Deployment
from specmodel.replay.traces import Trace
from specmodel.serving.apart import Apart, ready_times
from specmodel.serving.limits import Memory, Scheduler, limits_of, memory_for
from specmodel.serving.loop import compiled_serve, serve
from specmodel.serving.outcome import EDGES, Run
from specmodel.serving.policies import Drafting, no_drafts, survival
from specmodel.serving.requests import Requests
from specmodel.serving.state import (
    Engine,
    Outcomes,
    Request,
    State,
    Step,
    as_array,
    records,
)
from specmodel.serving.times import TabulatedTimes, tabulate

WORTH_COMPILING = 1_000_000
"""Output tokens from which numba is imported, where it is installed: Python takes some 3 seconds
for them, and numba half of one to be ready, 20 the very first time [token]."""


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
    run = compiled_serve() if wants else None
    if compiled and run is None:
        raise InputError("compiled", compiled, "numba, which is not installed (the extra fast)")
    order, columns = np.arange(requests.count), _columns(requests, prefix_hit_rate, memory, seed)
    if apart is not None:
        ready = ready_times(apart, requests, times, scheduler.token_budget)
        order = np.argsort(ready, kind="stable")
        columns |= {"arrival": ready, "first_token": ready}
        columns |= {"cached_tokens": requests.prompt_tokens, "emitted_tokens": np.ones_like(order)}
    places = np.argsort(order)[:until]  # where the first requests stand
    columns = {name: values[order] for name, values in columns.items()}
    is_record, slots = run is not None, min(limits.requests, requests.count)
    states = records(State, 1, {}, compiled=is_record)
    parts: list[Any] = [
        _outcomes(acceptance, drafts.max_draft_length),
        times.flat(),
        Engine(
            requests=records(Request, requests.count, columns, compiled=is_record),
            emitted_before=int(apart is not None),
            users=requests.users,
            until=int(places.max()) + 1,
            running=np.zeros(slots, np.int64),
            preempted=np.zeros(requests.count, np.int64),
            state=states[0],
            log=records(Step, log_steps + 1, {}, compiled=is_record),
            intervals=np.zeros(len(EDGES), np.int64),
            edges=EDGES,
        ),
    ]
    if run is None:
        parts = [_as_lists(part) for part in parts]
    outcomes, tables, engine = parts
    server = drafts.fresh(for_python=run is None)
    (run or serve)(limits, outcomes, tables, server, engine)
    found = as_array(Request, engine.requests)
    state = State(*as_array(State, states)[0].item())
    own = found[places]
    return Run(
        requests=replace(requests.first(len(own)), arrival_time=own["arrival"])
        if requests.users
        else requests.first(len(own)),
        started=own["started"],
        first=own["first_token"],
        last=own["last_token"],
        drafted_tokens=own["drafted_tokens"],
        accepted_tokens=own["accepted_tokens"],
        intervals=np.asarray(engine.intervals),
        state=state,
        all_emitted=int(found["emitted_tokens"].sum()),
        all_drafted=int(found["drafted_tokens"].sum()),
        begun=int((found["emitted_tokens"] > 0).sum()),
        log=as_array(Step, engine.log)[: min(state.steps, log_steps)],
        limits=limits,
    )


def _columns(
    requests: Requests, hit_rate: float, memory: Memory, seed: int
) -> dict[str, NDArray[Any]]:
    """Return what requests ask, by the names of `Request`."""
    block = memory.block_size
    hits = np.floor(hit_rate * requests.prompt_tokens / block).astype(np.int64) * block
    return {
        "arrival": requests.arrival_time,
        "prompt_tokens": requests.prompt_tokens,
        "cached_tokens": np.minimum(hits, requests.prompt_tokens - 1),
        "output_tokens": requests.output_tokens,
        "key": requests.keys(seed),
    }


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


def _as_lists(part: Any) -> Any:
    return part._replace(
        **{n: v.tolist() for n, v in part._asdict().items() if isinstance(v, np.ndarray)}
    )
