"""The time of a step by what it verifies, as a table and in the two formats that SGLang reads.

An engine with adaptive verification drafts the same length in every step and then chooses how many
of the drafted tokens to verify. For that it needs the step time by requests and verified tokens.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from specmodel.algebra.speculation import check_draft_length
from specmodel.base.errors import InputError
from specmodel.base.units import FloatArray, Numeric, check
from specmodel.cost.latency import step_times, target_pass
from specmodel.layers.batch import sequence_group
from specmodel.prediction.predicting import predict_deployed

if TYPE_CHECKING:
    from specmodel.cost.deployment import Deployment
    from specmodel.prediction.outcome import Prediction

FORMS = ("additive", "rates")
"""Names of SGLang's two formats."""

MOST_STEPS = 4096
"""Most steps that the additive form is fitted to; the fit then takes about a second [-]."""

COLUMN_UNITS = {
    "context_length": "token",
    "batch_size": "request",
    "verify_tokens": "token",
    "num_tokens": "token",
    "draft_time": "s",
    "verify_time": "s",
    "reject_time": "s",
    "step_time": "s",
}
"""Columns of `CostTable.rows`, with their units."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CostTable:
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
        """Return a row for each step, with the columns of `COLUMN_UNITS`."""
        context, size, tokens = np.meshgrid(
            self.context_length, self.batch_size, self.verify_tokens, indexing="ij"
        )
        times = (self.draft_time, self.verify_time, self.reject_time, self.step_time)
        columns = [a.ravel().tolist() for a in (context, size, tokens, size * tokens, *times)]
        return [dict(zip(COLUMN_UNITS, row, strict=True)) for row in zip(*columns, strict=True)]


def cost_table(
    deployment: Deployment, *, draft_length: int, batch_size: Numeric, context_length: Numeric
) -> CostTable:
    """Return what steps take by context, requests and verified tokens of each request.

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
    contexts = np.unique(
        check("context_length", context_length, minimum=0, maximum=1e9, whole=True)
    )
    requests = sizes[:, None] * float(deployment.layout.replicas)
    context = contexts[:, None, None]
    times = step_times(
        deployment,
        batch_size=requests,
        draft_length=gamma,
        verify_tokens=gamma + 1,
        context_length=context,
    )
    passes = sequence_group(
        batch_size=requests, tokens_per_sequence=np.arange(1.0, gamma + 2), context_length=context
    )
    verifying = replace(times, verify_pass=target_pass(deployment, passes))
    shape = (contexts.size, sizes.size, gamma + 1)
    columns = {
        name: np.broadcast_to(getattr(verifying, name), shape)
        for name in ("draft_time", "verify_time", "reject_time")
    }
    contexts = contexts.astype(int)
    return CostTable(draft_length=gamma, context_length=contexts, batch_size=sizes, **columns)


def predicted(table: CostTable, deployment: Deployment, assumed: Mapping[str, Any]) -> Prediction:
    """Return the prediction at the points of a table: what fits in memory, and its warnings."""
    return predict_deployed(
        deployment,
        assumed,
        acceptance=0.0,  # which has no part in what a step takes
        draft_length=table.draft_length,
        max_draft_length=table.draft_length,
        batch_size=table.batch_size * deployment.layout.replicas,
        context_length=table.context_length[:, None],
    )


def sglang_costs(table: CostTable, form: str = "additive") -> dict[str, Any]:
    """Return a table as SGLang reads it, by the keys of its JSON.

    Parameters
    ----------
    table
        At one context: SGLang's tables have none.
    form
        "additive": a constant, a time by requests and a time by tokens, each interpolated linearly,
        fitted to all steps by least squares of relative errors; no part falls, because more
        requests or tokens never take less time. "rates": steps per second by tokens, those of the
        fewest requests that have so many, as in SGLang's own profiler; between two entries the
        lower one holds.
    """
    if form not in FORMS:
        raise InputError("form", form, " or ".join(FORMS))
    if table.context_length.size > 1:
        expected = "one with SGLang's table, which knows no context"
        raise InputError("context_length", table.context_length.tolist(), expected)
    return _additive(table) if form == "additive" else _rates(table)


def costs_step_time(costs: Mapping[str, Any], table: CostTable) -> FloatArray:
    """Return the step times that SGLang reads off its table, shape of `table.num_tokens` [s]."""
    tokens = table.num_tokens
    if "bias_seconds" not in costs:
        place = np.searchsorted(costs["sample_batch_tokens"], tokens, side="right") - 1
        return np.asarray(1 / np.asarray(costs["sample_steps_per_sec"])[np.maximum(place, 0)])
    by_size = np.interp(table.batch_size, costs["bs_probes"], costs["alpha_seconds"])
    by_tokens = np.interp(tokens, costs["m_probes"], costs["theta_seconds"])
    return np.asarray(costs["bias_seconds"] + by_size[:, None] + by_tokens)


def costs_text(costs: Mapping[str, Any]) -> str:
    """Return JSON with a key a line."""
    lines = [f'"{key}": {json.dumps(value, allow_nan=False)}' for key, value in costs.items()]
    return "{" + ",\n ".join(lines) + "}"


def _fewest(table: CostTable) -> tuple[np.ndarray, FloatArray]:
    """Return rising token counts, and the step time of the fewest requests that have each [s]."""
    tokens, times, most = table.num_tokens, table.step_time[0], 0
    found, taken = [], []
    for of_size, time in zip(tokens, times, strict=True):
        is_more = of_size > most
        found.append(of_size[is_more])
        taken.append(time[is_more])
        most = of_size[-1]
    return np.concatenate(found), np.concatenate(taken)


def _rates(table: CostTable) -> dict[str, Any]:
    tokens, times = _fewest(table)
    return {
        "sample_batch_tokens": tokens.tolist(),
        "sample_steps_per_sec": (1 / times).tolist(),
        "max_batch_tokens": int(tokens[-1]),
    }


def _additive(table: CostTable) -> dict[str, Any]:
    """Fit the increments of both parts, all at least 0, by least squares."""
    from scipy.optimize import nnls

    if table.num_tokens.size > MOST_STEPS:
        most = MOST_STEPS // (table.draft_length + 1)
        expected = f"at most {most} with the additive form; the form of rates takes more"
        raise InputError("batch_size", f"{table.batch_size.size} of them", expected)
    probes, _ = _fewest(table)
    sizes, tokens = np.repeat(table.batch_size, table.draft_length + 1), table.num_tokens.ravel()
    time = table.step_time[0].ravel()
    by_size, by_tokens = _shares(table.batch_size, sizes), _shares(probes, tokens)
    design = np.column_stack([np.ones_like(time), by_size, by_tokens]) / time[:, None]
    steps, _ = nnls(design, np.ones_like(time))
    alpha, theta = np.split(steps[1:], [by_size.shape[1]])
    return {
        "bias_seconds": float(steps[0]),
        "bs_probes": table.batch_size.tolist(),
        "alpha_seconds": [0.0, *np.cumsum(alpha).tolist()],
        "m_probes": probes.tolist(),
        "theta_seconds": [0.0, *np.cumsum(theta).tolist()],
    }


def _shares(probes: np.ndarray, values: np.ndarray) -> FloatArray:
    """Return how far each value has gone from each probe to the next, from 0 to 1 [-]."""
    gone = (values[:, None] - probes[:-1]) / np.diff(probes)
    return np.asarray(np.clip(gone, 0.0, 1.0))
