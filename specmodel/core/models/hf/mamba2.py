"""Read models with Mamba-2: the sizes of its layers, and which layers have it.

A layer of Nemotron-H has only one part: a mixer or a feed-forward block. A layer of Falcon-H1 has
attention and a state space in parallel, which read the same input. It counts as two layers, of
which the first has only attention.
"""

from specmodel.core.models.hf.family import FULL, LINEAR
from specmodel.core.models.hf.feed_forward import dense_block, experts_block, pass_over_experts
from specmodel.core.models.hf.reader import Fields, Layers, Reader

_NAMES = {"mamba": ("M", LINEAR), "attention": ("*", FULL), "moe": ("E",), "mlp": ("-",)}
_PURPOSES = {other: name for name, others in _NAMES.items() for other in (name, *others)}
"""Purpose of a layer by its name, by its letter in a pattern, and by transformers' name."""
LISTED, PATTERN = "layers_block_type", "hybrid_override_pattern"
_MIXERS = {"mamba": LINEAR, "attention": FULL}


# Nemotron-H


def num_layers(reader: Reader) -> int:
    """Return the number of listed layers [-]."""
    return len(block_types(reader))


def block_types(reader: Reader) -> list[str]:
    """Return the purpose of each layer, mamba, attention, moe or mlp, from a list or letters."""
    said = []
    for key in (LISTED, PATTERN):
        listed = reader.get(key)
        if listed is not None:
            count = len(listed) if isinstance(listed, list | str) else 0
            names = reader.by_layer(key, count, tuple(_PURPOSES))
            said.append([_PURPOSES[name] for name in names])
    reader.need(said and said[0], LISTED, "mamba, attention, moe or mlp for each layer")
    purposes, count = said[0], len(said[0])
    reader.need(said[-1] == purposes, PATTERN, f"the same layers as in {LISTED}, or no such key")
    reader.only("num_hidden_layers", (count,), f"{count}, as many as layers are listed")
    return purposes


def by_block_type(reader: Reader, num_layers: int) -> list[str]:
    """Return the kind of mixer of each layer, an empty name for layers without one."""
    return [_MIXERS.get(block, "") for block in block_types(reader)]


def nemotron_blocks(reader: Reader, num_layers: int) -> Layers:
    """Return the feed-forward block of each layer, None for layers with a mixer."""
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
    """Return the number of layers: two for each layer of the model, as each has two mixers [-]."""
    return 2 * reader.whole("num_hidden_layers")


def side_by_side(reader: Reader, num_layers: int) -> list[str]:
    """Return attention and a state space alternately, both for each layer of the model."""
    return [FULL, LINEAR] * (num_layers // 2)


def falcon_blocks(reader: Reader, num_layers: int) -> Layers:
    """Return the feed-forward block of every second layer; layers with attention have none."""
    return [None, dense_block(reader)] * (num_layers // 2)


def share_norms(reader: Reader, layers: list[Fields]) -> Fields:
    """Set the norms of attention layers to 0, as they read the output of the state space's norm."""
    for layer in layers:
        layer |= {} if layer["feed_forward"] else {"num_norms": 0}
    return {}


# sizes of a state space


def mamba(reader: Reader) -> Fields:
    """Return the fields of a state space by the keys of Granite and Bamba.

    If no key gives the dtype of the state, it is the model's, as in vLLM 0.33 and transformers.
    SGLang 0.5.23 uses 32 bits.
    """
    inner = reader.whole("mamba_expand", 2) * reader.whole("hidden_size")
    return _by_inner_size(reader, inner, "mamba_expand x hidden_size")


def falcon(reader: Reader) -> Fields:
    """Return the fields of a state space by the keys of Falcon-H1, one of which is its width."""
    if reader.get("mamba_d_ssm") is None:
        return mamba(reader)
    return _by_inner_size(reader, reader.whole("mamba_d_ssm"), "mamba_d_ssm")


def _by_inner_size(reader: Reader, inner: int, name: str) -> Fields:
    heads = reader.whole("mamba_n_heads")
    reader.check_divides("mamba_n_heads", heads, name, inner)
    expected = f"{name} / mamba_n_heads = {inner // heads}, or auto"
    reader.only("mamba_d_head", ("auto", inner // heads), expected)
    fields = reader.sizes("mamba") | {"state_head_dim": inner // heads}
    is_told = reader.get("mamba_ssm_dtype") is not None
    return fields if is_told else {"state_dtype": reader.dtype()} | fields
