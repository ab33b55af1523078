"""Read public kernel measurements as tidy tables with our names and SI units.

The tables come with the package ``aiconfigurator-core`` (Apache-2.0; extra ``[datasets]``), which
contains measurements of its authors with CUDA graphs. Nothing is downloaded. Each reader corrects
misleading values of its table.
"""

from functools import cache
from importlib.metadata import version as installed_version
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd

from specmodel.core.base.dtypes import BYTES_PER_ELEMENT
from specmodel.core.base.errors import InputError, install, nearest

_PACKAGE = "aiconfigurator_core"

FOLDERS = {
    "a100_pcie_80gb": "a100_pcie",
    "a100_sxm_80gb": "a100_sxm",
    "b200": "b200_sxm",
    "b300": "b300_sxm",
    "gb200": "gb200",
    "gb300": "gb300",
    "h100_pcie": "h100_pcie",
    "h100_sxm": "h100_sxm",
    "h200_sxm": "h200_sxm",
    "l4": "l4",
    "l40s": "l40s",
    "rtx_pro_6000": "rtx_pro_6000_server",
}
"""Hardware profiles with published tables, and the folder each is measured under."""

_BY_TOKEN = "computescale_perf.parquet"
"""What finding the scale of each token, or of the tensor, adds to quantising by a known one."""

FILES = {
    # routed experts with top-k, permutation and reduction
    "moe": "moe_perf.parquet",
    "gemm": "gemm_perf.parquet",
    # the core of attention with one query token a sequence, and with a prompt
    "attention": "generation_attention_perf.parquet",
    "prompt_attention": "context_attention_perf.parquet",
    "latent_prompt_attention": "context_mla_perf.parquet",
    # the core of latent attention, in DeepSeek's shape
    "mla": "generation_mla_perf.parquet",
    # a whole layer of sparse attention, and the scores of GLM-5's indexer for several tokens of a
    # sequence; contexts are those before the tokens
    "dsa": "dsa_generation_module_perf.parquet",
    "dsa_index": "glm5_mqa_logits_module_perf.parquet",
    # a whole layer of MiniMax-M3's block-sparse attention
    "msa": "msa_generation_module_perf.parquet",
    # whole layers of DeepSeek-V4's attention, and the choice of entries by scores, all alike or not
    "hca": "dsv4_hca_generation_module_perf.parquet",
    "csa": "dsv4_csa_generation_module_perf.parquet",
    "csa_choice": "dsv4_csa_topk_calib_perf.parquet",
    # DeepSeek-V4's residual streams before both blocks of a layer ("pre") and after them ("post")
    "mhc": "mhc_module_perf.parquet",
    # latent attention with its projections, whose dtype is the quantization
    "mla_module": "mla_generation_module_perf.parquet",
    # gated delta nets and Kimi's, with short convolutions: phases context, generation and verify
    "gdn": "gdn_perf.parquet",
    "kda": "kda_perf.parquet",
    # bf16 to fp8 by a scale of each token, and what finding that scale takes of it
    "quantize": "scale_matrix_perf.parquet",
    "compute_scale": _BY_TOKEN,
    # all-reduces inside a node
    "comm": "custom_allreduce_perf.parquet",
}
"""Operations that are read here, and the file of each."""

PROMPTS = ("prompt_attention", "latent_prompt_attention")
"""Those of prompts without a context."""

_FOLDER_OF = {
    "dsa": "sparse_attention",
    **dict.fromkeys(("dsa_index", "hca", "csa", "csa_choice"), "sparse_attention"),
    "mla_module": "mla",
    "gdn": "linear_attention",
    "compute_scale": "quantize",
    "prompt_attention": "attention",
    "latent_prompt_attention": "mla",
}
"""Folder of an operation's tables where it is not named for it."""

_DTYPES = {
    "bfloat16": ("bf16", "bf16"),
    "half": ("fp16", "fp16"),
    "float16": ("fp16", "fp16"),
    "fp8": ("fp8", "fp8"),
    "fp8_e4m3": ("fp8", "fp8"),
    "fp8_block": ("fp8_block", "fp8"),
    "int8": ("int8", "int8"),
    "int8_wo": ("int8", "bf16"),
    "int4_wo": ("int4", "bf16"),
    "w4afp8": ("int4", "fp8"),
    "nvfp4": ("fp4", "fp4"),
    "w4a16_mxfp4": ("mxfp4", "bf16"),
    "w4a8_mxfp4_mxfp8": ("mxfp4", "fp8"),
}
"""Dtypes of weights and of activations by the name a table has for both."""

