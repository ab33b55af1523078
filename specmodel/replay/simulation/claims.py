"""Cascade's published figures, and ours from the runs of `suite` that stand beside them."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from specmodel.replay.simulation.suite import (
    CHOICES,
    DEFAULT_FIRST,
    FIXED,
    SETTING,
    VARIANTS,
    suite_policy,
)

PAPER = {
    "worst slowdown, fixed:1": "26",
    "worst slowdown, fixed:2": "38",
    "worst slowdown, fixed:3": "54",
    "worst slowdown, cascade": "5",
    "worst slowdown, no back-off": "14",
    "back-off cuts it, times": "2.8",
    "mean gain over fixed:1": "7-14",
    "mean gain over fixed:2": "7-14",
    "mean gain over fixed:3": "7-14",
    "pairs a fixed length slows": "18/35",
    "Mixtral code, cascade": "57",
    "Mixtral code, fixed:3": "39",
    "Mixtral math, best fixed": "< 0",
    "Mixtral extraction, best fixed": "< 0",
    "Mixtral, over best fixed": "18",
    "OLMoE, cascade": "29",
    "OLMoE, fixed:2": "31",
    "OLMoE, fixed:3": "33",
    "DeepSeekMoE, cascade": "1",
}
"""Figures of the paper by claim, second hand, as stated, in % but for the cut and the pairs. Of a
target and a task the gain of a policy; of a target alone the mean gain over its seven workloads."""


_SHORT = {
    "Mixtral": "mixtral-8x7b",
    "OLMoE": "olmoe-1b-7b",
    "DeepSeekMoE": "deepseek-moe-16b",
}


def suite_claims(pairs: pd.DataFrame) -> pd.DataFrame:
    """Return our figure for each claim of the paper, under every setting that it leaves open.

    Parameters
    ----------
    pairs
        From `suite.cascade_suite`.

    Returns
    -------
    pandas.DataFrame
        A row for each look_up, routing_correlation, output_tokens and first_draft_length, with
        a column for each claim of `PAPER` and three more variants; shares as fractions, NaN where
        there is no slowdown to cut.
    """
    firsts = pairs["policy"].str.extract(r"first_draft_length=(\d+)")[0].dropna().unique()
    rows = []
    for setting, part in pairs.groupby(SETTING):
        speedup = part.pivot_table(
            index=["model", "workload"], columns="policy", values="speedup", observed=True
        )
        for first in sorted(map(int, firsts)):
            if not {suite_policy(variant, first) for variant in VARIANTS.values()} <= set(speedup):
                continue  # varied by `CHOICES` only
            row = dict(zip(SETTING, setting, strict=True)) | {"first_draft_length": first}
            rows.append(row | dict(_claims(speedup, first)))
    return pd.DataFrame(rows)


def _claims(speedup: pd.DataFrame, first: int) -> Iterator[tuple[str, float]]:
    own, slowdown = speedup[suite_policy("", first)], (1 / speedup - 1).clip(lower=0)
    for fixed in FIXED:
        yield f"worst slowdown, {fixed}", slowdown[fixed].max()
    worst = {
        name: slowdown[suite_policy(variant, first)].max() for name, variant in VARIANTS.items()
    }
    for name, value in worst.items():
        yield f"worst slowdown, {name}", value
    least = worst["cascade"] or np.nan
    yield "back-off cuts it, times", worst["no back-off"] / least
    for fixed in FIXED:
        yield f"mean gain over {fixed}", (own / speedup[fixed]).mean() - 1
    worst_fixed = slowdown[list(FIXED)].max(axis=1)
    yield "pairs a fixed length slows", float(np.count_nonzero(worst_fixed))
    cascade = suite_policy("", first)
    mean = {short: _of(speedup, model).mean() - 1 for short, model in _SHORT.items()}
    mixtral = _of(speedup, _SHORT["Mixtral"]).T - 1
    yield "Mixtral code, cascade", mixtral["code"][cascade]
    yield "Mixtral code, fixed:3", mixtral["code"]["fixed:3"]
    for task in ("math", "extraction"):
        yield f"Mixtral {task}, best fixed", mixtral[task][[*FIXED]].max()
    best = 1 + mean["Mixtral"][[*FIXED]].max()
    yield "Mixtral, over best fixed", (1 + mean["Mixtral"][cascade]) / best - 1
    for fixed in FIXED[1:]:
        yield f"OLMoE, {fixed}", mean["OLMoE"][fixed]
    for short in ("OLMoE", "DeepSeekMoE"):
        yield f"{short}, cascade", mean[short][cascade]


def _of(speedup: pd.DataFrame, model: str) -> pd.DataFrame:
    return speedup[speedup.index.get_level_values("model") == model].droplevel("model")


def suite_choices(pairs: pd.DataFrame) -> pd.DataFrame:
    """Return what each choice of ours in the policy does, at the settings where it was varied.

    Parameters
    ----------
    pairs
        From `suite.cascade_suite`.

    Returns
    -------
    pandas.DataFrame
        By look_up and choice: worst slowdown over the 35 pairs, mean speedup and mean share of
        steps in tests.
    """
    names = {suite_policy(setting, DEFAULT_FIRST): name for name, setting in CHOICES.items()}
    everywhere = {suite_policy(variant, DEFAULT_FIRST) for variant in VARIANTS.values()}
    varied = pairs[pairs["policy"].isin(set(names) - everywhere)]
    part = pairs[pairs["policy"].isin(names)].merge(varied[SETTING].drop_duplicates())
    part = part.assign(choice=pd.Categorical(part["policy"].map(names), categories=list(CHOICES)))
    return (
        part.groupby(["look_up", "choice"], observed=True)
        .agg(
            worst_slowdown=("slowdown", "max"),
            mean_speedup=("speedup", "mean"),
            mean_test_share=("test_share", "mean"),
        )
        .reset_index()
    )
