"""A bandit whose arms are draft lengths."""

from __future__ import annotations

import math
from collections.abc import Sequence

from specmodel.core.base.units import check
from specmodel.simulate.policies.policy import LearningPolicy


def bandit(s: DiscountedBandit, emitted_tokens: int, step_time: float, drafted_tokens: int) -> None:
    """Update the arm played with its tokens [token] and time [s], and choose the next one."""
    weights, tokens, seconds = s.weights, s.tokens, s.seconds
    for arm in range(s.num_arms):
        weights[arm] *= s.discount
        tokens[arm] *= s.discount
        seconds[arm] *= s.discount
    weights[s.arm] += 1
    tokens[s.arm] += emitted_tokens
    seconds[s.arm] += step_time
    s.arm = best_arm(s)
    s.draft_length = s.arms[s.arm]


def best_arm(s: DiscountedBandit) -> int:
    """Return the arm to play: one not yet seen, else the one with the highest score."""
    weights, tokens, seconds = s.weights, s.tokens, s.seconds
    weight = all_tokens = all_seconds = 0.0
    for arm in range(s.num_arms):
        if weights[arm] == 0 or seconds[arm] == 0:
            return arm
        weight += weights[arm]
        all_tokens += tokens[arm]
        all_seconds += seconds[arm]
    scale = s.width * all_tokens / all_seconds * math.sqrt(math.log(1 + weight))
    best, most = 0, -math.inf
    for arm in range(s.num_arms):
        mean = tokens[arm] / seconds[arm]
        score = mean + scale / math.sqrt(weights[arm])
        if score > most:
            best, most = arm, score
    return best


class DiscountedBandit(LearningPolicy):
    """Treat draft lengths as the arms of a bandit whose reward is tokens per second.

    Tokens and seconds of each arm are sums in which older steps count less. An arm seen with
    weight w has a spread in proportion to 1 / sqrt(w), as the mean of w observations has.

    Parameters
    ----------
    draft_lengths
        The arms [token].
    discount, width
        Weight that an observation keeps at the next step; and the width of the upper confidence
        bound relative to the mean reward of an arm seen once [-].
    """

    name = "bandit"
    words = "a bandit over lengths, by upper confidence bounds; bandit:discount=0.9"
    rule = staticmethod(bandit)

    def __init__(
        self, draft_lengths: Sequence[int], discount: float = 0.98, width: float = 0.3
    ) -> None:
        lengths = check("bandit draft_lengths", draft_lengths, minimum=0, whole=True)
        arms: list[int] = lengths.ravel().astype(int).tolist()
        super().__init__(arms[0])
        self.discount = float(check("bandit discount", discount, above=0, maximum=1))
        self.width = float(check("bandit width", width, minimum=0))
        self.arms, self.num_arms, self.arm = arms, len(arms), 0
        self.weights, self.tokens, self.seconds = ([0.0] * len(arms) for _ in range(3))
