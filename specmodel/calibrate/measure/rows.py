"""A file of timings to which rows are appended as they are measured, and never lost.

Rows are CSV, provenance is JSON beside it. One process at a time; one that was killed left whole
rows, and perhaps the beginning of one, which is cut off.
"""

import contextlib
import csv
import io
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
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

    Raises
    ------
    InputError
        If the file is of another identity, in use, or cannot be written.
    """

    def __init__(
        self, path: str | Path, identity: Mapping[str, Any], session: Mapping[str, Any]
    ) -> None:
        self.path = Path(path)
        self.identity = dict(identity)
        self._session = dict(session)
        self.done: set[tuple[str, int]] = set()
        self.skipped: set[str] = set()
        self._file = -1
        self._synced = 0.0

    @property
    def provenance_path(self) -> Path:
        """Where provenance is."""
        return self.path.with_suffix(".json")

    def __enter__(self) -> Self:
        from filelock import FileLock, Timeout

        if not self.path.parent.is_dir():
            raise self._error("a file that can be written in a folder that exists")
        self._lock = FileLock(self.path.with_name(f".{self.path.name}.lock"))
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise self._error("one run at a time; another one is writing to it") from None
        except OSError as error:
            raise self._error(f"a file that can be written ({error.strerror})") from None
        try:
            self._open()
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file >= 0:
            with contextlib.suppress(OSError):
                os.fsync(self._file)
            os.close(self._file)
            self._file = -1
        self._lock.release()

    def _open(self) -> None:
        provenance = self._checked_provenance()
        text = _whole_lines(self.path)
        if text is None:
            raise self._error("rows as calibrate writes them, in UTF-8")
        header = ",".join(COLUMNS)
        if text and text.splitlines()[0] != header:
            raise self._error("rows as calibrate writes them; this file has other columns")
        for number, row in enumerate(csv.DictReader(io.StringIO(text)), start=2):
            if not (row["repeat"] or "").isdigit() or row["note"] is None:
                raise self._error(f"whole rows; line {number} is damaged")
            self._count(row)
        provenance["sessions"].append(self._session)
        self._write_provenance(provenance)
        try:
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o644)
            os.ftruncate(self._file, len(text.encode()))
            os.lseek(self._file, 0, os.SEEK_END)
        except OSError as error:
            raise self._error(f"a file that can be written ({error.strerror})") from None
        if not text:
            self._write(header + "\n")

    def _checked_provenance(self) -> dict[str, Any]:
        path = self.provenance_path
        has_rows = self.path.exists() and self.path.stat().st_size > 0
        if not path.exists():
            if has_rows:
                raise self._error(f"its provenance {path.name} beside it, or another output")
            return {"identity": self.identity, "sessions": []}
        try:
            provenance: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            known = provenance["identity"]
            provenance["sessions"].append  # noqa: B018 - reading it is the check
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise InputError("output", str(path), "provenance as calibrate writes it") from None
        for name, value in self.identity.items():
            if has_rows and known.get(name) != value:
                expected = f"rows of {name} {value!r}, or another output; they are kept"
                raise InputError("output", f"{self.path} of {name} {known.get(name)!r}", expected)
        return provenance if has_rows else {"identity": self.identity, "sessions": []}

    def _write_provenance(self, provenance: Mapping[str, Any]) -> None:
        text = json.dumps(provenance, indent=2, ensure_ascii=False) + "\n"
        write_text(self.provenance_path, text)

    def note_session(self, **facts: Any) -> None:
        """Record facts of this run in the provenance, such as flags and when it ended."""
        provenance = json.loads(self.provenance_path.read_text(encoding="utf-8"))
        provenance["sessions"][-1] |= facts
        self._write_provenance(provenance)

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
        line = io.StringIO()
        csv.DictWriter(line, COLUMNS, lineterminator="\n").writerow(row)
        self._write(line.getvalue())
        self._count(row)

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


def _whole_lines(path: Path) -> str | None:
    """Return the text up to its last line break; None if it is no text."""
    if not path.exists():
        return ""
    try:
        data = path.read_bytes()
        return data[: data.rfind(b"\n") + 1].decode()
    except (OSError, UnicodeDecodeError):
        return None
