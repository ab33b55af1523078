"""The outcome of a prediction: arrays of one shape, as rows, as a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from specmodel.base.units import FloatArray
from specmodel.cost.deployment import Deployment
from specmodel.cost.latency import StepTimes
from specmodel.prediction.intervals import Interval
from specmodel.records.layers.work import CAUSES

if TYPE_CHECKING:
    import pandas as pd

COLUMN_UNITS = {
    "batch_size": "request",
    "draft_length": "token",
    "verify_tokens": "token",
    "context_length": "token",
    "tokens_per_step": "token",
    "step_efficiency": "-",
    "active_experts": "-",
    "active_experts_verify": "-",
    "forward_time": "s",
    "verify_time": "s",
    "draft_time": "s",
    "reject_time": "s",
    "step_time": "s",
    "target_efficiency": "-",
    "relative_step_time": "-",
    "utility": "-",
    "speedup": "-",
    "tpot": "s",
    "throughput": "token/s",
    "limited_by": "-",
    "break_even_acceptance_rate": "-",
    "best_draft_length": "token",
    "memory_bytes": "B",
    "max_batch_size": "request",
}
"""Columns of a prediction in their order, and their units."""

LIMITS = (*CAUSES, "none")
"""What `limited_by` may say."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Prediction:
    """What speculation gains at each operating point; all arrays have one shape.

    Parameters
    ----------
    batch_size, draft_length, verify_tokens, context_length
        The operating points [request] [token] [token] [token].
    tokens_per_step, step_efficiency
        Tokens emitted per sequence and step [token], and MoESD's σ [-].
    active_experts, active_experts_verify
        Distinct experts per layer of a plain and of a verify pass [-].
    forward_time, verify_time, draft_time, reject_time, step_time
        Plain pass, verify pass, all drafting of a step, rejection, the whole step [s].
    target_efficiency, relative_step_time
        ``forward_time / verify_time`` and ``step_time / forward_time`` [-].
    utility, speedup
        The same number: tokens per step over relative step time [-].
    tpot, throughput
        Time per output token of a request [s], output tokens of all requests [token/s].
    limit
        Place in `LIMITS` of what lengthens the step most [-].
    break_even_acceptance_rate
        Rate from which speculation pays; NaN where none does or it has no meaning [-].
    best_draft_length
        Draft length with the largest speedup, 0 for none; NaN where it has no meaning [token].
    memory_bytes, max_batch_size
        Memory needed on the fullest GPU [B]; largest batch that fits it [request].
    max_draft_length
        Longest draft considered for the best one [token].
    assumptions
        What was assumed because it was not given, by argument.
    warnings
        What the reader must know, one sentence each.
    deployment, times
        The records behind the numbers, and the times by component.
    intervals
        Central 80 % intervals by column, where they were asked for.
    """

    batch_size: FloatArray
    draft_length: FloatArray
    verify_tokens: FloatArray
    context_length: FloatArray
    tokens_per_step: FloatArray
    step_efficiency: FloatArray
    active_experts: FloatArray
    active_experts_verify: FloatArray
    forward_time: FloatArray
    verify_time: FloatArray
    draft_time: FloatArray
    reject_time: FloatArray
    step_time: FloatArray
    target_efficiency: FloatArray
    relative_step_time: FloatArray
    utility: FloatArray
    speedup: FloatArray
    tpot: FloatArray
    throughput: FloatArray
    limit: np.ndarray[Any, np.dtype[np.int8]]
    break_even_acceptance_rate: FloatArray
    best_draft_length: FloatArray
    memory_bytes: FloatArray
    max_batch_size: FloatArray
    max_draft_length: int
    assumptions: dict[str, Any]
    warnings: tuple[str, ...]
    deployment: Deployment
    times: StepTimes
    intervals: dict[str, Interval] | None = None

    @property
    def limited_by(self) -> np.ndarray[Any, np.dtype[np.str_]]:
        """What lengthens the step most: one of `CAUSES`, or "none" without a draft."""
        return np.asarray(np.array(LIMITS)[self.limit])

    def units(self) -> dict[str, str]:
        """Return the unit of each column, ends of intervals included."""
        ends = ("", "_low", "_high")
        with_ends = self.intervals or {}
        return {
            f"{name}{end}": unit
            for name, unit in COLUMN_UNITS.items()
            for end in (ends if name in with_ends else ends[:1])
        }

    def columns(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return the columns flat, in order; ends of an interval follow their column."""
        found: dict[str, np.ndarray[Any, Any]] = {}
        for name in COLUMN_UNITS:
            found[name] = np.ravel(getattr(self, name))
            if self.intervals and name in self.intervals:
                found[f"{name}_low"] = np.ravel(self.intervals[name].low)
                found[f"{name}_high"] = np.ravel(self.intervals[name].high)
        return found

    def rows(self) -> list[dict[str, Any]]:
        """Return one plain dict a point; None stands for what has no meaning."""
        columns = {name: column.tolist() for name, column in self.columns().items()}
        for name in ("break_even_acceptance_rate", "best_draft_length"):
            columns[name] = [None if value != value else value for value in columns[name]]
        for name, unit in COLUMN_UNITS.items():
            if unit in ("request", "token") and name != "tokens_per_step":
                columns[name] = [None if v is None else int(v) for v in columns[name]]
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def to_frame(self) -> pd.DataFrame:
        """Return the points as a tidy table, one row each, columns as in `COLUMN_UNITS`."""
        import pandas as pd

        return pd.DataFrame(self.columns())
