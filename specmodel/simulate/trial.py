"""Find the rate that a policy sustains within targets, simulated with replications."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from typing import Any

import numpy as np
from msgspec import Struct, field

from specmodel.core.algebra.acceptance import Acceptance
from specmodel.core.base.units import FloatArray, check
from specmodel.simulate.capacity import NOTHING, Capacity, Load, Targets, search, widened
from specmodel.simulate.loop import blocks_for
from specmodel.simulate.machine_code import is_worth_compiling
from specmodel.simulate.outcome import WARM_UP, Run, are_steady, averages
from specmodel.simulate.requests import ASKED, LENGTHS, Arrivals, Lengths, Requests, cut
from specmodel.simulate.sampling import stream
from specmodel.simulate.service import Service
from specmodel.simulate.state import BY_BATCH
from specmodel.simulate.study import Study

RESIDENCES = 20
"""Least length of a run, in mean times that a request stays; a quarter if it is coarse [-]."""
_BLOCK = 2000
"""Requests that are drawn together [request]."""
_RATES = 30
"""Approximate number of rates that are tried for a few policies [-]."""
_MOST_REQUESTS = 100_000
"""Most requests of a run; a rate that needs more is far above the capacity [request]."""
_MANY = 200_000
"""Requests over which lengths are averaged [request]."""
_ALONE = 40
"""Requests, one after another, that measure the times of a single request [request]."""
_PROMPTS = 100
"""Prompts over which their time is averaged [request]."""
_COUNTS = np.array([1, 2, 3, 4, 6, 8, 12, 16, 32, 64])
"""Prompts of a step for which the time is computed; other times are interpolated [request]."""
RUNS = {True: (5, 2000), False: (2, 500)}
"""Default runs at each rate [-] and their requests [request], with and without numba."""


class Trial(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """A study in replications; in each, all rates and policies have the same requests.

    Parameters
    ----------
    study
        The comparison. A run measures its `num_requests`, or more if requests stay long. Lengths
        are drawn at random from recorded requests.
    targets, replications
        Targets of requests, and runs with other requests at each rate [-].
    arrivals
        Process of arrivals.
    is_coarse
        Whether runs are shorter, the default without numba.
    """

    study: Study
    targets: Targets
    replications: int = 8
    arrivals: Arrivals = field(default_factory=lambda: Arrivals(request_rate=1.0))
    is_coarse: bool = False

    def __post_init__(self) -> None:
        check("replications", self.replications, minimum=1, maximum=100, whole=True)
        check("requests", self.study.num_requests, minimum=20, maximum=_MOST_REQUESTS, whole=True)

    @cached_property
    def _blocks(self) -> dict[tuple[int, int], tuple[Any, ...]]:
        return {}

    @cached_property
    def _servers(self) -> dict[str, tuple[Service, FloatArray]]:
        return {}

    @cached_property
    def mean_output(self) -> float:
        """Mean output tokens by the law of lengths, cut like the drawn requests [token]."""
        if isinstance(self.study.lengths, Lengths):
            drawn = self.study.lengths.draw(_MANY, 0)
            return float(cut(*drawn, self.study.typical.longest)[1].mean())
        return float(self.study.typical.output_tokens.mean())

    def load(self, name: str, rate: float) -> Load:
        """Return the `Load` of policy `name` at a rate [request/s]."""
        service, (_, tpot, stays) = self.server(name)
        # a run is longer if more requests are present; near the largest rate, queues settle slowly
        # and more are present, at most as many as if each stayed as long as on a full server;
        # targets do not matter here, so the same requests are drawn for all targets
        leaves, present = np.arange(1, len(stays) + 1) / stays, rate * stays.max()
        if rate < leaves.max():
            running = mean_running(leaves, rate)
            present = min(running / (1 - rate / leaves.max()), present)
        residences = RESIDENCES / 4 if self.is_coarse else RESIDENCES
        lasts = np.ceil(residences * float(present))
        measured = min(int(max(self.study.num_requests, lasts)), _MOST_REQUESTS)
        first = int(WARM_UP * measured)
        own = slice(first, first + measured)
        with ThreadPoolExecutor(self.replications) as pool:
            run = partial(self._run, service, rate, own.stop, float(tpot.max()))
            runs = list(pool.map(run, range(self.replications)))
        added = self.study.first_token_time
        slowness = (self.targets.slowness(run.ttft[own], run.tpot[own], added) for run in runs)
        return Load(
            rate=rate,
            slowness=tuple(map(np.sort, slowness)),
            is_steady=all(run.is_steady for run in runs) or are_steady(runs),
            means=averages(runs, own, added),
        )

    def alone(self, name: str) -> tuple[float, float]:
        """Return TTFT and TPOT that the target share of requests meets, alone or in a burst [s]."""
        service, (*_, stays) = self.server(name)
        run = self._run(service, 1e-5 / stays[0], _ALONE, 0.0, 0)
        share = self.targets.attainment
        ttft, tpot = (float(np.quantile(times[:_ALONE], share)) for times in (run.ttft, run.tpot))
        return ttft + self.study.first_token_time, tpot

    def capacity(
        self, name: str, progress: Callable[[int], object] = lambda done: None
    ) -> Capacity:
        """Return the capacity of a policy, `NOTHING` if a request alone misses the targets."""
        added = self.study.first_token_time
        ttft, tpot = np.array([self.alone(name)]).T
        if self.targets.slowness(ttft - added, tpot, added)[0] > 1:
            return NOTHING

        service, (first, each, stays) = self.server(name)

        def try_rate(rate: float) -> Load:
            progress(1)
            return self.load(name, rate)

        # somewhat below the rate at which a steady batch misses the targets
        meets = self.targets.slowness(first, each, added) <= 1
        leaves = np.arange(1, len(stays) + 1) / stays
        start = 0.6 * float(leaves[meets].max(initial=leaves[0]))
        found = search(try_rate, self.targets.attainment, start)
        if found.met is None or self.study.deployment.kernels.record is None:
            return found
        means, is_drafting = found.met.means, service.drafts.max_draft_length > 0
        columns = ("running", "drafted_tokens_per_step")
        running, drafted = (max(round(means[column]), 1) for column in columns)
        ends = self.study.error_factors([running], [drafted * is_drafting])["tpot"][:, 0]
        return widened(found, try_rate, (float(ends.min()), float(ends.max())))

    def server(self, name: str) -> tuple[Service, FloatArray]:
        """Return the server of a policy, and its times from `steady_times`.

        For a policy that learns, they are the times without drafts.
        """
        if name not in self._servers:
            service = self.study.service(name)
            is_settled = service.drafts.kind == BY_BATCH and not service.drafts.survival
            steady = service if is_settled else self.study.service("none")
            typical, accepted = self.study.typical, self.study.accepted
            self._servers[name] = service, steady_times(steady, typical, accepted)
        return self._servers[name]

    def _requests(self, replication: int, rate: float, count: int, tpot: float) -> Requests:
        """Return `count` requests of a replication, and those that arrive until these are done.

        Arrivals are scaled so that the first `count` requests need `rate` times the mean output
        tokens/s.
        """
        longest = self._drawn(replication, count)[2].max()
        after = int(1.1 * (rate * longest * tpot)) + 1
        times, *asked = self._drawn(replication, min(count + after, 2 * _MOST_REQUESTS))
        work = float(asked[1][:count].sum()) / times[count - 1] / self.mean_output
        return Requests(arrival_time=times * work / rate, **dict(zip(ASKED, asked, strict=False)))

    def _drawn(self, replication: int, count: int) -> tuple[Any, ...]:
        """Return the first arrival times of a replication at rate 1 [s], and request lengths.

        A larger `count` adds requests at the end only.
        """
        blocks = [self._block(replication, i) for i in range(-(-count // _BLOCK))]
        times, *asked = (np.concatenate(each) for each in zip(*blocks, strict=True))
        begins = np.cumsum([0.0, *(block[0][-1] for block in blocks)])[:-1]
        times = times + np.repeat(begins, _BLOCK)
        return times[:count], *(own[:count] for own in asked)

    def _block(self, replication: int, place: int) -> tuple[Any, ...]:
        """Return a block of requests of a replication, cut to the longest typical request."""
        if (replication, place) not in self._blocks:
            seed = int(stream(self.study.seed, LENGTHS, replication, place).integers(2**31))
            times = self.arrivals.times(_BLOCK, seed)
            prompts, outputs, *cached = self.study.lengths.draw(_BLOCK, seed)
            asked = cut(prompts, outputs, self.study.typical.longest)
            self._blocks[replication, place] = times, *asked, *cached
        return self._blocks[replication, place]

    def _run(self, service: Service, rate: float, until: int, tpot: float, place: int) -> Run:
        """Return the run of a replication by its number; `tpot` is the largest TPOT [s]."""
        requests = self._requests(place, rate, until, tpot)
        seed = int(stream(self.study.seed, LENGTHS, place).integers(2**31))
        searched = _RATES * self.replications * until * self.mean_output
        compiled = is_worth_compiling(searched)
        return service.run(requests, seed=seed, until=until, compiled=compiled)


def steady_times(service: Service, requests: Requests, accepted: Acceptance) -> FloatArray:
    """Return TTFT, TPOT and the time that a request stays, by number of running requests [s].

    The number starts at 1. The policy has a draft length by batch size, and no request waits. While
    a request makes its tokens, each of the other running requests is prefilled once. Prompts arrive
    at random, so the number of prompts in a step follows Poisson's law.
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
        # prompts beyond the budget are read in later steps
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

    The chain ends before a number of running requests at which fewer leave than arrive, such as
    where CUDA graphs end. A server seldom has so many.

    Parameters
    ----------
    leaves, rate
        Rate at which requests leave, by number of running requests from 1, and rate at which they
        arrive, below the largest in `leaves` [request/s].
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
