"""Points a second of a sweep to Parquet, the default columns.

Run by hand: python tests/benchmarks/sweep.py [points, in millions; default 100] [FOLDER]
Writes into FOLDER, by default a temporary one, some 15 bytes a point.
"""

import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from specmodel.plan.sweeps import plan_sweep, sweep_to_file


def main(millions: float, folder: str) -> None:
    """256 batch sizes, 10 draft lengths, 19 acceptance rates, on 2 targets and 2 GPUs."""
    contexts = max(round(millions * 1e6 / (4 * 256 * 10 * 19)), 1)
    axes = {
        "target": ["mixtral-8x7b", "qwen3-30b-a3b"], "drafter": "eagle",
        "hardware": ["h100_sxm", "h200_sxm"], "engine": "vllm-moesd-2025", "tensor_parallel": 2,
        "context_length": range(256, 256 + 8 * contexts, 8), "batch_size": range(1, 257),
        "draft_length": range(1, 11), "acceptance_rate": np.linspace(0.05, 0.95, 19).round(2),
    }  # fmt: skip
    for output in ("one.parquet", "parts/"):
        start, (plan, path) = time.perf_counter(), (plan_sweep(axes), Path(folder, output))
        sweep_to_file(plan, f"{folder}/{output}")
        rate = plan.num_points / (time.perf_counter() - start) / 1e6
        size = sum(p.stat().st_size for p in (path, *path.glob("*")) if p.is_file())
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
        told = f"{rate:.1f} M points/s, {size / plan.num_points:.1f} B a point"
        print(f"{plan.num_points:,} points to {output}: {told}, peak memory {peak:.0f} MB")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as chosen:
        main(float((*sys.argv, 100)[1]), sys.argv[2] if len(sys.argv) > 2 else chosen)
