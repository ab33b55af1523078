"""Two Dask workers against one on the same sweep, start-up left out, median of three.

Run by hand: python tests/benchmarks/cluster.py
Exits 1 if two workers are less than 1.6 times as fast as one where a part takes 0.3 s or more.
The sweep with intervals has such parts; that without has short parts whose result is large, so
that handing it over counts. Written as folders, which must be the same byte for byte.
"""

import filecmp
import statistics
import sys
import tempfile
import time
from pathlib import Path

from distributed import Client, LocalCluster

from specmodel.answers.sweeps import Plan, plan_sweep, sweep_to_file
from specmodel.answers.sweeps.columns import parquet_bytes

ROUNDS = 3
BOUND = 1.6
AXES = {
    "target": ["mixtral-8x7b", "qwen3-30b-a3b"],
    "drafter": "eagle",
    "hardware": ["h100_sxm", "h200_sxm"],
    "engine": "vllm-moesd-2025",
    "tensor_parallel": 2,
    "draft_length": range(1, 11),
    "acceptance_rate": [0.5, 0.6, 0.7, 0.8, 0.9],
}
SWEEPS = {
    "with intervals": ({"batch_size": range(1, 321)}, True),
    "points only": ({"batch_size": range(1, 257), "context_length": range(0, 32_000, 64)}, False),
}


def seconds(plan: Plan, workers: int, output: str) -> float:
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        client.run(parquet_bytes, next(plan.parts()))  # on each worker: imports, first touches
        start = time.perf_counter()
        sweep_to_file(plan, output, client=client, overwrite=True)
        return time.perf_counter() - start


def same(one: str, two: str) -> bool:
    names = sorted(path.name for path in Path(one).iterdir())
    assert names == sorted(path.name for path in Path(two).iterdir())
    return not any(filecmp.cmpfiles(one, two, names, shallow=False)[1:])


def main() -> bool:
    is_slow = False
    with tempfile.TemporaryDirectory() as folder:
        for name, (axes, interval) in SWEEPS.items():
            plan = plan_sweep(AXES | axes, interval=interval)
            taken: dict[int, list[float]] = {1: [], 2: []}
            for _ in range(ROUNDS):
                for workers, times in taken.items():
                    times.append(seconds(plan, workers, f"{folder}/{workers}/"))
            assert same(f"{folder}/1", f"{folder}/2"), "the results differ"
            one, two = (statistics.median(times) for times in taken.values())
            print(
                f"{name}: {plan.num_points:,} points in {plan.num_parts} parts of"
                f" {one / plan.num_parts:.2f} s; one worker {one:.1f} s, two {two:.1f} s:"
                f" {one / two:.2f} times"
            )
            is_slow |= interval and one / two < BOUND
    return is_slow


if __name__ == "__main__":
    sys.exit(main())
