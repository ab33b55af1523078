"""Judge an engine that was fitted to a third of the loads on the others, and a schedule.

    python calibration/real_judge.py FOLDER ...

A FOLDER (results/vllm_cpu_*) has served.K.csv, the closed loops of a real server at each draft
length K; target/config.json; drafter/config.json unless the target contains the drafter; and
cpu.toml. If the server also ran with a schedule, there are schedule.json and served.schedule.csv.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from msgspec.structs import replace

from specmodel.calibrate.fit import EngineUpdate, update_engine
from specmodel.calibrate.fit.measured import read_benchmarks, served_runs
from specmodel.calibrate.fit.measured.runs import mean_range
from specmodel.calibrate.fit.steps import MeasuredSteps, measured_steps
from specmodel.core.base.files import write_text
from specmodel.core.base.records import toml_text
from specmodel.core.machines.engine import EngineProfile, load_engine

LOAD = ["concurrency", "prompt"]
"""Columns in which loads differ."""


def judge(folder: Path, engine: str) -> str:
    """Fit an engine to a third of the loads, predict all loads, and report the errors.

    Writes engine.toml, loads.csv (measured and predicted values of each load), judged.csv and .png
    (with and without speculation) into the folder.
    """
    where = {
        "target": f"{folder}/target/config.json",
        "drafter": drafter_named(folder),
        "hardware": f"{folder}/cpu.toml",
        "stack": "torch",
    }
    paths = sorted(folder.glob("served.[0-9].csv"))
    table = pd.concat([pd.read_csv(path) for path in paths], ignore_index=True)
    runs = read_benchmarks(paths)
    if len(runs) != len(table):
        raise SystemExit("the summary has rows that are no runs of their own")
    base = load_engine(engine)
    rows = served_runs(runs, where | {"engine": base})
    # every third load with all its draft lengths: what is predicted are loads that were not seen
    loads = [(run.concurrency, round(run.prompt_length or 0)) for run in runs]
    known = set(sorted(set(loads))[1::3])
    is_fitted = np.array([load in known for load in loads])
    fitted = [row for row, is_in in zip(rows, is_fitted, strict=True) if is_in]
    today = date.today().isoformat()
    version = str(table["engine_version"][0])
    update = update_engine(fitted, base, date=today, version=version)
    write_text(folder / "engine.toml", toml_text(update.profile) + "\n")
    steps = _steps(rows, update.profile)
    idle = replace(steps, prefills=np.zeros(len(rows)))
    found = table.assign(
        prompt=[load[1] for load in loads],
        is_fitted=is_fitted,
        measured=table["step_ms"] / 1e3,
        predicted=steps.predicted(update.profile.overheads),
        idle_predicted=idle.predicted(update.profile.overheads),
    )
    both = compared(without_prefill(found))
    _save(found, folder / "loads.csv")
    _save(both, folder / "judged.csv")
    figure(both, folder / "judged.png")
    return told(both) + _unlike_known(update)


def _unlike_known(update: EngineUpdate) -> str:
    """Return lines on what known hosts do not explain, if anything."""
    taken = 1e3 * update.profile.overheads.on_host().reject_time_per_request
    lines = "".join(f"\nwarning: {told.found}" for told in update.fit_warnings[:1])
    if update.is_unlike_known:
        lines += f"\na request of a step with a draft: {taken:.2g} ms, unlike on known hosts"
    if excess := update.excess_speedup:
        lines += f"\nspeedups of the loads fitted: {excess:+.0%}, which nothing known explains"
    return lines


def drafter_named(folder: Path) -> str:
    """Return the drafter as an argument of specmodel: its configuration, or the target's block."""
    own = folder / "drafter/config.json"
    return str(own) if own.exists() else "mtp"


def _steps(rows: Sequence[Any], profile: EngineProfile) -> MeasuredSteps:
    """Return the time that the processor needs for runs with an engine."""
    own = [replace(row, deployment={**row.deployment, "engine": profile}) for row in rows]
    return measured_steps(own)


def without_prefill(found: pd.DataFrame) -> pd.DataFrame:
    """Return steps without the prompts of other requests, each of which is a lone first token."""
    kind = ["draft_length", "prompt"]
    lone = found[found["concurrency"] == 1].set_index(kind)["ttft_ms"].rename("prefill")
    own = found.join(lone, on=kind)
    carried = (own["concurrency"] - 1) / own["output_length"] * own["tokens_per_step"]
    idle = own["measured"] - carried * own["prefill"] / 1e3
    return own.drop(columns="prefill").assign(idle_measured=idle)


