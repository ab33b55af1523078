"""Predict plain decoding of six models on H200 and B200 with three engines.

Usage: python calibration/served_engines.py [results/served_engines.csv]

The table has TPOT in ms at batch sizes 1, 16 and 128 at context 1,500 (a request of 1,024 in and
1,024 out). No prompts are carried, and each checkpoint is in its usual form. Published times are in
the rows of the same engine, GPU and layout, with their batch size if it differs.
"""

import sys
from pathlib import Path
from typing import Any

import pandas as pd

from specmodel import decode, deploy
from specmodel.core.base.errors import InputError

MODELS: dict[str, dict[str, Any]] = {
    "gpt-oss-120b": {"tensor_parallel": 1},
    "qwen3-235b-a22b": {"tensor_parallel": 8, "weight_dtype": "fp8_block"},
    "deepseek-v3.2": {"tensor_parallel": 8},
    "deepseek-v4-flash": {"tensor_parallel": 4},
    "kimi-k2.6": {"tensor_parallel": 8},
    "minimax-m3": {"tensor_parallel": 8, "weight_dtype": "fp8_block"},
}
"""Each model as it is served: how many GPUs, and the dtype of its weights where not its own."""
GPUS, ENGINES = ("h200_sxm", "b200"), ("vllm", "sglang", "tensorrt-llm")
BATCHES, CONTEXT = (1, 16, 128), 1500.0
PUBLISHED: dict[tuple[str, str, str], tuple[tuple[int, float], ...]] = {
    ("gpt-oss-120b", "h200_sxm", "tensorrt-llm"): (
        (4, 6.88), (8, 8.47), (16, 11.44), (32, 15.26), (64, 20.46)
    ),
}  # fmt: skip
"""Published times [ms] by batch size: tests/data/decode_times.csv."""


def row_of(model: str, hardware: str, engine: str) -> dict[str, Any]:
    """Return a row of the table."""
    asked = {"target": model, "hardware": hardware, "engine": engine, **MODELS[model]}
    row: dict[str, Any] = {"model": model, "GPUs": f"{asked['tensor_parallel']} x {hardware}"}
    row["engine"] = engine
    told = PUBLISHED.get((model, hardware, engine), ())
    sizes = sorted({*BATCHES, *(size for size, _ in told)})
    try:
        found = decode(**asked, batch_size=sizes, context_length=CONTEXT, interval=True)
    except InputError as error:
        return row | {"note": f"{error.argument}: {error.expected}"}
    ms = dict(zip(sizes, found.tpot * 1e3, strict=True))
    fits = dict(zip(sizes, found.fits, strict=True))
    ends = (found.intervals or {})["tpot"]
    within = dict(zip(sizes, zip(ends.low * 1e3, ends.high * 1e3, strict=True), strict=True))
    for size in BATCHES:
        low, high = within[size]
        room = "" if fits[size] else ", no room"
        row[f"batch {size}"] = f"{ms[size]:.3g} ({low:.3g} to {high:.3g}){room}"
    row["note"] = other_kernels(asked)
    row["published (predicted)"] = ", ".join(f"{n}: {t} ({ms[n]:.3g})" for n, t in told)
    return row


def other_kernels(asked: dict[str, Any]) -> str:
    """Say which kernels are not the engine's own."""
    _, assumed = deploy(**asked)
    others = [name.partition("_")[0] for name, said in assumed.items() if "kernels" in str(said)]
    return f"other kernels for {', '.join(dict.fromkeys(others))}" if others else ""


def main(path: str | None) -> None:
    rows = [row_of(m, g, e) for m in MODELS for g in GPUS for e in ENGINES]
    table = pd.DataFrame(rows).fillna("")
    lines = [list(table), *table.to_numpy().tolist()]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:  # the only wide column is the last, of few rows
        print("  ".join(map(str.ljust, line, widths)).rstrip())
    if path:
        table.to_csv(Path(path), index=False, lineterminator="\n")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
