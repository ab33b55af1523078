"""Judge predictions of llama.cpp with published runs that no number was fitted to.

Usage: python calibration/llama_judge.py [-v]. Reads tables/llama_speculative.csv (one slot, short
contexts), llama_speculative_wide.csv (several slots, long contexts) and llama_host_experts.csv
(plain rates with experts on the host). The script prints how often the sign of the gain is right,
and median errors. The acceptance is that of each run.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from llama_bench import machine
from specmodel import deploy, load_architecture, predict
from specmodel.core.base.dtypes import check_dtype
from specmodel.core.cost.latency import target_pass
from specmodel.core.layers.batch import SequenceGroup

TABLES = Path(__file__).parent / "tables"
MACHINES = {
    "Apple M4 Pro 64 GB": "m4_pro",
    "Apple M2 Ultra 192 GB": "m2_ultra",
    "RTX 3060 12 GB": "rtx_3060",
    "Instinct MI50": "mi50",
    "RX 6900 XT 16 GB": "rx_6900_xt",
    "RX 7900 XT 20 GB": "rx_7900_xt",
    "RTX 2080 8 GB": "rtx_2080",
}
TARGETS = {"Qwen2.5-Coder-32B-Instruct": "qwen3-32b", "DeepSeek-Coder-V2-Lite": "deepseek-v2-lite"}
"""Shapes that replace models that do not ship."""
SMALL = "qwen3.5-0.8b"
DRAFTERS = {
    "mtp": "mtp",
    "dflash": "dflash",
    "ngram-map-k4v": "ngram",
    "Qwen2.5-Coder-3B Q4_0": "qwen3-4b",
    "llama-3.2-1b Q8_0": "llama-3.2-1b",
    "Qwen3.5-0.8B Q4_K_M": SMALL,
    "mtp-gemma-4-31B-it": "gemma-4-31b-it-assistant",
}
BACKENDS = {"rocm": "hip"}
HOSTS = {
    "EPYC 7343": (204.8, 16),
    "Ryzen 7 5800X": (51.2, 8),
    "Ryzen 9 5900X": (51.2, 12),
    "Ryzen 9 7900": (83.2, 12),
    "Ryzen 9 9950X": (89.6, 16),
    "Core i9-10900X": (93.9, 10),
}
"""Bandwidth of all memory channels of a processor [GB/s], and cores, for runs that do not state
them."""
USUAL = {"rtx": "cuda", "gb": "cuda", "rx": "hip", "mi": "hip", "strix": "vulkan", "m": "metal"}
"""Back ends by how names of machines begin."""
CONTEXT = 512
"""Entries of the cache for runs that do not state them [token]."""


def where_of(row: Any) -> dict[str, Any]:
    """Return what runs where in a row."""
    name = MACHINES.get(row.machine, row.machine)
    told = str(getattr(row, "backend", "nan"))
    told = BACKENDS.get(told, told)
    if told == "nan":
        told = next(kind for start, kind in USUAL.items() if name.startswith(start))
    dtype = check_dtype("weight_type", row.weight_type) if is_dtype(row.weight_type) else "q8_0"
    target = TARGETS.get(row.target, row.target)
    hardware = machine(name, told)
    return {"target": target, "hardware": hardware, "engine": "llama.cpp", "weight_dtype": dtype}


def is_dtype(name: Any) -> bool:
    """Return whether the name of the file's type is a known dtype."""
    return isinstance(name, str) and " " not in name and name.lower() != "mxfp4"


def rows_of(path: Path) -> list[Any]:
    """Return the rows of a table, whose columns are attributes."""
    return [*pd.read_csv(path, comment="#").itertuples()]


def speedups(path: Path) -> pd.DataFrame:
    """Return measured and predicted speedups of a table."""
    found = []
    for row in rows_of(path):
        kind = row.drafter if row.drafter in DRAFTERS else row.draft_type
        own = {"tokens_per_step": row.tokens_per_step}
        if pd.isna(row.tokens_per_step):
            own = {"accepted_fraction": row.accepted_fraction}
        if DRAFTERS[str(kind)] == "ngram":  # as often as both of what was measured say
            drafted = row.accepted_fraction * row.draft_length
            own |= {"proposal_rate": (row.tokens_per_step - 1) / drafted}
        points = {
            "draft_length": int(row.draft_length),
            "batch_size": 1 if pd.isna(row.slots) else int(row.slots),
            "context_length": CONTEXT if pd.isna(row.context) else int(row.context),
        }
        told: Any = where_of(row) | own | points
        error = ""
        try:
            drafter: Any = DRAFTERS[str(kind)]
            if drafter == SMALL:  # of another vocabulary, as small
                size = load_architecture(told["target"]).vocabulary_size
                small = load_architecture("qwen3-0.6b")
                drafter = small.with_changes("drafter", {"vocabulary_size": size})
            predicted = float(np.ravel(predict(**told, drafter=drafter).speedup)[0])
        except ValueError as fault:
            predicted, error = float("nan"), str(fault)[:90]
        measured = row.speedup
        found.append((row.id, row.machine, row.target, row.drafter, measured, predicted, error))
    names = ["id", "machine", "target", "drafter", "measured", "predicted", "error"]
    return pd.DataFrame(found, columns=names)


def of_host(path: Path) -> pd.DataFrame:
    """Return measured and predicted plain tokens a second with experts on the host."""
    found = []
    for row in rows_of(path):
        told = where_of(row)
        of_host, cores = HOSTS[row.host]
        of_host = of_host if pd.isna(row.host_gb_per_s) else float(row.host_gb_per_s)
        changes = {"host_bytes_per_s": of_host * 1e9, "host_cores": cores}
        told["hardware"] = told["hardware"].with_changes("hardware", changes)
        layers: Any = row.n_cpu_moe if row.n_cpu_moe == "all" else int(row.n_cpu_moe)
        deployment = deploy(**told, host_expert_layers=layers)[0]
        context = CONTEXT if pd.isna(row.context) else float(row.context)
        group = SequenceGroup(batch_size=1.0, context_length=context)  # type: ignore[arg-type]  # numbers do
        predicted = 1 / float(target_pass(deployment, group).total_time)
        found.append((row.id, row.machine, row.target, row.plain_tok_s, predicted))
    return pd.DataFrame(found, columns=["id", "machine", "target", "measured", "predicted"])


def main(*arguments: str) -> None:
    for name in ("llama_speculative", "llama_speculative_wide"):
        d = speedups(TABLES / f"{name}.csv")
        known = d.dropna(subset=["predicted"])
        right = ((known["measured"] > 1) == (known["predicted"] > 1)).sum()
        error = (known["predicted"] / known["measured"] - 1).abs()
        print(f"{name}: signs {right} of {len(known)}, median error {error.median():.3f}")
        if "-v" in arguments:
            print(d.to_string())
    d = of_host(TABLES / "llama_host_experts.csv")
    error = (d["predicted"] / d["measured"] - 1).abs()
    within = f"{(error < 0.25).sum()} of {len(d)} within 25 %"
    print(f"llama_host_experts: {within}, median error {error.median():.3f}")
    if "-v" in arguments:
        print(d.to_string())


if __name__ == "__main__":
    main(*sys.argv[1:])
