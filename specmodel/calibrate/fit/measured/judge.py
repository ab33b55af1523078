"""Compare predictions of engines with measurements, row by row, and summarise the errors."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from msgspec import Struct
from msgspec.structs import replace

from specmodel.calibrate.fit.measured.aliases import stack_of
from specmodel.calibrate.fit.measured.tables import Served, ServingTable, read_serving
from specmodel.calibrate.fit.steps import measured_steps
from specmodel.core.algebra.acceptance import Acceptance
from specmodel.core.base.errors import InputError
from specmodel.core.base.facts import Fact, known
from specmodel.core.base.text import Viewed
from specmodel.core.cost.deploying import resolve
from specmodel.core.cost.deployment import Deployment
from specmodel.core.machines.engine import Overheads
from specmodel.core.prediction.decoding import decode_deployed
from specmodel.core.prediction.intervals import MAX_POINTS
from specmodel.core.prediction.outcome import Prediction
from specmodel.core.prediction.predicting import predict_deployed

GROUPS = ("model", "engine", "hardware", "dtype", "batch_size", "host")
"""Columns by which errors are grouped, as far as a table has them."""

ALL = "all"  # name of the group of all rows

SPEEDS = np.geomspace(0.1, 10.0, 401)  # factors that are tried on the profile's host speed [-]


def judge_serving(table: ServingTable) -> tuple[pd.DataFrame, dict[str, str]]:
    """Return the rows of a table with their predictions, and why other rows have no prediction.

    A row has its labels, stack (of the kernels used), degrees, batch_size, quantity, measured,
    predicted, low and high (ends of the 80 % interval), chance (of a speedup above 1) and error
    (predicted / measured - 1) [s] [-].
    """
    found, refused = told_of(table.rows, _judged)
    if not found:
        why = next(iter([*refused.values(), *table.not_taken.values()]), "none")
        raise InputError("serving", "no usable row", f"The first row was refused: {why}.")
    judged = pd.DataFrame(found)
    return judged.assign(error=judged["predicted"] / judged["measured"] - 1), refused


class Alike(NamedTuple):
    """Rows of one deployment, the assumptions about it, and the points of the rows as arrays."""

    rows: list[Served]
    deployment: Deployment
    assumed: Mapping[str, Any]
    points: dict[str, Any]


def told_of(
    rows: Sequence[Served], tell: Callable[[Alike], dict[str, Any]]
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return rows with labels, degrees, points and columns, and why models refuse other rows.

    `tell` computes the columns. A column that is a text has this text in all rows.
    """
    found, refused = list[dict[str, Any]](), dict[str, str]()
    waiting = alike(rows)[::-1]
    while waiting:
        together = waiting.pop()
        names = together[0].points
        points = {n: np.array([float(row.points[n]) for row in together]) for n in names}
        try:
            deployment, assumed = resolve(together[0].deployment)
            columns = tell(Alike(together, deployment, assumed, points))
        except InputError as error:
            if len(together) > 1 and error.argument in names:  # other rows may be valid
                middle = len(together) // 2
                waiting += [together[middle:], together[:middle]]
            else:
                refused |= {row.row: f"{error.argument}: {error.expected}" for row in together}
            continue
        where = {
            "target": str(together[0].deployment["target"]),
            "stack": deployment.kernels.stack,
            "tensor_parallel": deployment.tensor_parallel,
            "data_parallel": deployment.layout.replicas,
            "expert_parallel": deployment.expert_parallel,
        }
        found += [
            {"row": row.row, **row.labels, **where}
            | {name: int(values[i]) for name, values in points.items()}
            | {n: v if isinstance(v, str) else float(v[i]) for n, v in columns.items()}
            for i, row in enumerate(together)
        ]
    return found, refused


def alike(rows: Sequence[Served]) -> list[list[Served]]:
    """Return groups of rows that differ only in batch size and lengths, for one prediction each."""
    together: dict[Any, list[Served]] = defaultdict(list)
    for row in rows:
        where = sorted(map(_named, row.deployment.items()))
        drafts = [row.points.get(name) for name in ("draft_length", "verify_tokens")]
        key = (*where, *sorted(row.points), row.tokens_per_step, row.quantity, *drafts)
        together[key].append(row)
    size = MAX_POINTS
    return [own[i : i + size] for own in together.values() for i in range(0, len(own), size)]


