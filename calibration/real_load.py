"""A real vLLM under Poisson load on a CPU, beside what the simulator of serving says of it.

Steps, each a command of this file with the FOLDER of `real_engine.py`, which made the models and
measured closed loops; `fit engine` made FOLDER/engine.toml of those alone:

    python calibration/real_load.py plan FOLDER      # what is carried, by prediction: rates to try
    python calibration/real_load.py measure FOLDER --loads 0:1.2:1,2:1.5:1   # K:rate:seed, ...
    python calibration/real_load.py judge FOLDER     # each run, simulated and in closed form
    python calibration/real_load.py capacity FOLDER  # the rate with 90 % within targets, both ways

`measure` serves once for each draft length and appends to FOLDER/requests.csv, a row a request, and
to FOLDER/runs.csv, a row a run, with the engine's counters; a load that is named twice is run
twice. Requests are those that `specmodel load` draws: the same seed has the same requests at
every rate. Nothing is fitted to these runs, and acceptance is that of the closed loops.
"""

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from real_engine import PORT, SERVE, served, started
from real_judge import drafter_named
from specmodel.algebra.acceptance import Acceptance
from specmodel.base.files import write_text
from specmodel.cost.deploying import deploy
from specmodel.measure import live
from specmodel.measure.live.engines import growth
from specmodel.serving.capacity import Capacity, Targets
from specmodel.serving.closed_forms import chain_state, fluid_state
from specmodel.serving.outcome import COOL_DOWN, WARM_UP
from specmodel.serving.promises import Trial
from specmodel.serving.requests import Arrivals, Lengths, Requests, draw_requests
from specmodel.serving.study import Study

LENGTHS = Lengths(
    prompt_tokens=24, output_tokens=24, prompt_spread=0.3, output_spread=0.3, longest=64
)
"""Short requests, for many of them to come in minutes."""
COUNT, MAX_RUNNING, TOKEN_BUDGET, BLOCK = 200, 16, 512, 128
"""Requests of a run; running requests, tokens of a step and of a block, as vLLM is told."""
LIMITS = (("max_running", MAX_RUNNING), ("token_budget", TOKEN_BUDGET), ("block_size", BLOCK))
TOKEN_IDS = (3, 8191)
SEEDS, SETTLED = (1, 2), 1.0
"""Of requests [-]; time until the counters of a run are settled [s]."""
SHARES = (0.3, 0.55, 0.8)
"""Rates of a plan, as shares of what is carried [-]."""
COUNTED = ("drafts", "draft_tokens", "accepted_tokens", "preemptions")
LUCKS = 8
"""Draws of acceptance over which a simulated run is averaged [-]."""
RUN = ["draft_length", "request_rate", "seed", "repeat"]
"""Columns that tell runs apart."""


def study(folder: Path, draft_length: int) -> Study:
    """Return what is simulated: the engine as fitted to closed loops, with their acceptance."""
    deployment, _ = deploy(
        target=f"{folder}/target/config.json",
        drafter=drafter_named(folder) if draft_length else None,
        hardware=f"{folder}/cpu.toml",
        stack="torch",
        engine=f"{folder}/engine.toml",
    )
    rates = closed_acceptance(folder, draft_length)
    return Study(
        deployment=deployment,
        acceptance=Acceptance(acceptance_by_position=rates or [0.0]),
        max_draft_length=draft_length,
        lengths=LENGTHS,
        num_requests=COUNT,
        limits=LIMITS,
    )


def closed_acceptance(folder: Path, draft_length: int) -> list[float]:
    """Return the rates by position that closed loops had, in the mean over loads."""
    if not draft_length:
        return []
    table = pd.read_csv(folder / f"served.{draft_length}.csv")
    rates = table["acceptance_by_position"].astype(str).str.split(",", expand=True).astype(float)
    return [float(rate) for rate in rates.mean()]


def policy_of(draft_length: int) -> str:
    return f"fixed:{draft_length}" if draft_length else "none"


# Measuring


def measure(
    folder: Path,
    command: str,
    loads: Sequence[tuple[int, float, int]],
    targets: Targets | None = None,
    tries: int = 0,
) -> None:
    """Serve with each draft length, and ask as each load of it says.

    Then, seed by seed, at `tries` rates between one that holds the targets and one that fails.
    """
    for length in dict.fromkeys(load[0] for load in loads):
        own = [load[1:] for load in loads if load[0] == length]

        async def ask(run: Run, length: int = length, own: Any = own) -> None:
            for rate, seed in own:
                await run(rate, seed)
            for _ in range(tries):
                if targets is None:
                    return
                low, high, _ = crossing(shares(folder, length, targets), targets.attainment)
                for seed in SEEDS:
                    await run(float(f"{(low * high) ** 0.5:.3g}"), seed)

        _serve(folder, command, length, ask)


