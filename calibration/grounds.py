"""Write the table of grounds: errors of published hosts that were left out, by cell.

Usage: python calibration/grounds.py TABLE ... [--write]. Tables have the form that
`interval_judge.py` reads. The spread of a cell minimises the interval score of its rows. In each
cell, all hosts with rows have the same weight. Each host is judged with a table fitted to the
others. The script prints the table, errors and intervals of left-out hosts by cell, and how gains
and losses were called. --write writes ``specmodel/core/prediction/grounds.csv``.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
from msgspec.structs import replace

import as_published
import interval_judge as judge
from specmodel.calibrate.fit.measured.judge import told_of
from specmodel.calibrate.fit.measured.tables import ServingTable
from specmodel.core.base.units import NORMAL_80, FloatArray
from specmodel.core.cost.deploying import resolve
from specmodel.core.prediction import ground
from specmodel.core.prediction.ground import LIKELY, SURELY, Cell, Ground, Shares

MISSED = 10.0
"""What an interval score adds for each unit that a measurement lies outside [-]."""
_SPREADS = np.arange(0, 1.5, 0.01)
_UNTOLD = Shares(*(np.nan,) * len(Shares._fields))
Tables = Mapping[str, ServingTable]


def main(words: list[str]) -> None:
    """Judge, print, and write."""
    pd.options.display.width = 250
    tables = {Path(path).stem: judge.read(path) for path in words if not path.startswith("--")}
    rows = with_grounds([_ground(Cell(), 10**6, 10**6, 0.0)], partial(as_given, tables))
    found = []
    for host in rows["host"].unique():
        own = {name: _of_host(table, host) for name, table in tables.items()}
        own = {name: table for name, table in own.items() if table.rows}
        others = grounds_of(rows[rows["host"] != host])
        found.append(
            [with_grounds(others, partial(as_told, own)) for as_told in (as_given, as_is_published)]
        )
    given, published = (pd.concat(parts, ignore_index=True) for parts in zip(*found, strict=True))
    table = frame_of(grounds_of(rows), given, published)
    print(table.round(3).to_string(index=False))
    print(f"\n{by_cell(given, rows).round(3).to_string(index=False)}")
    for name, judged in (("given", given), ("published", published)):
        print(f"\n{name}\n{judge.by_word(judged).round(3).to_string(index=False)}")
    if "--write" in words:
        table.round(4).to_csv(ground.TABLE, index=False)


def _of_host(table: ServingTable, host: str) -> ServingTable:
    return replace(table, rows=tuple(row for row in table.rows if row.labels["host"] == host))


def _ground(cell: Cell, rows: int, hosts: int, spread: float) -> Ground:
    return Ground(
        cell=cell,
        rows=rows,
        hosts=hosts,
        error=0.0,
        bias=0.0,
        spread=spread,
        given=_UNTOLD,
        published=_UNTOLD,
    )


def with_grounds(known: Sequence[Ground], judged: Callable[[], pd.DataFrame]) -> pd.DataFrame:
    """Return predictions with other grounds than the shipped ones."""
    by_cell = {each.cell: each for each in known}
    with patch.object(ground, "grounds", lambda: by_cell):
        return judged()


def as_given(tables: Tables) -> pd.DataFrame:
    """Return all rows as they are predicted with the acceptance of the run, and their cells."""
    return _with_cells(judge.judged(dict(tables)), tables)


def as_is_published(tables: Tables) -> pd.DataFrame:
    """Return the rows whose acceptance is published as they are predicted with that."""
    found = []
    for name, table in tables.items():
        drafting = [row for row in table.rows if row.tokens_per_step is not None]
        found.append(pd.DataFrame(told_of(drafting, as_published.predicted)[0]).assign(table=name))
    return _with_cells(pd.concat(found, ignore_index=True), tables)


def _with_cells(rows: pd.DataFrame, tables: Tables) -> pd.DataFrame:
    deployed = {
        (name, row.row): resolve(row.deployment)[0]
        for name, table in tables.items()
        for row in table.rows
    }
    places = rows[["table", "row", "context_length"]].to_numpy().tolist() if len(rows) else []
    cells = [ground.cell_of(deployed[name, row], context) for name, row, context in places]
    return rows.assign(cell=pd.Series(cells, rows.index, dtype=object))


def grounds_of(rows: pd.DataFrame) -> list[Ground]:
    """Return the grounds of rows that were predicted without a spread of their cells."""
    weight = 1 / rows.groupby(["cell", "host"])["row"].transform("size")
    found = []
    for cell in sorted({wider for own in rows["cell"].unique() for wider in own.around()}):
        is_in = _is_in(rows, cell)
        own, weights = rows[is_in], weight[is_in]
        scores = [np.average(scores_of(own, spread), weights=weights) for spread in _SPREADS]
        spread = float(_SPREADS[int(np.argmin(scores))])
        found.append(_ground(cell, len(own), own["host"].nunique(), spread))
    return found


def _is_in(rows: pd.DataFrame, cell: Cell) -> np.ndarray:
    return np.array([cell in each.around() for each in rows["cell"]], dtype=bool)


def scores_of(rows: pd.DataFrame, spread: float = 0.0) -> FloatArray:
    """Return the interval score of each row if its interval has a further spread [-]."""
    log = {name: np.log(rows[name]) for name in ("low", "high", "predicted", "measured")}
    low, high = (
        log["predicted"] + side * np.hypot(log[end] - log["predicted"], NORMAL_80 * spread)
        for side, end in ((-1, "low"), (1, "high"))
    )
    missed = np.maximum(low - log["measured"], 0) + np.maximum(log["measured"] - high, 0)
    return np.asarray(high - low + MISSED * missed)


def frame_of(
    grounds: Sequence[Ground], given: pd.DataFrame, published: pd.DataFrame
) -> pd.DataFrame:
    """Return grounds as a table, with errors of left-out hosts and how often words were right.

    `given` and `published` are predictions of left-out rows, with the acceptance of the run and
    with published acceptance.
    """
    found = []
    for each in grounds:
        own = given[_is_in(given, each.cell)]
        off = np.asarray(np.log(own["predicted"] / own["measured"]))
        row: dict[str, Any] = {**each.cell._asdict(), "rows": each.rows, "hosts": each.hosts}
        row |= {"error": np.expm1(np.abs(off).mean()), "bias": np.expm1(off.mean())}
        row["spread"] = each.spread
        for name, rows in (("given", given), ("published", published)):
            came = shares(rows[_is_in(rows, each.cell)])
            row |= {f"{name}_{word}": share for word, share in came._asdict().items()}
        found.append(row)
    return pd.DataFrame(found)


def shares(rows: pd.DataFrame) -> Shares:
    """Return the share of gains that came, by the predicted chance of a gain."""
    speedups = rows[rows["quantity"] == "speedup"]
    chance, came = speedups["chance"], speedups["measured"] > judge.LOSS
    return Shares(
        surely=came[chance >= SURELY].mean(),
        likely=came[(chance >= LIKELY) & (chance < SURELY)].mean(),
        may=came[(chance >= 0.5) & (chance < LIKELY)].mean(),
        loss=1 - came[chance < 0.5].mean(),
    )


def by_cell(left_out: pd.DataFrame, before: pd.DataFrame) -> pd.DataFrame:
    """Return errors, intervals and scores of left-out hosts by cell, without and with spreads."""
    found = []
    for cell in [*left_out["cell"].unique(), Cell()]:
        rows, was = (each[_is_in(each, cell)] for each in (left_out, before))
        found.append(
            {
                "cell": " ".join(cell),
                "hosts": rows["host"].nunique(),
                **judge.told(rows),
                "held before": was["measured"].between(was["low"], was["high"]).mean(),
                "wider": _width(rows) / _width(was),
                "score": scores_of(rows).mean(),
                "before": scores_of(was).mean(),
                **shares(rows)._asdict(),
            }
        )
    return pd.DataFrame(found)


def _width(rows: pd.DataFrame) -> float:
    return float(np.median(np.log(rows["high"] / rows["low"])))


if __name__ == "__main__":
    main(sys.argv[1:])
