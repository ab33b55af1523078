"""Drains beside published ones: offline batches of equal outputs, and rollouts.

Usage: python calibration/drains.py batches --table FILE
       python calibration/drains.py rollouts [--table FILE]

The first takes a row a batch and draft length: target, gpu, tp, drafter, draft_length, batch,
context, tokens_per_step, base_tok_s, spec_tok_s and variant, which is empty where CUDA graphs hold
the steps; outputs have OUTPUT tokens, prompts what the mean context leaves. The second takes
tables/rollouts.csv. Prints what is predicted by formula beside what was measured; nothing is
fitted to these rows, of which acceptance and lengths are taken.
"""

import argparse
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from specmodel.serving.asked import load
from specmodel.serving.requests import Requests

OUTPUT, FOUND = 2048, 0.5
"""Tokens of each output of an offline batch [token], and how much of its prompts is in the prefix
cache: of the two runs of a batch whose mean was published, one begins with prompts of smaller
batches, asked before [-]."""
ENGINE = "vllm-0.24"
"""What ran them."""
TABLE = Path(__file__).parent / "tables" / "rollouts.csv"


def makespans(row: Any, **drain: Any) -> tuple[float, float]:
    """Return how long a drain takes without drafts and with a row's draft length [s]."""
    found = load(
        row.target,
        row.gpu,
        tensor_parallel=int(row.tp),
        drafter=row.drafter,
        engine=ENGINE,
        weight_dtype=getattr(row, "weight_dtype", "bf16"),
        tokens_per_step=float(row.tokens_per_step),
        measured_draft_length=int(row.draft_length),
        policy=f"none,fixed:{int(row.draft_length)}",
        by_formula=True,
        **drain,
    )
    plain, drafted = (each["makespan"] for each in found.rows)
    return plain, drafted


def batches(table: pd.DataFrame) -> pd.DataFrame:
    """Return tokens a second as predicted beside those measured, a row each."""
    found, rows = [], cast(Any, table.itertuples())
    for row in rows:
        prompt = max(int(row.context - OUTPUT // 2), 1)
        lengths = {"prompt_length": prompt, "output_length": OUTPUT, "prefix_hit_rate": FOUND}
        plain, drafted = makespans(row, drain=int(row.batch), **lengths)
        made = row.batch * OUTPUT
        found.append(
            {"plain": made / plain, "drafted": made / drafted}
            | {"plain_error": made / plain / row.base_tok_s - 1}
            | {"drafted_error": made / drafted / row.spec_tok_s - 1}
            | {"gain_error": plain / drafted / (row.spec_tok_s / row.base_tok_s) - 1}
        )
    return pd.concat([table.reset_index(drop=True), pd.DataFrame(found)], axis=1)


def told(judged: pd.DataFrame, by: list[str]) -> str:
    """Return mean errors by columns, in lines."""
    errors = ["plain_error", "drafted_error", "gain_error"]
    sizes = {f"{name}_mean": (name, lambda e: e.abs().mean()) for name in errors}
    biases = {f"{name}_bias": (name, "mean") for name in errors}
    grouped = judged.groupby(by, dropna=False).agg(rows=("batch", "size"), **sizes, **biases)
    return grouped.to_string(float_format="{:.1%}".format)


def told_lengths(row: Any) -> Requests:
    """Return answers with the median, 90 %, longest and, by the shortest, mean length told."""
    rest = 0.4 * (row.median + row.p90) / 2 + 0.1 * (row.p90 + row.longest) / 2
    least = max(4 * (row.output - rest) - row.median, 1.0)
    count = int(row.prompts * row.samples)
    at = (np.random.default_rng(0).permutation(count) + 0.5) / count
    made = np.interp(at, [0, 0.5, 0.9, 1], [least, row.median, row.p90, row.longest])
    return Requests(
        arrival_time=np.arange(count, dtype=float),
        prompt_tokens=np.full(count, row.prompt, dtype=np.int64),
        output_tokens=np.rint(made).astype(np.int64),
    )


def rollouts(table: pd.DataFrame) -> pd.DataFrame:
    """Return by setting what its steps take, and gain, as predicted and as measured."""
    found, rows = [], cast(Any, table.itertuples())
    for row in rows:
        own = {"drain": int(row.prompts), "samples": int(row.samples)}
        found.append(makespans(row, workload=told_lengths(row), **own))
    taken = pd.DataFrame(found, columns=["plain", "drafted"], index=table.index)
    summed = ["seconds", "seconds_drafted", "plain", "drafted"]
    sums = table.join(taken).groupby("setting", sort=False)[summed].sum()
    gain = sums["seconds"] / sums["seconds_drafted"]
    predicted = sums["plain"] / sums["drafted"]
    errors = {"plain_error": sums["plain"] / sums["seconds"] - 1, "error": predicted / gain - 1}
    return sums.assign(gain=gain, predicted=predicted, **errors)


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("what", choices=["batches", "rollouts"])
    parser.add_argument("--table", type=Path, default=TABLE)
    given = parser.parse_args()
    table = pd.read_csv(given.table, comment="#")
    if given.what == "rollouts":
        print(rollouts(table).to_string(float_format="{:.3g}".format))
        return
    judged = batches(table)
    held = judged[judged["variant"].isna()]
    print(told(held, ["target", "tp", "dataset", "draft_length"]))
    print(told(held, ["batch"]))
    for name, rows in (("in graphs", held), ("others", judged[judged["variant"].notna()])):
        for error in ("plain_error", "drafted_error", "gain_error"):
            mean = rows[error].abs().mean()
            print(
                f"{name}: {error} {mean:.1%} in the mean of {len(rows)}, {rows[error].mean():+.1%}"
            )


if __name__ == "__main__":
    main()
