"""A block replayed under one policy: what the walk takes, compiled or not, and what it adds up."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specmodel.base.errors import InputError
from specmodel.base.units import FloatArray
from specmodel.replay.chance import Luck
from specmodel.replay.plans import context_at, first_context
from specmodel.replay.policies.kinds import CONSTANT, KINDS, PLANNED
from specmodel.replay.policies.policy import StatePolicy
from specmodel.replay.times import ReplayTimes
from specmodel.replay.told import Log, Told, policy_error
from specmodel.replay.traces import Trace
from specmodel.replay.walk import Requests, States, Sums, Tables, compiled_walk, walk

SERVERS = 8
"""States that requests are dealt to in order, where a server has one, not a request [-]."""


class Scene:
    """A block's requests, times and luck, as arrays for numba or as lists for Python.

    `first` is the number of its first request; `compiles` is whether numba is used if it is there.
    """

    def __init__(
        self,
        trace: Trace,
        times: ReplayTimes,
        luck: Luck,
        first: int = 0,
        *,
        compiles: bool,
    ) -> None:
        self.trace, self.times, self.luck, self.first = trace, times, luck, first
        self.compiled = compiled_walk() if compiles else None
        self._requests: dict[bool, Requests] = {}
        begins = first_context(trace, times)
        if begins.min() < 0:
            expected = f"at least the context of the first times, {times.context_length:g}"
            raise InputError(
                "prompt_tokens", int(begins.min() + (times.context_length or 0)), expected
            )
        farthest = begins + trace.output_tokens
        if not times.reaches(float(farthest.max())):
            expected = f"times of {int(farthest.max())} tokens more context than those of the first"
            raise InputError("times", f"{len(times.later)} rows", expected)

    def replay(
        self, states: States | None = None, *, pauses: bool, told: Told | None = None
    ) -> Sums:
        """Walk through all requests with the states of a policy, or with a policy in Python."""
        states = states or (told.states if told else self.constant(0))
        run = self.compiled if self.compiled is not None and told is None else walk
        is_fast = run is not walk
        tables = self._tables(pauses, is_fast)
        size = self.trace.num_requests
        kinds: list[Any] = [np.int64] * 3 + [np.float64] * 2
        arrays: list[Any] = [np.zeros(size, kind) for kind in kinds]
        sums = Sums(*(arrays if is_fast else [array.tolist() for array in arrays]))
        try:
            run(told, self.first, states, self._requests_for(is_fast), tables, sums)
        except InputError:
            raise
        except (Exception, SystemExit) as error:
            if told is None:
                raise
            raise policy_error(told.policy, error) from error
        return Sums(*(np.asarray(each, kind) for each, kind in zip(sums, kinds, strict=True)))

    def constant(self, draft_length: int) -> States:
        """Return the state of a constant draft length [token]."""
        return self._fitting(states_of(CONSTANT, [draft_length, 0], [0.0], 0))

    def planned(self, plan: NDArray[np.uint8]) -> States:
        """Return the state of draft lengths by position [token]."""
        states = states_of(PLANNED, [0, 0], [0.0], 0)
        return self._fitting(states._replace(plan=plan.tobytes()))

    def learning(self, policy: StatePolicy, servers: int) -> States:
        """Return the states of a policy of the package, one, or as many as servers keep."""
        kind = KINDS[type(policy)]
        return self._fitting(states_of(kind, policy.whole, policy.real, servers))

    def told(self, make: Callable[[int], Any], servers: int, log: Log | None = None) -> Told:
        """Return what asks and tells policies that are objects in Python."""
        context = self.times.context_length or 0.0
        return Told(
            make, servers=servers, longest=self.times.max_draft_length, context=context, log=log
        )

    def _fitting(self, states: States) -> States:
        return as_arrays(states) if self.compiled is not None else states

    def plain_time(self, *, with_luck: bool = True) -> FloatArray:
        """Return the time of each request without speculation, under the same luck or none [s]."""
        times, luck, trace = self.times, self.luck, self.trace
        if not times.later:
            sums = luck.noise_sums(trace) if with_luck else trace.output_tokens.astype(float)
            return np.asarray(times.forward_time * sums)
        contexts = np.arange(len(times.rows)) * times.context_step
        forward = [row.forward_time for row in times.rows]
        by_token = np.interp(np.arange(int(contexts[-1])), contexts, forward)
        taken = by_token[context_at(trace, times)]
        if with_luck:
            taken *= luck.noise_levels[luck.noise_draws]
        return np.asarray(np.add.reduceat(taken, trace.starts))

    def _requests_for(self, is_fast: bool) -> Requests:
        if is_fast not in self._requests:
            trace, luck, starts = self.trace, self.luck, self.trace.starts
            accepted, which = trace.by_length(self.times.max_draft_length)
            arrays = Requests(
                proposed=np.ascontiguousarray(trace.proposed_tokens),
                accepted=accepted.ravel(),
                rows=which * accepted.shape[1],
                expert_draws=np.ascontiguousarray(luck.expert_draws),
                noise_draws=np.ascontiguousarray(luck.noise_draws),
                first=starts,
                last=starts + trace.output_tokens,
                context=first_context(trace, self.times),
                experts=luck.request_experts,
            )
            if is_fast:
                self._requests[is_fast] = arrays
            else:
                lists = [e.tobytes() if e.dtype == np.uint8 else e.tolist() for e in arrays]
                self._requests[is_fast] = Requests(*lists)
        return self._requests[is_fast]

    def _tables(self, pauses: bool, is_fast: bool) -> Tables:
        base, slope = self.times.by_column(pauses=pauses)
        levels = (self.luck.expert_levels, self.luck.noise_levels)
        arrays: list[Any] = [base.ravel(), slope.ravel(), *levels]
        if not is_fast:
            arrays = [each.tolist() for each in arrays]
        rows = 1.0 / self.times.context_step if self.times.later else 0.0
        return Tables(arrays[0], arrays[1], base.shape[1], rows, arrays[2], arrays[3])


def states_of(kind: int, whole: list[int], real: list[float], servers: int) -> States:
    """Return states of a policy as lists: one for all requests in turn, or by server."""
    count = max(servers, 1)
    return States(
        kind=kind,
        whole=[[*whole] for _ in range(count)],
        real=[[*real] for _ in range(count)],
        fresh_whole=[*whole],
        fresh_real=[*real],
        keeps=servers > 0,
        plan=b"",
    )


def as_arrays(states: States) -> States:
    """Return states of a policy as arrays, for numba."""
    return states._replace(
        whole=np.array(states.whole, np.int64),
        real=np.array(states.real, np.float64),
        fresh_whole=np.array(states.fresh_whole, np.int64),
        fresh_real=np.array(states.fresh_real, np.float64),
        plan=np.frombuffer(states.plan, np.uint8),
    )
