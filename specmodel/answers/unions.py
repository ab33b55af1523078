"""Unions of experts that were measured on published models, beside the law that predicts them."""

from pathlib import Path

import numpy as np
import pandas as pd

from specmodel.algebra.experts import active_experts, correlated_active_experts

TABLE = Path(__file__).parent / "data/expert_unions.csv"


def measured_unions() -> pd.DataFrame:
    """Return experts loaded per layer by model and tokens: measured, by law, independent [-]."""
    published = pd.read_csv(TABLE, comment="#")
    shape = ["num_experts", "experts_per_token", "routing_correlation"]
    tokens = pd.DataFrame({"tokens": np.arange(1, published["tokens"].max() + 1)})
    models = published[["model", *shape]].drop_duplicates().merge(tokens, how="cross")
    measured = published.rename(columns={"active_experts": "measured"})
    table = models.merge(measured[["model", "tokens", "measured"]], how="left")
    t, E, k, correlation = (table[name].to_numpy() for name in ("tokens", *shape))
    law = correlated_active_experts(1, t, E, k, correlation)
    return table.assign(law=law, independent=active_experts(t, E, k))
