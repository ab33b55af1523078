"""Unions of experts that were measured on published models, beside the law that predicts them."""

from pathlib import Path

import numpy as np
import pandas as pd

from specmodel.algebra.experts import active_experts, correlated_active_experts, expert_use
from specmodel.algebra.routing import zipf_popularity

_TABLE = Path(__file__).parent / "data/expert_unions.csv"
_CORRELATIONS = np.linspace(0.0, 1.0, 1001)


def measured_unions() -> pd.DataFrame:
    """Return experts loaded per layer by model and tokens: measured, by law, independent [-]."""
    published = pd.read_csv(_TABLE, comment="#")
    shape = ["num_experts", "experts_per_token", "routing_correlation"]
    tokens = pd.DataFrame({"tokens": np.arange(1, published["tokens"].max() + 1)})
    models = published[["model", *shape]].drop_duplicates().merge(tokens, how="cross")
    measured = published.rename(columns={"active_experts": "measured"})
    table = models.merge(measured[["model", "tokens", "measured"]], how="left")
    t, E, k, correlation = (table[name].to_numpy() for name in ("tokens", *shape))
    law = correlated_active_experts(1, t, E, k, correlation)
    return table.assign(law=law, independent=active_experts(t, E, k))


def fitted_correlations(popularity_exponent: float = 0.0) -> pd.Series:
    """Return the routing correlation by model that has the least squared logarithmic error [-]."""
    # experts used as rank to minus the exponent, 0 for equally; three digits; 0 where popularity
    # alone gives smaller unions than were measured
    found = {}
    for model, rows in pd.read_csv(_TABLE, comment="#").groupby("model"):
        E, k = (int(rows[name].iloc[0]) for name in ("num_experts", "experts_per_token"))
        popularity = zipf_popularity(E, k, popularity_exponent)
        log_error = [
            np.log(expert_use(tokens, popularity, _CORRELATIONS[:, None]).sum(axis=-1) / measured)
            for tokens, measured in rows[["tokens", "active_experts"]].to_numpy()
        ]
        best = np.square(log_error).sum(axis=0).argmin()
        found[str(model)] = round(float(_CORRELATIONS[best]), 3)
    return pd.Series(found, name="routing_correlation")