_GROUPS_OF_32 = {("vllm", "0.24.0"), ("sglang", "0.5.14")}
"""Versions whose tables of int4 are of Kimi's experts alone, in groups of 32."""

_UNGATED_SHAPES = {(2688, 1856), (1024, 2688), (4096, 2688), (2048, 5120), (8192, 5120)}
"""(hidden, expert) sizes of Nemotron's experts, which have two matrices."""

_NAMES = {
    "moe": {
        "kernel_source": "kernel_source", "moe_dtype": "quantization", "num_tokens": "num_tokens",
        "hidden_size": "hidden_size", "inter_size": "expert_size", "topk": "experts_per_token",
        "num_experts": "num_experts", "moe_tp_size": "tensor_parallel",
        "moe_ep_size": "expert_parallel", "distribution": "distribution",
    },
    "gemm": {
        "gemm_dtype": "quantization", "m": "num_tokens", "n": "output_size", "k": "input_size",
    },
    "quantize": {"m": "num_tokens", "k": "width"},
    "compute_scale": {"m": "num_tokens", "k": "width"},
    "attention": {
        "batch_size": "batch_size", "num_heads": "num_heads", "num_key_value_heads": "num_kv_heads",
        "head_dim": "head_dim", "window_size": "sliding_window", "step": "context_length",
        "attn_dtype": "activation_dtype", "kv_cache_dtype": "kv_dtype",
    },
    "mla": {
        "batch_size": "batch_size", "num_heads": "num_heads", "window_size": "sliding_window",
        "step": "context_length", "mla_dtype": "activation_dtype", "kv_cache_dtype": "kv_dtype",
    },
    "dsa_index": {
        "batch_size": "batch_size", "isl": "query_tokens", "step": "context_length",
    },
    "dsa": {
        "op_name": "operation", "model": "model", "batch_size": "batch_size",
        "num_heads": "num_heads", "step": "context_length", "kv_cache_dtype": "kv_dtype",
        "gemm_type": "quantization",
    },
    "msa": {
        "batch_size": "batch_size", "num_heads": "num_heads", "step": "context_length",
        "kv_cache_dtype": "kv_dtype", "gemm_type": "quantization",
    },
    "csa_choice": {
        "model": "model", "score_mode": "scores", "batch_size": "batch_size", "isl": "query_tokens",
        "step": "context_length",
    },
    "mhc": {"op_name": "operation", "hidden_size": "hidden_size", "num_tokens": "num_tokens"},
    "mla_module": {
        "batch_size": "batch_size", "num_heads": "num_heads", "window_size": "sliding_window",
        "step": "context_length", "mla_dtype": "activation_dtype", "kv_cache_dtype": "kv_dtype",
        "gemm_type": "quantization",
    },
    "recurrence": {
        "kernel_source": "kernel_source", "phase": "phase", "batch_size": "batch_size",
        "seq_len": "query_tokens", "num_k_heads": "num_key_heads", "head_k_dim": "key_head_dim",
        "num_v_heads": "num_value_heads", "head_v_dim": "value_head_dim", "d_conv": "conv_kernel",
    },
}  # fmt: skip
_OF_PROMPTS = {"isl": "query_tokens", "kernel_source": "kernel_source"}
_NAMES["prompt_attention"] = _NAMES["attention"] | _OF_PROMPTS
_NAMES["hca"] = _NAMES["csa"] = _NAMES["dsa"]
_NAMES["latent_prompt_attention"] = _NAMES["mla"] | _OF_PROMPTS
"""What makes a point of each table, by its names and ours; rows that agree in it are repeats."""

_LATENT = (512, 64)
"""DeepSeek's latent of keys and values and rotary part, which tables of MLA do not name [-]."""

_INSTALL = f"it to be installed: {install('datasets')}"


