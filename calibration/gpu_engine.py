"""Compare steps of real engines with random weights with predictions, and fit their host.

Usage: python calibration/gpu_engine.py [FIT.csv [JUDGE.csv ...]] [--engine vllm-0.24]
       [--hardware h200] [--output FILE.toml]

Tables have a row for each point: name (of the engine's configuration), model, method (none, ngram,
eagle3, mtp or draft_model), draft_length, batch, context and step_ms. Optional columns are draft (a
draft model, or the name of a configuration FILE.json next to the table), limit (of CUDA graphs, 0
for none), temperature, and sync (1 for synchronous scheduling). Weights are independent and tokens
are random, so that popularity is equal and routing correlation is 0. Heads with random weights,
however, draft few tokens again and again.

The host is fitted to all rows of the first table, by default those of results/h200_vllm. The script
prints the errors of each configuration with the shipped engine, on the fitted host, and on a host
fitted without any row of the configuration. It also prints the changes of host times, and errors on
the further tables, which nothing is fitted to. For each of these, it reads FILE.prompts.csv (first
tokens of prompts that come alone) and FILE.beside.csv (time that a prompt adds to the step of a
batch) if they exist. --output writes the engine on this host.
"""

import argparse
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pandas as pd
from msgspec.structs import replace

from specmodel.calibrate.fit import update_engine
from specmodel.calibrate.fit.measured.aliases import shipped_model
from specmodel.calibrate.fit.measured.tables import Served
from specmodel.calibrate.fit.steps import measured_steps
from specmodel.core.base.files import write_text
from specmodel.core.base.records import toml_text
from specmodel.core.cost.deploying import deploy
from specmodel.core.cost.deployment import Deployment
from specmodel.core.cost.prefill import prefill_pass, whole_prompts
from specmodel.core.machines.engine import EngineProfile, load_engine
from specmodel.core.models.architecture import load_architecture
from specmodel.simulate.times import mixed_step_time

RESULTS = Path(__file__).parent / "results/h200_vllm"
STEPS, OTHERS, THIRD = (RESULTS / f"steps{number}.csv" for number in ("", "_2", "_3"))
"""Steps of vLLM 0.24 on one H200 of a virtual machine with 16 cores (torch 2.11, 2026-11-26), and
on two others a day later, that nothing was fitted to."""
RANDOM_HOST = "h200-random"
RANDOM: dict[str, Any] = {"routing_correlation": 0.0, "popularity_exponent": 0.0}
"""Routing of random weights over random tokens [-]."""
REPEATING = 0.4
"""Routing correlation of the drafts of a head with random weights: the best of 0, 0.2, ..., 1 for
three drafts of Qwen3-30B at temperature 1, of `STEPS`. Four requests with seven drafts each need
12.4 ms, less than with seven random drafts (18.7 ms), although those need no passes of a drafter
[-]."""


def read_steps(path: Path, hardware: str = "h200") -> list[Served]:
    """Return the points of a table as runs of one step; the folder has files of drafters."""
    rows = pd.read_csv(path, comment="#").to_dict("records")
    return [_run(row, hardware, path.parent) for row in rows]


def _run(row: Mapping[Any, Any], hardware: str, folder: Path) -> Served:
    """Return a point as a run."""
    target = shipped_model(str(row["model"]).replace("__", "/"))
    length = int(row["draft_length"])
    limit = row.get("limit")
    lookup = {"proposal_rate": 1.0} if row["method"] == "ngram" else {}
    repeats = {"routing_correlation": REPEATING} if row["method"] in ("eagle3", "mtp") else {}
    routing = RANDOM | repeats if load_architecture(target).is_moe else {}
    temperature = row.get("temperature", 0.0)
    points = {"batch_size": float(row["batch"]), "context_length": float(row["context"])}
    if length:
        points |= {"draft_length": float(length), "verify_tokens": length + 1.0}
    return Served(
        row=f"{row['name']} {row['batch']}x{row['context']}",
        labels={"host": RANDOM_HOST, "model": target, "name": str(row["name"])},
        deployment={
            "target": target,
            "hardware": hardware,
            **({} if row["method"] == "none" else {"drafter": _drafter(row, folder)}),
            **({} if limit is None or pd.isna(limit) else {"graph_limit": int(limit)}),
            **({} if pd.isna(temperature) else {"temperature": float(temperature)}),
            **({"sync_scheduling": True} if row.get("sync") == 1 else {}),
            **lookup,
            **routing,
        },
        points=points,
        tokens_per_step=1.0 if length else None,
        quantity="step_time" if length else "tpot",
        measured=float(row["step_ms"]) / 1e3,
    )


def _drafter(row: Mapping[Any, Any], folder: Path) -> str:
    """Return the drafter of a point: a name, a file, or the name of its own head or model."""
    own = row.get("draft")
    if own is None or pd.isna(own):
        return str(row["method"])
    path = folder / f"{own}.json"
    return str(path) if path.is_file() else shipped_model(str(own).replace("__", "/"))


def on(rows: Sequence[Served], engine: EngineProfile) -> list[Served]:
    """Return runs under an engine."""
    return [replace(row, deployment={**row.deployment, "engine": engine}) for row in rows]


def errors(rows: Sequence[Served], engine: EngineProfile) -> pd.Series:
    """Return predicted over measured less one, by run [-]."""
    steps = measured_steps(on(rows, engine))
    error = steps.predicted(engine.overheads) / steps.measured - 1
    return pd.Series(error, index=pd.Index([row.row for row in rows]))


