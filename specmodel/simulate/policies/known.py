"""The policies of the package that learn, by name."""

from specmodel.simulate.policies.cascade import Cascade
from specmodel.simulate.policies.goodput import Goodput
from specmodel.simulate.policies.policy import LearningPolicy
from specmodel.simulate.policies.sglang import AdaptiveSteps

KNOWN: dict[str, type[LearningPolicy]] = {
    kind.name: kind for kind in (Cascade, Goodput, AdaptiveSteps)
}
"""Their classes."""
