"""The time of a step by what it verifies, as a table and in the format that SGLang reads.

An engine with adaptive verification drafts the same length in every step and then chooses how many
of the drafted tokens to verify. For that it needs the step time by requests and verified tokens.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from specmodel.algebra.speculation import MAX_DRAFT_LENGTH, check_draft_length
from specmodel.answers.config_formats import format_of_engine
from specmodel.answers.plans import with_engine
from specmodel.base.errors import InputError, refuse_given
from specmodel.base.ranges import check_points
from specmodel.base.text import Viewed
from specmodel.base.units import FloatArray, Numeric, check, rows_of
from specmodel.cost.arguments import RunArguments, WhatIfArguments
from specmodel.cost.deployment import Deployment
from specmodel.cost.latency import step_times, target_pass
from specmodel.drafters.passes import Drafter
from specmodel.layers.batch import sequence_group
from specmodel.machines.hardware import HardwareProfile
from specmodel.models.architecture import Architecture
from specmodel.prediction.case import ACCEPTANCE, case_of, kind_of
from specmodel.prediction.outcome import Prediction
from specmodel.prediction.predicting import DEFAULT_CONTEXT_LENGTH, predict_deployed

ENGINES = ("sglang", "vllm")
"""Engines with adaptive verification, of which SGLang reads a file."""
FORMAT = "cost-table"
"""What the command calls such tables."""
_OF_SCHEDULES = (*ACCEPTANCE, "measured_draft_length", "prompt_length", "output_length")
"""Arguments that a table takes no notice of."""
_TIMES = ("draft_time", "verify_time", "reject_time")
"""Parts of a step."""
MOST_STEPS = 4096
"""Most steps that SGLang's format is fitted to; the fit then takes about a second [-]."""


class CostTable(Struct, frozen=True, kw_only=True, eq=False):
    """Step times by context length, batch size and verified tokens of a request.

    Parameters
    ----------
    draft_length, context_length, batch_size
        Tokens drafted for each request in every step [token]; KV entries of each before the step,
        rising [token]; requests of one replica, rising [request].
    draft_time, verify_time, reject_time
        All drafting, target pass, and rejection sampling, by context length, batch size and
        verified tokens [s].
    """

    draft_length: int
    context_length: np.ndarray
    batch_size: np.ndarray
    draft_time: FloatArray
    verify_time: FloatArray
    reject_time: FloatArray

    @property
    def verify_tokens(self) -> np.ndarray:
        """Tokens of each request in the target pass, from 1 (no drafted token) on [token]."""
        return np.arange(1, self.draft_length + 2)

    @property
    def num_tokens(self) -> np.ndarray:
        """Tokens of one replica in the target pass; shape (n, draft_length + 1) [token]."""
        return np.outer(self.batch_size, self.verify_tokens)

    @property
    def step_time(self) -> FloatArray:
        """Drafting, target pass and rejection; shape (c, n, draft_length + 1) [s]."""
        return self.draft_time + self.verify_time + self.reject_time

    def rows(self) -> list[dict[str, int | float]]:
        """Return a row for each step, by context, batch size and tokens, with its times."""
        axes = self.context_length, self.batch_size, self.verify_tokens
        context, size, tokens = np.meshgrid(*axes, indexing="ij")
        times = {name: getattr(self, name) for name in (*_TIMES, "step_time")}
        points = {"context_length": context, "batch_size": size, "verify_tokens": tokens}
        return rows_of({**points, "num_tokens": size * tokens, **times})


