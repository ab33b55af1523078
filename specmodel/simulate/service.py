"""Prepare a server, and run requests through the simulator."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace
from numpy.typing import NDArray

from specmodel.core.algebra.acceptance import Acceptance
from specmodel.core.base.errors import InputError
from specmodel.core.base.units import check
from specmodel.core.cost.deployment import Deployment
from specmodel.simulate.accepted import at_random, of_trace
from specmodel.simulate.disaggregated import DisaggregatedPrefill
from specmodel.simulate.drafting import Drafting
from specmodel.simulate.limits import Scheduler, check_fits, limits_for
from specmodel.simulate.loop import serve
from specmodel.simulate.machine_code import as_lists, compiled_function, is_worth_compiling
from specmodel.simulate.outcome import EDGES, Run
from specmodel.simulate.requests import LONGEST, NOISE, Requests
from specmodel.simulate.sampling import stream
from specmodel.simulate.state import Engine, Limits, Request, State, Step, as_array, records
from specmodel.simulate.tables import TabulatedTimes
from specmodel.simulate.times import tabulate
from specmodel.simulate.traces import Trace


class Service(Struct, frozen=True, kw_only=True, eq=False):
    """A server that is ready to run.

    Parameters
    ----------
    times, limits
        Times of steps, and the limits of scheduler and memory.
    drafts, acceptance
        Policy that decides draft lengths; acceptance, at random by position or as recorded.
    by_context
        Acceptance from each context length on, in ascending order, if it varies with context
        [token].
    acceptance_by_request
        Spread of acceptance between requests, as in `spread_survival` [-].
    prefix_hit_rate, shared_prefix
        Share of every prompt that is in the prefix cache [-], or number of leading tokens that all
        prompts share, cached after the first prompt [token]. Both are ignored if the requests have
        cached tokens of their own.
    prefill
        Prefill servers of a disaggregated deployment, which emit first tokens; None without.
    """

    times: TabulatedTimes
    limits: Limits
    drafts: Drafting = field(default_factory=Drafting)
    acceptance: Acceptance | Trace | None = None
    by_context: Mapping[float, Acceptance] = field(default_factory=dict)
    acceptance_by_request: float = 0.0
    prefix_hit_rate: float = 0.0
    shared_prefix: int = 0
    prefill: DisaggregatedPrefill | None = None

    def __post_init__(self) -> None:
        check("prefix_hit_rate", self.prefix_hit_rate, minimum=0, maximum=1)
        check("shared_prefix", self.shared_prefix, minimum=0, maximum=LONGEST, whole=True)
        check("acceptance_by_request", self.acceptance_by_request, minimum=0, maximum=5)
        if self.drafts.max_draft_length > self.times.max_draft_length:
            expected = f"at most {self.times.max_draft_length}, the longest draft with a time"
            raise InputError("draft_length", self.drafts.max_draft_length, expected)

    def run(
        self,
        requests: Requests,
        *,
        seed: int = 0,
        log_steps: int = 0,
        until: int | None = None,
        compiled: bool | None = None,
    ) -> Run:
        """Serve requests to their end, and return the record.

        Parameters
        ----------
        requests, seed
            The requests, and the seed of the noise of every request and output position [-].
        log_steps
            Number of first steps to log [-].
        until
            Number of first requests to serve to their end, and to record; None for all [request].
        compiled
            Whether to use numba; if None, if it is installed and worth its start-up time.
        """
        check("seed", seed, minimum=0, whole=True)
        check_fits(self.limits, self.drafts.max_draft_length, requests)
        if compiled is None:
            compiled = is_worth_compiling(float(requests.output_tokens.sum()))
        loop = compiled_function(serve, self.drafts.rules) if compiled else None
        compiled = loop is not None  # an installed numba may fail to import
        loop = loop or partial(serve, *self.drafts.rules)
        columns = self._columns(requests, seed)
        order = np.argsort(columns["arrival"], kind="stable")
        places = np.argsort(order, kind="stable")[:until]  # of the first requests
        columns = {name: values[order] for name, values in columns.items()}
        most = min(self.limits.max_running, self.times.max_requests)
        limits = self.limits._replace(max_running=most)
        engine = Engine(
            requests=records(Request, requests.count, columns, compiled=compiled),
            emitted_before=int(self.prefill is not None),
            users=requests.users,
            until=int(places.max()) + 1,
            running=np.zeros(min(limits.max_running, requests.count), np.int64),
            preempted=np.zeros(requests.count, np.int64),
            sharers=np.zeros(int(columns["group"].max()) + 1, np.int64),
            state=records(State, 1, {}, compiled=compiled)[0],
            log=records(Step, log_steps + 1, {}, compiled=compiled),
            intervals=np.zeros(len(EDGES), np.int64),
            edges=EDGES,
        )
        longest, acceptance = self.drafts.max_draft_length, self.acceptance
        if isinstance(acceptance, Trace):
            outcomes = of_trace(acceptance, longest)
        else:
            spread = self.acceptance_by_request
            outcomes = at_random(acceptance, self.by_context, longest, spread)
        parts: list[Any] = [outcomes, self.times.flat(), engine]
        if not compiled:
            parts = [as_lists(part) for part in parts]
        outcomes, tables, engine = parts
        server = self.drafts.fresh(requests.count, for_python=not compiled)
        loop(limits, outcomes, tables, server, engine)
        return _run(requests, engine, places)

    def cached_tokens(self, requests: Requests) -> NDArray[np.int64]:
        """Return each prompt's tokens in the prefix cache, in whole blocks [token]."""
        prompts, block = requests.prompt_tokens, self.limits.block_size
        found, place = requests.cached_tokens, np.arange(requests.count)
        if found is None:
            later = place >= requests.samples  # nothing is cached for the first prompt
            found = self.prefix_hit_rate * prompts + self.shared_prefix * later
        found = np.where(place % requests.samples, prompts, found)
        return np.minimum(np.floor(found / block).astype(np.int64) * block, prompts - 1)

    def shared_blocks(self, requests: Requests) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return each request's group, which shares a beginning, and the blocks of it [-]."""
        prompts, block = requests.prompt_tokens, self.limits.block_size
        if requests.samples > 1:
            return np.arange(requests.count) // requests.samples, prompts // block
        return np.zeros_like(prompts), np.minimum(self.shared_prefix, prompts) // block

    def _columns(self, requests: Requests, seed: int) -> dict[str, NDArray[Any]]:
        """Return the initial fields of requests, after prefill if it is disaggregated."""
        prompts, cached = requests.prompt_tokens, self.cached_tokens(requests)
        group, shared = self.shared_blocks(requests)
        columns = {
            "arrival": requests.arrival_time,
            "prompt_tokens": prompts,
            "cached_tokens": cached,
            "output_tokens": requests.output_tokens,
            "key": stream(seed, NOISE).integers(0, 2**32, requests.count, dtype=np.int64),
            "group": group,
            "shared_blocks": shared,
        }
        if self.prefill is None:
            return columns
        budget = self.limits.token_budget
        ready = self.prefill.ready_times(requests, cached, self.times, budget)
        columns |= {"arrival": ready, "first_token": ready, "cached_tokens": prompts}
        return columns | {"emitted_tokens": np.ones_like(prompts)}


