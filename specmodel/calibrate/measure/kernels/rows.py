"""Append timings to a CSV as they are measured, so that no timing is lost.

Only one process writes at a time. If a process is killed, the file may end in an incomplete row,
which the next run removes. A JSON file next to the CSV has its provenance: facts that all rows have
in common, and a list of sessions.
"""

import contextlib
import csv
import errno
import io
import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import pandas as pd

from specmodel.calibrate.measure.kernels.suite import SUITES
from specmodel.core.base.errors import InputError
from specmodel.core.base.files import check_readable, parsed_json, refusing, write_text
from specmodel.core.base.ranges import whole_of
from specmodel.core.base.tables import as_number, read_table
from specmodel.core.base.units import LONGEST_TIME

COLUMNS: list[str] = SUITES["columns"]
"""Columns of a file of timings. Cells are blank in columns that a component does not use."""
_HEADER = ",".join(COLUMNS) + "\n"


def read_rows(path: str | Path) -> pd.DataFrame:
    """Return all unchecked rows of a CSV from `session.run_suite`, including rows with notes."""
    text = ("component", "hardware", "stack", "version", "role", "point", "group", "note")
    return read_table(path, text)


class RowFile:
    """Timings of one device and suite (`identity`): a context manager that opens the file.

    The file is created or continued. The provenance records `session` for this run. Rows of
    components in `again` move to a file with ".dropped" in its name, and can be measured again.
    """

    def __init__(
        self,
        path: str | Path,
        identity: Mapping[str, Any],
        session: Mapping[str, Any],
        again: Collection[str] = (),
    ) -> None:
        self.path = Path(path)
        self.provenance_path = self.path.with_suffix(".json")
        self.identity, self._session, self._again = dict(identity), dict(session), again
        self.done: set[tuple[str, int]] = set()
        self.skipped: set[str] = set()

    def read(self) -> None:
        """Read and count rows. Raise an InputError if they are damaged or of another identity."""
        for path in (self.provenance_path, self.path):
            if path.exists():
                check_readable(path, "output", path.suffix)
        self._provenance = self._checked_provenance()
        try:
            text = _whole_lines(self.path)
        except (OSError, UnicodeDecodeError):
            raise self.error("rows as calibrate writes them, in UTF-8") from None
        if text and not text.startswith(_HEADER):
            raise self.error("rows as calibrate writes them; this file has other columns")
        self._dropped, self._kept = list[dict[str, str]](), list[dict[str, str]]()
        for number, row in enumerate(csv.DictReader(io.StringIO(text)), start=2):
            if (damage := _damage(row)) is not None:
                raise self.error(f"whole rows; line {number} is damaged: {damage}")
            if row["component"] in self._again:
                self._dropped.append(row)
            else:
                self._count(row)
                self._kept.append(row)

    def __enter__(self) -> Self:
        from filelock import FileLock, Timeout

        expected = "a file that can be written"
        with refusing(self.path, "output", expected), contextlib.ExitStack() as stack:
            lock = self.path.with_name(f".{self.path.name}.lock")
            try:
                stack.enter_context(FileLock(lock, 0))
                # before the lock is released: no other process has locked it
                stack.callback(lock.unlink, missing_ok=True)
                self.read()
                self.note_session()
                if self._dropped:
                    path = self.path.with_suffix(f".dropped{self.path.suffix}")
                    with path.open("a", encoding="utf-8") as file:
                        file.write(("" if file.tell() else _HEADER) + _lines(self._dropped))
                    write_text(self.path, _HEADER + _lines(self._kept))
                self._file = stack.enter_context(self.path.open("ab", buffering=0))
                text = _whole_lines(self.path)
                self._file.truncate(len(text.encode()))
            except Timeout:
                raise self.error("one run at a time; another one is writing to it") from None
            if not text:
                self._write(_HEADER)
            self._opened = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def has(self, point: str, repeat: int) -> bool:
        """Return whether a repeat of a point was timed, or the point has a note."""
        return (point, repeat) in self.done or point in self.skipped

    def append(self, row: Mapping[str, Any]) -> None:
        """Append a row. If writing fails, for example on a full disk, earlier rows are kept."""
        self._write(_lines([row]))
        self._count(row)

    def _count(self, row: Mapping[str, Any]) -> None:
        self.done.add((row["point"], int(row["repeat"])))
        if row.get("note"):
            self.skipped.add(row["point"])

    def error(self, expected: str) -> InputError:
        """Return an InputError for this file."""
        return InputError("output", str(self.path), expected)

    def _checked_provenance(self) -> dict[str, Any]:
        """Return the provenance of the rows, with this run as the last session."""
        path = self.provenance_path
        if not self.path.exists() or not self.path.stat().st_size:
            return {"identity": self.identity, "sessions": [self._session]}
        if not path.exists():
            raise self.error(f"its description {path.name} too, or another output")
        try:
            provenance: dict[str, Any] = parsed_json(path.read_bytes())
            known = {name: provenance["identity"].get(name) for name in self.identity}
            provenance["sessions"].append(self._session)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            expected = "a description from specmodel calibrate"
            raise InputError("output", str(path), expected) from None
        for name, value in self.identity.items():
            if known[name] != value:
                expected = f"a new output, as this one has rows of another {name} than {value!r}"
                raise InputError("output", f"{self.path} of {name} {known[name]!r}", expected)
        return provenance

    def note_session(self, **facts: Any) -> None:
        """Record facts of this run in the provenance, such as flags and when it ended."""
        self._provenance["sessions"][-1] |= facts
        text = json.dumps(self._provenance, indent=2, ensure_ascii=False) + "\n"
        write_text(self.provenance_path, text)

    def _write(self, text: str) -> None:
        """Write text. If the disk is full, the next run removes the incomplete row."""
        data = text.encode()
        with refusing(self.path, "output", "room to write; rows so far are kept: run again"):
            if self._file.write(data) < len(data):
                raise OSError(errno.ENOSPC, "")


def _whole_lines(path: Path) -> str:
    """Return the text up to the last line break, or an empty text if there is no file."""
    data = path.read_bytes() if path.exists() else b""
    return data[: data.rfind(b"\n") + 1].decode()


def _lines(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return rows as lines of CSV without a header. Missing cells stay blank."""
    text = io.StringIO()
    csv.DictWriter(text, COLUMNS, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _damage(row: Mapping[Any, Any]) -> str | None:
    """Return what is wrong with a row that was cut or joined with another one, or None."""
    if None in row or row["note"] is None:
        return "its number of cells"
    if whole_of(row["repeat"]) is None:
        return f"repeat {row['repeat']!r}"
    if lacking := [name for name, cell in row.items() if cell.lower() == "nan"]:
        return f"{lacking[0]} 'nan'"
    for name in () if row["note"] else ("latency", "reference_latency"):
        if not 1e-9 <= as_number(row[name]) <= LONGEST_TIME:
            return f"{name} {row[name]!r}"
    return None
