"""Cascade's published figures, and ours from the runs of `suite` that stand beside them."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from specmodel.simulation.suite import (
    CHOICES,
    DEFAULT_FIRST,
    FIXED,
    SETTING,
    VARIANTS,
    suite_policy,
)

PAPER = {
    "worst slowdown, fixed:1": "26 %",
    "worst slowdown, fixed:2": "38 %",
    "worst slowdown, fixed:3": "54 %",
    "worst slowdown, cascade": "5 %",
    "worst slowdown, without back-off": "14 %",
    "back-off cuts it, times": "2.8",
    "mean gain over fixed:1": "7-14 %",
    "mean gain over fixed:2": "7-14 %",
    "mean gain over fixed:3": "7-14 %",
    "pairs that a fixed length slows down": "18 of 35",
    "mixtral-8x7b on code, cascade": "57 %",
    "mixtral-8x7b on code, fixed:3": "39 %",
    "olmoe-1b-7b, cascade": "29 %",
    "olmoe-1b-7b, fixed:2": "31 %",
    "olmoe-1b-7b, fixed:3": "33 %",
    "deepseek-moe-16b, cascade": "1 %",
    "mixtral-8x7b, cascade over best fixed": "18 %",
}
"""Figures of the paper by claim, second hand, as stated; of a target without a workload, the mean
gain over its seven."""


def suite_claims(pairs: pd.DataFrame) -> pd.DataFrame:
    """Return our figure for each claim of the paper, under every setting that it leaves open.

    Parameters
    ----------
    pairs
        From `suite.cascade_suite`.

    Returns
    -------
    pandas.DataFrame
        A row for each min_ngram, routing_correlation, output_length and first_draft_length, with
        a column for each claim of `PAPER` and two more ablations; shares as fractions.
    """
    firsts = pairs["policy"].str.extract(r"first_draft_length=(\d+)")[0].dropna().unique()
    rows = []
    for setting, part in pairs.groupby(SETTING):
        speedup = part.pivot_table(
            index=["model", "workload"], columns="policy", values="speedup", observed=True
        )
        for first in sorted(map(int, firsts)):
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
    yield "back-off cuts it, times", worst["without back-off"] / worst["cascade"]
    for fixed in FIXED:
        yield f"mean gain over {fixed}", (own / speedup[fixed]).mean() - 1
    worst_fixed = slowdown[list(FIXED)].max(axis=1)
    yield "pairs that a fixed length slows down", float(np.count_nonzero(worst_fixed))
    cascade = suite_policy("", first)
    for model in ("mixtral-8x7b", "olmoe-1b-7b", "deepseek-moe-16b"):
        mean = _of(speedup, model).mean()
        yield f"{model}, cascade", mean[cascade] - 1
        for fixed in FIXED[1:]:
            yield f"{model}, {fixed}", mean[fixed] - 1
        if model == "mixtral-8x7b":
            yield f"{model}, cascade over best fixed", mean[cascade] / mean[[*FIXED]].max() - 1
    on_code = _of(speedup, "mixtral-8x7b").T["code"]
    yield "mixtral-8x7b on code, cascade", on_code[cascade] - 1
    yield "mixtral-8x7b on code, fixed:3", on_code["fixed:3"] - 1


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
        By min_ngram and choice: worst slowdown over the 35 pairs, mean speedup and mean share of
        steps in tests.
    """
    names = {suite_policy(setting, DEFAULT_FIRST): name for name, setting in CHOICES.items()}
    varied = pairs[pairs["policy"].isin(set(names) - {suite_policy("", DEFAULT_FIRST)})]
    part = pairs[pairs["policy"].isin(names)].merge(varied[SETTING].drop_duplicates())
    part = part.assign(choice=pd.Categorical(part["policy"].map(names), categories=list(CHOICES)))
    return (
        part.groupby(["min_ngram", "choice"], observed=True)
        .agg(
            worst_slowdown=("slowdown", "max"),
            mean_speedup=("speedup", "mean"),
            mean_test_share=("test_share", "mean"),
        )
        .reset_index()
    )
