"""A file of timings to which rows are appended as they are measured, and never lost.

Rows are CSV, provenance is JSON beside it. One process at a time; one that was killed left whole
rows, and perhaps the beginning of one, which is cut off.
"""

import contextlib
import csv
import io
import json
import math
import os
import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import pandas as pd

from specmodel.base.errors import InputError
from specmodel.base.files import write_text
from specmodel.base.tables import read_table

COLUMNS = (
    "point", "group", "repeat", "component", "role", "hardware", "stack", "version", "latency",
    "reference_latency", "elapsed", "num_tokens", "batch_size", "tokens_per_sequence",
    "routing_correlation", "distribution", "hidden_size", "expert_size", "num_experts",
    "experts_per_token", "active_experts", "num_matrices", "includes_router", "input_size",
    "output_size", "query_tokens", "context_length", "num_heads", "num_kv_heads", "head_dim",
    "weight_dtype", "activation_dtype", "kv_dtype", "bytes", "graphs", "num_gpus", "note",
)  # fmt: skip
"""Columns of a file of rows; a component leaves those blank that are not its own."""

_HEADER = ",".join(COLUMNS) + "\n"

SYNC_INTERVAL = 1.0
"""Rows reach the disk within this time even if the machine stops [s]."""


def read_rows(path: str | Path) -> pd.DataFrame:
    """Return all rows of a CSV that `session.run_suite` wrote, unchecked, with what was skipped."""
    text = ("component", "hardware", "stack", "version", "role", "point", "group", "note")
    return read_table(path, text)


