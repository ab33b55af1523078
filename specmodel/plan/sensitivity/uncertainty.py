"""Find the ranges of inputs: given, published, and from the errors of fits."""

import math
from collections.abc import Mapping
from typing import Literal, TypeAlias

import numpy as np
from msgspec import Struct

from specmodel.core.algebra.experts import PLAUSIBLE_POPULARITY_SPREADS
from specmodel.core.base.errors import InputError
from specmodel.core.base.units import NORMAL_80, FloatArray
from specmodel.core.cost.deployment import Deployment
from specmodel.core.cost.passes import MESSAGES
from specmodel.core.machines.engine import FACTORS
from specmodel.core.prediction import intervals
from specmodel.core.prediction.accepted import task_spread
from specmodel.plan.sensitivity.inputs import OperatingPoint, find_input, list_inputs

_ROUTING = ("routing_correlation", "popularity_spread")
_KNOWN = 1e-6
"""Relative spread below which a fitted number counts as exact [-]."""
_Source: TypeAlias = Literal["given", "published", "tasks", "calibration"]


class Range(Struct, frozen=True, kw_only=True):
    """Uncertainty of an input: two ends, and the law of the values between and beyond them.

    Parameters
    ----------
    low, high, minimum, maximum
        Ends of a uniform law, or of the central 80 % of another law; bounds of all values [-].
    law, source
        Law of the value, and its source.
    """

    low: float
    high: float
    law: Literal["uniform", "normal", "lognormal"] = "uniform"
    source: _Source = "given"
    minimum: float = -math.inf
    maximum: float = math.inf

    @property
    def ends(self) -> tuple[float, float]:
        """Both ends, within the bounds [-]."""
        low, high = np.clip([self.low, self.high], self.minimum, self.maximum).tolist()
        return low, high

    def ppf(self, q: FloatArray) -> FloatArray:
        """Return quantiles at probabilities above 0 and below 1, of any shape [-]."""
        if self.law == "uniform":
            return np.asarray(self.low + q * (self.high - self.low))
        from scipy.special import ndtri

        is_log = self.law == "lognormal"
        low, high = (math.log(end) if is_log else end for end in (self.low, self.high))
        values = (low + high) / 2 + (high - low) / 2 / NORMAL_80 * ndtri(q)
        return np.asarray(np.clip(np.exp(values) if is_log else values, self.minimum, self.maximum))


Ranges: TypeAlias = Mapping[str, Range]
"""Ranges by the name of the input."""


def uncertain_ranges(
    deployment: Deployment,
    point: OperatingPoint,
    given: Mapping[str, tuple[float, float]] | None = None,
) -> dict[str, Range]:
    """Return the ranges of uncertain inputs, by name: given, published and calibrated ones.

    Acceptance is normal, with the spread of a drafter's acceptance between tasks. An assumed
    routing correlation is normal too (`assumed_routing`). The spread of popularity is then uniform
    over the range of published models.

    As in the intervals of a prediction, errors of kernels are lognormal, and overheads of an engine
    are normal and not negative. The ends bound the central 80 %. Parameters of kernels have a range
    only if you give one, because the errors include their uncertainty: they were measured
    on shapes left out of the fit. Overheads vary independently, with the marginal variances of the
    fit. In the fit they correlate, mostly with effects that cancel, and the outcome varies somewhat
    less.

    Parameters
    ----------
    deployment, point, given
        Deployment and operating point. Low and high ends of uniform laws by name of `list_inputs`,
        which replace other ranges [-].
    """
    known, given = list_inputs(deployment, point), given or {}
    found = calibrated_ranges(deployment, point)
    rate, spread = known["acceptance_rate"].value, task_spread(deployment)
    found["acceptance_rate"] = _normal(rate, spread, "tasks", maximum=1.0)
    spread = deployment.routing_deviation
    if spread and not given.keys() & {*_ROUTING}:
        low, high = PLAUSIBLE_POPULARITY_SPREADS
        correlation = _normal(float(deployment.routing_correlation), spread, "published")
        unequal = Range(low=low, high=high, source="published")
        found |= dict(zip(_ROUTING, (correlation, unequal), strict=True))
    for name, ends in given.items():
        item = find_input(known, name, "range")
        both = np.ravel(item.check(ends, f"range {name}")).tolist()
        if len(both) != 2:
            raise InputError(f"range {name}", ends, "a low and a high end")
        low, high = both
        if not low < high:
            expected = "a low end below the high end"
            raise InputError(f"range {name}", f"{low:g}:{high:g}", expected)
        found[name] = Range(low=low, high=high)
    return {name: found[name] for name in known if name in found}


