"""Unions of experts that were measured on published models, beside the law that predicts them."""

from pathlib import Path

import numpy as np
import pandas as pd

from specmodel.algebra.experts import (
    active_experts,
    correlated_active_experts,
    expert_use,
)
from specmodel.algebra.routing import zipf_popularity

_TABLE = Path(__file__).parent / "data/expert_unions.csv"
_CORRELATIONS = np.linspace(0.0, 1.0, 1001)


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
    """Return the routing correlation of each measured model beside a popularity of its experts.

    Parameters
    ----------
    popularity_exponent
        Experts are used as rank to minus this power; 0 for equally [-].

    Returns
    -------
    pandas.Series
        By model, to three digits: the one with the least squared logarithmic error of the law on
        its rows; 0 where popularity alone gives smaller unions than were measured [-].

    Examples
    --------
    >>> fitted_correlations().to_dict()
    {'Cohere MoE': 0.291, 'Laguna S': 0.157, 'Qwen3.6-35B-A3B': 0.18}
    >>> fitted_correlations(0.5).to_dict()
    {'Cohere MoE': 0.263, 'Laguna S': 0.133, 'Qwen3.6-35B-A3B': 0.16}
    """
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
