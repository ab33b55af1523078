"""Models with layers of Mamba-2 in a ``config.json``: their sizes, and which layers they are."""

from collections.abc import Mapping
from typing import Any

from specmodel.base.errors import InputError
from specmodel.models.hf.families import FULL, LINEAR, Family
from specmodel.models.hf.longcat import LONGCAT, num_single_layers
from specmodel.models.hf.reader import Reader

BLOCK_TYPES = "block types"
"""Name of the rule for models whose layers have one purpose each."""

SIDE_BY_SIDE = "side by side"
"""Name of the rule for models whose layers have attention and a state space that read the same.
Each counts as two layers, of which the first has attention alone and the second all else."""

MOE, MLP = "moe", "mlp"
_LETTERS = {"M": "mamba", "*": "attention", "E": MOE, "-": MLP}
_NAMES = tuple(_LETTERS.values())
_OTHER_NAMES = {LINEAR: "mamba", FULL: "attention"}
"""Names that transformers 5 writes instead, by what is meant in a model of such layers."""
_LISTED, _PATTERN = "layers_block_type", "hybrid_override_pattern"
_MIXERS = {"mamba": LINEAR, "attention": FULL}


def num_layers(reader: Reader, family: Family) -> int:
    """Return the layers of a model, which may be listed, and count as two if side by side [-]."""
    if family.plan == BLOCK_TYPES:
        return len(block_types(reader))
    if family.own_rules == LONGCAT:
        return num_single_layers(reader)
    if family.plan == SIDE_BY_SIDE:
        return 2 * reader.whole("num_hidden_layers")
    return reader.whole("num_hidden_layers")


def block_types(reader: Reader) -> list[str]:
    """Return the purpose of each layer: mamba, attention, moe or mlp."""
    listed, by_letter = reader.get(_LISTED), _by_letter(reader)
    if listed is None and not by_letter:
        raise reader.fault(_LISTED, f"{' or '.join(_NAMES)} for each layer")
    num_listed = len(listed) if isinstance(listed, list) else len(by_letter)
    blocks = by_letter
    if listed is not None:
        names = reader.by_layer(_LISTED, num_listed, (*_NAMES, *_OTHER_NAMES))
        blocks = [_OTHER_NAMES.get(name, name) for name in names]
    if by_letter not in ([], blocks):
        raise reader.fault(_PATTERN, f"the layers that {_LISTED} lists")
    if reader.whole("num_hidden_layers", len(blocks)) != len(blocks):
        raise reader.fault("num_hidden_layers", f"{len(blocks)}, as many as layers are listed")
    return blocks


def _by_letter(reader: Reader) -> list[str]:
    """Return the purposes that a pattern has letters for, none if there is no pattern."""
    pattern = reader.get(_PATTERN)
    if pattern is None:
        return []
    if not isinstance(pattern, str) or not pattern or not set(pattern) <= _LETTERS.keys():
        raise reader.fault(_PATTERN, f"a letter for each layer: {' or '.join(_LETTERS)}")
    return [_LETTERS[letter] for letter in pattern]


def check_module(config: Mapping[str, Any], argument: str) -> None:
    """Refuse a module for multi-token prediction other than attention and then experts."""
    for key, known in (
        ("mtp_layers_block_type", (["attention", MOE], [FULL, MOE])),
        ("mtp_hybrid_override_pattern", ("*E",)),
    ):
        if config.get(key) is not None and config[key] not in known:
            expected = f"{known[0]!r}, as other modules are not known here"
            raise InputError(f"{argument} {key}", config[key], expected)


def by_block_type(reader: Reader, family: Family, listed: list[str], num_layers: int) -> list[str]:
    """Return the kind of mixer of each layer that has one purpose, an empty name for none."""
    del family, listed, num_layers
    return [_MIXERS.get(block, "") for block in block_types(reader)]