def compared(found: pd.DataFrame) -> pd.DataFrame:
    """Return speculative loads with the plain ones: ratios of steps, speedups, and their errors."""
    kinds = ("measured", "predicted", "idle_measured", "idle_predicted")
    found = found.assign(noise=noise(found))
    plain = found[found["draft_length"] == 0][[*LOAD, *kinds, "noise"]]
    both = found[found["draft_length"] > 0].merge(plain, on=LOAD, suffixes=("", "_plain"))
    for kind in kinds:
        both[f"ratio_{kind}"] = both[kind] / both[f"{kind}_plain"]
    for kind in kinds[:2]:
        both[f"speedup_{kind}"] = both["tokens_per_step"] / both[f"ratio_{kind}"]
    both["ratio_error"] = both["ratio_predicted"] / both["ratio_measured"] - 1.0
    both["speedup_error"] = both["speedup_predicted"] / both["speedup_measured"] - 1.0
    return both.assign(noise=np.hypot(both["noise"], both["noise_plain"]))


def noise(found: pd.DataFrame) -> pd.Series:
    """Return the standard error of steps by how far repeats differ; NaN of single ones [-]."""
    repeats = found["repeats"]
    return found["step_spread"] / repeats.map(mean_range) / repeats.pow(0.5)


def told(both: pd.DataFrame) -> str:
    """Return errors on loads that were fitted and on others, in lines."""
    lines, floor = [], both["noise"].mean()
    unsure = both["noise"].fillna(0.0 if np.isnan(floor) else floor)
    for is_fitted, part in both.groupby("is_fitted"):
        ratio, speedup = part["ratio_error"].abs(), part["speedup_error"].abs()
        sure = part[(part["speedup_measured"] - 1.0).abs() > unsure[part.index]]
        right = ((sure["speedup_measured"] > 1.0) == (sure["speedup_predicted"] > 1.0)).sum()
        lines.append(
            f"{'fitted' if is_fitted else 'not fitted':10} {len(part):3} loads: ratio of steps off"
            f" by {ratio.mean():.1%} (worst {ratio.max():.1%}), speedup {speedup.mean():.1%},"
            f" sign right in {right} of {len(sure)}; noise {floor:.1%}"
        )
    return "\n".join(lines)


def figure(both: pd.DataFrame, path: Path) -> None:
    """Draw the plain step over the speculative one by batch size, without prefill of others."""
    from matplotlib.figure import Figure

    prompts, lengths = sorted(both["prompt"].unique()), sorted(both["draft_length"].unique())
    drawn = Figure(figsize=(3.0 * len(prompts) + 1.2, 3.0), layout="constrained")
    panels = drawn.subplots(1, len(prompts), squeeze=False, sharey=True)[0]
    for axes, prompt in zip(panels, prompts, strict=True):
        for place, length in enumerate(lengths):
            part = both[(both["prompt"] == prompt) & (both["draft_length"] == length)]
            x, color = part["concurrency"], f"C{place}"
            axes.plot(x, 1 / part["ratio_idle_predicted"], color=color, label=f"{length} drafted")
            seen = part["is_fitted"]
            for is_seen, fill in ((True, color), (False, "none")):
                y = 1 / part["ratio_idle_measured"][seen == is_seen]
                axes.plot(x[seen == is_seen], y, "o", color=color, markerfacecolor=fill, ms=4)
        _by_batch(axes, both["concurrency"], prompt)
    panels[0].set_ylabel("plain step / step with a draft")
    _explained(drawn, panels[0], "lines: predicted\nfilled: fitted")
    drawn.savefig(path, dpi=150)


def _by_batch(axes: Any, batches: pd.Series | pd.Index, prompt: int) -> None:
    """Have a panel of one prompt length show batch sizes by their logarithm."""
    axes.set_xscale("log")
    axes.minorticks_off()
    axes.set_xticks(sorted(set(batches)), labels=[f"{n:g}" for n in sorted(set(batches))])
    axes.set(title=f"prompts of {prompt} tokens", xlabel="batch size")


def _explained(drawn: Any, axes: Any, title: str) -> None:
    """Add a legend next to the panels of a figure."""
    handles, labels = axes.get_legend_handles_labels()
    small = {"fontsize": 7, "title_fontsize": 7}
    drawn.legend(handles, labels, loc="outside right center", title=title, **small)


# A schedule