def list_tables() -> pd.DataFrame:
    """Return the tables of the installed package that a reader here understands, sorted."""
    rows = [
        (hardware, operation, path.parts[-3], path.parts[-2], str(path))
        for hardware, folder in FOLDERS.items()
        for operation, file in FILES.items()
        for path in _folder(folder, operation).glob(f"*/*/{file}")
    ]
    names = ["hardware", "operation", "framework", "version", "path"]
    table = pd.DataFrame(rows, columns=names)
    return table.sort_values(names, ignore_index=True)


@cache
def known_tables() -> frozenset[tuple[str, str, str, str]]:
    """Return the installed tables as (operation, hardware, framework, version)."""
    columns = ["operation", "hardware", "framework", "version"]
    return frozenset(list_tables()[columns].itertuples(index=False, name=None))


def read_timings(operation: str, hardware: str, framework: str, version: str) -> pd.DataFrame:
    """Return a published table in our names and SI units: a row a point, latencies in seconds [s].

    Repeats of one point differ by up to 24 %: each row is their median, which one slow repeat does
    not move. Rows that ran a fallback kernel are in it; `tables.published_measurements` finds them.
    """
    raw = _read(operation, hardware, framework, version)
    if operation == "comm":
        return _all_reduces(raw)
    if operation in ("attention", "mla", "mla_module", *PROMPTS):
        return _attention(raw, _NAMES[operation])
    if operation in ("gdn", "kda"):
        return _medians(raw, _NAMES["recurrence"])
    table = _medians(raw, _NAMES[operation])
    if operation in ("dsa_index", "compute_scale", "csa_choice", "mhc"):
        return table
    if operation == "quantize":
        more = _read(operation, hardware, framework, version, _BY_TOKEN)
        return _by_token(table, more, framework)
    weights = _dtypes(table["quantization"])
    if (framework, version) in _GROUPS_OF_32:
        weights = weights.replace("int4", "int4_g32")
    table = table.assign(
        weight_dtype=weights, activation_dtype=_dtypes(table["quantization"], of=1)
    )
    if operation in ("dsa", "msa", "hca", "csa"):
        return table.assign(kv_dtype=_dtypes(table["kv_dtype"]))
    if operation == "gemm":
        return table
    return _experts(table)


def _experts(table: pd.DataFrame) -> pd.DataFrame:
    """Add the experts that a pass loads, their matrices, and the width that a GPU holds.

    Tables record the width of an expert before tensor parallelism slices it.
    """
    shapes = pd.MultiIndex.from_frame(table[["hidden_size", "expert_size"]])
    is_ungated = shapes.isin(_UNGATED_SHAPES) | table["kernel_source"].str.contains("nongated")
    loads = table[["distribution", "num_tokens", "num_experts", "experts_per_token"]]
    active = pd.Series(map(_active_experts, *(loads[name].tolist() for name in loads)))
    return table.assign(
        expert_size=table["expert_size"] // table["tensor_parallel"],
        active_experts=active.where(table["expert_parallel"] == 1),
        is_gated=~is_ungated,
    )


def _attention(raw: pd.DataFrame, names: dict[str, str]) -> pd.DataFrame:
    """Return attention with windows missing for none, latent attention in DeepSeek's shape."""
    has_windows = "window_size" in raw
    table = _medians(raw if has_windows else raw.assign(window_size=0), names)
    if "num_kv_heads" not in table:
        table = table.assign(kv_lora_rank=_LATENT[0], qk_rope_head_dim=_LATENT[1])
    return table.assign(
        sliding_window=table["sliding_window"].where(table["sliding_window"] > 0),
        activation_dtype=_dtypes(table["activation_dtype"]),
        kv_dtype=_dtypes(table["kv_dtype"]),
    )


def _by_token(table: pd.DataFrame, more: pd.DataFrame, framework: str) -> pd.DataFrame:
    """Add the time of finding the scale of each token to that of quantising by a known one."""
    if not more["kernel_source"].str.startswith("dynamic_per_token").all():
        raise InputError("framework", framework, "vllm, whose kernel finds the scales as it goes")
    names = _NAMES["quantize"]
    both = table.merge(_medians(more, names), on=list(names.values()), suffixes=("", "_more"))
    both = both[both["latency_more"] > 0]  # less is written as 0
    return both.assign(latency=both["latency"] + both.pop("latency_more"))


