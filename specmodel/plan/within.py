"""Find the largest batch that meets a time per token, with and without speculation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from operator import itemgetter
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
"""Most points to predict in search of the largest batch within a target [-]."""
_LARGEST_SEARCHED = 1024
"""Least batch size up to which alternatives are searched [request]."""
_MOST_JUDGED = 512
"""Most points whose interval is computed [-]."""


class LargestBatches(Struct, frozen=True, kw_only=True, dict=True):
    """The largest batches that meet a time per token, among the points of a prediction.

    Parameters
    ----------
    target
        The time per token [s].
    prediction
        The points to search.
    has_interval
        Whether to compute intervals of the batches.
    """

    target: float
    prediction: Prediction
    has_interval: bool = True

    @classmethod
    def searched(
        cls, prediction: Prediction, target: float, *, has_interval: bool
    ) -> tuple[Prediction, Self]:
        """Return a prediction up to the largest batch within `target` [s], and the batches.

        The search covers all batch sizes up to the largest one, unless these are too many.
        """
        every, sizes = prediction, np.unique(prediction.batch_size).astype(int).tolist()
        case, most = prediction.case, sizes[-1]
        has_one_context = prediction.context_length.min() == prediction.context_length.max()
        is_few = prediction.tpot.size // len(sizes) * most <= _MOST_SEARCHED
        if case and has_one_context and is_few:
            points = case.at(batch_size=np.arange(1, most + 1))
            every = replace(predicted(points), shown=prediction.shown)
        batches = cls(target=target, prediction=every, has_interval=has_interval)
        if case and batches.largest:
            last = batches.largest["batch_size"]
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
        return max(rows, key=lambda row: (row["batch_size"], -row["tpot"]), default=None)

    @cached_property
    def plain(self) -> Row | None:
        """The row of the largest batch that meets the target without a drafter, or None."""
        rows = (row for row in self.without if row["forward_time"] <= self.target)
        return max(rows, key=_size, default=None)

    @cached_property
    def without(self) -> Sequence[Row]:
        """The rows whose batch fits in memory if no drafter is loaded."""
        memory = self.prediction.evaluation.memory
        alone = replace(memory.deployment, drafter=NO_DRAFTER)
        room = replace(memory, deployment=alone, verify_tokens=1.0).max_batch_size
        fits = np.ravel(self.prediction.batch_size <= room)
        return [row for row, has_room in zip(self.every, fits, strict=True) if has_room]

    def ends(self, rows: Sequence[Row], time: str) -> tuple[int, int] | tuple[None, None]:
        """Return the 80 % interval of the largest batch [request]; None if no time limits it.

        `time` is the column that must meet the target.
        """
        judged = rows[:: max(-(-len(rows) // _MOST_JUDGED), 1)]
        ends = ends_at(self.prediction, judged, time) if self.has_interval else None
        if ends is None:
            return None, None
        pairs = [*zip(map(_size, judged), ends, strict=True)]
        low, high = (
            max((size for size, end in pairs if end[of] <= self.target), default=0) for of in (1, 0)
        )
        return (None, None) if low == high else (low, high)

    def facts(self) -> dict[str, Fact]:
        """Return the target, the largest batches that meet it, and why the next one does not."""
        fitting = [row for row in self.every if row["fits"]]
        largest, plain = self.largest, self.plain
        if not fitting:
            return {}
        facts = {"tpot_target": Fact(self.target, "s")}
        if largest:
            ends = self.ends(fitting, "tpot")
            facts["largest_batch"] = Fact(largest["batch_size"], "request", *ends)
            facts["throughput_within"] = Fact(largest["throughput"], "token/s")
            larger = [row for row in self.every if row["batch_size"] > largest["batch_size"]]
            size = min(map(_size, larger), default=None)
            fits = any(row["fits"] for row in larger if row["batch_size"] == size)
            facts["missed_at" if fits else "without_room_at"] = Fact(size, "request")
        if plain:
            ends, rate = self.ends(self.without, "forward_time"), _rate(plain, "forward_time")
            facts["largest_batch_plain"] = Fact(plain["batch_size"], "request", *ends)
            facts["throughput_within_plain"] = Fact(rate, "token/s")
        if not (largest or plain):
            least = min(fitting, key=itemgetter("tpot"))
            facts["least_tpot"] = Fact(least["tpot"], "s")
            facts["least_tpot_at"] = Fact(least["batch_size"], "request")
        return known(facts.items())

    def row(self, price: float | None) -> Row:
        """Return the largest batches, their tokens/s per GPU, and the cost if `price` is given."""
        gpus, row = self.prediction.deployment.layout.num_gpus, Row()
        ends = ("_plain", self.plain, "forward_time"), ("", self.largest, "tpot")
        for end, largest, time in ends:
            rate = _rate(largest, time) / gpus if largest else None
            row[f"largest_batch_size{end}"] = largest and largest["batch_size"]
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
        The case of each alternative, by its name.
    target, prices
        The time per token [s], and the known prices of a GPU for an hour, by alternative [-].
    """
    rows = list[Row]()
    for name, case in cases.items():
        most = max(_LARGEST_SEARCHED, int(np.max(case.points["batch_size"])))
        every = predicted(case.at(batch_size=range(1, most + 1)))
        batches = LargestBatches(target=target, prediction=every)
        rows.append({"alternative": name, **batches.row(prices.get(name))})
    return rows


_size = itemgetter("batch_size")


def _rate(row: Row, time: str) -> float:
    """Return the tokens per second of a batch whose tokens need the time in column `time`."""
    return float(row["batch_size"] / row[time])
