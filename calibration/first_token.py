"""Fit what engines add to the time to the first token: one constant an engine, and nothing else.

Usage: python calibration/first_token.py FILE. FILE is a table of measured engines, as `specmodel
fit check --serving` takes it, with measured_ttft_ms; writes the table that ships.
"""

import sys
from datetime import date

import pandas as pd

from specmodel.base.files import write_text
from specmodel.fit.measured import judge_first_tokens, read_serving
from specmodel.fit.measured.aliases import stack_of
from specmodel.fit.measured.judge import LEAST_PROMPT, MOST_REQUESTS, fit_constant
from specmodel.machines.engine import FIRST_TOKENS

HEAD = f"""\
# What an engine adds to the time to the first token beside its passes [s]: the constant of least
# mean absolute log error over published runs of at most {MOST_REQUESTS} requests at once with
# prompts of at least {LEAST_PROMPT} tokens, {{day}}.
"""
SOURCE = "silicon_sample.csv of aiconfigurator-core 0.12.0, measured TTFT"


def main(path: str) -> None:
    judged, _ = judge_first_tokens(read_serving(path))
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
    write_text(FIRST_TOKENS, HEAD.format(day=date.today().isoformat()) + table.to_csv(index=False))
    print(table.to_string())


if __name__ == "__main__":
    main(sys.argv[1])
