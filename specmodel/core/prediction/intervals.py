"""Central intervals of a prediction, by one vectorised Monte Carlo over what was fitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from specmodel.core.base.errors import InputError
from specmodel.core.base.units import FloatArray, Numeric, quantiles
from specmodel.core.cost.deployment import Deployment
from specmodel.core.cost.kinds import fits_taken
from specmodel.core.cost.latency import KernelErrors, step_times
from specmodel.core.cost.passes import MESSAGES, PassTime
from specmodel.core.layers.kinds import FITTED_KINDS
from specmodel.core.machines.engine import FACTORS, Overheads
from specmodel.core.machines.kernels import KernelFit, Kernels
from specmodel.core.prediction.cautions import is_modelled
from specmodel.core.prediction.columns import COLUMNS
from specmodel.core.prediction.draws import Draws, draws_of
from specmodel.core.prediction.evaluate import Evaluation, evaluate
from specmodel.core.prediction.ground import spread_of_ground
from specmodel.core.prediction.table import Column

DRAWS = 400
"""Number of draws [-]."""

CENTRAL = 0.8
"""Share of the draws inside an interval [-]."""

DEPLOYMENT_SPREAD = 0.088
"""Standard deviation of the logarithm of the factor that all passes of a deployment share [-]:
with it, intervals contain 80 % of 1,387 published decode times of whole engines
(`calibration/deployment.py`, 2026-11-22). With the value fitted to three models, 0.076 to 0.108,
intervals contain 79 % of the rows of the fourth, pooled."""

HOST_SHARE = 0.537
"""Share of the deviations of a host's overheads that hosts outside the fit confirm, for an engine
that was fitted to several hosts [-]."""

RECURRENT_SPREAD = 0.062
"""Standard deviation of the logarithm of a further factor on steps that draft for a model with
recurrent layers, for such an engine [-]: hosts differ most in how they keep and read states."""

UNSEEN_CHANCE, UNSEEN_COST = 0.039, 0.684
"""Chance of behaviour that the model cannot see, such as missed graphs, an eager drafter or a slow
host, for such an engine; and the mean logarithm by which steps that draft then take longer [-].

