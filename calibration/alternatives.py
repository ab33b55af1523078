"""Judge the predicted order of alternatives: layouts, GPUs, engines, dtypes and models.

Usage: python calibration/alternatives.py FILE. FILE is a table of measured engines in the form that
`specmodel fit check --serving` reads. The script compares all pairs of rows with the same batch
size and lengths, by tokens per second and GPU. Rows of the same deployment are averaged first. It
groups pairs by their difference and by the ratio of their predictions. For each group, it prints
the number of pairs, how many are in the predicted order, and the error of the predicted ratio.
UNLIKE of specmodel/core/prediction/best.py is based on this.
"""

import itertools
import sys

import numpy as np
import pandas as pd

from specmodel.calibrate.fit.measured import judge_serving, read_serving
from specmodel.core.prediction.best import ALIKE, UNLIKE

LOAD = ["batch_size", "prompt_length", "output_length"]
ERRING = ["model", "dtype", "engine", "hardware"]
LAYOUT = ["tensor_parallel", "data_parallel", "expert_parallel"]


def pairs_of(judged: pd.DataFrame) -> pd.DataFrame:
    """Return the logarithms of the measured and the predicted ratio of each pair [-]."""
    judged = judged[judged["quantity"] == "tpot"]
    gpus = judged["tensor_parallel"] * judged["data_parallel"]
    logs = judged[[*LOAD, *ERRING, *LAYOUT]].assign(
        measured=np.log(judged["measured"].astype(float) * gpus),
        predicted=np.log(judged["predicted"].astype(float) * gpus),
    )
    means = logs.groupby([*LOAD, *ERRING, *LAYOUT], as_index=False).mean()
    rows = [
        (", ".join(n for n in ERRING if a[n] != b[n]) or "layout", *a[values] - b[values])
        for values in [["measured", "predicted"]]
        for _, group in means.groupby(LOAD)
        for (_, a), (_, b) in itertools.combinations(group.iterrows(), 2)
    ]
    return pd.DataFrame(rows, columns=["differs", "measured", "predicted"])


def main(path: str) -> None:
    """Judge, and print."""
    pairs = pairs_of(judge_serving(read_serving(path))[0])
    pairs["apart"] = -np.expm1(-pairs["predicted"].abs())
    pairs["in_order"] = np.sign(pairs["measured"]) == np.sign(pairs["predicted"])
    pairs["error"] = (pairs["predicted"] - pairs["measured"]).abs().map(np.expm1)
    apart = pd.cut(pairs["apart"], [0, ALIKE, UNLIKE, 1], right=False)
    kind = np.where(pairs["differs"] == "layout", "layout", "more than that")
    for groups in ([kind, apart], ["differs", apart]):
        told = pairs.groupby(groups, observed=True).agg(
            pairs=("apart", "size"), in_order=("in_order", "mean"), error=("error", "median")
        )
        print(told.round(3).to_string(), end="\n\n")


if __name__ == "__main__":
    main(sys.argv[1])
