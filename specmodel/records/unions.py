"""Unions of experts that were measured on published models, beside the law that predicts them."""

import csv
from pathlib import Path

import numpy as np
import pandas as pd

from specmodel.algebra.experts import active_experts, correlated_active_experts

_TABLE = Path(__file__).parent / "data/expert_unions.csv"


def measured_unions() -> pd.DataFrame:
    """Return what consecutive tokens of one sequence activate: measured, by the law, independent.

    Returns
    -------
    pandas.DataFrame
        A row for each model and number of tokens, from one to the most that were measured on any
        model: model, num_experts, experts_per_token, routing_correlation, tokens [token],
        measured, NaN where it was not, law and independent, distinct experts per layer [-].

    Examples
    --------
    >>> table = measured_unions().set_index(["model", "tokens"])
    >>> table.loc[("Cohere MoE", 4), ["measured", "law", "independent"]].round(1).tolist()
    [20.4, 20.4, 29.1]
    """
    lines = _TABLE.read_text(encoding="utf-8").splitlines()
    rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    tokens = np.arange(1, max(int(row["tokens"]) for row in rows) + 1)
    parts = []
    for model in dict.fromkeys(row["model"] for row in rows):
        own = [row for row in rows if row["model"] == model]
        E, k = int(own[0]["num_experts"]), int(own[0]["experts_per_token"])
        correlation = float(own[0]["routing_correlation"])
        found = {int(row["tokens"]): float(row["active_experts"]) for row in own}
        parts.append(
            pd.DataFrame(
                {
                    "model": model,
                    "num_experts": E,
                    "experts_per_token": k,
                    "routing_correlation": correlation,
                    "tokens": tokens,
                    "measured": [found.get(int(t), np.nan) for t in tokens],
                    "law": correlated_active_experts(1, tokens, E, k, correlation),
                    "independent": active_experts(tokens, E, k),
                }
            )
        )
    return pd.concat(parts, ignore_index=True)
