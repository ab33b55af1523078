"""A hundred thousand random points of all that ships: what is only made faster moves nothing.

A row of the table is a model under an engine: sums over random points of every kind of drafter, on
a random GPU and layout, to be met within 1e-12; a move of one point alone shows from some 1e-10.
Where numbers move on purpose, ``PYTHONPATH=tests python tests/prediction/test_frozen.py`` writes
the table anew, as with `test_predictions`.
"""

import csv
import zlib

import numpy as np
import pytest
from published_tables import DATA, read_table
from random_points import NEWEST_GPUS
from rows import slow

from specmodel import InputError, list_architectures, list_engines, list_hardware, predict

TABLE = DATA / "frozen.csv"
DRAFTERS = ("ngram", "suffix", "eagle", "eagle3", "mtp", "parallel", "p-eagle", "dflash", "dspark")
LAYOUTS = ((1, 1), (2, 1), (8, 1), (4, 4), (2, 8))
SUMMED = ("forward_time", "verify_time", "draft_time", "speedup", "memory_bytes")
POINTS = 23
"""Points of each model, engine and drafter, 100,000 in all [-]."""
TOLERANCE = 1e-12


def summed(model, engine):
    """Sums over random points of all drafters; those that are impossible count nothing."""
    draws = np.random.default_rng(zlib.crc32(f"{model} {engine}".encode()))
    sums = dict.fromkeys(SUMMED, 0.0)
    for drafter in DRAFTERS:
        tensor, expert = LAYOUTS[draws.integers(len(LAYOUTS))]
        hardware = GPUS[draws.integers(len(GPUS))]
        ends = {"batch_size": (1, 1000), "draft_length": (0, 8), "context_length": (0, 200_000)}
        points = {name: draws.integers(*own, POINTS) for name, own in ends.items()}
        points["acceptance"] = draws.random(POINTS)
        names = {"target": model, "engine": engine, "drafter": drafter, "hardware": hardware}
        for cut in ({"tensor_parallel": tensor, "expert_parallel": expert}, {"tensor_parallel": 1}):
            try:
                predicted = predict(**names, **points, **cut)
            except InputError:
                continue
            for name in SUMMED:
                sums[name] += float(predicted.value(name).sum())
            break
    return sums


_LATER = ("h20_141gb", "rtx_3090", *NEWEST_GPUS)
"""GPUs that came to ship after the first rows were drawn."""
GPUS = sorted(name for name in list_hardware() if "cpu" not in name and name not in _LATER)
PAIRS = [(model, engine) for model in sorted(list_architectures()) for engine in list_engines()]


def frozen():
    """Return the table."""
    return {
        (row["target"], row["engine"]): {name: float(row[name]) for name in SUMMED}
        for row in read_table(TABLE)
    }


@pytest.mark.parametrize("step", [15, *slow(1)])
def test_no_row_has_moved(step):
    known = frozen()
    assert {*known} == {*PAIRS}
    for pair in PAIRS[::step]:
        assert summed(*pair) == pytest.approx(known[pair], rel=TOLERANCE), pair


def write():
    """Write the table anew."""
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        file.write("# Sums of random predictions: a drift alarm, no truth, by test_frozen.py.\n")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("target", "engine", *SUMMED))
        writer.writerows((*pair, *map(repr, summed(*pair).values())) for pair in PAIRS)


if __name__ == "__main__":
    write()
