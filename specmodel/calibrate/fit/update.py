"""Fit an engine to the host of a user: update a shipped profile with a few runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from msgspec import Struct
from msgspec.structs import replace

from specmodel.calibrate.fit import steps as runs
from specmodel.calibrate.fit.measured.tables import Served
from specmodel.calibrate.fit.result import rounded, rounded_rows
from specmodel.core.base.errors import InputError
from specmodel.core.base.text import Viewed
from specmodel.core.base.units import FloatArray, format_si
from specmodel.core.cost.deploying import resolve
from specmodel.core.cost.deployment import Deployment
from specmodel.core.machines.engine import FACTORS, EngineProfile
from specmodel.core.prediction.intervals import DEPLOYMENT_SPREAD

HOST_SPREAD = 0.7
"""Spread of the speed of hosts around the mean host. With it, the 80 % intervals of hosts that were
left out contain 80 % of their rows. The likelihood of 0.5 is higher, but by less than 2 times
[-]."""

FACTOR_SPREADS = {"host_speed": HOST_SPREAD, "gpu_time_factor": DEPLOYMENT_SPREAD}
"""Spreads of the factors of hosts and deployments that were not measured [-]."""

_SMALL = 1e-6
MOST_APART = 5.0  # largest accepted factor between a run and its fit [-]
OPEN = 0.8  # a parameter that keeps more than this share of its spread is undetermined [-]

PER_REQUEST = "reject_time_per_request"
"""The overhead that differs most between engines. Early vLLM needed ten times as long as today's
vLLM (MoESD). vLLM on a CPU needed a hundred times as long, because it verified the states of a
hybrid model one sequence after another."""

UNKNOWN_SPREAD = 5.0  # spread of the logarithm of an unknown time [-]
STILL_MISSED = 0.75  # share of the error that may remain if `PER_REQUEST` explains it [-]


LEAST_TIME = {"gpu": 0.8, "cpu": 0.6}
"""Smallest plausible ratio of the median run to its kernels alone [-]. The ratio of published runs
is 1.01 to 2.3, and the mean error of kernels of models left out is 16 %. The three measured CPUs
have 0.71 to 0.77, because their kernels were timed with cold caches."""

MOST_MISSED = 0.4  # largest plausible error of a run; published runs have at most 0.24 [-]

MOST_UNLIKE = 3.0
"""Largest plausible sum of squared residuals and changes of a fit per run, in units of the spreads
of runs and hosts [-]. Two runs of a host that resembles known hosts exceed it in 5 % of cases;
published hosts have at most 2.9."""


class FitWarning(Struct, frozen=True, kw_only=True):
    """A warning against a fit.

    Parameters
    ----------
    found, expected
        The unusual result of the runs, and the usual one.
    is_slow
        Whether the runs are slower than expected, not faster.
    is_refused
        Whether no server could plausibly produce the runs. If False, the host only differs from
        known hosts.
    """

    found: str
    expected: str
    is_slow: bool
    is_refused: bool


class Moved(Struct, frozen=True, eq=False):
    """An overhead [s] or factor [-] before and after the fit, and the spread of its logarithm."""

    name: str
    before: float
    after: float
    spread_before: float
    spread_after: float
    is_open: bool  # whether the runs leave it undetermined


class EngineUpdate(Viewed, Struct, frozen=True, kw_only=True, eq=False):
    """An engine profile updated by measured runs.

    Parameters
    ----------
    rows, base
        The runs, and the profile to start from.
    deployment, assumptions
        Deployment of the first run with the new profile, and the assumptions about it.
    profile, moved
        The engine with the record of its fit, and the changes of its overheads and factors.
    before, predicted, measured
        Predictions of each run with the shipped and with the new profile, and measured values [s]
        [-].
    excess_speedup
        Mean excess of the new profile's speedups over the measured ones, for the target with the
        largest error. It is negative if they are too low, and 0 if errors of kernels and runs
        explain it [-].
    is_unlike_known
        Whether the time per request of a step with a draft differs from all known hosts, whose
        times explain these runs less well.
    fit_warnings
        Reasons to doubt the fit, usually none: no known host resembles it, or it is implausible.
    widened
        Factor on the uncertainty of the fit if the runs contradict known hosts; 1 without warnings
        [-].
    """

    room = "calibrated:engine"

    rows: tuple[Served, ...]
    base: EngineProfile
    deployment: Deployment
    assumptions: Mapping[str, Any]
    profile: EngineProfile
    moved: tuple[Moved, ...]
    before: FloatArray
    predicted: FloatArray
    measured: FloatArray
    excess_speedup: float
    is_unlike_known: bool
    fit_warnings: tuple[FitWarning, ...] = ()
    widened: float = 1.0


def update_engine(
    rows: Sequence[Served], base: EngineProfile, *, date: str, version: str = ""
) -> EngineUpdate:
    """Update an engine profile with runs on one host.

    Parameters
    ----------
    rows
        Runs of one or several deployments on one host: times of steps, with or without drafts, and
        speedups. Raise an InputError if there is no run, or no fit explains the runs.
    base
        Profile to start from. The covariance of its fit limits the changes. If it has no fit, only
        the speed of the host and the time of the GPU may change.
    date, version
        Day of the fit, such as 2026-11-21, and version of the measured engine; empty if unknown.

    Notes
    -----
    The result is the maximum of the posterior by Bayes' rule, where logarithms of all parameters
    are normal, and the covariance of a quadratic around this maximum. The prior spreads of
    overheads, of the speed of the host and of the time of the GPU are those of the profile. For
    each target model, the kernels of steps with a draft have a common error (`VERIFY_SPREAD`). Each
    run has an error of `RUN_SPREAD`. Two runs, one plain and one with a draft, mostly determine the
    speed of the host.

    If the mean error of speedups still exceeds its standard deviation, `PER_REQUEST` may have any
    value, provided that this explains at least a quarter of the error. The recorded spread is the
    error of the speedups, or of the runs if there are no speedups, but at least the spread of runs
    and kernels. If no known host resembles the fit, its covariance grows by the factor by which
    residuals exceed the assumed spreads (R. T. Birge, "The calculation of errors by the method of
    least squares," Phys. Rev., vol. 40, 1932).
    """
    if not rows:
        raise InputError("runs", "0 runs", "at least one plain and one speculative run")
    if not any(getattr(base, name) for name in runs.HOST_SECONDS):
        raise InputError("engine", base.name, "an engine with host times, such as vllm or sglang")
    rows = [replace(row, deployment={**row.deployment, "engine": base}) for row in rows]
    steps, (names, prior) = runs.measured_steps(rows), _prior(base)
    found = _posterior(rows, steps, base, names, prior)
    _check_units(rows, found.predicted / steps.measured)
    if is_unlike_known := abs(found.score) > 1 and PER_REQUEST in names:
        free = prior + np.diag([UNKNOWN_SPREAD**2 * (name == PER_REQUEST) for name in names])
        freed = _posterior(rows, steps, base, names, free, start_log=UNKNOWN_SPREAD)
        if is_unlike_known := abs(freed.score) < STILL_MISSED * abs(found.score):
            found, prior = freed, free
    ratios = found.predicted / steps.measured
    start = [getattr(base, name) for name in names]
    numbers = {name: rounded(value) for name, value in zip(names, found.values, strict=True)}
    before = steps.predicted(base.overheads)
    warnings = tuple(_warnings(rows, steps, base, found.predicted, found.unlike))
    widened = found.unlike**0.5 if found.unlike > MOST_UNLIKE else 1.0
    covariance = widened**2 * found.covariance
    record: dict[str, Any] = {
        "date": date,
        "num_points": len(rows),
        "varied": list(names),
        "covariance": rounded_rows(covariance),
        "mean_error": rounded(np.abs(ratios - 1).mean()),
        "spread": rounded(max(np.hypot(runs.RUN_SPREAD, runs.VERIFY_SPREAD), found.spread)),
        "left_out_error": {},
        "fitted_on": runs.fitted_on(rows, steps, version),
    }
    own = np.sqrt([np.diagonal(prior), np.diagonal(found.covariance)])
    profile = base.with_changes("engine", numbers | {"fit": record})
    deployment, assumed = resolve({**rows[0].deployment, "engine": profile})
    return EngineUpdate(
        rows=tuple(rows),
        base=base,
        deployment=deployment,
        assumptions=assumed,
        profile=profile,
        moved=tuple(
            Moved(n, float(then), float(now), x, widened * y, y > OPEN * x)
            for n, then, now, x, y in zip(names, start, found.values, *own.tolist(), strict=True)
        ),
        before=before,
        predicted=found.predicted,
        measured=steps.measured,
        excess_speedup=found.excess,
        is_unlike_known=is_unlike_known,
        fit_warnings=warnings,
        widened=widened,
    )


class _Posterior(Struct, frozen=True, kw_only=True, eq=False):
    """Posterior of the free parameters: values, covariance of their logarithms, and errors."""

    values: FloatArray
    covariance: FloatArray
    predicted: FloatArray
    spread: float
    score: float
    excess: float
    unlike: float  # sum of the squares of all residuals, for each run [-]


def _posterior(
    rows: Sequence[Served],
    steps: runs.MeasuredSteps,
    base: EngineProfile,
    names: Sequence[str],
    prior: FloatArray,
    start_log: float = 0.0,
) -> _Posterior:
    """Return the posterior of the parameters `names`; `PER_REQUEST` starts at `start_log`."""
    from scipy.optimize import least_squares

    start = np.array([getattr(base, name) for name in names])
    root, size = np.linalg.inv(np.linalg.cholesky(prior)), len(names)
    groups, _ = pd.factorize(pd.Series([str(row.deployment["target"]) for row in rows]))
    spreads = np.hypot(runs.RUN_SPREAD, [row.noise for row in rows])

    def predicted(x: FloatArray, kernels: FloatArray | float = 1.0) -> FloatArray:
        values = dict(zip(names, start * np.exp(x[:size]), strict=True))
        return steps.predicted(replace(base.overheads, **values), kernels)

    def residuals(x: FloatArray) -> FloatArray:
        missed = np.log(predicted(x, np.exp(x[size:])[groups]) / steps.measured) / spreads
        return np.concatenate([missed, root @ x[:size], x[size:] / runs.VERIFY_SPREAD])

    from_here = [start_log * (name == PER_REQUEST) for name in names] + [0.0] * (groups.max() + 1)
    solved = least_squares(residuals, from_here)
    missed = np.log(predicted(solved.x) / steps.measured)
    errors = runs.speedup_errors(rows, missed, spreads)
    targets = errors.groupby("target", sort=False)
    of_targets = [runs.mean_and_score(own, spreads) for _, own in targets]
    too_high = [mean for mean, score in of_targets if abs(score) > 2]
    logs, weights = (errors["error"], errors["weight"]) if len(errors) else (missed, spreads**-2.0)
    return _Posterior(
        values=start * np.exp(solved.x[:size]),
        covariance=np.linalg.inv(solved.jac.T @ solved.jac)[:size, :size],
        predicted=predicted(solved.x),
        spread=float(np.sqrt(np.average(np.square(logs), weights=weights))),
        score=max((score for _, score in of_targets), key=abs, default=0.0),
        excess=float(np.expm1(max(too_high, key=abs, default=0.0))),
        unlike=2 * float(solved.cost) / len(rows),
    )


def _prior(base: EngineProfile) -> tuple[tuple[str, ...], FloatArray]:
    """Return the parameters that may change, and the prior covariance of their logarithms."""
    varied, known = (base.fit.varied, base.fit.covariance) if base.fit else ((), ())
    kept = [i for i, name in enumerate(varied) if getattr(base, name) > 0]
    names = [varied[i] for i in kept]
    added = [name for name in FACTORS if name not in names]
    spreads = [_SMALL**0.5] * len(kept) + [FACTOR_SPREADS[name] for name in added]
    covariance = np.diag(np.square(spreads))
    if kept:
        covariance[: len(kept), : len(kept)] += np.array(known)[np.ix_(kept, kept)]
    return (*names, *added), covariance


def _check_units(rows: Sequence[Served], ratios: FloatArray) -> None:
    """Raise an InputError if a run and its fit differ by more than a factor of `MOST_APART`."""
    for row, ratio in zip(rows, ratios.tolist(), strict=True):
        if not 1 / MOST_APART <= ratio <= MOST_APART:
            expected = "Check the unit (milliseconds), the model and the GPUs."
            value = f"{1 / ratio:.3g} times the fitted value"
            raise InputError(f"{row.quantity} of row {row.row}", value, expected)


def _warnings(
    rows: Sequence[Served],
    steps: runs.MeasuredSteps,
    base: EngineProfile,
    predicted: FloatArray,
    unlike: float,
) -> Iterator[FitWarning]:
    """Yield the warnings against a fit.

    `base` is the engine before the fit. `predicted` has the predictions after the fit, and `unlike`
    is compared with `MOST_UNLIKE` [-].
    """
    names, is_time = [row.row for row in rows], ~steps.is_ratio
    kernels = replace(base.overheads, **dict.fromkeys(runs.HOST_SECONDS, 0.0), gpu_time_factor=1.0)
    alone = steps.predicted(kernels)
    least = LEAST_TIME[resolve(rows[0].deployment)[0].hardware.kind]
    over_kernels, timed = steps.measured / alone, np.flatnonzero(is_time)
    if timed.size:
        middle = timed[np.argsort(over_kernels[timed], kind="stable")][timed.size // 2]
        if over_kernels[middle] < least:
            times = (steps.measured[middle], alone[middle])
            token, only = (format_si(t / steps.tokens_per_step[middle], "s") for t in times)
            found = f"{names[middle]}: {token}/token, {over_kernels[middle]:.2f} times the {only}"
            found, expected = f"{found} of its kernels alone", f"at least {least:g} times"
            yield FitWarning(found=found, expected=expected, is_slow=False, is_refused=True)
    errors = predicted / steps.measured - 1
    worst = int(np.abs(errors).argmax())
    if abs(errors[worst]) > MOST_MISSED:
        found = f"{names[worst]}: {errors[worst]:+.0%} off after the fit"
        expected = f"{MOST_MISSED:.0%} at most; the run contradicts other runs or plausible hosts"
        is_slow = bool(errors[worst] < 0)
        yield FitWarning(found=found, expected=expected, is_slow=is_slow, is_refused=True)
    if unlike > MOST_UNLIKE:
        before = steps.predicted(base.overheads)
        ratios = np.where(is_time, steps.measured / before, before / steps.measured)
        low, high = (f"{ratio:.2f}" for ratio in (ratios.min(), ratios.max()))
        found = f"runs take {f'{low} to {high}' if low != high else low} times as long as predicted"
        is_slow = float(np.log(ratios).mean()) > 0
        yield FitWarning(found=found, expected="about 1", is_slow=is_slow, is_refused=False)
