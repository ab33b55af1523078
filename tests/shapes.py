"""Fields of architectures whose layers are alike but for a few leading ones."""

import json
from collections.abc import Collection
from itertools import pairwise
from pathlib import Path
from typing import Any

from specmodel.core.base import Record, as_table

CONFIG = json.loads((Path(__file__).parent / "data/mixtral_config.json").read_text("utf-8"))
"""A `config.json` as one finds it."""


def plain_shape(
    *,
    num_layers: int,
    mixer: dict[str, Any],
    num_dense_layers: int = 0,
    num_sliding_layers: int = 0,
    window: int | None = None,
    ffn_size: int = 0,
    experts: dict[str, Any] | None = None,
    is_gated: bool = True,
    **fields: Any,
) -> dict[str, Any]:
    """The first layers are dense, or have a window; the others have experts, if there are any."""
    num_dense = num_dense_layers if experts else num_layers
    dense = {"kind": "dense", "ffn_size": ffn_size, "is_gated": is_gated}
    routed = {"kind": "experts", "is_gated": is_gated, **(experts or {})}
    ends = sorted({0, num_dense, num_sliding_layers, num_layers})
    layers = [
        {
            "count": end - start,
            "mixer": mixer | ({"window": window} if start < num_sliding_layers else {}),
            "feed_forward": dense if start < num_dense else routed,
        }
        for start, end in pairwise(ends)
    ]
    return {"schema_version": 2, "name": "made up", "source": "tests", "layers": layers, **fields}


def without_fields(record: Record, names: Collection[str] = ("name", "source")) -> dict[str, Any]:
    """Fields of a record as in a file, but those named: its labels."""
    return {name: value for name, value in as_table(record).items() if name not in names}
