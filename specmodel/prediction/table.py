"""The points of a prediction as a table of text.

Imports nothing heavy, as commands import it before they know whether only their help is wanted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from specmodel.base.text import align, table_width, wrap

if TYPE_CHECKING:
    from specmodel.prediction.columns import Column
    from specmodel.prediction.outcome import Prediction

Row = dict[str, Any]
"""An operating point: values by column."""

SECONDS = "s"
"""The form of cells that are times."""

BYTES = "B"
"""The form of cells that are sizes."""

COORDINATES = ("draft_length", "context_length", "prompt_length", "output_length")
"""Columns that are left out where they have one value."""

SPARE = (
    *("active_experts", "break_even_acceptance_rate", "target_efficiency", "limited_by"),
    *("throughput", "best_draft_length", "forward_time", "interval"),
)
"""Left out, in this order, of a table that is too wide."""


def table(prediction: Prediction, width: int = 80, most: int | None = None) -> str:
    """Return the operating points as a table.

    Parameters
    ----------
    prediction
        Its points are the rows; coordinates that do not vary are no columns.
    width
        Most characters of a line; columns that have no room are named below the table [-].
    most
        Most points, the first ones; all of them if None [-].

    Returns
    -------
    str
        Lines, the last one without an end.
    """
    rows = prediction.rows(most)
    columns = _columns(rows, prediction)
    left = []
    for spare in SPARE:
        if spare in columns and table_width([*columns.values()]) > width:
            left.append(columns.pop(spare)[0].replace("\n", " "))
    text = align([*columns.values()])
    return "\n".join([text, wrap(f"No room for: {', '.join(left)}.")]) if left else text


def _columns(rows: list[Row], prediction: Prediction) -> dict[str, tuple[str, list[str]]]:
    """Return title and cells of each column that there may be room for."""
    _add_plain_throughput(rows)
    found = [name for name in COORDINATES if name in rows[0]]
    left_out = {name for name in found if not varies(name, rows)}
    deployment = prediction.deployment
    leading = "speedup" if "speedup" in rows[0] else "tpot"
    columns: dict[str, tuple[str, list[str]]] = {}
    words_last = sorted(prediction.shown, key=lambda column: bool(column.words))
    for column in words_last:
        name = column.name
        if column.title and name not in left_out and column.is_shown(deployment):
            columns[name] = column.title, cells(rows, column.form, name, *column.beside)
        if name == leading and f"{name}_low" in rows[0]:
            columns["interval"] = "80 %\ninterval", _intervals(rows, column)
    return columns


def _add_plain_throughput(rows: list[Row]) -> None:
    """Add the throughput without speculation, which stands beside that with it."""
    for row in rows:
        if "forward_time" in row:
            row["throughput_plain"] = row["batch_size"] / row["forward_time"]


def _intervals(rows: list[Row], column: Column) -> list[str]:
    """Return both ends of the interval of a column, a cell for each row."""
    form = SECONDS if column.form == SECONDS else "{:.2f}-{:.2f}"
    return cells(rows, form, f"{column.name}_low", f"{column.name}_high")


def varies(name: str, rows: list[Row]) -> bool:
    """Return whether the rows have several values in a column."""
    return len({row[name] for row in rows}) > 1


def cells(rows: Iterable[Row], form: str, *names: str) -> list[str]:
    """Return the cells of a column of a table, each of the values of `names` in a row."""
    return [cell([row[name] for name in names], form) for row in rows]


def cell(values: Sequence[Any], form: str) -> str:
    """Return one cell of a table, a dash for None: a time, a size or a filled template."""
    if None in values:
        return "-"
    if form not in (SECONDS, BYTES):
        return form.format(*values)
    texts = [_with_prefix(value, form) for value in values]
    units = [text.lstrip("0123456789.e+-") for text in texts]
    shared = units[0] if len(set(units)) == 1 else ""
    return ">".join(text.removesuffix(shared) for text in texts) + shared


def seconds(value: float) -> str:
    """Return a time with a metric prefix and no space, for tables."""
    return _with_prefix(value, SECONDS)


def _with_prefix(value: float, unit: str) -> str:
    from specmodel.base.units import format_si

    return format_si(value, unit).replace(" ", "")
