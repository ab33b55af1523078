"""What a policy of a study carries within targets: rates simulated with replications."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from specmodel.base.units import check
from specmodel.prediction.decoding import decode_deployed
from specmodel.prediction.predicting import predict_deployed
from specmodel.replay.sampling import stream
from specmodel.serving.capacity import (
    NOTHING,
    Capacity,
    Load,
    Targets,
    load_of,
    search,
    widened,
)
from specmodel.serving.closed_forms import LoadCurves, fluid_state
from specmodel.serving.outcome import WARM_UP, Run
from specmodel.serving.policies import Drafting
from specmodel.serving.requests import LENGTHS, Arrivals, Lengths, Requests, Whole
from specmodel.serving.run import Service, is_worth_compiling
from specmodel.serving.study import Study

RESIDENCES = 20
"""Least length of a run, in times that a request stays [-]."""
_BLOCK = 2000
"""Requests that are drawn together [request]."""
_RATES = 30
"""Rates that are tried for a few policies, about [-]."""
_MOST_REQUESTS = 100_000
"""Most requests of a run: rates that need more are far beyond what is carried [request]."""
_MANY = 200_000
"""Requests whose lengths give their mean [request]."""
_ALONE = 40
"""Requests, one after another, that tell what a request takes alone [request]."""
RUNS = {True: (5, 2000), False: (2, 1000)}
"""Usual runs at each rate [-] and their requests [request], with numba or not."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Trial:
    """The same requests for all rates and policies, in replications with others.

    Parameters
    ----------
    study
        What is compared; its `num_requests` are measured at each rate, more where requests stay
        long. Of recorded requests the lengths are drawn at random.
    targets, replications
        What requests should meet, and how many runs of other requests there are at each rate [-].
    arrivals
        The process in which requests come.
    """

    study: Study
    targets: Targets
    replications: int = 8
    arrivals: Arrivals = field(default_factory=lambda: Arrivals(request_rate=1.0))

    def __post_init__(self) -> None:
        check("replications", self.replications, minimum=1, maximum=100, whole=True)
        check("requests", self.study.num_requests, minimum=20, maximum=_MOST_REQUESTS, whole=True)

    @cached_property
    def _blocks(self) -> dict[tuple[int, ...], Requests]:
        return {}

    @cached_property
    def mean_output(self) -> float:
        """Mean tokens of an output by its law, cut as those that are drawn [token]."""
        source, typical = self.study.lengths, self.study.typical
        if not isinstance(source, Lengths):
            return float(typical.output_tokens.mean())
        return float(_cut(*source.draw(_MANY, 0), typical.longest)[1].mean())

    def load(self, name: str, load: Arrivals, *, in_all: bool = True) -> Load:
        """Return what requests meet at a rate, or with so many users, under a policy.

        In all replications, or in as many as make clear whether the targets are met.
        """
        policy = self.study.policy(name)
        tpot, residence = self._edge(self.curves(name))
        present = load.users or load.request_rate * residence
        measured = int(max(self.study.num_requests, np.ceil(RESIDENCES * present)))
        measured = min(measured, _MOST_REQUESTS)
        first = int(WARM_UP * measured)
        own, runs = slice(first, first + measured), list[Run]()
        rate, added = load.request_rate or load.users, self.study.first_token_time
        while True:
            i = len(runs)
            runs.append(self._run(policy, self._requests(i, load, own, tpot), i, own.stop))
            if in_all and i + 1 < self.replications:
                continue
            found = load_of(rate, runs, own, self.targets, added)
            if i + 1 == self.replications or found.is_clear(self.targets.attainment):
                return found

    def alone(self, name: str) -> tuple[float, float]:
        """Return TTFT and TPOT within which enough requests are where each is alone [s]."""
        rare = Arrivals(request_rate=1e-5 / self.curves(name).residence[0])
        requests = self._requests(0, rare, slice(0, _ALONE), 0.0)
        run = self._run(self.study.policy(name), requests, 0, _ALONE)
        share = self.targets.attainment
        ttft, tpot = (float(np.quantile(times[:_ALONE], share)) for times in (run.ttft, run.tpot))
        return ttft + self.study.first_token_time, tpot

    def capacity(
        self, name: str, progress: Callable[[int], object] = lambda done: None
    ) -> Capacity:
        """Return the capacity of a policy, `NOTHING` if a request alone misses the targets."""
        added = self.study.first_token_time
        ttft, tpot = (np.array([time]) for time in self.alone(name))
        if self.targets.slowness(ttft - added, tpot, added)[0] > 1:
            return NOTHING

        def try_rate(rate: float, in_all: bool) -> Load:
            progress(1)
            return self.load(name, Arrivals(request_rate=rate), in_all=in_all)

        start = 0.6 * self._guess(self.curves(name))
        found = search(try_rate, self.targets.attainment, start)
        if found.promised is None or self.study.deployment.kernels.record is None:
            return found
        return widened(found, try_rate, self.factors(name, found.promised))

    def factors(self, name: str, load: Load) -> tuple[float, float]:
        """Return the ends of the 80 % interval of the time per token, over the time itself [-]."""
        service, drafts = self.study.policy(name)
        where: dict[str, Any] = {
            "batch_size": np.array([max(round(load.means["running"]), 1)]),
            "context_length": round(service.context),
            "interval": True,
        }
        if drafts.max_draft_length:
            predicted = predict_deployed(
                self.study.deployment,
                {},
                draft_length=max(round(load.means["drafted_tokens_per_step"]), 1),
                acceptance=self.study.acceptance or self.study.accepted,
                max_draft_length=self.study.max_draft_length,
                **where,
            )
        else:
            predicted = decode_deployed(self.study.plain, {}, **where)
        interval = (predicted.intervals or {})["tpot"]
        low, high = (float((end / predicted.tpot)[0]) for end in (interval.low, interval.high))
        return low, high

    def curves(self, name: str) -> LoadCurves:
        """Return what a request takes by how many run, without drafts of a policy that learns."""
        found = self.study.curves(name) or self.study.curves("none")
        assert found is not None  # noqa: S101 - none learns nothing
        return found

    def _guess(self, curves: LoadCurves) -> float:
        """Return about the capacity, from the means of the closed form [request/s]."""
        rates = np.geomspace(1e-3, curves.limit, 400) / curves.residence[0]
        state, targets = fluid_state(curves, rates), self.targets
        meets = state.tpot <= (targets.tpot or np.inf)
        meets &= state.ttft + self.study.first_token_time <= (targets.ttft or np.inf)
        return float(rates[meets].max(initial=rates[0]))

    def _edge(self, curves: LoadCurves) -> tuple[float, float]:
        """Return TPOT and residence at the edge of the targets, at most those of a full server."""
        tpot = float(min(self.targets.tpot or np.inf, curves.tpot.max()))
        first = self.targets.ttft or float(curves.prefill.max())
        return tpot, first + curves.output_tokens * tpot

    def _requests(self, replication: int, load: Arrivals, measured: slice, tpot: float) -> Requests:
        """Return the requests of a replication, others coming until the measured have left.

        They come so fast that the work until then is what the rate and the mean output make of it.
        """
        longest = self._drawn(replication, measured.stop).output_tokens.max()
        of_users = load.users * longest / self.mean_output
        after = int(1.1 * (of_users or load.request_rate * longest * tpot)) + 1
        found = self._drawn(replication, min(measured.stop + after, 2 * _MOST_REQUESTS))
        until, last = found.arrival_time[measured.stop - 1], measured.stop
        work = float(found.output_tokens[:last].sum()) / until / self.mean_output
        times = found.arrival_time * work / (load.request_rate or np.inf)
        return Requests(
            arrival_time=times,
            prompt_tokens=found.prompt_tokens,
            output_tokens=found.output_tokens,
            users=load.users,
        )

    def _drawn(self, replication: int, count: int) -> Requests:
        """Return the first requests of a replication, at a rate of 1: more begin with fewer."""
        blocks = [self._block(replication, i) for i in range(-(-count // _BLOCK))]
        ends = np.cumsum([0.0, *(block.arrival_time[-1] for block in blocks)])
        times = [block.arrival_time + end for block, end in zip(blocks, ends, strict=False)]
        prompts, outputs = (
            np.concatenate([getattr(block, name) for block in blocks])[:count]
            for name in ("prompt_tokens", "output_tokens")
        )
        return Requests(
            arrival_time=np.concatenate(times)[:count], prompt_tokens=prompts, output_tokens=outputs
        )

    def _block(self, *place: int) -> Requests:
        """Return requests drawn by seed, replication and place, no longer than typical ones."""
        if place not in self._blocks:
            seed = int(stream(self.study.seed, LENGTHS, *place).integers(2**31))
            source, longest = self.study.lengths, self.study.typical.longest
            if isinstance(source, Lengths):
                prompts, outputs = source.draw(_BLOCK, seed)
            else:
                picked = stream(seed, LENGTHS).integers(0, source.count, _BLOCK)
                prompts, outputs = source.prompt_tokens[picked], source.output_tokens[picked]
            prompts, outputs = _cut(prompts, outputs, longest)
            self._blocks[place] = Requests(
                arrival_time=self.arrivals.times(_BLOCK, seed),
                prompt_tokens=prompts,
                output_tokens=outputs,
            )
        return self._blocks[place]

    def _run(
        self, policy: tuple[Service, Drafting], requests: Requests, place: int, until: int
    ) -> Run:
        seed = int(stream(self.study.seed, LENGTHS, place).integers(2**31))
        searched = _RATES * self.replications * until * self.mean_output
        compiled = is_worth_compiling(searched)
        return self.study.serve(policy, requests, seed=seed, until=until, compiled=compiled)


def _cut(prompts: Whole, outputs: Whole, longest: int) -> tuple[Whole, Whole]:
    """Return prompts and outputs that are together no longer than so many tokens [token]."""
    prompts = np.minimum(prompts, longest - 1)
    return prompts, np.minimum(outputs, longest - prompts)
