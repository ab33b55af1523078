"""Judge by measured engines how unevenly experts are used, and what is left to correlation.

Usage: python calibration/popularity.py FILE. FILE is a table of measured engines, as `specmodel
fit check --serving` takes it. For each exponent the routing correlation is that which published
unions of experts leave beside it. The exponent is chosen by the least mean |ln(predicted /
measured)| of decode times over rows of MoEs, and kept if leaving each MoE out chooses it too.
Where a deployment of the table also ran with MTP, how its speedup falls with the batch size is a
second opinion that nothing is fitted to.
"""

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from specmodel.algebra.acceptance import Acceptance
from specmodel.algebra.experts import expert_use
from specmodel.algebra.routing import zipf_popularity
from specmodel.answers.unions import TABLE
from specmodel.cost.deploying import resolve
from specmodel.fit.measured import ServingTable, judge_serving, read_serving
from specmodel.fit.measured.tables import Served
from specmodel.models.architecture import load_architecture
from specmodel.prediction.predicting import predict_deployed

EXPONENTS = [round(0.1 * i, 1) for i in range(9)]
DRAFT_LENGTH = 3
"""MTP of the rows: what InferenceMAX runs where attention is not data-parallel [token]."""
SAME = (
    *("model", "dtype", "system", "backend", "backend_version", "gpus", "isl", "osl"),
    *("expert_parallel", "attention_data_parallel"),
)
TIME = "measured_tpot_ms"
LEAST_SERIES = 3
"""Batch sizes with and without MTP [-]."""
CORRELATIONS = np.linspace(0.0, 1.0, 1001)


def main(path: str) -> None:
    table = read_serving(path)
    rows = tuple(row for row in table.rows if load_architecture(row.deployment["target"]).is_moe)
    table = replace(table, rows=rows)
    judged, lines = {}, []
    for exponent in EXPONENTS:
        routing = routing_of(exponent)
        judged[exponent] = judged_with(table, routing)
        ratios = judged[exponent].groupby("model")["ratio"]
        pooled = judged[exponent]["ratio"]
        effect = judged[exponent]["predicted"] / judged[EXPONENTS[0]]["predicted"] - 1
        lines.append(
            {
                "exponent": exponent,
                "correlation": routing["routing_correlation"],
                "all": pooled.abs().mean(),
                "bias": pooled.mean(),
                **{model: part.abs().mean() for model, part in ratios},
                "TPOT": effect.mean(),
                "least": effect.min(),
                "most": effect.max(),
            }
        )
    errors = pd.DataFrame(lines).set_index("exponent")
    print(f"{len(rows)} rows of MoEs: mean |ln ratio|, its bias, by model, and the change of TPOT:")
    print(errors.round(4).to_string())
    print(f"least over all: exponent {errors['all'].idxmin()}")
    for model in dict.fromkeys(judged[0.0]["model"]):
        rest = {
            e: part.loc[part["model"] != model, "ratio"].abs().mean() for e, part in judged.items()
        }
        print(f"{model} left out: exponent {min(rest, key=rest.__getitem__)}")
    second_opinion(path, table)


def routing_of(exponent: float) -> dict[str, float]:
    """Return an exponent and the correlation that published unions leave beside it."""
    correlation = round(float(fitted_correlations(exponent).median()), 3)
    return {"popularity_exponent": exponent, "routing_correlation": correlation}


def fitted_correlations(popularity_exponent: float) -> pd.Series:
    """Return the routing correlation by model that has the least squared logarithmic error [-]."""
    # experts used as rank to minus the exponent, 0 for equally; three digits; 0 where popularity
    # alone gives smaller unions than were measured
    found = {}
    for model, rows in pd.read_csv(TABLE, comment="#").groupby("model"):
        E, k = (int(rows[name].iloc[0]) for name in ("num_experts", "experts_per_token"))
        popularity = zipf_popularity(E, k, popularity_exponent)
        log_error = [
            np.log(expert_use(tokens, popularity, CORRELATIONS[:, None]).sum(axis=-1) / measured)
            for tokens, measured in rows[["tokens", "active_experts"]].to_numpy()
        ]
        best = np.square(log_error).sum(axis=0).argmin()
        found[str(model)] = round(float(CORRELATIONS[best]), 3)
    return pd.Series(found, name="routing_correlation")


def judged_with(table: ServingTable, routing: dict[str, float]) -> pd.DataFrame:
    """Return rows as predicted with a routing, and the logarithm of predicted over measured."""
    rows = tuple(replace(row, deployment={**row.deployment, **routing}) for row in table.rows)
    judged, _ = judge_serving(replace(table, rows=rows))
    return judged.assign(ratio=np.log(judged["predicted"] / judged["measured"]))


def second_opinion(path: str, table: ServingTable) -> None:
    """Print how speedups of MTP fall with the batch, as measured and by exponent."""
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
        for exponent in EXPONENTS[::2]:
            told = speedups([known[row] for row in series["row"]], measured[0], exponent)
            miss = np.log(told / measured)[1:].mean()
            print(f"  exponent {exponent}: {told.round(2).tolist()}, mean ln ratio {miss:+.3f}")


def speedups(rows: list[Served], first: float, exponent: float) -> np.ndarray:
    """Return speedups of a series, with as many tokens a step as its first speedup asks for."""
    deployment, assumed = resolve({**rows[0].deployment, **routing_of(exponent), "drafter": "mtp"})
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
