"""Options of the command line as the three analyses of one operating point."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from specmodel.base.errors import InputError
from specmodel.base.ranges import parse_named_range
from specmodel.base.units import check
from specmodel.cli.options import acceptance_from, deployment_from
from specmodel.cost.deployment import Deployment
from specmodel.cost.memory import memory_use, memory_warnings
from specmodel.prediction.predict import DEFAULT_CONTEXT_LENGTH
from specmodel.sensitivity import (
    OperatingPoint,
    Range,
    elasticities,
    evaluate,
    sobol,
    tornado,
    uncertain_ranges,
    varying_outputs,
)

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Sensitivity:
    """Three analyses of one operating point, and what they rest on.

    Parameters
    ----------
    deployment, point
        What runs where, and the operating point.
    outcome
        Speedup and target efficiency there, by name [-].
    ranges
        Of what is uncertain, by name of the input.
    elasticities, swings, indices
        The tables of `elasticities`, `tornado` and `sobol`.
    samples
        Of the indices [-].
    assumptions
        What was assumed because it was not given, by argument.
    warnings
        What the reader must know, one sentence each.
    """

    deployment: Deployment
    point: OperatingPoint
    outcome: dict[str, float]
    ranges: dict[str, Range]
    elasticities: "pd.DataFrame"
    swings: "pd.DataFrame"
    indices: "pd.DataFrame"
    samples: int
    assumptions: dict[str, Any]
    warnings: tuple[str, ...]


def sensitivity_from(options: dict[str, Any]) -> Sensitivity:
    """Return the analyses that the options of the command line ask for.

    Parameters
    ----------
    options
        Values by name of the option.

    Returns
    -------
    Sensitivity
        Ready to be reported.

    Raises
    ------
    InputError
        Names the option at fault.
    """
    seed = int(check("seed", options["seed"], minimum=0, whole=True))
    given = _given_ranges(options["ranges"])
    deployment, assumed = deployment_from(options)
    context_length = options["context_length"]
    if context_length is None:
        context_length = assumed["context_length"] = DEFAULT_CONTEXT_LENGTH
    point = OperatingPoint(
        batch_size=options["batch_size"],
        draft_length=options["draft_length"],
        acceptance=acceptance_from(options),
        context_length=context_length,
    )
    is_routing_known = "routing_correlation" not in assumed
    ranges = uncertain_ranges(deployment, point, given, routing_is_known=is_routing_known)
    swings = tornado(deployment, point, ranges)
    outputs = varying_outputs(swings)
    if not outputs:
        raise InputError("range", list(ranges), "a range that moves speedup or target efficiency")
    indices = sobol(
        deployment,
        point,
        ranges,
        samples=options["samples"],
        generator=np.random.default_rng(seed),
        outputs=outputs,
    )
    memory = memory_use(deployment, np.asarray(context_length), np.asarray(point.draft_length + 1))
    return Sensitivity(
        deployment=deployment,
        point=point,
        outcome={n: value.item() for n, value in evaluate(deployment, point, {}).items()},
        ranges=ranges,
        elasticities=elasticities(deployment, point),
        swings=swings,
        indices=indices,
        samples=options["samples"],
        assumptions=assumed,
        warnings=memory_warnings(deployment, memory, np.asarray(point.batch_size)),
    )


def _given_ranges(texts: tuple[str, ...]) -> dict[str, tuple[float, float]]:
    given: dict[str, tuple[float, float]] = {}
    for text in texts:
        name, low, high = parse_named_range("range", text)
        if name in given:
            raise InputError(f"range {name}", text, "one range of each input")
        given[name] = (low, high)
    return given
