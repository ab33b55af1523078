"""Draw random numbers: their streams, and the noise of requests and steps.

Noise varies the experts that a pass loads, and the time of a step, around their means. It is drawn
by output position and not by step. All policies then have the same noise at the same place of an
output, and differ only by their own decisions.
"""

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict
from numpy.typing import NDArray

from specmodel.core.base.units import FloatArray, check
from specmodel.simulate.traces import Trace

TRACE, NOISE, POLICY = range(3)
"""What a stream of random numbers is for."""


def stream(seed: int, purpose: int, *numbers: int) -> np.random.Generator:
    """Return a random generator that is independent of those for other purposes or numbers."""
    key = (purpose, *numbers)
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


class Variation(Struct, frozen=True, kw_only=True):
    """Variation of step times around those of the model. The defaults are our assumptions.

    Parameters
    ----------
    timing_noise, request_expert_spread, step_expert_spread
        Standard deviations, relative to the mean: of a step's time, and of the number of experts
        that a verify pass loads beyond those of one token, between requests and between steps. With
        random routing and independent layers, five published MoEs have 0.03 to 0.09 between steps
        [-].
    """

    timing_noise: float = 0.02
    request_expert_spread: float = 0.05
    step_expert_spread: float = 0.05

    def __post_init__(self) -> None:
        for name, spread in asdict(self).items():
            check(name, spread, minimum=0, maximum=0.2)


class Noise(Struct, frozen=True, kw_only=True, eq=False):
    """What was drawn for a trace: one byte by position for each quantity, and what bytes stand for.

    `experts` is the relative change, by request, of the experts loaded beyond those of one token
    [-]. Draws are numbers from 0 to 254; levels say by that number how far the experts change
    further, and the factor on the time of a step [-].
    """

    experts: FloatArray
    expert_draws: NDArray[np.uint8]
    noise_draws: NDArray[np.uint8]
    expert_levels: FloatArray
    noise_levels: FloatArray

    def sums(self, trace: Trace) -> FloatArray:
        """Return the sum of the factors on times over the positions of each request [-]."""
        draws = np.add.reduceat(self.noise_draws, trace.starts, dtype=np.int64)
        width = self.noise_levels[1] - self.noise_levels[0]
        return np.asarray(trace.output_tokens * self.noise_levels[0] + draws * width)


def draw_noise(trace: Trace, variation: Variation, generator: np.random.Generator) -> Noise:
    """Draw the noise of every request and position, in an order that no policy changes."""
    size = len(trace.proposed_tokens)
    requests = _draws(trace.num_requests, generator)
    return Noise(
        experts=_levels(variation.request_expert_spread)[requests],
        expert_draws=_draws(size, generator),
        noise_draws=_draws(size, generator),
        expert_levels=_levels(variation.step_expert_spread),
        noise_levels=1 + _levels(variation.timing_noise),
    )


def _draws(size: int, generator: np.random.Generator) -> NDArray[np.uint8]:
    """Draw sums of two whole numbers that are uniform from 0 to 127, each sum in one byte.

    The triangular law of the sum stands in for a normal one: it never goes beyond 2.4 standard
    deviations, so no time becomes negative, and takes a tenth of the time and an eighth of the
    memory.
    """
    first, second = (generator.integers(0, 256, size, dtype=np.uint8) for _ in range(2))
    first >>= 1
    second >>= 1
    first += second
    return first


def _levels(standard_deviation: float) -> FloatArray:
    """Return what the sums 0 to 254 stand for: equal steps around 0, with this deviation [-].

    A whole number that is uniform on n values has variance (n² - 1) / 12, and the variances of
    two independent ones add up: the sums have 2 (128² - 1) / 12 around their mean of 127.
    """
    of_draws = np.sqrt(2 * (128**2 - 1) / 12)
    return np.asarray(np.arange(-127, 128) * (standard_deviation / of_draws))
