"""Times to the first token judged, and what engines add to them fitted: one constant an engine.

Usage: python calibration/first_token.py FILE [--dry-run]. FILE is a table of measured engines, as
`specmodel fit check --serving` takes it, with measured_ttft_ms. Prints the errors with the
constants that ship and with those fitted to other models, and writes the table that ships, unless
--dry-run is given.
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

MOST_REQUESTS = 4  # with more at once, queues count more than prefill [request]
LEAST_PROMPT = 4000  # below, the engine's constant counts more than prefill [token]
LEAST_MILLISECONDS = 5.0  # no engine answers such a prompt in less: such are seconds

HEAD = f"""\
# What an engine adds to the time to the first token beside its passes [s]: the constant of least
# mean absolute log error over published runs of at most {MOST_REQUESTS} requests at once with
# prompts of at least {LEAST_PROMPT} tokens, {{day}}.
"""
SOURCE = "silicon_sample.csv of aiconfigurator-core 0.12.0, measured TTFT"


def judge_first_tokens(table: ServingTable) -> tuple[pd.DataFrame, dict[str, str]]:
    """Return the rows of few requests with long prompts, and reasons by row why others are not.

    A row has its labels, stack (whose kernels were taken), degrees, lengths, measured, base_time
    (prefill and waiting), predicted with the engine's constant [s], and error, over measured less
    one [-].
    """
    refused = {row.row: why for row in table.rows if (why := not_taken(row))}
    taken = [row for row in table.rows if row.row not in refused]
    if not taken:
        why = next(iter(refused.values()), "there is none")
        expected = f"at least one with measured_ttft_ms; of the first, {why}"
        raise InputError("serving", "no row that is taken", expected)
    times = [1e3 * (row.first_token or 0.0) for row in taken]
    check_milliseconds(times, "serving.measured_ttft_ms", LEAST_MILLISECONDS)
    found, impossible = told_of(taken, timed)
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


def not_taken(row: Served) -> str:
    """Return the reason not to judge a row by its first token; "" if there is none."""
    if row.first_token is None:
        return "it has no measured_ttft_ms"
    if row.points["batch_size"] > MOST_REQUESTS:
        return f"its first tokens wait in queues, with more than {MOST_REQUESTS} requests"
    if row.points["prompt_length"] < LEAST_PROMPT:
        return f"its prompts have less than {LEAST_PROMPT} tokens"
    return ""


def timed(some: Alike) -> dict[str, Any]:
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


def fit_constant(base_time: FloatArray, measured: FloatArray) -> float:
    """Return the constant that, added to `base_time`, minimises the mean absolute log error [s]."""
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


def main(path: str, *options: str) -> None:
    judged, _ = judge_first_tokens(read_serving(path))
    left_out = judged["base_time"] + constants_of_other_models(judged)
    of_others = left_out / judged["measured"] - 1
    missed = {"that ship": judged["error"], "fitted to other models": of_others}
    print(f"{len(judged)} rows")
    for constants, error in missed.items():
        size = error.abs().dropna()
        print(f"with constants {constants} {size.mean():.1%}, median {size.median():.1%}")
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
