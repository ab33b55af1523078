"""Public kernel measurements as tidy tables in our names and SI units.

The tables come with the package ``aiconfigurator-core`` (Apache-2.0; extra ``[datasets]``), which
ships what its authors measured with CUDA graphs; nothing is downloaded. Each reader handles what
its table would mislead with, and marks the rows that a fit should leave out rather than hiding
them.
"""

from importlib.metadata import version as installed_version
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd

from specmodel.base.errors import InputError, nearest
from specmodel.base.units import BYTES_PER_ELEMENT
from specmodel.records.hardware import load_hardware

_PACKAGE = "aiconfigurator_core"

FOLDERS = {
    "a100_pcie_80gb": "a100_pcie",
    "a100_sxm_80gb": "a100_sxm",
    "b200": "b200_sxm",
    "b300": "b300_sxm",
    "gb200": "gb200",
    "h100_pcie": "h100_pcie",
    "h100_sxm": "h100_sxm",
    "h200_sxm": "h200_sxm",
    "l4": "l4",
    "l40s": "l40s",
    "rtx_pro_6000": "rtx_pro_6000_server",
}
"""Hardware profiles with published tables, and the folder each is measured under."""

FILES = {
    "moe": "moe_perf.parquet",
    "gemm": "gemm_perf.parquet",
    "attention": "generation_attention_perf.parquet",
    "comm": "custom_allreduce_perf.parquet",
}
"""Operations that have a reader, and the file of each."""

_DTYPES = {
    "bfloat16": ("bf16", "bf16"),
    "half": ("fp16", "fp16"),
    "float16": ("fp16", "fp16"),
    "fp8": ("fp8", "fp8"),
    "fp8_block": ("fp8", "fp8"),
    "int8": ("int8", "int8"),
    "int8_wo": ("int8", "bf16"),
    "int4_wo": ("int4", "bf16"),
    "w4afp8": ("int4", "fp8"),
    "nvfp4": ("fp4", "fp4"),
    "w4a16_mxfp4": ("mxfp4", "bf16"),
    "w4a8_mxfp4_mxfp8": ("mxfp4", "fp8"),
}
"""Dtypes of weights and of activations by the name a table has for both."""

_UNGATED_SHAPES = {(2688, 1856), (1024, 2688), (4096, 2688), (2048, 5120), (8192, 5120)}
"""(hidden, expert) sizes of Nemotron's experts, which have two matrices."""

CACHE_SHARE = 1.3
"""Weights below this multiple of the last-level cache are read from it when timed in a loop [-]."""


def list_tables() -> pd.DataFrame:
    """Return the tables of the installed package that a reader here understands.

    Returns
    -------
    pandas.DataFrame
        Columns hardware, operation, framework, version and path, sorted.

    Raises
    ------
    InputError
        If the package is not installed; says what to install.
    """
    rows = [
        (hardware, operation, path.parts[-3], path.parts[-2], str(path))
        for hardware, folder in FOLDERS.items()
        for operation, file in FILES.items()
        for path in (_data_folder() / folder / operation).glob(f"*/*/{file}")
    ]
    names = ["hardware", "operation", "framework", "version", "path"]
    table = pd.DataFrame(rows, columns=names)
    return table.sort_values(names, ignore_index=True)


def read_moe(hardware: str, framework: str, version: str) -> pd.DataFrame:
    """Return timings of the routed experts of a layer: top-k, permutation, both GEMMs, reduction.

    The router's GEMM, shared experts and communication are not in the time.

    Parameters
    ----------
    hardware, framework, version
        A table of `list_tables`; hardware by the name of its profile.

    Returns
    -------
    pandas.DataFrame
        One row a point. ``num_tokens`` [token], ``hidden_size``, ``expert_size`` on this rank,
        ``num_experts`` and ``experts_per_token`` of the model, the two parallel degrees,
        ``distribution``, dtypes, ``active_experts`` [-] (missing where the table does not say),
        ``loaded_bytes`` of their weights [B], ``latency`` [s], ``num_repeats``, and the marks
        ``is_gated``, ``is_slow_path`` and ``is_cache_resident``.

    Raises
    ------
    InputError
        If there is no such table or the package is not installed.

    Notes
    -----
    "balanced" deals tokens to experts in turn: exactly ``min(E, t k)`` distinct ones, not the
    expected union of `experts.active_experts`. "power_law_a" draws loads from a truncated power
    law and rounds them; `power_law_active_experts` says how many experts that leaves. Keys that
    repeat differ by up to 24 %; the median is taken. Widths are recorded before slicing by tensor
    parallelism. Slices of a shape that ran a fallback kernel are found by
    `fallbacks.slow_slices`.
    """
    raw = _read(hardware, "moe", framework, version)
    key = [name for name in raw.columns if name not in ("latency", "power", "power_limit")]
    table = _medians(raw, key)
    dtypes = [_dtype(name) for name in table["moe_dtype"]]
    is_alone = table["moe_ep_size"] == 1
    result = pd.DataFrame({
        "num_tokens": table["num_tokens"],
        "hidden_size": table["hidden_size"],
        "expert_size": table["inter_size"] // table["moe_tp_size"],
        "num_experts": table["num_experts"],
        "experts_per_token": table["topk"],
        "tensor_parallel": table["moe_tp_size"],
        "expert_parallel": table["moe_ep_size"],
        "distribution": table["distribution"],
        "kernel_source": table["kernel_source"],
        "quantization": table["moe_dtype"],
        "weight_dtype": [weight for weight, _ in dtypes],
        "activation_dtype": [activation for _, activation in dtypes],
        "active_experts": _active_experts(table).where(is_alone),
        "latency": table["median"] * 1e-3,
        "num_repeats": table["size"],
    })  # fmt: skip
    return _mark(result, hardware, framework, version)


