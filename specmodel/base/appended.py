"""A CSV to which rows are appended as they are measured, and never lost.

One process writes at a time. One that was killed left whole rows and perhaps the beginning of
another, which is cut off. Provenance is a JSON beside it: what all rows have in common, and a list
of sessions.
"""

import contextlib
import csv
import io
import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from specmodel.base.errors import InputError
from specmodel.base.files import check_readable, parsed_json, write_text

SYNC_INTERVAL = 1.0
"""Longest time until rows reach the disk, even if the machine stops [s]."""


class AppendedRows:
    """Rows of a CSV that is made or continued, open for appending as a context manager.

    `identity` must be the same for all rows of a file, such as device and versions; `session` is
    noted of this run. `writer` is named in messages. Cells that a row lacks stay blank; columns
    that the file does not have are refused.
    """

    def __init__(
        self,
        path: str | Path,
        columns: Sequence[str],
        writer: str,
        *,
        identity: Mapping[str, Any],
        session: Mapping[str, Any],
    ) -> None:
        self.path, self.columns, self._writer = Path(path), tuple(columns), writer
        self.provenance_path = self.path.with_suffix(".json")
        self.identity, self._session = dict(identity), dict(session)
        self._header, self._synced = ",".join(columns) + "\n", 0.0

    def read(self) -> list[dict[str, str]]:
        """Return the whole rows that are there; a cell that a damaged row lacks is None."""
        for path in (self.provenance_path, self.path):
            if path.exists():
                check_readable(path, "output", path.suffix)
        self._provenance = self._checked_provenance()
        try:
            text = _whole_lines(self.path)
        except (OSError, UnicodeDecodeError):
            raise self.error(f"rows as {self._writer} writes them, in UTF-8") from None
        if text and not text.startswith(self._header):
            expected = f"rows as {self._writer} writes them; this file has other columns"
            raise self.error(expected)
        return list(csv.DictReader(io.StringIO(text)))

    def __enter__(self) -> Self:
        from filelock import FileLock, Timeout

        with contextlib.ExitStack() as stack:
            lock = self.path.with_name(f".{self.path.name}.lock")
            try:
                stack.enter_context(FileLock(lock, 0))
                stack.callback(_remove, lock)  # while it is held: no one else has just taken it
                self.read()
                self._prepare()
                self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o644)
                stack.callback(os.close, self._file)
                text = _whole_lines(self.path)
                os.ftruncate(self._file, len(text.encode()))
                os.lseek(self._file, 0, os.SEEK_END)
            except Timeout:
                raise self.error("one run at a time; another one is writing to it") from None
            except OSError as error:
                raise self.error(f"a file that can be written ({error.strerror})") from None
            if not text:
                self._write(self._header)
            self._opened = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        with self._opened, contextlib.suppress(OSError):
            os.fsync(self._file)

    def append(self, row: Mapping[str, Any]) -> None:
        """Append a row; if it cannot be written, as on a full disk, the rows before it are kept."""
        self._write(self.lines([row]))

    def lines(self, rows: Iterable[Mapping[str, Any]]) -> str:
        """Return rows as lines of CSV, without the header."""
        text = io.StringIO()
        csv.DictWriter(text, self.columns, lineterminator="\n").writerows(rows)
        return text.getvalue()

    def error(self, expected: str) -> InputError:
        """Return an error that says what the file should be."""
        return InputError("output", str(self.path), expected)

    def _checked_provenance(self) -> dict[str, Any]:
        """Return the provenance of the rows that are there, with this run as its last session."""
        path, has_rows = self.provenance_path, self.path.exists() and self.path.stat().st_size > 0
        new = {"identity": self.identity, "sessions": [self._session]}
        if not path.exists():
            if has_rows:
                raise self.error(f"its provenance {path.name} beside it, or another output")
            return new
        try:
            provenance: dict[str, Any] = parsed_json(path.read_bytes())
            known = provenance["identity"]
            provenance["sessions"].append(self._session)
            differing = [name for name in self.identity if known.get(name) != self.identity[name]]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise InputError(
                "output", str(path), f"provenance as {self._writer} writes it"
            ) from None
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

    def _prepare(self) -> None:
        """Do what the locked file needs before it is opened; subclasses add to it."""
        self.note_session()

    def _rewrite(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Replace the rows that are there."""
        write_text(self.path, self._header + self.lines(rows))

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
            raise self.error(expected) from None


def _remove(path: Path) -> None:
    """Remove a file, where the system lets one that is open be removed."""
    with contextlib.suppress(OSError):
        path.unlink()


def _whole_lines(path: Path) -> str:
    """Return the text up to its last line break, none of a file that is not there."""
    data = path.read_bytes() if path.exists() else b""
    return data[: data.rfind(b"\n") + 1].decode()
