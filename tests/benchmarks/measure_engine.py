"""CPU seconds that the client of measure-engine takes per step of an engine, with 16 streams.

    python tests/benchmarks/measure_engine.py [seconds of a step] [tokens of an event]

The server stands in, in a process of its own, and makes a step in the time given: 20 to 50 ms are
those of a small model on a CPU, of which the client should take no more than 2 %.
"""

import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from specmodel.base.errors import InputError
from specmodel.measure.live import Log, Plan, connected, drive, random_ids, summary

PORT = 8199
SERVER = Path(__file__).parents[1] / "standin_server.py"


async def cost(step_time: float, interval: int | None) -> tuple[float, float]:
    """Return CPU seconds of a step, and the time of a token as measured [s]."""
    plan = Plan(
        draft_lengths=[0], concurrencies=[16], prompt_lengths=[1024], output_lengths=[256],
        repeats=1, requests=1,
    )  # fmt: skip
    spent = began = 0.0
    async with connected(f"http://localhost:{PORT}", stream_interval=interval) as server:
        for _ in range(50):
            try:
                told = await server.told()
                break
            except InputError:
                await asyncio.sleep(0.2)
        prompts = random_ids(100, 20_000)
        with tempfile.TemporaryDirectory() as folder, Log(Path(folder) / "a.csv", {}, {}) as log:
            async for done in drive(server, told, plan, plan.runs(0), log, prompts):
                if done.is_run:
                    steps = (time.perf_counter() - began) / step_time
                    spent = (time.process_time() - spent) / steps
                else:
                    began, spent = time.perf_counter(), time.process_time()
            return spent, summary(log.rows)["tpot_ms"][0] / 1e3


def main() -> None:
    """Print the cost."""
    step_time = float(sys.argv[1]) if len(sys.argv) > 1 else 0.02
    interval = int(sys.argv[2]) if len(sys.argv) > 2 else None
    command = [sys.executable, str(SERVER), "--port", str(PORT), "--step-time", str(step_time)]
    with subprocess.Popen(command) as process:
        try:
            spent, tpot = asyncio.run(cost(step_time, interval))
        finally:
            process.kill()
    print(
        f"16 streams, steps of {step_time * 1e3:g} ms measured as {tpot * 1e3:.2f}:"
        f" {spent * 1e6:.0f} us of CPU a step, {spent / step_time:.2%}"
    )


if __name__ == "__main__":
    main()
