"""Fit the kernels of llama.cpp by back end to published runs of llama-bench.

Usage: python calibration/llama_bench.py [--left-out] [--write] [BACKEND ...]. Reads
tables/llama_bench.csv and tables/machines_llama.csv. The script prints errors of decoding without
speculation and of passes with more tokens. With --left-out, errors are those of machines that are
left out in turn. --write writes the fits of all rows, with the spread of left-out machines, into
specmodel/core/machines/data/llama_cpp.toml; its limits do not change.
"""

import re
import sys
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from msgspec.structs import replace
from scipy.optimize import least_squares

from specmodel import deploy
from specmodel.core.algebra.roofline import Value
from specmodel.core.base import records
from specmodel.core.base.dtypes import check_dtype
from specmodel.core.base.files import write_text
from specmodel.core.base.units import FloatArray
from specmodel.core.cost.latency import target_pass
from specmodel.core.cost.passes import component_time, kernels_taken
from specmodel.core.layers.batch import SequenceGroup
from specmodel.core.layers.work import Work
from specmodel.core.machines import llama_cpp
from specmodel.core.machines.hardware import HardwareProfile, list_hardware, load_hardware
from specmodel.core.machines.kernels import Kernels
from specmodel.core.models.architecture import Architecture, load_architecture

TABLES = Path(__file__).parent / "tables"
RECORD = Path(llama_cpp.__file__).parent / "data/llama_cpp.toml"
MODELS = {
    **dict.fromkeys(("llama 8B", "llama 3.1 8b", "Llama-3.1-8B"), "llama-3.1-8b"),
    "llama 70B": "llama-3.1-70b",
    "gpt-oss 20B": "gpt-oss-20b",
    "gpt-oss 120B": "gpt-oss-120b",
    **dict.fromkeys(("qwen3moe 30B.A3B", "Qwen3-30B-A3B"), "qwen3-30b-a3b"),
    "Qwen3-Coder 30B-A3B": "qwen3-coder-30b-a3b",
    **dict.fromkeys(("qwen3 8B", "Qwen3-8B", "Qwen 3 8B"), "qwen3-8b"),
    **dict.fromkeys(("qwen2 14B", "Qwen 3 14B"), "qwen3-14b"),
    "qwen3 32B": "qwen3-32b",
    **dict.fromkeys(("qwen35moe 35B.A3B", "Qwen3.6-35B-A3B"), "qwen3.6-35b-a3b"),
    **dict.fromkeys(("qwen35 27B", "Qwen3.6-27B"), "qwen3.6-27b"),
    **dict.fromkeys(("gemma4 26B.A4B", "Gemma 4 26B-A4B MoE"), "gemma-4-26b-a4b"),
    "gemma4 31B": "gemma-4-31b",
    "Gemma-4-12B": "gemma-4-12b",
    "deepseek2 16B": "deepseek-v2-lite",
    "glm4moe 106B.A12B": "glm-4.5-air",
    "lfm2moe 8B.A1B": "lfm2-8b-a1b",
}
"""Models by the names that tables print. Similar shapes replace qwen2 14B."""
UNKNOWN = ("Q1_0",)
"""Dtypes that no release has."""
LIKE = ("int4", "q4_0", "int8", "bf16")
"""Classes of dtypes, in the order in which they replace a class without rows."""
FIRST_PULL = 12000
"""Likewise, by the pull requests of rows without a date."""
Q6_K = "/pull/26079"
"""A table that does not name its files, whose sizes are those of Q6_K."""
LONG, LONG_WEIGHT = 128, 0.2
"""Tokens of a pass beyond which it is no verify pass, and how much it weighs."""
KERNELS = "2025-08"
"""Before which builds had other kernels for passes of several tokens."""
EXPERT_VECTORS = "2026-01-18"
"""From when on CUDA and Vulkan have vector kernels of experts for more tokens than one."""
HEAD = """\
# Kernels of llama.cpp by back end: limits as they stand in ggml-cuda.cu, mmvq.cu, mmq.cu,
# ggml-vulkan.cpp and ggml-metal-ops.cpp of 0.7.0, and numbers that calibration/llama_bench.py and,
# for CPUs, calibration/llama_cpp.py fitted.
"""
START: dict[str, tuple[float, float, float]] = {
    "memory": (0.7, 0.05, 1.0),
    "compute": (0.4, 0.001, 3.0),
    "rate": (2e10, 2e9, 1e13),
    "tiles": (24.0, 0.5, 300.0),
}
"""Where the search begins, and between which bounds."""


