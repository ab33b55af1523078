"""Fit what engines add to the time to the first token: one constant an engine, and nothing else.

Usage: python calibration/first_token.py FILE [--dry-run]. FILE is a table of measured engines, as
`specmodel fit check --serving` takes it, with measured_ttft_ms. Prints the errors with constants
fitted to other models, and writes the table that ships, unless --dry-run is given.
"""

import sys
from datetime import date

import numpy as np
import pandas as pd

from specmodel.calibrate.fit.measured import judge_first_tokens, read_serving
from specmodel.calibrate.fit.measured.aliases import stack_of
from specmodel.calibrate.fit.measured.judge import LEAST_PROMPT, MOST_REQUESTS
from specmodel.core.base.files import write_text
from specmodel.core.base.units import FloatArray
from specmodel.core.machines.engine import FIRST_TOKENS

HEAD = f"""\
# What an engine adds to the time to the first token beside its passes [s]: the constant of least
# mean absolute log error over published runs of at most {MOST_REQUESTS} requests at once with
# prompts of at least {LEAST_PROMPT} tokens, {{day}}.
"""
SOURCE = "silicon_sample.csv of aiconfigurator-core 0.12.0, measured TTFT"


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
    error = (left_out / judged["measured"] - 1).abs().dropna()
    errors = f"{error.mean():.1%}, median {error.median():.1%}"
    print(f"{len(judged)} rows; with constants fitted to other models {errors}")
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
