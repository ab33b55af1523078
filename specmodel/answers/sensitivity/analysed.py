"""All three analyses of a point, and what they rest on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from specmodel.answers.sensitivity.analyses import elasticities, sobol, tornado, varying_outputs
from specmodel.answers.sensitivity.evaluation import evaluate
from specmodel.answers.sensitivity.uncertainty import Range, uncertain_ranges
from specmodel.base.errors import InputError
from specmodel.cost.memory import MemoryUse

if TYPE_CHECKING:
    import pandas as pd

    from specmodel.answers.sensitivity.inputs import OperatingPoint
    from specmodel.cost.deployment import Deployment


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Sensitivity:
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
    warnings: tuple[str, ...]


def analyse(
    deployment: Deployment,
    assumed: Mapping[str, Any],
    point: OperatingPoint,
    given: Mapping[str, tuple[float, float]],
    *,
    samples: int = 1024,
    seed: int = 0,
) -> Sensitivity:
    """Return what speedup and target efficiency of a point depend on.

    Parameters
    ----------
    deployment, assumed, point
        What runs where and what was assumed of it, as `deploy` gives them, and the point.
    given
        Both ends of what is known of inputs by name, in the units of each; others are as
        `uncertain_ranges` has them [-].
    samples, seed
        Of the variance analysis, a power of two [-]; what decides all that is drawn [-].
    """
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
