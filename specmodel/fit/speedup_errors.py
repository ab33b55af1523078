"""Errors of an engine's speedups: of steps with a draft relative to plain ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from specmodel.base.units import FloatArray
from specmodel.fit.measured.tables import Served

VERIFY_SPREAD = 0.05  # spread of steps with a draft beside plain ones: kernels' errors [-]
RUN_SPREAD = 0.06  # spread of a measured speedup or step [-]
ONE_LOAD = 1.25  # batches and contexts that differ by a smaller factor are of one load [-]


@dataclass(kw_only=True, eq=False)
class SpeedupErrors:
    """Log predicted over measured speedups of one target [-], and the plain runs behind them."""

    logs: list[float] = field(default_factory=list)
    plain: set[int] = field(default_factory=set)

    @property
    def mean(self) -> float:
        """Mean of the logarithms [-]."""
        return float(np.mean(self.logs))

    @property
    def score(self) -> float:
        """The mean, in standard deviations as errors of kernels and runs explain them [-]."""
        runs = 1 / len(self.logs) + (1 / len(self.plain) if self.plain else 0.0)
        return self.mean / float(np.hypot(VERIFY_SPREAD, RUN_SPREAD * np.sqrt(runs)))


def speedup_errors(rows: Sequence[Served], missed: FloatArray) -> dict[str, SpeedupErrors]:
    """Return the errors of speedups by target; `missed` is log predicted over measured [-].

    A step with a draft counts beside the plain step of the nearest load; one without a plain step
    of its load (`ONE_LOAD`) tells nothing of a speedup.
    """
    found: dict[str, SpeedupErrors] = defaultdict(SpeedupErrors)
    for row, error in zip(rows, missed.tolist(), strict=True):
        if row.quantity == "speedup":
            found[_target(row)].logs.append(error)
        elif not _is_plain(row) and (place := _nearest_plain(row, rows)) is not None:
            found[_target(row)].logs.append(float(missed[place]) - error)
            found[_target(row)].plain.add(place)
    return found


def worst_score(errors: Iterable[SpeedupErrors]) -> float:
    """Return the score that is farthest from 0; 0 if there is none [-]."""
    return max((own.score for own in errors), key=abs, default=0.0)


def worst_excess(errors: Iterable[SpeedupErrors]) -> float:
    """Return by how much the worst speedups with a score above 2 are too high; else 0 [-]."""
    means = (own.mean for own in errors if abs(own.score) > 2)
    return float(np.expm1(max(means, key=abs, default=0.0)))


def _target(row: Served) -> str:
    return str(row.deployment["target"])


def _is_plain(row: Served) -> bool:
    return row.quantity != "speedup" and not row.points.get("draft_length")


def _nearest_plain(row: Served, rows: Sequence[Served]) -> int | None:
    """Return the index of the plain run of the nearest load, unless that is another load."""
    apart = {
        place: _apart(row, other)
        for place, other in enumerate(rows)
        if _is_plain(other) and _target(other) == _target(row)
    }
    nearest = min(apart, key=apart.__getitem__, default=None)
    return nearest if nearest is not None and apart[nearest] < np.log(ONE_LOAD) else None


def _apart(one: Served, other: Served) -> float:
    """Return the larger of the factors between batches and between contexts, as a logarithm [-]."""
    factors = [
        max(one.points[name], 1.0) / max(other.points[name], 1.0)
        for name in ("batch_size", "context_length")
    ]
    return float(np.abs(np.log(factors)).max())
