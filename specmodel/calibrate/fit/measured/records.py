"""Read files of benchmarks in any format, as records of names and values."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from msgspec import Struct

from specmodel.calibrate.fit.measured.aliases import TABLES
from specmodel.calibrate.measure.lines import with_tables
from specmodel.calibrate.measure.logs import lengths_by_table, logged_acceptance
from specmodel.core.base.errors import InputError
from specmodel.core.base.files import check_readable, json_text, refusing, toml_tables
from specmodel.core.base.tables import as_number, need_columns, parse_csv, read_table
from specmodel.core.base.units import LARGEST_NUMBER

MOST_ROWS = 100_000  # most rows of a table [-]

MOST = 10_000_000  # most requests, tokens or GPUs of a measured engine [-]

LEAST_MILLISECONDS = 0.2  # least time of a token: shorter times are in seconds
PLAUSIBLE = (1e-3, 1e6)  # range of a measured time in milliseconds

FORMATS = toml_tables(Path(__file__).parent / "data/formats.toml")
"""Keys of each format by the names used here."""
EXPECTED: Mapping[str, str] = FORMATS.pop("expected")
"""Texts of messages for missing and invalid values."""

_TEXTS: list[str] = TABLES["runs"]["texts"]
_MEASURED: set[str] = {*TABLES["runs"]["measured"]}
"""Columns of a user's table. At least one of them is needed."""
_JSON = re.compile(rb'\{|\[\s*(?:[]{["]|[-0-9.eE+]+\s*[],]|true|false|null)')
"""Start of JSON. Lines of logs may start with a bracket too."""
_TEXT = re.compile(rb"(?m)\AMetric,|Serving Benchmark Result|^ *(?:\||\xe2\x94[\x82\x83])")
"""Signs of figures by name and of tables with bars, which are not a user's CSV."""
_UNIT = re.compile(r" *\([^)]*\) *$")


class Unused(Exception):  # noqa: N818 - no error: other records may be used
    """Why a record is not used."""


class Cells(Struct, frozen=True):
    """A record by the names used here. Errors show `prefix` and the record's own key (`keys`)."""

    values: Mapping[str, Any]
    prefix: str
    keys: Mapping[str, str] = {}
    form: Mapping[str, Any] = {}

    def called(self, name: str) -> str:
        """Return the name in errors."""
        return f"{self.prefix}{self.keys.get(name, name)}"

    def text(self, name: str) -> str:
        """Return the text in a cell; "" if the cell is empty or does not exist."""
        value = self.values.get(name)
        return "" if _is_empty(value) else str(value)

    def number(self, name: str, *, strict: bool = True) -> float | None:
        """Return a finite number; None if the cell is empty or does not exist.

        If `strict`, refuse a text; else treat the cell as empty.
        """
        value = _added(self.values.get(name))
        number = as_number(value)
        if _is_empty(value) or (not strict and np.isnan(number)):
            return None
        if not np.isfinite(number):
            raise InputError(self.called(name), value, "a number")
        return number

    def positive(self, name: str, expected: str = "a positive number") -> float:
        """Return a finite positive number; refuse anything else."""
        value = _added(self.values.get(name))
        number = as_number(value) if type(value) in (int, float) else np.nan
        if 1 / LARGEST_NUMBER <= number <= LARGEST_NUMBER:
            return number
        raise InputError(self.called(name), value, expected)

    def known(self, name: str, usual: float | None = None) -> float:
        """Return the number in a cell, or `usual` if the cell is empty."""
        number = self.number(name)
        number = usual if number is None else number
        if number is None:
            raise Unused(f"it has no {self.keys.get(name, name)}")
        return number

    def whole(self, name: str, usual: float | None = None) -> int:
        """Return a whole number from 1, or `usual` if the cell is empty."""
        number = self.known(name, usual)
        if not 1 <= number <= MOST or number != int(number):
            raise InputError(self.called(name), number, f"whole numbers from 1 to {MOST:,}")
        return int(number)

    def amount(self, name: str) -> float | None:
        """Return a positive number; None if the format does not have it.

        It may be missing in a user's table. Lengths may be missing or 0 if steps are timed alone.
        """
        is_own, is_length = not self.form["marks"], name.endswith("_length")
        if name in self.keys and not (is_own or (is_length and "is_alone" in self.form)):
            return self.positive(name, EXPECTED[name])
        return self.number(name, strict=not is_length)


