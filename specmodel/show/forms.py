"""Print an answer in its forms: a page for people, JSON and CSV for programs.

This module imports nothing heavy, as commands import it even for their help alone.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct, field
from msgspec.structs import asdict

from specmodel import __version__
from specmodel.core.base.text import VERBOSE, Columns, Printed, align_blocks
from specmodel.core.prediction.table import Column, Form, Row, filler, text_table as _text_table
from specmodel.show.columns import of_table
from specmodel.show.facts import Facts, as_fields

if TYPE_CHECKING:
    from pandas import DataFrame as DataFrame

JSON_SCHEMA_VERSION = 1


class Answer(Printed, Struct, frozen=True, kw_only=True):
    """The answer to a question in all forms; its text is made only when it is asked for.

    `facts` are what it tells, by name, and `paste` what an engine is started with, where it tells
    these as data. `page` is the text for people, `fields` the JSON, `rows` the CSV, `header` its
    columns where no row is left, and `fragment` what an engine reads. `warnings` go to standard
    error beside CSV and fragment, `caveats` beside the fragment. `case` names what runs where, if
    all rows have that in common: the last column of the CSV. `figure` is the kind of plot that
    draws the rows, where a command has several.
    """

    page: Callable[[], str]
    fields: Mapping[str, Any]
    rows: Sequence[Row] = ()
    header: Iterable[str] = ()
    warnings: Collection[object] = ()
    fragment: str = ""
    caveats: Collection[str] = ()
    case: str = ""
    figure: str = ""
    facts: Facts = field(default_factory=dict)
    paste: str = ""

    def report(self, *, verbose: bool = False) -> str:
        """Return the text that the command prints; if `verbose`, with all assumptions."""
        token = VERBOSE.set(verbose)
        try:
            return self.page()
        finally:
            VERBOSE.reset(token)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields of the command's JSON, with the versions of schema and package."""
        versions = {"schema_version": JSON_SCHEMA_VERSION, "version": __version__}
        told = {"facts": as_fields(self.facts)} if self.facts else {}
        return {**versions, **told, **self.fields}

    def to_frame(self) -> DataFrame:
        """Return the rows that the command's CSV has."""
        import pandas as pd

        return pd.DataFrame(self.table())

    def __str__(self) -> str:
        return self.report()

    def table(self) -> list[Row]:
        """Return the rows with the case that they are of."""
        own: Row = {"case": self.case} if self.case else {}
        return [{**row, **own} for row in self.rows]


def as_json(answer: Answer) -> str:
    """Return strict JSON that starts with the versions of its schema and of the package."""
    import json

    text = io.StringIO()  # which takes a fifth of the memory of all parts at once
    json.dump(answer.to_dict(), text, indent=2, allow_nan=False)
    return text.getvalue()


def as_csv(answer: Answer) -> str:
    """Return the rows of an answer as CSV, with a header; None is an empty cell."""
    import csv

    rows, text = answer.table(), io.StringIO()
    names = rows[0] if rows else [*answer.header, *["case"] * bool(answer.case)]
    writer = csv.DictWriter(text, [*names], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().rstrip("\n")


def plain_fields(record: Struct) -> dict[str, Any]:
    """Return the fields of a record for JSON, arrays as lists."""
    return {n: v.tolist() if hasattr(v, "tolist") else v for n, v in asdict(record).items()}


def records(frame: DataFrame) -> list[Row]:
    """Return a dict for each row of a table, with None in place of NaN."""
    plain = frame.astype(object).where(frame.notna(), None)
    return cast(list[Row], plain.to_dict("records"))


def text_table(
    rows: Sequence[Row], columns: str | Iterable[Column], remedy: str = "--json has them"
) -> str:
    """Return rows as commands print them, in the columns of a table by its name, or in these."""
    of = of_table(columns) if isinstance(columns, str) else columns
    return _text_table(rows, of, remedy=remedy)


def by_batch_size(
    batch_sizes: Iterable[int], groups: Mapping[str, Iterable[Row]], form: Form
) -> str:
    """Return a text table: a row for each batch size, a column for each group, "-" for none."""
    sizes, fill, columns = sorted(set(batch_sizes)), filler(form), Columns()
    for title, rows in groups.items():
        cells = {row["batch_size"]: fill(row) for row in rows}
        columns.append((title, [cells.get(size, "-") for size in sizes]))
    return align_blocks(("batch\nsize", list(map(str, sizes))), columns)