def prepare(
    deployment: Deployment, scheduler: Scheduler, requests: Requests, max_draft_length: int
) -> Service:
    """Return a deployment's server, with times tabulated for the contexts of the requests.

    Parameters
    ----------
    deployment, scheduler, requests
        The deployment, the limits of a step, and the requests or similar ones.
    max_draft_length
        Longest draft of any policy [token].
    """
    positions = deployment.target.max_positions
    if 0 < positions < requests.longest:
        expected = f"prompt and output of at most {positions} tokens together,"
        expected += " the model's context length"
        raise InputError("lengths", requests.longest, expected)
    limits = limits_for(deployment, scheduler, max_draft_length, requests)
    check_fits(limits, max_draft_length, requests)
    slots = limits.blocks // (limits.fixed_blocks + 1)
    times = tabulate(
        deployment,
        max_draft_length=max_draft_length,
        max_requests=min(limits.max_running, slots, requests.count),
        max_context=requests.longest,
        mean_context=requests.mean_context,
        token_budget=limits.token_budget,
    )
    return Service(times=times, limits=limits)


def _run(requests: Requests, engine: Engine, places: NDArray[np.int64]) -> Run:
    """Return the run of the requests at `places`, in the order of arrival."""
    found, log = as_array(Request, engine.requests), as_array(Step, engine.log)
    state = engine.state if isinstance(engine.state, State) else State(*engine.state.item())
    own, emitted = found[places], found["emitted_tokens"]
    requests = requests.at(slice(len(own)))
    if requests.users:
        requests = replace(requests, arrival_time=own["arrival"])
    later, chunks = emitted.sum() - (emitted > 0).sum(), np.sum(engine.intervals)
    return Run(
        requests=requests,
        started=own["started"],
        first=own["first_token"],
        last=own["last_token"],
        drafted_tokens=own["drafted_tokens"],
        accepted_tokens=own["accepted_tokens"],
        intervals=np.asarray(engine.intervals),
        throughput=float(emitted.sum() / state.now),
        tokens_per_step=float(later / chunks) if chunks else 1.0,
        drafted_per_step=float(found["drafted_tokens"].sum() / max(chunks, 1)),
        state=state,
        log=log[: min(state.steps, len(log) - 1)],
    )
