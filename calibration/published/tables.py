"""Make tables of measurements from published kernel timings, with the role of each row.

Engines choose a kernel for each size by timing several. If this choice failed, a point is up to
five times as long as its neighbours, although its shape is not special. Such fallback kernels are
found by comparing measurements with each other, never with the model.
"""

import numpy as np
import pandas as pd

from published import datasets
from published.experts import experts
from published.mixers import (
    core_of_modules,
    kimi_recurrence,
    latent_attention,
    prompts,
    recurrences,
)
from published.rivals import CURRENT, timed_products, without_slow
from published.roles import (
    MAX_TOKENS,
    cold_rows,
    every_third,
    roles_of,
    rows_in,
    short_rows,
    stored_bytes,
)
from specmodel.calibrate.measure.measurements import COLUMNS, SHAPE
from specmodel.core.base.errors import InputError
from specmodel.core.machines.hardware import HardwareProfile, load_hardware

SERVERS = ("h100_sxm", "h200_sxm", "b200", "b300", "gb200", "gb300")
"""GPUs that all kernels of all three engines were published on."""

STACKS: dict[tuple[str, str, str], dict[str, str]] = {
    ("a100_sxm_80gb", "sglang", "0.5.10"): {},
    **{(gpu, *stack): {} for gpu in SERVERS for stack in CURRENT.items()},
    ("rtx_pro_6000", "trtllm", "1.3.0rc20"): {"mla": "sglang/0.5.14"},
    ("l40s", "vllm", "0.24.0"): {},
}
"""Stacks that calibrated profiles ship for, the default of a GPU first, and by operation the
version of the same stack, or the stack and version, whose table is taken where its own is missing.
TensorRT-LLM's latent attention on RTX PRO 6000 reads each sequence in one piece and takes as long
for one as for many, which no form here has: SGLang's stands for it."""

NORMS = ("vllm", "0.24.0")
"""Stack whose quantisation with a scale per token represents norms, whose times nobody has
published. Like a norm, it is a kernel that reads each row, computes a number from it, and writes
the row scaled."""

_GEMM_TOKENS = tuple(2**i for i in range(13))
"""Tokens of the products that are used [token]: each octave up to `MAX_TOKENS` has the same weight.
Engines pad batches to such sizes, or to multiples of 8; odd numbers of tokens need up to twice as
long."""

_LAUNCHED = 0.3
"""Share of a product's time below which reading does not decide it, nor does a cache [-]."""

_NARROWEST = 256
"""Smallest width and depth of products that are used: models have no smaller ones [-]."""

_SHORTEST = 0.01  # share of the timings of attention that are launches [-]
_NORM_WIDTHS = (1024, 16_384)
_GEMM_QUANTIZATIONS = ("bfloat16", "fp8", "fp8_block", "nvfp4")


def published_measurements(hardware: str, stack: str, version: str) -> pd.DataFrame:
    """Return the published timings of a stack as measurements, with a ``role`` for each row.

    Rows to skip: passes above `MAX_TOKENS`, and what a cache could hold, unless reading takes less
    than 5 % of the time, which shows the launch. Fallback kernels are marked. Left out: experts of
    two matrices, expert parallelism, attention in windows, multi-head attention of TensorRT-LLM and
    vLLM, which runs other kernels than grouped attention, and dtypes of products and experts that
    another engine runs much faster on the same GPU (`rivals`).
    """
    raw = datasets.read_timings("moe", hardware, stack, version)
    if stack not in CURRENT:
        raise InputError("stack", stack, f"a stack that is calibrated: {', '.join(CURRENT)}")
    device = load_hardware(hardware)
    parts = {"experts": experts(raw, ("moe", hardware, stack, version), device)}
    known = datasets.known_tables()
    products, cores = (_table(kind, hardware, stack, version) for kind in ("gemm", "attention"))
    if products in known:
        parts["gemm"] = _gemm(without_slow(timed_products(products), products), device)
    if cores in known:
        parts["attention"] = _attention(datasets.read_timings(*cores), stack, device)
    parts["latent_attention"] = _latent_attention(hardware, stack, version)
    parts["recurrence"] = recurrences(hardware, device)
    parts["kimi_recurrence"] = kimi_recurrence(hardware, stack, device)
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


