"""Predict the families served most in the autumn of 2026, and write the results as a table.

Usage: python calibration/served_2026.py [results/served_2026.csv]

Each family has its own drafter at the longest draft length for which recipes exist and acceptance
is known. The context is 4,096, no prompts are carried, and the numbers of H200 and B200 are the
smallest that have enough memory. Checkpoints in 16 bits with more than 100 billion weights are
predicted in fp8 blocks, as they are usually served. Acceptance is the published one of this target
and drafter, or else the median of published heads of that kind.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd

from specmodel import load_architecture
from specmodel.core.drafters.acceptance import measured_acceptance
from specmodel.core.drafters.measured_heads import typical_heads
from specmodel.core.drafters.published import taken_drafter, usual_drafter

TARGETS = (
    *("deepseek-v4-flash", "mimo-v2.5", "hy3", "glm-5.3-flash", "glm-5.2", "qwen3.8-flash-next"),
    *("deepseek-v4.1-flash", "kimi-k2.5", "kimi-k3", "minimax-m3", "minimax-m2.7"),
    *("qwen3.5-397b-a17b", "qwen3.6-35b-a3b", "qwen3.8-2.4t-a95b", "gpt-oss-120b"),
    *("nemotron-3-super-120b-a12b", "gemma-4-26b-a4b", "deepseek-v4-pro", "deepseek-v3.2"),
    *("step-3.7-flash", "ling-3.0-flash", "hy4-preview", "inkling", "inkling-2-small"),
)
"""The twenty families, some by two or three names."""
HARDWARE, BATCHES, CONTEXT = ("h200", "b200"), (1, 8, 32, 128), 4096
LARGE = 1e11
PROMPTS = ["--prompt-length", "4096", "--output-length", "1024"]


def length_of(usual: str, longest: int) -> int:
    """Return the longest draft length of a recipe, 3 where there is none, up to another [token]."""
    words = usual.partition("draft length ")[2].partition(" (")[0]
    return min(int(words.split()[-1]) if words else 3, longest)


def predicted(name: str, hardware: str) -> dict[str, Any]:
    """Return a row of the table: the prediction for a target on a GPU."""
    target = load_architecture(name)
    usual, drafter = usual_drafter(target), taken_drafter(target)[0]
    known, typical = measured_acceptance(target.name, drafter), typical_heads(drafter)
    taken = known or (typical.acceptance[1] if typical else None)
    length = length_of(usual, int(taken.max_draft_length) if taken else 0)
    is_wide = target.weight_dtype == "bf16" and target.total_parameters > LARGE
    options = ["--batch-size", ",".join(map(str, BATCHES)), "--context-length", str(CONTEXT)]
    options += ["--draft-length", str(length), "--interval", "--json"]
    options += [] if known else ["--acceptance", "typical"]
    options += ["--weight-dtype", "fp8_block"] if is_wide and not target.expert_dtype else []
    said = answer(name, hardware, options)
    under_load = answer(name, hardware, options + PROMPTS)["rows"][-1]
    deployment, assumed = said["deployment"], said["assumptions"]
    at = {row["batch_size"]: row for row in said["rows"]}
    speedups = {
        f"batch {size}": "{speedup:.2f} ({speedup_low:.2f} to {speedup_high:.2f})".format_map(row)
        + ("" if row["fits"] else ", no room")
        for size, row in at.items()
    }
    return {
        "target": target.name,
        "hardware": f"{deployment['num_gpus']} x {hardware}",
        "experts": deployment["expert_dtype"],
        "drafter": f"{drafter} {length}",
        "verdict": verdict(list(at.values())),
        **speedups,
        "batch 128 with prompts": f"{under_load['speedup']:.2f}",
        "memory": f"{at[32]['memory_bytes'] / 1e9:.0f} GB",
        "largest batch": at[32]["max_batch_size"],
        "limited by": at[32]["limited_by"],
        "acceptance": str(assumed.get("acceptance", "")).partition(" (")[0],
        "tokens/step": f"{at[32]['tokens_per_step']:.2f}",
    }


def answer(name: str, hardware: str, options: list[str]) -> dict[str, Any]:
    """Return what the command prints for a target on a GPU."""
    command = [sys.executable, "-m", "specmodel", "predict", name, hardware, *options]
    said: dict[str, Any] = json.loads(subprocess.check_output(command, text=True))
    return said


def verdict(rows: list[dict[str, Any]]) -> str:
    """Say where it pays: everywhere that fits, or from and to which batch, else that it may."""
    fitting = [row for row in rows if row["fits"]]
    pays = [row["batch_size"] for row in fitting if row["speedup_low"] > 1]
    loses = [row["batch_size"] for row in fitting if row["speedup_high"] < 1]
    if len(pays) == len(fitting):
        return "pays"
    told = f"pays at {', '.join(map(str, pays))}" if pays else "may pay or not"
    return told + (f"; loses at {', '.join(map(str, loses))}" if loses else "")


def main() -> None:
    rows = [predicted(name, hardware) for name in TARGETS for hardware in HARDWARE]
    table = pd.DataFrame(rows)
    path = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "results")
    path = path / "served_2026.csv" if path.is_dir() else path
    table.to_csv(path, index=False)
    print(table.to_string(index=False))


if __name__ == "__main__":
    main()
