"""The policies of the package that learn, by name."""

from specmodel.replay.policies.bandit import DiscountedBandit
from specmodel.replay.policies.cascade import Cascade
from specmodel.replay.policies.goodput import Goodput
from specmodel.replay.policies.policy import LearningPolicy
from specmodel.replay.policies.sglang import AdaptiveSteps

KNOWN: dict[str, type[LearningPolicy]] = {
    kind.name: kind for kind in (DiscountedBandit, Cascade, Goodput, AdaptiveSteps)
}
"""Their classes."""
