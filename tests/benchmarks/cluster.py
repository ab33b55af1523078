"""Two Dask workers against one on the same sweep, start-up left out, median of three.

Run by hand: python tests/benchmarks/cluster.py
Exits 1 if two workers are less than 1.6 times as fast as one on the sweep with intervals, whose
parts take long; that without has short parts whose result is large, so that handing it over counts.
Written as folders, which must be the same byte for byte.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

from distributed import Client, LocalCluster
from sweep import plan_of

from specmodel.answers.sweeps import Plan, sweep_to_file
from specmodel.answers.sweeps.columns import parquet_bytes

BOUND = 1.6
SWEEPS = {"with intervals": plan_of(0.2, interval=True), "points only": plan_of(10)}


def seconds(plan: Plan, workers: int, output: str) -> float:
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        client.run(parquet_bytes, next(plan.parts()))  # on each worker: imports, first touches
        start = time.perf_counter()
        sweep_to_file(plan, output, client=client, overwrite=True)
        return time.perf_counter() - start


def contents(folder: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def main() -> bool:
    is_slow = False
    with tempfile.TemporaryDirectory() as folder:
        for name, plan in SWEEPS.items():
            turns = [[seconds(plan, n, f"{folder}/{n}/") for n in (1, 2)] for _ in range(3)]
            one, two = map(statistics.median, zip(*turns, strict=True))
            assert contents(f"{folder}/1") == contents(f"{folder}/2"), "the results differ"
            part = one / plan.num_parts
            print(f"{name}: {plan.num_points:,} points in {plan.num_parts} parts of {part:.2f} s;")
            print(f"one worker {one:.1f} s, two {two:.1f} s: {one / two:.2f} times")
            is_slow |= name == "with intervals" and one / two < BOUND
    return is_slow


if __name__ == "__main__":
    sys.exit(main())
