"""Compute the work of measured kernels, check their times, and judge a profile with them."""

import itertools
from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from specmodel.calibrate.fit.result import rounded
from specmodel.calibrate.measure import measurements as tables
from specmodel.core.algebra.roofline import KernelParameters
from specmodel.core.base.errors import InputError
from specmodel.core.base.units import FloatArray
from specmodel.core.cost.passes import component_time
from specmodel.core.layers import blocks
from specmodel.core.layers.blocks import BlockSizes, Heads, StateHeads, Tokens, Updates, linear
from specmodel.core.layers.run import Attended, causal_pairs
from specmodel.core.layers.stream import Stream
from specmodel.core.layers.work import Kind, Work
from specmodel.core.machines.fallbacks import choose_kernels
from specmodel.core.machines.hardware import HardwareProfile, list_hardware, load_hardware

LATENT_SIZE = 576
"""Elements of a token in MLA's cache. Tables of prompts do not contain this size, and it hardly
changes their times."""

Columns = dict[str, FloatArray]

PLAUSIBLE = (0.3, 100.0)  # accepted range of median latency over data-sheet time [-]


def work_of(kind: str, table: pd.DataFrame) -> Work:
    """Return the work of measured rows of one component and dtype: of one layer on one GPU.

    Parameters
    ----------
    kind, table
        The component, such as "gemm", and its rows with the columns that `measure` describes.
    """
    table = tables.with_defaults(kind, table)
    names = [*tables.COLUMNS[kind], *tables.DEFAULTS.get(kind, {})]
    column = {name: table[name].to_numpy(float) for name in names if name not in tables.DTYPES}
    activation, stored = (str(table[n].iloc[0]) for n in ("activation_dtype", tables.STORED[kind]))
    return _WORKS[kind](column, Stream(0, stored, stored, stored, activation, kv_dtype=stored))


def _gemm(column: Columns, stream: Stream) -> Work:
    m, k, n = (column[name] for name in ("num_tokens", "input_size", "output_size"))
    return linear(Tokens(stream, m), 1, weights=k * n, values=k + n, depth=k)


def _norm(column: Columns, stream: Stream) -> Work:
    return blocks.norms(Tokens(stream, column["num_tokens"]), 1, column["hidden_size"])


def _drawn(column: Columns, stream: Stream, kind: Kind = "sampling") -> Work:
    rows, words = column["num_tokens"], column["vocabulary_size"]
    return blocks.drawn(rows, words, stream.activation_dtype, kind)


def _attention(column: Columns, stream: Stream) -> Work:
    groups, size = column["num_kv_heads"], column["head_dim"]
    queries, entry = column["num_heads"], 2 * groups * size
    heads = Heads(queries=queries, groups=groups, sizes=(size, size), entry=entry)
    return blocks.attention(stream, 1, _decoded(column), heads)


def _latent_attention(column: Columns, stream: Stream) -> Work:
    latent = column["kv_lora_rank"]
    size = latent + column["qk_rope_head_dim"]
    heads = Heads(queries=column["num_heads"], groups=1, sizes=(size, latent), entry=size)
    return blocks.attention(stream, 1, _decoded(column), heads, kind="latent_attention")


def _decoded(column: Columns) -> Attended:
    B, q, entries = (column[name] for name in ("batch_size", "query_tokens", "context_length"))
    pairs = B * (q * (entries - (q - 1) / 2))
    return Attended(num_sequences=B, num_tokens=B * q, pairs=pairs, entries=B * (entries - q))


def _prompt(column: Columns, stream: Stream, *, has_latents: bool = False) -> Work:
    B, q, entries = (column[name] for name in ("batch_size", "query_tokens", "context_length"))
    queries, sizes = column["num_heads"], (column["key_head_dim"], column["value_head_dim"])
    attended = Attended(
        num_sequences=B,
        num_tokens=B * q,
        pairs=B * causal_pairs(q, entries - q),
        entries=B * entries,
        whole_tokens=B * q,
    )
    entry = LATENT_SIZE if has_latents else column["num_kv_heads"] * sum(sizes)
    heads = Heads(queries=queries, groups=queries, sizes=sizes, entry=entry)
    return blocks.prompt_attention(stream, 1, attended, heads, has_latents=has_latents)


