"""Published timings of attention of prompts as tables of measurements.

Prompts of one batch have one length and no context. Engines run several kernels for them; a table
that mixes these is fitted on the one that most shapes have, and the others are fallbacks.
"""

import pandas as pd

from specmodel.calibrate import datasets
from specmodel.calibrate.measurements import COLUMNS
from specmodel.calibrate.published_roles import every_third, mixed_third, roles_of
from specmodel.records.layers.cores import prompt_arithmetic

LEAST_TOKENS, MOST_TOKENS = 256, 32_768
"""Shortest prompt, and most tokens of all prompts of a pass, that are taken [token]."""

MIXED = {("prompt_attention", "rtx_pro_6000", "trtllm"): "fp8"}
"""Tables whose rows of a cache are left out: heads of 128 take half the time of any other width
there, for which no form here has a reason. What is fitted to the other cache stands in."""

MLA_HEAD = (192, 128)
"""Widths of DeepSeek's keys and values, which tables of MLA do not name [-]."""


def prompts(kind: str, hardware: str, stack: str, version: str) -> pd.DataFrame:
    """Return the published timings of prompts of a stack with their roles.

    A third of the shapes is fitted, of latent attention every third number of heads, from the most
    on, which alone compute for longer than a round of blocks.

    Parameters
    ----------
    kind
        ``prompt_attention`` or ``latent_prompt_attention``.
    hardware, stack, version
        A row of `datasets.list_tables`; hardware by the name of its profile.

    Returns
    -------
    pandas.DataFrame
        Columns of the component, ``latency`` [s] and ``role``; empty where none were published.

    Notes
    -----
    Of a cache of 8 bits, kernels that compute in 8 bits too are taken where they were timed, as
    engines do. Kernels other than the one that most points have are fallbacks: Triton's on B200
    takes three times as long for heads of 192 as others do.
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
    """Return rows with the heads and widths that their table says in other words, or not at all."""
    if kind == "latent_prompt_attention":
        key, value = MLA_HEAD
        table = table.assign(
            num_kv_heads=table["num_heads"], key_head_dim=key, value_head_dim=value
        )
    else:
        table = table.assign(key_head_dim=table["head_dim"], value_head_dim=table["head_dim"])
    return table.assign(context_length=table["query_tokens"])


def _fastest_arithmetic(part: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a cache that compute in its own dtype, or all if none do."""
    own = part[part["activation_dtype"] == part["kv_dtype"]]
    return own if len(own) else part
