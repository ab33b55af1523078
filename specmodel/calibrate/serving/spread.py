"""How much whole engines miss predictions by beyond their kernels: the factor of a deployment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from specmodel.algebra.acceptance import Acceptance
from specmodel.base.errors import InputError
from specmodel.base.units import FloatArray
from specmodel.calibrate.serving.judge import alike
from specmodel.calibrate.serving.tables import Served, ServingTable
from specmodel.cost.deploy import resolve
from specmodel.prediction.columns import DECODE_COLUMNS
from specmodel.prediction.intervals import CENTRAL, central_intervals
from specmodel.prediction.predict import INTERVAL_SEED, plain_points

SPREADS = np.linspace(0.0, 0.6, 25)
"""At which intervals are computed; between them their ends are interpolated [-]."""

_TPOT = tuple(column for column in DECODE_COLUMNS if column.name == "tpot")


def least_spreads(table: ServingTable) -> pd.DataFrame:
    """Return the spread of a deployment from which the interval of each plain row holds.

    Parameters
    ----------
    table
        As `read_serving` returns it; pairs are left out.

    Returns
    -------
    pandas.DataFrame
        A row for each that is taken: row, its labels, and least_spread, 0 where the errors of
        kernels cover it by themselves, infinite where none of `SPREADS` does [-].

    Raises
    ------
    InputError
        If no row can be predicted.
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
        raise InputError("serving", "no row that is taken", "one of plain decoding")
    return pd.DataFrame(found)


def fit_spread(least: FloatArray, share: float = CENTRAL) -> float:
    """Return the spread of a deployment at which intervals hold for a share of the rows.

    Parameters
    ----------
    least
        From which spread on each row is inside [-].
    share
        Of the rows [-].

    Returns
    -------
    float
        The least such spread [-].

    Examples
    --------
    >>> fit_spread(np.array([0.0, 0.1, 0.2, 0.3, np.inf]))
    0.3
    """
    return float(np.quantile(least, share, method="inverted_cdf"))


def coverage_left_out(rows: pd.DataFrame) -> pd.DataFrame:
    """Return how much of each model intervals hold for with a spread fitted to the others.

    Parameters
    ----------
    rows
        As `least_spreads` returns them.

    Returns
    -------
    pandas.DataFrame
        By model: rows, spread, that of the others, and coverage with it [-].
    """
    found: dict[str, Mapping[str, float]] = {}
    for model, part in rows.groupby("model", sort=True):
        spread = fit_spread(rows.loc[rows["model"] != model, "least_spread"].to_numpy())
        held = float((part["least_spread"] <= spread).mean())
        found[str(model)] = {"rows": len(part), "spread": spread, "coverage": held}
    return pd.DataFrame(found).T.rename_axis("model").reset_index().astype({"rows": int})


def _least(rows: list[Served]) -> FloatArray:
    """Return the least spread that covers each row of one deployment [-]."""
    deployment, _ = resolve(rows[0].deployment)
    values: dict[str, Any] = {
        name: np.array([float(row.points[name]) for row in rows]) for name in rows[0].points
    }
    load = (values.get(name) for name in ("prompt_length", "output_length"))
    points, _ = plain_points(values["batch_size"], values["context_length"], *load)
    points |= {"draft_length": np.zeros(()), "verify_tokens": np.ones(())}
    measured = np.array([row.measured for row in rows])
    room = np.array(
        [
            _room(
                central_intervals(
                    deployment,
                    points,
                    Acceptance(acceptance_rate=0.0),
                    np.random.default_rng(INTERVAL_SEED),
                    _TPOT,
                    deployment_spread=spread,
                )["tpot"],
                measured,
            )
            for spread in SPREADS.tolist()
        ]
    )
    return np.array([_first_crossing(of_row) for of_row in room.T])


def _room(interval: Any, measured: FloatArray) -> FloatArray:
    """Return how far measured times are inside an interval, negative where outside [-]."""
    above, below = np.log(interval.high / measured), np.log(measured / interval.low)
    return np.asarray(np.minimum(above, below))


def _first_crossing(room: FloatArray) -> float:
    """Return the spread at which there is room from, between two of `SPREADS` by a line."""
    if room[0] >= 0:
        return 0.0
    if room[-1] < 0:
        return np.inf
    after = int(np.argmax(room >= 0))
    low, high = room[after - 1], room[after]
    return float(np.interp(0.0, [low, high], SPREADS[after - 1 : after + 1]))
