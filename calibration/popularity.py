"""Fit the spread of the popularity of experts to measured engines.

Usage: python calibration/popularity.py FILE. FILE is a table of measured engines in the form that
`specmodel fit check --serving` reads. For each spread (`RoutedExperts.popularity_spread`), the
script prints the mean |ln(predicted / measured)| of rows of MoEs, and the same relative to the
median of each model, which does not depend on the speed of the host. It also prints the best spread
with each model left out. If a deployment of the table also ran with MTP, the change of its speedup
with the batch size is a second criterion, which nothing is fitted to.
"""

import sys
from typing import Any

import numpy as np
import pandas as pd
from msgspec.structs import replace

from specmodel.calibrate.fit.measured import ServingTable, judge_serving, read_serving
from specmodel.calibrate.fit.measured.tables import Served
from specmodel.core.algebra.acceptance import Acceptance
from specmodel.core.cost.deploying import resolve
from specmodel.core.models.architecture import load_architecture
from specmodel.core.prediction.predicting import predict_deployed

SPREADS = [0.0, 0.4, 0.7, 1.0, 1.3, 1.6, 1.9]
DRAFT_LENGTH = 3
"""MTP of the rows: what InferenceMAX runs where attention is not data-parallel [token]."""
SAME = (
    *("model", "dtype", "system", "backend", "backend_version", "gpus", "isl", "osl"),
    *("expert_parallel", "attention_data_parallel"),
)
TIME = "measured_tpot_ms"
SPREAD = "target.popularity_spread"
LEAST_SERIES = 3
"""Batch sizes with and without MTP [-]."""


def main(path: str) -> None:
    table = read_serving(path)
    rows = tuple(row for row in table.rows if load_architecture(row.deployment["target"]).is_moe)
    table = replace(table, rows=rows)
    judged, lines = {}, []
    for spread in SPREADS:
        judged[spread] = judged_with(table, spread)
        pooled = judged[spread]["ratio"]
        ratios = pooled.groupby(judged[spread]["model"])
        lines.append(
            {
                "spread": spread,
                "all": pooled.abs().mean(),
                "bias": pooled.mean(),
                **{model: part.abs().mean() for model, part in ratios},
                **{f"{m}, centred": (part - part.median()).abs().mean() for m, part in ratios},
            }
        )
    errors = pd.DataFrame(lines).set_index("spread")
    print(f"{len(rows)} rows of MoEs: mean |ln ratio|, its bias, and by model:")
    print(errors.round(4).to_string())
    print(f"least over all: spread {errors['all'].idxmin()}")
    for model in dict.fromkeys(judged[0.0]["model"]):
        rest = {
            s: part.loc[part["model"] != model, "ratio"].abs().mean() for s, part in judged.items()
        }
        print(f"{model} left out: spread {min(rest, key=rest.__getitem__)}")
    second_opinion(path, table)


def judged_with(table: ServingTable, spread: float) -> pd.DataFrame:
    """Return rows as predicted with a spread, and the logarithm of predicted over measured."""
    changed = {SPREAD: spread}
    rows = tuple(replace(row, deployment={**row.deployment, **changed}) for row in table.rows)
    judged, _ = judge_serving(replace(table, rows=rows))
    return judged.assign(ratio=np.log(judged["predicted"] / judged["measured"]))


def second_opinion(path: str, table: ServingTable) -> None:
    """Print how speedups of MTP fall with the batch, as measured and by spread."""
    raw = pd.read_csv(path).astype({"row": str})
    known = {row.row: row for row in table.rows}
    is_plain, place = raw["row"].isin(known), [*SAME, "concurrency"]
    plain = raw[is_plain].groupby(place).agg(row=("row", "first"), plain=(TIME, "median"))
    mtp = raw[raw["mtp"] == "on"].groupby(place).agg(mtp=(TIME, "median"))
    pairs = plain.join(mtp, how="inner").reset_index()
    print(f"Speedups of MTP {DRAFT_LENGTH}, predicted ones scaled to the first of a series:")
    for name, series in pairs.groupby(list(SAME)):
        measured = (series["plain"] / series["mtp"]).to_numpy()
        if len(series) < LEAST_SERIES:
            continue
        batch_sizes = series["concurrency"].to_list()
        print(*name, "at", batch_sizes, "measured", measured.round(2).tolist())
        for spread in SPREADS[::2]:
            told = speedups([known[row] for row in series["row"]], measured[0], spread)
            miss = np.log(told / measured)[1:].mean()
            print(f"  spread {spread}: {told.round(2).tolist()}, mean ln ratio {miss:+.3f}")


def speedups(rows: list[Served], first: float, spread: float) -> np.ndarray:
    """Return speedups of a series, with as many tokens a step as its first speedup asks for."""
    deployment, assumed = resolve({**rows[0].deployment, SPREAD: spread, "drafter": "mtp"})
    points: dict[str, Any] = {
        name: np.array([float(row.points[name]) for row in rows]) for name in rows[0].points
    }

    def predicted(tokens: float) -> np.ndarray:
        acceptance = Acceptance(tokens_per_step=tokens, measured_draft_length=DRAFT_LENGTH)
        return predict_deployed(
            deployment,
            assumed,
            **points,
            draft_length=DRAFT_LENGTH,
            acceptance=acceptance,
            max_draft_length=1,
        ).speedup

    low, high = 1.0, DRAFT_LENGTH + 1.0
    for _ in range(20):
        tokens = (low + high) / 2
        low, high = (tokens, high) if predicted(tokens)[0] < first else (low, tokens)
    return predicted(low)


if __name__ == "__main__":
    main(sys.argv[1])
