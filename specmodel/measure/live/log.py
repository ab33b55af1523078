"""The table of a measurement: a row for each request and for each run as it ends."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from specmodel.base.appended import AppendedRows
from specmodel.measure.live.plan import ROLES, Run

KEY = tuple(field.name for field in fields(Run))  # columns that identify a run, as `Run.key`
COUNTED = (
    *("requests", "drafts", "draft_tokens", "accepted_tokens", "accepted_by_position"),
    *("cached_tokens", "preemptions", "engine_tpot"),
)
"""What an engine counted in a run, which only the run's row has."""
COLUMNS = (
    *KEY,
    *("attempt", "role", "slot", "number", "started", "first_token", "latency"),
    *("prompt_tokens", "output_tokens", "events"),
    *COUNTED,
    *("topk", "verify_tokens", "engine", "version", "model", "note"),
)
"""All columns. Roles: warm-up, lead, timed and tail are requests; run is all of them together."""


_WHOLE, _NUMBER = r"\d{1,15}", r"\d{1,15}(\.\d+)?(e-\d\d)?"
_CELLS = {
    **dict.fromkeys(("round", "draft_length", "repeat"), _WHOLE),
    **dict.fromkeys(("concurrency", "prompt_length", "output_length", "attempt"), r"[1-9]\d{0,9}"),
    **dict.fromkeys(("slot", "number", "events", "topk", "verify_tokens"), f"({_WHOLE})?"),
    **dict.fromkeys(("started", "first_token", "latency", *COUNTED), f"({_NUMBER})?"),
    **dict.fromkeys(("prompt_tokens", "output_tokens"), f"({_NUMBER})?"),
    "accepted_by_position": f"({_NUMBER}( {_NUMBER})*)?",
}
"""How the numbers of each column are written."""


class Log(AppendedRows):
    """The table of a measurement, open for appending; a context manager.

    The CSV is made if it is not there, and continued if it is, unless an InputError says that it is
    in use, damaged, or of another model or engine: `identity` is what all rows must have in common.
    `session` is what is recorded of this run of the program.
    """

    def __init__(
        self, path: str | Path, identity: Mapping[str, Any], session: Mapping[str, Any]
    ) -> None:
        super().__init__(path, COLUMNS, "measure-engine", identity=identity, session=session)
        self.done: set[tuple[int, ...]] = set()
        self._attempts: Counter[tuple[int, ...]] = Counter()
        self.rows: list[dict[str, str]] = []

    def read(self) -> list[dict[str, str]]:
        """Return the rows that are there, after noting which runs are done."""
        self.rows = super().read()
        for number, row in enumerate(self.rows, start=2):
            if None in row or row["note"] is None or not _is_sound(row):
                raise self.error(f"whole rows; line {number} is damaged")
            self._note(row)
        for run, requests in counted_rows(self.rows):
            asked = {(r["role"], r["slot"], r["number"]) for r in requests}
            slots = {r["slot"] for r in requests if r["role"] == "timed"}
            if len(asked) < len(requests) or len(slots) != int(run["concurrency"]):
                name = "-".join(run[name] for name in KEY)
                raise self.error(f"each request of run {name} once; some are lost or twice")
        return self.rows

    def attempt(self, run: Run) -> int:
        """Return the number of the next attempt at a run; earlier ones were interrupted [-]."""
        return self._attempts[run.key] + 1

    def add(self, run: Run, role: str, values: Mapping[str, Any], attempt: int) -> None:
        """Append a row of a run: of a request in some role, or of the end of the run (role run)."""
        own = dict(zip(KEY, run.key, strict=True)) | {"role": role, "attempt": attempt}
        row = {name: _cell(value) for name, value in (own | dict(values)).items()}
        self.append(row)
        self.rows.append(dict.fromkeys(COLUMNS, "") | row)
        self._note(self.rows[-1])

    def _note(self, row: Mapping[str, str]) -> None:
        key = tuple(int(row[name]) for name in KEY)
        self._attempts[key] = max(self._attempts[key], int(row["attempt"]))
        if row["role"] == "run":
            self.done.add(key)


def counted_rows(rows: Iterable[Mapping[str, str]]) -> list[tuple[Mapping[str, str], list[Any]]]:
    """Return the row of each run that ended, with the rows of its requests in the same attempt."""
    rows = list(rows)
    runs = {_attempt_of(row): (row, list[Any]()) for row in rows if row["role"] == "run"}
    for row in rows:
        if row["role"] != "run" and _attempt_of(row) in runs:
            runs[_attempt_of(row)][1].append(row)
    return list(runs.values())


def tells_steps(counted: Mapping[str, Any]) -> bool:
    """Tell whether what was counted in a run with speculation tells its steps."""
    names = ("output_tokens", "requests", "drafts", "accepted_tokens")
    made, count, drafts, accepted = (float(counted.get(name) or 0.0) for name in names)
    return made > count and (drafts > 0.0 or not accepted)


def _is_sound(row: Mapping[str, str]) -> bool:
    """Tell whether the numbers of a row are numbers, and those of a timed request as asked for."""
    if not all(re.fullmatch(cell, row[name]) for name, cell in _CELLS.items()):
        return False
    if row["role"] == "run":
        return row["draft_length"] == "0" or tells_steps(row)
    if row["role"] not in ROLES or not row["latency"]:
        return False
    if row["role"] != "timed" or row["note"] not in ("", "late"):
        return True
    first, latency = float(row["first_token"] or 0.0), float(row["latency"])
    is_whole = row["output_tokens"] == row["output_length"] and float(row["prompt_tokens"] or 0) > 0
    return is_whole and first <= latency


def _attempt_of(row: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(row[name] for name in (*KEY, "attempt"))


def _cell(value: Any) -> str:
    """Return a value as the text of a cell; empty for what is not known."""
    if value is None or value != value:
        return ""
    return f"{value:.9g}" if isinstance(value, float) and abs(value) < 1e6 else str(value)