@cache
def machine(name: str, backend: str) -> HardwareProfile:
    """Return the profile of a machine of the tables with a back end."""
    chosen = {} if backend == "cuda" else {"llama_cpp_backend": backend, "compute_capability": None}
    if name in list_hardware():
        return load_hardware(name).with_changes("hardware", chosen)
    known = pd.read_csv(TABLES / "machines_llama.csv", comment="#").set_index("machine")
    row: Any = known.loc[name].to_dict()
    source = {"source": "machines_llama.csv"}
    generation = str(row["generation"])
    is_nvidia = generation.replace(".", "").isdigit()
    peak = max(float(row["peak_fp16_tflops"]), 5.0) * 1e12
    memory = {"capacity_bytes": 1e12, "peak_bytes_per_s": float(row["bandwidth_gb_s"]) * 1e9}
    data = {
        "schema_version": 1,
        "name": name,
        "kind": "gpu",
        "num_multiprocessors": int(row["processors"]),
        "memory": memory | {"l2_bytes": 4e6} | source,
        "dtype": {"bf16": {"peak_flops_per_s": peak} | source},
    }
    data |= {"compute_capability": float(generation)} if is_nvidia else {"generation": generation}
    return records.build(HardwareProfile, data | chosen, name)


@cache
def model(name: str, dtype: str) -> Architecture:
    """Return a model with its matrices in a dtype; experts in MXFP4 stay."""
    if name == "llama 7B":
        own = load_architecture("llama-3.1-8b")
        mha = {"num_kv_heads": 32, "ffn_size": 11008, "vocabulary_size": 32000}
        found = own.with_changes("target", mha)
    else:
        found = load_architecture(MODELS[name])
    names = ("weight_dtype", "embedding_dtype", "head_dtype")
    return found.with_changes("target", dict.fromkeys(names, dtype))


def dtype_of(printed: str) -> str:
    """Return the dtype of all matrices but experts in MXFP4; such files have Q8_0 otherwise."""
    names = {"f16": "bf16", "f32": "fp32", "q2_k_m": "q2_k", "mxfp4": "q8_0"}
    name = names.get(printed.lower(), printed)
    return check_dtype("weight_dtype", name)


def read(backend: str) -> pd.DataFrame:
    """Return the rows of a back end with a model, dtype and machine, each for a pass."""
    d = pd.read_csv(TABLES / "llama_bench.csv", comment="#")
    notes = d["notes"].fillna("")
    is_q6_k = d["source"].str.endswith(Q6_K)
    d = d.assign(weight_type=d["weight_type"].where(~is_q6_k, "Q6_K"))
    is_guess = notes.str.contains("inferred|fork") & ~is_q6_k
    d = d[(d["backend"] == backend) & (d["gpus"] == 1) & ~is_guess]
    d = d[d["weight_type"].notna() & (d["model"].isin(MODELS) | (d["model"] == "llama 7B"))]
    d = d[~d["weight_type"].isin(UNKNOWN)]
    d = d.assign(dtype=[dtype_of(name) for name in d["weight_type"]])
    flags = d["flags"].fillna("")
    batch = [re.search(r"-ub (\d+)", text) for text in flags]
    own = pd.Series([float(b[1]) if b else 512.0 for b in batch], d.index)
    tokens = np.minimum(d["tokens"].fillna(512), own)
    is_pass, is_batch = d["test"] == "pp", d["test"] == "batched"
    middle = np.where(is_pass, (d["tokens"] - tokens).clip(lower=0) / 2, d["tokens"] / 2)
    d = d.assign(
        sequences=np.where(is_batch, d["n_parallel"], 1.0),
        each=np.where(is_pass, tokens, 1.0),
        context=d["context"].fillna(0) + np.nan_to_num(middle),
        is_old=d["date"].fillna("2025").lt(EXPERT_VECTORS)
        | notes.loc[d.index].str.contains("before the pull request|master"),
    )
    pull = d["source"].str.extract(r"/pull/(\d+)")[0].astype(float)
    is_earlier = (d["date"].lt(KERNELS) | pull.lt(FIRST_PULL)) & (d["test"] != "tg")
    d = d[~flags.str.contains("-ctk") & ~is_earlier]
    return d.assign(seconds=d["sequences"] * d["each"] / d["tok_s"]).reset_index(drop=True)


