"""Cascade, the utility-driven policy of [1]_: a baseline, tests of draft lengths, set phases.

References
----------
.. [1] A. Saxena et al., "Utility-Driven Speculative Decoding for Mixture-of-Experts,"
   arXiv:2506.20675, 2025.
"""

from typing import Annotated, Any, Literal, Self

from msgspec import Meta

from specmodel.core.base.errors import InputError
from specmodel.core.base.records import Record, build, field_names
from specmodel.core.base.units import LARGEST_NUMBER
from specmodel.simulate.policies.policy import LearningPolicy

PHASES = ("baseline", "test", "set")
BASELINE, TEST, SET = range(3)
"""Phases of the policy, by number."""
CLIMBS_FROM = {"by utility": 1.0, "up": float("-inf"), "down": float("inf")}
"""Least utility of the first trial for which the climb goes up, by `first_direction` [-]."""
NEVER = -1.0
"""Utility of a draft length that was not set yet: below every other utility."""

MOST = 10**9
"""Largest whole number in the settings; the product of two fits in 64 bits [-]."""


Whole = Annotated[int, Meta(ge=1, le=MOST)]


class CascadeSettings(Record, frozen=True, kw_only=True):
    """Every number of the policy; "paper" marks numbers of the paper, "ours" the others.

    Parameters
    ----------
    first_draft_length, max_draft_length, climb_step
        Draft length of the very first trial; longest draft to try, the longest that the paper
        shows; step of the hill climb; all ours [token].
    first_direction
        Direction of the climb after the first trial: "by utility", which is up if the utility is at
        least 1 or else down, or always "up" or "down"; ours.
    baseline_iterations, baseline_interval
        Iterations without speculation that measure the baseline, ours for "the first few"; and
        iterations after which the baseline is measured again, at the end of a set phase, ours for
        "about every 100". A set phase without speculation measures the baseline for free [-].
    trial_iterations, max_trials, set_iterations
        Iterations of a trial, most trials of a test, iterations of a set phase; paper [-].
    tolerance
        Largest relative difference of two consecutive utilities that ends the test; paper [-].
    backoff_factor
        Factor on the length of set phases, each time that a set phase without speculation begins,
        until a non-zero draft length is chosen; 1 switches back-off off. Paper; its reset is ours
        [-].
    plain_competes
        Whether no speculation, which has utility 1, wins if all trials are below 1. If not, the
        best trial is set, unless the climb arrived at no speculation. Ours.
    climb, early_exit
        Whether a test climbs, or else tries all draft lengths from 1 to the longest; whether a test
        ends early, if two utilities are within the tolerance or a maximum was passed; paper.
    """

    first_draft_length: Whole = 2
    max_draft_length: Whole = 7
    climb_step: Whole = 1
    first_direction: Literal["by utility", "up", "down"] = "by utility"
    baseline_iterations: Whole = 4
    baseline_interval: Whole = 100
    trial_iterations: Whole = 4
    max_trials: Whole = 4
    set_iterations: Whole = 16
    tolerance: Annotated[float, Meta(ge=0, le=LARGEST_NUMBER)] = 0.10
    backoff_factor: Whole = 2
    plain_competes: bool = True
    climb: bool = True
    early_exit: bool = True

    def __post_init__(self) -> None:
        """Refuse a first trial beyond the longest."""
        if self.first_draft_length > self.max_draft_length:
            expected = f"at most max_draft_length = {self.max_draft_length}"
            raise InputError("first_draft_length", self.first_draft_length, expected)


def cascade(s: "Cascade", emitted_tokens: int, step_time: float, drafted_tokens: int) -> None:
    """Update the policy after an iteration; at the end of a phase or trial, begin the next one.

    A test climbs from the best known draft length. A set phase uses the result of the test.
    """
    s.tokens += emitted_tokens
    s.seconds += step_time
    s.left -= 1
    if s.left > 0:
        return
    s.since_baseline += s.iterations
    if s.phase_number == TEST:
        end_trial(s)
        return
    if s.draft_length == 0:  # a baseline, or a set phase without speculation
        s.plain_time = s.seconds / s.iterations
        s.since_baseline = 0
    else:
        utility = measured_utility(s)
        if s.draft_length == s.start or utility > s.start_utility:
            s.start, s.start_utility = s.draft_length, utility
    if s.since_baseline >= s.settings.baseline_interval:
        begin(s, BASELINE, 0, s.settings.baseline_iterations)
        return
    first = s.start if s.settings.climb else 1
    s.lowest = s.highest = s.best = first
    s.trials, s.best_utility = 0, NEVER
    begin(s, TEST, first, s.settings.trial_iterations)


def begin(s: "Cascade", phase: int, draft_length: int, iterations: int) -> None:
    """Begin a phase or trial of some iterations at a draft length [token]."""
    s.phase_number, s.draft_length, s.is_test = phase, draft_length, phase == TEST
    s.iterations = s.left = iterations
    s.tokens, s.seconds = 0, 0.0


