"""Engines as predicted and as measured: row by row, and errors by what varies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from specmodel.algebra.acceptance import Acceptance
from specmodel.base.errors import InputError
from specmodel.base.units import FloatArray
from specmodel.cost.deploying import resolve
from specmodel.cost.deployment import Deployment
from specmodel.fit.measured.tables import Served, ServingTable
from specmodel.fit.steps import measured_steps
from specmodel.machines.engine import Overheads
from specmodel.prediction.decoding import decode_deployed
from specmodel.prediction.intervals import MAX_POINTS
from specmodel.prediction.outcome import Prediction
from specmodel.prediction.predicting import predict_deployed

GROUPS = ("model", "engine", "hardware", "dtype", "batch_size", "host")
"""Columns by which errors are grouped, if a table has them."""

ALL = "all"  # group of all rows


def judge_serving(table: ServingTable) -> tuple[pd.DataFrame, dict[str, str]]:
    """Return the rows of a table with their predictions, and reasons by row why others have none.

    A row has its labels, stack (whose kernels were taken), degrees, batch_size, quantity, measured,
    predicted, low and high (ends of the 80 % interval), chance (of a gain, of a speedup) and error,
    predicted over measured less one [s] [-].
    """
    found, refused = told_of(table.rows, _judged)
    if not found:
        why = next(iter([*refused.values(), *table.not_taken.values()]), "none")
        raise InputError("serving", "no row that is taken", f"at least one; of the first, {why}")
    judged = pd.DataFrame(found)
    return judged.assign(error=judged["predicted"] / judged["measured"] - 1), refused


def told_of(
    rows: Sequence[Served], tell: Callable[[list[Served]], list[dict[str, Any]]]
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return what is told of rows, and reasons by row where a model refuses a layout."""
    found, refused = list[dict[str, Any]](), dict[str, str]()
    waiting = alike(rows)[::-1]
    while waiting:
        together = waiting.pop()
        try:
            found += tell(together)
        except InputError as error:
            if len(together) > 1 and error.argument in together[0].points:  # some may do
                middle = len(together) // 2
                waiting += [together[middle:], together[:middle]]
            else:
                refused |= {row.row: f"{error.argument}: {error.expected}" for row in together}
    return found, refused


def alike(rows: Sequence[Served]) -> list[list[Served]]:
    """Return rows together that differ in requests and lengths alone: one call predicts them."""
    together: dict[tuple[Any, ...], list[Served]] = {}
    for row in rows:
        where = sorted(map(_named, row.deployment.items()))
        drafts = [row.points.get(name) for name in ("draft_length", "verify_tokens")]
        key = (*where, *sorted(row.points), row.tokens_per_step, row.quantity, *drafts)
        together.setdefault(key, []).append(row)
    return [
        some[start : start + MAX_POINTS]
        for some in together.values()
        for start in range(0, len(some), MAX_POINTS)
    ]


def described(
    row: Served, deployment: Deployment, points: Mapping[str, FloatArray], place: int
) -> dict[str, Any]:
    """Return the name, labels, kernels, degrees and points of a row, at its place in arrays."""
    return {
        "row": row.row,
        **row.labels,
        "target": str(row.deployment["target"]),
        "stack": deployment.kernels.stack,
        "tensor_parallel": deployment.tensor_parallel,
        "data_parallel": deployment.layout.replicas,
        "expert_parallel": deployment.expert_parallel,
        **{name: int(values[place]) for name, values in points.items()},
    }


def _named(item: tuple[str, Any]) -> tuple[str, Any]:
    """Return a name and what identifies its value: a record is the same only as the same object."""
    name, value = item
    return name, value if isinstance(value, str | int | float) else id(value)


def _judged(rows: list[Served]) -> list[dict[str, Any]]:
    """Return rows of one deployment with their predictions."""
    deployment, assumed = resolve(rows[0].deployment)
    points = {n: np.array([float(row.points[n]) for row in rows]) for n in rows[0].points}
    tokens = rows[0].tokens_per_step
    predicted: Prediction
    if tokens is None:
        predicted = decode_deployed(deployment, assumed, **points, interval=True)
    else:
        acceptance = Acceptance(tokens_per_step=tokens)
        predicted = predict_deployed(
            deployment, assumed, **points, acceptance=acceptance, max_draft_length=1, interval=True
        )
    interval = (predicted.intervals or {})[rows[0].quantity]
    chance = np.full(len(rows), np.nan) if interval.chance is None else interval.chance
    return [
        described(row, deployment, points, i)
        | {
            "quantity": row.quantity,
            "measured": row.measured,
            "predicted": float(getattr(predicted, row.quantity)[i]),
            "low": float(interval.low[i]),
            "high": float(interval.high[i]),
            "chance": float(chance[i]),
        }
        for i, row in enumerate(rows)
    ]


def serving_errors(judged: pd.DataFrame) -> pd.DataFrame:
    """Return errors of all rows, and by model, engine, GPU, dtype and batch size.

    Bias is the signed mean, coverage the share of rows measured within the 80 % interval [-].
    """
    rows = [{"group": ALL, "value": "", **_errors(judged)}]
    for name in (name for name in GROUPS if name in judged):
        for value, part in judged.groupby(name, sort=True):
            rows.append({"group": name, "value": str(value), **_errors(part)})
    return pd.DataFrame(rows)


def _errors(part: pd.DataFrame) -> dict[str, Any]:
    error = part["error"]
    errors = {
        "rows": len(part),
        "mean_error": float(error.abs().mean()),
        "median_error": float(error.abs().median()),
        "bias": float(error.mean()),
    }
    if "low" not in part:
        return errors
    is_inside = part["measured"].between(part["low"], part["high"])
    return errors | {"coverage": float(is_inside.mean())}


SPEEDS = np.geomspace(0.1, 10.0, 401)  # factors tried on the host speed of the profile [-]


def host_speeds(rows: Sequence[Served]) -> pd.DataFrame:
    """Return the host speed, beside the profile's, that meets each host's rows best, with errors.

    Hosts with a single row are left out: any speed meets it.
    """
    pairs = [row for row in rows if row.tokens_per_step is not None and "host" in row.labels]
    hosts = [row.labels["host"] for row in pairs]
    found = []
    for host in dict.fromkeys(hosts):
        own = [row for row, name in zip(pairs, hosts, strict=True) if name == host]
        if len(own) < 2:  # one row is met by any speed
            continue
        errors = _errors_by_speed(own)
        best = int(np.abs(errors).mean(axis=1).argmin())
        found.append(
            {
                "host": host,
                "rows": len(own),
                "host_speed": float(SPEEDS[best]),
                "mean_error": float(np.abs(errors[best]).mean()),
                "bias": float(errors[best].mean()),
            }
        )
    return pd.DataFrame(found)


def _errors_by_speed(rows: Sequence[Served]) -> np.ndarray:
    """Return errors, shape (speeds, rows) [-]."""
    engines = [resolve(row.deployment)[0].engine.overheads for row in rows]
    names = Overheads.__dataclass_fields__
    own = {name: np.array([getattr(engine, name) for engine in engines]) for name in names}
    overheads, steps = Overheads(**own), measured_steps(rows)
    tried = [replace(overheads, host_speed=overheads.host_speed * speed) for speed in SPEEDS]
    return np.array([steps.predicted(engine) / steps.measured - 1 for engine in tried])
