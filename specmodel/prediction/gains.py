"""How sure a gain is at some points of a prediction: interval of the speedup, and chance."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from specmodel.algebra.acceptance import FORMS, Acceptance
from specmodel.base.classes import dataclass
from specmodel.prediction.columns import COLUMNS
from specmodel.prediction.intervals import Interval, central_intervals, peak_interval
from specmodel.prediction.outcome import Prediction

SURELY, LIKELY = 0.95, 0.75
"""Least chances of what is said surely and likely to come [-]."""
HELD = {
    False: {"surely": 0.99, "likely": 0.95, "may": 0.61, "loss": 0.81},
    True: {"surely": 0.93, "likely": 0.94, "may": 0.83, "loss": 0.81},
}
"""Share of what was said of published cases that came [-], of gains by word, and of losses, which
have a chance of a gain below a half: with the acceptance of the run (591 cases of hosts left out,
`calibration/interval_judge.py`), and with published acceptance (692, `as_published.py`)."""

_COORDINATES = ("batch_size", "draft_length", "context_length")


@dataclass(frozen=True, kw_only=True)
class Gain:
    """Ends of the 80 % interval of a speedup, and the chance that it is above 1 [-]."""

    low: float
    high: float
    chance: float

    @property
    def is_open(self) -> bool:
        """Whether the interval includes 1: a gain is as little known as a loss."""
        return self.low <= 1 < self.high

    @property
    def word(self) -> str:
        """How sure a gain is, or a loss if that is likelier: "surely", "likely" or "may"."""
        chance = max(self.chance, 1 - self.chance)
        return "surely" if chance >= SURELY else "likely" if chance >= LIKELY else "may"

    @property
    def is_lost(self) -> bool:
        """Whether a loss is at least likely."""
        return self.chance <= 1 - LIKELY

    def share_held(self, *, is_published: bool) -> float:
        """Return the share of published cases told the same that came true [-].

        `is_published` says that acceptance was not the run's own.
        """
        return HELD[is_published]["loss" if self.chance < 0.5 else self.word]

    def held(self, *, is_published: bool) -> str:
        """Return how often published cases told the same came true, as a clause."""
        share = f"{self.share_held(is_published=is_published):.0%}"
        if self.chance < 0.5:
            return f"of published cases told so, {share} lost"
        if self.word == "may":
            return f"of published cases as open, {share} gained"
        return f"{self.word}: right in {share} of published cases"


def gains_at(prediction: Prediction, rows: Sequence[Mapping[str, Any]]) -> list[Gain | None]:
    """Return the 80 % interval of the speedup and the chance of a gain, for rows of a prediction.

    A row has the batch size, draft length and context of a point; what it lacks does not vary.
    None for all rows where no error is known: under an engine without overheads, which is an upper
    bound, or in place of one that is not modelled, and with kernels that state none.
    """
    if not prediction.states_errors or not rows:
        return [None] * len(rows)
    found = _interval_at(prediction, rows, "speedup")
    ends = zip(*(np.ravel(part).tolist() for part in vars(found).values()), strict=True)
    return [Gain(low=low, high=high, chance=chance) for low, high, chance in ends]


def ends_at(
    prediction: Prediction, rows: Sequence[Mapping[str, Any]], name: str
) -> list[tuple[float, float]] | None:
    """Return the ends of the 80 % interval of a column at rows; None where no error is known."""
    if not prediction.states_errors or not rows:
        return None
    found = _interval_at(prediction, rows, name)
    return list(zip(found.low.ravel().tolist(), found.high.ravel().tolist(), strict=True))


def peak_at(
    prediction: Prediction, rows: Sequence[Mapping[str, Any]]
) -> tuple[int, int] | tuple[None, None]:
    """Return the ends of the 80 % interval of the batch size of the peak of a curve's rows.

    None for both where no error is known.
    """
    if not prediction.states_errors or not rows:
        return None, None
    return peak_interval(prediction.deployment, *_points_at(prediction, rows))


def _interval_at(prediction: Prediction, rows: Sequence[Mapping[str, Any]], name: str) -> Interval:
    """Return the interval of a column at some rows."""
    columns = [column for column in COLUMNS if column.name == name]
    asked = _points_at(prediction, rows)
    return central_intervals(prediction.deployment, *asked, columns=columns)[name]


def _points_at(
    prediction: Prediction, rows: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, Any], Acceptance]:
    """Return coordinates and acceptance of some rows."""
    e, places = prediction.evaluation, [_place(prediction, row) for row in rows]

    def taken(values: Any) -> Any:
        return np.broadcast_to(values, e.shape).ravel()[places]

    points = {name: taken(values) for name, values in e.points.items()}
    told = {name: getattr(e.acceptance, name) for name in ("measured_draft_length", *FORMS)}
    told.pop("acceptance_by_position")  # which is one for all points
    changed = {name: taken(values) for name, values in told.items() if np.ndim(values)}
    return points, replace(e.acceptance, **changed)


def _place(prediction: Prediction, row: Mapping[str, Any]) -> int:
    """Return the flat index of a row's point among all points [-]."""
    is_there = np.ones(prediction.evaluation.shape, dtype=bool)
    for name in _COORDINATES:
        if row.get(name) is not None:
            is_there &= prediction.value(name) == row[name]
    return int(np.flatnonzero(is_there)[0])