def cells(values: Any, source: str) -> Cells:
    """Return a record by the names used here. Refuse a record of an unknown format."""
    names = {*values} if isinstance(values, dict) else set[str]()
    form = next(own for own in FORMATS.values() if {*own["marks"]} <= names)
    if not (form["marks"] or names & _MEASURED):
        shown = ", ".join([*map(str, values)][:8]) if names else values
        raise InputError(source, shown, EXPECTED["formats"])
    keys, told = dict[str, str](), dict[str, Any](form.get("is", {}))
    for name, paths in form.items():
        if name != "marks" and isinstance(paths, str | list):
            each = [paths] if isinstance(paths, str) else paths
            keys[name] = next((path for path in each if within(values, path) is not None), each[0])
            told[name] = within(values, keys[name])
    return Cells(told, f"{source} ", keys, form)


def within(value: Any, path: str) -> Any:
    """Return the value at a path; None if it does not exist.

    A dot leads into a table, or into the last entry of a list. A * leads into all entries of a list
    and returns a list of their values.
    """
    whole = value.get(path) if isinstance(value, dict) else None
    return _within(value, path.split(".")) if whole is None else whole


def _within(value: Any, keys: Sequence[str]) -> Any:
    if not keys:
        return value
    if keys[0] == "*":
        entries = value if isinstance(value, list) else []
        return [own for entry in entries if (own := _within(entry, keys[1:])) is not None]
    value = value[-1] if isinstance(value, list) and value else value
    return _within(value.get(keys[0]), keys[1:]) if isinstance(value, dict) else None


def used(values: Any, only: Mapping[str, str]) -> dict[str, str]:
    """Return the named parts of a record's values. Refuse a value that does not fit its pattern."""
    parts = dict[str, str]()
    for path, pattern in only.items():
        found = within(values, path)
        if not (fits := re.fullmatch(pattern, str(found).lower())):
            raise Unused(f"{path} is {found}")
        parts |= fits.groupdict("0")
    return parts


def _is_empty(value: Any) -> bool:
    return value is None or value is pd.NA or (isinstance(value, float) and np.isnan(value))


def _added(value: Any) -> Any:
    """Return the sum of the numbers in a list, or any other value unchanged."""
    return sum(map(as_number, value)) if isinstance(value, list) else value


def check_milliseconds(
    times: Iterable[Any], argument: str, least: float = LEAST_MILLISECONDS
) -> None:
    """Refuse impossible times, and times in seconds: their median is below `least`."""
    numbers = np.array([as_number(time) for time in times])
    numbers = numbers[~np.isnan(numbers)]
    low, high = PLAUSIBLE
    for number in numbers[(numbers < low) | (numbers > high)]:
        raise InputError(argument, float(number), f"milliseconds from {low:g} to {high:g}")
    if numbers.size and np.median(numbers) < least:
        raise InputError(argument, float(np.median(numbers)), "milliseconds, not seconds")


