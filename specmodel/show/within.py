"""Which points meet a time per token, the largest batch that does, and what ends it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from specmodel.prediction.table import Row, seconds

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

    def kept(self, rows: Sequence[Row], time: str = "tpot") -> list[Row]:
        """Return the rows that fit in memory and meet it."""
        return [row for row in rows if row["fits"] and row[time] <= self.target]

    @cached_property
    def largest(self) -> Row | None:
        """The row of the largest batch that meets it with speculation."""
        return max(self.kept(self.every), key=_size, default=None)

    def told(self) -> str:
        """Say what the largest batches are, what they carry, and what ends the one that drafts."""
        plain = max(self.kept(self.every, "forward_time"), key=_size, default=None)
        if not (self.largest or plain):
            least = min(self.every, key=lambda row: row["tpot"])
            shown = seconds(least["tpot"], self.target)
            at = f"batch size {_size(least)}"
            return f"No batch meets {seconds(self.target)}: least {shown} at {at}."
        sizes = [_size(row) if row else 0 for row in (self.largest, plain)]
        told = "Within {} a token, the largest batch is {} with speculation, {} without"
        told = told.format(seconds(self.target), *sizes)
        if self.largest and plain:
            rate = plain["batch_size"] / plain["forward_time"]
            told += f": {self.largest['throughput']:.0f} tokens/s against {rate:.0f}"
        return f"{told}.{self._ends(plain)}{self._end()}"

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
        row = min((row for row in larger if _size(row) == size), key=lambda row: row["tpot"])
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
