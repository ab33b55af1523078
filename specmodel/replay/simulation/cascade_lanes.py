"""Cascade for many requests at once: `policies.cascade` with an array for each of its numbers."""

import numpy as np
from numpy.typing import NDArray

from specmodel.base.units import FloatArray
from specmodel.replay.policies import CascadeSettings
from specmodel.replay.simulation.lanes import Whole

BASELINE, TEST, SET = 0, 1, 2

Index = NDArray[np.intp]
"""Lanes."""


class CascadeLanes:
    """Choose draft lengths for many requests, each from its own tokens and times.

    Parameters
    ----------
    settings
        Every number.
    num_lanes
        Requests [request].
    """

    def __init__(self, settings: CascadeSettings, num_lanes: int) -> None:
        self.settings = settings
        self._phase = np.full(num_lanes, BASELINE, dtype=np.int8)
        self._draft_length = np.zeros(num_lanes, dtype=np.int64)
        self._length = np.full(num_lanes, settings.baseline_iterations, dtype=np.int64)
        self._step, self._next_end = 0, settings.baseline_iterations
        self._end = self._length.copy()
        self._is_testing = np.zeros(num_lanes, dtype=bool)
        self._tokens = np.zeros(num_lanes, dtype=np.int64)
        self._time = np.zeros(num_lanes)
        self._base = np.full(num_lanes, np.nan)
        self._since_baseline = np.zeros(num_lanes, dtype=np.int64)
        self._start = np.full(num_lanes, settings.first_draft_length, dtype=np.int64)
        self._set_length = np.full(num_lanes, settings.set_iterations, dtype=np.int64)
        self._utility = np.full(num_lanes, np.nan)
        self._best_utility = np.full(num_lanes, -np.inf)
        self._best = np.zeros(num_lanes, dtype=np.int64)
        self._low = np.zeros(num_lanes, dtype=np.int64)
        self._high = np.zeros(num_lanes, dtype=np.int64)
        self._trials = np.zeros(num_lanes, dtype=np.int64)
        self._up = np.zeros(num_lanes, dtype=bool)

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
        """Return the next draft lengths, 0 where that is none, -1 where the test is over."""
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