These four values have the largest likelihood for 619 published pairs of twenty hosts, where each
host has the weight of the root of its rows (`calibration/interval_judge.py`, 2026-11-27). With
values from the other hosts, intervals contain 82 % of the rows."""

POPULARITY_DEVIATION = 0.45
"""Standard deviation of how unequally experts are used (`RoutedExperts.popularity_spread`) if it is
assumed [-]: sources for Qwen3 models suggest values of 0.9 to 1.7."""

MAX_POINTS = 5_000
"""Most operating points that intervals are computed for at once [-]."""

EXPERTS = "experts"
_FIRST_KINDS = (EXPERTS, "gemm", "attention")
"""Kinds that are drawn for each model; others are drawn if a model runs them."""


class Interval(Struct, frozen=True, eq=False):
    """Lower and upper end of a central interval, and of a speedup the chance of a gain.

    Arrays of the shape of the points; `chance` is the share of the draws that are above 1 [-].
    """

    low: FloatArray
    high: FloatArray
    chance: FloatArray | None = None


def central_intervals(
    own: Evaluation,
    generator: np.random.Generator | None = None,
    columns: Sequence[Column] = COLUMNS,
    *,
    deployment_spread: float | None = None,
) -> dict[str, Interval]:
    """Return central 80 % intervals of times, target efficiency and speedup, by column name.

    Each draw has random factors on the time of kernels, with the spreads of residuals on shapes
    that were left out of the fit: one factor for all kernels of a kind on one model, and one for
    each pass. The factors of a plain and of a verify pass correlate (`likeness_of_passes`). The
    residuals include the uncertainty of the fitted parameters, which are therefore not drawn.

    Engines differ more than their kernels: in versions of kernels, fusion, clocks and properties
    that no table contains. One factor of the deployment covers these differences. It applies to all
    GPU time in plain, verify, draft and prefill passes, including messages, but not to host time.
    As all passes share it, it changes ratios only through host time. That verify passes of several
    tokens per sequence share it is an assumption, as no published data measure them separately.
    Decode steps of 2, 4 and 8 times the requests differ a little more than errors of kernels allow
    for a verify pass of as many tokens: intervals contain 68, 68 and 65 % of these ratios. If
    all-reduces have the fit of other stacks or GPUs, messages have a further factor, which is the
    same in all passes.

    The overheads of a fitted engine are drawn from the covariance of its fit, as their weight
    changes with the batch size. A factor with the engine's own spread follows. Errors of a fitted
    engine are errors of whole steps, including kernels and deployment. All passes of a step
    therefore share one factor, and the deployment has none. On an unknown host, overheads deviate
    by `HOST_SHARE` of the fitted deviation, and steps for models with recurrent layers by
    `RECURRENT_SPREAD` more. With `UNSEEN_CHANCE`, the engine does something that the model cannot
    see. As no overhead is below 0, all draws may be on one side of the prediction; the interval
    then extends to the prediction.

    The routing correlation, and how unequally experts are used, are drawn if they are assumed. The
    use of experts is not drawn if it is equal.

    Acceptance is exact unless it has a `spread`: then its rate is normal, cut to 0 to 1. `own` is
    the evaluation of the points without errors.
    """
    steps, shape, _ = _drawn_steps(own, generator, deployment_spread)
    return {
        column.name: _interval(
            column.of(steps), column.of(own), shape, has_chance=column.name == "speedup"
        )
        for column in columns
        if column.has_interval
    }


def peak_interval(own: Evaluation) -> tuple[int, int]:
    """Return the central 80 % interval of the batch size with the largest speedup of a curve.

    The draws are described in `central_intervals`. Each draw has its peak at one of the batch sizes
    of the points, which are along one axis and keep their draft lengths. The errors of a draw are
    the same at all batch sizes. Errors at a single batch size, which would move the peak further,
    are left out.
    """
    steps, shape, _ = _drawn_steps(own)
    peaks = np.broadcast_to(steps.speedup, (DRAWS, *shape)).argmax(axis=-1)
    batch_size = np.broadcast_to(own.points["batch_size"], shape)
    peak = batch_size[np.broadcast_to(own.speedup, shape).argmax()]
    sizes, outside = np.sort(batch_size[peaks]), round((1 - CENTRAL) / 2 * DRAWS)
    return int(min(sizes[outside], peak)), int(max(sizes[-1 - outside], peak))


def sources_of_interval(own: Evaluation) -> dict[str, float]:
    """Return the share of the variance of one point's log speedup by its source [-].

    Sources are "acceptance", "routing", "host", which includes the differences between published
    hosts of an engine, and "kernels". The first three are explained linearly by their draws;
    "kernels" is the rest.
    """
    steps, _, normal = _drawn_steps(own)
    log = np.log(np.broadcast_to(steps.speedup, (DRAWS, 1)))[:, 0]
    unseen = np.broadcast_to(_unseen(own.deployment, normal.unseen), DRAWS)
    of_host = np.column_stack([normal.overheads, normal.step, normal.ground, unseen])
    of_routing = [normal.routing, normal.popularity]
    drawn = np.column_stack([normal.acceptance, *of_routing, of_host])
    drawn, log = drawn - drawn.mean(axis=0), log - log.mean()
    slopes = np.linalg.lstsq(drawn, log, rcond=None)[0]
    cuts = {"acceptance": slice(1), "routing": slice(1, 3), "host": slice(3, None)}
    parts = {name: drawn[:, cut] @ slopes[cut] for name, cut in cuts.items()}
    parts["kernels"] = log - drawn @ slopes
    total = sum(float(part @ part) for part in parts.values())
    return {name: float(part @ part) / total for name, part in parts.items()}


def _drawn_steps(
    own: Evaluation,
    generator: np.random.Generator | None = None,
    deployment_spread: float | None = None,
) -> tuple[Evaluation, tuple[int, ...], Draws]:
    """Return the points with drawn errors along the first axis, their shape, and the draws."""
    deployment, points, acceptance = own.deployment, own.points, own.acceptance
    if deployment.kernels.record is None:
        expected = (
            f"Errors of {deployment.kernels.stack} are unknown. Use a fitted or typical stack."
        )
        raise InputError("interval", True, expected)
    shape = own.shape
    if np.prod(shape) > MAX_POINTS:
        raise InputError("interval", f"{np.prod(shape):.0f} points", f"at most {MAX_POINTS}")
    draws = (DRAWS,) + (1,) * len(shape)
    drawn, errors, normal = _drawn(deployment, points, generator, draws)
    of_step = spread_of_step(deployment) * normal.step + _unseen(deployment, normal.unseen)
    ground = spread_of_ground(deployment, points["context_length"]) * normal.ground.reshape(draws)
    of_step = np.exp(of_step.reshape(draws) + ground)
    if deployment_spread is None:
        deployment_spread = spread_of_deployment(deployment)
    if deployment_spread:
        shared = np.exp(deployment_spread * normal.deployment.reshape(draws))
        errors = replace(errors, deployment=shared)
    if acceptance.spread:
        by = acceptance.spread * normal.acceptance.reshape(draws)
        acceptance = acceptance.moved(points["draft_length"], by)
    return evaluate(drawn, points, acceptance, errors=errors, step_error=of_step), shape, normal


def fits_of_models(deployment: Deployment) -> dict[str, KernelFit]:
    """Return the fits of target and drafter by kind of errors; the target has priority."""
    found: dict[str, KernelFit] = {}
    for model in deployment.models:
        found = fits_taken(deployment, model) | found
    return found


def states_errors(deployment: Deployment, context_length: FloatArray | float = 0.0) -> bool:
    """Return whether errors are known: the engine is modelled, and kernels are not ideal."""
    return deployment.kernels.record is not None and is_modelled(deployment, context_length)


def spread_of_deployment(deployment: Deployment) -> float:
    """Return the standard deviation of the logarithm of the factor that all passes share [-].

    It is 0 for a fitted engine, whose errors are errors of whole steps.
    """
    return 0.0 if deployment.engine.fit else DEPLOYMENT_SPREAD


def spread_of_step(deployment: Deployment) -> float:
    """Return the standard deviation of the logarithm of the factor on steps that draft [-]."""
    engine = deployment.engine
    if engine.fit is None:  # errors of kernels and of the deployment apply
        return 0.0
    is_recurrent = any(mixer.is_recurrent for mixer in deployment.target.mixers)
    is_spread = engine.is_of_mean_host and is_recurrent
    return float(np.hypot(engine.fit.spread, RECURRENT_SPREAD if is_spread else 0.0))


def host_share(deployment: Deployment, overhead: str = "host_speed") -> float:
    """Return the share of an overhead's deviation that intervals draw [-].

    1 for GPU time; less for host time if the engine was fitted as a mean of several hosts.
    """
    is_host = deployment.engine.is_of_mean_host and overhead != "gpu_time_factor"
    return HOST_SHARE if is_host else 1.0


def _unseen(deployment: Deployment, normal: FloatArray) -> FloatArray:
    """Return logarithms of factors on steps for behaviour that the model cannot see [-].

    They are exponential for the highest share `UNSEEN_CHANCE` of the draws, 0 for the others.
    """
    if not deployment.engine.is_of_mean_host or not UNSEEN_CHANCE:
        return np.zeros(())
    above = (normal[:, np.newaxis] <= normal).mean(axis=1) - 0.5 / normal.size
    return np.asarray(-UNSEEN_COST * np.log(np.minimum(above / UNSEEN_CHANCE, 1.0)))


def likeness_of_passes(deployment: Deployment, verify_tokens: Numeric) -> FloatArray:
    """Return the correlation of the row errors of a plain and of a verify pass [-].

    It is ``q^(-1/2)`` for a verify pass of q tokens per sequence. It is 1 for a fitted engine, as
    its errors are errors of whole steps. If every token had an independent error, the error of a
    pass of q tokens would be their mean, and the decode step would have one of these errors. The
    covariance would be 1/q, with standard deviations of 1 and ``q^(-1/2)``. This suggests the form,
    and explains no kernel. For kernels that were not fitted, errors of experts correlate by 0.74,
    0.56, 0.34 and 0.08 at 2, 4, 8 and 16 tokens (median of nine stacks, each engine on each
    generation of GPUs; the law: 0.71, 0.50, 0.35, 0.25). Errors of GEMMs correlate by 0.52, 0.24,
    0.04 and -0.24. Intervals then contain 82, 75, 71 and 69 % of ratios of two passes for experts,
    and 74, 73, 72 and 70 % for GEMMs. At 16 tokens, they are a fifth too narrow for normal errors.
    """
    q = np.asarray(verify_tokens, dtype=float)
    return np.ones(()) if deployment.engine.fit else np.maximum(q, 1.0) ** -0.5


def _drawn(
    deployment: Deployment,
    points: Mapping[str, FloatArray],
    generator: np.random.Generator | None,
    draws: tuple[int, ...],
) -> tuple[Deployment, KernelErrors, Draws]:
    """Return a deployment with drawn overheads, drawn errors of its kernels, and all numbers."""
    fits, fit = fits_of_models(deployment), deployment.engine.fit
    kinds = (*_FIRST_KINDS, *(kind for kind in fits if kind not in _FIRST_KINDS))
    kinds += (MESSAGES,) if deployment.message_spread else ()
    normal = draws_of(generator, draws[0], len(fit.varied) if fit else None, len(kinds))
    overheads = _drawn_overheads(deployment, normal.overheads, draws)
    drawn = deployment.with_draws(overheads=overheads)
    common, forward, fresh, draft_common, draft = normal.kinds.reshape(5, len(kinds), *draws)
    sent = {MESSAGES: np.exp(deployment.message_spread * common[-1])} if MESSAGES in kinds else {}
    likeness = likeness_of_passes(deployment, points["verify_tokens"])
    verify = likeness * forward + np.sqrt(1 - likeness**2) * fresh
    of_draft = (common, forward) if deployment.engine.fit else (draft_common, draft)
    errors = KernelErrors(
        forward=sent | _factors(deployment.kernels, kinds, fits, common, forward),
        verify=sent | _factors(deployment.kernels, kinds, fits, common, verify),
        draft=sent | _factors(deployment.kernels, kinds, fits, *of_draft),
    )
    return drawn, _with_routing(deployment, points, errors, normal, draws), normal


def _interval(
    values: FloatArray, own: FloatArray, shape: tuple[int, ...], *, has_chance: bool
) -> Interval:
    """Return the interval of drawn values, extended to the prediction's own value."""
    tail = (1 - CENTRAL) / 2
    if values.ndim <= len(shape):  # the same in every draw
        values = values[np.newaxis]
    low, high = quantiles(values, (tail, 1 - tail))
    chance = np.broadcast_to((values > 1).mean(axis=0), shape) if has_chance else None
    low, high = np.minimum(low, own), np.maximum(high, own)
    return Interval(np.broadcast_to(low, shape), np.broadcast_to(high, shape), chance)


