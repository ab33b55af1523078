"""Central intervals of a prediction, by one vectorised Monte Carlo over what was fitted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from specmodel.algebra.acceptance import Acceptance
from specmodel.algebra.roofline import KernelParameters
from specmodel.base.errors import InputError
from specmodel.base.units import FloatArray, Numeric
from specmodel.cost.deployment import Deployment
from specmodel.cost.latency import KernelErrors
from specmodel.prediction.columns import COLUMNS
from specmodel.prediction.evaluate import evaluate
from specmodel.records.engine import Overheads
from specmodel.records.kernels import MAIN_KINDS, STANDS_IN, KernelFit, Kernels

DRAWS = 400
"""Draws [-]."""

CENTRAL = 0.8
"""Share of the draws inside an interval [-]."""

MAX_POINTS = 5_000
"""Most operating points that intervals are computed for at once [-]."""

FARTHEST = 2.0
"""Most that the logarithm of a drawn parameter moves [-]."""

LARGEST = {"memory_efficiency": 1.0, "compute_efficiency": 1.0, "tile_growth": 0.95}
"""Upper bounds of drawn parameters [-]."""


@dataclass(frozen=True, eq=False, repr=False)
class Interval:
    """Lower and upper end of a central interval, arrays of the shape of the points."""

    low: FloatArray
    high: FloatArray


def central_intervals(
    deployment: Deployment,
    points: Mapping[str, Any],
    acceptance: Acceptance,
    generator: np.random.Generator,
) -> dict[str, Interval]:
    """Return central 80 % intervals of times, target efficiency and speedup.

    Parameters
    ----------
    deployment
        What runs where; its kernels are fitted or typical.
    points
        Batch size, draft length, verify tokens and context length, broadcasting [request] [token].
    acceptance
        Of the tokens drafted where there is a proposal, taken as known.
    generator
        Source of the draws.

    Returns
    -------
    dict
        By name, for each of `COLUMNS` that has one.

    Raises
    ------
    InputError
        If there is nothing that errors are known of, or there are too many points.

    Notes
    -----
    Each draw takes the parameters of kernels and engine from the covariance of their fits. On
    top come random factors on the time of kernels, with the spreads of residuals on shapes that
    were left out of the fit: one factor that all kernels of a kind share on one model, and one
    for each pass. Those of a plain and of a verify pass correlate (`likeness_of_passes`). A
    fitted engine adds a factor with its own spread. Its errors are of whole steps, kernels
    included, so that all passes of a step then share one factor.
    """
    if deployment.kernels.record is None:
        expected = f"a fitted or typical stack, as {deployment.kernels.stack} states no error"
        raise InputError("interval", True, expected)
    known = 0 if acceptance.form == "acceptance_by_position" else acceptance.rate()
    shape = np.broadcast_shapes(*(array.shape for array in points.values()), np.shape(known))
    if np.prod(shape) > MAX_POINTS:
        raise InputError("interval", f"{np.prod(shape):.0f} points", f"at most {MAX_POINTS}")
    draws = (DRAWS,) + (1,) * len(shape)
    drawn, errors = _drawn(deployment, points["verify_tokens"], generator, draws)
    engine = deployment.engine.fit
    of_engine = np.exp((engine.spread if engine else 0.0) * generator.standard_normal(draws))
    steps = evaluate(drawn, points, acceptance, errors=errors, step_error=of_engine)
    return {
        column.name: _interval(column.of(steps), shape) for column in COLUMNS if column.has_interval
    }


def fits_of_target(deployment: Deployment) -> list[KernelFit | None]:
    """Return for each of `MAIN_KINDS` the fit of the dtypes of the target."""
    record, target = deployment.kernels.record, deployment.target
    if record is None:
        return [None] * len(MAIN_KINDS)
    stored = [target.stream.stored_dtype(kind) for kind in MAIN_KINDS]
    return [
        record.fit(kind, dtype, target.stream.arithmetic_dtype(dtype))
        for kind, dtype in zip(MAIN_KINDS, stored, strict=True)
    ]


def likeness_of_passes(deployment: Deployment, verify_tokens: Numeric) -> FloatArray:
    """Return how the errors of a plain and of a verify pass correlate, shape aside.

    Parameters
    ----------
    deployment
        What runs where.
    verify_tokens
        Tokens of each sequence in the verify pass [token].

    Returns
    -------
    FloatArray
        ``q^(-1/2)`` for a verify pass of q tokens a sequence; 1 under a fitted engine, whose
        errors are of whole steps [-].

    Notes
    -----
    If every token brought an error of its own, independent of the others, the error of a pass of
    q tokens would be their mean, of which the plain pass has one: a covariance of 1/q, over
    standard deviations of 1 and ``q^(-1/2)``, is a correlation of ``q^(-1/2)``. That suggests the
    form and explains no kernel; it is taken because residuals of measured kernels correlate so.
    """
    q = np.asarray(verify_tokens, dtype=float)
    return np.ones(()) if deployment.engine.fit else np.maximum(q, 1.0) ** -0.5


def _drawn(
    deployment: Deployment,
    verify_tokens: FloatArray,
    generator: np.random.Generator,
    draws: tuple[int, ...],
) -> tuple[Deployment, KernelErrors]:
    """Return a deployment with drawn parameters, and drawn errors of its kernels."""
    drawn = replace(
        deployment,
        kernels=_drawn_kernels(deployment.kernels, generator, draws),
        overheads=_drawn_overheads(deployment, generator, draws),
    )
    fits = fits_of_target(deployment)
    common, forward, fresh, draft_common, draft = generator.standard_normal(
        (5, len(MAIN_KINDS), *draws)
    )
    likeness = likeness_of_passes(deployment, verify_tokens)
    verify = likeness * forward + np.sqrt(1 - likeness**2) * fresh
    of_draft = (common, forward) if deployment.engine.fit else (draft_common, draft)
    return drawn, KernelErrors(
        forward=_factors(fits, common, forward),
        verify=_factors(fits, common, verify),
        draft=_factors(fits, *of_draft),
    )


def _interval(values: FloatArray, shape: tuple[int, ...]) -> Interval:
    tail = (1 - CENTRAL) / 2
    if values.ndim <= len(shape):  # the same in every draw
        low = high = values
    else:
        low, high = np.quantile(values, [tail, 1 - tail], axis=0)
    return Interval(np.broadcast_to(low, shape), np.broadcast_to(high, shape))


def _factors(
    fits: list[KernelFit | None], common: FloatArray, row: FloatArray
) -> dict[str, FloatArray]:
    factors = {
        kind: np.exp(fit.shape_spread * common[i] + fit.row_spread * row[i])
        for i, (kind, fit) in enumerate(zip(MAIN_KINDS, fits, strict=True))
        if fit
    }
    shared = {kind: factors[other] for kind, other in STANDS_IN.items() if other in factors}
    return factors | shared


def _drawn_kernels(
    kernels: Kernels, generator: np.random.Generator, draws: tuple[int, ...]
) -> Kernels:
    """Draw parameters from the covariance of their logarithms, none beyond e^`FARTHEST` times."""
    drawn: dict[str, dict[str, KernelParameters]] = {}
    for kind, dtype, fit in kernels.record.fits() if kernels.record else ():
        base, values = kernels.fits[kind][dtype], {}
        for name, moved in zip(fit.varied, _normal(fit.covariance, generator, draws), strict=True):
            factor = np.exp(np.clip(moved, -FARTHEST, FARTHEST))
            values[name] = np.minimum(getattr(base, name) * factor, LARGEST.get(name, np.inf))
        drawn.setdefault(kind, {})[dtype] = replace(base, **values)
    return replace(kernels, fits=drawn)


def _drawn_overheads(
    deployment: Deployment, generator: np.random.Generator, draws: tuple[int, ...]
) -> Overheads:
    base, fit = deployment.engine_seconds, deployment.engine.fit
    if fit is None:
        return base
    # on a linear scale: measurements determine sums of these seconds, which logarithms would skew
    seconds = np.array([getattr(base, name) for name in fit.varied])
    moved = _normal(np.array(fit.covariance) * np.outer(seconds, seconds), generator, draws)
    values = [np.maximum(second + by, 0.0) for second, by in zip(seconds, moved, strict=True)]
    return replace(base, **dict(zip(fit.varied, values, strict=True)))


def _normal(
    covariance: Any, generator: np.random.Generator, draws: tuple[int, ...]
) -> list[FloatArray]:
    """Draw from a normal distribution around 0, an array of draws for each parameter."""
    if not len(covariance):
        return []
    values, vectors = np.linalg.eigh(covariance)
    normal = generator.standard_normal((draws[0], len(values)))
    drawn = (normal * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    return [values.reshape(draws) for values in drawn.T]
