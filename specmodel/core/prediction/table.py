"""Define columns of answers, and format rows as tables of text. Heavy imports come late."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from operator import attrgetter
from string import Formatter
from typing import Any

from msgspec import Struct

from specmodel.core.base.text import TABLE, Columns, align, table_width, wrap

Row = dict[str, Any]
"""Values by column."""

Form = str | Callable[[Row], str]
"""Format of the cells of a column: a template such as ``{speedup:.2f}``, or a function from row to
cell. In templates, ``{tpot:s}`` and ``{memory_bytes:B}`` are numbers with a metric prefix and three
digits, and ``{tpot:s5}`` has five."""

_UNITS = ("s", "B")
_FORMS = {"s": "s", "B": "B", "token/s": ".0f"}
"""Formats of numbers by unit; others have three digits."""


class Column(Struct, frozen=True, dict=True):
    """One column of an answer in attributes, tables, JSON, CSV and sweeps.

    In a column of `words`, values are indices into the words. Tables print columns with a `title`.
    `form` is the format of a cell: a `Form`, or the format of its value, such as ``.2f``; the unit
    decides the default. A coordinate is printed if it varies. `spare` is the order in which columns
    are dropped from a table that is too wide: 1 first, 0 never [-]. `source` computes the values of
    a prediction from an `Evaluation`; by default, they are the attribute with the column's name.
    """

    name: str
    unit: str
    meaning: str
    title: str = ""
    form: Form = ""
    spare: int = 0
    source: Callable[[Any], Any] | None = None
    has_interval: bool = False
    is_whole: bool = False
    is_coordinate: bool = False
    words: tuple[str, ...] = ()

    @cached_property
    def of(self) -> Callable[[Any], Any]:
        """Function from an evaluation to the values of the column."""
        return self.source or attrgetter(self.name)

    @property
    def cell(self) -> Form:
        """Format of a cell: a template, or a function of the row."""
        form = self.form or _FORMS.get(self.unit, "")
        if isinstance(form, str) and form and "{" not in form:
            return f"{{{self.name}:{form}}}"
        return form or (lambda row: _digits(row[self.name]))

    @property
    def heading(self) -> str:
        """The title, or a title made of the name."""
        return self.title or "\n".join(self.name.rsplit("_", 1))

    def has_texts(self, rows: Iterable[Row]) -> bool:
        """Return whether its values are texts that do not come from a template."""
        is_made = isinstance(self.form, str) and self.form
        return not is_made and any(isinstance(row.get(self.name), str) for row in rows)


def text_table(
    rows: Sequence[Row], columns: Iterable[Column], *, width: int | None = None, remedy: str
) -> str:
    """Return rows as a table of text, without coordinates that do not vary and empty columns.

    Columns are dropped until the table fits the width [-], by default the width of the screen. A
    line below the table names them, with the `remedy`. Texts without a template are aligned left.
    """
    shown = with_values(rows, columns)
    cells = columns_of(rows, ((column.heading, column.cell) for column in shown))
    left = [column.heading for column in shown if column.has_texts(rows)]
    room, dropped = width or TABLE.get(), list[str]()
    for _, title in sorted((column.spare, column.heading) for column in shown if column.spare):
        if table_width(cells) > room:
            cells = [cell for cell in cells if cell[0] != title]
            dropped.append(" ".join(title.replace("-\n", "-").split()))
    told = wrap(f"Columns that do not fit here: {', '.join(dropped)} ({remedy}).")
    return align(cells, left) + f"\n{told}" * bool(dropped)


def with_values(rows: Sequence[Row], columns: Iterable[Column]) -> list[Column]:
    """Return the columns of a table: neither empty columns nor coordinates that do not vary."""
    return [
        column
        for column in columns
        if any(row.get(column.name) is not None for row in rows)
        and (not column.is_coordinate or varies(column.name, rows))
    ]


def _digits(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def columns_of(rows: Sequence[Row], forms: Iterable[tuple[str, Form]]) -> Columns:
    """Return titles and cells of columns; a missing value is a dash."""
    return [(title, list(map(filler(form), rows))) for title, form in forms]


def varies(name: str, rows: Iterable[Row]) -> bool:
    """Return whether the rows have several values in a column."""
    return len({row[name] for row in rows}) > 1


def seconds(value: float, beside: float | None = None) -> str:
    """Format a time with a metric prefix; with more digits if `beside` would look the same."""
    shown = _with_prefix(value, "s")
    is_alike = beside not in (None, value) and shown == _with_prefix(beside, "s")
    return _with_prefix(value, "s5") if is_alike else shown


def filler(form: Form) -> Callable[[Row], str]:
    """Return a function from row to cell; a cell is a dash if one of its values is None or NaN.

    ``a -> b`` shows a common unit once, at the end.
    """
    if not isinstance(form, str):
        return form
    fields = [(between, name, spec or "") for between, name, spec, _ in Formatter().parse(form)]

    def filled(row: Row) -> str:
        values = [row[name] for _, name, _ in fields if name]
        if any(value is None or value != value for value in values):
            return "-"
        parts: list[str] = []
        unit = ""
        for between, name, spec in fields:
            text, last, unit = "", unit, ""
            if name and spec.startswith(_UNITS):
                text = _with_prefix(row[name], spec)
                unit = text.lstrip("0123456789.e+-")
            elif name:
                text = format(row[name], spec)
            if between == " -> " and unit == last:
                parts[-1] = parts[-1].removesuffix(unit)
            parts += [between, text]
        return "".join(parts)

    return filled


def _with_prefix(value: float, spec: str) -> str:
    from specmodel.core.base.units import format_si

    return format_si(value, spec[0], int(spec[1:] or 3)).replace(" ", "")
