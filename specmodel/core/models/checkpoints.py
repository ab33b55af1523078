"""Find the shipped model of a checkpoint, and the dtype of its weights, from its id."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from specmodel.core.base.dtypes import check_dtype
from specmodel.core.base.files import toml_tables
from specmodel.core.base.naming import is_id
from specmodel.core.models.gguf import UNTAGGED, gguf_name

_NAMES: dict[str, Any] = toml_tables(Path(__file__).parent / "data/checkpoints.toml")
SAME_SHAPE, _METHODS = _NAMES["same_shape"], _NAMES["methods"]
_TUNED = re.compile(_NAMES["regexes"]["tuned"])


def checkpoint(typed: str, names: Iterable[str]) -> tuple[str, str] | None:
    """Return the shipped model of a checkpoint, and the dtype of weights in the checkpoint's name.

    The dtype is "" if the name has none. Return None if the name fits no shipped model, contains
    several dtypes, or has unknown parts.

    >>> checkpoint("Qwen/Qwen3-30B-A3B-Instruct-2507-FP8", ["qwen3-30b-a3b"])
    ('qwen3-30b-a3b', 'fp8_block')
    >>> checkpoint("nvidia/MiniMax-M3-NVFP4", ["minimax-m3"])
    ('minimax-m3', 'fp4')
    """
    if gguf := gguf_name(typed):
        name, tag = gguf
        shipped = checkpoint(name, names) or checkpoint(name.partition("_")[2], names)
        dtype = tag or UNTAGGED.get(shipped[0] if shipped else "", UNTAGGED["usual"])
        return shipped and (shipped[0], check_dtype("weight_dtype", dtype))
    if "/" in typed and not is_id(typed):  # a path
        return None
    known = {name.lower().replace("_", "-"): name for name in names}
    whole = re.sub(r"[ _]", "-", typed.lower())
    tried = whole.rpartition("/")[2].removeprefix("meta-").removeprefix("nvidia-")
    own = (row for row in _NAMES["meanings"] if re.fullmatch(row["ids"], whole))
    words = _METHODS | _NAMES["dtypes"] | next(own, {})
    dtypes, method = {_NAMES["untold"].get(whole, "")}, ""
    while tried:
        shape = SAME_SHAPE.get(tried, tried)
        if shape in known:
            dtypes -= {""}
            return (known[shape], "".join(dtypes) or method) if len(dtypes) < 2 else None
        tried, _, tag = tried.rpartition("-")
        tag = tag.removeprefix("quantized.")
        if tag in _METHODS:
            method = words[tag]
        elif tag in words:
            dtypes.add(words[tag])
        elif not _TUNED.fullmatch(tag):
            return None
    return None


def keeps_cache_in_fp8(typed: str) -> bool:
    """Return whether a checkpoint in 8 or 4 bits keeps its KV cache in 8 bits, by its id.

    NVIDIA's checkpoints do (``kv_cache_quant_algo``), and checkpoints whose names end on -kv.
    """
    return typed.lower().startswith("nvidia/") or typed.lower().endswith("-kv")


def meets_16_bits(typed: str) -> bool:
    """Return whether activations have 16 bits, according to the id of a checkpoint."""
    return re.search(r"a16\b|mlx", typed.lower()) is not None
