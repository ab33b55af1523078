"""Time moves of the explorer's controls, from the callback to the new picture and words.

Run by hand: python tests/benchmarks/explorer.py
Exits 1 if the median of 20 moves is above its bound.
"""

import statistics
import sys
import time

from specmodel.show.explorer import explorer

BOUND = 0.2
MOVES = [
    ("acceptance_rate", 0.7), ("acceptance_rate", 0.71), ("acceptance_rate", 0.9),
    ("draft_length", 3), ("draft_length", 1), ("draft_length", 7),
    ("context_length", 4096), ("context_length", 65536), ("context_length", 512),
    ("engine", "ideal"), ("engine", "sglang"),
    ("tensor_parallel", 4), ("hardware", "h200_sxm"), ("hardware", "rtx_pro_6000"),
    ("target", "mixtral-8x7b"), ("drafter", "ngram"), ("proposal_rate", 0.8),
    ("target", "deepseek-v3"), ("drafter", "mtp"), ("tensor_parallel", 8),
]  # fmt: skip


def measure() -> list[float]:
    """Seconds of each move."""
    held, image, _ = explorer().children
    controls = {control.description.replace(" ", "_"): control for control in held.children}
    found = []
    for name, value in MOVES:
        before = image.value
        start = time.perf_counter()
        controls[name].value = value
        found.append(time.perf_counter() - start)
        if image.value == before:
            raise SystemExit(f"{name} = {value} has changed nothing")
    return found


if __name__ == "__main__":
    seconds = measure()
    median = statistics.median(seconds)
    print(f"median {median * 1e3:.0f} ms of {len(seconds)} moves (bound {BOUND * 1e3:.0f})")
    print(f"slowest {max(seconds) * 1e3:.0f} ms")
    sys.exit(median > BOUND)
