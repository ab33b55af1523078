"""Fields of architectures with equal layers, except a few leading ones."""

import json
from collections.abc import Collection
from itertools import pairwise
from pathlib import Path
from typing import Any

from specmodel.core.base import Record, as_table

CONFIG = json.loads((Path(__file__).parent / "data/mixtral_config.json").read_text("utf-8"))
"""The `config.json` of a public model."""


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
    """Return fields of a model: first layers may be dense or have windows, others have experts."""
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
    """Return the fields of a record as in a file, without some names, by default its labels."""
    return {name: value for name, value in as_table(record).items() if name not in names}
