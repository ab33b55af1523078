"""The time of a step by requests and verified tokens, in the format that SGLang reads.

An engine with adaptive verification drafts the same length in every step and then chooses how many
of the drafted tokens to verify. For that it needs the step time by requests and verified tokens.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Unpack

import numpy as np

from specmodel.core.algebra.speculation import MAX_DRAFT_LENGTH
from specmodel.core.base.errors import InputError, refuse_given
from specmodel.core.base.ranges import check_points
from specmodel.core.base.units import FloatArray, Numeric, check, single
from specmodel.core.cost.arguments import RunArguments, WhatIfArguments
from specmodel.core.cost.deployment import Deployment
from specmodel.core.cost.latency import step_times, target_pass
from specmodel.core.cost.where import USUAL, Manner
from specmodel.core.drafters.passes import Drafter
from specmodel.core.layers.batch import sequence_group
from specmodel.core.machines.hardware import HardwareProfile
from specmodel.core.models.architecture import Architecture
from specmodel.core.prediction.accepted import ACCEPTANCE, kind_of
from specmodel.core.prediction.case import case_of
from specmodel.core.prediction.predicting import DEFAULT_CONTEXT_LENGTH
from specmodel.plan.config_formats import with_engine

MOST_STEPS = 4096
"""Most steps that the format is fitted to; the fit then takes about a second [-]."""
_OF_SCHEDULES = (*ACCEPTANCE, "measured_draft_length", "prompt_length", "output_length")
"""Arguments that a table takes no notice of."""


class StepArguments(RunArguments, WhatIfArguments, total=False):
    """Arguments of `step_costs`, with those of `RunArguments` and `WhatIfArguments`.

    Parameters
    ----------
    drafter
        What drafts, as in `specmodel.predict`.
    max_draft_length
        Tokens drafted in every step [token].
    batch_size, context_length
        Requests of one replica, and KV entries of each before the step [request] [token].
    """

    drafter: Drafter | Architecture | str | Path | None
    max_draft_length: int | None
    batch_size: Numeric | None
    context_length: Numeric | None


def step_costs(
    target: Architecture | str | Path,
    hardware: HardwareProfile | str | Path,
    *,
    manner: Manner = USUAL,
    **arguments: Unpack[StepArguments],
) -> dict[str, Any]:
    """Return step times by requests and verified tokens as SGLang reads them, by its keys.

    Parameters
    ----------
    target, hardware
        Model and GPU, as in `specmodel.predict`.
    manner
        How it is asked beside its arguments.
    **arguments
        Those of `StepArguments`; SGLang is the engine unless another is named.

    Examples
    --------
    >>> costs = step_costs("qwen3-30b-a3b", "h200", drafter="dspark", batch_size=[1, 8])
    >>> costs["bs_probes"], costs["m_probes"][-3:]
    ([1, 8], [48, 56, 64])
    """
    refuse_given(arguments, _OF_SCHEDULES, "none of a cost table")
    options, _ = with_engine("sglang", {**arguments, "target": target, "hardware": hardware})
    case = case_of(options, manner)
    kind, longest = kind_of(case.deployment), case.max_draft_length
    if kind not in ("dspark", "parallel"):
        expected = "dspark or parallel, as SGLang reads a table for DSPARK only"
        raise InputError("drafter", case.where.named.get("drafter", kind), expected)
    longest = longest or case.deployment.drafter.block_size
    if longest is None:
        raise InputError("max_draft_length", None, "tokens drafted in every step, such as 7")
    check("max_draft_length", longest, minimum=1, maximum=MAX_DRAFT_LENGTH, whole=True)
    context = case.points.get("context_length", DEFAULT_CONTEXT_LENGTH)
    context = single("context_length", context, "a single one, as the table knows no context")
    check_points("batch_size", {"sizes": np.size(case.points["batch_size"]), "tokens": longest + 1})
    sizes = np.unique(check("batch_size", case.points["batch_size"], minimum=1, whole=True))
    return sglang_costs(sizes, verify_times(case.deployment, int(longest), sizes, context))


def verify_times(
    deployment: Deployment, draft_length: int, batch_size: FloatArray, context_length: Numeric
) -> FloatArray:
    """Return step times by requests and verified tokens; shape (n, draft_length + 1) [s].

    All requests of a step verify the same number of tokens, 1 to ``draft_length + 1``. Times are
    those of `predict` at the same points: without prefill of other requests, and smooth where an
    engine pads to the next size of its CUDA graphs. Rejection is charged for the whole draft,
    however little of it is verified.

    Parameters
    ----------
    deployment, draft_length
        What runs where, and the tokens drafted for each request in every step [token].
    batch_size, context_length
        Requests of one replica, shape (n,) [request], and KV entries of each before the step
        [token].
    """
    requests = batch_size[:, None] * float(deployment.layout.replicas)
    served: Any = {"batch_size": requests, "context_length": context_length}
    times = step_times(
        deployment, **served, draft_length=draft_length, verify_tokens=draft_length + 1
    )
    passes = sequence_group(**served, tokens_per_sequence=np.arange(1.0, draft_length + 2))
    return times.with_passes(times.plain_pass, target_pass(deployment, passes)).step_time


def sglang_costs(batch_size: np.ndarray, step_time: FloatArray) -> dict[str, Any]:
    """Return step times as SGLang reads them, by the keys of its JSON.

    A constant, a time by requests and a time by tokens, each interpolated linearly, fitted to all
    steps by least squares of relative errors; no part falls, because more requests or tokens never
    take less time.

    Parameters
    ----------
    batch_size, step_time
        Requests of one replica, rising, shape (n,) [request]; and the times of steps that verify 1,
        2, ..., q tokens of each, shape (n, q) [s].
    """
    from scipy.optimize import nnls

    if step_time.size > MOST_STEPS:
        expected = f"at most {MOST_STEPS // step_time.shape[1]}, so that the fit is quick"
        raise InputError("batch_size", f"{len(batch_size)} of them", expected)
    counts = np.outer(batch_size, np.arange(1, step_time.shape[1] + 1)).astype(int)
    sizes, time = np.repeat(batch_size, step_time.shape[1]), step_time.ravel()
    # of each batch size the tokens that no smaller one has
    probes = counts[counts > np.append(0, counts[:-1, -1])[:, None]]
    by_size, by_tokens = _shares(batch_size, sizes), _shares(probes, counts.ravel())
    design = np.column_stack([np.ones_like(time), by_size, by_tokens]) / time[:, None]
    # the increments of both parts, all at least 0
    steps, _ = nnls(design, np.ones_like(time))
    alpha, theta = np.split(steps[1:], [by_size.shape[1]])
    return {
        "bias_seconds": float(steps[0]),
        "bs_probes": batch_size.astype(int).tolist(),
        "alpha_seconds": [0.0, *np.cumsum(alpha).tolist()],
        "m_probes": probes.tolist(),
        "theta_seconds": [0.0, *np.cumsum(theta).tolist()],
    }


def _shares(probes: np.ndarray, values: np.ndarray) -> FloatArray:
    """Return how far each value has gone from each probe to the next, from 0 to 1 [-]."""
    gone = (values[:, None] - probes[:-1]) / np.diff(probes)
    return np.asarray(np.clip(gone, 0.0, 1.0))
