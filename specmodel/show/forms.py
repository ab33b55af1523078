"""Print an answer in its forms: a page for people, JSON and CSV for programs.

Commands import this module for their help too, so that it imports nothing heavy at once.
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
    """The answer to a question in all forms; its text is written only on demand.

    `facts` are the values on the page, by name. `page` returns the text for people, `fields` are
    the JSON, and `rows` the CSV, with the columns `header` if there are no rows. `fragment` is a
    configuration that an engine reads. With CSV and fragment, `warnings` are printed on standard
    error; with the fragment, `caveats` too. `case` names the deployment if all rows share it; it is
    the last column of the CSV. `figure` is the kind of plot for the rows, if a command has several.
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

    def report(self, *, verbose: bool = False) -> str:
        """Return the text that the command prints, with all assumptions if `verbose`."""
        token = VERBOSE.set(verbose)
        try:
            return self.page()
        finally:
            VERBOSE.reset(token)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields of the command's JSON, with the versions of schema and package."""
        versions = {"schema_version": JSON_SCHEMA_VERSION, "version": __version__}
        facts = {"facts": as_fields(self.facts)} if self.facts else {}
        return {**versions, **facts, **self.fields}

    def to_frame(self) -> DataFrame:
        """Return the rows of the command's CSV."""
        import pandas as pd

        return pd.DataFrame(self.table())

    def __str__(self) -> str:
        return self.report()

    def table(self) -> list[Row]:
        """Return the rows with their case as the last column."""
        own: Row = {"case": self.case} if self.case else {}
        return [{**row, **own} for row in self.rows]


def as_json(answer: Answer) -> str:
    """Return strict JSON that starts with the versions of its schema and of the package."""
    import json

    text = io.StringIO()  # needs a fifth of the memory of json.dumps
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
    """Return rows as a text table; `columns` are the name of a table, or its columns."""
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
