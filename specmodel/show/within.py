"""Which points meet a time per token, the largest batch that does, and what ends it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from specmodel.base.classes import dataclass
from specmodel.prediction.table import Row, seconds, varies
from specmodel.show.columns import ALTERNATIVES, chosen
from specmodel.show.facts import Fact
from specmodel.show.forms import text_table

if TYPE_CHECKING:
    from specmodel.answers.alternatives import Alternatives
    from specmodel.cost.deployment import Deployment
    from specmodel.prediction.outcome import Prediction


_MOST_SEARCHED = 4096
"""Most points that are tried for the largest batch within a target [-]."""
_LARGEST_SEARCHED = 1024
"""Largest batch size of alternatives that is tried, at least [request]."""
_MOST_JUDGED = 512
"""Points of which the interval is told [-]."""
_STEADY = "batches are steady here, in a simulation requests come and wait"
"""What a target without a load is of."""
_ALTERNATIVES = (
    *("alternative", "largest_batch_size", "throughput_per_gpu_within"),
    "cost_per_million_tokens",
)


@dataclass(frozen=True, kw_only=True)
class Within:
    """A target for the time per token [s], and the points searched for the largest batch.

    Intervals are shown if `has_interval`.
    """

    target: float
    prediction: Prediction
    has_interval: bool = True

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
        from numpy import broadcast_to

        from specmodel.cost.deployment import NO_DRAFTER

        memory = self.prediction.evaluation.memory
        alone = replace(memory.deployment, drafter=NO_DRAFTER)
        room = replace(memory, deployment=alone, verify_tokens=1.0).max_batch_size
        most = broadcast_to(room, self.prediction.batch_size.shape).ravel()
        held = zip(self.every, most, strict=True)
        return [row for row, last in held if row["batch_size"] <= last]

    def told(self) -> list[str]:
        """Return the largest batches in the target and their tokens/s, a line each; [] for none."""
        largest, plain, target = self.largest, self.plain, seconds(self.target)
        fitting = [row for row in self.every if row["fits"]]
        if not fitting:
            return []  # the verdict says so
        if not (largest or plain):
            least = min(fitting, key=lambda row: row["tpot"])
            shown = seconds(least["tpot"], self.target)
            return [f"No batch meets {target}: least {shown} at batch size {_size(least)}."]
        sizes = (
            f"{self._named(largest)}{self._range(fitting, 'tpot')} with speculation",
            f"{self._named(plain)}{self._range(self.without, 'forward_time')} without",
        )
        lines = [f"Within {target} a token: batch size {', '.join(sizes)}."]
        if largest:
            rate = f"{plain['batch_size'] / plain['forward_time']:.0f}" if plain else "none"
            lines.append(f"Tokens/s: {largest['throughput']:.0f} against {rate}{self._most()}.")
            lines += self._end()
        return [*lines, f"Under load: {_STEADY} (specmodel load --tpot-target {target})."]

    def row(self, price: float | None) -> Row:
        """Return the largest batches, their tokens/s per GPU, and the cost if `price` is given."""
        from specmodel.algebra.money import cost_per_million_tokens

        gpus, row = self.prediction.deployment.layout.num_gpus, Row()
        ends = ("_plain", self.plain, "forward_time"), ("", self.largest, "tpot")
        for end, largest, time in ends:
            rate = largest["batch_size"] / largest[time] / gpus if largest else None
            row[f"largest_batch_size{end}"] = int(largest["batch_size"]) if largest else None
            row[f"throughput_per_gpu_within{end}"] = rate
        if price is not None:
            cost = cost_per_million_tokens(price, 1, rate) if rate else None
            row["cost_per_million_tokens"] = cost
        return row

    def _named(self, row: Row | None) -> str:
        """Return a batch size, with its context if there are several."""
        if not row:
            return "none"
        at = f" (context {row['context_length']})" if varies("context_length", self.every) else ""
        return f"{_size(row)}{at}"

    def _most(self) -> str:
        """Return as text a smaller batch with more tokens/s than the largest; else ""."""
        most = max(self.kept(self.every), key=lambda row: row["throughput"])
        if not self.largest or _size(most) == _size(self.largest):
            return ""
        return f"; most {most['throughput']:.0f} at batch size {_size(most)}"

    def _range(self, rows: Sequence[Row], time: str) -> str:
        """Return as text the 80 % interval of the largest batch; "" where errors are unknown."""
        ends = self.ends(rows, time)
        if ends is None:
            return ""
        surely, at_best = ends
        more = " or more" if at_best == max(map(_size, self.every)) else ""
        return f" (80 % interval {surely or 'none'} to {at_best}{more})"

    def ends(self, rows: Sequence[Row], time: str) -> tuple[int, int] | None:
        """Return the 80 % interval of the largest batch; None where no time ends it [request]."""
        from specmodel.prediction.gains import ends_at

        step = -(-len(rows) // _MOST_JUDGED)
        judged = [row for i, row in enumerate(rows) if i % step == 0] if step else []
        ends = ends_at(self.prediction, judged, time) if self.has_interval else None
        if ends is None:
            return None
        surely, at_best = (
            max(
                (_size(r) for r, end in zip(judged, ends, strict=True) if end[of] <= self.target),
                default=0,
            )
            for of in (1, 0)
        )
        return None if surely == at_best else (surely, at_best)

    def facts(self) -> dict[str, Fact]:
        """Return the target and the largest batches in it, as `told` tells them."""
        fitting = [row for row in self.every if row["fits"]]
        largest, plain = self.largest, self.plain
        with_ends = (self.ends(fitting, "tpot") if largest and fitting else None) or (None, None)
        plain_ends = self.ends(self.without, "forward_time") if plain else None
        return {
            "tpot_target": Fact(self.target, "s"),
            "largest_batch": Fact(_size(largest) if largest else None, "request", *with_ends),
            "largest_batch_plain": Fact(
                _size(plain) if plain else None, "request", *(plain_ends or (None, None))
            ),
            "throughput_within": Fact(largest["throughput"] if largest else None, "token/s"),
            "throughput_within_plain": Fact(
                plain["batch_size"] / plain["forward_time"] if plain else None, "token/s"
            ),
        }

    def _end(self) -> list[str]:
        """Return a line on why the next larger batch misses the target."""
        from numpy import array

        if not self.largest:
            return []
        larger = [row for row in self.every if _size(row) > _size(self.largest)]
        if not larger:
            return []
        size = min(map(_size, larger))
        same = (row for row in larger if _size(row) == size)
        row = min(same, key=lambda row: (not row["fits"], row["tpot"]))
        why = f"takes {seconds(row['tpot'], self.target)}" if row["fits"] else "does not fit"
        at = array([row["batch_size"]]), array([row["verify_tokens"]])
        length = self.largest["draft_length"]
        if row["draft_length"] < length and self.prediction.deployment.graph_note(*at):
            why += f", as no CUDA graph holds drafts of {length} there"
        return [f"Next: {size} {why}."]


def within_target(
    prediction: Prediction, target: float, *, has_interval: bool
) -> tuple[Prediction, Within]:
    """Return a prediction up to the largest batch that meets `target` [s], and its `Within`.

    All batch sizes up to the largest are tried where they are not too many.
    """
    from numpy import arange, ravel

    from specmodel.prediction.predicting import predicted

    every, sizes = prediction, sorted({int(size) for size in ravel(prediction.batch_size)})
    case, most = prediction.case, sizes[-1]
    has_one_context = prediction.context_length.min() == prediction.context_length.max()
    is_few = prediction.tpot.size // len(sizes) * most <= _MOST_SEARCHED
    if case and has_one_context and is_few:
        every = replace(predicted(case.at(batch_size=arange(1, most + 1))), shown=prediction.shown)
    found = Within(target=target, prediction=every, has_interval=has_interval)
    if case and found.largest:
        last = _size(found.largest)
        kept = case.at(batch_size=[*(size for size in sizes if size < last), last])
        prediction = replace(predicted(kept), shown=prediction.shown)
    return prediction, found


def of_alternatives(found: Alternatives) -> tuple[list[Row], str, str]:
    """Return the largest batches of alternatives within a target as rows, sentence and table."""
    from specmodel.prediction.predicting import predicted

    target, rows = found.targets["tpot"], list[Row]()
    for name, prediction in found.predictions.items():
        most = max(_LARGEST_SEARCHED, int(prediction.batch_size.max()))
        every = predicted(found.cases[name].at(batch_size=range(1, most + 1)))
        own = Within(target=target, prediction=every).row(found.prices.get(name))
        rows.append({"alternative": name} | own)
    deployments = {name: case.deployment for name, case in found.cases.items()}
    return rows, *within_table(rows, seconds(target), deployments)


def within_table(
    rows: Sequence[Row], target: str, deployments: Mapping[str, Deployment]
) -> tuple[str, str]:
    """Return a sentence and a table of the largest batches within a time per token."""
    from specmodel.prediction.best import as_good

    rates = {row["alternative"]: row["throughput_per_gpu_within"] or 0.0 for row in rows}
    first, *close = as_good(rates, deployments)
    if not rates[first]:
        return f"Within {target} a token no alternative has a batch.", ""
    (size,) = (row["largest_batch_size"] for row in rows if row["alternative"] == first)
    near = f"; too close to tell apart: {'; '.join(close)}" if close else ""
    told = (
        f"Within {target} a token, most per GPU: {first}, {rates[first]:.0f} tokens/s with"
        f" {size} requests at once{near}. Under load: {_STEADY} (--for-load)."
    )
    table = text_table(rows, chosen(_ALTERNATIVES, ALTERNATIVES), left=["alternative"])
    return told, f"Within {target} a token:\n{table}"


def _size(row: Row) -> int:
    return int(row["batch_size"])
