"""What the package takes for its workloads, and how many times as much other checkouts take.

Run by hand: python tests/benchmarks/paces.py [OTHER ...] [--rounds N] [--only NAME,NAME]
OTHER are folders of checkouts, such as clones of earlier commits; runs alternate, each in a process
of its own. Times are CPU seconds, of commands wall seconds, memory that of the process at its peak.
All are printed over a yardstick of the same machine: NumPy's exp of as many doubles, importing
NumPy, or starting Python; those of this checkout in milliseconds too. Workloads are
those of two deployments, an MoE with a small draft model and one with an n-gram look-up: batch
sizes of 1 to 256, draft lengths of 1 to 7, contexts of 100 to 8,000 tokens.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parents[2]

SHARED = """
import resource, sys, time
import numpy as np
from specmodel import Acceptance, deploy, predict

MILLION = 10**6
DEPLOYMENTS = (
    dict(target="qwen2-57b-a14b", drafter="qwen2-0.5b", hardware="a800_sxm_80gb",
         tensor_parallel=2, engine="vllm"),
    dict(target="mixtral-8x7b", drafter="ngram", hardware="h100_sxm", tensor_parallel=2,
         engine="vllm"),
)
GRID = dict(
    batch_size=np.arange(1, 257)[:, None, None, None], draft_length=np.arange(1, 8)[:, None, None],
    context_length=np.linspace(100, 8000, 28).astype(int)[:, None],
    acceptance=np.linspace(0.05, 0.95, 20))
POINT = dict(batch_size=8, draft_length=4, context_length=512, acceptance=0.8)
for d in DEPLOYMENTS:
    predict(**d, **POINT)

def unrelated(count):
    generator = np.random.default_rng(0)
    return dict(
        batch_size=generator.integers(1, 257, count), draft_length=generator.integers(1, 8, count),
        context_length=generator.integers(100, 8001, count), acceptance=generator.random(count))

VALUES = np.linspace(0.1, 1.0, MILLION)

def least(function, most=2.0):
    # of some calls, as the machine may be busy with others
    times = []
    while len(times) < 3 or (sum(times) < most and len(times) < 20):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
        if sum(times) > 10:
            break
    return min(times)

def told(function, count=1):
    exp = least(lambda: [np.exp(VALUES) for _ in range(10)], 0.5) / 10
    print("took", least(function) / count, exp)
"""

WORKLOADS = {
    "grid": "told(lambda: [predict(**d, **GRID).speedup for d in DEPLOYMENTS], count=2)",
    "all of a grid": (
        "told(lambda: [predict(**d, **GRID).columns() for d in DEPLOYMENTS], count=2)"
    ),
    "unrelated": """
points = unrelated(MILLION)
told(lambda: [predict(**d, **points).speedup for d in DEPLOYMENTS], count=2)
""",
    "one": """
def ask():
    for d in DEPLOYMENTS:
        predict(**d, **POINT).speedup
ask()
told(lambda: [ask() for _ in range(100)], count=200)
""",
    "intervals": """
def ask():
    for d in DEPLOYMENTS:
        predict(**d, batch_size=np.arange(1, 257), draft_length=4, acceptance=0.8,
            context_length=512, interval=True)
told(ask, count=2)
""",
    "schedule": """
from specmodel.plan.schedule import draft_length_schedule

def ask():
    for d in DEPLOYMENTS:
        gains = predict(**d, batch_size=np.arange(1, 257)[:, None], draft_length=np.arange(1, 8),
            acceptance=0.8, context_length=np.linspace(100, 8000, 28).astype(int)[:, None, None])
        draft_length_schedule(gains.speedup)
ask()
told(lambda: [ask() for _ in range(5)], count=10)
""",
}
"""Workloads by name: code that prints its CPU seconds."""

MEMORY = """
def three(answer):
    return answer.speedup, answer.tpot, answer.forward_time
three(predict(**DEPLOYMENTS[0], **unrelated(10)))
points, before = unrelated(MILLION), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
three(predict(**DEPLOYMENTS[0], **points))
print("took", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3)
"""

PROGRAM = "import sys; from specmodel.cli import run; sys.exit(run())"
PREDICT = (
    "predict --target qwen2-57b-a14b --drafter qwen2-0.5b --hardware a800_sxm_80gb --engine vllm"
    " --tensor-parallel 2 --batch-size 1,2,4,8,16,32,64 --draft-length 4 --acceptance-rate 0.9"
    " --context-length 512"
)
COMMANDS = {
    "cold predict": (PREDICT, "import numpy"),
    "two words": ("predict qwen3.5-397b h200", "import numpy"),
    "--help": ("--help", "pass"),
    "list hardware": ("list hardware", "pass"),
}
"""Commands by name, with the code of their yardstick."""


def output(tree: Path, *words: str) -> str:
    """Return the output of Python with the package of a checkout."""
    environment = os.environ | {"PYTHONPATH": str(tree), "OPENBLAS_NUM_THREADS": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, *words]
    done = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{tree}: {done.stderr}")
    return done.stdout


def taken(tree: Path, code: str) -> list[float]:
    """Return the numbers that a workload prints."""
    return [float(word) for word in output(tree, "-c", SHARED + code).split("took")[1].split()]


def wall(tree: Path, *words: str) -> float:
    """Return the smallest wall time of three runs [s], because the machine may be busy."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        output(tree, *words)
        times.append(time.perf_counter() - start)
    return min(times)


def measured(tree: Path, name: str) -> tuple[float, str]:
    """Return the time of a workload divided by its yardstick [-], and the time as text."""
    if name == "memory":
        return taken(tree, MEMORY)[0], "MB"
    if name in COMMANDS:
        words, yardstick = COMMANDS[name]
        seconds, unit = wall(tree, "-c", PROGRAM, *words.split()), wall(tree, "-c", yardstick)
    else:
        seconds, unit = taken(tree, WORKLOADS[name])
    return seconds / unit, f"{seconds * 1e3:.4g} ms, {1 / seconds:.3g} a second"


def main(others: list[Path], rounds: int, only: list[str]) -> None:
    trees = [HERE, *others]
    print(f"{'':18}{'here':>10}" + "".join(f"{tree.name[-10:]:>11} here is" for tree in others))
    for name in only or [*WORKLOADS, "memory", *COMMANDS]:
        found: dict[Path, list[tuple[float, str]]] = {tree: [] for tree in trees}
        for turn in range(rounds + 1):
            for tree in trees:
                value = measured(tree, name)
                if turn:  # the first compiles
                    found[tree].append(value)
        (own, clock), *rest = (statistics.median_low(found[tree]) for tree in trees)
        told = "".join(f"{value:>11.4g} {value / own:>6.2f}x" for value, _ in rest)
        print(f"{name:18}{own:>10.4g}{told}  {clock}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("others", nargs="*", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    chosen = [name for name in options.only.split(",") if name]
    main([other.resolve() for other in options.others], options.rounds, chosen)
