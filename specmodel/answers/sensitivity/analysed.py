"""All three analyses of a point, and what they rest on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from specmodel.answers.sensitivity.analyses import elasticities, sobol, tornado, varying_outputs
from specmodel.answers.sensitivity.evaluation import evaluate
from specmodel.answers.sensitivity.inputs import OperatingPoint
from specmodel.answers.sensitivity.uncertainty import Range, uncertain_ranges
from specmodel.base.errors import InputError
from specmodel.base.notes import Note
from specmodel.base.text import Viewed
from specmodel.base.units import check, single
from specmodel.cost.deployment import Deployment
from specmodel.cost.memory import MemoryUse
from specmodel.machines.hardware import HardwareProfile
from specmodel.models.architecture import Architecture
from specmodel.prediction.case import Case, case_of
from specmodel.prediction.predicting import DEFAULT_CONTEXT_LENGTH, at_best_lengths

if TYPE_CHECKING:
    import pandas as pd

_ONE = "one value, as one point is analysed"
_POINT = ("batch_size", "draft_length", "context_length")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Sensitivity(Viewed):
    """Three analyses of one operating point, and what they rest on.

    Parameters
    ----------
    deployment, assumptions, point
        What runs where, what was assumed of it, and the point.
    outcome, ranges
        The prediction there [-], and what is uncertain.
    elasticities, swings, indices
        The tables of `elasticities`, `tornado` and `sobol`.
    samples, fits, warnings
        Of the variance analysis [-]; whether the point fits in memory, and what must be known.
    """

    room = "sensitivities"

    deployment: Deployment
    assumptions: dict[str, Any]
    point: OperatingPoint
    outcome: dict[str, float]
    ranges: dict[str, Range]
    elasticities: pd.DataFrame
    swings: pd.DataFrame
    indices: pd.DataFrame
    samples: int
    fits: bool
    warnings: tuple[Note, ...]


def analyse(
    target: Architecture | str | Path,
    hardware: HardwareProfile | str | Path,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    *,
    batch_size: int = 16,
    samples: int = 1024,
    seed: int = 0,
    **arguments: Any,
) -> Sensitivity:
    """Return what the speedup of one point depends on most, as the command does.

    Parameters
    ----------
    target, hardware
        Model and GPU, as in `specmodel.predict`.
    ranges
        As `given` in `analyse_case` [-].
    batch_size
        Sequences decoded together [request].
    samples, seed
        Of the variance analysis, a power of two [-]; what decides all that is drawn [-].
    **arguments
        Those of `specmodel.predict`, each with one value.

    Examples
    --------
    >>> found = analyse("qwen3-30b-a3b", "h200", acceptance=0.7, draft_length=3, samples=64)
    >>> sorted(found.outcome)
    ['speedup', 'target_efficiency']
    """
    where = {"target": target, "hardware": hardware, "batch_size": batch_size}
    return analyse_case(case_of({**arguments, **where}), ranges or {}, samples=samples, seed=seed)


def analyse_case(
    case: Case,
    given: Mapping[str, tuple[float, float]],
    *,
    samples: int = 1024,
    seed: int = 0,
) -> Sensitivity:
    """Return what speedup and target efficiency of a case of one point depend on.

    Parameters
    ----------
    case
        One point; its draft length is the best there where none is given.
    given
        Both ends of what is known of inputs by name, in the units of each; others are as
        `uncertain_ranges` has them [-].
    samples, seed
        As in `analyse` [-].
    """
    seed = int(check("seed", seed, minimum=0, whole=True))
    deployment, acceptance = case.deployment, case.known_acceptance
    assumed, found = {**case.assumed}, {**case.points, "draft_length": case.draft_length}
    values: dict[str, Any] = {name: single(name, found.get(name), _ONE) for name in _POINT}
    if values["context_length"] is None:
        values["context_length"] = assumed["context_length"] = DEFAULT_CONTEXT_LENGTH
    if acceptance.source:
        assumed["acceptance"] = acceptance.source
    if values["draft_length"] is None:
        best = int(at_best_lengths(case).draft_length.item())
        values["draft_length"] = best or 1
        told = "the best at this batch size" if best else "the shortest, as none pays here"
        assumed["draft_length"] = f"{best or 1} ({told})"
    point = OperatingPoint(**values, acceptance=acceptance)
    is_known = "routing_correlation" not in assumed
    ranges = uncertain_ranges(deployment, point, given, routing_is_known=is_known)
    swings = tornado(deployment, point, ranges)
    outputs = varying_outputs(swings)
    if not outputs:
        raise InputError("range", list(ranges), "a range that moves speedup or target efficiency")
    generator = np.random.default_rng(seed)
    memory = MemoryUse(deployment, point.context_length, point.draft_length + 1)
    size, length = np.asarray(point.batch_size), np.asarray(point.draft_length)
    outcome = evaluate(deployment, point, {})
    return Sensitivity(
        deployment=deployment,
        assumptions=dict(assumed),
        point=point,
        outcome={name: value.item() for name, value in outcome.items()},
        ranges=ranges,
        elasticities=elasticities(deployment, point),
        swings=swings,
        indices=sobol(
            *(deployment, point, ranges), outputs=outputs, samples=samples, generator=generator
        ),
        samples=samples,
        fits=bool(np.all(size <= memory.max_batch_size)),
        warnings=(*memory.warnings(size), *deployment.warnings(size, length)),
    )
