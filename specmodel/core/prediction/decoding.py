"""Predict plain decoding: the time of a token without speculation, and its limit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

from msgspec.structs import replace

from specmodel.core.base.units import Numeric
from specmodel.core.cost.arguments import DeployedPoints, RunArguments
from specmodel.core.cost.deployment import Deployment
from specmodel.core.cost.where import Manner
from specmodel.core.machines.hardware import HardwareProfile
from specmodel.core.models.architecture import Architecture
from specmodel.core.prediction.case import Case, case_of
from specmodel.core.prediction.columns import COLUMNS, DECODE_COLUMNS
from specmodel.core.prediction.outcome import Prediction
from specmodel.core.prediction.predicting import predict_deployed, with_intervals


def decode(
    target: Architecture | str | Path,
    hardware: HardwareProfile | str | Path,
    *,
    batch_size: Numeric | None = None,
    context_length: Numeric | None = None,
    prompt_length: Numeric | None = None,
    output_length: Numeric | None = None,
    lockstep: bool = False,
    interval: bool = False,
    **others: Unpack[RunArguments],
) -> Prediction:
    """Predict decoding without speculation: time per output token, throughput, memory.

    Parameters
    ----------
    target, hardware, batch_size, context_length, prompt_length, output_length, lockstep, interval
        As in `specmodel.predict` [request] [token] [token] [token].
    **others
        How it runs: the arguments of `cost.arguments.RunArguments`.

    Returns
    -------
    Prediction
        Arrays of the shape to which the arguments broadcast: tpot, throughput, largest_share (what
        needs most of a step), memory_bytes, max_batch_size. With lengths of prompt and output,
        prefill_time is the time of a whole prompt while every other replica prefills one too.

    Examples
    --------
    >>> p = decode("llama-3.1-8b", "h100_sxm", batch_size=[1, 64], context_length=1000,
    ...            stack="datasheet")
    >>> p.tpot.round(5).tolist(), p.largest_share.tolist()
    ([0.00472, 0.00732], ['bandwidth', 'bandwidth'])
    """
    given = {n: v for n, v in locals().items() if n not in ("interval", "others")} | others
    case = case_of(given, Manner(is_drafting=False))
    prediction = decoded(case)
    return with_intervals(prediction) if interval else prediction


def decoded(case: Case) -> Prediction:
    """Return what a case without a drafter takes."""
    points: dict[str, Any] = {**case.points}
    return replace(decode_deployed(case.deployment, case.assumed, **points), case=case)


def decode_deployed(
    deployment: Deployment,
    assumed: Mapping[str, Any],
    *,
    interval: bool = False,
    **others: Unpack[DeployedPoints],
) -> Prediction:
    """Predict plain decoding of a deployment without a drafter, as `deploy` returns it.

    Parameters
    ----------
    deployment, assumed
        What runs where, and the assumptions about it, as `deploy` returns them.
    interval
        Whether to add 80 % intervals.
    **others
        Points: the arguments of `cost.arguments.DeployedPoints`.
    """
    none: dict[str, Any] = {"draft_length": 0, "max_draft_length": 1, "acceptance": 0.0}
    found = predict_deployed(deployment, assumed, **none, **others)
    found = replace(found, shown=(*DECODE_COLUMNS, *found.shown[len(COLUMNS) :]))
    return with_intervals(found) if interval else found
