"""Make tables of measurements from timings of latent attention, recurrences and prompts.

Prompts of one batch have the same length and no context. Engines run several kernels for them. A
table that mixes kernels is fitted to the kernel of most shapes, and the others are fallbacks.
"""

import itertools

import pandas as pd

from published import datasets
from published.roles import (
    EVERY,
    cold_rows,
    every_third,
    fastest_kernels,
    mixed_third,
    roles_of,
    short_rows,
    stored_bytes,
)
from specmodel.calibrate.measure.measurements import COLUMNS
from specmodel.core.layers.attention import latent_arithmetic
from specmodel.core.layers.blocks import prompt_arithmetic
from specmodel.core.machines.hardware import HardwareProfile
from specmodel.core.machines.kernels import STATE_DTYPE

RECURRENCES = ("vllm", {"gdn": "0.24.0", "kda": "0.1.dev19262"})
"""Stack whose recurrences represent all stacks, and the versions of its tables. It keeps states in
32 bits, and its verification was timed. Other tables do not state the dtype of states:
TensorRT-LLM's, and SGLang's on A100, need less time than 32 bits would at the peak."""

KIMI_RECURRENCES = {"sglang": "0.5.16"}
"""Stacks with their own fit of Kimi delta attention, and the versions of their tables. The common
fit to vLLM's kernels, which include Kimi's, has errors of 5, 8 and 34 % on them (medians of
verification; H100, H200, B200)."""

LAUNCHED = 0.1
"""Share of such a kernel's time below which neither the bytes that it moves nor a cache decide it
[-]: launches and tokens one after another do."""

KIMI_HEADS = (12, 24, 48)
"""Numbers of heads that are fitted for these stacks; 96 heads and other batch sizes are judged.
There is one more than elsewhere, because leaving out two shapes in turn says little about errors on
others."""

VERIFIED_HEADS = (12, 48)
VERIFIED_BATCHES = (1, 4, 16, 64, 256)
"""Heads and batch sizes of Kimi's recurrence that are fitted; all others are judged."""

LEAST_TOKENS, MOST_TOKENS = 256, 32_768
"""Shortest prompt, and largest sum of all prompts of a pass, that are used [token]."""

MIXED = {("prompt_attention", "rtx_pro_6000", "trtllm"): "fp8"}
"""Tables whose rows of a cache dtype are left out: heads of 128 need half the time of any other
width there, which no form here explains. The fit to the other cache dtype is used."""

MLA_HEAD = (192, 128)
"""Widths of DeepSeek's keys and values, which tables of MLA do not name [-]."""

_CONVOLUTION = "causal_conv1d"
_FEW_ENTRIES = 32  # that take no time beside the launch [token]
_SLOWER = 1.05  # than more heads take: another kernel [-]
_LEAST_SHARE = 0.1  # of a module, below which its core is lost in the noise of the whole [-]


def latent_attention(raw: pd.DataFrame, device: HardwareProfile) -> pd.DataFrame:
    """Return timings of latent attention with their roles.

    Every third number of heads is fitted, from the most on: these alone compute for longer than
    they stream.
    """
    table = raw[raw["sliding_window"].isna() & (raw["activation_dtype"] == "bf16")]
    table = table[table.groupby("kv_dtype")["num_heads"].transform("nunique") > EVERY]
    size = table["kv_lora_rank"] + table["qk_rope_head_dim"]
    elements = table["batch_size"] * table["context_length"] * size
    read = stored_bytes(elements, table["kv_dtype"])
    is_timed = cold_rows(read, device) | short_rows(read, table["latency"], device)
    dtypes = [latent_arithmetic(dtype, device.compute_capability) for dtype in table["kv_dtype"]]
    table = table.assign(activation_dtype=dtypes)
    is_fitted = every_third(table, "latent_attention", from_largest=True)
    columns = [*COLUMNS["latent_attention"], "latency"]
    is_slow = _slower_than_more_heads(table[is_timed]).reindex(table.index, fill_value=False)
    return table[columns].assign(role=roles_of(is_fitted, is_timed, is_slow))


def _slower_than_more_heads(table: pd.DataFrame) -> pd.Series:
    """Return which rows have a number of heads that takes longer than the next larger one.

    On B200, TensorRT-LLM's kernel for 32 heads takes a third longer than that for 64.
    """
    is_slow = pd.Series(data=False, index=table.index)
    for _, rows in table.groupby("kv_dtype"):
        points = ["batch_size", "context_length"]
        times = rows.pivot_table(index=points, columns="num_heads", values="latency")
        heads = list(times.columns)
        pairs = itertools.pairwise(heads)
        slow = [few for few, more in pairs if (times[few] / times[more]).median() > _SLOWER]
        is_slow[rows.index] = rows["num_heads"].isin(slow)
    return is_slow


def core_of_modules(raw: pd.DataFrame, launch_time: float) -> pd.DataFrame:
    """Return timings of the core of latent attention from those of whole modules.

    What a module takes longer at a context than at almost none is its core's; at almost none, the
    core takes a launch (`launch_time` [s]). Only modules with projections in 16 bits are taken, and
    cores that are lost in the noise of their module are left out.
    """
    table = raw[raw["quantization"] == "bfloat16"]
    alike = ["num_heads", "batch_size", "kv_dtype"]
    few = table[table["context_length"] <= _FEW_ENTRIES]
    least = few.groupby(alike)["latency"].median().rename("least").reset_index()
    table = table.merge(least, on=alike)
    grown = table["latency"] - table["least"]
    is_known = (grown > _LEAST_SHARE * table["least"]) | (table["context_length"] == _FEW_ENTRIES)
    grown = grown.mask(table["context_length"] == _FEW_ENTRIES, 0.0)
    core = table.assign(latency=grown + launch_time)
    return core[is_known].drop(columns=["least", "quantization"])


