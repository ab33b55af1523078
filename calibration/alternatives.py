"""Judge the order in which alternatives are predicted: other GPUs or layouts of one model.

Usage: python calibration/alternatives.py FILE. FILE is a table of measured engines, as `specmodel
fit check --serving` takes it. All pairs of rows with the same model, dtype, engine, batch size and
lengths are taken that differ in GPU or layout, rows of the same deployment in their mean. Prints by
how far a pair is predicted apart, how many pairs there are, how many are in the predicted order,
and how far the predicted ratio is off. CLOSE of specmodel/show/within.py was set by it.
"""

import itertools
import sys

import numpy as np
import pandas as pd

from specmodel.fit.measured import judge_serving, read_serving
from specmodel.show.within import CLOSE

SAME = ["model", "dtype", "engine", "batch_size", "prompt_length", "output_length"]
DIFFERENT = ["hardware", "tensor_parallel", "data_parallel", "expert_parallel"]
APART = [0, 0.03, 0.06, 0.1, 0.15, 0.25, np.inf]


def pairs_of(judged: pd.DataFrame) -> pd.DataFrame:
    """Return the logarithms of the measured and the predicted ratio of each pair [-]."""
    judged = judged[judged["quantity"] == "tpot"]
    logs = judged[[*SAME, *DIFFERENT]].assign(
        measured=np.log(judged["measured"].astype(float)),
        predicted=np.log(judged["predicted"].astype(float)),
    )
    means = logs.groupby([*SAME, *DIFFERENT], as_index=False).mean()
    rows = [
        a - b
        for _, group in means.groupby(SAME)
        for a, b in itertools.combinations(group[["measured", "predicted"]].to_numpy(), 2)
    ]
    return pd.DataFrame(rows, columns=["measured", "predicted"])


def main(path: str) -> None:
    pairs = pairs_of(judge_serving(read_serving(path))[0])
    apart = pairs["predicted"].abs().map(np.expm1)
    in_order = np.sign(pairs["measured"]) == np.sign(pairs["predicted"])
    error = (pairs["predicted"] - pairs["measured"]).abs().map(np.expm1)
    frame = pd.DataFrame({"apart": apart, "in_order": in_order, "error": error})
    told = frame.groupby(pd.cut(apart, APART, right=False), observed=True).agg(
        pairs=("apart", "size"), in_order=("in_order", "mean"), median_error=("error", "median")
    )
    print(told.round(3).to_string())
    far = apart >= CLOSE
    print(f"{len(pairs)} pairs, 80 % of the ratios within {error.quantile(0.8):.1%}")
    print(f"at least {CLOSE:.0%} apart: {in_order[far].mean():.0%} in the predicted order")
    print(f"less: {in_order[~far].mean():.0%}")


if __name__ == "__main__":
    main(sys.argv[1])
