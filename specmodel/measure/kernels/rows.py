"""A file of timings, appended to as they are measured, and their provenance in JSON beside it."""

import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from specmodel.base.appended import AppendedRows
from specmodel.base.tables import read_table

COLUMNS = (
    "point", "group", "repeat", "component", "role", "hardware", "stack", "version", "latency",
    "reference_latency", "elapsed", "num_tokens", "batch_size", "tokens_per_sequence",
    "routing_correlation", "distribution", "hidden_size", "expert_size", "num_experts",
    "experts_per_token", "active_experts", "num_matrices", "includes_router", "input_size",
    "output_size", "query_tokens", "context_length", "num_heads", "num_kv_heads", "head_dim",
    "weight_dtype", "activation_dtype", "kv_dtype", "bytes", "graphs", "num_gpus", "note",
)  # fmt: skip
"""Columns of a file of timings; a component leaves the columns of others blank."""

_TIMED = ("repeat", "latency", "reference_latency")  # in every row, times unless there is a note
_FROM_0 = ("elapsed", "routing_correlation", "includes_router", "graphs")
_NAMES = (
    *("point", "group", "component", "role", "hardware", "stack", "distribution"),
    *("weight_dtype", "activation_dtype", "kv_dtype"),
)
"""Columns of words; those besides version and note are numbers, of which few may be 0."""


def read_rows(path: str | Path) -> pd.DataFrame:
    """Return all rows of a CSV that `session.run_suite` wrote, unchecked, notes included."""
    text = ("component", "hardware", "stack", "version", "role", "point", "group", "note")
    return read_table(path, text)


class RowFile(AppendedRows):
    """The timings of one device and suite (`identity`), open for appending; a context manager.

    Rows of components in `again` move to a file with ".dropped" in its name, to be timed anew.
    """

    def __init__(
        self,
        path: str | Path,
        identity: Mapping[str, Any],
        session: Mapping[str, Any],
        again: Collection[str] = (),
    ) -> None:
        super().__init__(path, COLUMNS, "calibrate", identity=identity, session=session)
        self._again = again
        self.done: set[tuple[str, int]] = set()
        self.skipped: set[str] = set()

    def read(self) -> list[dict[str, str]]:
        """Return the rows that stay, after counting them; refuse damage and another identity."""
        self._dropped, self._kept = list[dict[str, str]](), list[dict[str, str]]()
        for number, row in enumerate(super().read(), start=2):
            if (damage := _damage(row)) is not None:
                raise self.error(f"whole rows; line {number} is damaged: {damage}")
            if row["component"] in self._again:
                self._dropped.append(row)
            else:
                self._count(row)
                self._kept.append(row)
        return self._kept

    def _prepare(self) -> None:
        """Record this run, and move the rows that are timed anew to the file of dropped ones."""
        super()._prepare()
        if self._dropped:
            path = self.path.with_suffix(f".dropped{self.path.suffix}")
            with path.open("a", encoding="utf-8") as file:
                file.write(("" if file.tell() else self._header) + self.lines(self._dropped))
            self._rewrite(self._kept)

    def has(self, point: str, repeat: int) -> bool:
        """Return whether a timing is there, or is noted as one that cannot be taken."""
        return (point, repeat) in self.done or point in self.skipped

    def append(self, row: Mapping[str, Any]) -> None:
        """Append a row, and count it."""
        super().append(row)
        self._count(row)

    def _count(self, row: Mapping[str, Any]) -> None:
        self.done.add((row["point"], int(row["repeat"])))
        if row.get("note"):
            self.skipped.add(row["point"])


def _damage(row: Mapping[Any, Any]) -> str | None:
    """Return the cell of a row that was not written here, as a cut or joined row has; or None."""
    if None in row or row["note"] is None:
        return "its number of cells"
    for name, text in row.items():
        number = _number(text)
        if name in _NAMES:
            is_sound = number is None and (bool(text) or name not in _NAMES[:3])
        elif name in ("version", "note") or (not text and name not in _TIMED):
            continue
        elif name == "repeat":
            is_sound = text.isdigit()
        else:
            least = 0.0 if name in _FROM_0 else 1e-30
            is_sound = number is not None and least <= number < math.inf
            is_sound |= name in _TIMED and bool(row["note"])
        if not is_sound:
            return f"{name} {text!r}"
    return None


def _number(text: str) -> float | None:
    """Return the number in a cell, which may be NaN; None where there is none."""
    try:
        return float(text)
    except ValueError:
        return None
