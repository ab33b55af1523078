"""Cascade, the utility-driven policy of [1]_: a baseline, tests of draft lengths, a set phase.

References
----------
.. [1] A. Saxena et al., "Utility-Driven Speculative Decoding for Mixture-of-Experts,"
   arXiv:2506.20675, 2025.
"""

from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from specmodel.base.errors import InputError
from specmodel.base.units import FloatArray
from specmodel.replay.policies.policy import Index, OneLane, Whole, is_number

PHASES = ("baseline", "test", "set")
BASELINE, TEST, SET = range(3)
"""Phases of the policy, by number."""

MOST = 10**9
"""Largest whole number in the settings [-], so that the product of two fits in 64 bits."""


@dataclass(frozen=True, kw_only=True)
class CascadeSettings:
    """Every number of the policy; "paper" marks those that the paper states, "ours" the others.

    Parameters
    ----------
    first_draft_length, max_draft_length, climb_step
        Draft length of the very first trial; longest that is tried, the longest that the paper
        shows; step of the hill climb; all ours [token].
    first_direction
        Where the climb goes after the first trial: up if the utility is at least 1, else down
        ("by utility"), or always "up" or "down"; ours.
    baseline_iterations, baseline_interval
        Iterations without speculation that give the baseline, ours for "the first few", and after
        which it is measured again, at the end of a set phase, ours for "about every 100". A set
        phase without speculation gives a baseline for free [-].
    trial_iterations, max_trials, set_iterations
        Iterations of a trial, most trials of a test, iterations of a set phase; paper [-].
    tolerance
        Consecutive utilities that differ by at most this share end the test; paper [-].
    backoff_factor
        Factor on the length of set phases each time that one without speculation is entered,
        until a non-zero draft length is chosen; 1 switches back-off off. Paper; its reset is ours
        [-].
    plain_competes
        Whether no speculation, which has utility 1, wins against trials that are all below 1. If
        not, the best trial is set, unless the climb arrived at no speculation. Ours.
    climb, early_exit
        Whether draft lengths are climbed, or else a test tries all from 1 to the longest; whether a
        test ends early, at a tolerance met or a maximum passed; paper.
    """

    first_draft_length: int = 2
    max_draft_length: int = 7
    climb_step: int = 1
    first_direction: Literal["by utility", "up", "down"] = "by utility"
    baseline_iterations: int = 4
    baseline_interval: int = 100
    trial_iterations: int = 4
    max_trials: int = 4
    set_iterations: int = 16
    tolerance: float = 0.10
    backoff_factor: int = 2
    plain_competes: bool = True
    climb: bool = True
    early_exit: bool = True

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type is bool and not isinstance(value, bool):
                raise InputError(f"cascade {field.name}", value, "true or false")
            if field.type is int and (type(value) is not int or not 1 <= value <= MOST):
                expected = f"a whole number of at least 1, at most {MOST}"
                raise InputError(f"cascade {field.name}", value, expected)
        if not (is_number(self.tolerance) and 0 <= self.tolerance < float("inf")):
            raise InputError("cascade tolerance", self.tolerance, "a number of at least 0")
        if self.first_draft_length > self.max_draft_length:
            expected = f"at most max_draft_length = {self.max_draft_length}"
            raise InputError("cascade first_draft_length", self.first_draft_length, expected)
        if self.first_direction not in ("by utility", "up", "down"):
            expected = "by utility, up or down"
            raise InputError("cascade first_direction", self.first_direction, expected)


