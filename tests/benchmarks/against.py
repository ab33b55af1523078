"""Speed of this checkout against another one: ratios of medians of alternating runs.

Run by hand: python tests/benchmarks/against.py OTHER [alternations, default 11]
OTHER is the folder of a checkout, such as a clone of an earlier commit. Each run is a process of
its own; above a ratio of 1.03 it exits 1.
"""

import os
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parents[2]
BOUND = 1.03

TIMED = """
import time, numpy as np
from specmodel import deploy, predict, sensitivity

names = dict(target="qwen3-30b-a3b", drafter="qwen2-0.5b", hardware="h200_sxm",
    engine="vllm-moesd-2025")
rng, million = np.random.default_rng(0), 1_000_000
sample = dict(batch_size=rng.integers(1, 513, million), draft_length=rng.integers(1, 9, million),
    context_length=rng.integers(0, 32_000, million), acceptance_rate=rng.random(million))
axes = dict(
    batch_size=np.arange(1, 257)[:, None, None, None], draft_length=np.arange(1, 9)[:, None, None],
    context_length=np.linspace(0, 32_000, 25).astype(int)[:, None],
    acceptance=np.linspace(0.05, 0.95, 20))
point = sensitivity.OperatingPoint(batch_size=1, draft_length=1, acceptance=0.5)
single = dict(batch_size=8, draft_length=4, acceptance=0.8)

def grid():
    predict(**names, **axes).speedup
def flat():
    sensitivity.evaluate(deploy(**names)[0], point, sample)
def one():
    for _ in range(100):
        answer = predict(**names, **single, context_length=512)
        answer.speedup, answer.best_draft_length

def every():
    for _ in range(100):
        predict(**names, **single, context_length=512).columns()

for function in (grid, flat, one, every):
    predict(**names, **single)
    start = time.process_time()
    function()
    print(function.__name__, time.process_time() - start)
"""
COLD = """
import resource, sys
from specmodel.cli import main
main("predict --target qwen3-30b-a3b --drafter qwen2-0.5b --hardware h200_sxm --batch-size 1:64:x2"
     " --draft-length 4 --acceptance-rate 0.8 --csv".split())
used = resource.getrusage(resource.RUSAGE_SELF)
print("cold", used.ru_utime + used.ru_stime, file=sys.stderr)
"""


def run(tree: Path, code: str) -> dict[str, float]:
    """Run code with the package of a checkout; CPU seconds by name."""
    environment = os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": ""}
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, env=environment, cwd=tree, check=True, capture_output=True, text=True
    )
    lines = [line.split() for line in (done.stdout + done.stderr).splitlines()]
    return {words[0]: float(words[1]) for words in lines if words and words[0] in NAMES}


NAMES = ("grid", "flat", "one", "every", "cold")


def main(other: Path, alternations: int) -> bool:
    times: dict[tuple[str, bool], list[float]] = {}
    for turn in range(alternations + 1):
        for is_ours, tree in ((True, HERE), (False, other)):
            found = run(tree, TIMED) | run(tree, COLD)
            for name, seconds in found.items() if turn else ():  # the first turn compiles
                times.setdefault((name, is_ours), []).append(seconds)
    is_slow = False
    for name in NAMES:
        ours, theirs = (statistics.median(times[name, side]) for side in (True, False))
        is_slow |= ours / theirs > BOUND
        print(f"{name:5} {ours:8.3f} s  {theirs:8.3f} s  ratio {ours / theirs:.3f}")
    return is_slow


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), int(sys.argv[2]) if len(sys.argv) > 2 else 11))
