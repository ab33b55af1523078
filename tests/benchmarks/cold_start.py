"""Time the command line from cold, in turn in one run, against importing numpy and pydantic.

Run by hand: python tests/benchmarks/cold_start.py [rounds]
Exits 1 if a ratio of medians is above its bound.
"""

import statistics
import subprocess
import sys
import time
from pathlib import Path

BASELINE = [sys.executable, "-c", "import numpy; from pydantic import BaseModel"]
PROGRAM = str(Path(sys.executable).with_name("specmodel"))
PREDICT = (
    "predict --target qwen2-57b-a14b --drafter qwen2-0.5b --hardware a800_sxm_80gb"
    " --tensor-parallel 2 --batch-size 1,2,4,8,16,32,64 --draft-length 4"
    " --acceptance-rate 0.9 --context-length 512"
)
CASES = {
    "predict": (PREDICT.split(), 1.5),
    "--help": (["--help"], 0.7),
    "predict --help": (["predict", "--help"], 0.7),
}


def seconds(command: list[str]) -> float:
    """Wall time of one run of a command."""
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def measure(rounds: int) -> dict[str, float]:
    """Median seconds of the baseline and of each case, runs interleaved."""
    commands = {"baseline": BASELINE} | {
        name: [PROGRAM, *words] for name, (words, _) in CASES.items()
    }
    samples: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds + 1):
        for name, command in commands.items():
            samples[name].append(seconds(command))
    return {name: statistics.median(values[1:]) for name, values in samples.items()}


if __name__ == "__main__":
    medians = measure(int(sys.argv[1]) if len(sys.argv) > 1 else 15)
    slow = False
    for case, (_, bound) in CASES.items():
        ratio = medians[case] / medians["baseline"]
        slow |= ratio > bound
        print(f"{case:15} {medians[case] * 1e3:6.0f} ms  {ratio:.2f} x  (bound {bound})")
    print(f"{'baseline':15} {medians['baseline'] * 1e3:6.0f} ms")
    sys.exit(slow)
