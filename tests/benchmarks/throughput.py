"""Points a second of a grid and of a flat list, against a named NumPy operation in the same run.

Run by hand: python tests/benchmarks/throughput.py [rounds]
Exits 1 if a ratio of medians is above its bound. The unit is ``numpy.exp`` on an array of as many
float64 as there are points; peak memory is that of the whole process.
"""

import resource
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np

from specmodel import deploy, load_architecture, load_engine, predict
from specmodel.answers.sensitivity.inputs import OperatingPoint, evaluate
from specmodel.prediction.columns import COLUMNS

OVERHEADS = {
    "kernel_time": 4e-6,
    "pass_time": 1e-3,
    "draft_pass_time": 5e-4,
    "reject_time": 1e-3,
    "reject_time_per_request": 1e-6,
}
ENGINE = load_engine("ideal").with_changes("engine", OVERHEADS)
TARGET = load_architecture("qwen2-57b-a14b")
NAMES = {
    "target": TARGET,
    "drafter": "qwen2-0.5b",
    "hardware": "a800_sxm_80gb",
    "tensor_parallel": 2,
    "engine": ENGINE,
}

RNG = np.random.default_rng(0)
SAMPLE = {
    "batch_size": RNG.integers(1, 513, 1_000_000),
    "draft_length": RNG.integers(1, 9, 1_000_000),
    "context_length": RNG.integers(0, 32_000, 1_000_000),
    "acceptance_rate": RNG.random(1_000_000),
}


def grid() -> int:
    """256 batch sizes, 8 draft lengths, 25 contexts, 20 acceptance rates; every column."""
    prediction = predict(
        **NAMES,
        batch_size=np.arange(1, 257)[:, None, None, None],
        draft_length=np.arange(1, 9)[:, None, None],
        context_length=np.linspace(0, 32_000, 25).astype(int)[:, None],
        acceptance=np.linspace(0.05, 0.95, 20),
    )
    return int(np.mean([getattr(prediction, column.name).size for column in COLUMNS]))


def flat() -> int:
    """A million unrelated points; target efficiency and speedup."""
    point = OperatingPoint(batch_size=1, draft_length=1, acceptance=0.5)
    return int(evaluate(deploy(**NAMES)[0], point, SAMPLE)["speedup"].size)


def one() -> int:
    """A single point through the Python API."""
    predict(**NAMES, batch_size=8, draft_length=4, acceptance=0.8, context_length=512)
    return 1


def seconds(function: Callable[[], object]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def main(rounds: int) -> bool:
    values = np.linspace(-1, 1, 1_024_000)
    out = np.empty_like(values)

    def unit() -> None:
        np.exp(values, out=out)

    is_slow = False
    for function, bound in ((grid, 40.0), (flat, 280.0), (one, None)):
        points = function()
        repeats = rounds if bound else 10 * rounds
        samples = [(seconds(function), seconds(unit) if bound else 1.0) for _ in range(repeats)]
        time_taken = statistics.median(sample for sample, _ in samples)
        ratio = statistics.median(sample / reference for sample, reference in samples)
        per_unit = f"{ratio:7.0f} x numpy.exp (bound {bound:g})" if bound else ""
        rate = points / time_taken / 1e6
        print(f"{function.__name__:5} {time_taken * 1e3:8.2f} ms {rate:8.3f} M points/s {per_unit}")
        is_slow |= bound is not None and ratio > bound
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:.0f} MB")
    return is_slow


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 9))
