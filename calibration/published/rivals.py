"""Find published tables whose kernels are slower than those that an engine would run.

Engines call the same libraries and use the fastest kernel of a GPU. On one GPU, their tables of a
dtype mostly agree within 40 %. If a table needs 1.5 times as long as that of another engine, or
even thirty times, it timed a variant that nobody serves with, or the host that launched it. This
module compares measurements only with each other.
"""

from collections.abc import Mapping
from functools import cache

import numpy as np
import pandas as pd

from published import datasets
from published.roles import fastest_kernels
from specmodel.core.machines.hardware import list_hardware, load_hardware

CURRENT = {"trtllm": "1.3.0rc20", "vllm": "0.24.0", "sglang": "0.5.14"}
"""Version of each engine that all its kernels were published of."""

MOST_TOKENS = 256
"""Largest number of tokens in the compared passes, which are passes of decoding [token]."""

SLOWER = 1.5
"""Time over that of the fastest engine from which a table of a dtype is not taken [-]: geometric
means, first over points of as many tokens, then over tokens by powers of two, so that each octave
counts alike. Tables of products are at most 1.42, or 1.69 and more: vLLM's in blocks of fp8 (5 to
28) and TensorRT-LLM's in NVFP4 (1.7 to 1.8). Those of experts are at most 1.41, or 1.58 and more:
vLLM's in fp8 on Hopper (3.5 to 4.2); TensorRT-LLM's on Blackwell in 16 bits on MXFP4 (2.6), in
NVFP4 (2.0), and in blocks of fp8 (1.8), which are DeepGEMM's and walk the list of all experts,
where vLLM and SGLang run TensorRT-LLM's own; and SGLang's on MXFP4 on H100 (1.6; 1.4 on H200). The
last moves four times the bytes that it should: it timed weights unpacked to 16 bits
(`upcast_from_mxfp` in SGLang 0.5.23's ``quantization/mxfp4.py``), where the engine runs
``triton_kernel`` on packed ones (its ``model_overrides/gpt_oss.py``)."""

_LAYER = ("operation", "shape", "kv_dtype", "batch_size", "num_tokens", "octave")
"""Columns in which timings of whole layers differ, if a table has them."""

_POINT = {
    "gemm": ("num_tokens", "input_size", "output_size"),
    "moe": ("num_tokens", "hidden_size", "expert_size", "experts_per_token", "num_experts"),
}


def slow_quantizations(operation: str, hardware: str, stack: str, version: str) -> set[str]:
    """Return the quantizations that need `SLOWER` times as long as those of another engine.

    A quantization that is slow on one GPU is slow on others of its generation, which run the same
    kernels. A lower peak of arithmetic, or a higher peak of memory, may hide this in the median.
    """
    if CURRENT.get(stack) != version:
        return set()
    return set().union(*(_slow(operation, gpu, stack) for gpu in _generation(hardware)))


def _generation(hardware: str) -> list[str]:
    """Return the GPUs with tables that have the major compute capability of a GPU."""
    names = sorted({device for _, device, _, _ in datasets.known_tables()} & {*list_hardware()})
    major = {name: int(load_hardware(name).compute_capability or 0) for name in names}
    return [name for name in names if major[name] == major[hardware]]


def _slow(operation: str, hardware: str, stack: str) -> set[str]:
    """Return the quantizations that are slow on this very GPU."""
    times = _times(operation, hardware)
    if stack not in times:
        return set()
    shared = times[times.notna().sum(axis=1) > 1]
    tokens = shared.index.get_level_values("num_tokens")
    slower = np.log(shared[stack] / shared.min(axis=1))[np.log2(tokens) % 1 == 0]
    of_tokens = slower.groupby(["quantization", "num_tokens"]).mean()
    means = of_tokens.groupby("quantization").mean()
    return {str(name) for name in means.index[means > np.log(SLOWER)]}


def without_slow(raw: pd.DataFrame, name: tuple[str, str, str, str]) -> pd.DataFrame:
    """Return the timings of a table without those of `slow_quantizations`."""
    return raw[~raw["quantization"].isin(slow_quantizations(*name))]


def slow_layers(tables: Mapping[str, pd.DataFrame]) -> set[str]:
    """Return the engines whose whole layers take `SLOWER` times as long as another's on one GPU.

    Layers of sparse attention do under vLLM (1.6 to 2.2 times) and, on Hopper, TensorRT-LLM (2.6):
    they launch some thirty kernels, one by one where no CUDA graph holds them, as in these tables
    and in no engine. All other layers are within 1.44 times of each other.
    """
    times = {name: _by_octave(table) for name, table in tables.items()}
    slower = {
        (name, other): (times[name] / times[other]).dropna().median()
        for name in times
        for other in times
        if other != name
    }
    return {name for (name, _), ratio in slower.items() if ratio > SLOWER}


def _by_octave(table: pd.DataFrame) -> pd.Series:
    """Return medians of decoding layers by what they are of, contexts by the power of two [s]."""
    size = "batch_size" if "batch_size" in table else "num_tokens"
    few = table[table[size] <= MOST_TOKENS]
    context = few["context_length"] if "context_length" in few else pd.Series(1.0, few.index)
    few = few.assign(octave=np.round(np.log2(context.clip(lower=1))))
    return few.groupby([name for name in _LAYER if name in few])["latency"].median()


def timed_products(name: tuple[str, str, str, str]) -> pd.DataFrame:
    """Return products with the quantisation of their activations, as an engine runs them.

    Tables time both. For fp8 with a scale per tensor, they compute the scale each time, although
    published checkpoints contain it. The time for the scale is also published, and is subtracted.
    """
    table, (_, *place) = datasets.read_timings(*name), name
    if ("compute_scale", *place) not in datasets.known_tables():
        return table
    scales = datasets.read_timings("compute_scale", *place).rename(columns={"width": "input_size"})
    found = table.merge(scales, on=["num_tokens", "input_size"], how="left", suffixes=("", "_more"))
    is_static = (found["quantization"] == "fp8") & found["latency_more"].notna()
    found = found[is_static | (found["quantization"] != "fp8")]
    more = found.pop("latency_more").where(is_static, 0.0)
    return found.assign(latency=found["latency"] - more).query("latency > 0")


@cache
def _times(operation: str, hardware: str) -> pd.DataFrame:
    """Return the times of each engine, a column each, by quantization and point [s]."""
    known = datasets.known_tables()
    names = [(operation, hardware, *stack) for stack in CURRENT.items()]
    read = timed_products if operation == "gemm" else _experts
    tables = {name[2]: read(name) for name in names if name in known}
    return pd.DataFrame({stack: _compared(operation, raw) for stack, raw in tables.items()})


def _experts(name: tuple[str, str, str, str]) -> pd.DataFrame:
    """Return timings of balanced experts on one GPU, by their fastest kernels."""
    raw = datasets.read_timings(*name)
    is_even = (raw["distribution"] == "balanced") & (raw["expert_parallel"] == 1)
    return fastest_kernels(raw[is_even & raw["is_gated"]])


def _compared(operation: str, raw: pd.DataFrame) -> pd.Series:
    """Return the times of the points that engines are compared at [s]."""
    table = raw[raw["num_tokens"] <= MOST_TOKENS]
    return table.groupby(["quantization", *_POINT[operation]])["latency"].min()
