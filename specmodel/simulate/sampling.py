"""Draw random numbers: their streams, and the noise of requests and steps.

Noise varies the number of experts that a pass loads, and the time of a step, around their means.
Noise is drawn for each output position and not for each step. All policies then have the same noise
at the same position of an output, and differ only by their own decisions.
"""

from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict
from numpy.typing import NDArray

from specmodel.core.base.units import FloatArray, check
from specmodel.simulate.traces import Trace

TRACE, NOISE, POLICY = range(3)
"""Purposes of streams of random numbers."""


def stream(seed: int, purpose: int, *numbers: int) -> np.random.Generator:
    """Return a random generator that is independent of those for other purposes or numbers."""
    key = (purpose, *numbers)
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


class Variation(Struct, frozen=True, kw_only=True):
    """Variation of step times around the times of the model. The defaults are our assumptions.

    Parameters
    ----------
    timing_noise
        Standard deviation of a step's time, relative to its mean [-].
    request_expert_spread, step_expert_spread
        Standard deviations, between requests and between steps, of the number of experts that a
        verify pass loads beyond those of one token, relative to the mean. With random routing and
        independent layers, five published MoEs have 0.03 to 0.09 between steps [-].
    """

    timing_noise: float = 0.02
    request_expert_spread: float = 0.05
    step_expert_spread: float = 0.05

    def __post_init__(self) -> None:
        for name, spread in asdict(self).items():
            check(name, spread, minimum=0, maximum=0.2)


class Noise(NamedTuple):
    """The noise of a trace: one byte for each position and quantity, and the value of each byte.

    `experts` is the relative change, by request, of the experts that a pass loads beyond those of
    one token. `expert_draws` and `noise_draws` are numbers from 0 to 254. `expert_levels` is the
    further change of the experts, and `noise_levels` the factor on the time of a step, by the
    number drawn [-]. The fields are arrays, or lists where Python runs the serial loop.
    """

    experts: Any
    expert_draws: Any
    noise_draws: Any
    expert_levels: Any
    noise_levels: Any


def draw_noise(trace: Trace, variation: Variation, generator: np.random.Generator) -> Noise:
    """Return the noise of every request and position; it does not depend on the policy."""
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
    """Return sums of two whole numbers that are uniform from 0 to 127, each sum in one byte.

    The triangular law of the sum replaces a normal law. No draw exceeds 2.4 standard deviations,
    so no time becomes negative. Compared with normal draws of floats, drawing takes a tenth of the
    time and an eighth of the memory.
    """
    first, second = (generator.integers(0, 256, size, dtype=np.uint8) for _ in range(2))
    first >>= 1
    second >>= 1
    first += second
    return first


def _levels(standard_deviation: float) -> FloatArray:
    """Return the values of the sums 0 to 254: equal steps around 0, with this deviation [-].

    A whole number that is uniform on n values has the variance (n² - 1) / 12. The variances of two
    independent numbers add up, so the variance of a sum is 2 (128² - 1) / 12.
    """
    of_draws = np.sqrt(2 * (128**2 - 1) / 12)
    return np.asarray(np.arange(-127, 128) * (standard_deviation / of_draws))
