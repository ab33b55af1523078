"""Many requests at once in NumPy: the fast form of a replay, equal to `walk` step by step.

Each request is a lane. All lanes take a step together, and from time to time the lanes whose
request is over are dropped. `CascadeLanes` is `policies.Cascade` with an array of lanes for each
of its numbers.
"""

from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from specmodel.base.units import FloatArray
from specmodel.replay.chance import Luck
from specmodel.replay.policies.cascade import CascadeSettings
from specmodel.replay.times import ReplayTimes
from specmodel.replay.traces import Trace
from specmodel.replay.walk import Totals

KEPT_SHARE = 7 / 8
"""Share of live lanes below which the others are dropped [-]."""

BASELINE, TEST, SET = 0, 1, 2
"""Phases of Cascade."""

Scalar = TypeVar("Scalar", bound=np.generic)
Whole = NDArray[np.int64]
"""Whole numbers by lane."""
Index = NDArray[np.intp]
"""Numbers of lanes."""


class Lanes(Protocol):
    """A policy of many requests at once."""

    def propose(self, positions: Whole) -> Whole:
        """Return the draft length of each lane, given its position in the trace [token]."""
        ...

    def observe(self, emitted_tokens: Whole, step_time: FloatArray) -> None:
        """Take in what each lane emitted [token] and how long that took [s]."""
        ...

    def keep(self, lanes: Index) -> None:
        """Go on with these lanes only."""
        ...

    @property
    def is_testing(self) -> NDArray[np.bool_] | None:
        """Which lanes are in a test; None for a policy without tests."""
        ...


def replay_lanes(
    lanes: Lanes, trace: Trace, times: ReplayTimes, luck: Luck, plain_time: float
) -> Totals:
    """Replay all requests of a trace side by side.

    Parameters
    ----------
    lanes
        The policy, with as many lanes as there are requests.
    trace, times, luck
        Acceptance, step times, and how they vary.
    plain_time
        Time of a step at draft length 0 [s].

    Returns
    -------
    Totals
        Sums of each request.
    """
    totals = Totals.zeros(trace.num_requests)
    base, slope = times.by_column(plain_time)
    by_position = _joined(trace, luck)
    at = trace.starts
    ends, request_experts = at + trace.output_tokens, luck.request_experts
    requests, sums = np.arange(trace.num_requests), Totals.zeros(trace.num_requests)
    while len(requests):
        asked = lanes.propose(at)
        is_testing = lanes.is_testing
        here = _at(by_position, at).view(np.uint8).reshape(-1, 4)
        verified = np.minimum(asked, here[:, 0])
        emitted = np.minimum(asked, here[:, 1])
        emitted += 1
        np.minimum(emitted, ends - at, out=emitted)
        column = verified + (asked > 0)
        expected = _at(base, column)
        seconds = _at(luck.expert_levels, here[:, 2])
        seconds += request_experts
        seconds *= _at(slope, column)
        seconds += expected
        seconds *= _at(luck.noise_levels, here[:, 3])
        lanes.observe(emitted, seconds)
        at += emitted
        is_live = emitted > 0
        live = np.count_nonzero(is_live)
        if live < len(requests):
            for increment in (verified, seconds, expected):
                increment *= is_live
        sums.steps[...] += is_live
        sums.drafted_tokens[...] += verified
        sums.time[...] += seconds
        sums.expected_time[...] += expected
        if is_testing is not None:
            sums.test_steps[...] += is_testing & is_live
        if live < KEPT_SHARE * len(requests):
            for name, total in vars(totals).items():
                total[requests] = getattr(sums, name)
            kept = np.flatnonzero(at < ends)
            requests = requests[kept]
            sums = Totals(**{name: array[kept] for name, array in vars(sums).items()})
            at, ends, request_experts = at[kept], ends[kept], request_experts[kept]
            lanes.keep(kept)
    return totals


def _joined(trace: Trace, luck: Luck) -> NDArray[np.uint32]:
    """Return all that is known of a position as one number: one look-up in memory, not four."""
    parts = (trace.proposed_tokens, trace.accepted_tokens, luck.expert_draws, luck.noise_draws)
    joined = np.empty((len(trace.proposed_tokens), len(parts)), np.uint8)
    for i, part in enumerate(parts):
        joined[:, i] = part
    return joined.view(np.uint32)[:, 0]


def _at(values: NDArray[Scalar], index: NDArray[np.integer[Any]]) -> NDArray[Scalar]:
    """Look up; a lane whose request is over may be one beyond the last position."""
    return np.take(values, index, mode="clip")


