"""Cascade, the utility-driven policy of [1]_: a baseline, tests of draft lengths, a set phase.

References
----------
.. [1] A. Saxena et al., "Utility-Driven Speculative Decoding for Mixture-of-Experts,"
   arXiv:2506.20675, 2025.
"""

from dataclasses import dataclass, fields
from typing import Literal

from specmodel.base.errors import InputError
from specmodel.replay.policies.policy import (
    ASKED,
    FREE,
    TESTING,
    StatePolicy,
    is_number,
)

PHASES = ("baseline", "test", "set")
BASELINE, TEST, SET = range(3)
"""Phases of the policy, by number."""
DIRECTIONS = ("by utility", "up", "down")
BY_UTILITY, UP, DOWN = range(3)
"""Where the climb goes first, by number."""

# places of whole numbers: the state, then settings, which stay what they are
PHASE, LEFT, LENGTH, TOKENS, SINCE_BASELINE, START, SET_LENGTH = range(FREE, FREE + 7)
BEST, LOW, HIGH, TRIALS, GOES_UP = range(FREE + 7, FREE + 12)
LONGEST, CLIMB_STEP, DIRECTION, BASELINES, INTERVAL, TRIAL = range(FREE + 12, FREE + 18)
MAX_TRIALS, SETS, FACTOR, COMPETES, CLIMBS, EXITS = range(FREE + 18, FREE + 24)
# places of real numbers
TIME, BASE, UTILITY, BEST_UTILITY, START_UTILITY, TOLERANCE = range(6)
NEVER = -1.0
"""Utility of a draft length that was not yet set: below every other."""

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
        if self.first_direction not in DIRECTIONS:
            expected = "by utility, up or down"
            raise InputError("cascade first_direction", self.first_direction, expected)


class Cascade(StatePolicy):
    """Choose draft lengths for one request from its own tokens and times.

    The utility of a trial is its tokens per iteration, divided by the ratio of its mean iteration
    time to that of the baseline. The paper leaves details open, which we read as follows. Utility
    "rose" if it is the largest of the test so far. A test starts at the draft length that gave the
    highest utility when it was set; what it gives when it is set again takes the place of that.
    Where one token has a utility below 1, the test ends without speculation only if no longer
    draft had a utility of at least 1. The climb does not step over a draft length of 1, and at the
    longest draft, or at 1, it turns round after its first trial.

    Parameters
    ----------
    settings
        Every number of the policy.
    """

    def __init__(self, settings: CascadeSettings | None = None) -> None:
        self.settings = s = settings or CascadeSettings()
        whole = [0] * (FREE + 24)
        whole[LONGEST:] = [
            s.max_draft_length, s.climb_step, DIRECTIONS.index(s.first_direction),
            s.baseline_iterations, s.baseline_interval, s.trial_iterations, s.max_trials,
            s.set_iterations, s.backoff_factor, s.plain_competes, s.climb, s.early_exit,
        ]  # fmt: skip
        whole[START], whole[SET_LENGTH] = s.first_draft_length, s.set_iterations
        nan = float("nan")
        super().__init__(whole, [0.0, nan, nan, NEVER, NEVER, float(s.tolerance)])
        enter(whole, self.real, BASELINE, 0, s.baseline_iterations)

    @property
    def phase(self) -> str:
        """What the next step is part of: baseline, test or set."""
        return PHASES[self.whole[PHASE]]

    @property
    def utility(self) -> float:
        """Utility of the last trial, NaN before the first [-]."""
        return self.real[UTILITY]


def cascade(
    whole: list[int], real: list[float], emitted_tokens: int, step_time: float, drafted: int
) -> None:
    """Take in an iteration: what it emitted [token] and how long it took [s]."""
    whole[TOKENS] += emitted_tokens
    real[TIME] += step_time
    whole[LEFT] -= 1
    if whole[LEFT] == 0:
        end_phase(whole, real)


Cascade.react = cascade


def end_phase(whole: list[int], real: list[float]) -> None:
    """Go on to the next phase or trial."""
    whole[SINCE_BASELINE] += whole[LENGTH]
    phase = whole[PHASE]
    if phase == TEST:
        end_trial(whole, real)
    elif phase == SET:
        end_set(whole, real)
    else:
        take_baseline(whole, real)
        start_test(whole, real)


def enter(whole: list[int], real: list[float], phase: int, asked: int, length: int) -> None:
    """Begin a phase or trial of some iterations at a draft length [token]."""
    whole[PHASE], whole[ASKED], whole[TESTING] = phase, asked, 1 if phase == TEST else 0
    whole[LENGTH] = whole[LEFT] = length
    whole[TOKENS], real[TIME] = 0, 0.0


