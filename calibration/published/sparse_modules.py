"""Read published timings of whole layers of sparse attention, and fit the roofline.

A row is the time of one layer in decoding, between two residual additions. `SparseAttention` of the
same shape counts its work, so that measurements and predictions describe the same work. Whole
layers do not show how efficient each kernel is. The kernels therefore share one set of parameters
for each dtype of the KV cache, except for reading and choosing in the indexer. With one token per
sequence, no row shows how fast the indexer computes, which determines the time of verification. Its
kernel was timed alone on many tokens.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from published import datasets
from published.layers import TimedLayers, decoded, read_engine, shape_names, table_stream
from published.roles import mixed_third
from specmodel.calibrate.fit.kernels import KernelFitting
from specmodel.core.base.errors import InputError
from specmodel.core.base.records import build
from specmodel.core.layers.sparse import SparseAttention
from specmodel.core.layers.work import Work
from specmodel.core.machines.hardware import HardwareProfile, load_hardware

ENGINES = {"sglang": "0.5.14", "trtllm": "1.3.0rc20", "vllm": "0.24.0"}
"""Version of each engine whose tables are read."""

MOST_SEQUENCES = {"sglang": 256}
"""Largest batch of an engine that is used [request]. For larger batches, SGLang launches kernels
one by one: its layers need 1.2 to 2.4 ms, five times as long as at half the batch, and the same at
twice the batch."""

FALLBACK = 1.1
"""If a point needs this many times as long as the next longer context, it ran another kernel [-].
TensorRT-LLM's do if the context is one entry longer than the number of chosen entries."""

_LATENT = {"kv_lora_rank": 512, "qk_rope_head_dim": 64}
_INDEX = {"index_head_dim": 128, "index_topk": 2048}
_FAMILIES = {
    "DeepSeek-V3.2": (
        7168,
        {"q_lora_rank": 1536, "qk_nope_head_dim": 128, "v_head_dim": 128, "index_num_heads": 64},
    ),
    "GLM-5": (
        6144,
        {"q_lora_rank": 2048, "qk_nope_head_dim": 192, "v_head_dim": 256, "index_num_heads": 32},
    ),
}
"""Width and layer of models by the start of their name."""

SHAPE = ("family", "has_indexer", "num_heads", "weight_dtype")
"""What makes a shape, which is fitted or judged as a whole."""

PARAMETERS = {
    "launch_time": (1e-7, 1e-4, 4e-6),
    "memory_efficiency": (0.2, 1.0, 0.8),
    "compute_efficiency": (0.05, 1.0, 0.5),
    "index_memory_efficiency": (0.5, 1.0, 0.75),
    "group_time": (1e-9, 1e-5, 1e-7),
}
"""Lower bound, upper bound and start of fitted parameters without the sharpness [s] [-]. The
largest layers of SGLang read index keys in hardly any time; a bound keeps that share plausible."""

OF_KIND = {
    "sparse_attention": {
        "launch_time": "launch_time",
        "memory_efficiency": "memory_efficiency",
        "compute_efficiency": "compute_efficiency",
    },
    "indexer": {
        "launch_time": "launch_time",
        "memory_efficiency": "index_memory_efficiency",
        "group_time": "group_time",
    },
}
"""Parameters of each kind of kernels, and the fitted parameter for each."""

LONG_SCORES = 1e-4
"""Time from which the peak's time of scores is long enough to show how fast they compute [s]."""


def sparse_modules(hardware: str, engine: str) -> pd.DataFrame:
    """Return the published decode timings of layers of sparse attention of an engine.

    ``num_heads`` are those on the GPU [-], ``context_length`` is before the token [token]; ``role``
    is "fit", "judge" or "fallback".
    """
    raw = read_engine("dsa", hardware, engine, ENGINES)
    table = raw[raw["batch_size"] <= MOST_SEQUENCES.get(engine, np.inf)]
    table = table.assign(
        family=[_family(model) for model in table["model"]],
        has_indexer=~table["operation"].str.contains("skip_indexer"),
    )
    key = [*SHAPE, "kv_dtype", "batch_size"]
    point = [*key, "activation_dtype", "context_length"]
    table = table.groupby(point)["latency"].median().reset_index()
    longer = table.groupby(key)["latency"].shift(-1)
    role = np.where(mixed_third(table, SHAPE), "fit", "judge")
    role = np.where(table["latency"] > FALLBACK * longer, "fallback", role)
    return table.assign(shape=shape_names(table, SHAPE), role=role)


def _family(model: str) -> str:
    name = str(model).rpartition("/")[2]
    for family in _FAMILIES:
        if name.startswith(family):
            return family
    raise InputError("model", model, f"one that starts with {' or '.join(_FAMILIES)}")


def modules_work(
    table: pd.DataFrame, hardware: HardwareProfile
) -> Iterator[tuple[NDArray[np.intp], list[Work]]]:
    """Yield places of rows that are of one shape and dtype, and the works timed there."""
    parts = table.reset_index(drop=True).groupby([*SHAPE, "kv_dtype", "activation_dtype"])
    for _, rows in parts:
        first = rows.iloc[0]
        hidden_size, own = _FAMILIES[first["family"]]
        size = {"num_heads": int(first["num_heads"]), "has_indexer": bool(first["has_indexer"])}
        mixer = build(SparseAttention, _LATENT | _INDEX | own | size, "mixer")
        stream = table_stream(rows, hidden_size)
        yield rows.index.to_numpy(), decoded(mixer, rows, stream, hardware)


def index_compute_efficiency(hardware: str) -> float:
    """Return the share of the peak at which an indexer scores many tokens [-].

    The median over the longest of the published scores of GLM-5's indexer.
    """
    raw = datasets.read_timings("dsa_index", hardware, "sglang", ENGINES["sglang"])
    tokens, context = raw["query_tokens"], raw["context_length"]
    width = int(_FAMILIES["GLM-5"][1]["index_num_heads"]) * _INDEX["index_head_dim"]
    flop = 2 * width * raw["batch_size"] * tokens * (context + (tokens + 1) / 2)
    seconds = flop / load_hardware(hardware).peak_flops_per_s("fp8")
    return float((seconds / raw["latency"])[seconds > LONG_SCORES].median())


def fit_sparse_modules(
    table: pd.DataFrame, hardware: HardwareProfile, index_compute: float
) -> dict[tuple[str, str], KernelFitting]:
    """Fit launches, efficiencies and the time of choosing to layers of sparse attention.

    `index_compute` is `index_compute_efficiency` of the GPU [-], which these layers do not show.
    """
    held = {"indexer": {"compute_efficiency": index_compute}}
    return TimedLayers(hardware, PARAMETERS, OF_KIND, modules_work, held).fit_by_cache(table)
