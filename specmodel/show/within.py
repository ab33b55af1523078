"""Which points meet a time per token, the largest batch that does, and what ends it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from specmodel.prediction.table import Row, seconds, varies

if TYPE_CHECKING:
    from specmodel.prediction.outcome import Prediction


@dataclass(frozen=True, kw_only=True)
class Within:
    """A time per token that points should meet [s], and the points among which the largest is.

    Intervals are told where `has_interval`.
    """

    target: float
    prediction: Prediction
    has_interval: bool = True

    @cached_property
    def every(self) -> Sequence[Row]:
        """The points, a row each."""
        return self.prediction.rows()

    def kept(self, rows: Sequence[Row]) -> list[Row]:
        """Return the rows that fit in memory and meet it."""
        return [row for row in rows if row["fits"] and row["tpot"] <= self.target]

    @cached_property
    def largest(self) -> Row | None:
        """The fastest row of the largest batch that meets it with speculation."""
        rows = self.kept(self.every)
        return max(rows, key=lambda row: (_size(row), -row["tpot"]), default=None)

    @cached_property
    def plain(self) -> Row | None:
        """The row of the largest batch that meets it where no drafter is loaded."""
        from numpy import broadcast_to

        from specmodel.cost.deployment import NO_DRAFTER

        memory = self.prediction.evaluation.memory
        alone = replace(memory.deployment, drafter=NO_DRAFTER)
        room = replace(memory, deployment=alone, verify_tokens=1.0).max_batch_size
        most = broadcast_to(room, self.prediction.batch_size.shape).ravel()
        held = zip(self.every, most, strict=True)
        rows = (row for row, last in held if row["batch_size"] <= last)
        return max((r for r in rows if r["forward_time"] <= self.target), key=_size, default=None)

    def told(self) -> str:
        """Say what the largest batches are, what they carry, and what ends the one that drafts."""
        largest, plain = self.largest, self.plain
        fitting = [row for row in self.every if row["fits"]]
        if not fitting:
            return ""  # the verdict says so
        if not (largest or plain):
            least = min(fitting, key=lambda row: row["tpot"])
            shown = seconds(least["tpot"], self.target)
            at = f"batch size {_size(least)}"
            return f"No batch meets {seconds(self.target)}: least {shown} at {at}."
        with_drafts, without = map(self._named, (largest, plain))
        told = f"Within {seconds(self.target)} a token, the largest batch is"
        told += f" {with_drafts} with speculation, {without} without"
        if largest and plain:
            rate = plain["batch_size"] / plain["forward_time"]
            told += f": {largest['throughput']:.0f} tokens/s against {rate:.0f}"
        elif largest:
            least = min(row["forward_time"] for row in self.every)
            told += f" ({seconds(least, self.target)} at least)"
        return f"{told}.{self._most()}{self._ends(plain)}{self._end()}"

    def _named(self, row: Row | None) -> str:
        """Return a batch size, with its context if there are several."""
        if not row:
            return "none"
        at = f" (context {row['context_length']})" if varies("context_length", self.every) else ""
        return f"{_size(row)}{at}"

    def _most(self) -> str:
        """Say where a smaller batch carries more tokens a second than the largest."""
        rows = self.kept(self.every)
        most = max(rows, key=lambda row: row["throughput"], default=None)
        if not (most and self.largest) or _size(most) == _size(self.largest):
            return ""
        rate = f"{most['throughput']:.0f} at batch size {_size(most)}"
        return f" Most tokens/s with speculation: {rate}."

    def _ends(self, plain: Row | None) -> str:
        """Say how sure the times per token of the largest batches are, where errors are known."""
        from specmodel.prediction.gains import ends_at

        parts = []
        for row, name, how in (
            (self.largest, "tpot", "with"),
            (plain, "forward_time", "without"),
        ):
            if row and self.has_interval and (ends := ends_at(self.prediction, row, name)):
                low, high = (seconds(end, self.target) for end in ends)
                parts.append(
                    f"{seconds(row[name], self.target)} {how} (80 % interval {low} to {high})"
                )
        return f" A token takes {', '.join(parts)}." if parts else ""

    def _end(self) -> str:
        """Say what the next larger batch would take, and why."""
        from numpy import array

        if not self.largest:
            return ""
        larger = [row for row in self.every if _size(row) > _size(self.largest)]
        if not larger:
            return f" Larger ones than {_size(self.largest)} were not considered."
        size = min(map(_size, larger))
        same = (row for row in larger if _size(row) == size)
        row = min(same, key=lambda row: (not row["fits"], row["tpot"]))
        if not row["fits"]:
            return f" {size} do not fit in memory."
        told = f" At {size} it takes {seconds(row['tpot'], self.target)}"
        length = self.largest["draft_length"]
        at = array([row["batch_size"]]), array([row["verify_tokens"]])
        if row["draft_length"] < length and self.prediction.deployment.graph_note(*at):
            told += f", as no CUDA graph holds drafts of {length} there"
        return f"{told}."


def _size(row: Row) -> int:
    return int(row["batch_size"])