def _recurrence(column: Columns, stream: Stream, kind: Kind = "recurrence") -> Work:
    B, q = column["batch_size"], column["query_tokens"]
    steps, gates = (q, column["key_head_dim"] + 1) if kind == "kimi_recurrence" else (0.0, 2.0)
    sizes = column["key_head_dim"], column["value_head_dim"]
    heads = StateHeads(column["num_key_heads"], column["num_value_heads"], sizes)
    updates = Updates(num_sequences=B, states_moved=B * (1 + q), steps=steps)
    tokens = Tokens(stream, B * q)
    return blocks.recurrence(tokens, 1, heads, updates, stream.weight_dtype, gates=gates, kind=kind)


def _experts(column: Columns, stream: Stream) -> Work:
    k, h = column["experts_per_token"], column["hidden_size"]
    tokens, num_experts = column["num_tokens"], column["num_experts"]
    block = blocks.routed(
        Tokens(stream, tokens * k),
        1,
        BlockSizes(h, column["expert_size"], column["num_matrices"]),
        loaded=column["active_experts"],
        experts=num_experts,
        experts_per_token=k,
    )
    if not column["includes_router"].any():
        return block
    weights, scores = h * num_experts, h + 3 * num_experts
    return block + linear(Tokens(stream, tokens), 1, weights=weights, values=scores, depth=h)


_WORKS: dict[str, Callable[[Columns, Stream], Work]] = {
    "experts": _experts,
    "gemm": _gemm,
    "attention": _attention,
    "elementwise": _norm,
    "sampling": _drawn,
    "rejection": partial(_drawn, kind="rejection"),
    "latent_attention": _latent_attention,
    "recurrence": _recurrence,
    "kimi_recurrence": partial(_recurrence, kind="kimi_recurrence"),
    "prompt_attention": _prompt,
    "latent_prompt_attention": partial(_prompt, has_latents=True),
}


def is_streamed(work: Work, hardware: HardwareProfile) -> NDArray[np.bool_]:
    """Return whether each point reads more than the last-level cache keeps between two calls."""
    kept = tables.COLD_SHARE * hardware.memory.l2_bytes
    return np.asarray(work.weight_bytes + work.cache_bytes > kept)


def check_plausible(kind: str, dtype: str, rows: pd.DataFrame, hardware: HardwareProfile) -> None:
    """Raise an InputError if times of one kind seem to be in another unit or from another device.

    Only points that are too large for the cache are checked.
    """
    (low, high), work = PLAUSIBLE, work_of(kind, rows)
    is_cold = is_streamed(work, hardware)
    if not is_cold.any():
        return
    moved = work.weight_bytes + work.cache_bytes + work.activation_bytes
    computing = np.asarray(work.flop) / hardware.peak_flops_per_s(work.dtype)
    if hardware.kind == "cpu" and tables.STORED[kind] == "kv_dtype":
        computing = 0.0 * computing  # attention may compute in a wider dtype, if that is faster
    allowed = np.maximum(moved / hardware.memory.peak_bytes_per_s, computing)
    median = float(np.median((rows["latency"].to_numpy() / allowed)[is_cold]))
    if not low <= median <= high:
        unit = "milliseconds or microseconds" if median > high else "minutes, or another device"
        raise InputError(
            "measurements.latency",
            f"a median of {median:.3g} times the data sheet's for {kind} {dtype}",
            f"seconds, {low:g} to {high:g} times the data sheet's. Is the column in {unit}?",
        )


def predicted_time(
    kind: str, table: pd.DataFrame, hardware: HardwareProfile, parameters: KernelParameters
) -> FloatArray:
    """Return the predicted time of a component's rows, all of one dtype.

    Parameters
    ----------
    kind, table
        The component and its rows, as for `work_of`.
    hardware, parameters
        The GPU, and the efficiency of the component's kernels.

    Returns
    -------
    FloatArray
        A time for each row [s].
    """
    return component_time(work_of(kind, table), hardware, parameters).total_time


