"""Fit the spread of a deployment: errors of whole engines that errors of kernels do not explain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from msgspec.structs import replace

from specmodel.calibrate.fit.measured.judge import alike
from specmodel.calibrate.fit.measured.tables import Served, ServingTable
from specmodel.core.algebra.acceptance import Acceptance
from specmodel.core.base.errors import InputError
from specmodel.core.base.units import FloatArray
from specmodel.core.cost.deploying import resolve
from specmodel.core.machines.engine import load_engine
from specmodel.core.prediction.columns import DECODE_COLUMNS
from specmodel.core.prediction.evaluate import evaluate
from specmodel.core.prediction.intervals import CENTRAL, central_intervals
from specmodel.core.prediction.predicting import plain_points, predict_deployed

BARE = load_engine("ideal").with_changes("engine", {"fuses_all": False})
"""An engine that runs kernels one after another, without overheads."""

SPREADS = np.concatenate([np.linspace(0.0, 0.2, 21), np.linspace(0.25, 0.6, 8)])
"""Spreads for which intervals are computed; ends between them are interpolated [-]."""

TIMES_AS_MANY = (2, 4, 8)
"""Ratios q of the requests in two passes that are compared [-]."""

_TPOT = tuple(column for column in DECODE_COLUMNS if column.name == "tpot")


def without_engine(table: ServingTable) -> ServingTable:
    """Return a table whose rows run on `BARE`: other profiles include errors of whole steps."""
    ideal = {"engine": BARE}
    rows = tuple(replace(row, deployment={**row.deployment, **ideal}) for row in table.rows)
    return replace(table, rows=rows)


def least_spreads(table: ServingTable) -> pd.DataFrame:
    """Return, for each plain row, the smallest spread with which its interval contains the row.

    ``least_spread`` is 0 if the errors of kernels alone explain the row, and infinite if no value
    of `SPREADS` is large enough [-]. Rows with drafts and rows that cannot be predicted are left
    out.
    """
    found: list[dict[str, Any]] = []
    for rows in alike([row for row in table.rows if row.tokens_per_step is None]):
        try:
            least = _least(rows)
        except InputError:
            continue
        found += [
            {"row": row.row} | dict(row.labels) | {"least_spread": spread}
            for row, spread in zip(rows, least, strict=True)
        ]
    if not found:
        raise InputError("serving", "no usable row", "a row of plain decoding")
    return pd.DataFrame(found)


def fit_spread(least: FloatArray, share: float = CENTRAL) -> float:
    """Return the smallest spread with which intervals contain the given share of the rows [-].

    >>> fit_spread(np.array([0.0, 0.1, 0.2, 0.3, np.inf]))
    0.3
    """
    return float(np.quantile(least, share, method="inverted_cdf"))


def coverage_left_out(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the share of rows inside intervals, with a spread fitted to other models [-]."""
    found: dict[str, Mapping[str, float]] = {}
    for model, part in rows.groupby("model", sort=True):
        spread = fit_spread(rows.loc[rows["model"] != model, "least_spread"].to_numpy())
        coverage = float((part["least_spread"] <= spread).mean())
        found[str(model)] = {"rows": len(part), "spread": spread, "coverage": coverage}
    return pd.DataFrame(found).T.rename_axis("model").reset_index().astype({"rows": int})


def ratios_of_passes(judged: pd.DataFrame, table: ServingTable) -> pd.DataFrame:
    """Return errors of ratios between decode steps of B and of q B requests, with intervals.

    Each row compares two rows of one deployment with equal lengths. ``tokens`` is q: 2, 4 or 8.
    ``log_error`` is the logarithm of the predicted over the measured ratio of times. ``low`` and
    ``high`` are log ends of the interval of target efficiency at B with q tokens per sequence,
    relative to the predicted value [-].

    No row measures a verify pass. A pass of q B requests has as many tokens as a pass of B requests
    with q tokens each, but reads other caches. The two rows may be from different versions of an
    engine.
    """
    log_errors = np.log(judged["predicted"] / judged["measured"])
    errors = dict(zip(judged["row"], log_errors, strict=True))
    rows = [row for row in table.rows if row.row in errors and row.tokens_per_step is None]
    found = [_ratios(some, errors) for some in alike(rows)]
    return pd.concat(found, ignore_index=True)


def _ratios(rows: list[Served], errors: Mapping[str, float]) -> pd.DataFrame:
    """Return the ratios between rows of one deployment, in the columns of `ratios_of_passes`."""
    frame = pd.DataFrame([dict(row.points) for row in rows]).astype(float)
    frame = frame.assign(error=[errors[row.row] for row in rows], model=rows[0].labels["model"])
    lengths = [name for name in ("context_length", "prompt_length") if name in frame]
    means = frame.groupby(["model", *lengths, "batch_size"], as_index=False)["error"].mean()
    pairs = [
        means.merge(
            means.assign(tokens=q, batch_size=means["batch_size"] / q),
            on=["model", *lengths, "batch_size"],
            suffixes=("", "_of_more"),
        )
        for q in TIMES_AS_MANY
    ]
    both = pd.concat(pairs, ignore_index=True)
    if both.empty:
        return pd.DataFrame()
    proposing = {"drafter": "ngram", "proposal_rate": 1.0}
    deployment, assumed = resolve(dict(rows[0].deployment) | proposing)
    predicted = predict_deployed(
        deployment,
        assumed,
        batch_size=both["batch_size"].to_numpy(),
        context_length=both["context_length"].to_numpy(),
        draft_length=both["tokens"].to_numpy() - 1,
        acceptance=0.5,
        interval=True,
    )
    ends = (predicted.intervals or {})["target_efficiency"]
    return pd.DataFrame(
        {
            "model": both["model"],
            "tokens": both["tokens"],
            "log_error": both["error"] - both["error_of_more"],
            "low": np.log(ends.low / predicted.target_efficiency),
            "high": np.log(ends.high / predicted.target_efficiency),
        }
    )


def _least(rows: list[Served]) -> FloatArray:
    """Return the smallest spread with which the interval of each row contains it [-]."""
    deployment, _ = resolve(rows[0].deployment)
    values: dict[str, Any] = {
        name: np.array([float(row.points[name]) for row in rows]) for name in rows[0].points
    }
    load = (values.get(name) for name in ("context_length", "prompt_length", "output_length"))
    points, _ = plain_points(values["batch_size"], *load, lockstep=values.get("lockstep"))
    points |= {"draft_length": np.zeros(()), "verify_tokens": np.ones(())}
    measured = np.array([row.measured for row in rows])
    own = evaluate(deployment, points, Acceptance(acceptance_rate=0.0))
    room = np.array(
        [
            _room(central_intervals(own, columns=_TPOT, deployment_spread=spread)["tpot"], measured)
            for spread in SPREADS.tolist()
        ]
    )
    return np.array([_first_crossing(of_row) for of_row in room.T])


def _room(interval: Any, measured: FloatArray) -> FloatArray:
    """Return log distances of times to the nearest end of an interval, negative outside [-]."""
    above, below = np.log(interval.high / measured), np.log(measured / interval.low)
    return np.asarray(np.minimum(above, below))


def _first_crossing(room: FloatArray) -> float:
    """Return the spread at which `room` becomes positive, interpolated between `SPREADS` [-]."""
    if room[0] >= 0:
        return 0.0
    if room[-1] < 0:
        return np.inf
    after = int(np.argmax(room >= 0))
    low, high = room[after - 1], room[after]
    return float(np.interp(0.0, [low, high], SPREADS[after - 1 : after + 1]))
