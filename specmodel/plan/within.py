"""Find the largest batch within a time per token, with and without speculation, and its limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Self

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from specmodel.core.algebra.money import cost_per_million_tokens
from specmodel.core.base.facts import Fact, known
from specmodel.core.cost.deployment import NO_DRAFTER
from specmodel.core.prediction.case import Case
from specmodel.core.prediction.gains import ends_at
from specmodel.core.prediction.outcome import Prediction
from specmodel.core.prediction.predicting import predicted
from specmodel.core.prediction.table import Row

_MOST_SEARCHED = 4096
"""Most points that are tried for the largest batch within a target [-]."""
_LARGEST_SEARCHED = 1024
"""Largest batch size of alternatives that is tried, at least [request]."""
_MOST_JUDGED = 512
"""Points of which the interval is computed [-]."""


class LargestBatches(Struct, frozen=True, kw_only=True, dict=True):
    """The largest batches that meet a time per token, among the points of a prediction.

    Parameters
    ----------
    target
        The time per token [s].
    prediction
        The points that are searched.
    has_interval
        Whether the batches have intervals.
    """

    target: float
    prediction: Prediction
    has_interval: bool = True

    @classmethod
    def searched(
        cls, prediction: Prediction, target: float, *, has_interval: bool
    ) -> tuple[Prediction, Self]:
        """Return a prediction up to the largest batch within `target` [s], and the batches.

        All batch sizes up to the largest are tried where they are not too many.
        """
        every, sizes = prediction, sorted({int(size) for size in np.ravel(prediction.batch_size)})
        case, most = prediction.case, sizes[-1]
        has_one_context = prediction.context_length.min() == prediction.context_length.max()
        is_few = prediction.tpot.size // len(sizes) * most <= _MOST_SEARCHED
        if case and has_one_context and is_few:
            points = case.at(batch_size=np.arange(1, most + 1))
            every = replace(predicted(points), shown=prediction.shown)
        batches = cls(target=target, prediction=every, has_interval=has_interval)
        if case and batches.largest:
            last = _size(batches.largest)
            kept = case.at(batch_size=[*(size for size in sizes if size < last), last])
            prediction = replace(predicted(kept), shown=prediction.shown)
        return prediction, batches

    @cached_property
    def every(self) -> Sequence[Row]:
        """The points, a row each."""
        return self.prediction.rows()

    def kept(self, rows: Sequence[Row]) -> list[Row]:
        """Return the rows that fit in memory and meet the target."""
        return [row for row in rows if row["fits"] and row["tpot"] <= self.target]

    @cached_property
    def largest(self) -> Row | None:
        """The fastest row of the largest batch that meets the target with speculation, or None."""
        rows = self.kept(self.every)
        return max(rows, key=lambda row: (_size(row), -row["tpot"]), default=None)

    @cached_property
    def plain(self) -> Row | None:
        """The row of the largest batch that meets the target without a drafter, or None."""
        rows = (row for row in self.without if row["forward_time"] <= self.target)
        return max(rows, key=_size, default=None)

    @cached_property
    def without(self) -> Sequence[Row]:
        """The rows that fit in memory where no drafter is loaded."""
        memory = self.prediction.evaluation.memory
        alone = replace(memory.deployment, drafter=NO_DRAFTER)
        room = replace(memory, deployment=alone, verify_tokens=1.0).max_batch_size
        most = np.broadcast_to(room, self.prediction.batch_size.shape).ravel()
        held = zip(self.every, most, strict=True)
        return [row for row, last in held if row["batch_size"] <= last]

    def ends(self, rows: Sequence[Row], time: str) -> tuple[int, int] | tuple[None, None]:
        """Return the 80 % interval of the largest batch; None where no time ends it [request]."""
        step = -(-len(rows) // _MOST_JUDGED)
        judged = rows[::step] if step else []
        ends = ends_at(self.prediction, judged, time) if self.has_interval else None
        if ends is None:
            return None, None
        pairs = [*zip(judged, ends, strict=True)]
        held = ([_size(row) for row, end in pairs if end[of] <= self.target] for of in (1, 0))
        low, high = (max(sizes, default=0) for sizes in held)
        return (None, None) if low == high else (low, high)

    def facts(self) -> dict[str, Fact]:
        """Return the target, the largest batches in it, and what the next larger one does."""
        fitting = [row for row in self.every if row["fits"]]
        largest, plain = self.largest, self.plain
        if not fitting:
            return {}
        facts = {"tpot_target": Fact(self.target, "s")}
        if largest:
            facts |= {
                "largest_batch": Fact(_size(largest), "request", *self.ends(fitting, "tpot")),
                "throughput_within": Fact(largest["throughput"], "token/s"),
                **self._next(_size(largest)),
            }
        if plain:
            ends, rate = self.ends(self.without, "forward_time"), _rate(plain, "forward_time")
            facts["largest_batch_plain"] = Fact(_size(plain), "request", *ends)
            facts["throughput_within_plain"] = Fact(rate, "token/s")
        if not (largest or plain):
            least = min(fitting, key=lambda row: row["tpot"])
            facts["least_tpot"] = Fact(least["tpot"], "s")
            facts["least_tpot_at"] = Fact(_size(least), "request")
        return known(facts.items())

    def _next(self, largest: int) -> dict[str, Fact]:
        """Return the next larger batch, which misses the target or does not fit."""
        larger = [row for row in self.every if _size(row) > largest]
        size = min(map(_size, larger), default=None)
        fits = any(row["fits"] for row in larger if _size(row) == size)
        return {"missed_at" if fits else "without_room_at": Fact(size, "request")}

    def row(self, price: float | None) -> Row:
        """Return the largest batches, their tokens/s per GPU, and the cost if `price` is given."""
        gpus, row = self.prediction.deployment.layout.num_gpus, Row()
        ends = ("_plain", self.plain, "forward_time"), ("", self.largest, "tpot")
        for end, largest, time in ends:
            rate = _rate(largest, time) / gpus if largest else None
            row[f"largest_batch_size{end}"] = _size(largest) if largest else None
            row[f"throughput_per_gpu_within{end}"] = rate
        if price is not None:
            cost = cost_per_million_tokens(price, 1, rate) if rate else None
            row["cost_per_million_tokens"] = cost
        return row


def largest_batches(
    cases: Mapping[str, Case], target: float, prices: Mapping[str, float]
) -> list[Row]:
    """Return the largest batches of alternatives within a time per token, a row for each.

    Parameters
    ----------
    cases
        What is asked of each alternative, by its name.
    target, prices
        The time per token [s], and the price of a GPU of each for an hour, as far as given [-].
    """
    rows = list[Row]()
    for name, case in cases.items():
        most = max(_LARGEST_SEARCHED, int(np.max(case.points["batch_size"])))
        every = predicted(case.at(batch_size=range(1, most + 1)))
        batches = LargestBatches(target=target, prediction=every)
        rows.append({"alternative": name, **batches.row(prices.get(name))})
    return rows


def _size(row: Row) -> int:
    return int(row["batch_size"])


def _rate(row: Row, time: str) -> float:
    return float(row["batch_size"] / row[time])
