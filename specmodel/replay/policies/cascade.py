"""Cascade, the utility-driven policy of [1]_: a baseline, tests of draft lengths, a set phase.

References
----------
.. [1] A. Saxena et al., "Utility-Driven Speculative Decoding for Mixture-of-Experts,"
   arXiv:2506.20675, 2025.
"""

from dataclasses import dataclass, fields
from typing import Literal

from specmodel.base.errors import InputError
from specmodel.replay.policies.adaptive import is_number

BASELINE, TEST, SET = "baseline", "test", "set"
"""Phases of the policy."""

MOST = 10**9
"""Largest whole number in the settings [-], so that the product of two fits in 64 bits."""


@dataclass(frozen=True, kw_only=True)
class CascadeSettings:
    """Every number of the policy; "paper" marks those that the paper states, "ours" the others.

    Parameters
    ----------
    first_draft_length
        Draft length of the very first trial; ours [token].
    max_draft_length
        Longest draft that is tried; ours, taken from the longest that the paper shows [token].
    climb_step
        Step of the hill climb; ours [token].
    first_direction
        Where the climb goes after the first trial: up if the utility is at least 1, else down
        ("by utility"), or always "up" or "down"; ours.
    baseline_iterations
        Iterations without speculation that give the baseline; ours for "the first few" [-].
    baseline_interval
        Iterations after which the baseline is measured again, at the end of a set phase; ours for
        "about every 100". A set phase without speculation gives a baseline for free [-].
    trial_iterations, max_trials
        Iterations of a trial, and most trials of a test; paper [-].
    set_iterations
        Iterations of a set phase; paper [-].
    tolerance
        Consecutive utilities that differ by at most this share end the test; paper [-].
    backoff_factor
        Factor on the length of set phases each time that one without speculation is entered,
        until a non-zero draft length is chosen; 1 switches back-off off. Paper; its reset is ours
        [-].
    plain_competes
        Whether no speculation, which has utility 1, wins against trials that are all below 1. If
        not, the best trial is set, unless the climb arrived at no speculation. Ours.
    climb
        Whether draft lengths are climbed; if not, a test tries all from 1 to the longest.
    early_exit
        Whether a test ends early, at a tolerance met or a maximum passed; paper.
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


class Cascade:
    """Choose draft lengths for one request from the tokens and times of its own iterations.

    This is the readable form, which the fast one (`lanes.CascadeLanes`) equals step by step.

    Parameters
    ----------
    settings
        Every number of the policy.

    Notes
    -----
    The utility of a trial is its tokens per iteration, divided by the ratio of its mean iteration
    time to that of the baseline. The paper leaves details open, which we read as follows. Utility
    "rose" if it is the largest of the test so far. A test starts at the last non-zero draft length
    that was set. Where one token has a utility below 1, the test ends without speculation only if
    no longer draft had a utility of at least 1. The climb does not step over a draft length of 1,
    and at the longest draft, or at 1, it turns round after its first trial.

    Examples
    --------
    >>> policy = Cascade()
    >>> for _ in range(4):
    ...     policy.observe(1, 10e-3)
    >>> policy.phase, policy.propose()
    ('test', 2)
    """

    def __init__(self, settings: CascadeSettings | None = None) -> None:
        self.settings = settings or CascadeSettings()
        self.utility = float("nan")  # of the last trial
        self._start = self.settings.first_draft_length
        self._set_length = self.settings.set_iterations
        self._base = float("nan")
        self._since_baseline = 0
        self._enter(BASELINE, 0, self.settings.baseline_iterations)

    def propose(self) -> int:
        """Return the draft length of the next iteration [token]."""
        return self._draft_length

    def observe(self, emitted_tokens: int, step_time: float) -> None:
        """Take in an iteration.

        Parameters
        ----------
        emitted_tokens
            What it emitted, bonus token included [token].
        step_time
            How long it took [s].
        """
        self._tokens += emitted_tokens
        self._time += step_time
        self._left -= 1
        if self._left:
            return
        self._since_baseline += self._length
        if self.phase == BASELINE:
            self._take_baseline()
            self._start_test()
        elif self.phase == TEST:
            self._end_trial()
        else:
            self._end_set()

    def _enter(self, phase: str, draft_length: int, iterations: int) -> None:
        self.phase = phase
        self._draft_length = draft_length
        self._length = self._left = iterations
        self._tokens, self._time = 0, 0.0

    def _take_baseline(self) -> None:
        self._base = self._time / self._length
        self._since_baseline = 0

    def _start_test(self) -> None:
        first = self._start if self.settings.climb else 1
        self._low = self._high = first
        self._trials = 0
        self._best, self._best_utility = first, float("-inf")
        self._enter(TEST, first, self.settings.trial_iterations)

    def _end_trial(self) -> None:
        """Measure the utility of the draft length tried; try another, or set the best."""
        previous, tried = self.utility, self._draft_length
        self.utility = self._tokens * self._base / self._time
        self._trials += 1
        rose = self.utility > self._best_utility
        if rose:
            self._best, self._best_utility = tried, self.utility
        self._low, self._high = min(self._low, tried), max(self._high, tried)
        following = self._next_trial(previous, rose=rose)
        if following > 0:
            self._enter(TEST, following, self.settings.trial_iterations)
            return
        sees_plain = self.settings.plain_competes or following == 0
        self._set(0 if sees_plain and self._best_utility < 1 else self._best)

    def _next_trial(self, previous: float, *, rose: bool) -> int:
        """Return the next draft length: 0 for no speculation, -1 if the test is over."""
        s, tried = self.settings, self._draft_length
        if not s.climb:
            return tried + 1 if tried < s.max_draft_length else 0
        if tried == 1 and self.utility < 1:
            return 0
        if self._is_over(previous, rose=rose):
            return -1
        self._up = self._goes_up(rose=rose)
        if not self._up:
            return max(self._low - s.climb_step, 1) if self._low > 1 else 0
        following = self._high + s.climb_step
        return following if following <= s.max_draft_length else -1

    def _is_over(self, previous: float, *, rose: bool) -> bool:
        """Return whether the test ends: utilities are similar, or past their maximum."""
        s, trials = self.settings, self._trials
        if trials >= s.max_trials:
            return True
        if not s.early_exit or trials == 1:
            return False
        is_similar = abs(self.utility - previous) <= s.tolerance * previous
        return is_similar or (trials > 2 and not rose)

    def _goes_up(self, *, rose: bool) -> bool:
        """Return whether the next draft is longer: on while utility rises, else back."""
        s, tried = self.settings, self._draft_length
        if self._trials > 1:
            return self._up == rose  # the same direction, or round
        if tried + s.climb_step > s.max_draft_length:
            return False
        by_utility = self.utility >= 1
        wanted = {"up": True, "down": False, "by utility": by_utility}[s.first_direction]
        return wanted or tried == 1

    def _set(self, draft_length: int) -> None:
        """Hold a draft length; each time none is chosen, for longer."""
        if draft_length:
            self._start, self._set_length = draft_length, self.settings.set_iterations
        else:
            self._set_length *= self.settings.backoff_factor
        self._enter(SET, draft_length, self._set_length)

    def _end_set(self) -> None:
        if self._draft_length == 0:
            self._take_baseline()
        if self._since_baseline >= self.settings.baseline_interval:
            self._enter(BASELINE, 0, self.settings.baseline_iterations)
        else:
            self._start_test()