def judge_schedule(folder: Path) -> str:
    """Compare times per token with the schedule and with each draft length alone.

    Writes scheduled.csv and .png into the folder.
    """
    drafts = json.loads((folder / "schedule.json").read_text())
    loads = pd.read_csv(folder / "loads.csv")
    loads = loads.assign(predicted=loads["predicted"] / loads["tokens_per_step"] * 1e3)
    alone, foreseen = (
        loads.pivot_table(index=LOAD, columns="draft_length", values=value)
        for value in ("tpot_ms", "predicted")
    )
    own = pd.read_csv(folder / "served.schedule.csv")
    own["prompt"] = own["prompt_length"].round().astype(int)
    own = own.set_index(LOAD).loc[alone.index]
    lengths = [scheduled_length(drafts, batch) for batch, _ in alone.index]
    if missing := sorted({*lengths} - {*alone}):
        expected = "not one of the draft lengths measured alone: measure --lengths"
        raise SystemExit(f"schedule.json: {missing[0]}, {expected}")
    found = pd.DataFrame(
        {
            "draft_length": lengths,
            "tpot_ms": own["tpot_ms"],
            "predicted_ms": [foreseen[n].iloc[i] for i, n in enumerate(lengths)],
            "plain_ms": alone[0],
            "plain_predicted_ms": foreseen[0],
            **{f"length_{n}_ms": alone[n] for n in alone.columns if n},
            "noise": own["step_spread"],
        }
    )
    _save(found.reset_index(), folder / "scheduled.csv")
    figure_of_schedule(found, folder / "scheduled.png")
    return told_of_schedule(found, alone)


def scheduled_length(drafts: Mapping[str, Any], batch_size: int) -> int:
    """Return the draft length that vLLM uses at a batch size."""
    whole = [[1, batch_size, drafts["num_speculative_tokens"]]]
    ranges = drafts.get("num_speculative_tokens_per_batch_size", whole)
    return int([n for first, _, n in ranges if first <= batch_size][-1])


def told_of_schedule(found: pd.DataFrame, alone: pd.DataFrame) -> str:
    """Return what the schedule gains, in lines."""
    own = found["tpot_ms"]
    at_each = own / alone.min(axis=1) - 1.0
    whole = np.log(alone).mean()  # each load counts alike
    best = int(whole.idxmin())
    gain = float(np.exp(np.log(alone[best] / own).mean()) - 1.0)
    speedup, foreseen = found["plain_ms"] / own, found["plain_predicted_ms"] / found["predicted_ms"]
    lines = [
        f"draft lengths {dict(zip(alone.index, found['draft_length'], strict=True))}",
        f"time of a token against the best length at each load: {at_each.mean():+.1%}"
        f" (worst {at_each.max():+.1%}); repeats differ by {found['noise'].mean():.1%}",
        f"throughput against length {best}, the best on the whole: {gain:+.1%}",
        f"speedup {speedup.min():.2f}-{speedup.max():.2f}, predicted"
        f" {foreseen.min():.2f}-{foreseen.max():.2f}, off by"
        f" {(foreseen / speedup - 1.0).abs().mean():.1%}",
    ]
    return "\n".join(lines)


def figure_of_schedule(found: pd.DataFrame, path: Path) -> None:
    """Draw speedups by batch size: of each length alone, of the schedule, and as predicted."""
    from matplotlib.figure import Figure

    prompts = sorted(found.index.unique("prompt"))
    drawn = Figure(figsize=(3.0 * len(prompts) + 1.2, 3.0), layout="constrained")
    panels = drawn.subplots(1, len(prompts), squeeze=False, sharey=True)[0]
    alone = [name for name in map(str, found) if name.startswith("length_")]
    for axes, prompt in zip(panels, prompts, strict=True):
        part = found.xs(prompt, level="prompt")
        for name in alone:
            speedup = part["plain_ms"] / part[name]
            axes.plot(part.index, speedup, color="0.75", lw=1)
            axes.annotate(name.split("_")[1], (part.index[-1], speedup.iloc[-1]), fontsize=6)
        foreseen = part["plain_predicted_ms"] / part["predicted_ms"]
        axes.plot(part.index, foreseen, "--", color="C0", label="schedule, predicted")
        axes.plot(part.index, part["plain_ms"] / part["tpot_ms"], "o", color="C0", label="measured")
        axes.axhline(1.0, color="0.5", lw=0.5)
        _by_batch(axes, part.index, prompt)
    panels[0].set_ylabel("speedup")
    _explained(drawn, panels[0], "grey: each\nlength alone")
    drawn.savefig(path, dpi=150)


def _save(table: pd.DataFrame, path: Path) -> None:
    write_text(path, table.to_csv(index=False, float_format="%.6g"))


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    parser.add_argument("--engine", default="vllm", help="profile to start from")
    given = parser.parse_args()
    for folder in map(Path.resolve, given.folders):
        print(judge(folder, given.engine))
        if (folder / "served.schedule.csv").exists():
            print(judge_schedule(folder))


if __name__ == "__main__":
    main()