def measured_utility(s: "Cascade") -> float:
    r"""Return the utility of the phase or trial: tokens per iteration over its relative time [-].

    .. math:: U = \mathrm{ETR} \cdot t_\mathrm{plain} / t_\mathrm{iteration}
    """
    return s.tokens * s.plain_time / s.seconds


def end_trial(s: "Cascade") -> None:
    """Measure the trial; begin another trial or a set phase, longer if without speculation."""
    previous = s.utility
    s.utility = measured_utility(s)
    s.trials += 1
    rose = s.utility > s.best_utility
    if rose:
        s.best, s.best_utility = s.draft_length, s.utility
    s.lowest, s.highest = min(s.lowest, s.draft_length), max(s.highest, s.draft_length)
    following = next_trial(s, previous, rose)
    if following > 0:
        begin(s, TEST, following, s.settings.trial_iterations)
        return
    sees_plain = s.settings.plain_competes or following == 0
    if sees_plain and s.best_utility < 1:
        s.set_iterations *= s.settings.backoff_factor
        begin(s, SET, 0, s.set_iterations)
    else:
        s.set_iterations = s.settings.set_iterations
        begin(s, SET, s.best, s.set_iterations)


def next_trial(s: "Cascade", previous: float, rose: bool) -> int:
    """Return the next draft length: 0 for no speculation, -1 if the test is over [token]."""
    tried, longest, step = s.draft_length, s.settings.max_draft_length, s.settings.climb_step
    if not s.settings.climb:
        return tried + 1 if tried < longest else 0
    if tried == 1 and s.utility < 1:
        return 0
    if s.trials >= s.settings.max_trials:
        return -1
    if s.settings.early_exit and s.trials > 1:
        is_similar = abs(s.utility - previous) <= s.settings.tolerance * previous
        if is_similar or (s.trials > 2 and not rose):
            return -1
    if s.trials > 1:
        s.goes_up = s.goes_up == rose  # continue in the same direction, or turn round
    else:
        s.goes_up = tried + step <= longest and (tried == 1 or s.utility >= s.climbs_from)
    if s.goes_up:
        return s.highest + step if s.highest + step <= longest else -1
    return max(s.lowest - step, 1) if s.lowest > 1 else 0


class Cascade(LearningPolicy):
    """Choose draft lengths for one request from its own tokens and times.

    The utility of a trial is its tokens per iteration, divided by the ratio of its mean iteration
    time to that of the baseline. The paper leaves details open, which we read as follows. Utility
    "rose" if it is the largest of the test so far. A test starts at the draft length with the best
    utility in a set phase; each new set phase at that length updates its utility. Where one token
    has a utility below 1, the test ends without speculation only if no longer draft had a utility
    of at least 1. The climb does not step over a draft length of 1, and at the longest draft, or at
    1, it turns round after its first trial.

    Parameters
    ----------
    settings
        Every number of the policy.
    """

    name = "cascade"
    words = (
        "tests draft lengths, and stops drafting while no length pays; settings follow colons:"
        " cascade:first_draft_length=1:backoff_factor=1"
    )
    rule = staticmethod(cascade)

    def __init__(self, settings: CascadeSettings | None = None) -> None:
        super().__init__()
        self.settings = settings or CascadeSettings()
        self.climbs_from = CLIMBS_FROM[self.settings.first_direction]
        # the phase or trial
        self.phase_number, self.iterations, self.left, self.tokens, self.seconds = 0, 0, 0, 0, 0.0
        self.plain_time, self.since_baseline = float("nan"), 0  # of the baseline, and iterations
        # the test: its best, lowest and highest draft length, and the utility of its last trial
        self.trials = self.best = self.lowest = self.highest = 0
        self.utility, self.best_utility, self.goes_up = float("nan"), NEVER, False
        # from test to test: the start of the next test, and the length of set phases
        self.start, self.start_utility = self.settings.first_draft_length, NEVER
        self.set_iterations = self.settings.set_iterations
        begin(self, BASELINE, 0, self.settings.baseline_iterations)

    @classmethod
    def by_settings(cls, step_time: list[float], **settings: Any) -> Self:
        """Return a policy with these settings and drafts no longer than `step_time` covers.

        A longer ``max_draft_length`` is refused if it is given, and cut if it is the default.
        """
        longest = len(step_time) - 1
        asked = settings.get("max_draft_length", min(CascadeSettings().max_draft_length, longest))
        if isinstance(asked, int) and asked > longest:
            expected = f"at most {longest}, the longest draft length to consider"
            raise InputError("cascade.max_draft_length", asked, expected)
        first = {"first_draft_length": 1} if asked == 1 else {}
        told = first | {"max_draft_length": asked} | settings
        return cls(build(CascadeSettings, told, "cascade"))

    @classmethod
    def settings_taken(cls) -> set[str]:
        """Return the names of the settings that the user may add to the policy's name."""
        return {*field_names(CascadeSettings)}

    @property
    def phase(self) -> str:
        """Phase of the next step: baseline, test or set."""
        return PHASES[self.phase_number]
