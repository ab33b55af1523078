"""Request-steps a second of the simulator at batch size 1, noise and expert variation on.

Run by hand: python tests/benchmarks/replay.py [rounds] [--billion]
Exits 1 if Cascade takes more than 12 times as long a step, on one core, as NumPy takes to draw a
normal float32. With --billion only a billion steps are drawn and replayed, for the peak of memory.
"""

import resource
import statistics
import sys
import time

import numpy as np

from specmodel import deploy
from specmodel.replay import ReplayTimes, Sample, replay_times, simulate
from specmodel.replay.blocks import make_blocks
from specmodel.replay.chance import Variation
from specmodel.replay.traces import Trace, join_traces, load_preset

BOUND = 12.0


class Averaging:
    """A policy such as a user would write: a moving average of what was accepted."""

    def __init__(self) -> None:
        self.average = 2.0

    def propose(self) -> int:
        return min(int(self.average + 0.5), 7)

    def observe(self, emitted_tokens: int, step_time: float) -> None:
        self.average += 0.1 * (emitted_tokens - self.average)


def step_times() -> ReplayTimes:
    deployment, _ = deploy(
        target="olmoe-1b-7b", hardware="rtx_6000_ada", drafter="ngram", engine="vllm-moesd-2025"
    )
    return replay_times(deployment, max_draft_length=7, context_length=1024)


def sample(num_requests: int) -> Sample:
    preset = load_preset("code-ngram")
    return Sample(processes=[preset], num_requests=num_requests, output_tokens=512)


def recorded(num_requests: int, times: ReplayTimes) -> Trace:
    """A trace in memory, as if it had been recorded."""
    blocks = make_blocks(sample(num_requests), times, Variation(), seed=0)
    return join_traces([block.draw()[0] for block in blocks])


def rate(trace: Trace | Sample, policy: object, times: ReplayTimes, workers: int) -> float:
    """Steps a second."""
    start = time.perf_counter()
    records = simulate(trace, times, [policy], seed=0, workers=workers)
    return float(records["steps"].sum() / (time.perf_counter() - start))


def draw_time() -> float:
    """Seconds of one normal float32."""
    generator, size = np.random.default_rng(0), 4_000_000
    start = time.perf_counter()
    generator.standard_normal(size, dtype=np.float32)
    return (time.perf_counter() - start) / size


def replay_a_billion() -> None:
    """Steps, seconds, and the peak of memory of this process and of the largest other one."""
    start = time.perf_counter()
    records = simulate(sample(4_100_000), step_times(), ["cascade"], seed=0, workers=2)
    steps = int(records["steps"].sum())
    print(f"{steps:,} steps in {time.perf_counter() - start:.0f} s")
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        print(f"peak memory {resource.getrusage(who).ru_maxrss / 1e3:.0f} MB")


def main(rounds: int) -> bool:
    times = step_times()
    large, small = recorded(320_000, times), recorded(32_000, times)
    cases = [
        ("Cascade, one core", large, "cascade", 1),
        ("Cascade, two cores", large, "cascade", 2),
        ("fixed:3, one core", large, "fixed:3", 1),
        ("Cascade and its draws, two cores", sample(320_000), "cascade", 2),
        ("a user's class, one core", small, Averaging, 1),
        ("a user's class, two cores", small, Averaging, 2),
    ]
    is_slow = False
    for name, trace, policy, workers in cases:
        rates, ratios = [], []
        for _ in range(rounds):
            rates.append(rate(trace, policy, times, workers))
            ratios.append(1 / rates[-1] / draw_time())
        ratio = statistics.median(ratios)
        print(f"{name:32} {statistics.median(rates) / 1e6:6.2f} M steps/s {ratio:6.1f} x a draw")
        if name == "Cascade, one core":
            is_slow = ratio > BOUND
    return is_slow


if __name__ == "__main__":
    words = sys.argv[1:]
    numbers = [int(word) for word in words if word.isdecimal()]
    sys.exit(replay_a_billion() if "--billion" in words else main(*(numbers or [3])))