def _all_reduces(raw: pd.DataFrame) -> pd.DataFrame:
    """Return the fastest all-reduce by GPUs and bytes.

    Engines time them with and without CUDA graphs. Messages are recorded in elements: taken as
    bytes, the largest would reach half of the bandwidth that NCCL is known to reach.
    """
    element = _dtypes(raw["allreduce_dtype"]).map(BYTES_PER_ELEMENT)
    sized = raw.assign(message_bytes=raw["message_size"] * element)
    fastest = sized.groupby(["num_gpus", "message_bytes"], sort=True)["latency"].min() * 1e-3
    return fastest.reset_index()


def power_law_active_experts(
    num_tokens: int, num_experts: int, experts_per_token: int, exponent: float
) -> int:
    """Return the distinct experts of a "power_law" row with this exponent [-].

    Loads x follow a density x^-a, from 1 to 0.8 t where there are more pairs of token and expert
    than experts and from 0.01 to 2 where there are fewer. They are scaled to the number of pairs
    and rounded; the pairs that rounding loses go to experts without a token. Here x is taken at its
    quantiles.

    >>> power_law_active_experts(4, 256, 8, 1.01), power_law_active_experts(128, 256, 8, 1.01)
    (32, 210)
    """
    pairs = num_tokens * experts_per_token
    low, high = (1.0, max(0.8 * num_tokens, 1.001)) if pairs > num_experts else (0.01, 2.0)
    quantile = (np.arange(num_experts) + 0.5) / num_experts
    power = 1 - exponent
    x = ((high**power - low**power) * quantile + low**power) ** (1 / power)
    tokens = np.rint(x / x.sum() * pairs)
    left_over = max(pairs - tokens.sum(), 0)
    return int(min((tokens > 0).sum() + left_over, num_experts, pairs))


@cache
def _active_experts(distribution: str, num_tokens: int, num_experts: int, k: int) -> float:
    """Return the distinct experts of a row; NaN where its distribution is not known [-].

    "balanced" deals tokens to experts in turn: exactly min(E, t k) distinct ones, which is more
    than the expected union of `experts.active_experts`.
    """
    if distribution == "balanced":
        return float(min(num_experts, num_tokens * k))
    if not distribution.startswith("power_law_"):
        return np.nan
    exponent = float(distribution.removeprefix("power_law_"))
    return float(power_law_active_experts(num_tokens, num_experts, k, exponent))


def source_name() -> str:
    """Return the installed package and its version."""
    _data_folder()
    return f"{_PACKAGE.replace('_', '-')} {installed_version(_PACKAGE)}"


def _data_folder() -> Path:
    spec = find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise InputError("datasets", f"no package {_PACKAGE}", _INSTALL)
    return Path(next(iter(spec.submodule_search_locations))) / "systems" / "data"


def _folder(device: str, operation: str) -> Path:
    return _data_folder() / device / _FOLDER_OF.get(operation, operation)


def _read(
    operation: str, hardware: str, framework: str, version: str, file: str | None = None
) -> pd.DataFrame:
    if hardware not in FOLDERS:
        raise InputError("hardware", hardware, f"one with tables: {nearest(hardware, FOLDERS)}")
    folder = _folder(FOLDERS[hardware], operation)
    path = folder / framework / version / FILES[operation]
    if not path.is_file():
        known = ["/".join(p.parts[-3:-1]) for p in folder.glob(f"*/*/{FILES[operation]}")]
        expected = f"one of {', '.join(sorted(known)) or 'none'} for {operation} on {hardware}"
        raise InputError("version", f"{framework}/{version}", expected)
    try:
        return pd.read_parquet(path.with_name(file) if file else path)
    except ImportError:
        raise InputError("datasets", "no package pyarrow", _INSTALL) from None


def _medians(raw: pd.DataFrame, names: dict[str, str]) -> pd.DataFrame:
    """Return a row a point in our names, with the median of its repeats [s]."""
    latency = raw.groupby(list(names), sort=True, dropna=False)["latency"].median() * 1e-3
    return latency.rename_axis(index=names).reset_index()


def _dtypes(names: pd.Series, of: int = 0) -> pd.Series:
    """Return our dtype for each name: that of weights, or of activations with `of` = 1."""
    unknown = set(names.unique()) - set(_DTYPES)
    if unknown:
        raise InputError("dtype", min(unknown), f"one of {', '.join(_DTYPES)}")
    return names.map({name: dtypes[of] for name, dtypes in _DTYPES.items()})