def take_baseline(whole: list[int], real: list[float]) -> None:
    """Take the time of plain iterations from the phase that ends."""
    real[BASE] = real[TIME] / whole[LENGTH]
    whole[SINCE_BASELINE] = 0


def start_test(whole: list[int], real: list[float]) -> None:
    """Begin a test with its first trial."""
    first = whole[START] if whole[CLIMBS] == 1 else 1
    whole[LOW] = whole[HIGH] = whole[BEST] = first
    whole[TRIALS], real[BEST_UTILITY] = 0, NEVER
    enter(whole, real, TEST, first, whole[TRIAL])


def measured(whole: list[int], real: list[float]) -> float:
    """Return the utility of the phase or trial that ends [-]."""
    return whole[TOKENS] * real[BASE] / real[TIME]


def end_trial(whole: list[int], real: list[float]) -> None:
    """Measure the utility of the draft length tried; try another, or set the best."""
    previous, tried = real[UTILITY], whole[ASKED]
    utility = measured(whole, real)
    real[UTILITY] = utility
    whole[TRIALS] += 1
    rose = utility > real[BEST_UTILITY]
    if rose:
        whole[BEST], real[BEST_UTILITY] = tried, utility
    whole[LOW], whole[HIGH] = min(whole[LOW], tried), max(whole[HIGH], tried)
    following = next_trial(whole, real, previous, rose)
    if following > 0:
        enter(whole, real, TEST, following, whole[TRIAL])
        return
    sees_plain = whole[COMPETES] == 1 or following == 0
    hold(whole, real, 0 if sees_plain and real[BEST_UTILITY] < 1 else whole[BEST])


def next_trial(whole: list[int], real: list[float], previous: float, rose: bool) -> int:
    """Return the next draft length: 0 for no speculation, -1 if the test is over [token]."""
    tried = whole[ASKED]
    if whole[CLIMBS] == 0:
        return tried + 1 if tried < whole[LONGEST] else 0
    if tried == 1 and real[UTILITY] < 1:
        return 0
    if is_over(whole, real, previous, rose):
        return -1
    goes_up = climbs_up(whole, real, rose)
    whole[GOES_UP] = 1 if goes_up else 0
    if goes_up:
        following = whole[HIGH] + whole[CLIMB_STEP]
        return following if following <= whole[LONGEST] else -1
    return max(whole[LOW] - whole[CLIMB_STEP], 1) if whole[LOW] > 1 else 0


def is_over(whole: list[int], real: list[float], previous: float, rose: bool) -> bool:
    """Return whether the test ends: utilities are similar, or past their maximum."""
    trials = whole[TRIALS]
    if trials >= whole[MAX_TRIALS]:
        return True
    if whole[EXITS] == 0 or trials == 1:
        return False
    if abs(real[UTILITY] - previous) <= real[TOLERANCE] * previous:
        return True
    return trials > 2 and not rose


def climbs_up(whole: list[int], real: list[float], rose: bool) -> bool:
    """Return whether the next draft is longer: on while utility rises, else back."""
    tried, direction = whole[ASKED], whole[DIRECTION]
    if whole[TRIALS] > 1:
        return (whole[GOES_UP] == 1) == rose  # the same direction, or round
    if tried + whole[CLIMB_STEP] > whole[LONGEST]:
        return False
    if tried == 1 or direction == UP:
        return True
    return direction == BY_UTILITY and real[UTILITY] >= 1


def hold(whole: list[int], real: list[float], asked: int) -> None:
    """Hold a draft length [token]; each time none is chosen, for longer."""
    whole[SET_LENGTH] = whole[SETS] if asked > 0 else whole[SET_LENGTH] * whole[FACTOR]
    enter(whole, real, SET, asked, whole[SET_LENGTH])


def end_set(whole: list[int], real: list[float]) -> None:
    """Keep the best length set as the start of tests; measure the baseline if it is due."""
    asked = whole[ASKED]
    if asked == 0:
        take_baseline(whole, real)
    else:
        utility = measured(whole, real)
        if asked == whole[START] or utility > real[START_UTILITY]:
            whole[START], real[START_UTILITY] = asked, utility
    if whole[SINCE_BASELINE] >= whole[INTERVAL]:
        enter(whole, real, BASELINE, 0, whole[BASELINES])
    else:
        start_test(whole, real)


PARTS = (
    cascade, end_phase, enter, take_baseline, start_test, measured, end_trial, next_trial, is_over,
    climbs_up, hold, end_set,
)  # fmt: skip
"""The functions that numba compiles."""
