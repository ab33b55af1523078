"""The work that rows of measured kernels timed, as a pass counts it, and plausible times of it."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from specmodel.algebra.roofline import KernelParameters
from specmodel.base.dtypes import BYTES_PER_ELEMENT
from specmodel.base.errors import InputError
from specmodel.base.units import FloatArray
from specmodel.cost.passes import component_time
from specmodel.fit.result import rounded
from specmodel.layers import blocks
from specmodel.layers.cores import prompt_attention, with_keys_and_values
from specmodel.layers.residuals import norms
from specmodel.layers.run import causal_pairs
from specmodel.layers.work import Kind, Work, wider_dtype
from specmodel.machines.hardware import HardwareProfile
from specmodel.measure.measurements import (
    COLD_SHARE,
    COLUMNS,
    DEFAULTS,
    DTYPES,
    STORED,
    groups,
    with_defaults,
)

LATENT_SIZE = 576
"""Size of a token in MLA's cache, which tables of prompts do not name and which hardly counts
there."""

Columns = dict[str, FloatArray]

PLAUSIBLE = (0.3, 100.0)  # accepted median latency over the time by the data sheet [-]


def work_of(kind: str, table: pd.DataFrame) -> Work:
    """Return the work that rows of one component and dtype timed: one layer on one GPU."""
    table = with_defaults(kind, table)
    names = [*COLUMNS[kind], *DEFAULTS.get(kind, {})]
    column = {name: table[name].to_numpy(float) for name in names if name not in DTYPES}
    activation, stored = (str(table[n].iloc[0]) for n in ("activation_dtype", STORED[kind]))
    dtypes = {"dtype": wider_dtype(activation, stored), "stored_dtype": stored}
    return _WORKS[kind](column, BYTES_PER_ELEMENT[activation], dtypes)


def _gemm(column: Columns, value_bytes: float, dtypes: dict[str, str]) -> Work:
    m, k, n = (column[name] for name in ("num_tokens", "input_size", "output_size"))
    return blocks.linear(
        m,
        weights=k * n,
        values=k + n,
        value_bytes=max(value_bytes, 2.0),
        depth=k,
        kernels=1,
        **dtypes,
    )


def _norm(column: Columns, value_bytes: float, dtypes: dict[str, str]) -> Work:
    return norms(
        column["num_tokens"],
        hidden_size=column["hidden_size"],
        norms=1,
        residual_bytes=max(value_bytes, 2.0),
        dtype=dtypes["stored_dtype"],
    )


def _attention(column: Columns, value_bytes: float, dtypes: dict[str, str]) -> Work:
    heads, size = column["num_kv_heads"], column["head_dim"]
    shape = {"num_groups": heads, "sizes": (size, size), "kv_elements": 2 * heads * size}
    return _core(column, value_bytes, dtypes, **shape)


def _latent_attention(column: Columns, value_bytes: float, dtypes: dict[str, str]) -> Work:
    latent = column["kv_lora_rank"]
    size = latent + column["qk_rope_head_dim"]
    shape = {"num_groups": 1, "sizes": (size, latent), "kv_elements": size}
    return _core(column, value_bytes, dtypes, **shape, kind="latent_attention")


def _core(column: Columns, value_bytes: float, dtypes: dict[str, str], **shape: Any) -> Work:
    B, q, entries = (column[name] for name in ("batch_size", "query_tokens", "context_length"))
    return blocks.attention(
        **shape,
        num_sequences=B,
        num_tokens=B * q,
        pairs=B * (q * (entries - (q - 1) / 2)),
        entries=B * (entries - q),
        num_heads=column["num_heads"],
        layers=1,
        residual_bytes=max(value_bytes, 2.0),
        dtype=dtypes["dtype"],
        kv_dtype=dtypes["stored_dtype"],
    )


def _prompt(kind: Kind, column: Columns, value_bytes: float, dtypes: dict[str, str]) -> Work:
    B, q, entries = (column[name] for name in ("batch_size", "query_tokens", "context_length"))
    heads, sizes = column["num_heads"], (column["key_head_dim"], column["value_head_dim"])
    is_latent = kind == "latent_prompt_attention"
    work = prompt_attention(
        num_tokens=B * q,
        whole_tokens=B * q,
        pairs=B * causal_pairs(q, entries - q),
        entries=B * entries,
        num_heads=heads,
        sizes=sizes,
        kv_elements=LATENT_SIZE if is_latent else column["num_kv_heads"] * sum(sizes),
        layers=1,
        residual_bytes=max(value_bytes, 2.0),
        kv_dtype=dtypes["stored_dtype"],
        kind=kind,
    )
    return with_keys_and_values(work, B * entries, heads * sum(sizes), 2.0) if is_latent else work


def _kimi_recurrence(column: Columns, value_bytes: float, dtypes: dict[str, str]) -> Work:
    own = {"gates": column["key_head_dim"] + 1, "steps": column["query_tokens"]}
    return _recurrence(column, value_bytes, dtypes, **own, kind="kimi_recurrence")


def _recurrence(column: Columns, value_bytes: float, dtypes: dict[str, str], **own: Any) -> Work:
    B, q = column["batch_size"], column["query_tokens"]
    return blocks.recurrence(
        num_sequences=B,
        num_tokens=B * q,
        states_moved=B * (1 + q),
        num_key_heads=column["num_key_heads"],
        num_value_heads=column["num_value_heads"],
        sizes=(column["key_head_dim"], column["value_head_dim"]),
        layers=1,
        value_bytes=max(value_bytes, 2.0),
        state_dtype=dtypes["stored_dtype"],
        **own,
    )


def _experts(column: Columns, value_bytes: float, dtypes: dict[str, str]) -> Work:
    k, h = column["experts_per_token"], column["hidden_size"]
    pairs = column["num_tokens"] * k
    sizes: dict[str, Any] = {
        "hidden_size": h,
        "width": column["expert_size"],
        "matrices": column["num_matrices"],
        "layers": 1,
        "value_bytes": value_bytes,
    }
    block = blocks.routed(
        blocks.feed_forward(pairs, **(sizes | dtypes)),
        pairs=pairs,
        loaded=column["active_experts"],
        experts=column["num_experts"],
        experts_per_token=k,
        residual_bytes=max(value_bytes, 2.0),
        **sizes,
    )
    if not column["includes_router"].any():
        return block
    router = blocks.linear(
        column["num_tokens"],
        weights=h * column["num_experts"],
        values=h + 3 * column["num_experts"],
        value_bytes=max(value_bytes, 2.0),
        depth=h,
        kernels=1,
        **dtypes,
    )
    return block + router


_WORKS: dict[str, Callable[[Columns, float, dict[str, str]], Work]] = {
    "experts": _experts,
    "gemm": _gemm,
    "attention": _attention,
    "elementwise": _norm,
    "latent_attention": _latent_attention,
    "recurrence": _recurrence,
    "kimi_recurrence": _kimi_recurrence,
    "prompt_attention": partial(_prompt, "prompt_attention"),
    "latent_prompt_attention": partial(_prompt, "latent_prompt_attention"),
}


def is_streamed(work: Work, hardware: HardwareProfile) -> NDArray[np.bool_]:
    """Return which points read more than the last-level cache can keep between two calls."""
    return np.asarray(work.weight_bytes + work.cache_bytes > COLD_SHARE * hardware.memory.l2_bytes)


def check_plausible(table: pd.DataFrame, hardware: HardwareProfile) -> None:
    """Refuse a table whose times are of another unit or device, by points that no cache holds."""
    low, high = PLAUSIBLE
    for kind, dtype, rows in groups(table):
        work = work_of(kind, rows)
        is_cold = is_streamed(work, hardware)
        if not is_cold.any():
            continue
        moved = work.weight_bytes + work.cache_bytes + work.activation_bytes
        computing = np.asarray(work.flop) / hardware.peak_flops_per_s(work.dtype)
        allowed = np.maximum(moved / hardware.memory.peak_bytes_per_s, computing)
        median = float(np.median((rows["latency"].to_numpy() / allowed)[is_cold]))
        if not low <= median <= high:
            unit = "milliseconds or microseconds" if median > high else "minutes, or another device"
            raise InputError(
                "measurements.latency",
                f"a median of {median:.3g} times the data sheet's for {kind} {dtype}",
                f"seconds on {hardware.name}, {low:g} to {high:g} times it; is it in {unit}?",
            )


def predicted_time(
    kind: str, table: pd.DataFrame, hardware: HardwareProfile, parameters: KernelParameters
) -> FloatArray:
    """Return the predicted time of a component's rows, which are of one dtype [s]."""
    return component_time(work_of(kind, table), hardware, parameters).total_time


def judge(
    kind: str, rows: pd.DataFrame, hardware: HardwareProfile, parameters: KernelParameters
) -> pd.DataFrame:
    """Return a component's rows with their ``predicted`` time [s] and its ``error`` [-]."""
    predicted = predicted_time(kind, rows, hardware, parameters)
    return rows.assign(predicted=predicted, error=predicted / rows["latency"] - 1)


def shape_errors(judged: pd.DataFrame) -> dict[str, float]:
    """Return mean (each shape counting once), median and 90th percentile of absolute errors [-]."""
    error = judged["error"].abs()
    return {
        "mean_error": rounded(error.groupby(judged["shape"]).mean().mean()),
        "median_error": rounded(error.median()),
        "percentile_90_error": rounded(error.quantile(0.9)),
    }
