"""Times to the first token as predicted and as measured, with one constant for each engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from specmodel.base.errors import InputError
from specmodel.base.units import FloatArray
from specmodel.cost.deployment import Deployment
from specmodel.cost.prefill import prefill_pass
from specmodel.fit.measured.aliases import stack_of
from specmodel.fit.measured.judge import told_of
from specmodel.fit.measured.parse_cells import check_milliseconds
from specmodel.fit.measured.tables import Served, ServingTable
from specmodel.machines.engine import first_token_constants
from specmodel.prediction.decoding import decode_deployed

MOST_REQUESTS = 4  # with more at once, queues count more than prefill [request]
LEAST_PROMPT = 4000  # below, the engine's constant counts more than prefill [token]
LEAST_MILLISECONDS = 5.0  # no engine answers such a prompt in less: such are seconds


def judge_first_tokens(table: ServingTable) -> tuple[pd.DataFrame, dict[str, str]]:
    """Return the rows of few requests with long prompts, and reasons by row why others are not.

    A row has its labels, stack (whose kernels were taken), degrees, lengths, measured, base_time
    (prefill and waiting), predicted with the engine's constant, left_out with a constant fitted to
    other models [s], and error and left_out_error, over measured less one [-].
    """
    refused = {row.row: why for row in table.rows if (why := _not_taken(row))}
    taken = [row for row in table.rows if row.row not in refused]
    if not taken:
        why = next(iter(refused.values()), "there is none")
        expected = f"at least one with measured_ttft_ms; of the first, {why}"
        raise InputError("serving", "no row that is taken", expected)
    times = [1e3 * (row.first_token or 0.0) for row in taken]
    check_milliseconds(times, "serving.measured_ttft_ms", LEAST_MILLISECONDS)
    found, impossible = told_of(taken, _timed)
    refused |= impossible
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
    """Return the mean time from a request to its first token, in steady state [s].

    The step time includes the prefill that steps carry for others; the constant is what the engine
    adds to every first token: HTTP, tokenization, scheduling. A request arrives as another one
    ends, when the next step of the others has begun. It waits for that step, and its prompt is
    prefilled at once. Each of the others is in prefill for a share ``prefill_time / (prefill_time +
    output_length * step_time)`` of its time; a request that meets a prefill waits for half of it on
    average. Prompts that arrive together at the start of a benchmark queue longer, which is not
    counted.
    """
    others = np.maximum(batch_size - 1, 0.0)
    busy = prefill_time / (prefill_time + output_length * step_time)
    waiting = np.minimum(others, 1.0) * step_time + others * busy * prefill_time / 2
    return np.asarray(prefill_time + waiting + constant_time)


def fit_constant(base_time: FloatArray, measured: FloatArray) -> float:
    """Return the constant to add to base times for the least mean absolute log error [s]."""
    found = np.unique(np.maximum(measured - base_time, 0.0))
    missed = np.log(np.add.outer(found, base_time) / measured)
    return float(found[np.abs(missed).mean(axis=1).argmin()])


def constants_of_other_models(judged: pd.DataFrame) -> pd.Series:
    """Return the constant of each row's engine as fitted to other models or engines [s]."""
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
    """Return why a row is not judged by its first token; empty if it is."""
    if row.first_token is None:
        return "it has no measured_ttft_ms"
    if row.points["batch_size"] > MOST_REQUESTS:
        return f"its first tokens wait in queues, with more than {MOST_REQUESTS} requests"
    if row.points["prompt_length"] < LEAST_PROMPT:
        return f"its prompts have less than {LEAST_PROMPT} tokens"
    return ""


def _timed(
    rows: list[Served],
    deployment: Deployment,
    assumed: Mapping[str, Any],
    points: dict[str, Any],
) -> dict[str, Any]:
    """Return times to first tokens as measured, of the prefill, and with waiting."""
    prefill = prefill_pass(deployment, points["prompt_length"]).total_time
    step = decode_deployed(deployment, assumed, **points).tpot
    return {
        "quantity": "ttft",
        "measured": [row.first_token for row in rows],
        "prefill_time": prefill,
        "base_time": first_token_time(prefill, step, points["batch_size"], points["output_length"]),
    }
