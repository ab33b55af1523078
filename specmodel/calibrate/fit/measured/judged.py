"""A table of measured engines beside predictions, and what that tells, as data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
from msgspec import Struct

from specmodel.calibrate.fit.measured.aliases import stack_of
from specmodel.calibrate.fit.measured.judge import host_speeds, judge_serving, serving_errors
from specmodel.calibrate.fit.measured.tables import read_serving
from specmodel.core.base.facts import Fact, known
from specmodel.core.base.text import Viewed


class JudgedEngines(Viewed, Struct, frozen=True, kw_only=True, eq=False):
    """Predictions of a table of measured engines, and their errors.

    Parameters
    ----------
    rows, errors, hosts
        The tables of `judge_serving`, of `serving_errors`, and of `host_speeds`.
    not_taken
        The rows that are not judged, by reason, the most frequent reason first.
    assumed
        What was assumed where the table says nothing.
    """

    room = "fitted:judged"

    rows: pd.DataFrame
    errors: pd.DataFrame
    hosts: pd.DataFrame
    not_taken: Mapping[str, list[str]]
    assumed: Mapping[str, str]


def judged_engines(path: str | Path) -> JudgedEngines:
    """Return the judged rows of a table of measured engines.

    Parameters
    ----------
    path
        A table, as `read_serving` reads it.
    """
    table = read_serving(path)
    judged, refused = judge_serving(table)
    reasons = {**table.not_taken, **refused}
    return JudgedEngines(
        rows=judged,
        errors=serving_errors(judged),
        hosts=host_speeds([row for row in table.rows if row.row not in refused]),
        not_taken={
            reason: [row for row, why in reasons.items() if why == reason]
            for reason, _ in Counter(reasons.values()).most_common()
        },
        assumed=table.assumed,
    )


def judged_facts(judged: JudgedEngines) -> dict[str, Fact]:
    """Return the errors of all rows, and which rows they are of.

    Parameters
    ----------
    judged
        The judged rows, as `judged_engines` returns them.

    Returns
    -------
    dict
        Errors [-], numbers of rows by what became of them, and what was assumed, by name.
    """
    rows, every = judged.rows, judged.errors.iloc[0]
    lent = rows[rows["stack"] != rows["engine"].map(stack_of)]
    of_others = Counter(map(" ".join, lent[["engine", "hardware", "stack"]].to_numpy()))
    facts = {
        "rows": Fact(len(rows)),
        "quantities": Fact(sorted({*rows["quantity"]})),
        "models": Fact(sorted({*rows["target"]})),
        **{name: Fact(float(every[name])) for name in every.index[3:]},
        "not_taken": Fact({reason: len(named) for reason, named in judged.not_taken.items()}),
        "kernels_of_others": Fact(dict(of_others)),
        "assumed": Fact(dict(judged.assumed)),
    }
    return known(facts.items())
