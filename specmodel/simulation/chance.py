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
        Standard deviation of a step's time, relative to its mean [-].
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
            check(name, getattr(self, name), minimum=0, maximum=0.4)


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
        By position; a pass loads at least the experts of one token.
    """
    size = len(trace.proposed_tokens)
    by_request = _bell(trace.num_requests, variation.request_expert_spread, generator)
    experts = _bell(size, variation.step_expert_spread, generator)
    experts += np.repeat(by_request, trace.output_tokens)
    np.maximum(experts, -1, out=experts)
    noise = _bell(size, variation.timing_noise, generator)
    noise += 1
    return Luck(experts=experts, noise=noise)


def _bell(
    size: int, standard_deviation: float, generator: np.random.Generator
) -> NDArray[np.float32]:
    """Draw the sum of two uniforms, of mean 0: bounded, and three times as quick as normals."""
    draws = generator.random(size, dtype=np.float32)
    draws += generator.random(size, dtype=np.float32)
    draws -= 1
    draws *= np.float32(np.sqrt(6) * standard_deviation)
    return draws
