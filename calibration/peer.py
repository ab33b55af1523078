"""Predict published decode times of whole engines with AIConfigurator 0.12.0.

Run the script with the Python of a separate environment, which needs only
``aiconfigurator==0.12.0``:

    python -m venv .peer && .peer/bin/pip install aiconfigurator==0.12.0
    .peer/bin/python calibration/peer.py decode_tpot.csv peer.csv

The peer receives the layout and the dtypes of each run, mean lengths of prompts and outputs, and
its own tables of the engine (the newest version it has, as it chooses by default). Rows are drawn
with a fixed seed until the requested number has answers; rows that it cannot predict are counted.
`specmodel fit check --serving` judges this package on rows with the same numbers.
"""

import argparse
import contextlib
import csv
import io
import logging
import random
import statistics
from collections import Counter, defaultdict
from pathlib import Path

Row = dict[str, str]
"""A row of a table, by column."""

MODELS: dict[tuple[str, str], tuple[str, dict[str, str]]] = {
    ("DeepSeek-R1", "fp8"): ("deepseek-ai/DeepSeek-R1", {}),
    ("DeepSeek-R1", "fp4"): ("nvidia/DeepSeek-V3.1-NVFP4", {}),
    ("Llama-3.1-70B", "fp8"): ("nvidia/Llama-3.1-70B-Instruct-FP8", {}),
    ("Llama-3.1-70B", "fp4"): ("meta-llama/Meta-Llama-3.1-70B", {"gemm_quant_mode": "nvfp4"}),
    ("MiniMax-M2.5", "fp8"): ("MiniMaxAI/MiniMax-M2.5", {}),
    ("MiniMax-M2.5", "fp4"): ("nvidia/MiniMax-M2.5-NVFP4", {}),
    ("Qwen3-32B", "bf16"): ("Qwen/Qwen3-32B", {}),
    ("Qwen3-32B", "fp8"): ("Qwen/Qwen3-32B-FP8", {}),
    ("Qwen3-32B", "fp4"): ("Qwen/Qwen3-32B", {"gemm_quant_mode": "nvfp4"}),
}
"""Checkpoints, and dtypes that they do not state. The peer knows a model by its shape: the shape of
DeepSeek-V3.1 is that of R1, and its checkpoint has the dtypes of R1 in fp4."""

DENSE = ("Llama-3.1-70B", "Qwen3-32B")
MOST_QUEUED = 0.3
NAMES = (
    *("row", "model", "dtype", "system", "backend", "gpus", "concurrency", "isl", "osl"),
    *("measured_tpot_ms", "predicted_tpot_ms"),
)


def clean_rows(path: str) -> list[Row]:
    """Return the rows of a table that measure plain decoding without a queue."""
    with Path(path).open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [
        row
        for row in rows
        if row["clean"] == "True"
        and row["mtp"] == "off"
        and float(row["queued_share"]) <= MOST_QUEUED
    ]


def layout(row: Row) -> dict[str, int]:
    """Return degrees as the peer names them."""
    gpus, spread = int(row["gpus"]), int(row["expert_parallel"])
    if row["model"] in DENSE:
        return {"tp_size": gpus}
    is_parallel = row["attention_data_parallel"] == "True"
    own = {"tp_size": 1, "attention_dp_size": gpus} if is_parallel else {"tp_size": gpus}
    return own | {"moe_ep_size": spread, "moe_tp_size": gpus // spread}


def estimate(row: Row) -> float:
    """Return the time per output token of a row by the peer [ms]."""
    from aiconfigurator.cli.api import cli_estimate

    isl, osl = int(row["isl"]), int(row["osl"])
    shorter = float(row["mean_context"]) / (isl + osl / 2)
    path, dtypes = MODELS[row["model"], row["dtype"]]
    degrees = layout(row)
    replicas = degrees.get("attention_dp_size", 1)
    found = cli_estimate(
        path,
        row["system"],
        backend_name=row["backend"],
        isl=round(isl * shorter),
        osl=round(osl * shorter),
        batch_size=max(round(int(row["concurrency"]) / replicas), 1),
        **degrees,
        **dtypes,
    )
    return float(found.tpot)


def main() -> None:
    """Draw rows, ask the peer, write its answers and print its errors."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("table")
    parser.add_argument("output")
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--seed", type=int, default=18)
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    rows = clean_rows(options.table)
    random.Random(options.seed).shuffle(rows)
    answered: list[Row] = []
    refused: Counter[tuple[str, ...]] = Counter()
    with Path(options.output).open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, NAMES, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        for row in rows:
            if len(answered) == options.rows:
                break
            try:
                with contextlib.redirect_stdout(io.StringIO()):
                    tpot = estimate(row)
            except Exception as error:  # whatever it says is counted
                key = row["model"], row["dtype"], row["system"], row["backend"]
                refused[(*key, f"{type(error).__name__}: {str(error)[:100]}")] += 1
                continue
            answered.append(row | {"predicted_tpot_ms": str(tpot)})
            writer.writerow(answered[-1])
            file.flush()
    groups: defaultdict[str, list[float]] = defaultdict(list)
    for row in answered:
        ratio = float(row["predicted_tpot_ms"]) / float(row["measured_tpot_ms"]) - 1
        for name in ("all", row["model"], row["backend"], row["system"], row["dtype"]):
            groups[name].append(ratio)
    for name, ratios in groups.items():
        sizes = [abs(ratio) for ratio in ratios]
        print(
            f"{name:16} {len(ratios):5} mean {statistics.mean(sizes):6.1%}"
            f" median {statistics.median(sizes):6.1%} bias {statistics.mean(ratios):+6.1%}"
        )
    for reason, count in refused.most_common():
        print(f"refused {count}: {', '.join(reason)}")


if __name__ == "__main__":
    main()
