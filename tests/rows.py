"""Tables of cases that tests go through."""

import functools
import inspect
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

Test = Callable[..., None]


def each_row(names: str | Sequence[str], rows: Iterable[Any]) -> Callable[[Test], Test]:
    """Run a test with all rows of a table in one case, and report all rows that fail.

    The arguments are those of `pytest.mark.parametrize`. It is for many cheap rows. All rows share
    the fixtures, including the changes that earlier rows made.
    """
    if isinstance(names, str):
        names, rows = [names], [[row] for row in rows]
    table = [dict(zip(names, row, strict=True)) for row in rows]
    assert table, "no rows"

    def over_rows(test: Test) -> Test:
        @functools.wraps(test)
        def try_all(**fixtures: Any) -> None:
            faults = []
            for row in table:
                try:
                    test(**fixtures, **row)
                except (Exception, pytest.fail.Exception, BaseExceptionGroup) as fault:
                    fault.add_note(f"in the row {row}")
                    faults.append(fault)
            if faults:
                raise BaseExceptionGroup(f"{len(faults)} of {len(table)} rows", faults)

        asked = inspect.signature(test)
        left = [each for name, each in asked.parameters.items() if name not in table[0]]
        try_all.__signature__ = asked.replace(parameters=left)
        return try_all

    return over_rows


def rows_of(file: str, section: str) -> list[list[str]]:
    """Return the cells of each row in a section of a table in `data`: cell | cell | cell."""
    text = (Path(__file__).parent / "data" / file).read_text(encoding="utf-8")
    _, found, rest = text.partition(f"\n[{section}]\n")
    assert found, section
    lines = rest.partition("\n\n")[0].splitlines()
    return [line.split(" | ") for line in lines if not line.startswith("# ")]


def values_of(file: str, section: str) -> list[list[Any]]:
    """Return the rows of such a section; cells of valid JSON become values, others stay text."""

    def value(cell: str) -> Any:
        try:
            return json.loads(cell)
        except json.JSONDecodeError:
            return cell

    return [[value(cell) for cell in row] for row in rows_of(file, section)]


def faults(section: str) -> list[list[Any]]:
    """Return invalid inputs and texts of their errors, from a section of `data/faults.txt`."""
    return values_of("faults.txt", section)


def one_case(names: str, *rows: Any) -> Callable[[Test], Test]:
    """Run a test with all these rows, as `each_row` does; names are separated by blanks."""
    return each_row(names.split() if " " in names else names, rows)


def cases(names: str, *rows: Any) -> pytest.MarkDecorator:
    """Run a test with each row as a separate case; names are separated by blanks."""
    return pytest.mark.parametrize(names.split() if " " in names else names, rows)


def slow(*rows: Any) -> list[Any]:
    """Return rows as cases that are marked as slow."""
    values = (row if isinstance(row, tuple) else (row,) for row in rows)
    return [pytest.param(*each, marks=pytest.mark.slow) for each in values]


def _listed(test: Test) -> tuple[list[str], list[list[Any]]]:
    """Return the names and rows of a test in `data/cases`, in the file of its room."""
    room = Path(inspect.unwrap(test).__code__.co_filename).parent.name
    names, *rows = values_of(f"cases/{room}.txt", test.__name__)
    return names, rows


def listed(test: Test) -> Test:
    """Run a test in one case with all its rows in `data/cases`; the first row has the names."""
    return each_row(*_listed(test))(test)


def each_listed(test: Test) -> Test:
    """Run a test with each of its rows in `data/cases` as a separate case."""
    return pytest.mark.parametrize(*_listed(test))(test)
