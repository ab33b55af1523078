"""What varies from request to request and from step to step: loaded experts and timings.

Drawn by output position and not by step, so that all policies meet the same luck at the same
place: what they differ by is then their own doing.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specmodel.traces import Trace
from specmodel.units import check


@dataclass(frozen=True, kw_only=True)
class Variation:
    """How much the times of steps vary around those of the model; all defaults are ours.

    Parameters
    ----------
    timing_noise
        Standard deviation of the logarithm of a step's time; its mean stays [-].
    request_expert_spread, step_expert_spread
        Standard deviation, relative to the mean, of the experts that a verify pass loads beyond
        those of one token: from request to request and from step to step. Random routing with
        layers independent of each other gives 0.03 to 0.09 for a step of five MoEs [-].
    """

    timing_noise: float = 0.02
    request_expert_spread: float = 0.05
    step_expert_spread: float = 0.05

    def __post_init__(self) -> None:
        for name in ("timing_noise", "request_expert_spread", "step_expert_spread"):
            check(name, getattr(self, name), minimum=0, maximum=1)


NONE = Variation(timing_noise=0.0, request_expert_spread=0.0, step_expert_spread=0.0)
"""Every step takes the time of the model."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Luck:
    """What was drawn for a trace.

    Parameters
    ----------
    experts
        By position: relative change of the experts loaded beyond those of one token [-].
    noise
        By position: what the time of a step there is multiplied by [-].
    """

    experts: NDArray[np.float32]
    noise: NDArray[np.float32]


def draw_luck(trace: Trace, variation: Variation, generator: np.random.Generator) -> Luck:
    """Draw what varies.

    Parameters
    ----------
    trace
        Requests.
    variation
        How much.
    generator
        Source of the draws.

    Returns
    -------
    Luck
        By position; experts change by -1 to 1, no spread being so large in earnest.
    """
    size = len(trace.proposed_tokens)
    by_request = generator.standard_normal(trace.num_requests, dtype=np.float32)
    experts = generator.standard_normal(size, dtype=np.float32)
    experts *= np.float32(variation.step_expert_spread)
    experts += np.repeat(
        by_request * np.float32(variation.request_expert_spread), trace.output_tokens
    )
    np.clip(experts, -1, 1, out=experts)
    sigma = np.float32(variation.timing_noise)
    noise = generator.standard_normal(size, dtype=np.float32)
    noise *= sigma
    noise -= sigma * sigma / 2
    return Luck(experts=experts, noise=np.exp(noise, out=noise))
