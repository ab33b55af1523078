"""Sparse attention over latents in a ``config.json`` with more around it: Hy4, Mistral Large 4."""

from typing import Any

from specmodel.models.hf.family import Family
from specmodel.models.hf.mixers import mixers
from specmodel.models.hf.reader import Reader


def hy_fields(reader: Reader, layers: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the residual streams of Hy4, which are not mixed with each other."""
    for key, known in (("enable_ihc", True), ("gated_mla", True), ("gating_type", "elementwise")):
        if reader.get(key, known) != known:
            raise reader.fault(key, f"{str(known).lower()}, as others are not known here")
    streams = reader.whole("hc_mult", 4, minimum=2)
    own = {"kind": "hyper_connections", "num_streams": streams, "is_mixed": False}
    return {"residuals": own | {"has_head": True}}


def mistral_mixers(
    reader: Reader, family: Family, kinds: list[str], window: int | None
) -> list[dict[str, Any] | None]:
    """Return the attention of each layer, in which each so many-th has no rotary part.

    Keys are as wide there, so that their part without position takes the place of it.
    """
    num_layers = len(kinds)
    key, every = "no_rope_layers", reader.whole("no_rope_layer_interval", 4)
    rotary = [(i + 1) % every > 0 for i in range(num_layers)]
    if reader.get(key) is not None:
        rotary = reader.by_layer(key, num_layers, (1, 0))
    sources = reader.get("kv_source_layers")
    if sources not in (None, list(range(num_layers))):
        expected = f"the numbers from 0 to {num_layers - 1}, as shared latents are not known here"
        raise reader.fault("kv_source_layers", expected)
    made = mixers(reader, family, kinds, window)
    return [
        mixer if has_rotary or mixer is None else _without_rotary(mixer)
        for mixer, has_rotary in zip(made, rotary, strict=True)
    ]


def _without_rotary(mixer: dict[str, Any]) -> dict[str, Any]:
    width = mixer["qk_nope_head_dim"] + mixer["qk_rope_head_dim"]
    return mixer | {"qk_nope_head_dim": width, "qk_rope_head_dim": 0}
