"""Errors of an engine's speedups: of steps with a draft relative to plain ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import field

import numpy as np

from specmodel.base.classes import dataclass
from specmodel.base.units import FloatArray
from specmodel.fit.measured.tables import Served

VERIFY_SPREAD = 0.05  # spread of steps with a draft beside plain ones: kernels' errors [-]
RUN_SPREAD = 0.06  # spread of a measured speedup or step [-]
ONE_LOAD = 1.25  # batches and contexts that differ by a smaller factor are of one load [-]


@dataclass(kw_only=True, eq=False)
class SpeedupErrors:
    """Log predicted over measured speedups of one target [-], and the spreads of their runs [-]."""

    logs: list[float] = field(default_factory=list)
    spreads: list[float] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    plain: dict[int, float] = field(default_factory=dict)

    @property
    def mean(self) -> float:
        """Mean of the logarithms, by their weights [-]."""
        return float(np.average(self.logs, weights=self.weights))

    @property
    def score(self) -> float:
        """The mean, in standard deviations as errors of kernels and runs explain them [-]."""
        shares = np.array(self.weights) / sum(self.weights)
        runs = float(np.sum((shares * self.spreads) ** 2))
        if self.plain:
            runs += 1 / sum(spread**-2.0 for spread in self.plain.values())
        return self.mean / float(np.sqrt(VERIFY_SPREAD**2 + runs))

    def add(self, error: float, spread: float, of_plain: float = 0.0) -> None:
        """Add the error of a speedup, with the spreads of its run and of its plain one [-]."""
        self.logs.append(error)
        self.spreads.append(spread)
        self.weights.append(1 / (spread**2 + of_plain**2))


def speedup_errors(
    rows: Sequence[Served], missed: FloatArray, spreads: FloatArray
) -> dict[str, SpeedupErrors]:
    """Return the errors of speedups by target; `missed` is log predicted over measured [-].

    A step with a draft counts beside the plain step of the nearest load; one without a plain step
    of its load (`ONE_LOAD`) tells nothing of a speedup. `spreads` are those of runs [-].
    """
    found: dict[str, SpeedupErrors] = defaultdict(SpeedupErrors)
    for row, error, spread in zip(rows, missed.tolist(), spreads.tolist(), strict=True):
        if row.quantity == "speedup":
            found[_target(row)].add(error, spread)
        elif not _is_plain(row) and (place := nearest_plain(row, rows)) is not None:
            plain = found[_target(row)].plain[place] = float(spreads[place])
            found[_target(row)].add(float(missed[place]) - error, spread, plain)
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


def nearest_plain(row: Served, rows: Sequence[Served]) -> int | None:
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