def judge(
    kind: str, rows: pd.DataFrame, hardware: HardwareProfile, parameters: KernelParameters
) -> pd.DataFrame:
    """Return the rows of a component with ``predicted`` times [s] and their ``error`` [-]."""
    predicted = predicted_time(kind, rows, hardware, parameters)
    return rows.assign(predicted=predicted, error=predicted / rows["latency"] - 1)


def shape_errors(judged: pd.DataFrame) -> dict[str, float]:
    """Return the mean, median and 90th percentile of absolute errors [-].

    In the mean, each shape has the same weight.
    """
    error = judged["error"].abs()
    return {
        "mean_error": rounded(error.groupby(judged["shape"]).mean().mean()),
        "median_error": rounded(error.median()),
        "percentile_90_error": rounded(error.quantile(0.9)),
    }


ALL_ROWS = "all"  # label of the errors of a component as a whole

TOKEN_RANGES = (0, 4, 16, 64, 256, 1024, np.inf)
"""Bounds of the ranges of tokens per pass for which errors are reported [token]."""

_TOKENS = ("num_tokens", "query_tokens", "batch_size")
"""Columns with the tokens of a pass: the first one that a component has counts."""


def predict_measured(
    table: pd.DataFrame, hardware: HardwareProfile, stack: str | None = None
) -> pd.DataFrame:
    """Return the judged rows of a table with their predicted time.

    Rows with the role "judge" are judged, or rows with the role "fit" if a component has no others.
    The column ``case`` is the distribution of tokens over experts. For other components, it is
    "streamed" if weights or KV come from memory, or "short" if they fit into the cache. Kernels are
    those of `stack`, by default of the stack of the table if the profile has it.
    """
    device = str(table["hardware"].iloc[0])
    if device in list_hardware() and load_hardware(device).name != hardware.name:
        raise InputError("measurements.hardware", device, f"a table measured on {hardware.name}")
    kernels = choose_kernels(hardware, stack, str(table["stack"].iloc[0]))
    parts = []
    for kind, dtype, rows in tables.groups(table):
        check_plausible(kind, dtype, rows, hardware)
        judged = tables.judged_rows(rows)
        if len(judged):
            judged = judge(kind, judged, hardware, kernels.parameters(kind, dtype))
            tokens = judged[next(name for name in _TOKENS if name in tables.COLUMNS[kind])]
            case = _cases(kind, judged, hardware)
            parts.append(judged.assign(dtype=dtype, case=case, tokens=tokens))
    if not parts:
        raise InputError("measurements", "no row to judge", "rows with the role judge or fit")
    return pd.concat(parts, ignore_index=True)


def _cases(kind: str, rows: pd.DataFrame, hardware: HardwareProfile) -> pd.Series:
    if kind == "experts":
        return pd.Series(rows.get("distribution", "balanced"), rows.index).fillna("balanced")
    is_long = is_streamed(work_of(kind, rows), hardware)
    return pd.Series(np.where(is_long, "streamed", "short"), rows.index)


def error_table(judged: pd.DataFrame) -> pd.DataFrame:
    """Return errors of each component by case and by range of tokens; the bias is a median [-]."""
    rows = []
    lows, highs = TOKEN_RANGES[:-1], TOKEN_RANGES[1:]
    ranges = [f"{low + 1}-{high} tokens" for low, high in zip(lows, highs, strict=True)]
    ranges[-1] = f"{lows[-1] + 1} tokens on"
    for (kind, dtype), part in judged.groupby(["component", "dtype"], sort=True):
        bins = pd.cut(part["tokens"], TOKEN_RANGES, labels=ranges)
        parts = (part.groupby("case", sort=True), part.groupby(bins, observed=True))
        for label, inside in ((ALL_ROWS, part), *itertools.chain(*parts)):
            row = {"component": kind, "dtype": dtype, "rows": label, "points": len(inside)}
            rows.append(row | shape_errors(inside) | {"bias": float(inside["error"].median())})
    return pd.DataFrame(rows)
