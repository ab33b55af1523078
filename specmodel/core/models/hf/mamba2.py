"""Models with layers of Mamba-2 in a ``config.json``: their sizes, and which layers they are.

Layers of Nemotron-H have one purpose each. Those of Falcon-H1 have attention and a state space side
by side, which read the same: each counts as two layers, the first of which has attention alone.
"""

from specmodel.core.models.hf.family import FULL, LINEAR
from specmodel.core.models.hf.feed_forward import dense_block, experts_block, pass_over_experts
from specmodel.core.models.hf.reader import Fields, Layers, Reader

_NAMES = {"mamba": ("M", LINEAR), "attention": ("*", FULL), "moe": ("E",), "mlp": ("-",)}
_PURPOSES = {other: name for name, others in _NAMES.items() for other in (name, *others)}
"""Purposes of layers by their names, by letters of a pattern, and as transformers 5 writes them."""
LISTED, PATTERN = "layers_block_type", "hybrid_override_pattern"
_MIXERS = {"mamba": LINEAR, "attention": FULL}


# Nemotron-H


def num_layers(reader: Reader) -> int:
    """Return how many layers are listed [-]."""
    return len(block_types(reader))


def block_types(reader: Reader) -> list[str]:
    """Return the purpose of each layer, as listed or by letters: mamba, attention, moe or mlp."""
    said = []
    for key in (LISTED, PATTERN):
        listed = reader.get(key)
        if listed is not None:
            count = len(listed) if isinstance(listed, list | str) else 0
            names = reader.by_layer(key, count, tuple(_PURPOSES))
            said.append([_PURPOSES[name] for name in names])
    if not said or not said[0]:
        raise reader.fault(LISTED, "mamba, attention, moe or mlp for each layer")
    if said[0] != said[-1]:
        raise reader.fault(PATTERN, f"the same layers as in {LISTED}, or no such key")
    if reader.whole("num_hidden_layers", len(said[0])) != len(said[0]):
        raise reader.fault("num_hidden_layers", f"{len(said[0])}, as many as layers are listed")
    return said[0]


def by_block_type(reader: Reader, num_layers: int) -> list[str]:
    """Return the kind of mixer of each layer that has one purpose, an empty name for none."""
    return [_MIXERS.get(block, "") for block in block_types(reader)]


def nemotron_blocks(reader: Reader, num_layers: int) -> Layers:
    """Return the feed-forward block of each layer that is nothing but one, None for others."""
    reader.pass_over("intermediate_size")
    blocks, made = block_types(reader), dict[str, Fields]()
    if "moe" in blocks:
        made["moe"] = experts_block(reader)
    else:
        pass_over_experts(reader)
    if "mlp" in blocks:
        made["mlp"] = dense_block(reader)
    return [made.get(block) for block in blocks]


# Falcon-H1


def twice(reader: Reader) -> int:
    """Return the number of layers with one mixer each: two for each layer of the model [-]."""
    return 2 * reader.whole("num_hidden_layers")


def side_by_side(reader: Reader, num_layers: int) -> list[str]:
    """Return attention and a state space in turn, two for each layer of the model."""
    return [FULL, LINEAR] * (num_layers // 2)


def falcon_blocks(reader: Reader, num_layers: int) -> Layers:
    """Return the feed-forward block of each second layer; attention beside it has none."""
    return [None, dense_block(reader)] * (num_layers // 2)


def share_norms(reader: Reader, layers: list[Fields]) -> Fields:
    """Set attention layers to have no norm, as they read the output of the state space's norm."""
    for layer in layers:
        layer |= {} if layer["feed_forward"] else {"num_norms": 0}
    return {}


# sizes of a state space


def mamba(reader: Reader) -> Fields:
    """Return the fields of a state space by the keys of Granite and Bamba.

    The state has the dtype of the model where none is given, as vLLM 0.33 and transformers keep it;
    SGLang 0.5.23 takes 32 bits.
    """
    inner = reader.whole("mamba_expand", 2) * reader.whole("hidden_size")
    return _by_inner_size(reader, inner, "mamba_expand x hidden_size")


def falcon(reader: Reader) -> Fields:
    """Return the fields of a state space by the keys of Falcon-H1, which may give its width."""
    if reader.get("mamba_d_ssm") is None:
        return mamba(reader)
    return _by_inner_size(reader, reader.whole("mamba_d_ssm"), "mamba_d_ssm")


def _by_inner_size(reader: Reader, inner: int, name: str) -> Fields:
    heads, head_dim = reader.whole("mamba_n_heads"), reader.get("mamba_d_head", "auto")
    reader.check_divides("mamba_n_heads", heads, name, inner)
    if head_dim not in ("auto", None, inner // heads):
        expected = f"{name} / mamba_n_heads = {inner // heads}, or auto"
        raise reader.fault("mamba_d_head", expected)
    fields = reader.sizes("mamba") | {"state_head_dim": inner // heads}
    is_told = reader.get("mamba_ssm_dtype") is not None
    return fields if is_told else {"state_dtype": reader.dtype()} | fields
