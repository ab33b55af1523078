"""Fit the spread of the factor of a deployment to measured engines.

Usage: python calibration/deployment.py FILE. FILE is a table of measured engines in the form that
`specmodel fit check --serving` reads. The script prints the spread with which intervals contain
80 % of all rows (DEPLOYMENT_SPREAD of specmodel/core/prediction/intervals.py), the share of rows
inside intervals without a spread, the same for each model with a spread fitted to the other models,
and the share of the ratios of decode steps inside intervals of ratios.
"""

import sys

from specmodel.calibrate.fit.measured import judge_serving, read_serving
from specmodel.core.prediction.intervals import CENTRAL, DEPLOYMENT_SPREAD
from spread import coverage_left_out, fit_spread, least_spreads, ratios_of_passes, without_engine


def main(path: str) -> None:
    table = without_engine(read_serving(path))
    rows = least_spreads(table)
    least = rows["least_spread"].to_numpy()
    print(f"{len(rows)} rows; spread at which {CENTRAL:.0%} are inside: {fit_spread(least):.4f}")
    for name, spread in (("kernels alone", 0.0), ("what ships", DEPLOYMENT_SPREAD)):
        print(f"coverage of {name} ({spread:g}): {(least <= spread).mean():.1%}")
    left_out = coverage_left_out(rows)
    print("Each model left out of the spread:")
    print(left_out.round(4).to_string(index=False))
    pooled = (left_out["coverage"] * left_out["rows"]).sum() / left_out["rows"].sum()
    print(f"pooled over models left out: {pooled:.1%}")
    ratios = ratios_of_passes(judge_serving(table)[0], table)
    held = (-ratios["high"] <= ratios["log_error"]) & (ratios["log_error"] <= -ratios["low"])
    print("Decode steps of B over q B requests, held by intervals of target efficiency:")
    groups = ratios.assign(coverage=held).groupby("tokens")
    print(groups.agg(rows=("coverage", "size"), coverage=("coverage", "mean")).round(3).to_string())


if __name__ == "__main__":
    main(sys.argv[1])