class CascadeLanes:
    """Choose draft lengths for many requests, each from its own tokens and times.

    The utility of a trial is its tokens per iteration, divided by the ratio of its mean iteration
    time to that of the baseline. The paper leaves details open, which we read as follows. Utility
    "rose" if it is the largest of the test so far. A test starts at the draft length that gave the
    highest utility when it was set; what it gives when it is set again takes the place of that.
    Where one token has a utility below 1, the test ends without speculation only if no longer
    draft had a utility of at least 1. The climb does not step over a draft length of 1, and at the
    longest draft, or at 1, it turns round after its first trial.
    """

    def __init__(self, settings: CascadeSettings, num_lanes: int) -> None:
        def lanes(value: float, dtype: type = np.int64) -> NDArray[Any]:
            return np.full(num_lanes, value, dtype)

        self.settings = settings
        self.phase, self._draft_length = lanes(BASELINE, np.int8), lanes(0)
        self._length = lanes(settings.baseline_iterations)
        self._step, self._next_end = 0, settings.baseline_iterations
        self._end = self._length.copy()
        self.is_testing = lanes(False, bool)
        self._tokens, self._time = lanes(0), lanes(0.0, float)
        self._base, self._since_baseline = lanes(np.nan, float), lanes(0)
        self._start = lanes(settings.first_draft_length)
        self._start_utility = lanes(-np.inf, float)  # when that length was set last
        self._set_length = lanes(settings.set_iterations)
        self.utility, self._best_utility = lanes(np.nan, float), lanes(-np.inf, float)
        self._best, self._low, self._high, self._trials = (lanes(0) for _ in range(4))
        self._up = lanes(False, bool)

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
        phase = self.phase[ended]
        tests, sets, baselines = (ended[phase == which] for which in (TEST, SET, BASELINE))
        self._end_trials(tests)
        self._end_sets(sets)
        self._take_baselines(baselines)
        self._start_tests(baselines)
        self._next_end = int(self._end.min())
        self.is_testing = self.phase == TEST

    def keep(self, lanes: Index) -> None:
        """Go on with these lanes only."""
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                setattr(self, name, value[lanes])

    def _enter(
        self, lanes: Index, phase: int, draft_length: Whole | int, length: Whole | int
    ) -> None:
        self.phase[lanes] = phase
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
        """Measure the utility of the draft lengths tried; try others, or set the best."""
        previous, tried = self.utility[lanes], self._draft_length[lanes]
        utility = self._measured(lanes)
        self.utility[lanes] = utility
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

    def _measured(self, lanes: Index) -> FloatArray:
        """Return the utility of the phase or trial that ends [-]."""
        return np.asarray(self._tokens[lanes] * self._base[lanes] / self._time[lanes])

    def _next_trials(self, lanes: Index, previous: FloatArray, rose: NDArray[np.bool_]) -> Whole:
        """Return the next draft lengths: 0 for no speculation, -1 where the test is over.

        It is over where utilities are similar or past their maximum. It climbs on while utility
        rises, else turns round to the other side of what was tried.
        """
        s, tried, trials = self.settings, self._draft_length[lanes], self._trials[lanes]
        if not s.climb:
            return np.where(tried < s.max_draft_length, tried + 1, 0)
        utility = self.utility[lanes]
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
        """Hold draft lengths; each time none is chosen, for longer."""
        drafting = draft_length > 0
        s = self.settings
        longer = self._set_length[lanes] * s.backoff_factor
        self._set_length[lanes] = np.where(drafting, s.set_iterations, longer)
        self._enter(lanes, SET, draft_length, self._set_length[lanes])

    def _end_sets(self, lanes: Index) -> None:
        """Keep the best length set as the start of tests; measure the baseline if it is due."""
        is_plain = self._draft_length[lanes] == 0
        self._take_baselines(lanes[is_plain])
        drafting = lanes[~is_plain]
        length, utility = self._draft_length[drafting], self._measured(drafting)
        is_best = (length == self._start[drafting]) | (utility > self._start_utility[drafting])
        best = drafting[is_best]
        self._start[best], self._start_utility[best] = length[is_best], utility[is_best]
        is_due = self._since_baseline[lanes] >= self.settings.baseline_interval
        self._enter(lanes[is_due], BASELINE, 0, self.settings.baseline_iterations)
        self._start_tests(lanes[~is_due])


class Cascade(OneLane):
    """Choose draft lengths for one request: one lane of `CascadeLanes`, with phases by name.

    Parameters
    ----------
    settings
        Every number of the policy.
    """

    def __init__(self, settings: CascadeSettings | None = None) -> None:
        self.settings = settings or CascadeSettings()
        self._lane = CascadeLanes(self.settings, 1)
        super().__init__(self._lane)

    @property
    def phase(self) -> str:
        """What the next step is part of: baseline, test or set."""
        return PHASES[self._lane.phase[0]]

    @property
    def utility(self) -> float:
        """Utility of the last trial, NaN before the first [-]."""
        return float(self._lane.utility[0])