def records(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the records of a file with their places. The content of the file shows its format.

    Formats are JSON objects one after another or in a list, tables in CSV, Parquet, Markdown or box
    characters, and lists of figures, such as printed results or AIPerf's CSV.
    """
    check_readable(path, "benchmarks", "JSON, CSV or Parquet")
    with refusing(path, "benchmarks", "a readable file"), path.open("rb") as file:
        head = file.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()
        if not head:
            expected = f"a file that is not empty: {EXPECTED['formats']}"
            raise InputError("benchmarks", str(path), expected)
        if _JSON.match(head):
            return _entries(path)
        if head[:4] == b"PAR1":
            return _rows(read_table(path, _TEXTS, "benchmarks", most=MOST_ROWS + 1), path)
        if b"\0" in head:
            expected = f"a file of text or Parquet: {EXPECTED['formats']}"
            raise InputError("benchmarks", str(path), expected)
        file.seek(0)
        if not _TEXT.search(head):
            _refuse_logs(head.decode(errors="replace"), path)
            how: Any = {"comments": False, "most": MOST_ROWS + 1}
            return _rows(parse_csv(file, _TEXTS, str(path), "benchmarks", **how), path)
        with refusing(path, "benchmarks", "a text in UTF-8, or a well-formed CSV"):
            text = file.read(_MOST_TEXT).decode("utf-8-sig")
    return _printed(text, path)


def _refuse_logs(text: str, path: Path) -> None:
    """Refuse a text that has acceptance and no times, with the command that reads it."""
    with suppress(InputError):
        if not (logged_acceptance(text, str(path)) or lengths_by_table(text, str(path))):
            return
    expected = f"This file has no times. specmodel acceptance {path} reads its acceptance."
    raise InputError("benchmarks", str(path), expected)


_MOST_TEXT = 4_000_000
"""Longest text of tables that is read [B]."""


def _printed(text: str, path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the rows of the tables in a text, or else its figures by name."""
    listed, rows = dict[str, float](), list[dict[str, str]]()
    for line, row in with_tables(text):
        pair = [*row.values()] if len(row) == 2 else next(csv.reader([line]), [])[:2]
        name, cell = pair if len(pair) == 2 else line.partition(":")[::2]
        if len(row) > 2:
            rows.append(row)
        elif isinstance(value := _value(cell), float):
            listed |= {name.strip(): value, _UNIT.sub("", name).strip(): value}
    if not rows:
        yield str(path), listed
    for number, row in enumerate(rows, 1):
        yield f"{path} row {number}", {name: _value(cell) for name, cell in row.items()}


def _value(cell: str) -> Any:
    """Return the number in a cell, without separators of thousands and deviation; else its text."""
    number = as_number(cell.partition("±")[0].replace(",", "").strip())
    return cell if np.isnan(number) else number


def _entries(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield JSON objects one after another, or the entries of a list or of GuideLLM's report."""
    values = [*_json_values(path)]
    value = values[0][1]
    entries = value.get("benchmarks", value) if isinstance(value, dict) else value
    if len(values) > 1:
        yield from values
    elif isinstance(entries, list):
        for number, entry in enumerate(entries, start=1):
            yield f"{path} entry {number}", entry
    else:
        yield str(path), entries


def _json_values(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield JSON values one after another, with the lines where they start."""
    text = json_text(path, "benchmarks", "leave out --save-detailed")
    decode, anything, line, end = json.JSONDecoder().raw_decode, re.compile(r"\S"), 1, 0
    while found := anything.search(text, end):
        start = found.start()
        line += text.count("\n", end, start)
        where = f"{path} line {line}"
        try:
            value, end = decode(text, start)
        except (ValueError, RecursionError) as error:
            expected = f"complete, well-formed JSON ({error})"
            raise InputError(where, text[start : start + 1000], expected) from None
        line += text.count("\n", start, end)
        yield where, value


def _rows(table: pd.DataFrame, path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the rows of a table by the lower-case names of their columns."""
    table.columns = pd.Index([str(column).strip().lower() for column in table.columns])
    need_columns(table, (), argument=str(path))
    if len(table) > MOST_ROWS:
        raise InputError("benchmarks", str(path), f"a table of at most {MOST_ROWS:,} rows")
    for name in (name for name in table if name in _MEASURED and name.endswith("_ms")):
        check_milliseconds(table[name], f"{path} {name}")
    for number, row in enumerate(table.to_dict("records"), start=1):
        yield f"{path} row {number}", {str(column): value for column, value in row.items()}
