"""Close the loop on llama.cpp's CPU kernels: fit passes of few batch sizes, judge others.

Usage: python calibration/llama_cpp.py PASSES.csv [--server SERVER.csv] [--hardware PROFILE]
[--write]. PASSES.csv has CPU milliseconds of passes of random models (`results/llama_cpp` describes
how they were made): model, context, sequences, tokens_each, cpu_ms. The script fits the time of a
pass at batch sizes 1 and 4, and judges the other sizes and the ratios of verify passes to decode
steps. With --server, it also judges steps of a server with a draft model. --write writes the fit of
all rows into specmodel/core/machines/data/llama_cpp.toml.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from msgspec.structs import replace
from scipy.optimize import least_squares

from llama_bench import Passes, predicted, write
from specmodel import deploy
from specmodel.core.base import records
from specmodel.core.base.units import FloatArray
from specmodel.core.cost.latency import step_times, target_pass
from specmodel.core.layers.batch import SequenceGroup
from specmodel.core.machines import llama_cpp
from specmodel.core.machines.hardware import HardwareProfile, load_hardware
from specmodel.core.models.architecture import Architecture

HERE = Path(__file__).parent
CPU = HERE / "results/vllm_cpu_1_thread/cpu.toml"
FITTED = (1, 4)
"""Batch sizes that are fitted."""
TARGET, DRAFTER, DRAFTED, CONTEXT = "moe-q8_0", "draft-f16", 3, 80
"""What the server ran, how many tokens it drafted, and entries of a mean request [token]."""
DTYPES = {"q8_0": "int8", "q4_k_m": "int4", "f16": "bf16"}
"""Classes of dtypes, by how file names end."""
START = {"memory": 0.5, "rate": 1e10, "attention": 4e9, "entries": 0.3, "launch": 1e-5}
"""Where the search begins: shares of the memory's peak, weights and attention's FLOP a second."""


def model(name: str) -> Architecture:
    """Return a random model of the recipe by the name of its file."""
    kind, _, dtype = name.partition("-")
    is_moe, size = kind == "moe", {"moe": (1024, 16, 4, 12), "draft": (512, 8, 2, 2)}[kind]
    hidden, heads, kv_heads, layers = size
    mixer = {"kind": "attention", "num_heads": heads, "num_kv_heads": kv_heads, "head_dim": 64}
    experts = {"kind": "experts", "num_experts": 64, "experts_per_token": 8, "expert_size": 512}
    block = experts if is_moe else {"kind": "dense", "ffn_size": 1024}
    stored = {"f16": "bf16"}.get(dtype, dtype)
    data = {
        "schema_version": 2,
        "name": name,
        "source": "made by a script, random weights",
        "hidden_size": hidden,
        "vocabulary_size": 8192,
        "layers": [{"count": layers, "mixer": mixer, "feed_forward": block}],
        **dict.fromkeys(("weight_dtype", "embedding_dtype", "head_dtype"), stored),
    }
    return records.build(Architecture, data, name)


def read(path: Path) -> pd.DataFrame:
    """Return the median seconds of passes on one thread, by model and shape."""
    d = pd.read_csv(path, comment="#")
    d = d[(d["threads"] == 1) & (d["kv"] == "streams") & d["tokens_each"].notna()]
    keys = ["model", "context", "sequences", "tokens_each"]
    found = d.groupby(keys)["cpu_ms"].median().reset_index()
    return found.assign(seconds=found["cpu_ms"] / 1e3)


def works(d: pd.DataFrame, hardware: HardwareProfile) -> list[Passes]:
    """Return the work of each pass."""
    found = []
    for name, rows in d.groupby("model"):
        target = model(str(name))
        uniform = {"popularity": "equal", "routing_correlation": 0.0}
        where = {"target": target, "hardware": hardware, "engine": "llama.cpp"}
        told: Any = where | (uniform if target.is_moe else {})
        group = SequenceGroup(
            batch_size=rows["sequences"].to_numpy(float),
            context_length=rows["context"].to_numpy(float),
            tokens_per_sequence=rows["tokens_each"].to_numpy(float),
        )
        parts = tuple(target_pass(deploy(**told)[0], group).work().components.values())
        found.append(Passes(np.asarray(rows.index), hardware, False, parts))
    return found


def table_of(values: dict[str, float]) -> llama_cpp.LlamaCpp:
    """Return the shipped table with other numbers of a CPU."""
    known = llama_cpp.load_llama_cpp()
    own = known.backends["cpu"]
    rates = dict[str, llama_cpp.Rates]()
    for dtype, shipped in own.gemm.items():
        taken = dtype if f"{dtype}.rate" in values else "int4"
        told = {"memory_efficiency": values["memory"], "vector_rate": values.get(f"{taken}.rate")}
        rates[dtype] = replace(shipped, **{k: v for k, v in told.items() if v})
    attention = replace(
        own.gemm["bf16"], memory_efficiency=values["entries"], vector_rate=values["attention"] / 2
    )
    kinds = {"gemm": rates, "experts": rates, "attention": {"bf16": attention}}
    times = {"launch_time": values["launch"], "expert_launch_time": values["launch"]}
    return replace(known, backends=known.backends | {"cpu": replace(own, **times, **kinds)})


def fit(d: pd.DataFrame, hardware: HardwareProfile) -> dict[str, float]:
    """Return the numbers with the smallest robust error."""
    classes = {DTYPES[str(name).partition("-")[2]] for name in d["model"]}
    start = {name: value for name, value in START.items() if name != "rate"}
    start |= {f"{name}.rate": START["rate"] for name in sorted(classes)}
    passes, measured = works(d, hardware), np.log(d["seconds"].to_numpy())

    def missed(x: FloatArray) -> FloatArray:
        table = table_of(dict(zip(start, np.exp(x).tolist(), strict=True)))
        return np.asarray(np.log(predicted(passes, table)) - measured)

    first = np.log(list(start.values()))
    bounds = (first - 7, np.minimum(first + 7, np.where(first < 0, 0, np.inf)))
    bounds[1][[name in ("launch",) for name in start]] = np.log(1e-3)
    found = least_squares(missed, first, bounds=bounds, loss="soft_l1", f_scale=0.1)
    return dict(zip(start, np.exp(found.x).tolist(), strict=True))


def judge(d: pd.DataFrame) -> None:
    """Print errors of times and of ratios to decode steps, by model and context."""
    d = d.assign(error=(d["predicted"] / d["seconds"] - 1).abs())
    keys = ["model", "context", "sequences"]
    plain = d[d["tokens_each"] == 1].set_index(keys)
    joined = d.join(plain[["seconds", "predicted"]], on=keys, rsuffix="_plain")
    ratio = joined["seconds"] / joined["seconds_plain"]
    of_model = joined["predicted"] / joined["predicted_plain"]
    joined["ratio_error"] = (of_model / ratio - 1).abs()
    for (name, context), rows in joined.groupby(["model", "context"]):
        others = rows[~rows["sequences"].isin(FITTED)]
        verify = rows[rows["tokens_each"] > 1]
        print(
            f"{name} at {context}: other batch sizes {others['error'].mean():.3f}, all "
            f"{rows['error'].mean():.3f}; ratios T(B, q)/T(B, 1) {verify['ratio_error'].mean():.3f}"
        )


def judge_server(path: Path, hardware: HardwareProfile, table: llama_cpp.LlamaCpp) -> None:
    """Print CPU seconds of steps of a server, measured and predicted, by arm and slots."""
    d = pd.read_csv(path, comment="#")
    for key, rows in d.groupby(["arm", "slots"]):
        arm, slots = str(key[0]), int(str(key[1]))
        is_plain = arm == "none"
        made = rows["tokens"] if is_plain else rows["drafted"] / DRAFTED
        seconds = float((rows["cpu_s"] / (made / slots)).median())
        target = model(TARGET)
        drafter = model(TARGET if "self" in arm else DRAFTER)
        told: Any = {"target": target, "hardware": hardware, "engine": "llama.cpp"}
        told |= {"drafter": drafter, "popularity": "equal", "routing_correlation": 0.0}
        kernels = llama_cpp.llama_cpp_kernels(hardware, table)
        K = 0 if is_plain else DRAFTED
        times = step_times(
            replace(deploy(**told)[0], kernels=kernels),
            batch_size=slots,
            draft_length=K,
            verify_tokens=K + 1,
            context_length=CONTEXT,
        )
        found = float(times.forward_time if is_plain else times.step_time)
        told_ms = f"{1e3 * seconds:.0f} ms measured, {1e3 * found:.0f} predicted"
        print(f"server, {arm}, {slots} slots: {told_ms} ({found / seconds - 1:+.1%})")


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("passes", type=Path)
    parser.add_argument("--hardware", default=CPU, type=Path)
    parser.add_argument("--server", type=Path, action="append", default=[])
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    hardware, d = load_hardware(given.hardware), read(given.passes)
    fitted = d[d["sequences"].isin(FITTED)].reset_index(drop=True)
    values = fit(fitted, hardware)
    print({name: float(f"{value:.4g}") for name, value in values.items()})
    judge(d.assign(predicted=predicted(works(d, hardware), table_of(values))))
    for path in given.server:
        judge_server(path, hardware, table_of(values))
    if given.write:
        table = table_of(fit(d, hardware))
        write(table)


if __name__ == "__main__":
    main()