def read_gemm(hardware: str, framework: str, version: str) -> pd.DataFrame:
    """Return timings of dense matrix products of an (m, k) by a (k, n) matrix.

    Parameters
    ----------
    hardware, framework, version
        A table of `list_tables`.

    Returns
    -------
    pandas.DataFrame
        Columns ``m``, ``n``, ``k`` [-], dtypes, ``latency`` [s], ``num_repeats`` and
        ``is_cache_resident``.

    Raises
    ------
    InputError
        If there is no such table or the package is not installed.
    """
    raw = _read(hardware, "gemm", framework, version)
    table = _medians(raw, ["gemm_dtype", "m", "n", "k"])
    dtypes = [_dtype(name) for name in table["gemm_dtype"]]
    element = np.array([BYTES_PER_ELEMENT[weight] for weight, _ in dtypes])
    loaded = table["n"] * table["k"] * element
    return pd.DataFrame({
        "m": table["m"],
        "n": table["n"],
        "k": table["k"],
        "quantization": table["gemm_dtype"],
        "weight_dtype": [weight for weight, _ in dtypes],
        "activation_dtype": [activation for _, activation in dtypes],
        "latency": table["median"] * 1e-3,
        "num_repeats": table["size"],
        "is_cache_resident": loaded < CACHE_SHARE * load_hardware(hardware).memory.l2_bytes,
    })  # fmt: skip


def read_decode_attention(hardware: str, framework: str, version: str) -> pd.DataFrame:
    """Return timings of the attention core for one query token of each sequence.

    Parameters
    ----------
    hardware, framework, version
        A table of `list_tables`.

    Returns
    -------
    pandas.DataFrame
        Columns ``batch_size`` [request], ``num_heads``, ``num_kv_heads``, ``head_dim`` [-],
        ``sliding_window`` (missing for none) and ``context_length`` [token], dtypes, ``latency``
        [s] and ``num_repeats``.

    Raises
    ------
    InputError
        If there is no such table or the package is not installed.
    """
    raw = _read(hardware, "attention", framework, version)
    if "window_size" not in raw:
        raw = raw.assign(window_size=0)
    key = ["batch_size", "num_heads", "num_key_value_heads", "head_dim", "window_size", "step",
           "attn_dtype", "kv_cache_dtype"]  # fmt: skip
    table = _medians(raw, key)
    return pd.DataFrame({
        "batch_size": table["batch_size"],
        "num_heads": table["num_heads"],
        "num_kv_heads": table["num_key_value_heads"],
        "head_dim": table["head_dim"],
        "sliding_window": table["window_size"].where(table["window_size"] > 0),
        "context_length": table["step"],
        "activation_dtype": [_dtype(name)[0] for name in table["attn_dtype"]],
        "kv_dtype": [_dtype(name)[0] for name in table["kv_cache_dtype"]],
        "latency": table["median"] * 1e-3,
        "num_repeats": table["size"],
    })  # fmt: skip


def read_all_reduce(hardware: str, framework: str, version: str) -> pd.DataFrame:
    """Return timings of an engine's all-reduce inside a node.

    Parameters
    ----------
    hardware, framework, version
        A table of `list_tables`.

    Returns
    -------
    pandas.DataFrame
        Columns ``num_gpus`` [-], ``message_bytes`` of the reduced tensor [B], ``latency`` [s].

    Raises
    ------
    InputError
        If there is no such table or the package is not installed.

    Notes
    -----
    Sizes are recorded in elements: as bytes they would exceed the bandwidth of the link. Engines
    time theirs with and without CUDA graphs; the faster is kept.
    """
    raw = _read(hardware, "comm", framework, version)
    element = np.array([BYTES_PER_ELEMENT[_dtype(name)[0]] for name in raw["allreduce_dtype"]])
    sized = raw.assign(message_bytes=raw["message_size"] * element)
    fastest = sized.groupby(["num_gpus", "message_bytes"], sort=True)["latency"].min() * 1e-3
    return fastest.reset_index()


