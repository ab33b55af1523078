"""Find the spread of a deployment's factor at which intervals hold for 80 % of measured engines.

Usage: python calibration/deployment.py FILE. FILE is a table of measured engines, as `specmodel
validate --serving` takes it. Prints the spread fitted to all rows, which is DEPLOYMENT_SPREAD of
specmodel/prediction/intervals.py, coverage without one, and coverage of each model with the
spread fitted to the others.
"""

import sys

from specmodel.calibrate.serving import read_serving
from specmodel.calibrate.serving.spread import coverage_left_out, fit_spread, least_spreads
from specmodel.prediction.intervals import CENTRAL, DEPLOYMENT_SPREAD


def main(path: str) -> None:
    rows = least_spreads(read_serving(path))
    least = rows["least_spread"].to_numpy()
    print(f"{len(rows)} rows; spread at which {CENTRAL:.0%} are inside: {fit_spread(least):.4f}")
    for name, spread in (("kernels alone", 0.0), ("what ships", DEPLOYMENT_SPREAD)):
        print(f"coverage of {name} ({spread:g}): {(least <= spread).mean():.1%}")
    left_out = coverage_left_out(rows)
    print("Each model left out of the spread:")
    print(left_out.round(4).to_string(index=False))
    pooled = (left_out["coverage"] * left_out["rows"]).sum() / left_out["rows"].sum()
    print(f"pooled over models left out: {pooled:.1%}")


if __name__ == "__main__":
    main(sys.argv[1])