Run = Callable[[float, int], Awaitable[None]]
"""Asks for the requests of a rate and a seed, and keeps what came."""


def _serve(folder: Path, command: str, length: int, ask: Callable[[Run], Awaitable[None]]) -> None:
    """Serve with a draft length, warm the server up, and let runs be asked for."""

    async def session() -> None:
        async with live.connected(f"http://localhost:{PORT}", temperature=0.0) as server:
            told = await server.told()
            warm = _requests(10.0, 10**6, 2 * MAX_RUNNING)
            await _asked(server, warm, 10**6)
            own = {"draft_length": length, "version": told.version}
            await ask(lambda rate, seed: _run(server, folder, own, rate, seed))

    drafts = {"num_speculative_tokens": length} if length else {}
    with served(started(folder, command, drafts), folder / "server.log"):
        asyncio.run(session())


async def _run(
    server: live.Server, folder: Path, own: dict[str, Any], rate: float, seed: int
) -> None:
    begun, before = time.strftime("%Y-%m-%dT%H:%M:%S%z"), await server.scrape()
    rows = await _asked(server, _requests(rate, seed, COUNT), seed)
    await asyncio.sleep(SETTLED)
    after = await server.scrape()
    if before is None or after is None:
        raise SystemExit("the server has no counters at /metrics, which acceptance is read from")
    counted, runs = growth(before, after), _runs(folder)
    load = (own["draft_length"], rate, seed)
    repeat = int((runs[RUN[:3]] == list(load)).all(axis=1).sum())
    run = dict(zip(RUN, (*load, repeat), strict=True))
    positions = [f"{value:.0f}" for name, value in counted.items() if name.startswith("position ")]
    facts: dict[str, Any] = {name: counted.get(name, 0.0) for name in COUNTED}
    facts |= {"accepted_by_position": " ".join(positions), "version": own["version"]}
    _append(folder / "requests.csv", [run | row for row in rows])
    _append(folder / "runs.csv", [run | {"begun": begun} | facts])
    tpot, ttft = statistics(pd.DataFrame(rows))
    print(f"{run}: TPOT {1e3 * tpot:.1f} ms, median TTFT {1e3 * ttft:.0f} ms", flush=True)


def _requests(rate: float, seed: int, count: int) -> Requests:
    return draw_requests(Arrivals(request_rate=rate), LENGTHS, count, seed)


async def _asked(server: live.Server, requests: Requests, seed: int) -> list[dict[str, Any]]:
    """Ask for each request when it comes, whatever is still unanswered; return a row for each."""
    begun, prompts = time.perf_counter(), live.random_ids(*TOKEN_IDS, seed=0)

    async def one(number: int) -> dict[str, Any]:
        due = float(requests.arrival_time[number])
        await asyncio.sleep(max(due - (time.perf_counter() - begun), 0.0))
        came = time.perf_counter() - begun
        prompt = prompts(int(requests.prompt_tokens[number]), (seed, number))
        answer = await server.complete(prompt, int(requests.output_tokens[number]))
        if answer.fault:
            raise SystemExit(f"request {number}: {answer.fault}")
        return {
            "number": number,
            "arrival_time": came,
            "first_token": came + answer.first_token,
            "last_token": came + answer.latency,
            "prompt_tokens": answer.prompt_tokens,
            "output_tokens": answer.output_tokens,
            "events": answer.events,
        }

    return await asyncio.gather(*map(one, range(requests.count)))


def _append(path: Path, rows: list[dict[str, Any]]) -> None:
    table = pd.DataFrame(rows)
    table.to_csv(path, mode="a", header=not path.exists(), index=False, float_format="%.6g")


def _runs(folder: Path) -> pd.DataFrame:
    """Return the runs measured so far."""
    path = folder / "runs.csv"
    return pd.read_csv(path) if path.exists() else pd.DataFrame(columns=pd.Index(RUN))


# Judging


def statistics(rows: pd.DataFrame) -> tuple[float, float]:
    """Return TPOT, each token counted once, and median TTFT, of requests that meet others [s]."""
    own = rows.iloc[int(WARM_UP * len(rows)) : len(rows) - int(COOL_DOWN * len(rows))]
    decoding = own["last_token"] - own["first_token"]
    tpot = decoding.sum() / (own["output_tokens"] - 1).sum()
    return float(tpot), float((own["first_token"] - own["arrival_time"]).median())


