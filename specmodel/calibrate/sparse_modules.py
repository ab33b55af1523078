"""Published timings of whole layers of sparse attention: projections, indexer, choice and core.

A row timed one layer as an engine decodes with it: all that stands between two residual additions.
`SparseAttention` of the shape that was timed says what such a layer does, so that measurements and
predictions are of the same work.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from specmodel.base.errors import InputError
from specmodel.base.units import FloatArray
from specmodel.calibrate import datasets
from specmodel.records.hardware import HardwareProfile
from specmodel.records.layers.batch import (
    ONE,
    SINGLE_GPU,
    ZERO,
    Batch,
    Pass,
    Routing,
    Stream,
    sequence_group,
)
from specmodel.records.layers.sparse import SparseAttention
from specmodel.records.layers.work import Work

ENGINES = {"sglang": "0.5.14", "trtllm": "1.3.0rc20", "vllm": "0.24.0"}
"""Version of each engine whose tables are read."""

MOST_SEQUENCES = {"sglang": 256}
"""Largest batch taken of an engine [request]. SGLang's layers take 1.2 to 2.4 ms from the next
larger one on, five times as long as at half of it and no longer at twice: launched one by one."""

FALLBACK = 1.1
"""A point that takes so many times as long as at the next longer context ran another kernel [-]:
TensorRT-LLM's do at one entry more than are chosen."""

EVERY = 3
"""A shape is fitted where the places of its sizes among those there are add up to a multiple of
this, so that each size is among those fitted and those judged."""

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


def sparse_modules(hardware: str, engine: str) -> pd.DataFrame:
    """Return the published decode timings of layers of sparse attention of an engine.

    Parameters
    ----------
    hardware
        Name of the profile.
    engine
        One of `ENGINES`.

    Returns
    -------
    pandas.DataFrame
        Rows with the columns of `SHAPE`, batch_size [request], context_length before the token
        [token], num_heads on the GPU [-], kv_dtype, activation_dtype, latency [s], ``shape``, and
        ``role``: "fit", "judge" or "fallback".

    Raises
    ------
    InputError
        If there is no such table, the package is not installed, or a model is not known.
    """
    if engine not in ENGINES:
        raise InputError("engine", engine, f"one of {', '.join(ENGINES)}")
    raw = datasets.read_timings("dsa", hardware, engine, ENGINES[engine])
    table = raw[raw["batch_size"] <= MOST_SEQUENCES.get(engine, np.inf)]
    table = table.assign(
        family=[_family(model) for model in table["model"]],
        has_indexer=~table["operation"].str.contains("skip_indexer"),
    )
    key = [*SHAPE, "kv_dtype", "batch_size"]
    point = [*key, "activation_dtype", "context_length"]
    table = table.groupby(point)["latency"].median().reset_index()
    longer = table.groupby(key)["latency"].shift(-1)
    shapes = table[list(SHAPE)].astype(str).agg("/".join, axis=1)
    places = np.sum([table[name].rank(method="dense") for name in SHAPE], axis=0)
    role = np.where(places % EVERY == 0, "fit", "judge")
    role = np.where(table["latency"] > FALLBACK * longer, "fallback", role)
    return table.assign(shape=shapes, role=role)


def _family(model: str) -> str:
    name = str(model).rpartition("/")[2]
    for family in _FAMILIES:
        if name.startswith(family):
            return family
    raise InputError("model", model, f"one that starts with {' or '.join(_FAMILIES)}")


def modules_work(
    table: pd.DataFrame, hardware: HardwareProfile
) -> Iterator[tuple[NDArray[np.intp], list[Work]]]:
    """Yield places of rows that are of one shape and dtype, and the works that were timed there.

    Parameters
    ----------
    table
        As `sparse_modules` returns it.
    hardware
        The GPU.

    Yields
    ------
    tuple
        Places in the table, and the components of one layer with an element a row.
    """
    parts = table.reset_index(drop=True).groupby([*SHAPE, "kv_dtype", "activation_dtype"])
    for _, rows in parts:
        first = rows.iloc[0]
        hidden_size, own = _FAMILIES[first["family"]]
        size = {"num_heads": int(first["num_heads"]), "has_indexer": bool(first["has_indexer"])}
        mixer = SparseAttention.model_validate(_LATENT | _INDEX | own | size)
        stream = Stream(
            hidden_size=hidden_size,
            weight_dtype=first["weight_dtype"],
            expert_dtype=first["weight_dtype"],
            outer_dtype="bf16",
            activation_dtype=first["activation_dtype"],
            kv_dtype=first["kv_dtype"],
        )
        sequences = sequence_group(
            batch_size=rows["batch_size"].to_numpy(float),
            context_length=rows["context_length"].to_numpy(float),
        )
        run = Pass(
            stream,
            Batch((sequences,)),
            SINGLE_GPU,
            Routing(ZERO),
            ONE,
            compute_capability=hardware.compute_capability,
        )
        yield rows.index.to_numpy(), list(mixer.work(run, 1).values())


def log_latency(table: pd.DataFrame) -> FloatArray:
    """Return the logarithms of what was measured [-]."""
    return np.asarray(np.log(table["latency"].to_numpy()))