def _factors(
    kernels: Kernels,
    kinds: tuple[str, ...],
    fits: Mapping[str, KernelFit],
    common: FloatArray,
    row: FloatArray,
) -> dict[str, FloatArray]:
    """Return drawn factors on kernel time by kind, with the spreads of the kind's fit [-]."""
    drawn = {
        kind: np.exp(fits[kind].shape_spread * of_shape + fits[kind].row_spread * of_row)
        for kind, of_shape, of_row in zip(kinds, common, row, strict=True)
        if kind in fits
    }
    taken = {kind: kernels.kind_of_errors(kind) for kind in FITTED_KINDS}
    return {kind: drawn[other] for kind, other in taken.items() if other in drawn}


def _drawn_overheads(
    deployment: Deployment, normal: FloatArray, draws: tuple[int, ...]
) -> Overheads:
    base, fit = deployment.engine_overheads, deployment.engine.fit
    if fit is None:
        return base
    # seconds on a linear scale: measurements determine their sums, which logarithms would skew
    is_factor = np.isin(fit.varied, FACTORS)
    values = np.array([getattr(base, name) for name in fit.varied])
    scale = np.where(is_factor, 1.0, values)
    variances, vectors = np.linalg.eigh(np.array(fit.covariance) * np.outer(scale, scale))
    # rounding may make variances near 0 negative
    moved = (normal * np.sqrt(np.maximum(variances, 0.0))) @ vectors.T
    moved *= [host_share(deployment, name) for name in fit.varied]
    with np.errstate(over="ignore"):
        drawn = np.where(is_factor, values * np.exp(moved), np.maximum(values + moved, 0.0)).T
    return replace(base, **{n: v.reshape(draws) for n, v in zip(fit.varied, drawn, strict=True)})