def _slower_than_more_tokens(table: pd.DataFrame) -> pd.Series:
    """Return whether each product needs 1.5 times as long as the same product with more tokens.

    vLLM's products in fp8 with a scale per tensor do so below 16 tokens on Blackwell, and those of
    all engines do so at single points.
    """
    rows = table.sort_values("num_tokens", ascending=False)
    alike = ["quantization", "input_size", "output_size"]
    return rows["latency"] > 1.5 * rows.groupby(alike)["latency"].cummin()


def _gemm(raw: pd.DataFrame, device: HardwareProfile) -> pd.DataFrame:
    usable = raw["quantization"].isin(_GEMM_QUANTIZATIONS)
    table = raw[usable & raw["num_tokens"].isin(_GEMM_TOKENS)]
    k, n = table["input_size"], table["output_size"]
    read = stored_bytes(k * n, table["weight_dtype"])
    is_short = short_rows(read, table["latency"], device, share=_LAUNCHED)
    is_timed = cold_rows(read, device) | (is_short & (np.minimum(k, n) >= _NARROWEST))
    is_fitted = every_third(table[is_timed], "gemm").reindex(table.index, fill_value=False)
    roles = roles_of(is_fitted, is_timed, _slower_than_more_tokens(table))
    return table[[*COLUMNS["gemm"], "latency"]].assign(role=roles)


def _attention(raw: pd.DataFrame, stack: str, device: HardwareProfile) -> pd.DataFrame:
    usable = raw["sliding_window"].isna() & (raw["activation_dtype"] == "bf16")
    usable &= raw["kv_dtype"].isin(["bf16", "fp8"])
    if stack != "sglang":
        usable &= raw["num_heads"] > raw["num_kv_heads"]
    table = raw[usable]
    entries = table["batch_size"] * table["context_length"]
    read = stored_bytes(2 * entries * table["num_kv_heads"] * table["head_dim"], table["kv_dtype"])
    is_timed = cold_rows(read, device) | short_rows(read, table["latency"], device)
    roles = roles_of(every_third(table, "attention"), is_timed, _slow_heads(table))
    return table[[*COLUMNS["attention"], "latency"]].assign(role=roles)


def _table(operation: str, hardware: str, stack: str, version: str) -> tuple[str, str, str, str]:
    """Return the table of an operation that is used for a stack, named as in `datasets`."""
    given = STACKS.get((hardware, stack, version), {}).get(operation, version)
    other, _, version = given.rpartition("/")
    return operation, hardware, other or stack, version


def _latent_attention(hardware: str, stack: str, version: str) -> pd.DataFrame:
    """Return timings of the core of latent attention: published, or derived from modules."""
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
    """Return quantised rows as norms of the same width that move as many bytes.

    A norm with its residual addition reads two rows in 16 bits and writes two: 8 bytes per element.
    Quantisation reads one row and writes one in 8 bits: 3 bytes. Eight rows of quantisation
    therefore represent three rows of a norm.
    """
    least, most = _NORM_WIDTHS
    usable = raw["width"].between(least, most) & (raw["num_tokens"] <= MAX_TOKENS)
    table = raw[usable & (raw["num_tokens"] % 8 == 0)].assign(activation_dtype="bf16")
    table = table.rename(columns={"width": "hidden_size"})
    table["num_tokens"] = table["num_tokens"] * 3 // 8
    is_fitted = every_third(table, "elementwise")
    is_timed = pd.Series(data=True, index=table.index)
    return table[[*COLUMNS["elementwise"], "latency"]].assign(role=roles_of(is_fitted, is_timed))


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
        for _, rows in table[~rows_in(table[names], slow)].groupby(others):
            times = rows.groupby([*point, axis])["latency"].mean().unstack(axis)
            is_slow = rows[axis].isin(_slow_sizes(times))
            slow |= set(rows[is_slow][names].itertuples(index=False, name=None))
    return rows_in(table[names], slow)


def _slow_sizes(times: pd.DataFrame) -> set[int]:
    """Return the columns that need too long for their size, compared with the last good one."""
    slow: set[int] = set()
    first, *sizes = map(int, times.columns) if len(times) else [0]
    by_size = {int(size): times[size].to_numpy() for size in times.columns}
    for size in sizes:
        small, large = by_size[first], by_size[size]
        is_long = ~np.isnan(small) & (large > 2 * np.nanmin(large))
        if is_long.any() and np.median((large / small)[is_long]) / (size / first) > 1.3:
            slow.add(size)
        else:
            first = size
    return slow
