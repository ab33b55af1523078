"""Published kernel timings as tables of measurements: what is fitted, judged and skipped.

Engines pick a kernel for each size by timing some; where that went wrong, a point took up to five
times as long as its neighbours, and nothing about its shape says so. Such fallback kernels are
found by comparing measurements with their siblings only, never with the model.
"""

from collections.abc import Collection

import pandas as pd

from specmodel.base.errors import InputError
from specmodel.base.units import BYTES_PER_ELEMENT
from specmodel.calibrate import datasets
from specmodel.calibrate.measurements import COLD_SHARE, COLUMNS, SHAPE
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
"""Stacks that calibrated profiles ship for. Where a version lacks a table, the version of the same
stack that it is taken from."""

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
    (`_slow_slices`, `_slow_heads`). Left out: experts of two matrices, expert parallelism,
    attention in windows, and multi-head attention of TensorRT-LLM and vLLM, which runs other
    kernels than grouped attention does.
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
    table = _fastest(raw[usable]).assign(num_matrices=3)
    table["model_expert_size"] = table["expert_size"] * table["tensor_parallel"]
    is_cold = _is_cold(table["loaded_bytes"], hardware)
    is_slow = pd.Series(data=False, index=table.index)
    for _, rows in table[is_cold].groupby(["quantization", "distribution"]):
        is_slow |= is_slow.index.isin(rows.index[_slow_slices(rows)])
    is_fitted = _rows_in(table[list(SHAPE["experts"])], EXPERT_SHAPES)
    fitted_dtypes = table["quantization"][is_fitted].unique()
    is_fitted |= ~table["quantization"].isin(fitted_dtypes)
    is_skewed = is_fitted & (table["distribution"] != "balanced")
    roles = _roles(is_fitted, is_cold, is_slow).mask(is_skewed & is_cold & ~is_slow, "spread")
    names = ["num_tokens", "hidden_size", "expert_size", "model_expert_size", "num_experts",
             "experts_per_token", "active_experts", "num_matrices", "distribution",
             "weight_dtype", "activation_dtype", "latency"]  # fmt: skip
    return table[names].assign(role=roles)


def _gemm(hardware: str, stack: str, version: str) -> pd.DataFrame:
    raw = datasets.read_gemm(hardware, stack, version)
    table = raw[raw["quantization"].isin(_GEMM_QUANTIZATIONS[stack]) & (raw["m"] <= MAX_TOKENS)]
    read = table["n"] * table["k"] * table["weight_dtype"].map(BYTES_PER_ELEMENT)
    is_long = (table["n"] < 128) | (table["k"] < 1024) | (table["m"] > 16)
    is_timed = _is_cold(read, hardware) | (_is_short(read, table, hardware) & ~is_long)
    table = table.rename(columns={"m": "num_tokens", "k": "input_size", "n": "output_size"})
    is_fitted = _every_third(table[is_timed], "gemm").reindex(table.index, fill_value=False)
    return table[[*COLUMNS["gemm"], "latency"]].assign(role=_roles(is_fitted, is_timed))


def _attention(hardware: str, stack: str, version: str) -> pd.DataFrame:
    raw = datasets.read_decode_attention(hardware, stack, version)
    usable = raw["sliding_window"].isna() & (raw["activation_dtype"] == "bf16")
    usable &= raw["kv_dtype"].isin(["bf16", "fp8"] if stack == "trtllm" else ["bf16"])
    if stack != "sglang":
        usable &= raw["num_heads"] > raw["num_kv_heads"]
    table = raw[usable]
    element = table["kv_dtype"].map(BYTES_PER_ELEMENT)
    entries = 2 * table["num_kv_heads"] * table["head_dim"] * element
    read = table["batch_size"] * table["context_length"] * entries
    is_timed = _is_cold(read, hardware) | _is_short(read, table, hardware)
    roles = _roles(_every_third(table, "attention"), is_timed, _slow_heads(table))
    return table[[*COLUMNS["attention"], "latency"]].assign(role=roles)


def _is_cold(read_bytes: pd.Series, hardware: str) -> pd.Series:
    """Return which rows read too much for a cache to hold it from one call to the next."""
    return read_bytes > COLD_SHARE * load_hardware(hardware).memory.l2_bytes


def _is_short(read_bytes: pd.Series, table: pd.DataFrame, hardware: str) -> pd.Series:
    """Return which rows take so much longer than their reads that the launch decides."""
    peak_bytes_per_s = load_hardware(hardware).memory.peak_bytes_per_s
    return read_bytes / peak_bytes_per_s < 0.05 * table["latency"]


