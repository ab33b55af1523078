"""What varies from request to request and from step to step: loaded experts and timings.

Drawn by output position and not by step, so that all policies meet the same luck at the same
place: what they differ by is then their own doing.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from specmodel.base.units import FloatArray, check
from specmodel.replay.traces import Trace


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
            check(name, getattr(self, name), minimum=0, maximum=0.2)


@dataclass(frozen=True, kw_only=True, eq=False)
class Luck:
    """What was drawn for a trace: a byte by position, and what it stands for.

    Parameters
    ----------
    request_experts
        By request: relative change of the experts loaded beyond those of one token [-].
    expert_draws, noise_draws
        By position, from 0 to 254.
    expert_levels, noise_levels
        By draw: further change of the experts, and what the time of a step is multiplied by [-].
    """

    request_experts: FloatArray
    expert_draws: NDArray[np.uint8]
    noise_draws: NDArray[np.uint8]
    expert_levels: FloatArray
    noise_levels: FloatArray

    def of(self, request: int, positions: slice) -> "Luck":
        """Return the luck of one request, at its positions of the trace [-]."""
        return replace(
            self,
            request_experts=self.request_experts[request : request + 1],
            expert_draws=self.expert_draws[positions],
            noise_draws=self.noise_draws[positions],
        )

    def noise_sums(self, trace: Trace) -> FloatArray:
        """Return the sum of the noise over the positions of each request [-]."""
        draws = np.add.reduceat(self.noise_draws, trace.starts, dtype=np.int64)
        width = self.noise_levels[1] - self.noise_levels[0]
        return np.asarray(trace.output_tokens * self.noise_levels[0] + draws * width)


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
        Of every request and position.
    """
    size = len(trace.proposed_tokens)
    requests = _draws(trace.num_requests, generator)
    return Luck(
        request_experts=_levels(variation.request_expert_spread)[requests],
        expert_draws=_draws(size, generator),
        noise_draws=_draws(size, generator),
        expert_levels=_levels(variation.step_expert_spread),
        noise_levels=1 + _levels(variation.timing_noise),
    )


def _draws(size: int, generator: np.random.Generator) -> NDArray[np.uint8]:
    """Draw sums of two numbers from 0 to 127: a tenth of the time of normals, and bounded."""
    first, second = (generator.integers(0, 256, size, dtype=np.uint8) for _ in range(2))
    first >>= 1
    second >>= 1
    first += second
    return first


def _levels(standard_deviation: float) -> FloatArray:
    """Return what the draws stand for: equally spaced around 0, with this deviation [-]."""
    of_draws = np.sqrt(2 * (128**2 - 1) / 12)
    return np.asarray(np.arange(-127, 128) * (standard_deviation / of_draws))
