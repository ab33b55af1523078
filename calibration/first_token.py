"""Judge times to the first token, and fit the constant that each engine adds to them.

Usage: python calibration/first_token.py FILE [--dry-run]. FILE is a table of measured engines with
the column measured_ttft_ms, in the form that `specmodel fit check --serving` reads. The script
prints the errors with shipped constants and with constants fitted to other models. Without
--dry-run, it also writes the shipped table of constants.
"""

import sys
from datetime import date
from typing import Any

import numpy as np
import pandas as pd

from specmodel.calibrate.fit.measured import ServingTable, read_serving
from specmodel.calibrate.fit.measured.aliases import stack_of
from specmodel.calibrate.fit.measured.judge import Alike, told_of
from specmodel.calibrate.fit.measured.records import check_milliseconds
from specmodel.calibrate.fit.measured.tables import Served
from specmodel.core.base.errors import InputError
from specmodel.core.base.files import write_text
from specmodel.core.base.units import FloatArray
from specmodel.core.cost.prefill import prefill_pass
from specmodel.core.machines.engine import FIRST_TOKENS, first_token_constants
from specmodel.core.prediction.decoding import decode_deployed

MOST_REQUESTS = 4  # with more requests at once, queues take longer than the prefill [request]
LEAST_PROMPT = 4000  # for shorter prompts, the constant is larger than the prefill [token]
LEAST_MILLISECONDS = 5.0  # smaller values must be seconds: no engine prefills such prompts faster

HEAD = f"""\
# What an engine adds to the time to the first token beside its passes [s]: the constant of least
# mean absolute log error over published runs of at most {MOST_REQUESTS} requests at once with
# prompts of at least {LEAST_PROMPT} tokens, {{day}}.
"""
SOURCE = "silicon_sample.csv of aiconfigurator-core 0.12.0, measured TTFT"


def judge_first_tokens(table: ServingTable) -> tuple[pd.DataFrame, dict[str, str]]:
    """Return the rows with few requests and long prompts, and the reason to skip each other row.

    A returned row has its labels, the stack of its kernels, degrees of parallelism and lengths. It
    also has ``measured``, ``base_time`` (prefill and waiting), ``predicted`` (with the constant of
    the engine) [s], and ``error``, which is predicted over measured minus one [-].
    """
    refused = {row.row: why for row in table.rows if (why := why_skipped(row))}
    usable = [row for row in table.rows if row.row not in refused]
    if not usable:
        why = next(iter(refused.values()), "there are no rows")
        expected = f"at least one row with measured_ttft_ms; the first was skipped: {why}"
        raise InputError("serving", "no usable row", expected)
    times = [1e3 * (row.first_token or 0.0) for row in usable]
    check_milliseconds(times, "serving.measured_ttft_ms", LEAST_MILLISECONDS)
    found, impossible = told_of(usable, timed)
    refused |= impossible
    judged = pd.DataFrame(found)
    if judged.empty:
        raise InputError("serving", "no usable row", "a row whose model fits its layout")
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

    The step time includes prefills of other requests that steps carry. The constant is the time
    that the engine adds to every first token, for HTTP, tokenization and scheduling.

    A request arrives when another request ends. The next step of the other requests has then begun.
    The new request waits for this step, and its prompt is prefilled at once. Each other request is
    in prefill for a share ``prefill_time / (prefill_time + output_length * step_time)`` of its
    time. If the new request meets a prefill, it waits for half of that prefill on average. Prompts
    that arrive together at the start of a benchmark wait longer; this model ignores them.
    """
    others = np.maximum(batch_size - 1, 0.0)
    busy = prefill_time / (prefill_time + output_length * step_time)
    waiting = np.minimum(others, 1.0) * step_time + others * busy * prefill_time / 2
    return np.asarray(prefill_time + waiting + constant_time)


def why_skipped(row: Served) -> str:
    """Return the reason to skip a row; an empty text if the row is judged."""
    if row.first_token is None:
        return "it has no measured_ttft_ms"
    if row.points["batch_size"] > MOST_REQUESTS:
        return f"with more than {MOST_REQUESTS} requests, first tokens wait in queues"
    if row.points["prompt_length"] < LEAST_PROMPT:
        return f"its prompts have fewer than {LEAST_PROMPT} tokens"
    return ""


def timed(some: Alike) -> dict[str, Any]:
    """Return the measured TTFT, the predicted prefill time, and the TTFT without a constant [s]."""
    rows, deployment, assumed, points = some
    prefill = prefill_pass(deployment, points["prompt_length"]).total_time
    step = decode_deployed(deployment, assumed, **points).tpot
    return {
        "quantity": "ttft",
        "measured": [row.first_token for row in rows],
        "prefill_time": prefill,
        "base_time": first_token_time(prefill, step, points["batch_size"], points["output_length"]),
    }


def fit_constant(base_time: FloatArray, measured: FloatArray) -> float:
    """Return the constant to add to `base_time` for the smallest mean absolute log error [s]."""
    found = np.unique(np.maximum(measured - base_time, 0.0))
    missed = np.log(np.add.outer(found, base_time) / measured)
    return float(found[np.abs(missed).mean(axis=1).argmin()])


def constants_of_other_models(judged: pd.DataFrame) -> pd.Series:
    """Return a constant for each row that is fitted without the model of the row [s].

    It is fitted to other models on the same engine, or on other engines if there are none.
    """
    constants = pd.Series(np.nan, judged.index)
    for (model, engine), rows in judged.groupby(["model", "engine"]):
        others = judged[judged["model"] != model]
        same_engine = others[others["engine"] == engine]
        fitted = same_engine if len(same_engine) else others
        if len(fitted):
            times = (fitted[name].to_numpy() for name in ("base_time", "measured"))
            constants[rows.index] = fit_constant(*times)
    return constants


def main(path: str, *options: str) -> None:
    judged, _ = judge_first_tokens(read_serving(path))
    left_out = judged["base_time"] + constants_of_other_models(judged)
    of_others = left_out / judged["measured"] - 1
    errors = {"shipped constants": judged["error"], "constants fitted to other models": of_others}
    print(f"{len(judged)} rows")
    for constants, error in errors.items():
        size = error.abs().dropna()
        print(f"{constants}: mean error {size.mean():.1%}, median error {size.median():.1%}")
    rows = [
        {
            "stack": stack,
            "constant_time": round(fit_constant(*part[["base_time", "measured"]].to_numpy().T), 4),
            "rows": len(part),
            "models": " ".join(sorted(part["model"].unique())),
            "source": SOURCE,
        }
        for stack, part in judged.groupby(judged["engine"].map(stack_of))
    ]
    table = pd.DataFrame(rows)
    if not options:
        day = date.today().isoformat()
        write_text(FIRST_TOKENS, HEAD.format(day=day) + table.to_csv(index=False))
    print(table.to_string())


if __name__ == "__main__":
    main(*sys.argv[1:])
