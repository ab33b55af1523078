"""Compare simulated drains with published ones: offline batches of equal outputs, and rollouts.

Usage: python calibration/drains.py batches --table FILE
       python calibration/drains.py rollouts [--table FILE]

The table of batches has a row for each batch and draft length: target, gpu, tp, drafter,
draft_length, batch, context, tokens_per_step, base_tok_s, spec_tok_s and variant, which is empty if
CUDA graphs contain the steps. Outputs have OUTPUT tokens; the mean context determines the length of
prompts. Rollouts are read from tables/rollouts.csv. The script prints simulated and measured
values. Acceptance and lengths are those of the rows; nothing else is fitted to them.
"""

import argparse
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from specmodel.simulate.load_question import load
from specmodel.simulate.requests import Requests

OUTPUT, FOUND, RUNS = 2048, 0.5, 2
"""Tokens of each output of an offline batch [token], how much of its prompts is in the prefix
cache, and runs of a batch whose mean was published: the first asks what both runs of the next
smaller batch asked, the second as many new prompts [-]."""
BY_REQUEST = 0.24
"""Standard deviation of the logit of acceptance between requests [-]. It is that of 300 requests of
GSM8K with EAGLE (tables/acceptance.csv), whose tokens per step with three drafts have a spread of
0.208 around 2.379. Without the noise of drafts in outputs of 256 to 512 tokens, this is 0.21 to
0.24."""
SERIES = ["target", "tp", "dataset", "draft_length"]
FEW = 8
"""If a batch adds more requests than this to the next smaller one, their own mean is not used
[-]."""
ENGINE = "vllm-0.24"
"""What ran them."""
TABLE = Path(__file__).parent / "tables" / "rollouts.csv"


def makespans(row: Any, **drain: Any) -> tuple[float, float]:
    """Return the time of a drain without drafts, and with the draft length of a row [s]."""
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
        **drain,
    )
    plain, drafted = (each["makespan"] for each in found.rows)
    return plain, drafted


def batches(table: pd.DataFrame) -> pd.DataFrame:
    """Return predicted and measured tokens per second for each row."""
    found, rows = [], cast(Any, table.itertuples())
    for row in rows:
        prompt = max(int(row.context - OUTPUT // 2), 1)
        own = {"prompt_length": prompt, "output_length": OUTPUT, "prefix_hit_rate": FOUND}
        own["acceptance_by_request"] = BY_REQUEST
        plain, drafted = makespans(row, drain=int(row.batch), **own)
        made = row.batch * OUTPUT
        found.append(
            {"plain": made / plain, "drafted": made / drafted}
            | {"plain_error": made / plain / row.base_tok_s - 1}
            | {"drafted_error": made / drafted / row.spec_tok_s - 1}
            | {"gain_error": plain / drafted / (row.spec_tok_s / row.base_tok_s) - 1}
        )
    return pd.concat([table.reset_index(drop=True), pd.DataFrame(found)], axis=1)


def differing(table: pd.DataFrame) -> dict[int, float]:
    """Return, by draft length, the spread of steps between requests from acceptance alone [-].

    The prompts that a batch adds to the next smaller batch have their own mean. The spread includes
    the noise of drafts in 2,048 tokens.
    """
    found = dict[int, list[float]]()
    for _, rows in table.sort_values("batch").groupby(SERIES):
        length = int(rows["draft_length"].iloc[0])
        steps = 1 / rows["tokens_per_step"].to_numpy()
        added = np.diff(rows["batch"], prepend=0)
        own = np.diff(rows["batch"] * steps, prepend=0) / added / steps[-3:].mean()
        squares = RUNS * added * (own - 1) ** 2
        found.setdefault(length, []).extend(squares[added <= FEW])
    return {length: float(np.mean(each)) ** 0.5 for length, each in sorted(found.items())}


def told(judged: pd.DataFrame, by: list[str]) -> str:
    """Return mean errors by columns, in lines."""
    errors = ["plain_error", "drafted_error", "gain_error"]
    sizes = {f"{name}_mean": (name, lambda e: e.abs().mean()) for name in errors}
    biases = {f"{name}_bias": (name, "mean") for name in errors}
    grouped = judged.groupby(by, dropna=False).agg(rows=("batch", "size"), **sizes, **biases)
    return grouped.to_string(float_format="{:.1%}".format)


def told_lengths(row: Any) -> Requests:
    """Return lengths of answers with the given median, 90 % point, longest and mean length."""
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
    """Return the predicted and measured step times and gains of each setting."""
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
    for length, spread in differing(table).items():
        print(f"{length} drafted: requests differ by {spread:.1%} in steps")
    for columns in (SERIES, ["batch"], ["draft_length"]):
        print(told(held, columns))
    for name, rows in (("in graphs", held), ("others", judged[judged["variant"].notna()])):
        for error in ("plain_error", "drafted_error", "gain_error"):
            mean = rows[error].abs().mean()
            print(
                f"{name}: {error} {mean:.1%} in the mean of {len(rows)}, {rows[error].mean():+.1%}"
            )


if __name__ == "__main__":
    main()