def requests_of(rows: pd.DataFrame) -> Requests:
    """Return the requests of a run, as they came."""
    arrivals = np.maximum.accumulate(rows["arrival_time"].to_numpy(float))
    return Requests(
        arrival_time=arrivals,
        prompt_tokens=rows["prompt_tokens"].to_numpy(np.int64),
        output_tokens=rows["output_tokens"].to_numpy(np.int64),
    )


def simulated(case: Study, draft_length: int, requests: Requests) -> pd.DataFrame:
    """Return when each request would have its first and last token, one draw after the other."""
    policy, found = case.policy(policy_of(draft_length)), []
    for seed in range(LUCKS if draft_length else 1):
        run = case.serve(policy, requests, seed=seed)
        times = {"first_token": run.first + case.first_token_time, "last_token": run.last}
        own = {"arrival_time": requests.arrival_time, "output_tokens": requests.output_tokens}
        found.append(pd.DataFrame(own | times | {"draw": seed}))
    return pd.concat(found, ignore_index=True)


def added_time(folder: Path, case: Study, draft_length: int) -> float:
    """Return what a first token of one user took in closed loops beyond its simulation [s]."""
    table = pd.read_csv(folder / f"served.{draft_length}.csv")
    alone = table[table["concurrency"] == 1].iloc[0]
    of_one = Lengths(prompt_tokens=alone["prompt_length"], output_tokens=alone["output_length"])
    one = replace(case, lengths=of_one, num_requests=20)
    run = one.run(policy_of(draft_length), Arrivals(users=1))
    return float(alone["ttft_ms"] / 1e3 - np.median(run.ttft))


def judge(folder: Path) -> pd.DataFrame:
    """Return each run beside what is predicted of it: simulated, by the chain and by the root."""
    asked, found = pd.read_csv(folder / "requests.csv"), []
    cases = {int(length): study(folder, int(length)) for length in asked["draft_length"].unique()}
    added = {length: added_time(folder, case, length) for length, case in cases.items()}
    for key, rows in asked.groupby(RUN):
        run: dict[str, Any] = dict(zip(RUN, key, strict=True))
        length, rate = int(run["draft_length"]), float(run["request_rate"])
        rows = rows.sort_values("arrival_time", ignore_index=True)
        case, requests = cases[length], requests_of(rows)
        drawn = [statistics(own) for _, own in simulated(case, length, requests).groupby("draw")]
        tpot, ttft = np.mean(drawn, axis=0)
        curves = case.curves(policy_of(length))
        assert curves is not None  # noqa: S101 - a fixed length has them
        chain, root = (f(curves, rate) for f in (chain_state, fluid_state))
        measured = statistics(rows)
        closed = {"tpot_chain": float(chain.tpot), "tpot_root": float(root.tpot)}
        found.append(
            run
            | {"tpot": measured[0], "tpot_simulated": tpot}
            | closed
            | {"ttft": measured[1], "ttft_simulated": ttft, "ttft_chain": float(chain.ttft)}
            | {"ttft_added": ttft + added[length]}
        )
    return pd.DataFrame(found)


def told(judged: pd.DataFrame) -> str:
    """Return errors by kind of prediction, in lines, and by how much runs alike differ."""
    lines = []
    for name in judged.columns[judged.columns.str.match("t[pt].t_")]:
        error = judged[name] / judged[name[:4]] - 1.0
        by_length: dict[Any, float] = error.abs().groupby(judged["draft_length"]).mean().to_dict()
        parts = ", ".join(f"{policy_of(int(k))} {mean:.1%}" for k, mean in by_length.items())
        lines.append(
            f"{name}: mean {error.abs().mean():.1%} ({parts}), worst {error.abs().max():.1%},"
            f" bias {error.mean():+.1%}"
        )
    for how, keys in (("repeats", RUN[:3]), ("seeds", RUN[:2])):
        alike = judged.groupby(keys)[["tpot", "ttft"]].agg(["min", "max", "size"])
        several = alike[alike["tpot", "size"] > 1]
        spreads = [(several[n, "max"] / several[n, "min"] - 1).mean() for n in ("tpot", "ttft")]
        lines.append(f"{how} differ by {spreads[0]:.1%} in TPOT and {spreads[1]:.1%} in TTFT")
    return "\n".join(lines)


