"""Read published timings of whole layers of block-sparse attention, and fit the roofline.

A row is the time of one layer of MiniMax-M3 in decoding, with the heads of one GPU under tensor
parallelism. `BlockSparseAttention` of that shape counts its work. Its kernels share parameters like
those of sparse attention (`sparse_modules`). The arithmetic on each block of entries has a separate
time, which caches of 8 bits show.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from published.layers import TimedLayers, decoded, read_engine, shape_names, table_stream
from published.roles import cold_rows, mixed_third, short_rows
from specmodel.calibrate.fit.kernels import KernelFitting
from specmodel.core.base.records import build
from specmodel.core.layers.block_sparse import BlockSparseAttention
from specmodel.core.layers.work import Work
from specmodel.core.machines.hardware import HardwareProfile, load_hardware

ENGINES = {"sglang": "0.5.16", "vllm": "0.24.0"}
"""Version of each engine whose tables are read. TensorRT-LLM is missing, as its layers attend to
all entries. L40S and RTX PRO 6000 are missing, as their caches keep layers, so that timings read
weights faster than any model would."""

MOST_SEQUENCES = {"sglang": 256}
"""Largest batch of an engine that is used [request]. For larger batches, SGLang launches kernels
one by one, and its layers need 0.4 ms at any size."""

LONGEST = 200_000
"""Longest context that is used [token]. One million was timed only with a single sequence."""

SHORTEST = 15
"""Shortest context that is fitted [token]. Shorter contexts need the same time and are only
judged."""

EVERY = {"sglang": 2}
"""One of how many shapes is fitted where an engine has few: SGLang's were timed with four."""

LAUNCHED = 0.3
"""Share of a layer's time below which reading does not decide it, nor does a cache [-]: the same as
of products (`tables`)."""

HIDDEN_SIZE = 6144
_LAYER = {
    "head_dim": 128, "index_head_dim": 128, "block_size": 128, "topk_blocks": 16,
}  # fmt: skip
HEADS_OF_GROUP = 16
"""Query heads per KV head; a GPU has at least one KV head [-]."""

SHAPE = ("num_heads", "weight_dtype")
"""What makes a shape, which is fitted or judged as a whole."""

PARAMETERS = {
    "launch_time": (1e-7, 1e-4, 4e-6),
    "memory_efficiency": (0.2, 1.0, 0.8),
    "compute_efficiency": (0.05, 1.0, 0.5),
    "activation_efficiency": (0.02, 10.0, 0.5),
    "index_memory_efficiency": (0.3, 1.0, 0.85),
    "group_time": (1e-10, 1e-6, 1e-8),
}
"""Lower bound, upper bound and start of fitted parameters without the sharpness [s] [-]."""

OF_KIND = {
    "block_sparse_attention": {
        "launch_time": "launch_time",
        "memory_efficiency": "memory_efficiency",
        "compute_efficiency": "compute_efficiency",
        "activation_efficiency": "activation_efficiency",
        "group_time": "group_time",
    },
    "block_indexer": {
        "launch_time": "launch_time",
        "memory_efficiency": "index_memory_efficiency",
        "compute_efficiency": "compute_efficiency",
    },
}
"""Parameters of each kind of kernels, and the fitted parameter for each."""


def block_sparse_modules(hardware: str, engine: str) -> pd.DataFrame:
    """Return the published decode timings of layers of block-sparse attention of an engine.

    ``num_heads`` are those on the GPU [-], ``context_length`` is before the token [token]; ``role``
    is "fit", "judge", or "skip" where a cache holds what a layer reads.
    """
    raw = read_engine("msa", hardware, engine, ENGINES)
    table = raw[raw["batch_size"] <= MOST_SEQUENCES.get(engine, np.inf)]
    table = table[table["context_length"] <= LONGEST].reset_index(drop=True)
    device, read = load_hardware(hardware), np.empty(len(table))
    for places, parts in block_modules_work(table, device):
        read[places] = sum(np.asarray(part.weight_bytes + part.cache_bytes) for part in parts)
    streamed = pd.Series(read, table.index)
    is_timed = cold_rows(streamed, device)
    is_timed |= short_rows(streamed, table["latency"], device, share=LAUNCHED)
    is_fitted = mixed_third(table, SHAPE, EVERY.get(engine, 3))
    is_timed &= ~is_fitted | (table["context_length"] >= SHORTEST)
    role = np.where(is_timed, np.where(is_fitted, "fit", "judge"), "skip")
    return table.assign(shape=shape_names(table, SHAPE), role=role)


def block_modules_work(
    table: pd.DataFrame, hardware: HardwareProfile
) -> Iterator[tuple[NDArray[np.intp], list[Work]]]:
    """Yield places of rows that are of one shape and dtype, and the works timed there."""
    parts = table.reset_index(drop=True).groupby([*SHAPE, "kv_dtype", "activation_dtype"])
    for _, rows in parts:
        first = rows.iloc[0]
        heads = int(first["num_heads"])
        kv_heads = max(heads // HEADS_OF_GROUP, 1)
        own = {"num_heads": heads, "num_kv_heads": kv_heads, "index_num_heads": kv_heads}
        mixer = build(BlockSparseAttention, _LAYER | own, "mixer")
        stream = table_stream(rows, HIDDEN_SIZE)
        yield rows.index.to_numpy(), decoded(mixer, rows, stream, hardware)


def fit_block_sparse_modules(
    table: pd.DataFrame, hardware: HardwareProfile
) -> dict[tuple[str, str], KernelFitting]:
    """Fit launches and efficiencies to layers of block-sparse attention."""
    return TimedLayers(hardware, PARAMETERS, OF_KIND, block_modules_work).fit_by_cache(table)