def _normal(middle: float, spread: float, source: _Source, maximum: float = math.inf) -> Range:
    """Return the central 80 % of a normal law, without negative values."""
    low, high = middle - NORMAL_80 * spread, middle + NORMAL_80 * spread
    return Range(low=low, high=high, law="normal", source=source, minimum=0.0, maximum=maximum)


def _lognormal(middle: float, spread: float) -> Range:
    """Return the central 80 % of a number whose logarithm has this standard deviation [-]."""
    reach = math.exp(NORMAL_80 * spread)
    return Range(low=middle / reach, high=middle * reach, law="lognormal", source="calibration")


def calibrated_ranges(deployment: Deployment, point: OperatingPoint) -> dict[str, Range]:
    """Return the ranges of inputs, by name, from the fits of kernels and engine, if any.

    The errors of kernels are those of a prediction's intervals, written as independent factors. Let
    e and e' be the logarithms of a kind's errors in the plain and in the verify pass. Each is the
    sum of two terms: one of standard deviation c that a shape shares, and one of standard deviation
    r of the pass itself. The terms of both passes correlate by ρ (`likeness_of_passes`). The mean m
    of e and e' and their difference d = e' - e have covariance ``(Var e' - Var e) / 2 = 0``. As
    they are normal, they are independent, with variances ``c^2 + r^2 (1 + ρ) / 2`` and ``2 r^2 (1 -
    ρ)``. The input error is m, the input verify_error is d, and the errors of the passes are m -
    d/2 and m + d/2.

    Parameters
    ----------
    deployment, point
        Deployment and operating point, whose tokens decide how errors of passes correlate.
    """
    known = list_inputs(deployment, point)
    spreads = _error_spreads(deployment, point).items()
    found = {n: _lognormal(1.0, s) for n, s in spreads if n in known and s > _KNOWN}
    return found | _engine_ranges(deployment)


def _error_spreads(deployment: Deployment, point: OperatingPoint) -> dict[str, float]:
    """Return standard deviations of the logarithms of errors, as in `calibrated_ranges` [-]."""
    likeness = float(intervals.likeness_of_passes(deployment, point.draft_length + 1))
    spreads = {}
    for kind, fit in intervals.fits_of_models(deployment).items():
        common, row = fit.shape_spread, fit.row_spread
        both = math.sqrt((1 + likeness) / 2)
        spreads[f"kernels.{kind}.error"] = math.hypot(common, row * both)
        spreads[f"kernels.{kind}.verify_error"] = row * math.sqrt(2 * (1 - likeness))
        spreads[f"kernels.{kind}.draft_error"] = math.hypot(common, row)
    if deployment.engine.fit:
        spreads["engine.error"] = intervals.spread_of_step(deployment)
    if spreads:
        spreads["deployment.error"] = intervals.spread_of_deployment(deployment)
        spreads[f"{MESSAGES}.error"] = deployment.message_spread
    return spreads


def _engine_ranges(deployment: Deployment) -> dict[str, Range]:
    """Return the ranges of the overheads of an engine; {} if it has no fit."""
    fit, found = deployment.engine.fit, dict[str, Range]()
    if fit is None:
        return found
    variances = np.diag(fit.covariance).clip(0.0)  # rounding may leave one just below 0
    for name, variance in zip(fit.varied, variances.tolist(), strict=True):
        value = float(getattr(deployment.engine_overheads, name))
        spread = intervals.host_share(deployment, name) * math.sqrt(variance)
        if spread > _KNOWN and value:
            of_time = _normal(value, value * spread, "calibration")
            found[f"engine.{name}"] = _lognormal(value, spread) if name in FACTORS else of_time
    return found