def fitted(rows: Sequence[Served], engine: EngineProfile) -> EngineProfile:
    """Return the engine on the host of the runs."""
    return update_engine(rows, engine, date=date.today().isoformat()).profile


def table(rows: Sequence[Served], engine: EngineProfile) -> pd.DataFrame:
    """Return mean errors by configuration: as shipped, fitted, and fitted without it [-]."""
    shipped, own = errors(rows, engine), errors(rows, fitted(rows, engine))
    found = []
    for name in dict.fromkeys(row.labels["name"] for row in rows):
        mine = [row for row in rows if row.labels["name"] == name]
        rest = [row for row in rows if row.labels["name"] != name]
        places = [row.row for row in mine]
        left_out = errors(mine, fitted(rest, engine))
        found.append(
            {
                "configuration": name,
                "rows": len(mine),
                "drafts": mine[0].quantity == "step_time",
                "shipped": shipped[places].abs().mean(),
                "bias": shipped[places].mean(),
                "fitted": own[places].abs().mean(),
                "left_out": left_out.abs().mean(),
            }
        )
    return pd.DataFrame(found)


def means(found: pd.DataFrame) -> pd.DataFrame:
    """Return the table with means over rows of plain steps and of those with a draft."""
    shares = [c for c in ("shipped", "bias", "fitted", "left_out") if c in found]
    lines = []
    for drafts, part in found.groupby("drafts"):
        weights = part["rows"] / part["rows"].sum()
        own = {name: (part[name] * weights).sum() for name in shares}
        words = "all with a draft" if drafts else "all plain"
        lines.append({"configuration": words, "rows": part["rows"].sum(), "drafts": drafts} | own)
    return pd.concat([found, pd.DataFrame(lines)], ignore_index=True)


def judged(rows: Sequence[Served], engines: Mapping[str, EngineProfile]) -> pd.DataFrame:
    """Return mean errors by configuration under engines that no row was shown to [-]."""
    own = {name: errors(rows, engine).abs() for name, engine in engines.items()}
    frame = pd.DataFrame(own)
    frame["configuration"] = [row.labels["name"] for row in rows]
    frame["drafts"] = [row.quantity == "step_time" for row in rows]
    groups = frame.groupby(["configuration", "drafts"], sort=False)
    found = groups[list(engines)].mean()
    return found.assign(rows=groups.size()).reset_index()


def first_tokens(path: Path, hardware: str, engine: EngineProfile) -> pd.DataFrame:
    """Return measured times to the first token of prompts alone, and their passes [ms]."""
    found = []
    for row in pd.read_csv(path).to_dict("records"):
        deployment = _plain(row, hardware, engine)
        seconds = float(prefill_pass(deployment, float(row["prompt_tokens"])).total_time)
        told = {name: row[name] for name in ("name", "prompt_tokens", "ttft_ms")}
        found.append(told | {"predicted_ms": 1e3 * seconds})
    return pd.DataFrame(found)


def added(path: Path, hardware: str, engine: EngineProfile) -> pd.DataFrame:
    """Return measured and predicted times that prompts add to steps of plain batches [ms]."""
    found = []
    for row in pd.read_csv(path).query("method == 'none'").to_dict("records"):
        deployment = _plain(row, hardware, engine)
        prompt = whole_prompts(deployment, float(row["prompt_tokens"]))
        step: dict[str, Any] = {
            "requests": float(row["batch"]),
            "draft_length": 0,
            "context": float(row["context"]),
        }
        both, alone = (mixed_step_time(deployment, **step, prompts=p) for p in ((prompt,), ()))
        told = {name: row[name] for name in ("name", "batch", "prompt_tokens", "added_ms")}
        found.append(told | {"predicted_ms": 1e3 * float(both - alone)})
    return pd.DataFrame(found)


def _plain(row: Mapping[Any, Any], hardware: str, engine: EngineProfile) -> Deployment:
    """Return the deployment of a row without a drafter."""
    target = shipped_model(str(row["model"]).replace("__", "/"))
    routing = RANDOM if load_architecture(target).is_moe else {}
    return deploy(target=target, hardware=hardware, engine=engine, **routing)[0]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("fit", type=Path, nargs="?", default=STEPS, help="to fit the host to")
    parser.add_argument(
        "judge", type=Path, nargs="*", default=[OTHERS, THIRD], help="to judge it by"
    )
    parser.add_argument("--engine", default="vllm-0.24")
    parser.add_argument("--hardware", default="h200")
    parser.add_argument("--output", type=Path, help="engine on this host to write")
    options = parser.parse_args()
    rows = read_steps(options.fit, options.hardware)
    engine = load_engine(options.engine)
    update = update_engine(rows, engine, date=date.today().isoformat(), version=options.engine)
    shares = dict.fromkeys(("shipped", "bias", "fitted", "left_out"), "{:.1%}".format)
    print(means(table(rows, engine)).to_string(index=False, formatters=shares))
    for moved in update.moved:
        print(f"{moved.name}: {moved.before:.3g} -> {moved.after:.3g}")
    for path in options.judge:
        others = read_steps(path, options.hardware)
        found = judged(others, {"shipped": engine, "fitted": update.profile})
        print(means(found).to_string(index=False, formatters=shares))
        for suffix, judge in ((".prompts.csv", first_tokens), (".beside.csv", added)):
            if (beside := path.with_suffix(suffix)).is_file():
                told = judge(beside, options.hardware, engine)
                print(told.to_string(index=False, float_format="{:.1f}".format))
    if options.output:
        write_text(options.output, toml_text(update.profile) + "\n")


if __name__ == "__main__":
    main()
