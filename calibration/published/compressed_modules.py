"""Read published layers of DeepSeek-V4: compressed attention and its residual streams.

A row of attention is the time between two mixings of streams, with one token per sequence. A row of
streams is the time of all kernels before both blocks of a layer, or after both. The records of a
model count the work of each row, so that measurements and predictions describe the same work. Both
kinds of attention, HCA and CSA, are fitted together: except for the indexer, they run the same
kernels.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from published import datasets
from published.layers import TimedLayers, decoded, read_engine, shape_names
from published.roles import MAX_TOKENS, mixed_third
from specmodel.calibrate.fit.kernels import KernelFitting
from specmodel.core.base.errors import InputError
from specmodel.core.layers.batch import Layout
from specmodel.core.layers.blocks import Tokens
from specmodel.core.layers.compressed import CompressedAttention
from specmodel.core.layers.residuals import HyperConnections
from specmodel.core.layers.stream import Stream
from specmodel.core.layers.work import Work
from specmodel.core.machines.hardware import HardwareProfile
from specmodel.core.machines.kernels import FITTED_DTYPE
from specmodel.core.models.architecture import load_architecture

ENGINES = {"sglang": "0.5.14", "trtllm": "1.3.0rc23", "vllm": "0.24.0"}
STREAM_ENGINES = ENGINES | {"trtllm": "1.3.0rc20"}
"""Version of each engine whose tables of attention, and of streams, are read."""

QUANTIZATION = "fp8_block"
"""That of the matrices, as checkpoints have them; SGLang's layers were timed in 16 bits as well."""

FAMILIES = {"Flash": "deepseek-v4-flash", "Pro": "deepseek-v4-pro"}
"""Architectures by a word that names of models have."""

SHAPE = ("ratio", "family", "num_heads")
STREAM_SHAPE = ("operation", "hidden_size")
"""What makes a shape of attention, and of streams, which is fitted or judged as a whole."""

PARAMETERS = {
    "launch_time": (1e-7, 1e-4, 4e-6),
    "memory_efficiency": (0.2, 1.0, 0.7),
    "compute_efficiency": (0.05, 1.0, 0.5),
    "index_launch_time": (1e-7, 1e-4, 1e-6),
    "group_time": (1e-9, 1e-5, 1e-7),
}
STREAM_PARAMETERS = {
    "launch_time": (1e-7, 1e-4, 2e-6),
    "memory_efficiency": (0.2, 1.0, 0.8),
    "depth_time": (1e-12, 1e-8, 1e-10),
}
"""Lower bound, upper bound and start of fitted parameters without the sharpness [s] [-]."""

OF_KIND = {
    "compressed_attention": {
        name: name for name in ("launch_time", "memory_efficiency", "compute_efficiency")
    },
    "compressed_indexer": {"launch_time": "index_launch_time", "group_time": "group_time"},
}
STREAM_OF_KIND = {"hyper_connections": {name: name for name in STREAM_PARAMETERS}}
"""Parameters of each kind of kernels, and the fitted parameter for each."""

SLOWER = 1.1
"""If a point of CSA needs this many times as long as a longer context, it ran another kernel
[-]."""

INDEX_MEMORY_EFFICIENCY = 0.65
"""Share of the peak at which index keys are read [-]. No row determines it: all rows read at most
35 MB, which is faster than a launch. The kernel alone reaches 0.6 to 0.7 at its largest reads
(Blackwell; from a cache on Hopper), as for DeepSeek-V3.2."""

_OPERATIONS = {"hca": 128, "csa": 4}
_STREAMS = HyperConnections(num_streams=4)
_BLOCKS = 2  # of a layer


def compressed_modules(hardware: str, engine: str) -> pd.DataFrame:
    """Return the published decode timings of layers of compressed attention of an engine.

    Layers were timed on scores that are all alike, on which SGLang's choice of entries takes 40 to
    160 us where it takes 3 otherwise: the difference, which was timed by itself, is subtracted.
    TensorRT-LLM's was not timed: points of its that take longer than at any longer context are
    fallbacks.
    """
    parts = [
        read_engine(name, hardware, engine, ENGINES).assign(ratio=ratio)
        for name, ratio in _OPERATIONS.items()
    ]
    raw = pd.concat(parts, ignore_index=True)
    raw = raw[raw["quantization"] == QUANTIZATION]
    raw = raw.assign(family=[_family(model) for model in raw["model"]])
    if engine == "sglang":
        raw = _without_flat_scores(raw, hardware)
    key = [*SHAPE, "kv_dtype", "batch_size"]
    table = raw.groupby([*key, "context_length"])["latency"].median().reset_index()
    longer = table[::-1].groupby(key)["latency"].cummin().sort_index()
    is_slow = (table["latency"] > SLOWER * longer) & (table["ratio"] == _OPERATIONS["csa"])
    role = np.where(mixed_third(table, SHAPE), "fit", "judge")
    return table.assign(shape=shape_names(table, SHAPE), role=np.where(is_slow, "fallback", role))