class CascadeLanes:
    """Choose draft lengths for many requests, each from its own tokens and times.

    Parameters
    ----------
    settings
        Every number of the policy.
    num_lanes
        Number of requests [request].
    """

    def __init__(self, settings: CascadeSettings, num_lanes: int) -> None:
        def lanes(value: float, dtype: type = np.int64) -> NDArray[Any]:
            return np.full(num_lanes, value, dtype)

        self.settings = settings
        self._phase, self._draft_length = lanes(BASELINE, np.int8), lanes(0)
        self._length = lanes(settings.baseline_iterations)
        self._step, self._next_end = 0, settings.baseline_iterations
        self._end = self._length.copy()
        self._is_testing = lanes(False, bool)
        self._tokens, self._time = lanes(0), lanes(0.0, float)
        self._base, self._since_baseline = lanes(np.nan, float), lanes(0)
        self._start = lanes(settings.first_draft_length)
        self._set_length = lanes(settings.set_iterations)
        self._utility, self._best_utility = lanes(np.nan, float), lanes(-np.inf, float)
        self._best, self._low, self._high, self._trials = (lanes(0) for _ in range(4))
        self._up = lanes(False, bool)

    @property
    def is_testing(self) -> NDArray[np.bool_]:
        """Which lanes are in a test."""
        return self._is_testing

    def propose(self, positions: Whole) -> Whole:
        """Return the draft length of each lane, wherever it is [token]."""
        return self._draft_length

    def observe(self, emitted_tokens: Whole, step_time: FloatArray) -> None:
        """Take in what each lane emitted [token] and how long that took [s]."""
        self._tokens += emitted_tokens
        self._time += step_time
        self._step += 1
        if self._step < self._next_end:
            return
        ended = np.flatnonzero(self._end == self._step)
        self._since_baseline[ended] += self._length[ended]
        phase = self._phase[ended]
        tests, sets, baselines = (ended[phase == which] for which in (TEST, SET, BASELINE))
        self._end_trials(tests)
        self._end_sets(sets)
        self._take_baselines(baselines)
        self._start_tests(baselines)
        self._next_end = int(self._end.min())
        self._is_testing = self._phase == TEST

    def keep(self, lanes: Index) -> None:
        """Go on with these lanes only."""
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                setattr(self, name, value[lanes])

    def _enter(
        self, lanes: Index, phase: int, draft_length: Whole | int, length: Whole | int
    ) -> None:
        self._phase[lanes] = phase
        self._draft_length[lanes] = draft_length
        self._length[lanes] = length
        self._end[lanes] = self._step + length
        self._tokens[lanes] = 0
        self._time[lanes] = 0.0

    def _take_baselines(self, lanes: Index) -> None:
        self._base[lanes] = self._time[lanes] / self._length[lanes]
        self._since_baseline[lanes] = 0

    def _start_tests(self, lanes: Index) -> None:
        first = self._start[lanes] if self.settings.climb else np.ones_like(lanes)
        for bound in (self._low, self._high, self._best):
            bound[lanes] = first
        self._trials[lanes] = 0
        self._best_utility[lanes] = -np.inf
        self._enter(lanes, TEST, first, self.settings.trial_iterations)

    def _end_trials(self, lanes: Index) -> None:
        previous, tried = self._utility[lanes], self._draft_length[lanes]
        utility = self._tokens[lanes] * self._base[lanes] / self._time[lanes]
        self._utility[lanes] = utility
        self._trials[lanes] += 1
        rose = utility > self._best_utility[lanes]
        self._best[lanes[rose]], self._best_utility[lanes[rose]] = tried[rose], utility[rose]
        self._low[lanes] = np.minimum(self._low[lanes], tried)
        self._high[lanes] = np.maximum(self._high[lanes], tried)
        following = self._next_trials(lanes, previous, rose)
        goes_on = following > 0
        self._enter(lanes[goes_on], TEST, following[goes_on], self.settings.trial_iterations)
        over = lanes[~goes_on]
        sees_plain = self.settings.plain_competes | (following[~goes_on] == 0)
        is_plain = sees_plain & (self._best_utility[over] < 1)
        self._set(over, np.where(is_plain, 0, self._best[over]))

    def _next_trials(self, lanes: Index, previous: FloatArray, rose: NDArray[np.bool_]) -> Whole:
        """Return the next draft lengths: 0 for no speculation, -1 where the test is over."""
        s, tried, trials = self.settings, self._draft_length[lanes], self._trials[lanes]
        if not s.climb:
            return np.where(tried < s.max_draft_length, tried + 1, 0)
        utility = self._utility[lanes]
        is_first = trials == 1
        by_utility = {"up": True, "down": False}.get(s.first_direction, utility >= 1)
        can_rise = tried + s.climb_step <= s.max_draft_length
        first_up = can_rise & (by_utility | (tried == 1))
        up = np.where(is_first, first_up, self._up[lanes] == rose)
        is_out = (tried == 1) & (utility < 1)
        is_over = trials >= s.max_trials
        if s.early_exit:
            is_similar = np.abs(utility - previous) <= s.tolerance * previous
            is_over |= ~is_first & (is_similar | ((trials > 2) & ~rose))
        higher = self._high[lanes] + s.climb_step
        higher[higher > s.max_draft_length] = -1
        low = self._low[lanes]
        lower = np.where(low > 1, np.maximum(low - s.climb_step, 1), 0)
        following = np.where(up, higher, lower)
        self._up[lanes] = up
        return np.where(is_out, 0, np.where(is_over, -1, following))

    def _set(self, lanes: Index, draft_length: Whole) -> None:
        drafting = draft_length > 0
        self._start[lanes[drafting]] = draft_length[drafting]
        s = self.settings
        longer = self._set_length[lanes] * s.backoff_factor
        self._set_length[lanes] = np.where(drafting, s.set_iterations, longer)
        self._enter(lanes, SET, draft_length, self._set_length[lanes])

    def _end_sets(self, lanes: Index) -> None:
        self._take_baselines(lanes[self._draft_length[lanes] == 0])
        is_due = self._since_baseline[lanes] >= self.settings.baseline_interval
        self._enter(lanes[is_due], BASELINE, 0, self.settings.baseline_iterations)
        self._start_tests(lanes[~is_due])
