"""Published kernel timings as tables of measurements: what is fitted, judged and skipped.

Engines pick a kernel for each size by timing some; where that went wrong, a point took up to five
times as long as its neighbours, and nothing about its shape says so. Such fallback kernels are
found by comparing measurements with their siblings only, never with the model.
"""

import pandas as pd

from specmodel.base.errors import InputError
from specmodel.calibrate import datasets
from specmodel.calibrate.measurements import COLUMNS, SHAPE
from specmodel.calibrate.published_context import prompts
from specmodel.calibrate.published_mixers import core_of_modules, latent_attention, recurrences
from specmodel.calibrate.published_roles import (
    cold_rows,
    every_third,
    fastest_kernels,
    roles_of,
    rows_in,
    short_rows,
    stored_bytes,
)
from specmodel.records.hardware import HardwareProfile, load_hardware

EXPERT_SHAPES = {
    (4096, 14336, 2, 8),
    (2048, 768, 8, 128),
    (4096, 1536, 8, 128),
    (6144, 2048, 8, 256),
}
"""(hidden, expert width, top-k, experts) that experts are fitted on; all others are judged. A
dtype that was timed on none of these is fitted on all of its shapes."""

MAX_TOKENS = 4096
"""Longest pass taken [token]."""

STACKS: dict[tuple[str, str, str], dict[str, str]] = {
    ("a100_sxm_80gb", "sglang", "0.5.10"): {},
    ("h100_sxm", "trtllm", "1.3.0rc20"): {},
    ("h200_sxm", "trtllm", "1.3.0rc20"): {},
    ("h200_sxm", "vllm", "0.19.0"): dict.fromkeys(
        ("gemm", "attention", "mla_module", "prompt_attention"), "0.24.0"
    ),
    ("b200", "trtllm", "1.3.0rc20"): {},
    ("rtx_pro_6000", "trtllm", "1.3.0rc20"): {"mla": "sglang/0.5.14"},
    ("l40s", "vllm", "0.24.0"): {},
}
"""Stacks that calibrated profiles ship for. Where a version lacks a table, the version of the same
stack, or the stack and version, that it is taken from. TensorRT-LLM's latent attention on RTX PRO
6000 reads each sequence in one piece and takes as long for one as for many, which no form here has:
SGLang's stands for it."""

NORMS = ("vllm", "0.24.0")
"""Stack whose quantisation by a scale of each token stands for norms, whose times nobody published:
like one, it is a kernel that reads each row, finds a number of it, and writes the row scaled."""

_SHORTEST = 0.01  # share of the timings of attention that are launches [-]
_NORM_WIDTHS = (1024, 16_384)
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
    raw = datasets.read_timings("moe", hardware, stack, version)
    if stack not in _EXPERT_QUANTIZATIONS:
        expected = f"a stack that is calibrated: {', '.join(_EXPERT_QUANTIZATIONS)}"
        raise InputError("stack", stack, expected)
    device = load_hardware(hardware)
    parts = {"experts": _experts(raw, stack, hardware, device)}
    known = datasets.known_tables()
    for kind, build in (("gemm", _gemm), ("attention", _attention)):
        name = _table(kind, hardware, stack, version)
        if name in known:
            parts[kind] = build(datasets.read_timings(*name), stack, device)
    parts["latent_attention"] = _latent_attention(hardware, stack, version)
    parts["recurrence"] = recurrences(hardware, device)
    for kind in datasets.PROMPTS:
        parts[kind] = prompts(*_table(kind, hardware, stack, version))
    if ("quantize", hardware, *NORMS) in known:
        parts["elementwise"] = _norms(datasets.read_timings("quantize", hardware, *NORMS))
    tables = [part.assign(component=kind) for kind, part in parts.items() if len(part)]
    if not tables:
        expected = "a table with a dtype that is calibrated, such as bf16"
        raise InputError("version", f"{stack}/{version}", expected)
    table = pd.concat(tables, ignore_index=True)
    return table.assign(hardware=hardware, stack=stack, version=version)


def _experts(raw: pd.DataFrame, stack: str, name: str, device: HardwareProfile) -> pd.DataFrame:
    usable = raw["is_gated"] & ~raw["is_slow_path"] & (raw["expert_parallel"] == 1)
    usable &= raw["quantization"].isin(_EXPERT_QUANTIZATIONS[stack])
    usable &= (raw["quantization"] != "w4a16_mxfp4") | (name not in _SLOW_MXFP4)
    usable &= raw["active_experts"].notna() & (raw["num_tokens"] <= MAX_TOKENS)
    table = fastest_kernels(raw[usable]).assign(num_matrices=3)
    table["model_expert_size"] = table["expert_size"] * table["tensor_parallel"]
    elements = table["active_experts"] * 3 * table["hidden_size"] * table["expert_size"]
    is_cold = cold_rows(stored_bytes(elements, table["weight_dtype"]), device)
    is_slow = pd.Series(table.index.isin(_slow_slices(table[is_cold])), table.index)
    is_fitted = rows_in(table[list(SHAPE["experts"])], EXPERT_SHAPES)
    fitted_dtypes = table["quantization"][is_fitted].unique()
    is_fitted |= ~table["quantization"].isin(fitted_dtypes)
    is_skewed = is_fitted & (table["distribution"] != "balanced")
    roles = roles_of(is_fitted, is_cold, is_slow).mask(is_skewed & is_cold & ~is_slow, "spread")
    names = [*COLUMNS["experts"], "model_expert_size", "distribution", "latency"]
    return table[names].assign(role=roles)