def _fastest(table: pd.DataFrame) -> pd.DataFrame:
    """Keep the fastest of the kernels that a point was timed with, as an engine would."""
    marks = {"kernel_source", "latency", "num_repeats"}
    key = [name for name in table.columns if name not in marks]
    return table.sort_values("latency").drop_duplicates(key).sort_index()


def _every_third(table: pd.DataFrame, kind: str) -> pd.Series:
    """Return the rows of every third shape, in the order of their sizes."""
    sizes = table[list(SHAPE[kind])]
    shapes = sizes.drop_duplicates().sort_values(list(sizes.columns))
    return _rows_in(sizes, set(shapes.iloc[::EVERY].itertuples(index=False, name=None)))


def _rows_in(sizes: pd.DataFrame, shapes: Collection[tuple[int, ...]]) -> pd.Series:
    """Return which rows of a table of sizes are among some shapes."""
    is_in = pd.MultiIndex.from_frame(sizes).isin(list(shapes)) if shapes else False
    return pd.Series(is_in, sizes.index, dtype=bool)


def _roles(
    is_fitted: pd.Series, is_timed: pd.Series, is_fallback: pd.Series | None = None
) -> pd.Series:
    roles = pd.Series("judge", is_fitted.index).mask(is_fitted, "fit")
    if is_fallback is not None:
        roles = roles.mask(is_fallback, "fallback")
    return roles.mask(~is_timed, "skip")


def _slow_slices(table: pd.DataFrame) -> pd.Series:
    """Return which rows belong to a slice of experts that ran a fallback kernel.

    A slice is one shape at one tensor-parallel degree, compared with its siblings by medians over
    token counts. It is slow if it took 1.5 times its share of the time of a thinner one; or longer
    than a wider one; or more than twice the sum of its share of the time of a wider one and of
    that one's cheapest point. The table is of one distribution and dtype, and read from memory.
    """
    is_slow = pd.Series(data=False, index=table.index)
    for _, rows in table.groupby(list(SHAPE["experts"])):
        times = rows.pivot_table(index="num_tokens", columns="expert_size", values="latency")
        slow = _slow_widths(times)
        is_slow |= table.index.isin(rows.index[rows["expert_size"].isin(slow)])
    return is_slow


def _slow_widths(times: pd.DataFrame) -> set[int]:
    slow: set[int] = set()
    widths = [int(width) for width in times.columns]
    for wide in sorted(widths, reverse=True):
        thinner = [width for width in widths if width < wide]
        if any((times[wide] / times[w] * (w / wide)).median() > 1.5 for w in thinner):
            slow.add(wide)
        if wide in slow:
            continue  # a wide slice that is slow itself is no measure for thinner ones
        for width in thinner:
            share = times[wide] * (width / wide) + times[wide].min()
            beyond_share = (times[width] / share).median() > 2
            if beyond_share or (times[width] / times[wide]).median() > 1:
                slow.add(width)
    return slow


def _slow_heads(table: pd.DataFrame) -> pd.Series:
    """Return which rows belong to a shape of attention that ran a fallback kernel.

    A shape is slow if it takes 1.3 times as long for each head, or for each element of a head, as
    the next smaller shape that is not slow, in the median over points that take twice its least.
    On Hopper and Blackwell, TensorRT-LLM's kernels do so from 48 heads for each KV head on.
    """
    names = list(SHAPE["attention"])
    slow: set[tuple[int, ...]] = set()
    for axis in ("num_heads", "head_dim"):
        others = ["kv_dtype", *(name for name in names if name != axis)]
        for _, rows in table.groupby(others):
            slow |= _slow_along(rows[~_rows_in(rows[names], slow)], axis, names)
    return _rows_in(table[names], slow)


def _slow_along(rows: pd.DataFrame, axis: str, names: list[str]) -> set[tuple[int, ...]]:
    times = rows.pivot_table(index=["batch_size", "context_length"], columns=axis, values="latency")
    slow: set[tuple[int, ...]] = set()
    reference: int | None = None
    for size in map(int, times.columns):
        if reference is not None:
            both = times[[reference, size]].dropna()
            both = both[both[size] > 2 * times[size].min()]
            growth = (both[size] / both[reference] / (size / reference)).median()
            if growth > 1.3:
                shape = rows[rows[axis] == size][names].iloc[0]
                slow.add(tuple(int(value) for value in shape))
                continue
        reference = size
    return slow
