"""Nemotron-H after a search (puzzle) in a ``config.json``: layers with sizes of their own.

`block_configs` gives each layer its purpose and the sizes in which it differs from the other keys,
`mtp_block_configs` those of the MTP module, as vLLM 0.33 (``nemotron_h.py``) and SGLang 0.5.23
(``NemotronHPuzzleConfig``) read them.
"""

from specmodel.base.errors import InputError
from specmodel.models.hf.family import FULL
from specmodel.models.hf.feed_forward import dense_block, experts_block
from specmodel.models.hf.mamba2 import LISTED, PATTERN, block_types, by_letter
from specmodel.models.hf.mixers import attention, mixers
from specmodel.models.hf.reader import Fields, Layers, Reader

_LAYERS, _MODULE, _PURPOSE = "block_configs", "mtp_block_configs", "block_type"
_SIZES = {
    "mamba": (),
    "attention": ("num_attention_heads", "num_key_value_heads", "head_dim", "sliding_window"),
    "moe": (
        "n_routed_experts",
        "num_experts_per_tok",
        "moe_intermediate_size",
        "moe_latent_size",
        "n_shared_experts",
        "moe_shared_expert_intermediate_size",
    ),
    "mlp": ("intermediate_size",),
}
"""Keys of a layer by its purpose; engines take those of state spaces from outside."""


def num_layers(reader: Reader) -> int:
    """Return the number of layers, and note their purposes where Nemotron-H lists them [-]."""
    purposes = [part.get(_PURPOSE) for part in _parts(reader, _LAYERS)]
    if reader.get(PATTERN) is not None and by_letter(reader) != purposes:
        raise reader.fault(PATTERN, f"the layers that {_LAYERS} lists")
    reader.config = {**reader.config, LISTED: purposes}
    reader.pass_over(*(key for keys in _SIZES.values() for key in keys))
    reader.pass_over(_MODULE, "mtp_n_routed_experts", "max_n_routed_experts")
    return len(block_types(reader))


def puzzle_blocks(reader: Reader, count: int) -> Layers:
    """Return the feed-forward block of each layer that is nothing but one, None for others."""
    return [_block(part) for part in _parts(reader, _LAYERS)]


def puzzle_mixers(reader: Reader, kinds: list[str], window: int | None) -> Layers:
    """Return the attention or state space of each layer, None for other layers."""
    parts = _parts(reader, _LAYERS)
    return [
        _attention(part) if kind == FULL else mixers(reader, [kind], window)[0]
        for part, kind in zip(parts, kinds, strict=True)
    ]


def puzzle_fields(reader: Reader, layers: list[Fields]) -> Fields:
    """Return the layer of the MTP module, whose attention and experts have sizes of their own."""
    if reader.get(_MODULE) is None:
        return {}
    parts = _parts(reader, _MODULE)
    if [part.get(_PURPOSE) for part in parts] != ["attention", "moe"]:
        raise reader.fault(_MODULE, "attention and moe, as other modules are not known here")
    attends, routes = parts
    made = {"mixer": _attention(attends), "feed_forward": _block(routes)}
    return {"mtp_layer": {"count": 1} | made}


def _attention(part: Reader) -> Fields:
    window = part.get("sliding_window")
    return attention(part) | ({"window": part.whole("sliding_window")} if window else {})


def _block(part: Reader) -> Fields | None:
    made = {"moe": experts_block, "mlp": dense_block}.get(part.get(_PURPOSE))
    return made(part) if made else None


def _parts(reader: Reader, key: str) -> list[Reader]:
    """Return a reader of each layer, whose keys stand before those of the model."""
    listed = reader.get(key)
    if not isinstance(listed, list) or not listed:
        raise reader.fault(key, "a list of objects, one for each layer")
    found = []
    for number, own in enumerate(listed):
        argument = f"{reader.argument} {key}[{number}]"
        if not isinstance(own, dict):
            raise InputError(argument, own, "an object")
        part = Reader(own, argument, reader.family)
        purpose = part.by_name(_PURPOSE, tuple(_SIZES))
        known = (_PURPOSE, *_SIZES[purpose])
        part.refuse_unknown(known, f"none but {', '.join(known)} in a layer that is {purpose}")
        part.config = {**reader.config, **own}
        found.append(part)
    return found
