"""More around sparse attention over latents in a ``config.json``: Hy4, Mistral Large 4, dots3."""

from typing import Any

from specmodel.models.hf.family import INDEXED, SLIDING, Family
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


_WINDOWED = {
    "num_attention_heads": 64,
    "q_lora_rank": 1024,
    "kv_lora_rank": 1024,
    "qk_nope_head_dim": 192,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}
"""Sizes of layers with a window in dots3 where no key says them, as in transformers 5.23 [-]."""


def dots_mixers(
    reader: Reader, family: Family, kinds: list[str], window: int | None
) -> list[dict[str, Any] | None]:
    """Return the attention of each layer: with an indexer, or with a window and sizes of its own.

    Checkpoints have keys for these (swa_); transformers 5 lists what differs in each layer.
    """
    full = mixers(reader, family, [INDEXED[0]] * len(kinds), None)
    layers = [i for i, kind in enumerate(kinds) if kind == SLIDING]
    told = reader.overrides(layers, {*_WINDOWED, "num_key_value_heads"}, "windowed")
    if told:
        usual = {key: reader.whole(key) for key in _WINDOWED} | told
    else:
        usual = {key: reader.whole(f"swa_{key}", n) for key, n in _WINDOWED.items()}
    reader.pass_over("swa_head_dim", "swa_num_key_value_heads")
    own = {"kind": "latent_attention", "gate_size": 1, "window": window}
    own |= {"num_heads" if key == "num_attention_heads" else key: usual[key] for key in _WINDOWED}
    return [own if kind == SLIDING else mixer for kind, mixer in zip(kinds, full, strict=True)]


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