def cost_table(
    deployment: Deployment, *, draft_length: int, batch_size: Numeric, context_length: Numeric
) -> CostTable:
    """Return step times by context, requests and verified tokens of each request.

    All requests of a step verify the same number of tokens, 1 to ``draft_length + 1``. Times are
    those of `predict` at the same points: without prefill of other requests, and smooth where an
    engine pads to the next size of its CUDA graphs. Rejection is charged for the whole draft,
    however little of it is verified.

    Parameters
    ----------
    deployment, draft_length
        What runs where, drafting chains by passes of its own, and the tokens drafted for each
        request in every step, however few are verified [token].
    batch_size, context_length
        Requests of one replica [request], and KV entries of each before the step [token].

    Examples
    --------
    >>> from specmodel.cost.deploying import deploy
    >>> d, _ = deploy(target="llama-3.1-8b", hardware="h100_sxm", drafter="parallel")
    >>> t = cost_table(d, draft_length=7, batch_size=[1, 64], context_length=1024)
    >>> t.step_time.shape, bool((np.diff(t.step_time) >= 0).all())
    ((1, 2, 8), True)
    """
    if not deployment.has_drafter or deployment.drafter.is_lookup:
        name = deployment.drafter.name
        expected = "a head or a model: adaptive verification weighs how sure a drafter is"
        raise InputError("drafter", name, expected)
    if deployment.tree_width > 1:
        expected = "1, a chain: adaptive verification cuts drafts short and prunes no trees"
        raise InputError("tree_width", deployment.tree_width, expected)
    gamma = int(check_draft_length(draft_length, whole=True))
    check("draft_length", gamma, minimum=1)
    sizes = np.unique(check("batch_size", batch_size, minimum=1, whole=True)).astype(int)
    contexts = check("context_length", context_length, minimum=0, maximum=1e9, whole=True)
    contexts = np.unique(contexts)
    requests = sizes[:, None] * float(deployment.layout.replicas)
    context = contexts[:, None, None]
    served: Any = {"batch_size": requests, "context_length": context}
    times = step_times(deployment, **served, draft_length=gamma, verify_tokens=gamma + 1)
    passes = sequence_group(**served, tokens_per_sequence=np.arange(1.0, gamma + 2))
    verifying = replace(times, verify_pass=target_pass(deployment, passes))
    shape = (contexts.size, sizes.size, gamma + 1)
    columns = {name: np.broadcast_to(getattr(verifying, name), shape) for name in _TIMES}
    contexts = contexts.astype(int)
    return CostTable(draft_length=gamma, context_length=contexts, batch_size=sizes, **columns)


class StepCosts(Viewed, Struct, frozen=True, kw_only=True, eq=False):
    """Step times by verified tokens, for an engine that adapts how many tokens it verifies.

    Parameters
    ----------
    engine
        One of `ENGINES`.
    table, prediction
        The times; what fits in memory at the points of the table, and what was assumed.
    costs
        The table as SGLang reads it, None where it reads none.
    """

    room = "costs"

    engine: str
    table: CostTable
    prediction: Prediction
    costs: Mapping[str, Any] | None

    @property
    def fragment(self) -> str:
        """The text of the file that the engine reads; "" where the engine reads none."""
        return costs_text(self.costs) if self.costs else ""

    @property
    def largest_error(self) -> float | None:
        """By how much the file misses a step at most, None without one [-]."""
        if self.costs is None:
            return None
        read = costs_step_time(self.costs, self.table)
        return float(abs(read / self.table.step_time[0] - 1).max())


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
    engine_config: str | None = None,
    *,
    needs_file: bool = False,
    **arguments: Unpack[StepArguments],
) -> StepCosts:
    """Tabulate the step times of an engine with adaptive verification, as the command does.

    Parameters
    ----------
    target, hardware
        Model and GPU, as in `specmodel.predict`.
    engine_config, needs_file
        Which engine is to read it, one of `ENGINES`, the one predicted if None; whether to refuse
        what no file can hold.
    **arguments
        Those of `StepArguments`.

    Examples
    --------
    >>> words = {"drafter": "dspark", "batch_size": [1, 8]}
    >>> steps = step_costs("qwen3-30b-a3b", "h200", "sglang", **words)
    >>> steps.table.draft_length, sorted(steps.costs)[:2]
    (7, ['alpha_seconds', 'bias_seconds'])
    """
    engine_config = engine_config or format_of_engine(arguments.get("engine"))
    if engine_config not in ENGINES:
        expected = f"schedule with `engine_config='{engine_config}'`, which reads no other"
        raise InputError("format", FORMAT, expected)
    if needs_file and engine_config == "vllm":
        expected = "`to_frame()` with `engine_config='vllm'`: vLLM reads no file, and measures its"
        expected += " own step times"
        raise InputError("fragment_only", needs_file, expected)
    refuse_given(arguments, _OF_SCHEDULES, "none of a cost table")
    where = {"target": target, "hardware": hardware}
    options, notes = with_engine(engine_config, arguments | where)
    case = case_of(options)
    deployment = case.deployment
    longest = case.given.get("max_draft_length", deployment.drafter.block_size)
    if longest is None:
        raise InputError("max_draft_length", None, "tokens drafted in every step, such as 7")
    check("max_draft_length", longest, minimum=1, maximum=MAX_DRAFT_LENGTH, whole=True)
    usual = {"batch_size": "1:256:x2", "context_length": DEFAULT_CONTEXT_LENGTH}
    assumed = {name: value for name, value in usual.items() if name not in case.given}
    sizes = case.points["batch_size"]
    contexts = case.points.get("context_length", DEFAULT_CONTEXT_LENGTH)
    counts = {"batch sizes": np.size(sizes), "contexts": np.size(contexts), "tokens": longest + 1}
    check_points("batch_size", counts)
    table = cost_table(deployment, draft_length=longest, batch_size=sizes, context_length=contexts)
    has_file = engine_config == "sglang" and (needs_file or table.context_length.size == 1)
    if has_file and kind_of(deployment) not in ("dspark", "parallel"):
        expected = "dspark or parallel with `engine_config='sglang'`,"
        expected += " which reads a table for DSPARK only"
        raise InputError("drafter", case.given.get("drafter", kind_of(deployment)), expected)
    prediction = predict_deployed(
        deployment,
        {**notes, **case.assumed, **assumed},
        acceptance=0.0,  # which has no part in what a step takes
        draft_length=longest,
        max_draft_length=longest,
        batch_size=table.batch_size * deployment.layout.replicas,
        context_length=table.context_length[:, None],
    )
    costs = sglang_costs(table) if has_file else None
    return StepCosts(engine=engine_config, table=table, prediction=prediction, costs=costs)


