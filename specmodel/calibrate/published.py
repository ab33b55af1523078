"""Published kernel timings as tables of measurements: what is fitted, judged and skipped."""

import pandas as pd

from specmodel.base.errors import InputError
from specmodel.base.units import BYTES_PER_ELEMENT
from specmodel.calibrate import datasets, fallbacks
from specmodel.calibrate.measurements import COLD_SHARE, SHAPE
from specmodel.records.hardware import load_hardware

EXPERT_SHAPES = {
    (4096, 14336, 2, 8),
    (2048, 768, 8, 128),
    (4096, 1536, 8, 128),
    (6144, 2048, 8, 256),
}
"""(hidden, expert width, top-k, experts) that experts are fitted on; all others are judged. A
dtype that was timed on none of these is fitted on all of its shapes."""

EVERY = 3
"""GEMM and attention are fitted on every third of their sorted shapes."""

MAX_TOKENS = 4096
"""Longest pass taken [token]."""

STACKS = {
    ("a100_sxm_80gb", "sglang", "0.5.10"): {},
    ("h100_sxm", "trtllm", "1.3.0rc20"): {},
    ("h200_sxm", "trtllm", "1.3.0rc20"): {},
    ("h200_sxm", "vllm", "0.19.0"): {"gemm": "0.24.0", "attention": "0.24.0"},
    ("b200", "trtllm", "1.3.0rc20"): {},
    ("rtx_pro_6000", "trtllm", "1.3.0rc20"): {},
    ("l40s", "vllm", "0.24.0"): {},
}
"""Stacks that calibrated profiles ship for, and versions where a table of theirs is missing."""

_EXPERT_QUANTIZATIONS = {
    "trtllm": ("bfloat16", "fp8", "nvfp4", "w4a16_mxfp4"),
    "vllm": ("bfloat16", "fp8", "w4a16_mxfp4"),
    "sglang": ("bfloat16", "int4_wo"),
}
_SLOW_MXFP4 = ("b200", "b300", "gb200")  # 16-bit arithmetic at a seventh of its peak
_GEMM_QUANTIZATIONS = {
    "trtllm": ("bfloat16", "fp8", "nvfp4"),
    "vllm": ("bfloat16", "fp8"),
    "sglang": ("bfloat16",),
}


def published_measurements(hardware: str, stack: str, version: str) -> pd.DataFrame:
    """Return the published timings of a stack as a table of measurements.

    Parameters
    ----------
    hardware, stack, version
        As `datasets.list_tables` names them.

    Returns
    -------
    pandas.DataFrame
        As `measurements.check_measurements` takes it, with a ``role`` for each row.

    Raises
    ------
    InputError
        If it has no table of experts or the package is not installed; a version without one of
        GEMM or attention gives the others.

    Notes
    -----
    Skipped: passes above `MAX_TOKENS`; what a cache could hold (but for kernels so short that
    reading takes less than 5 % of their time, which shows the launch); fallback kernels
    (`fallbacks.slow_slices`, and attention slower per head than with fewer heads). Left out:
    experts of two matrices, expert parallelism, attention in windows, and multi-head attention of
    TensorRT-LLM and vLLM, which runs other kernels than grouped attention does.
    """
    others = STACKS.get((hardware, stack, version), {})
    parts = {"experts": _experts(hardware, stack, version)}
    known = datasets.list_tables()
    known = known[(known["hardware"] == hardware) & (known["framework"] == stack)]
    for kind, read in (("gemm", _gemm), ("attention", _attention)):
        release = others.get(kind, version)
        if ((known["operation"] == kind) & (known["version"] == release)).any():
            parts[kind] = read(hardware, stack, release)
    tables = [part.assign(component=kind) for kind, part in parts.items() if len(part)]
    if not tables:
        expected = "a table with a dtype that is calibrated, such as bf16"
        raise InputError("version", f"{stack}/{version}", expected)
    table = pd.concat(tables, ignore_index=True)
    return table.assign(hardware=hardware, stack=stack, version=version)