def power_law_active_experts(
    num_tokens: int, num_experts: int, experts_per_token: int, exponent: float
) -> int:
    """Return the distinct experts of a "power_law" row.

    Parameters
    ----------
    num_tokens
        Tokens of the pass [token].
    num_experts, experts_per_token
        Of the model [-].
    exponent
        Of the power law, as the name of the distribution has it [-].

    Returns
    -------
    int
        Experts with at least one token [-].

    Notes
    -----
    Loads x follow a density ``x^-a``, from 1 to 0.8 t where there are more pairs than experts and
    from 0.01 to 2 where there are fewer, are scaled to the pairs and rounded; what rounding leaves
    over goes to experts without a token. Here x is taken at its quantiles.

    Examples
    --------
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


def _active_experts(table: pd.DataFrame) -> pd.Series:
    """Distinct experts of each row; missing where the distribution is another."""
    names = ["distribution", "num_tokens", "num_experts", "topk"]
    keys = table[names].drop_duplicates()
    counts = []
    for distribution, tokens, count, k in keys.itertuples(index=False):
        if distribution == "balanced":
            counts.append(float(min(count, tokens * k)))
        elif distribution.startswith("power_law_"):
            exponent = float(distribution.removeprefix("power_law_"))
            counts.append(float(power_law_active_experts(tokens, count, k, exponent)))
        else:
            counts.append(np.nan)
    return table[names].merge(keys.assign(active=counts), on=names, how="left")["active"]


def source_name() -> str:
    """Return the installed package and its version."""
    _data_folder()
    return f"{_PACKAGE.replace('_', '-')} {installed_version(_PACKAGE)}"


def _data_folder() -> Path:
    spec = find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        expected = "it to be installed: pip install 'specmodel[datasets]'"
        raise InputError("datasets", f"no package {_PACKAGE}", expected)
    return Path(next(iter(spec.submodule_search_locations))) / "systems" / "data"


def _read(hardware: str, operation: str, framework: str, version: str) -> pd.DataFrame:
    if hardware not in FOLDERS:
        raise InputError("hardware", hardware, f"one with tables: {nearest(hardware, FOLDERS)}")
    folder = _data_folder() / FOLDERS[hardware] / operation
    path = folder / framework / version / FILES[operation]
    if not path.is_file():
        known = ["/".join(p.parts[-3:-1]) for p in folder.glob(f"*/*/{FILES[operation]}")]
        expected = f"one of {', '.join(sorted(known)) or 'none'} for {operation} on {hardware}"
        raise InputError("version", f"{framework}/{version}", expected)
    try:
        return pd.read_parquet(path)
    except ImportError:
        expected = "it to be installed: pip install 'specmodel[datasets]'"
        raise InputError("datasets", "no package pyarrow", expected) from None


def _medians(raw: pd.DataFrame, key: list[str]) -> pd.DataFrame:
    """Return one row a key, with the median latency and the number of repeats."""
    grouped = raw.groupby(key, sort=True, dropna=False)["latency"]
    return grouped.agg(["median", "size"]).reset_index()


def _dtype(name: str) -> tuple[str, str]:
    if name not in _DTYPES:
        raise InputError("dtype", name, f"one of {', '.join(_DTYPES)}")
    return _DTYPES[name]


def _mark(table: pd.DataFrame, hardware: str, framework: str, version: str) -> pd.DataFrame:
    """Mark experts of two matrices, slow paths, and weights that a loop reads from cache."""
    full_size = table["expert_size"] * table["tensor_parallel"]
    shapes = zip(table["hidden_size"], full_size, strict=True)
    ungated = np.array([shape in _UNGATED_SHAPES for shape in shapes], dtype=bool)
    ungated |= table["kernel_source"].str.contains("nongated").to_numpy()
    element = table["weight_dtype"].map(BYTES_PER_ELEMENT)
    matrices = np.where(ungated, 2, 3)
    loaded = table["active_experts"] * matrices * table["hidden_size"] * table["expert_size"]
    loaded = loaded * element
    release = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    is_vllm = framework == "vllm"
    slow_fp8 = is_vllm and version == "0.24.0" and hardware in ("h100_sxm", "h200_sxm")
    slow = (table["quantization"] == "fp8") & slow_fp8
    slow |= (table["quantization"] == "int4_wo") & (is_vllm and release >= (0, 18))
    l2_bytes = load_hardware(hardware).memory.l2_bytes
    return table.assign(
        loaded_bytes=loaded,
        is_gated=~ungated,
        is_slow_path=slow,
        is_cache_resident=loaded < CACHE_SHARE * l2_bytes,
    )