def _family(model: str) -> str:
    for family in FAMILIES:
        if f"DeepSeek-V4-{family}" in str(model):
            return family
    raise InputError("model", model, f"DeepSeek-V4-{' or -'.join(FAMILIES)}")


def _without_flat_scores(table: pd.DataFrame, hardware: str) -> pd.DataFrame:
    """Return layers without what scores that are all alike add to the choice of entries."""
    raw = datasets.read_timings("csa_choice", hardware, "sglang", ENGINES["sglang"])
    raw = raw[raw["query_tokens"] == 1]
    raw = raw.assign(family=[_family(model) for model in raw["model"]])
    point = ["family", "batch_size", "context_length"]
    times = raw.pivot_table(index=point, columns="scores", values="latency")
    more = (times["v2_flat"] - times["v2_top_last"]).rename("more").reset_index()
    merged = table.merge(more.assign(ratio=_OPERATIONS["csa"]), on=[*point, "ratio"], how="left")
    latency = merged["latency"] - merged.pop("more").fillna(0.0).clip(lower=0.0)
    return merged.assign(latency=latency)


def compressed_work(
    table: pd.DataFrame, hardware: HardwareProfile
) -> Iterator[tuple[NDArray[np.intp], list[Work]]]:
    """Yield places of rows that are of one shape, and the works timed there."""
    for _, rows in table.reset_index(drop=True).groupby(list(SHAPE)):
        first = rows.iloc[0]
        model = load_architecture(FAMILIES[first["family"]])
        compressed = (mixer for mixer in model.mixers if isinstance(mixer, CompressedAttention))
        mixer = next(mixer for mixer in compressed if mixer.ratio == first["ratio"])
        layout = Layout(mixer.num_heads // int(first["num_heads"]))
        yield rows.index.to_numpy(), decoded(mixer, rows, model.stream, hardware, layout)


def fit_compressed_modules(
    table: pd.DataFrame, hardware: HardwareProfile, index_compute: float
) -> dict[tuple[str, str], KernelFitting]:
    """Fit launches, efficiencies and the time of choosing to layers of compressed attention.

    `index_compute` is `sparse_modules.index_compute_efficiency` of the GPU [-].
    """
    held = {
        "compressed_indexer": {
            "memory_efficiency": INDEX_MEMORY_EFFICIENCY,
            "compute_efficiency": index_compute,
        }
    }
    fitted = TimedLayers(hardware, PARAMETERS, OF_KIND, compressed_work, held)
    return fitted.fit_by_cache(table)


def stream_modules(hardware: str, engine: str) -> pd.DataFrame:
    """Return the published timings of the residual streams of a layer, of both its blocks [s].

    ``kv_dtype`` is the dtype of activations here. Streams before the blocks are fitted at one width
    and those after them at the other, so that each parameter is seen at both.
    """
    raw = read_engine("mhc", hardware, engine, STREAM_ENGINES)
    table = raw[raw["num_tokens"] <= MAX_TOKENS].reset_index(drop=True)
    is_narrow = table["hidden_size"] == table["hidden_size"].min()
    is_fitted = (table["operation"] == "pre") == is_narrow
    return table.assign(
        kv_dtype=FITTED_DTYPE,
        shape=shape_names(table, STREAM_SHAPE),
        role=np.where(is_fitted, "fit", "judge"),
    )


def stream_work(
    table: pd.DataFrame, hardware: HardwareProfile
) -> Iterator[tuple[NDArray[np.intp], list[Work]]]:
    """Yield places of rows that are of one shape, and the work of both blocks there."""
    del hardware
    alike: dict[str, Any] = dict.fromkeys(
        ("weight_dtype", "expert_dtype", "outer_dtype", "activation_dtype", "kv_dtype"),
        FITTED_DTYPE,
    )
    for _, rows in table.reset_index(drop=True).groupby(list(STREAM_SHAPE)):
        first = rows.iloc[0]
        stream = Stream(hidden_size=int(first["hidden_size"]), **alike)
        of = _STREAMS.before if first["operation"] == "pre" else _STREAMS.after
        yield (
            rows.index.to_numpy(),
            [of(Tokens(stream, rows["num_tokens"].to_numpy(float)), _BLOCKS)],
        )


def fit_stream_modules(
    table: pd.DataFrame, hardware: HardwareProfile
) -> dict[tuple[str, str], KernelFitting]:
    """Fit launches, traffic, and the walk over a token's streams."""
    return TimedLayers(hardware, STREAM_PARAMETERS, STREAM_OF_KIND, stream_work).fit_by_cache(table)