def table_of(values: dict[str, float], backend: str, kinds: list[str]) -> llama_cpp.LlamaCpp:
    """Return the shipped table with other numbers of a back end."""
    known = llama_cpp.load_llama_cpp()
    own = known.backends[backend]  # type: ignore[index]  # a text

    def changed(kind: str) -> dict[str, llama_cpp.Rates]:
        found = {}
        for dtype, rates in getattr(own, kind).items():
            taken = next(n for n in (dtype, *LIKE) if f"{kind}.{n}.memory" in values)
            taken = f"{kind}.{taken}"
            found[dtype] = replace(
                rates,
                memory_efficiency=values.get(f"{taken}.memory", rates.memory_efficiency),
                compute_efficiency=values.get(f"{taken}.compute", rates.compute_efficiency),
                vector_rate=values.get(f"{taken}.rate", rates.vector_rate),
                tile_rows=values.get(f"{taken}.tiles", rates.tile_rows),
                vector_rereads=values.get(f"{kind}.rereads", rates.vector_rereads),
            )
        return found

    times = {"launch_time": values["launch"]}
    times["expert_launch_time"] = values.get("experts.launch", own.expert_launch_time)
    fitted = replace(own, **times, **{k: changed(k) for k in kinds})
    return replace(known, backends=known.backends | {backend: fitted})


class Passes(NamedTuple):
    """Passes of one model on one machine, by the rows of a table: their work, by component."""

    rows: FloatArray
    hardware: HardwareProfile
    has_old_experts: bool
    components: tuple[Work, ...]


def works(d: pd.DataFrame) -> list[Passes]:
    """Return the work of each pass."""
    found = []
    for key, rows in d.groupby(["machine", "model", "dtype", "is_old"], dropna=False, sort=False):
        name, of_model, dtype, is_old = key
        told, backend = str(dtype), str(d["backend"].iloc[0])
        hardware = machine(str(name), backend)
        where: Any = {"target": model(str(of_model), told), "hardware": hardware}
        group = SequenceGroup(
            batch_size=rows["sequences"].to_numpy(float),
            context_length=rows["context"].to_numpy(float),
            tokens_per_sequence=rows["each"].to_numpy(float),
        )
        where |= {"routing_correlation": 0.0, "engine": "llama.cpp"}  # its tokens are random
        deployment = deploy(**where)[0]
        parts = tuple(target_pass(deployment, group).work().components.values())
        index = np.asarray(rows.index)
        has_old = bool(is_old) and backend != "metal"
        found.append(Passes(index, hardware, has_old, parts))
    return found


def predicted(passes: list[Passes], table: llama_cpp.LlamaCpp) -> FloatArray:
    """Return the seconds of each pass by a table."""
    found = np.full(sum(len(p.rows) for p in passes), np.nan)
    tables = {False: table, True: without_expert_vectors(table)}
    kernels: dict[tuple[str, bool], Kernels] = {}
    for p in passes:
        key = p.hardware.name, p.has_old_experts
        if key not in kernels:
            kernels[key] = llama_cpp.llama_cpp_kernels(p.hardware, tables[p.has_old_experts])
        seconds: Value = 0.0
        for part in p.components:
            taken, _ = kernels_taken(part, kernels[key], p.hardware)
            seconds = seconds + component_time(part, p.hardware, taken).total_time
        found[p.rows] = seconds
    return found


def without_expert_vectors(table: llama_cpp.LlamaCpp) -> llama_cpp.LlamaCpp:
    """Return a table in which experts have vector kernels for one token alone."""
    kinds = {
        name: replace(own, experts={k: replace(r, vector_rows=1.0) for k, r in own.experts.items()})
        for name, own in table.backends.items()
    }
    limits = [limit for limit in table.limits if limit.kind != "experts"]
    return replace(table, backends=kinds, limits=limits)


def class_of(dtype: str) -> str:
    """Return the dtype whose fit is valid for a dtype."""
    found = {"bf16": "bf16", "fp32": "bf16", "q8_0": "int8", "mxfp4": "q4_0"}
    legacy = dict.fromkeys(("q4_0", "q4_1", "q5_0", "q5_1"), "q4_0")
    return (found | legacy).get(dtype, "int4")


def varied(d: pd.DataFrame) -> dict[str, tuple[float, float, float]]:
    """Return the numbers that rows can determine, with starts and bounds."""
    found = {"launch": (4e-6, 1e-7, 1e-4)}
    of_kind: dict[str, dict[str, set[str]]] = {"gemm": {}, "experts": {}}
    for name, machine_of, dtype in zip(d["model"], d["machine"], d["dtype"], strict=True):
        own = model(name, dtype)
        of_kind["gemm"].setdefault(class_of(dtype), set()).add(machine_of)
        if own.is_moe:
            experts = own.expert_dtype or dtype
            of_kind["experts"].setdefault(class_of(experts), set()).add(machine_of)
    for kind, classes in of_kind.items():
        for dtype in classes:
            found |= {f"{kind}.{dtype}.{name}": START[name] for name in START}
        if classes and kind == "experts":
            found |= {"experts.rereads": (0.3, 1e-3, 1.0), "experts.launch": (4e-6, 1e-7, 1e-4)}
    return found


