"""Gains of MTP beside those of InferenceX's pages: how they change with concurrency.

Usage: python calibration/inferencex.py FILE

FILE has a row a page and concurrency: page, target, hardware (8xh200), engine, draft_length, isl,
osl, concurrency, tpot_off_ms, tpot_mtp_ms and is_extrapolated, which tells where the plain curve is
continued; where known, those of OPTIONS. Prompts are random, and nobody published how many of their
drafts are accepted: gains are told with what is published of the target, with tokens a step fitted
to each page, and with one share of the published tokens beyond the first, fitted to all other
pages. The error of shape is that of the gain once tokens a step meet the page's first row.
"""

import argparse
from typing import Any, cast

import numpy as np
import pandas as pd
from scipy.optimize import minimize_scalar

from specmodel import predict
from specmodel.base.units import FloatArray

OPTIONS = ("weight_dtype", "kv_dtype", "tensor_parallel", "data_parallel", "expert_parallel")
"""Columns that are taken where they are known; tensor_parallel is all GPUs else."""
SHARE = 0.9
"""Mean length of prompts and outputs, which are drawn from 0.8 to 1 of what is named [-]."""


def at_concurrency(row: Any, **prompts: int) -> tuple[FloatArray, FloatArray]:
    """Return the time of a token without and with drafts [s], and the tokens of a step."""
    below = int(row.concurrency)
    given = {name: getattr(row, name) for name in OPTIONS if pd.notna(getattr(row, name, None))}
    found = predict(
        row.target,
        row.hardware,
        drafter="mtp",
        engine=row.engine,
        draft_length=[[0], [int(row.draft_length)]],
        batch_size=[below, below + 1],
        context_length=round(SHARE * (row.isl + row.osl / 2)),
        **{"tensor_parallel": int(row.hardware.partition("x")[0])} | given | prompts,
    )
    part = row.concurrency - below
    return found.tpot @ [1 - part, part], found.tokens_per_step[:, 0]


def predicted(row: Any) -> dict[str, float]:
    """Return times of a plain token, a step with drafts, and prompts in its tokens [s]; tokens."""
    lengths = {"prompt_length": round(SHARE * row.isl), "output_length": round(SHARE * row.osl)}
    alone, tokens = at_concurrency(row)
    loaded, _ = at_concurrency(row, **lengths)
    step, carried = alone[1] * tokens[1], loaded[1] - alone[1]
    return {"plain": loaded[0], "step": step, "carried": carried, "published": tokens[1]}


def errors(rows: pd.DataFrame, tokens: Any) -> FloatArray:
    """Return predicted over measured gain less one, with so many tokens a step [-]."""
    gain = rows["plain"] / (rows["step"] / tokens + rows["carried"])
    return np.asarray(gain / rows["gain"] - 1)


def share_of(rows: pd.DataFrame, most: str, share: float) -> Any:
    """Return the tokens of a step if a share of those beyond the first is accepted [token]."""
    return 1 + share * (rows[most] - 1)


def fitted(rows: pd.DataFrame, most: str) -> float:
    """Return the share that meets the gains of rows best, by squares of logarithms [-]."""
    found = minimize_scalar(
        lambda x: float((np.log1p(errors(rows, share_of(rows, most, x))) ** 2).sum()), bounds=(0, 1)
    )
    return float(found.x)


def judged(table: pd.DataFrame) -> pd.DataFrame:
    """Return rows with predictions, tokens a step of each page, and errors of gains."""
    times = pd.DataFrame([predicted(row) for row in cast(Any, table.itertuples())])
    table = table.reset_index(drop=True).join(times)
    table["gain"] = table["tpot_off_ms"] / table["tpot_mtp_ms"]
    table["verified"] = table["draft_length"] + 1
    table["plain_error"] = 1e3 * table["plain"] / table["tpot_off_ms"] - 1
    table["as_published"] = errors(table, table["published"])
    pages = []
    for page, rows in table.groupby("page", sort=False):
        own = share_of(rows, "verified", fitted(rows, "verified"))
        first = share_of(rows, "verified", fitted(rows.nsmallest(1, "concurrency"), "verified"))
        others = share_of(rows, "published", fitted(table[table["page"] != page], "published"))
        kinds = {"by_page": own, "left_out": others, "shape": first}
        told = {kind: errors(rows, tokens) for kind, tokens in kinds.items()}
        pages.append(rows.assign(tokens=own, **told))
    return pd.concat(pages)


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("file")
    table = judged(pd.read_csv(parser.parse_args().file, comment="#"))
    kinds = ["as_published", "by_page", "left_out", "shape"]
    told = table[["page", "concurrency", "gain", "published", "tokens", "plain_error", *kinds]]
    print(told.to_string(index=False, float_format="{:.3f}".format))
    for name, rows in (("all", table), ("measured", table[~table["is_extrapolated"]])):
        for kind in ("plain_error", *kinds):
            mean, bias = rows[kind].abs().mean(), rows[kind].mean()
            print(f"{name}, {kind}: {mean:.1%} in the mean of {len(rows)}, {bias:+.1%}")


if __name__ == "__main__":
    main()
