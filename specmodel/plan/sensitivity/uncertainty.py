"""Find ranges of inputs: given, from published models, and from the fits' covariance."""

import math
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import numpy as np
from msgspec import Struct

from specmodel.core.algebra.acceptance import between_tasks
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
"""Relative spread below which a fitted number is taken as known [-]."""


class Range(Struct, frozen=True, kw_only=True):
    """Uncertainty of an input: two ends, and the law of the values between and beyond them.

    Parameters
    ----------
    low, high, minimum, maximum
        Ends of a uniform law, or of the central 80 % of another law; bounds of quantiles [-].
    law, source
        Law of the value, and its source.
    """

    low: float
    high: float
    law: Literal["uniform", "normal", "lognormal"] = "uniform"
    source: Literal["given", "published", "tasks", "calibration"] = "given"
    minimum: float = -math.inf
    maximum: float = math.inf

    @property
    def ends(self) -> tuple[float, float]:
        """Both ends within the bounds [-]."""
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

    Acceptance is normal, with the spread between tasks of one head. An assumed routing correlation
    is normal too (`assumed_routing`). The spread of popularity is then uniform over that of
    published models.

    As in the intervals of a prediction, errors of kernels are lognormal, and overheads of an engine
    normal and not negative. Ends are those of the central 80 %. Parameters of kernels have no range
    unless you give one: their uncertainty is in the errors, measured on shapes left out of the fit.
    Overheads are treated as independent, with the marginal variances of the fit. In fact they
    correlate, mostly so that their effects cancel, and the outcome varies somewhat less.

    Parameters
    ----------
    deployment, point, given
        What runs where, and the operating point. Low and high ends of uniform laws, by name of
        `list_inputs`, which replace other ranges [-].
    """
    known = list_inputs(deployment, point)
    low, high = between_tasks(known["acceptance_rate"].value, task_spread(deployment))
    told: dict[str, Any] = {"law": "normal", "source": "tasks", "minimum": 0.0, "maximum": 1.0}
    found = calibrated_ranges(deployment, point)
    found["acceptance_rate"] = Range(low=low, high=high, **told)
    if not (given or {}).keys() & set(_ROUTING):
        found |= {name: each for name, each in _of_routing(deployment).items() if name in known}
    for name, both in (given or {}).items():
        item = find_input(known, name, "range")
        low, high = item.check(both, f"range {name}").tolist()
        if not low < high:
            expected = "a low end below the high end"
            raise InputError(f"range {name}", f"{low:g}:{high:g}", expected)
        found[name] = Range(low=low, high=high)
    return {name: found[name] for name in known if name in found}


def _normal(middle: float, spread: float, source: Any) -> Range:
    """Return the central 80 % of a normal law that is not negative."""
    out = NORMAL_80 * spread
    return Range(low=middle - out, high=middle + out, law="normal", source=source, minimum=0.0)


def _lognormal(middle: float, spread: float) -> Range:
    """Return the central 80 % of a number whose logarithm has this spread [-]."""
    end = math.exp(NORMAL_80 * spread)
    return Range(
        low=middle / end, high=middle * end, law="lognormal", source="calibration", minimum=0.0
    )


def _of_routing(deployment: Deployment) -> dict[str, Range]:
    """Return the ranges of how tokens choose experts, none where the correlation is known."""
    if not deployment.routing_deviation:
        return {}
    correlation = float(deployment.routing_correlation), deployment.routing_deviation
    low, high = PLAUSIBLE_POPULARITY_SPREADS
    unequal = Range(low=low, high=high, source="published")
    return dict(zip(_ROUTING, (_normal(*correlation, "published"), unequal), strict=True))


def calibrated_ranges(deployment: Deployment, point: OperatingPoint) -> dict[str, Range]:
    """Return the ranges of inputs, by name, from the fits of kernels and engine, if any.

    The errors of kernels are those of the intervals of a prediction, written as independent
    factors. In the plain and in the verify pass, a kind has errors with logarithms e and e'. Both
    are a term of standard deviation c, common to a shape, plus one of r of the pass itself, and
    these two correlate by ρ (`likeness_of_passes`). The mean m of e and e' and their difference d =
    e' - e have covariance ``(Var e' - Var e) / 2 = 0`` and, being normal, are independent, with
    variances ``c^2 + r^2 (1 + ρ) / 2`` and ``2 r^2 (1 - ρ)``. So m is the input error, d is the
    input verify_error, and the passes have m - d/2 and m + d/2.

    Parameters
    ----------
    deployment, point
        What runs where, and the operating point, whose tokens decide how errors of passes
        correlate.
    """
    known = list_inputs(deployment, point)
    spreads = _error_spreads(deployment, point).items()
    found = {n: _lognormal(1.0, s) for n, s in spreads if n in known and s > _KNOWN}
    return found | _engine_ranges(deployment)


def _error_spreads(deployment: Deployment, point: OperatingPoint) -> dict[str, float]:
    """Return the spreads of the logarithms of errors, as the notes of `calibrated_ranges` say."""
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
    """Return the ranges of the overheads of a fitted engine."""
    fit, found = deployment.engine.fit, {}
    if fit is None:
        return {}
    for i, name in enumerate(fit.varied):
        value = float(getattr(deployment.engine_overheads, name))
        variance = max(fit.covariance[i][i], 0.0)  # rounding may have left it just below 0
        spread = intervals.host_share(deployment, name) * math.sqrt(variance)
        if spread > _KNOWN and value:
            of_time = _normal(value, value * spread, "calibration")
            found[f"engine.{name}"] = _lognormal(value, spread) if name in FACTORS else of_time
    return found
