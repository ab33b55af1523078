"""Models from an architecture search (DeciLM) in a ``config.json``: sizes by layer.

Layers may lack attention, or have feed-forward blocks of widths of their own.
"""

from specmodel.base.errors import InputError
from specmodel.models.hf.reader import Fields, Layers, Reader

_KEY = "block_configs"
_ATTENTION = ("no_op", "n_heads_in_group", "window_length")
_FFN = ("no_op", "ffn_mult", "intermediate_size", "hidden_act")
_MULTIPLE = 256
"""Widths of blocks are rounded up to multiples of it [-]."""


def searched_mixers(reader: Reader, kinds: list[str], window: int | None) -> Layers:
    """Return the attention of each layer, None where the search left it out.

    A matrix in place of attention is refused; vLLM 0.33 does not run it either
    (``nemotron_nas.py``).
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
        if heads % group:
            raise part.fault("n_heads_in_group", f"a divisor of num_attention_heads = {heads}")
        own = {"window": part.whole("window_length")} if part.get("window_length") else {}
        sizes = {"num_heads": heads, "num_kv_heads": heads // group, "head_dim": head_dim}
        found.append({"kind": "attention"} | sizes | own)
    return found


def searched_blocks(reader: Reader, num_layers: int) -> Layers:
    """Return the feed-forward block of each layer, None where a search left it out."""
    hidden_size = reader.whole("hidden_size")
    return [
        None
        if part.flag("no_op", False)
        else {"kind": "dense", "ffn_size": _ffn_size(part, hidden_size)}
        for part in _parts(reader, "ffn", _FFN, num_layers)
    ]


def _ffn_size(part: Reader, hidden_size: int) -> int:
    """Return the width of a block, by a multiplier, of which 4 is the usual, or as given [-]."""
    factor = part.get("ffn_mult")
    if factor is None:
        return part.whole("intermediate_size")
    if type(factor) not in (int, float) or not 0 < factor <= _MULTIPLE:
        raise part.fault("ffn_mult", f"a number above 0, up to {_MULTIPLE}")
    return -(-int(2 * factor * hidden_size / 3) // _MULTIPLE) * _MULTIPLE


def _parts(reader: Reader, name: str, known: tuple[str, ...], num_layers: int) -> list[Reader]:
    """Return a reader of a part of each layer; a key of it that is not known is refused."""
    listed = reader.get(_KEY)
    if not isinstance(listed, list) or len(listed) != num_layers:
        shown = f"{len(listed)} entries" if isinstance(listed, list) else listed
        expected = f"{num_layers} objects, one for each layer"
        raise InputError(f"{reader.argument} {_KEY}", shown, expected)
    found = []
    for number, block in enumerate(listed):
        own = block.get(name) if isinstance(block, dict) else None
        if not isinstance(own, dict):
            raise InputError(f"{reader.argument} {_KEY}[{number}].{name}", own, "an object")
        part = Reader(own, f"{reader.argument} {_KEY}[{number}].{name}")
        part.refuse_unknown(known, "false or null, as its meaning is not known here")
        found.append(part)
    return found
