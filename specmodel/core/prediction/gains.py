"""Quantify how sure a gain is at some points: interval of the speedup, and chance of a gain."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict, replace

from specmodel.core.algebra.acceptance import FORMS
from specmodel.core.prediction.columns import COLUMNS
from specmodel.core.prediction.evaluate import Evaluation, evaluate
from specmodel.core.prediction.ground import LIKELY
from specmodel.core.prediction.intervals import (
    Interval,
    central_intervals,
    peak_interval,
    sources_of_interval,
)
from specmodel.core.prediction.outcome import Prediction

_COORDINATES = ("batch_size", "draft_length", "context_length")


class Gain(Struct, frozen=True):
    """Ends of the 80 % interval of a speedup, and the chance that it is above 1 [-]."""

    low: float
    high: float
    chance: float

    @property
    def is_open(self) -> bool:
        """Whether the interval includes 1: gain and loss are both possible."""
        return self.low <= 1 < self.high

    @property
    def is_lost(self) -> bool:
        """Whether a loss is at least likely."""
        return self.chance <= 1 - LIKELY


def gains_at(prediction: Prediction, rows: Sequence[Mapping[str, Any]]) -> list[Gain | None]:
    """Return the 80 % interval of the speedup and the chance of a gain, for rows of a prediction.

    A row contains the batch size, draft length and context of a point, if these vary. The result is
    None for all rows if errors are unknown: for an engine without overheads, which is an upper
    bound, for an engine that is not modelled, and for kernels without known errors.
    """
    if not prediction.states_errors or not rows:
        return [None] * len(rows)
    parts = asdict(_interval_at(prediction, rows, "speedup")).values()
    return [Gain(*ends) for ends in zip(*(np.ravel(part).tolist() for part in parts), strict=True)]


def sources_at(prediction: Prediction, row: Mapping[str, Any]) -> dict[str, float]:
    """Return the share of the variance of a row's log speedup by source (`sources_of_interval`).

    The result is {} if errors are unknown.
    """
    if not prediction.states_errors:
        return {}
    return sources_of_interval(_at(prediction, [row]))


def ends_at(
    prediction: Prediction, rows: Sequence[Mapping[str, Any]], name: str
) -> list[tuple[float, float]] | None:
    """Return the ends of the 80 % interval of a column at rows; None if errors are unknown."""
    if not prediction.states_errors or not rows:
        return None
    found = _interval_at(prediction, rows, name)
    return list(zip(found.low.ravel().tolist(), found.high.ravel().tolist(), strict=True))


def peak_at(
    prediction: Prediction, rows: Sequence[Mapping[str, Any]]
) -> tuple[int, int] | tuple[None, None]:
    """Return the ends of the 80 % interval of the batch size of the peak of a curve's rows.

    Both are None if errors are unknown.
    """
    if not prediction.states_errors or not rows:
        return None, None
    return peak_interval(_at(prediction, rows))


def _interval_at(prediction: Prediction, rows: Sequence[Mapping[str, Any]], name: str) -> Interval:
    """Return the interval of a column at some rows."""
    columns = [column for column in COLUMNS if column.name == name]
    return central_intervals(_at(prediction, rows), columns=columns)[name]


def _at(prediction: Prediction, rows: Sequence[Mapping[str, Any]]) -> Evaluation:
    """Return some rows of a prediction, evaluated by themselves."""
    e, places = prediction.evaluation, [_place(prediction, row) for row in rows]

    def taken(values: Any) -> Any:
        return np.broadcast_to(values, e.shape).ravel()[places]

    points = {name: taken(values) for name, values in e.points.items()}
    told = {name: getattr(e.acceptance, name) for name in ("measured_draft_length", *FORMS)}
    told.pop("acceptance_by_position")  # the same for all points
    changed = {name: taken(values) for name, values in told.items() if np.ndim(values)}
    return evaluate(e.deployment, points, replace(e.acceptance, **changed))


def _place(prediction: Prediction, row: Mapping[str, Any]) -> int:
    """Return the flat index of a row's point among all points [-]."""
    is_there = np.ones(prediction.evaluation.shape, dtype=bool)
    for name in _COORDINATES:
        if row.get(name) is not None:
            is_there &= prediction.value(name) == row[name]
    return int(np.flatnonzero(is_there)[0])