def _with_routing(
    deployment: Deployment,
    points: Mapping[str, FloatArray],
    errors: KernelErrors,
    normal: Draws,
    draws: tuple[int, ...],
) -> KernelErrors:
    """Return errors with factors on experts for assumed routing.

    The factors cover the correlation and the spread of popularity: the relative time of experts if
    the value is one standard deviation larger, to the power of the draw. The correlation is not
    below 0.
    """
    experts = deployment.target.experts
    is_told = deployment.popularity is not None or deployment.popularity_spread is not None
    unequal = 0.0 if experts is None or is_told else experts.popularity_spread
    own = {"routing_correlation": deployment.routing_correlation, "popularity_spread": unequal}
    deviations = {
        "routing_correlation": deployment.routing_deviation if experts else 0.0,
        "popularity_spread": POPULARITY_DEVIATION if unequal else 0.0,
    }
    varied = [name for name, deviation in deviations.items() if deviation]
    if not varied:
        return errors
    axis = (1 + len(varied), *draws[1:])
    moved = {
        name: own[name] + deviations[name] * (np.arange(axis[0]) == 1 + place).reshape(axis)
        for place, name in enumerate(varied)
    }
    names = ("batch_size", "draft_length", "verify_tokens", "context_length")
    asked: dict[str, Any] = {name: points[name] for name in names}
    times = step_times(deployment.with_draws(**moved), **asked)
    powers = {"routing_correlation": normal.routing, "popularity_spread": normal.popularity}
    if deployment.routing_deviation:
        least = -np.asarray(deployment.routing_correlation) / deployment.routing_deviation
        powers["routing_correlation"] = np.maximum(normal.routing, least)
    exponents = [powers[name].reshape(draws) for name in varied]

    def moved_errors(known: Mapping[str, FloatArray], time: PassTime) -> dict[str, FloatArray]:
        own = (time.components[n].total_time for n, kind in time.kinds.items() if kind == EXPERTS)
        each = np.asarray(np.sum([*own], axis=0))
        each = np.broadcast_to(each, np.broadcast_shapes(each.shape, axis))
        factors = map(pow, each[1:] / each[0], exponents)
        return {**known, EXPERTS: prod(factors, start=known[EXPERTS])}

    forward = moved_errors(errors.forward, times.plain_pass)
    verify = moved_errors(errors.verify, times.verify_pass)
    return replace(errors, forward=forward, verify=verify)
