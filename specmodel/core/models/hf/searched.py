"""Read models found by an architecture search, in which each layer has its own sizes.

The key `block_configs` gives these sizes. In DeciLM, a layer has attention and a feed-forward
block, and may lack either. In Nemotron-H (puzzle), a layer has one of them, and the key gives only
sizes that differ from the other keys; `mtp_block_configs` does the same for the MTP module (vLLM
0.33: ``nemotron_h.py``; SGLang 0.5.23: ``NemotronHPuzzleConfig``).
"""

import itertools

from specmodel.core.base.errors import InputError
from specmodel.core.models.hf.family import FULL
from specmodel.core.models.hf.feed_forward import dense_block, experts_block
from specmodel.core.models.hf.keys import table
from specmodel.core.models.hf.mamba2 import LISTED, block_types
from specmodel.core.models.hf.mixers import attention, mixers
from specmodel.core.models.hf.reader import Fields, Layers, Reader

_LAYERS, _MODULE, _PURPOSE = "block_configs", "mtp_block_configs", "block_type"
_KEYS: dict[str, list[str]] = table("key_names")["searched_layers"]
"""Keys of a layer by its purpose."""


# DeciLM


_ATTENTION = ("no_op", "n_heads_in_group", "window_length")
_FFN = ("no_op", "ffn_mult", "intermediate_size", "hidden_act")
_MULTIPLE = 256
"""Number to whose multiples widths of blocks are rounded up [-]."""


def searched_mixers(reader: Reader, kinds: list[str], window: int | None) -> Layers:
    """Return the attention of each layer, None if the search removed it.

    A matrix in place of attention is refused, as in vLLM 0.33 (``nemotron_nas.py``).
    """
    heads, hidden_size = reader.whole("num_attention_heads"), reader.whole("hidden_size")
    usual = hidden_size // heads if hidden_size % heads == 0 else None
    head_dim = reader.whole("head_dim", usual)
    found: list[Fields | None] = []
    for part in _parts(reader, "attention", _ATTENTION, len(kinds)):
        if part.flag("no_op", False):
            found.append(None)
            continue
        group = part.whole("n_heads_in_group")
        part.check_divides("n_heads_in_group", group, "num_attention_heads", heads)
        own = {"window": part.whole("window_length")} if part.get("window_length") else {}
        sizes = {"num_heads": heads, "num_kv_heads": heads // group, "head_dim": head_dim}
        found.append({"kind": "attention"} | sizes | own)
    return found


def searched_blocks(reader: Reader, num_layers: int) -> Layers:
    """Return the feed-forward block of each layer, None if the search removed it."""
    hidden_size = reader.whole("hidden_size")
    return [
        None
        if part.flag("no_op", False)
        else {"kind": "dense", "ffn_size": _ffn_size(part, hidden_size)}
        for part in _parts(reader, "ffn", _FFN, num_layers)
    ]


def _ffn_size(part: Reader, hidden_size: int) -> int:
    """Return the width of a block, from a multiplier (usually 4) or as given [-]."""
    factor = part.number("ffn_mult", most=_MULTIPLE)
    if factor is None:
        return part.whole("intermediate_size")
    return -(-int(2 * factor * hidden_size / 3) // _MULTIPLE) * _MULTIPLE


def _parts(reader: Reader, name: str, known: tuple[str, ...], num_layers: int) -> list[Reader]:
    """Return a reader of the part `name` of each layer; refuse unknown keys in it."""
    blocks = _blocks(reader, _LAYERS)
    if len(blocks) != num_layers:
        expected = f"{num_layers} objects, one for each layer"
        raise InputError(f"{reader.argument} {_LAYERS}", f"{len(blocks)} entries", expected)
    found = [block.inner(name, block.get(name)) for block in blocks]
    for part in found:
        part.refuse_unknown(known, "false or null, as its meaning is not known here")
    return found


def _blocks(reader: Reader, key: str) -> list[Reader]:
    """Return a reader of each layer that a key lists."""
    listed = reader.get(key)
    is_list = isinstance(listed, list) and listed
    reader.need(is_list, key, "a list of objects, one for each layer")
    return [reader.inner(f"{key}[{number}]", own) for number, own in enumerate(listed)]


# Nemotron-H after a search (puzzle)


def num_layers(reader: Reader) -> int:
    """Return the number of layers [-]; store their purposes under the key of Nemotron-H."""
    purposes = [part.get(_PURPOSE) for part in _layers(reader, _LAYERS)]
    reader.config = {**reader.config, LISTED: purposes}
    reader.pass_over(*itertools.chain(*_KEYS.values()))
    reader.pass_over(_MODULE, "mtp_n_routed_experts", "max_n_routed_experts")
    return len(block_types(reader))


def puzzle_blocks(reader: Reader, count: int) -> Layers:
    """Return the feed-forward block of each layer, None for layers with a mixer."""
    return [_block(part) for part in _layers(reader, _LAYERS)]


def puzzle_mixers(reader: Reader, kinds: list[str], window: int | None) -> Layers:
    """Return the attention or state space of each layer, None for other layers."""
    parts = _layers(reader, _LAYERS)
    return [
        _attention(part) if kind == FULL else mixers(reader, [kind], window)[0]
        for part, kind in zip(parts, kinds, strict=True)
    ]


def puzzle_fields(reader: Reader, layers: list[Fields]) -> Fields:
    """Return the layer of the MTP module, whose attention and experts have their own sizes."""
    if reader.get(_MODULE) is None:
        return {}
    parts = _layers(reader, _MODULE)
    is_known = [part.get(_PURPOSE) for part in parts] == ["attention", "moe"]
    reader.need(is_known, _MODULE, "attention and moe, as other modules are not known here")
    attends, routes = parts
    made = {"mixer": _attention(attends), "feed_forward": _block(routes)}
    return {"mtp_layer": {"count": 1} | made}


def _attention(part: Reader) -> Fields:
    window = part.get("sliding_window")
    return attention(part) | ({"window": part.whole("sliding_window")} if window else {})


def _block(part: Reader) -> Fields | None:
    made = {"moe": experts_block, "mlp": dense_block}.get(part.get(_PURPOSE))
    return made(part) if made else None


def _layers(reader: Reader, key: str) -> list[Reader]:
    """Return a reader of each layer, which reads the model's keys for missing ones."""
    found = _blocks(reader, key)
    for part in found:
        purpose = part.by_name(_PURPOSE, tuple(_KEYS))
        known = (_PURPOSE, *_KEYS[purpose])
        part.refuse_unknown(known, f"none but {', '.join(known)} in a layer that is {purpose}")
        part.config = {**reader.config, **part.config}
    return found