def sglang_costs(table: CostTable) -> dict[str, Any]:
    """Return a table as SGLang reads it, by the keys of its JSON.

    A constant, a time by requests and a time by tokens, each interpolated linearly, fitted to all
    steps by least squares of relative errors; no part falls, because more requests or tokens never
    take less time.

    Parameters
    ----------
    table
        Step times at one context, as SGLang's tables do not depend on context.
    """
    from scipy.optimize import nnls

    if table.context_length.size > 1:
        expected = "a single one: SGLang's table does not vary with context"
        raise InputError("context_length", table.context_length.tolist(), expected)
    if table.num_tokens.size > MOST_STEPS:
        expected = f"at most {MOST_STEPS // (table.draft_length + 1)}, so that the fit is quick"
        raise InputError("batch_size", f"{table.batch_size.size} of them", expected)
    sizes, tokens = np.repeat(table.batch_size, table.draft_length + 1), table.num_tokens.ravel()
    # of each batch size the tokens that no smaller one has
    probes = table.num_tokens[table.num_tokens > np.append(0, table.num_tokens[:-1, -1])[:, None]]
    time = table.step_time[0].ravel()
    by_size, by_tokens = _shares(table.batch_size, sizes), _shares(probes, tokens)
    design = np.column_stack([np.ones_like(time), by_size, by_tokens]) / time[:, None]
    # the increments of both parts, all at least 0
    steps, _ = nnls(design, np.ones_like(time))
    alpha, theta = np.split(steps[1:], [by_size.shape[1]])
    return {
        "bias_seconds": float(steps[0]),
        "bs_probes": table.batch_size.tolist(),
        "alpha_seconds": [0.0, *np.cumsum(alpha).tolist()],
        "m_probes": probes.tolist(),
        "theta_seconds": [0.0, *np.cumsum(theta).tolist()],
    }


def costs_step_time(costs: Mapping[str, Any], table: CostTable) -> FloatArray:
    """Return the step times that SGLang reads off its table, shape of `table.num_tokens` [s]."""
    by_size = np.interp(table.batch_size, costs["bs_probes"], costs["alpha_seconds"])
    by_tokens = np.interp(table.num_tokens, costs["m_probes"], costs["theta_seconds"])
    return np.asarray(costs["bias_seconds"] + by_size[:, None] + by_tokens)


def costs_text(costs: Mapping[str, Any]) -> str:
    """Return JSON with a key a line."""
    lines = [f'"{key}": {json.dumps(value, allow_nan=False)}' for key, value in costs.items()]
    return "{" + ",\n ".join(lines) + "}"


def _shares(probes: np.ndarray, values: np.ndarray) -> FloatArray:
    """Return how far each value has gone from each probe to the next, from 0 to 1 [-]."""
    gone = (values[:, None] - probes[:-1]) / np.diff(probes)
    return np.asarray(np.clip(gone, 0.0, 1.0))