def plan(folder: Path, lengths: Sequence[int]) -> str:
    """Return what each draft length carries by prediction, and rates that are shares of it."""
    lines = []
    for length in lengths:
        curves = study(folder, length).curves(policy_of(length))
        assert curves is not None  # noqa: S101 - a fixed length has them
        most = chain_state(curves, 1e-3).largest_rate
        rates = ", ".join(f"{share * most:.2f}" for share in SHARES)
        at = [1e3 * float(curves.tpot[n - 1]) for n in (1, 4, curves.limit)]
        times = "TPOT {:.1f}, {:.1f}, {:.1f} ms of 1, 4 and all requests".format(*at)
        lines.append(f"{policy_of(length)}: {most:.2f} requests/s; {rates}; {times}")
    return "\n".join(lines)


# Capacity


def goodput(rows: pd.DataFrame, targets: Targets) -> float:
    """Return the share of a run's requests within targets, of those that meet others [-]."""
    own = rows.iloc[int(WARM_UP * len(rows)) : len(rows) - int(COOL_DOWN * len(rows))]
    ttft = (own["first_token"] - own["arrival_time"]).to_numpy(float)
    decoding = (own["last_token"] - own["first_token"]).to_numpy(float)
    tpot = decoding / np.maximum(own["output_tokens"].to_numpy(float) - 1, 1)
    return float((targets.slowness(ttft, tpot) <= 1).mean())


def shares(folder: Path, length: int, targets: Targets) -> pd.Series:
    """Return the goodput of a draft length by rate, over all its runs at that rate."""
    path = folder / "requests.csv"
    rows = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=pd.Index(RUN))
    rows = rows[rows["draft_length"] == length]
    runs = {key: goodput(own, targets) for key, own in rows.groupby(RUN)}
    found = pd.Series(runs).groupby(level=1).mean().sort_index()
    return found


def crossing(found: pd.Series, attainment: float) -> tuple[float, float, float]:
    """Return the last rate that holds, the first that fails, and where a line between crosses."""
    fails = found[found < attainment]
    if fails.empty or fails.index[0] == found.index[0]:
        raise SystemExit(f"no rate below one that fails: {found.to_dict()}")
    high = float(fails.index[0])
    low = float(found[found.index < high].index[-1])
    part = (found[low] - attainment) / (found[low] - found[high])
    return low, high, low * (high / low) ** part


def capacity(folder: Path, length: int, targets: Targets) -> Capacity:
    """Return the capacity by prediction, as `specmodel load` finds it."""
    case = replace(study(folder, length), num_requests=1000)
    return Trial(study=case, targets=targets, replications=4).capacity(policy_of(length))


def capacities(folder: Path, lengths: Sequence[int], targets: Targets) -> str:
    """Return the capacity measured beside the one predicted, in lines."""
    lines = []
    for length in lengths:
        found = capacity(folder, length, targets)
        low, high = found.simulated
        line = f"{policy_of(length)}: predicted {found.rate:.2f} ({low:.2f} to {high:.2f})"
        measured = shares(folder, length, targets)
        if len(measured) > 1:
            last, fails, at = crossing(measured, targets.attainment)
            line += f", measured {at:.2f} ({last:.2f} holds, {fails:.2f} fails)"
            line += f", off by {found.rate / at - 1:+.0%}; goodput by rate {measured.to_dict()}"
        lines.append(line)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("step", choices=["plan", "measure", "judge", "capacity"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--command", default=SERVE, help="that serves, as of real_engine.py")
    parser.add_argument("--loads", default="", help="of measure: K:rate:seed,...")
    parser.add_argument("--lengths", default="0,2", help="draft lengths of plan and capacity")
    parser.add_argument("--ttft-target", type=float, help="of capacity and measure [s]")
    parser.add_argument("--tpot-target", type=float, help="likewise [s]")
    parser.add_argument(
        "--tries", type=int, default=2, help="rates between, where targets are told"
    )
    given = parser.parse_args()
    folder, lengths = given.folder.resolve(), [int(n) for n in given.lengths.split(",")]
    has_targets = given.ttft_target or given.tpot_target
    targets = Targets(ttft=given.ttft_target, tpot=given.tpot_target) if has_targets else None
    if given.step == "plan":
        print(plan(folder, lengths))
    elif given.step == "measure":
        loads = [load.split(":") for load in given.loads.split(",")]
        typed = [(int(k), float(r), int(s)) for k, r, s in loads]
        measure(folder, given.command, typed, targets, given.tries)
    elif given.step == "judge":
        judged = judge(folder)
        write_text(folder / "judged.csv", judged.to_csv(index=False, float_format="%.5g"))
        print(judged.to_string(float_format="{:.4g}".format) + "\n" + told(judged))
    else:
        print(capacities(folder, lengths, targets or Targets(tpot=1.0)))


if __name__ == "__main__":
    main()
