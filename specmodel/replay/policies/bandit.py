"""A bandit whose arms are draft lengths."""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from specmodel.base.errors import InputError
from specmodel.replay.policies.policy import ASKED, FREE, StatePolicy, is_number, whole_number

# places of whole numbers; the arms follow
ARM, ARMS, FIRST_ARM = range(FREE, FREE + 3)
# places of real numbers; weights, tokens, seconds and widths by arm follow
KEPT, WIDTH, IS_BOUND, SUMS = range(4)


class DiscountedBandit(StatePolicy):
    """Treat draft lengths as the arms of a bandit whose reward is tokens per second.

    Tokens and seconds of each arm are sums in which older steps count less. An arm seen with
    weight w has a spread in proportion to 1 / sqrt(w), as the mean of w observations has.

    Parameters
    ----------
    draft_lengths
        The arms [token].
    method, generator
        "ucb" for the largest upper confidence bound, "thompson" for the largest draw, and the
        source of these draws.
    discount, width
        Weight that an observation keeps at the next step; and the width of the bound, or standard
        deviation of the draw, relative to the mean reward of an arm seen once [-].
    """

    def __init__(
        self,
        draft_lengths: Sequence[int],
        method: Literal["ucb", "thompson"] = "ucb",
        discount: float = 0.98,
        width: float = 0.3,
        generator: np.random.Generator | None = None,
    ) -> None:
        if method not in ("ucb", "thompson"):
            raise InputError("bandit method", method, "ucb or thompson")
        if not (is_number(width) and 0 <= width < math.inf):
            raise InputError("bandit width", width, "a number of at least 0")
        if method == "thompson" and generator is None:
            raise InputError("bandit generator", None, "a generator, as thompson draws")
        if not (is_number(discount) and 0 < discount <= 1):
            raise InputError("bandit discount", discount, "a number above 0, at most 1")
        if not len(draft_lengths):
            raise InputError("bandit draft_lengths", draft_lengths, "at least one draft length")
        arms = [whole_number("bandit draft_lengths", each, 0) for each in draft_lengths]
        self.generator = generator if method == "thompson" else None
        whole = [arms[0], 0, 0, len(arms), *arms]
        is_bound = float(self.generator is None)
        sums = [0.0] * (3 * len(arms)) + [1.0] * len(arms)
        super().__init__(whole, [float(discount), float(width), is_bound, *sums])

    def observe(
        self, emitted_tokens: int, step_time: float, drafted_tokens: int | None = None
    ) -> None:
        """Take in what a step emitted [token] and how long it took [s]."""
        if self.generator is not None:
            arms = self.whole[ARMS]
            seconds = self.real[SUMS + 2 * arms : SUMS + 3 * arms]
            seconds[self.whole[ARM]] += step_time
            if min(seconds) > 0:
                self.real[SUMS + 3 * arms :] = self.generator.standard_normal(arms).tolist()
        super().observe(emitted_tokens, step_time, drafted_tokens)


def bandit(
    whole: list[int], real: list[float], emitted_tokens: int, step_time: float, drafted: int
) -> None:
    """Take in what a step emitted [token] and how long it took [s]."""
    arms, kept = whole[ARMS], real[KEPT]
    for i in range(SUMS, SUMS + 3 * arms):
        real[i] *= kept
    here = SUMS + whole[ARM]
    real[here] += 1
    real[here + arms] += emitted_tokens
    real[here + 2 * arms] += step_time
    whole[ARM] = best_arm(whole, real)
    whole[ASKED] = whole[FIRST_ARM + whole[ARM]]


DiscountedBandit.react = bandit


def best_arm(whole: list[int], real: list[float]) -> int:
    """Return the arm to play: one not yet seen, else the one with the highest score."""
    arms = whole[ARMS]
    weight = tokens = seconds = 0.0
    for arm in range(arms):
        if real[SUMS + arm] == 0 or real[SUMS + 2 * arms + arm] == 0:
            return arm
        weight += real[SUMS + arm]
        tokens += real[SUMS + arms + arm]
        seconds += real[SUMS + 2 * arms + arm]
    scale = real[WIDTH] * tokens / seconds
    if real[IS_BOUND] > 0:
        scale *= math.sqrt(math.log(1 + weight))
    best, most = 0, -math.inf
    for arm in range(arms):
        at = SUMS + arm
        mean = real[at + arms] / real[at + 2 * arms]
        score = mean + scale / math.sqrt(real[at]) * real[at + 3 * arms]
        if score > most:
            best, most = arm, score
    return best


PARTS = bandit, best_arm
"""The functions that numba compiles."""