class RowFile:
    """Rows of one device and suite, open for appending; a context manager.

    Parameters
    ----------
    path
        The CSV; made if it is not there, continued if it is.
    identity
        What must not differ between the rows of a file, such as device and versions.
    session
        What is recorded of this run beside it.
    again
        Components whose rows are taken out, so that they are timed anew; they are kept beside
        the file, with ".dropped" in its name.

    Raises
    ------
    InputError
        If the file is of another identity, in use, or cannot be written.
    """

    def __init__(
        self,
        path: str | Path,
        identity: Mapping[str, Any],
        session: Mapping[str, Any],
        again: Collection[str] = (),
    ) -> None:
        self.path, self._again = Path(path), again
        self.provenance_path = self.path.with_suffix(".json")
        self.identity, self._session = dict(identity), dict(session)
        self.done: set[tuple[str, int]] = set()
        self.skipped: set[str] = set()
        self._synced = 0.0

    def __enter__(self) -> Self:
        from filelock import FileLock, Timeout

        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(FileLock(self.path.with_name(f".{self.path.name}.lock"), 0))
                text = self.read()
                self.note_session()
                if self._dropped:
                    self._drop()
                    write_text(self.path, text)
                self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o644)
                stack.callback(os.close, self._file)
                os.ftruncate(self._file, len(text.encode()))
                os.lseek(self._file, 0, os.SEEK_END)
            except Timeout:
                raise self._error("one run at a time; another one is writing to it") from None
            except OSError as error:
                raise self._error(f"a file that can be written ({error.strerror})") from None
            if not text:
                self._write(_HEADER)
            self._opened = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        with self._opened, contextlib.suppress(OSError):
            os.fsync(self._file)

    def read(self) -> str:
        """Return the rows that are there and stay, after counting them, without opening the file.

        Returns
        -------
        str
            Lines of CSV, with their header; empty if there is no file.

        Raises
        ------
        InputError
            If they are of another identity or damaged.
        """
        self._provenance = self._checked_provenance()
        text, self._dropped = _whole_lines(self.path), list[dict[str, str]]()
        if text is None:
            raise self._error("rows as calibrate writes them, in UTF-8")
        if text and not text.startswith(_HEADER):
            raise self._error("rows as calibrate writes them; this file has other columns")
        kept = []
        for number, row in enumerate(csv.DictReader(io.StringIO(text)), start=2):
            if _is_damaged(row):
                raise self._error(f"whole rows; line {number} is damaged")
            if row["component"] in self._again:
                self._dropped.append(row)
            else:
                self._count(row)
                kept.append(row)
        return _HEADER + _lines(kept) if self._dropped else text

    def _checked_provenance(self) -> dict[str, Any]:
        """Return the provenance of the rows that are there, and this run's as its last session."""
        path, has_rows = self.provenance_path, self.path.exists() and self.path.stat().st_size > 0
        new = {"identity": self.identity, "sessions": [self._session]}
        if not path.exists():
            if has_rows:
                raise self._error(f"its provenance {path.name} beside it, or another output")
            return new
        try:
            provenance: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            known = provenance["identity"]
            provenance["sessions"].append(self._session)
            differing = [name for name in self.identity if known.get(name) != self.identity[name]]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise InputError("output", str(path), "provenance as calibrate writes it") from None
        if not has_rows:
            return new
        for name in differing:
            expected = f"rows of {name} {self.identity[name]!r}, or another output; they are kept"
            raise InputError("output", f"{self.path} of {name} {known.get(name)!r}", expected)
        return provenance

    def note_session(self, **facts: Any) -> None:
        """Record facts of this run in the provenance, such as flags and when it ended."""
        self._provenance["sessions"][-1] |= facts
        text = json.dumps(self._provenance, indent=2, ensure_ascii=False) + "\n"
        write_text(self.provenance_path, text)

    def has(self, point: str, repeat: int) -> bool:
        """Return whether a timing is there, or was noted as one that cannot be taken."""
        return (point, repeat) in self.done or point in self.skipped

    def append(self, row: Mapping[str, Any]) -> None:
        """Append a row; what is not in `COLUMNS` is refused.

        Parameters
        ----------
        row
            Values by column.

        Raises
        ------
        InputError
            If it cannot be written, as on a full disk; rows before it are kept.
        """
        self._write(_lines([row]))
        self._count(row)

    def _drop(self) -> None:
        """Add the rows taken out to those that were before."""
        path = self.path.with_suffix(f".dropped{self.path.suffix}")
        with path.open("a", encoding="utf-8") as file:
            file.write(_lines(self._dropped) if file.tell() else _HEADER + _lines(self._dropped))

    def _count(self, row: Mapping[str, Any]) -> None:
        self.done.add((row["point"], int(row["repeat"])))
        if row.get("note"):
            self.skipped.add(row["point"])

    def _write(self, text: str) -> None:
        """Write text as a whole, or take back what was written of it."""
        data = text.encode()
        start = os.lseek(self._file, 0, os.SEEK_CUR)
        try:
            if os.write(self._file, data) < len(data):
                raise OSError(28, "No space left on device")
            now = time.monotonic()
            if now - self._synced > SYNC_INTERVAL:
                os.fsync(self._file)
                self._synced = now
        except OSError as error:
            os.ftruncate(self._file, start)
            os.lseek(self._file, start, os.SEEK_SET)
            expected = f"room to write ({error.strerror}); rows so far are kept: run again"
            raise self._error(expected) from None

    def _error(self, expected: str) -> InputError:
        return InputError("output", str(self.path), expected)


def _lines(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return rows as lines of CSV."""
    text = io.StringIO()
    csv.DictWriter(text, COLUMNS, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _is_damaged(row: Mapping[Any, Any]) -> bool:
    """Tell whether a row is not one that was written here: cut, joined or with other numbers."""
    if None in row or row["note"] is None or not row["repeat"].isdigit():
        return True
    if row["note"]:
        return False
    try:
        return not all(0 < float(row[name]) < math.inf for name in ("latency", "reference_latency"))
    except ValueError:
        return True


def _whole_lines(path: Path) -> str | None:
    """Return the text up to its last line break; None if it is no text."""
    if not path.exists():
        return ""
    try:
        data = path.read_bytes()
        return data[: data.rfind(b"\n") + 1].decode()
    except (OSError, UnicodeDecodeError):
        return None