def _named(item: tuple[str, Any]) -> tuple[str, Any]:
    """Return a name and a key of its value: a record is equal only to itself."""
    name, value = item
    return name, value if isinstance(value, str | int | float) else id(value)


def _judged(some: Alike) -> dict[str, Any]:
    """Return the measured values of rows, with predictions and intervals, by column."""
    rows, deployment, assumed, points = some
    quantity, tokens = rows[0].quantity, rows[0].tokens_per_step
    predicted: Prediction
    if tokens is None:
        predicted = decode_deployed(deployment, assumed, **points, interval=True)
    else:
        own = points | {"acceptance": Acceptance(tokens_per_step=tokens), "max_draft_length": 1}
        predicted = predict_deployed(deployment, assumed, **own, interval=True)
    interval = (predicted.intervals or {})[quantity]
    return {
        "quantity": quantity,
        "measured": [row.measured for row in rows],
        "predicted": getattr(predicted, quantity),
        "low": interval.low,
        "high": interval.high,
        "chance": np.full(len(rows), np.nan) if interval.chance is None else interval.chance,
    }


def serving_errors(judged: pd.DataFrame) -> pd.DataFrame:
    """Return errors of all rows, and by model, engine, GPU, dtype and batch size.

    Bias is the signed mean, coverage the share of rows measured within the 80 % interval [-].
    """
    groups = [(n, value, part) for n in GROUPS if n in judged for value, part in judged.groupby(n)]
    rows = [
        {"group": name, "value": str(value), **_errors(part)}
        for name, value, part in ((ALL, "", judged), *groups)
    ]
    return pd.DataFrame(rows)


def _errors(part: pd.DataFrame) -> dict[str, Any]:
    error = part["error"]
    return {
        "rows": len(part),
        "mean_error": float(error.abs().mean()),
        "median_error": float(error.abs().median()),
        "bias": float(error.mean()),
        "coverage": float(part["measured"].between(part["low"], part["high"]).mean()),
    }


def host_speeds(rows: Sequence[Served]) -> pd.DataFrame:
    """Return the host speed of each host, relative to the profile, with the smallest mean error.

    A host with a single row is left out, because any speed can fit one row.
    """
    own = [row for row in rows if row.tokens_per_step is not None and "host" in row.labels]
    if not own:
        return pd.DataFrame()
    engines = [resolve(row.deployment)[0].engine.overheads for row in own]
    names = Overheads.__struct_fields__
    overheads = Overheads(**{n: np.array([getattr(e, n) for e in engines]) for n in names})
    steps, hosts = measured_steps(own), [row.labels["host"] for row in own]
    times = {x: replace(overheads, host_speed=overheads.host_speed * x) for x in SPEEDS.tolist()}
    errors = pd.DataFrame({x: steps.predicted(o) / steps.measured - 1 for x, o in times.items()})
    mean = errors.abs().groupby(hosts, sort=False).mean()
    by_host, best = errors.groupby(hosts, sort=False), mean.idxmin(axis=1)
    bias = [own[speed].mean() for (_, own), speed in zip(by_host, best, strict=True)]
    found = {"rows": by_host.size(), "host_speed": best, "mean_error": mean.min(axis=1)}
    table = pd.DataFrame(found).assign(bias=bias).rename_axis("host").reset_index()
    return table[table["rows"] > 1].reset_index(drop=True)


class JudgedEngines(Viewed, Struct, frozen=True, kw_only=True, eq=False):
    """Predictions of a table of measured engines, and their errors.

    Parameters
    ----------
    rows, errors, hosts
        The tables of `judge_serving`, `serving_errors` and `host_speeds`.
    not_taken
        The rows that are not judged, by reason, the most frequent reason first.
    assumed
        Assumptions for empty cells and missing columns, by argument.
    """

    room = "calibrated:judged"

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
    """Return the errors of all rows, and facts about these rows.

    Parameters
    ----------
    judged
        The judged rows, as `judged_engines` returns them.

    Returns
    -------
    dict
        Errors [-], number of judged rows, number of other rows by reason, and assumptions, by name.
    """
    rows, every = judged.rows, judged.errors.iloc[0]
    other = rows[rows["stack"] != rows["engine"].map(stack_of)]
    of_others = Counter(map(" ".join, other[["engine", "hardware", "stack"]].to_numpy()))
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
