"""Configurations of public models, and the models that are read from them with changes."""

import json
from pathlib import Path
from typing import Any

from specmodel import Architecture
from specmodel.core.base import build
from specmodel.core.models.hf.config import architecture_fields

_DATA = Path(__file__).parent / "data"
TABLE = json.loads((_DATA / "configurations.json").read_text())
CONFIGS = {name: row["config"] for row in TABLE["read"] for name in row["names"]}

HEADS = json.loads((_DATA / "heads.json").read_text())
"""Files of published draft heads."""


def flat(name: str, **changes: Any) -> dict[str, Any]:
    """Return the configuration of a language model without its wrapper, with changes."""
    config = CONFIGS[name]
    flat = {**config, **config.get("text_config", {})} | changes
    return {key: value for key, value in flat.items() if key != "text_config"}


def plain(name: str) -> dict[str, Any]:
    """Return the configuration of a language model without the keys that tests change."""
    left_out = ("torch_dtype", "dtype", "quantization_config", "sliding_window", "layer_types")
    return {key: value for key, value in flat(name).items() if key not in left_out}


def kinds(model: Architecture) -> dict[str, int]:
    """Return the number of layers with each kind of mixer."""
    counts: dict[str, int] = {}
    for mixer, count in model.mixers.items():
        counts[mixer.kind] = counts.get(mixer.kind, 0) + count
    return counts


def read(config: dict[str, Any], beside: Any = None, **changes: Any) -> Architecture:
    """Return the model of a configuration with changes; a value of None removes a key.

    `beside` is a record of quantisation from another file.
    """
    gone = {key for key, value in changes.items() if value is None}
    kept = {key: value for key, value in (config | changes).items() if key not in gone}
    record = {"quantization": beside} if beside else None
    fields = architecture_fields(kept, "target config.json", record)
    origin = {"schema_version": 2, "name": "made up", "source": "tests"}
    return build(Architecture, origin | fields, "target config.json")
