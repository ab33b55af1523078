"""Request-steps a second of the simulator on one core, noise drawn, in CPU time.

Run by hand: python tests/benchmarks/replay.py [rounds] [--plain]
With --plain nothing is compiled, whether numba is installed or not.
"""

import statistics
import sys
import time
from collections.abc import Callable

import numpy as np

from specmodel import deploy
from specmodel.simulate import ReplayTimes, Sample, machine_code, replay_times, simulate
from specmodel.simulate.traces import Trace, join_traces, load_preset, sample_trace


class Averaging:
    """A policy as a user would write it: a moving average of accepted tokens."""

    def __init__(self) -> None:
        self.average = 2.0

    def propose(self) -> int:
        return min(int(self.average + 0.5), 7)

    def observe(self, emitted_tokens: int, step_time: float) -> None:
        self.average += 0.1 * (emitted_tokens - self.average)


def step_times(**growing: int) -> ReplayTimes:
    deployment, _ = deploy(
        target="olmoe-1b-7b", hardware="rtx_6000_ada", drafter="ngram", engine="vllm-moesd-2025"
    )
    return replay_times(deployment, max_draft_length=7, context_length=1024, **growing)


def uneven(repeats: int) -> Trace:
    """Return 300 requests of 20 to 8,192 tokens as if they were recorded, repeated some times."""
    generator = np.random.default_rng(0)
    lengths = np.exp(generator.uniform(np.log(20), np.log(8192), 300)).astype(int)
    trace = sample_trace(load_preset("code-ngram"), 300, lengths, generator)
    return join_traces([trace] * repeats)


def even(num_requests: int) -> Trace:
    """Return requests of 512 tokens, drawn in advance."""
    generator = np.random.default_rng(0)
    return sample_trace(load_preset("code-ngram"), num_requests, 512, generator)


def sample(num_requests: int) -> Sample:
    preset = load_preset("code-ngram")
    return Sample(processes=[preset], num_requests=num_requests, output_tokens=512)


def rate(trace: Trace | Sample, policy: object, times: ReplayTimes) -> tuple[int, float]:
    """Return the number of steps, and steps per second of CPU time."""
    start = time.process_time()
    records = simulate(trace, times, [policy], seed=0)
    steps = int(records["steps"].sum())
    return steps, steps / (time.process_time() - start)


def main(rounds: int, is_plain: bool) -> None:
    if is_plain:
        machine_code.WORTH_COMPILING = float("inf")
    growing, times = step_times(growth=8192), step_times()
    few = 1 if is_plain else 34
    recorded, drawn = uneven(few), even(8192 // (8 if is_plain else 1))
    cases: list[tuple[str, Callable[[], tuple[int, float]]]] = [
        ("Cascade, 300 uneven requests", lambda: rate(recorded, "cascade", times)),
        ("the same as context grows", lambda: rate(recorded, "cascade", growing)),
        ("Cascade, requests of 512", lambda: rate(drawn, "cascade", times)),
        ("goodput", lambda: rate(drawn, "goodput", times)),
        ("sglang", lambda: rate(drawn, "sglang", times)),
        ("Cascade and the drawing of requests", lambda: rate(sample(8192), "cascade", times)),
        ("a user's class", lambda: rate(uneven(1), Averaging, times)),
    ]
    rate(even(8192), "cascade", times)  # compiles
    for name, run in cases:
        found = [run() for _ in range(rounds)]
        speed = statistics.median(each[1] for each in found)
        print(f"{name:36} {found[0][0]:12,} steps {speed / 1e6:7.2f} M steps/s")


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:] if word.isdecimal()]
    main(*(numbers or [3]), is_plain="--plain" in sys.argv)
