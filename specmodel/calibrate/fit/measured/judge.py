"""Engines as predicted and as measured, row by row: times to the first token too, and errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from msgspec.structs import replace

from specmodel.calibrate.fit.measured.aliases import stack_of
from specmodel.calibrate.fit.measured.tables import Served, ServingTable, check_milliseconds
from specmodel.calibrate.fit.steps import measured_steps
from specmodel.core.algebra.acceptance import Acceptance
from specmodel.core.base.errors import InputError
from specmodel.core.base.units import FloatArray
from specmodel.core.cost.deploying import resolve
from specmodel.core.cost.deployment import Deployment
from specmodel.core.cost.prefill import prefill_pass
from specmodel.core.machines.engine import Overheads, first_token_constants
from specmodel.core.prediction.decoding import decode_deployed
from specmodel.core.prediction.intervals import MAX_POINTS
from specmodel.core.prediction.outcome import Prediction
from specmodel.core.prediction.predicting import predict_deployed

GROUPS = ("model", "engine", "hardware", "dtype", "batch_size", "host")
"""Columns by which errors are grouped, if a table has them."""

ALL = "all"  # group of all rows

SPEEDS = np.geomspace(0.1, 10.0, 401)  # factors tried on the host speed of the profile [-]


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


class Alike(NamedTuple):
    """Rows of one deployment, what was assumed of it, and their points as arrays."""

    rows: list[Served]
    deployment: Deployment
    assumed: Mapping[str, Any]
    points: dict[str, Any]


def told_of(
    rows: Sequence[Served], tell: Callable[[Alike], dict[str, Any]]
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return rows with labels, degrees, points and columns, and reasons why models refuse others.

    Columns are those that `tell` computes; one that is a text holds for all rows.
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
            if len(together) > 1 and error.argument in names:  # some may do
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
    """Group rows that differ in batch size and lengths alone, so that one call predicts a group."""
    together: dict[tuple[Any, ...], list[Served]] = {}
    for row in rows:
        where = sorted(map(_named, row.deployment.items()))
        drafts = [row.points.get(name) for name in ("draft_length", "verify_tokens")]
        key = (*where, *sorted(row.points), row.tokens_per_step, row.quantity, *drafts)
        together.setdefault(key, []).append(row)
    parts = []
    for some in together.values():
        parts += [some[i : i + MAX_POINTS] for i in range(0, len(some), MAX_POINTS)]
    return parts


def _named(item: tuple[str, Any]) -> tuple[str, Any]:
    """Return a name and a key of its value: a record is the same only as the same object."""
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
    rows = [{"group": ALL, "value": "", **_errors(judged)}]
    for name in (name for name in GROUPS if name in judged):
        for value, part in judged.groupby(name, sort=True):
            rows.append({"group": name, "value": str(value), **_errors(part)})
    return pd.DataFrame(rows)


def _errors(part: pd.DataFrame) -> dict[str, Any]:
    error = part["error"]
    errors: dict[str, Any] = {
        "rows": len(part),
        "mean_error": float(error.abs().mean()),
        "median_error": float(error.abs().median()),
        "bias": float(error.mean()),
    }
    if "low" in part:
        errors["coverage"] = float(part["measured"].between(part["low"], part["high"]).mean())
    return errors


MOST_REQUESTS = 4  # with more at once, queues count more than prefill [request]
LEAST_PROMPT = 4000  # below, the engine's constant counts more than prefill [token]
LEAST_MILLISECONDS = 5.0  # no engine answers such a prompt in less: such are seconds


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
    names = Overheads.__struct_fields__
    own = {name: np.array([getattr(engine, name) for engine in engines]) for name in names}
    overheads, steps = Overheads(**own), measured_steps(rows)
    tried = [replace(overheads, host_speed=overheads.host_speed * speed) for speed in SPEEDS]
    return np.array([steps.predicted(engine) / steps.measured - 1 for engine in tried])


def judge_first_tokens(table: ServingTable) -> tuple[pd.DataFrame, dict[str, str]]:
    """Return the rows of few requests with long prompts, and reasons by row why others are not.

    A row has its labels, stack (whose kernels were taken), degrees, lengths, measured, base_time
    (prefill and waiting), predicted with the engine's constant [s], and error, over measured less
    one [-].
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
    own = [constants.get(stack_of(engine), 0.0) for engine in judged["engine"]]
    predicted = judged["base_time"] + own
    return judged.assign(predicted=predicted, error=predicted / judged["measured"] - 1), refused


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


def _not_taken(row: Served) -> str:
    """Return the reason not to judge a row by its first token; "" if there is none."""
    if row.first_token is None:
        return "it has no measured_ttft_ms"
    if row.points["batch_size"] > MOST_REQUESTS:
        return f"its first tokens wait in queues, with more than {MOST_REQUESTS} requests"
    if row.points["prompt_length"] < LEAST_PROMPT:
        return f"its prompts have less than {LEAST_PROMPT} tokens"
    return ""


def _timed(some: Alike) -> dict[str, Any]:
    """Return measured TTFT, predicted prefill time, and TTFT without the engine's constant [s]."""
    rows, deployment, assumed, points = some
    prefill = prefill_pass(deployment, points["prompt_length"]).total_time
    step = decode_deployed(deployment, assumed, **points).tpot
    return {
        "quantity": "ttft",
        "measured": [row.first_token for row in rows],
        "prefill_time": prefill,
        "base_time": first_token_time(prefill, step, points["batch_size"], points["output_length"]),
    }