def fit(d: pd.DataFrame, backend: str, known: dict[str, float] | None = None) -> dict[str, float]:
    """Return the numbers with the smallest robust error; machines and models weigh equally.

    `known` are numbers fitted to more rows, from where few steps are needed.
    """
    names = varied(d)
    kinds = sorted({name.split(".")[0] for name in names} - {"launch"}, reverse=True)
    counts = d.groupby(["machine", "model", "dtype", "test"], dropna=False)["id"].transform("size")
    is_long = (d["sequences"] * d["each"] > LONG).to_numpy()
    weights = np.where(is_long, LONG_WEIGHT, 1.0) / np.sqrt(counts.to_numpy(float))
    passes = works(d)
    measured = np.log(d["seconds"].to_numpy(float))

    def missed(x: FloatArray) -> FloatArray:
        values = dict(zip(names, np.exp(x).tolist(), strict=True))
        found = np.log(predicted(passes, table_of(values, backend, kinds)))
        return np.asarray((found - measured) * weights)

    start, low, high = (np.log([names[n][i] for n in names]) for i in range(3))
    if known:
        start = np.clip(np.log([known[n] for n in names]), low + 1e-6, high - 1e-6)
    steps = 4 if known else 25
    found = least_squares(missed, start, bounds=(low, high), loss="soft_l1", f_scale=0.15,
                          diff_step=1e-3, max_nfev=steps)  # fmt: skip
    return dict(zip(names, np.exp(found.x).tolist(), strict=True))


def judged(d: pd.DataFrame, backend: str, known: dict[str, float]) -> pd.DataFrame:
    """Return the rows with seconds predicted by the fit to other machines."""
    parts = []
    for name, rows in d.groupby("machine"):
        others = d[d["machine"] != name].reset_index(drop=True)
        if others.empty:
            continue
        values = fit(others, backend, known)
        kinds = sorted({n.split(".")[0] for n in values} - {"launch"}, reverse=True)
        own = rows.reset_index(drop=True)
        table = table_of(values, backend, kinds)
        parts.append(own.assign(predicted=predicted(works(own), table)))
    return pd.concat(parts, ignore_index=True)


def told(d: pd.DataFrame) -> str:
    """Return mean errors: of decoding, of passes of few tokens, of many, machines alike."""
    error = (d["predicted"] / d["seconds"] - 1).abs()
    few = (d["sequences"] * d["each"] > 1) & (d["sequences"] * d["each"] <= 32)
    of = {
        "plain decode": d["test"] == "tg",
        "2 to 32 tokens": few,
        "more": ~few & (d["test"] != "tg"),
    }
    lines = []
    for name, chosen in of.items():
        own = error[chosen].groupby([d["machine"], d["model"]]).mean()
        mean = own.groupby("machine").mean()
        lines.append(f"{name}: {mean.mean():.3f} ({len(mean)} machines, {int(chosen.sum())} rows)")
    return "; ".join(lines)


def write(table: llama_cpp.LlamaCpp) -> None:
    """Write the table that ships."""
    table = replace(table, date=date.today().isoformat())
    numbers = re.sub(r"= (\d\S*\d{4,}\S*)$", lambda m: f"= {float(m[1]):.4g}",
                     records.toml_text(table), flags=re.MULTILINE)  # fmt: skip
    write_text(RECORD, HEAD + numbers)


def main(*arguments: str) -> None:
    chosen = [a for a in arguments if not a.startswith("-")] or ["cuda", "hip", "vulkan", "metal"]
    record: dict[str, Any] = records.as_table(llama_cpp.load_llama_cpp())
    for backend in chosen:
        d = read(backend)
        values = fit(d, backend)
        kinds = sorted({n.split(".")[0] for n in values} - {"launch"}, reverse=True)
        table = table_of(values, backend, kinds)
        print(f"{backend}: {len(d)} rows of {d['machine'].nunique()} machines")
        found = d.assign(predicted=predicted(works(d), table))
        left = judged(d, backend, values) if "--left-out" in arguments else found
        print("  left out" if left is not found else "  fitted  ", told(left))
        print("  ", {name: float(f"{value:.4g}") for name, value in values.items()})
        own = records.as_table(table.backends[backend])  # type: ignore[index]  # a text
        missed = (left["predicted"] / left["seconds"]).map(np.log)
        spread = missed.groupby(left["machine"]).mean().std()
        record["backends"][backend] = own | {"spread": float(spread), "num_points": len(d)}
    if "--write" in arguments:
        write(records.build(llama_cpp.LlamaCpp, record, "table"))


if __name__ == "__main__":
    main(*sys.argv[1:])