def side_by_side(reader: Reader, family: Family, listed: list[str], num_layers: int) -> list[str]:
    """Return attention and a state space in turn, which are two of a layer."""
    del family
    if listed:
        raise reader.fault("layer_types", "none, as all layers have both")
    return [FULL, LINEAR] * (num_layers // 2)


def share_norms(family: Family, layers: list[dict[str, Any]]) -> None:
    """Take the norm from attention that reads what a state space beside it reads."""
    if family.plan == SIDE_BY_SIDE:
        for layer in layers:
            layer |= {} if layer["feed_forward"] else {"num_norms": 0}


def refuse_quantised(reader: Reader, family: Family, beside: Mapping[str, Any] | None) -> None:
    """Refuse a quantised model of such layers, as which its lists name is not known here."""
    if family.plan == SIDE_BY_SIDE and (reader.get("quantization_config") or beside):
        expected = "none, as names of such layers are not known here: --weight-dtype says it"
        raise reader.fault("quantization_config", expected)


def by_name(reader: Reader, family: Family, listed: list[str], num_layers: int) -> list[str]:
    """Return listed kinds of layers, in which state spaces and attention may have short names."""
    del family
    if not listed:
        raise reader.fault("layer_types", f"{num_layers} times mamba or attention, listed")
    return [_MIXERS.get(kind, kind) for kind in listed]


def by_number(reader: Reader, family: Family, listed: list[str], num_layers: int) -> list[str]:
    """Return state spaces in all layers but those whose numbers are listed."""
    del family
    key = "attn_layer_indices"
    attending = reader.layer_numbers(key)
    if attending is None:
        raise reader.fault(key, "the numbers of the layers with attention")
    kinds = [FULL if i in attending else LINEAR for i in range(num_layers)]
    if [_MIXERS.get(kind, kind) for kind in listed] not in ([], kinds):
        raise reader.fault("layer_types", f"the layers that {key} gives attention")
    return kinds


def nemotron(reader: Reader) -> dict[str, Any]:
    """Return the state space of a layer by the keys of Nemotron."""
    keys = ("mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size", "conv_kernel")
    return _fields(reader, keys)


def mamba(reader: Reader) -> dict[str, Any]:
    """Return the state space of a layer by the keys of Granite and Bamba.

    The state has the dtype of the model where none is given, as vLLM 0.33 and transformers keep it;
    SGLang 0.5.23 takes 32 bits.
    """
    inner = reader.whole("mamba_expand", 2) * reader.whole("hidden_size")
    return _by_inner_size(reader, inner, "mamba_expand x hidden_size")


def falcon(reader: Reader) -> dict[str, Any]:
    """Return the state space of a layer by the keys of Falcon-H1, whose width may be given."""
    if reader.get("mamba_d_ssm") is None:
        return mamba(reader)
    return _by_inner_size(reader, reader.whole("mamba_d_ssm"), "mamba_d_ssm")


def _by_inner_size(reader: Reader, inner: int, name: str) -> dict[str, Any]:
    heads, head_dim = reader.whole("mamba_n_heads"), reader.get("mamba_d_head", "auto")
    expected = f"a divisor of {name} = {inner}"
    if inner % heads:
        raise reader.fault("mamba_n_heads", expected)
    if head_dim not in ("auto", None, inner // heads):
        expected = f"{name} / mamba_n_heads = {inner // heads}, or auto"
        raise reader.fault("mamba_d_head", expected)
    keys = ("mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state", "mamba_d_conv")
    fields = _fields(reader, keys, inner // heads)
    is_told = reader.get("mamba_ssm_dtype") is not None
    return fields if is_told else {"state_dtype": reader.dtype()} | fields


def _fields(
    reader: Reader, keys: tuple[str, str, str, str, str], head_dim: int | None = None
) -> dict[str, Any]:
    """Return the fields of a mixer by the keys of heads, their width, groups, state and window."""
    of_heads, of_width, of_groups, of_state, of_window = keys
    heads, groups = reader.whole(of_heads), reader.whole(of_groups)
    if heads % groups:
        raise reader.fault(of_groups, f"a divisor of {of_heads} = {heads}")
    return {
        "kind": "mamba2",
        "num_state_heads": heads,
        "state_head_dim": head_dim or reader.whole(of_width),
        "num_state_groups": groups,
        "state_dim": reader.whole(of_state),
        "conv_kernel": reader.whole(of_window),
    }