def recurrences(hardware: str, device: HardwareProfile) -> pd.DataFrame:
    """Return the timings of `RECURRENCES` on a device, with their roles; empty if none are."""
    stack, versions = RECURRENCES
    known = datasets.known_tables()
    parts = [
        recurrence(datasets.read_timings(name, hardware, stack, version), device)
        for name, version in versions.items()
        if (name, hardware, stack, version) in known
    ]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def kimi_recurrence(hardware: str, stack: str, device: HardwareProfile) -> pd.DataFrame:
    """Return a stack's own timings of Kimi's recurrence; empty where `RECURRENCES` stand in."""
    table = ("kda", hardware, stack, KIMI_RECURRENCES.get(stack, ""))
    if table not in datasets.known_tables():
        return pd.DataFrame()
    raw = datasets.read_timings(*table)
    return recurrence(raw, device, heads=KIMI_HEADS, launched=LAUNCHED)


def recurrence(
    raw: pd.DataFrame,
    device: HardwareProfile,
    *,
    heads: tuple[int, ...] = VERIFIED_HEADS,
    launched: float = 0.05,
) -> pd.DataFrame:
    """Return timings of a recurrence that decodes or verifies, with their roles.

    Every third shape is fitted; where passes of several tokens were timed too, `heads` at
    `VERIFIED_BATCHES` are. Rows that move data for less than `launched` of their time count as
    launches.
    """
    is_recurrence = ~raw["kernel_source"].str.contains(_CONVOLUTION) & (raw["phase"] != "context")
    table = fastest_kernels(raw[is_recurrence]).assign(state_dtype=STATE_DTYPE)
    states = table["batch_size"] * table["num_value_heads"]
    read = stored_bytes(
        states * table["key_head_dim"] * table["value_head_dim"], table["state_dtype"]
    )
    moved = read * (1 + table["query_tokens"])
    is_timed = cold_rows(read, device) | short_rows(moved, table["latency"], device, launched)
    is_fitted = every_third(table, "recurrence")
    if (table["query_tokens"] > 1).any():
        is_fitted = table["num_value_heads"].isin(heads)
        is_fitted &= table["batch_size"].isin(VERIFIED_BATCHES)
    columns = [*COLUMNS["recurrence"], "query_tokens", "latency"]
    table = table.assign(activation_dtype="bf16")[columns]
    return table.assign(role=roles_of(is_fitted, is_timed))


def prompts(kind: str, hardware: str, stack: str, version: str) -> pd.DataFrame:
    """Return the published timings of prompts of a stack with their roles; empty if there are none.

    A third of the shapes is fitted; of latent attention every third number of heads, from the most
    on, which alone compute for longer than a round of blocks. Of a cache of 8 bits, kernels that
    compute in 8 bits too are taken where they were timed, as engines do. Kernels other than the one
    that most points have are fallbacks: Triton's on B200 takes three times as long for heads of 192
    as others do.
    """
    if (kind, hardware, stack, version) not in datasets.known_tables():
        return pd.DataFrame()
    raw = datasets.read_timings(kind, hardware, stack, version)
    raw = _sized(raw[raw["sliding_window"].isna()], kind)
    raw = raw[raw["kv_dtype"] != MIXED.get((kind, hardware, stack))]
    tokens = raw["batch_size"] * raw["query_tokens"]
    table = raw[(raw["query_tokens"] >= LEAST_TOKENS) & (tokens <= MOST_TOKENS)]
    parts = [_fastest_arithmetic(part) for _, part in table.groupby("kv_dtype")]
    table = pd.concat(parts, ignore_index=True)
    usual = table.groupby("kv_dtype")["kernel_source"].transform(lambda names: names.mode().iloc[0])
    point = [name for name in table if name not in ("kernel_source", "latency")]
    table = table.assign(is_other=table["kernel_source"] != usual).sort_values(
        "is_other", kind="stable"
    )
    table = table.drop_duplicates(point).sort_index()
    if kind == "latent_prompt_attention":
        is_fitted = every_third(table, kind, from_largest=True)
    else:
        is_fitted = mixed_third(table, ("num_heads", "num_kv_heads", "key_head_dim"))
    is_timed = pd.Series(data=True, index=table.index)
    arithmetic = [prompt_arithmetic(dtype) for dtype in table["kv_dtype"]]
    roles = roles_of(is_fitted, is_timed, table["is_other"])
    columns = [*COLUMNS[kind], "latency"]
    return table.assign(activation_dtype=arithmetic)[columns].assign(role=roles)


def _sized(table: pd.DataFrame, kind: str) -> pd.DataFrame:
    """Add the heads and widths that a table names differently, or not at all."""
    if kind == "latent_prompt_attention":
        key, value = MLA_HEAD
        table = table.assign(
            num_kv_heads=table["num_heads"], key_head_dim=key, value_head_dim=value
        )
    else:
        table = table.assign(key_head_dim=table["head_dim"], value_head_dim=table["head_dim"])
    return table.assign(context_length=table["query_tokens"])


def _fastest_arithmetic(part: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that compute in their cache's own dtype, or all if none do."""
    own = part[part["activation_dtype"] == part["kv_dtype"]]
    return own if len(own) else part
