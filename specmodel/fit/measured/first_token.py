"""Times to the first token as predicted and as measured, with one constant an engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from specmodel.base.errors import InputError
from specmodel.base.units import FloatArray
from specmodel.cost.deploying import resolve
from specmodel.cost.prefill import prefill_pass
from specmodel.fit.measured.cells import check_milliseconds
from specmodel.fit.measured.judge import alike
from specmodel.fit.measured.spellings import stack_of
from specmodel.fit.measured.tables import Served, ServingTable
from specmodel.machines.engine import first_token_constants
from specmodel.prediction.decoding import decode_deployed

MOST_REQUESTS = 4
"""Requests at once from which a first token is rather a matter of queues than of prefill [-]."""

LEAST_PROMPT = 4000
"""Mean length from which it is rather a matter of prefill than of the engine's constant [token]."""

LEAST_MILLISECONDS = 5.0
"""No engine answers such a prompt in less: such a column is in seconds [-]."""


def judge_first_tokens(table: ServingTable) -> tuple[pd.DataFrame, dict[str, str]]:
    """Return the rows of few requests with long prompts, with their times to the first token.

    Parameters
    ----------
    table
        As `read_serving` returns it.

    Returns
    -------
    tuple
        Rows with their labels, stack (whose kernels were taken), degrees, lengths, quantity,
        measured, prefill_time, base_time (prefill and waiting), predicted with the engine's
        constant and left_out, with one fitted to other models [s], error and left_out_error, over
        measured less one [-]; and reasons by row, where a row is none of these.

    Raises
    ------
    InputError
        If no row has a measured time, or times are in seconds.
    """
    taken, refused = [], dict[str, str]()
    for row in table.rows:
        why = _not_taken(row)
        refused |= {row.row: why} if why else {}
        taken += [] if why else [row]
    _check(taken, refused)
    found: list[dict[str, Any]] = []
    for rows in alike(taken):
        try:
            found += _timed(rows)
        except InputError as error:
            refused |= {row.row: f"{error.argument}: {error.expected}" for row in rows}
    judged = pd.DataFrame(found)
    if judged.empty:
        raise InputError("serving", "no row that is taken", "one whose model takes its layout")
    constants = first_token_constants()
    base, measured = judged["base_time"], judged["measured"]
    predicted = base + [constants.get(stack_of(engine), 0.0) for engine in judged["engine"]]
    left_out = base + constants_of_other_models(judged)
    return judged.assign(
        predicted=predicted,
        error=predicted / measured - 1,
        left_out=left_out,
        left_out_error=left_out / measured - 1,
    ), refused


def first_token_time(
    prefill_time: FloatArray,
    step_time: FloatArray,
    batch_size: FloatArray,
    output_length: FloatArray,
    constant_time: FloatArray | float = 0.0,
) -> FloatArray:
    """Return the mean time from a request to its first token, in steady state.

    Parameters
    ----------
    prefill_time
        Pass of one prompt [s].
    step_time
        Time of a token of the others, which share of prefill they carry included [s].
    batch_size
        Requests that are always in the engine: one comes where one ends [request].
    output_length
        Tokens that each makes [token].
    constant_time
        What the engine adds to every first token: HTTP, tokens of texts, scheduling [s].

    Returns
    -------
    FloatArray
        Broadcasts with the arguments [s].

    Notes
    -----
    A request comes as another ends, when the next step of the others has been started: it waits
    for that step, then its prompt is prefilled at once. Each of the others is in prefill for a
    share ``prefill_time / (prefill_time + output_length * step_time)`` of its time; where the
    request meets that, it waits for half of a prefill on average. Engines with few requests hardly
    queue more; prompts that all come at the start of a benchmark do, and are not counted.

    Examples
    --------
    >>> alone = first_token_time(np.array(0.2), np.array(0.01), np.array(1.0), np.array(980.0))
    >>> four = first_token_time(np.array(0.2), np.array(0.01), np.array(4.0), np.array(980.0))
    >>> float(alone), float(four.round(3))
    (0.2, 0.216)
    """
    others = np.maximum(batch_size - 1, 0.0)
    busy = prefill_time / (prefill_time + output_length * step_time)
    waiting = np.minimum(others, 1.0) * step_time + others * busy * prefill_time / 2
    return np.asarray(prefill_time + waiting + constant_time)


def fit_constant(base_time: FloatArray, measured: FloatArray) -> float:
    """Return the time that, added to all, makes the mean absolute log error least.

    Parameters
    ----------
    base_time, measured
        Of each row [s].

    Returns
    -------
    float
        At least 0 [s].

    Examples
    --------
    >>> fit_constant(np.array([0.1, 0.2, 0.5]), np.array([0.3, 0.4, 5.0])).__round__(9)
    0.2
    """
    found = np.unique(np.maximum(measured - base_time, 0.0))
    missed = np.log(np.add.outer(found, base_time) / measured)
    return float(found[np.abs(missed).mean(axis=1).argmin()])


def constants_of_other_models(judged: pd.DataFrame) -> pd.Series:
    """Return the constant of each row's engine as fitted to rows of other models.

    Parameters
    ----------
    judged
        Rows with model, engine, base_time and measured [s].

    Returns
    -------
    pandas.Series
        Seconds; fitted to other engines where an engine has no other model, and missing where the
        rows have none.
    """
    constants = pd.Series(np.nan, judged.index)
    for (model, engine), rows in judged.groupby(["model", "engine"]):
        others = judged[judged["model"] != model]
        own = others[others["engine"] == engine]
        told = own if len(own) else others
        if len(told):
            times = (told[name].to_numpy() for name in ("base_time", "measured"))
            constants[rows.index] = fit_constant(*times)
    return constants


def _not_taken(row: Served) -> str:
    """Say why a row is not judged by its first token, nothing if it is."""
    if row.first_token is None:
        return "it has no measured_ttft_ms"
    if row.points["batch_size"] > MOST_REQUESTS:
        return f"its first tokens wait in queues, with more than {MOST_REQUESTS} requests"
    if row.points["prompt_length"] < LEAST_PROMPT:
        return f"its prompts have less than {LEAST_PROMPT} tokens"
    return ""


def _check(rows: Sequence[Served], refused: dict[str, str]) -> None:
    if not rows:
        why = next(iter(refused.values()), "there is none")
        expected = f"at least one with measured_ttft_ms; of the first, {why}"
        raise InputError("serving", "no row that is taken", expected)
    times = [1e3 * (row.first_token or 0.0) for row in rows]
    check_milliseconds(times, "serving.measured_ttft_ms", LEAST_MILLISECONDS)


def _timed(rows: list[Served]) -> list[dict[str, Any]]:
    """Return rows of one deployment with the times of their passes."""
    deployment, assumed = resolve(rows[0].deployment)
    names = rows[0].points
    points: dict[str, Any] = {n: np.array([row.points[n] for row in rows], float) for n in names}
    prefill = prefill_pass(deployment, points["prompt_length"]).total_time
    step = decode_deployed(deployment, assumed, **points).tpot
    base = first_token_time(prefill, step, points["batch_size"], points["output_length"])
    return [
        {"row": row.row}
        | dict(row.labels)
        | {
            "stack": deployment.kernels.stack,
            "tensor_parallel": deployment.tensor_parallel,
            "expert_parallel": deployment.expert_parallel,
            **{name: int(values[i]) for name, values in points.items()},
            "quantity": "ttft",
            "measured": row.first_token,
            "prefill_time": float(prefill[i]),
            "base_time": float(base[i]),
        }
        for i, row in enumerate(rows)
    ]
