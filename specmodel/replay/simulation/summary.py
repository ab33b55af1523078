"""Records by request to figures of a workload: speedup, slowdown, TPOT, regret."""

import numpy as np
import pandas as pd

from specmodel.base.units import FloatArray

RESAMPLES = 1000
"""Bootstrap resamples [-]."""
GROUPS = 2000
"""Most groups of requests that are resampled as one [-]."""
INTERVAL = (0.025, 0.975)
PERCENTILES = (50, 95, 99)


def summarise(records: pd.DataFrame, generator: np.random.Generator) -> pd.DataFrame:
    """Return the figures of each policy over all requests.

    Parameters
    ----------
    records
        From `simulate`.
    generator
        Source of the bootstrap's draws.

    Returns
    -------
    pandas.DataFrame
        A row for each policy: speedup, 95 % interval (speedup_low, speedup_high) of as many
        independent requests by a bootstrap (drawn ones are stratified, so that their mean is
        closer), slowdown, tokens_per_step, mean draft length, share of steps in tests,
        percentiles over requests of tpot, and, if the oracle is there, regret: how much longer
        than the oracle's the expected time is.

    Examples
    --------
    >>> records = pd.DataFrame({
    ...     "policy": ["fixed:1"] * 2, "output_tokens": [10, 20], "steps": [8, 16],
    ...     "test_steps": [0, 0], "drafted_tokens": [8, 16], "time": [1.0, 2.0],
    ...     "expected_time": [1.0, 2.0], "plain_time": [1.2, 2.4]})
    >>> float(summarise(records, np.random.default_rng(0))["speedup"].round(3).iloc[0])
    1.2
    """
    oracle = records.loc[records["policy"] == "oracle", "expected_time"].sum()
    rows = []
    for policy, own in records.groupby("policy", observed=True, sort=False):
        time, plain = own["time"].sum(), own["plain_time"].sum()
        steps, speedup = own["steps"].sum(), plain / time
        low, high = _interval(own, generator)
        tpot = np.percentile(own["time"] / own["output_tokens"], PERCENTILES)
        rows.append(
            {
                "policy": str(policy),
                "requests": len(own),
                "output_tokens": own["output_tokens"].sum(),
                "steps": steps,
                "speedup": speedup,
                "speedup_low": low,
                "speedup_high": high,
                "slowdown": max(0.0, 1 / speedup - 1),
                "tokens_per_step": own["output_tokens"].sum() / steps,
                "drafted_tokens_per_step": own["drafted_tokens"].sum() / steps,
                "test_share": own["test_steps"].sum() / steps,
                **{f"tpot_p{p}": t for p, t in zip(PERCENTILES, tpot, strict=True)},
                "regret": own["expected_time"].sum() / oracle - 1 if oracle else np.nan,
            }
        )
    return pd.DataFrame(rows)


def _interval(records: pd.DataFrame, generator: np.random.Generator) -> FloatArray:
    """Bootstrap the ratio of sums; many requests are summed in groups first."""
    if len(records) == 1:
        return np.full(2, np.nan)
    group = np.arange(len(records)) % min(len(records), GROUPS)
    plain, time = (np.bincount(group, records[name]) for name in ("plain_time", "time"))
    counts = generator.multinomial(len(time), np.full(len(time), 1 / len(time)), RESAMPLES)
    return np.quantile((counts @ plain) / (counts @ time), INTERVAL)
