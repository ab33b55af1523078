"""Define the columns of answers that predictions do not have, and all columns by name.

``columns.csv`` declares each column once: name, unit, meaning, title, format of a cell. Commands
import this module for their help too, so that it imports nothing heavy at once.
"""

import csv
from collections.abc import Callable, Iterable
from functools import cache, partial
from pathlib import Path

from msgspec.structs import replace

from specmodel.core.prediction.table import Column, Row, seconds
from specmodel.show.glossary import PAGES


def _last(name: str) -> str:
    """Return the column of the other end of a range."""
    return name.replace("_low", "_high") if "_low" in name else name.replace("first", "last")


def duration(value: float) -> str:
    """Return a time in hours or minutes if it is at least two of them, else in seconds."""
    for unit, long in (("h", 3600.0), ("min", 60.0)):
        if value >= 2 * long:
            return f"{value / long:.3g} {unit}"
    return f"{value:.3g} s"


def _sizes(name: str, row: Row) -> str:
    from specmodel.core.base.ranges import ranges_text

    last = _last(name)
    is_shown = row.get(name) and (name != "near_peak_first" or row["peak_speedup"] > 1)
    return ranges_text([(int(row[name]), int(row[last]))]) if is_shown else "-"


def _ends(name: str, row: Row) -> str:
    ends = row[name], row[_last(name)]
    return "-" if None in ends or not row["capacity"] else "{:.3g}-{:.3g}".format(*ends)


def _in_its_unit(name: str, row: Row) -> str:
    from specmodel.core.base.units import format_si

    is_count = row["unit"] in ("-", "token", "request")
    return f"{row[name]:.4g}" if is_count else format_si(row[name], row["unit"])


def _by_quantity(name: str, row: Row) -> str:
    """Return a time, or a ratio if the row is about a speedup."""
    return f"{row[name]:.2f}" if row["quantity"] == "speedup" else seconds(row[name])


def _parameter(name: str, row: Row) -> str:
    """Return an overhead or a factor of an engine."""
    is_time = row["name"].endswith("time") or "_per_" in row["name"]
    return seconds(row[name]) if is_time else f"{row[name]:.2f}"


def _ends_of_parameter(name: str, row: Row) -> str:
    ends = (_parameter(end, row) for end in (name, _last(name)))
    return "not determined" if row["is_open"] else " to ".join(ends)


def _share(name: str, row: Row, unit: str = " %") -> str:
    """Return a share in per cent; estimates below 0 or above 1 become 0 or 1."""
    return f"{100 * min(max(row[name], 0.0), 1.0):.0f}{unit}"


_WHERE_IT_VARIES = "where it varies"
_QUANTITIES = {"tpot": "TPOT", "step_time": "step", "speedup": "speedup"}
_FUNCTIONS: dict[str, Callable[[str, Row], str]] = {
    "either": lambda name, row: " -> ".join(
        "-" if end is None else f"{end:.0f}" for end in (row[f"{name}_plain"], row[name])
    ),
    "duration": lambda name, row: "-" if row[name] is None else duration(row[name]),
    "sizes": _sizes,
    "ends": _ends,
    "last letters": lambda n, row: row[n] if len(row[n]) <= 18 else f"...{row[n][-15:]}",
    "in its unit": _in_its_unit,
    "quantity": lambda name, row: _QUANTITIES[row[name]],
    "by quantity": _by_quantity,
    "ends by quantity": lambda name, row: " to ".join(_by_quantity(n, row) for n in (name, "high")),
    "parameter": _parameter,
    "ends of parameter": _ends_of_parameter,
    "share": _share,
    "ends of share": lambda n, row: "-".join(_share(end, row, "") for end in (n, _last(n))),
    "text": lambda name, row: row[name] or "-",
    "yes or no": lambda name, row: "yes" if row[name] else "no",
    "or none": lambda name, row: f"{row[name]:.3g}" if row[name] else "none",
    "per tenth": lambda name, row: f"+{row[name] / 10:.3f}",
    "costs": lambda name, row: f"{row[name] * row['speedup']:.3g} -> {row[name]:.3g}",
}
"""Functions that format a cell, where a format or template is not enough."""


@cache
def _rows() -> list[dict[str, str]]:
    lines = Path(__file__).with_suffix(".csv").read_text(encoding="utf-8").splitlines()
    return [*csv.DictReader(line for line in lines if not line.startswith("#"))]


def _column(row: dict[str, str], known: Column | None = None) -> Column:
    """Return the column that a row declares, or a known column with the changes of a table."""
    name, form = row["name"], row["form"]
    make = _FUNCTIONS.get(form)
    declared = {
        "unit": row["unit"],
        "meaning": row["meaning"],
        "title": row["title"].replace("|", "\n"),
        "form": partial(make, name) if make else form.removeprefix(_WHERE_IT_VARIES),
        "spare": int(row["spare"] or 0),
        "is_coordinate": form == _WHERE_IT_VARIES,
    }
    base = (not row["unit"] and known) or Column(name, "-", "")
    return replace(base, **{key: value for key, value in declared.items() if value})


_DOCUMENTED: list[str] = PAGES["columns"]["documented"].split()
"""Answers whose columns are in JSON and CSV; other columns are only in tables for people."""


@cache
def by_name(table: str = "") -> dict[str, Column]:
    """Return all columns by name, with the changes that `table` makes."""
    from specmodel.core.prediction.columns import COLUMNS, DECODE_COLUMNS, LOAD_COLUMNS, interval_of

    declared = [row for row in _rows() if row["of"] in _DOCUMENTED and row["unit"]]
    rooms = (COLUMNS, LOAD_COLUMNS, DECODE_COLUMNS, (interval_of("speedup"),))
    known = {row["name"]: _column(row) for row in reversed(declared)}
    known |= {column.name: column for room in reversed(rooms) for column in room}
    own = (row for row in _rows() if row["of"] == table)
    return known | {row["name"]: _column(row, known.get(row["name"])) for row in own}


def meanings() -> dict[str, str]:
    """Return the meaning of each column with its unit, by name."""
    return {
        name: column.meaning + (f" [{column.unit}]" if column.unit != "-" else "")
        for name, column in sorted(by_name().items())
    }


def of_table(table: str, names: Iterable[str] = (), **titles: str) -> list[Column]:
    """Return the columns `names`, by default those that ``pages.toml`` lists or that are declared.

    `titles` replace the titles of columns by name.
    """
    known = by_name(table)
    listed = names or PAGES["tables"].get(table, "").split()
    listed = listed or [row["name"] for row in _rows() if row["of"] == table]
    ends = {n: n.rpartition("_")[0] for n in listed if n not in known}  # of intervals
    known = known | {n: Column(n, known[of].unit, "") for n, of in ends.items()}
    columns = (known[name] for name in listed)
    return [replace(c, title=titles[c.name]) if c.name in titles else c for c in columns]


def units(names: Iterable[str], table: str = "") -> dict[str, str]:
    """Return the units of known columns by name."""
    known = by_name(table)
    return {name: known[name].unit for name in names if name in known}