def _experts(hardware: str, stack: str, version: str) -> pd.DataFrame:
    raw = datasets.read_moe(hardware, stack, version)
    usable = raw["is_gated"] & ~raw["is_slow_path"] & (raw["expert_parallel"] == 1)
    usable &= raw["quantization"].isin(_EXPERT_QUANTIZATIONS[stack])
    usable &= (raw["quantization"] != "w4a16_mxfp4") | (hardware not in _SLOW_MXFP4)
    usable &= raw["active_experts"].notna() & (raw["num_tokens"] <= MAX_TOKENS)
    table = _fastest(raw[usable])
    l2_bytes = load_hardware(hardware).memory.l2_bytes
    is_cold = table["loaded_bytes"] > COLD_SHARE * l2_bytes
    is_slow = pd.Series(data=False, index=table.index)
    for _, rows in table[is_cold].groupby(["quantization", "distribution"]):
        is_slow |= is_slow.index.isin(rows.index[fallbacks.slow_slices(rows)])
    full = table["expert_size"] * table["tensor_parallel"]
    shape = list(SHAPE["experts"])
    is_fitted = fallbacks.rows_in(table.assign(model_expert_size=full)[shape], EXPERT_SHAPES)
    fitted_dtypes = table["quantization"][is_fitted].unique()
    is_fitted |= ~table["quantization"].isin(fitted_dtypes)
    is_skewed = is_fitted & (table["distribution"] != "balanced")
    return pd.DataFrame({
        "num_tokens": table["num_tokens"],
        "hidden_size": table["hidden_size"],
        "expert_size": table["expert_size"],
        "model_expert_size": full,
        "num_experts": table["num_experts"],
        "experts_per_token": table["experts_per_token"],
        "active_experts": table["active_experts"],
        "num_matrices": 3,
        "distribution": table["distribution"],
        "weight_dtype": table["weight_dtype"],
        "activation_dtype": table["activation_dtype"],
        "latency": table["latency"],
        "role": _roles(is_fitted, is_cold, is_slow).mask(is_skewed & is_cold & ~is_slow, "spread"),
    })  # fmt: skip


def _gemm(hardware: str, stack: str, version: str) -> pd.DataFrame:
    raw = datasets.read_gemm(hardware, stack, version)
    table = raw[raw["quantization"].isin(_GEMM_QUANTIZATIONS[stack]) & (raw["m"] <= MAX_TOKENS)]
    memory = load_hardware(hardware).memory
    element = table["weight_dtype"].map(BYTES_PER_ELEMENT)
    weight_bytes = table["n"] * table["k"] * element
    is_cold = weight_bytes > COLD_SHARE * memory.l2_bytes
    is_short = weight_bytes / memory.peak_bytes_per_s < 0.05 * table["latency"]
    is_short &= (table["n"] >= 128) & (table["k"] >= 1024) & (table["m"] <= 16)
    is_timed = is_cold | is_short
    return pd.DataFrame({
        "num_tokens": table["m"],
        "input_size": table["k"],
        "output_size": table["n"],
        "weight_dtype": table["weight_dtype"],
        "activation_dtype": table["activation_dtype"],
        "latency": table["latency"],
        "role": _roles(_every_third(table[is_timed], ["k", "n"], table.index), is_timed),
    })  # fmt: skip


def _attention(hardware: str, stack: str, version: str) -> pd.DataFrame:
    raw = datasets.read_decode_attention(hardware, stack, version)
    usable = raw["sliding_window"].isna() & (raw["activation_dtype"] == "bf16")
    usable &= raw["kv_dtype"].isin(["bf16", "fp8"] if stack == "trtllm" else ["bf16"])
    if stack != "sglang":
        usable &= raw["num_heads"] > raw["num_kv_heads"]
    table = raw[usable]
    memory = load_hardware(hardware).memory
    element = table["kv_dtype"].map(BYTES_PER_ELEMENT)
    entries = 2 * table["num_kv_heads"] * table["head_dim"] * element
    read = table["batch_size"] * table["context_length"] * entries
    is_short = read / memory.peak_bytes_per_s < 0.05 * table["latency"]
    is_timed = (read > COLD_SHARE * memory.l2_bytes) | is_short
    shape = ["num_heads", "num_kv_heads", "head_dim"]
    is_fitted = _every_third(table, shape, table.index)
    return pd.DataFrame({
        "batch_size": table["batch_size"],
        "context_length": table["context_length"],
        "num_heads": table["num_heads"],
        "num_kv_heads": table["num_kv_heads"],
        "head_dim": table["head_dim"],
        "kv_dtype": table["kv_dtype"],
        "activation_dtype": table["activation_dtype"],
        "latency": table["latency"],
        "role": _roles(is_fitted, is_timed, fallbacks.slow_heads(table)),
    })  # fmt: skip


def _fastest(table: pd.DataFrame) -> pd.DataFrame:
    """Keep the fastest of the kernels that a point was timed with, as an engine would."""
    marks = {"kernel_source", "latency", "num_repeats"}
    key = [name for name in table.columns if name not in marks]
    return table.sort_values("latency").drop_duplicates(key).sort_index()


def _every_third(table: pd.DataFrame, shape: list[str], index: pd.Index) -> pd.Series:
    """Return the rows of every third shape, in the order of their sizes."""
    shapes = table[shape].drop_duplicates().sort_values(shape)
    chosen = set(shapes.iloc[::EVERY].itertuples(index=False, name=None))
    return fallbacks.rows_in(table[shape], chosen).reindex(index, fill_value=False)


def _roles(
    is_fitted: pd.Series, is_timed: pd.Series, is_fallback: pd.Series | None = None
) -> pd.Series:
    roles = pd.Series("judge", is_fitted.index).mask(is_fitted, "fit")
    if is_fallback is not None:
        roles = roles.mask(is_fallback, "fallback")
    return roles.mask(~is_timed, "skip")
