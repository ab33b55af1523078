"""Compare recorded runs of a real vLLM under Poisson load with the simulator of serving.

    python calibration/load_judge.py FOLDER [--ttft-target S] [--tpot-target S]

FOLDER (results/vllm_cpu_load, results/h200_vllm) has requests.csv with a row for each request; its
loads differ in draft length, rate, seed and repeat. load.json describes what was served, the
requests and the limits. Optional are served.K.csv, closed loops of the same server, and an engine
fitted only to them. The script prints errors of each kind of prediction and writes judged.csv with
a row for each run. With targets, it prints the measured and the predicted rate at which 90 % of
requests meet them. Nothing is fitted to these runs, and acceptance is that of the closed loops.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from msgspec.structs import replace

from real_judge import drafter_named
from specmodel.core.algebra.acceptance import Acceptance
from specmodel.core.base.files import write_text
from specmodel.core.cost.deploying import deploy
from specmodel.simulate.capacity import Capacity, Targets
from specmodel.simulate.outcome import COOL_DOWN, WARM_UP
from specmodel.simulate.requests import Arrivals, Lengths, Requests
from specmodel.simulate.study import Study
from specmodel.simulate.trial import Trial

LUCKS = 8
"""Draws of acceptance over which a simulated run is averaged [-]."""
RUN = ["draft_length", "request_rate", "seed", "repeat"]
"""Columns in which runs differ."""


def study(folder: Path, draft_length: int) -> Study:
    """Return the simulation: the engine fitted to closed loops, with their acceptance."""
    told = json.loads((folder / "load.json").read_text(encoding="utf-8"))
    where: dict[str, Any] = {
        name: value.format(folder=folder) if isinstance(value, str) else value
        for name, value in told["deployment"].items()
    }
    where |= {"drafter": drafter_named(folder)} if draft_length else {}
    deployment, _ = deploy(**where)
    rates = closed_acceptance(folder, draft_length)
    return Study(
        deployment=deployment,
        acceptance=Acceptance(acceptance_by_position=rates or [0.0]),
        max_draft_length=draft_length,
        lengths=Lengths(**told["lengths"]),
        num_requests=told["requests"],
        limits=tuple(told["limits"].items()),
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
    service, found = case.service(policy_of(draft_length)), []
    for seed in range(LUCKS if draft_length else 1):
        run = service.run(requests, seed=seed)
        times = {"first_token": run.first + case.first_token_time, "last_token": run.last}
        own = {"arrival_time": requests.arrival_time, "output_tokens": requests.output_tokens}
        found.append(pd.DataFrame(own | times | {"draw": seed}))
    return pd.concat(found, ignore_index=True)


def added_time(folder: Path, case: Study, draft_length: int) -> float:
    """Return what a first token of one user took in closed loops beyond its simulation [s]."""
    path = folder / f"served.{draft_length}.csv"
    if not path.is_file():
        return 0.0
    table = pd.read_csv(path)
    alone = table[table["concurrency"] == 1].iloc[0]
    of_one = Lengths(prompt_tokens=alone["prompt_length"], output_tokens=alone["output_length"])
    one = replace(case, lengths=of_one, num_requests=20)
    run = one.run(policy_of(draft_length), Arrivals(users=1))
    return float(alone["ttft_ms"] / 1e3 - np.median(run.ttft))


def judge(folder: Path) -> pd.DataFrame:
    """Return each run with its simulated values."""
    asked, found = pd.read_csv(folder / "requests.csv"), []
    cases = {int(length): study(folder, int(length)) for length in asked["draft_length"].unique()}
    added = {length: added_time(folder, case, length) for length, case in cases.items()}
    for key, rows in asked.groupby(RUN):
        run: dict[str, Any] = dict(zip(RUN, key, strict=True))
        length = int(run["draft_length"])
        rows = rows.sort_values("arrival_time", ignore_index=True)
        case, requests = cases[length], requests_of(rows)
        drawn = [statistics(own) for _, own in simulated(case, length, requests).groupby("draw")]
        tpot, ttft = np.mean(drawn, axis=0)
        measured = statistics(rows)
        found.append(
            run
            | {"tpot": measured[0], "tpot_simulated": tpot}
            | {"ttft": measured[1], "ttft_simulated": ttft, "ttft_added": ttft + added[length]}
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
    rows = pd.read_csv(folder / "requests.csv")
    rows = rows[rows["draft_length"] == length]
    runs = {key: goodput(own, targets) for key, own in rows.groupby(RUN)}
    found = pd.Series(runs).groupby(level=1).mean().sort_index()
    return found


def crossing(found: pd.Series, attainment: float) -> tuple[float, float, float]:
    """Return the last rate within the targets, the first outside, and the crossing between."""
    fails = found[found < attainment]
    if fails.empty or fails.index[0] == found.index[0]:
        raise SystemExit(f"no rate below one that fails: {found.to_dict()}")
    high = float(fails.index[0])
    low = float(found[found.index < high].index[-1])
    part = (found[low] - attainment) / (found[low] - found[high])
    return low, high, low * (high / low) ** part


def capacity(folder: Path, length: int, targets: Targets) -> Capacity:
    """Return the capacity by prediction, as `specmodel capacity` finds it."""
    case = replace(study(folder, length), num_requests=1000)
    return Trial(study=case, targets=targets, replications=4).capacity(policy_of(length))


def capacities(folder: Path, targets: Targets) -> str:
    """Return the measured and the predicted capacity in lines, one for each draft length."""
    lines = []
    for length in sorted(pd.read_csv(folder / "requests.csv")["draft_length"].unique()):
        found, measured = capacity(folder, length, targets), shares(folder, length, targets)
        (low, high), (last, fails, at) = found.simulated, crossing(measured, targets.attainment)
        lines.append(
            f"{policy_of(length)}: predicted {found.rate:.2f} ({low:.2f} to {high:.2f}), measured"
            f" {at:.2f} ({last:.2f} holds, {fails:.2f} fails), off by {found.rate / at - 1:+.0%};"
            f" goodput by rate {measured.to_dict()}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ttft-target", type=float, help="[s]")
    parser.add_argument("--tpot-target", type=float, help="[s]")
    given = parser.parse_args()
    folder = given.folder.resolve()
    if given.ttft_target or given.tpot_target:
        print(capacities(folder, Targets(ttft=given.ttft_target, tpot=given.tpot_target)))
        return
    judged = judge(folder)
    write_text(folder / "judged.csv", judged.to_csv(index=False, float_format="%.5g"))
    print(judged.to_string(float_format="{:.4g}".format) + "\n" + told(judged))


if __name__ == "__main__":
    main()
