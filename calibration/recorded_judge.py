"""Judge how copy runs rank policies: fitted to half of the recordings, judged on the other.

Usage: python calibration/recorded_judge.py FOLDER ... (folders as in `recordings.py`; three
minutes). The script prints the rank correlation of the speedups of 13 policies between requests of
the fitted process and the half that no fit used. For comparison, it prints the rank correlation
between the two halves: no process of one half can be expected to exceed it. Deployments, policies
and the list of files were chosen before any fit.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from copy_runs import fit_copy_runs
from recordings import KINDS, LOOK_UPS, Recorded, half, recorded, trace_of
from specmodel.core.cost.deploying import deploy
from specmodel.simulate import ReplayTimes, replay_times, simulate, summarise
from specmodel.simulate.traces import Trace, sample_trace, trace_statistics

RESULTS = Path(__file__).parent / "results/recordings"
DEPLOYMENTS: dict[str, dict[str, Any]] = {
    "Mixtral-8x7B, RTX 6000 Ada": {
        "target": "mixtral-8x7b", "weight_dtype": "fp8", "hardware": "rtx_6000_ada",
        "memory_utilization": 0.95, "engine": "vllm-moesd-2025",
    },
    "Qwen3-30B-A3B, H100": {"target": "qwen3-30b-a3b", "hardware": "h100_sxm", "engine": "vllm"},
    "Qwen3-Next-80B-A3B, H200, hybrid": {
        "target": "qwen3-next-80b-a3b", "hardware": "h200_sxm", "engine": "vllm",
        "tensor_parallel": 2,
    },
    "OLMoE-1B-7B, L4": {"target": "olmoe-1b-7b", "hardware": "l4", "engine": "vllm"},
    "DeepSeekMoE-16B, L40S": {
        "target": "deepseek-moe-16b", "hardware": "l40s", "engine": "vllm"
    },
}  # fmt: skip
POLICIES = (
    "none", *(f"fixed:{length}" for length in range(1, 8)), "cascade", "cascade:backoff_factor=1",
    "goodput", "sglang",
)  # fmt: skip
SHOWN = ("none", "fixed:1", "fixed:3", "fixed:7", "best-fixed", "cascade", "goodput", "sglang",
         "oracle")  # fmt: skip
KEPT = ("policy", "requests", "speedup", "mean_speedup", "speedup_p5", "worst_speedup",
        "worst_request", "tokens_per_step", "test_share", "regret")  # fmt: skip
CONTEXT, LONGEST = 1024, 7
SETS = 16
"""Number of sets of requests drawn from a process, each with the number and length of requests of
the half. A policy that servers keep can then learn for as long, and little of the ranking is chance
[-]."""


def times_of(name: str) -> ReplayTimes:
    """Return step times of a deployment, the same at every step."""
    deployment, _ = deploy(drafter="ngram", **DEPLOYMENTS[name])
    return replay_times(deployment, max_draft_length=LONGEST, context_length=CONTEXT)


def speedups(traces: list[Trace], times: ReplayTimes, seed: int) -> pd.Series:
    """Return the speedup of each policy over traces that are replayed one by one."""
    records = pd.concat(simulate(trace, times, POLICIES, seed=seed) for trace in traces)
    sums = records.groupby("policy", observed=True)[["plain_time", "time"]].sum()
    return sums["plain_time"] / sums["time"]


def drawn_like(trace: Trace, name: str) -> list[Trace]:
    """Return sets of requests of a process that is fitted to a trace, of its lengths."""
    lengths, generator = trace.output_tokens, np.random.default_rng(1)
    process = fit_copy_runs(trace_statistics(trace), name, "recordings", lengths)
    return [sample_trace(process, len(lengths), lengths, generator) for _ in range(SETS)]


def ranking(texts: dict[str, list[Recorded]]) -> pd.DataFrame:
    """Return rank correlations by kind of text, look-up and deployment."""
    rows = []
    for kind in KINDS:
        for look_up in LOOK_UPS:
            fitted, held = (trace_of(half(texts[kind], number), look_up) for number in (0, 1))
            drawn = drawn_like(fitted, f"{kind}, {look_up}")
            for name in DEPLOYMENTS:
                times = times_of(name)
                judge = speedups([held], times, 0)
                rows.append({
                    "texts": kind, "look_up": look_up, "deployment": name,
                    "process": spearmanr(speedups(drawn, times, 2), judge).statistic,
                    "other_half": spearmanr(speedups([fitted], times, 3), judge).statistic,
                })  # fmt: skip
    return pd.DataFrame(rows)


def policies(texts: dict[str, list[Recorded]]) -> pd.DataFrame:
    """Return the figures of policies over all recordings, on three of the deployments."""
    rows = []
    for kind in KINDS:
        for look_up in LOOK_UPS:
            trace = trace_of(texts[kind], look_up)
            for name in list(DEPLOYMENTS)[:3]:
                records = simulate(trace, times_of(name), SHOWN, seed=0)
                table = summarise(records, np.random.default_rng(0))
                rows.append(table.assign(texts=kind, look_up=look_up, deployment=name))
    return pd.concat(rows, ignore_index=True)


def judge(texts: dict[str, list[Recorded]]) -> None:
    """Write both tables, and compare the process with the other half."""
    RESULTS.mkdir(exist_ok=True)
    ranks = ranking(texts)
    ranks.to_csv(RESULTS / "ranking.csv", index=False, float_format="%.4f")
    columns = ["texts", "look_up", "deployment"]
    table = policies(texts)
    table[[*columns, *KEPT]].to_csv(RESULTS / "policies.csv", index=False, float_format="%.4f")
    print(ranks.groupby(["texts", "look_up"])[["process", "other_half"]].mean().round(3))


if __name__ == "__main__":
    judge(recorded([Path(word) for word in sys.argv[1:]]))
