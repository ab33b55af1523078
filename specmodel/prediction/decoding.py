"""Plain decoding: how long a token takes without speculation, and what limits it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from specmodel.algebra.acceptance import Acceptance
from specmodel.base.units import Numeric
from specmodel.cost.deploying import resolve
from specmodel.cost.deployment import Deployment
from specmodel.machines.engine import EngineProfile
from specmodel.machines.hardware import HardwareProfile
from specmodel.models.architecture import Architecture
from specmodel.prediction.columns import DECODE_COLUMNS
from specmodel.prediction.evaluate import evaluate
from specmodel.prediction.outcome import Prediction
from specmodel.prediction.predicting import PLAIN_ARGUMENTS, as_prediction, plain_points


def decode(  # noqa: PLR0913 - all keyword-only: what decides the answer is named
    *,
    target: Architecture | str | Path,
    hardware: HardwareProfile | str | Path,
    batch_size: Numeric,
    engine: EngineProfile | str | Path | None = None,
    host_speed: float | None = None,
    stack: str | None = None,
    context_length: Numeric | None = None,
    prompt_length: Numeric | None = None,
    output_length: Numeric | None = None,
    weight_dtype: str | None = None,
    activation_dtype: str | None = None,
    kv_dtype: str | None = None,
    attention_dtype: str | None = None,
    expert_dtype: str | None = None,
    embedding_dtype: str | None = None,
    routing_correlation: float | None = None,
    popularity: Numeric | None = None,
    tensor_parallel: int | None = None,
    data_parallel: int | None = None,
    expert_parallel: int | None = None,
    memory_utilization: float | None = None,
    state_rollback: str | None = None,
    interval: bool = False,
) -> Prediction:
    """Predict decoding without speculation: time per output token, throughput, memory.

    Parameters
    ----------
    target, hardware, engine, stack, host_speed, memory_utilization, state_rollback, interval
        As in `specmodel.predict` [-].
    batch_size, context_length, prompt_length, output_length
        As in `specmodel.predict`, broadcasting [request] [token] [token] [token].
    weight_dtype, activation_dtype, kv_dtype, attention_dtype, expert_dtype, embedding_dtype
        As in `specmodel.predict`.
    routing_correlation, popularity, tensor_parallel, data_parallel, expert_parallel
        As in `specmodel.predict` [-].

    Returns
    -------
    Prediction
        Arrays of the shape to which the arguments broadcast: tpot, throughput, limited_by (what
        takes the largest share of a step), memory_bytes, max_batch_size; with lengths of prompt and
        output also prefill_time, that of a whole prompt while every other replica prefills one too.

    Examples
    --------
    >>> p = decode(target="llama-3.1-8b", hardware="h100_sxm", batch_size=[1, 64],
    ...            context_length=1000, stack="datasheet")
    >>> p.tpot.round(5).tolist(), p.limited_by.tolist()
    ([0.00452, 0.0072], ['bandwidth', 'bandwidth'])
    """
    given = locals()
    return decode_deployed(*resolve(given), **{name: given[name] for name in PLAIN_ARGUMENTS})


def decode_deployed(
    deployment: Deployment,
    assumed: Mapping[str, Any],
    *,
    batch_size: Numeric,
    context_length: Numeric | None = None,
    prompt_length: Numeric | None = None,
    output_length: Numeric | None = None,
    interval: bool = False,
) -> Prediction:
    """Predict plain decoding of a deployment as `deploy` gives it, without a drafter."""
    points, told = plain_points(batch_size, context_length, prompt_length, output_length)
    points["draft_length"] = np.zeros(())
    evaluation = evaluate(deployment, points, Acceptance(acceptance_rate=0.0))
    return as_prediction(evaluation, DECODE_COLUMNS, {**assumed, **told}, interval=interval)