def _gemm(raw: pd.DataFrame, stack: str, device: HardwareProfile) -> pd.DataFrame:
    usable = raw["quantization"].isin(_GEMM_QUANTIZATIONS[stack])
    table = raw[usable & (raw["num_tokens"] <= MAX_TOKENS)]
    k, n = table["input_size"], table["output_size"]
    read = stored_bytes(k * n, table["weight_dtype"])
    is_long = (n < 128) | (k < 1024) | (table["num_tokens"] > 16)
    is_timed = cold_rows(read, device) | (short_rows(read, table["latency"], device) & ~is_long)
    is_fitted = every_third(table[is_timed], "gemm").reindex(table.index, fill_value=False)
    return table[[*COLUMNS["gemm"], "latency"]].assign(role=roles_of(is_fitted, is_timed))


def _attention(raw: pd.DataFrame, stack: str, device: HardwareProfile) -> pd.DataFrame:
    usable = raw["sliding_window"].isna() & (raw["activation_dtype"] == "bf16")
    usable &= raw["kv_dtype"].isin(["bf16", "fp8"] if stack == "trtllm" else ["bf16"])
    if stack != "sglang":
        usable &= raw["num_heads"] > raw["num_kv_heads"]
    table = raw[usable]
    entries = table["batch_size"] * table["context_length"]
    read = stored_bytes(2 * entries * table["num_kv_heads"] * table["head_dim"], table["kv_dtype"])
    is_timed = cold_rows(read, device) | short_rows(read, table["latency"], device)
    roles = roles_of(every_third(table, "attention"), is_timed, _slow_heads(table))
    return table[[*COLUMNS["attention"], "latency"]].assign(role=roles)


def _table(operation: str, hardware: str, stack: str, version: str) -> tuple[str, str, str, str]:
    """Return which table of an operation is taken for a stack, as `datasets` names it."""
    given = STACKS.get((hardware, stack, version), {}).get(operation, version)
    other, _, version = given.rpartition("/")
    return operation, hardware, other or stack, version


def _latent_attention(hardware: str, stack: str, version: str) -> pd.DataFrame:
    """Return timings of latent attention: of its core where published, else what modules tell."""
    known, device = datasets.known_tables(), load_hardware(hardware)
    cores, modules = (_table(name, hardware, stack, version) for name in ("mla", "mla_module"))
    if cores in known:
        return latent_attention(datasets.read_timings(*cores), device)
    if modules not in known:
        return pd.DataFrame()
    attention = datasets.read_timings("attention", *modules[1:])
    launch_time = float(attention["latency"].quantile(_SHORTEST))
    core = core_of_modules(datasets.read_timings(*modules), launch_time)
    return latent_attention(core, device)


def _norms(raw: pd.DataFrame) -> pd.DataFrame:
    """Return quantised rows as norms of the width that moves as many bytes.

    A norm with its residual addition reads two rows in 16 bits and writes two: 8 bytes an element.
    Quantisation reads one and writes one in 8 bits: 3 bytes.
    """
    least, most = _NORM_WIDTHS
    usable = raw["width"].between(least, most) & (raw["num_tokens"] <= MAX_TOKENS)
    table = raw[usable].assign(activation_dtype="bf16")
    table["hidden_size"] = table["width"] * 3 // 8
    is_fitted = every_third(table, "elementwise")
    is_timed = pd.Series(data=True, index=table.index)
    return table[[*COLUMNS["elementwise"], "latency"]].assign(role=roles_of(is_fitted, is_timed))


def _slow_slices(table: pd.DataFrame) -> list[int]:
    """Return the rows that belong to a slice of experts that ran a fallback kernel.

    A slice is one shape at one tensor-parallel degree, compared with its siblings by medians over
    token counts. It is slow if it took 1.5 times its share of the time of a thinner one; or longer
    than a wider one; or more than twice the sum of its share of the time of a wider one and of
    that one's cheapest point. The table has rows that were read from memory only.
    """
    found: list[int] = []
    for _, rows in table.groupby(["quantization", "distribution", *SHAPE["experts"]]):
        times = rows.pivot_table(index="num_tokens", columns="expert_size", values="latency")
        found += rows.index[rows["expert_size"].isin(_slow_widths(times))].tolist()
    return found


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
    names, point = list(SHAPE["attention"]), ["batch_size", "context_length"]
    slow: set[tuple[int, ...]] = set()
    for axis in ("num_heads", "head_dim"):
        others = ["kv_dtype", *(name for name in names if name != axis)]
        for _, rows in table.groupby(others):
            rows = rows[~rows_in(rows[names], slow)]
            times = rows.pivot_table(index=point, columns=axis, values="latency")
            is_slow = rows[axis].isin(_slow_sizes(times))
            slow |= set(rows[is_slow][names].itertuples(index=False, name=None))
    return rows_in(table[names], slow)


def _slow_sizes(times: pd.DataFrame) -> set[int]:
    """Return the columns that take too long for their size, next to the last that does not."""
    slow: set[int] = set()
    first, *sizes = map(int, times.columns) if len(times) else [0]
    for size in sizes:
        both = times[[first, size]].dropna()
        both = both[both[size] > 2 * times[size].min()]
        if (both[size] / both[first] / (size / first)).median() > 1.3:
            slow.add(size)
        else:
            first = size
    return slow
