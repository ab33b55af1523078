"""Read Kimi delta attention, output gates and residuals of Kimi, GLM and Ling.

Files of Kimi and GLM-5.3-Flash nest sizes and lists of layers in `linear_attn_config`. transformers
5 also writes them at the top level under other names, and Ling has a third set of names.
"""

from specmodel.core.models.hf.family import FULL, LINEAR
from specmodel.core.models.hf.keys import table
from specmodel.core.models.hf.reader import Fields, Reader

_NESTED, _OUTSIDE = "linear_attn_config", "kimi delta outside"
_KERNEL = "short_conv_kernel_size"
_LISTS = ("kda_layers", "full_attn_layers")
_GRANULARITY = "gated_attention_proj_granularity_type"


def kimi_delta(reader: Reader) -> Fields:
    """Return Kimi delta attention by the keys of Kimi's models and GLM-5.3-Flash."""
    nested = reader.nested(_NESTED)
    if nested is None:
        return reader.sizes(_OUTSIDE)
    is_full = nested.flag("use_full_rank_gate", False)
    nested.pass_over("gate_lower_bound", *_LISTS)
    sizes = nested.sizes("kimi delta")
    nested.refuse_other_keys()
    _check_outside(reader, sizes)
    return sizes | {"has_low_rank_gate": not is_full}


def ling(reader: Reader) -> Fields:
    """Return the linear attention of Ling and Ring: from 3.0 on Kimi's, with full-rank gates.

    Earlier models have no short convolution, and their attention has no gate. SGLang 0.5.23
    distinguishes them in the same way (``configs/bailing_hybrid.py``). transformers 5 writes the
    width of latent attention's rotary part into `head_dim`.
    """
    if reader.get(_KERNEL) is None:
        return reader.sizes("lightning")
    is_low = not reader.flag("no_kda_lora", True)
    sizes = reader.sizes("ling delta")
    sizes["head_dim"] = reader.whole("linear_head_dim", sizes["head_dim"])
    _check_outside(reader, sizes)
    return sizes | {"has_low_rank_decay": is_low, "has_low_rank_gate": is_low}


def _check_outside(reader: Reader, sizes: Fields) -> None:
    """Refuse sizes under transformers' names that differ from sizes under the model's names."""
    for field, key in table("size_keys")[_OUTSIDE].items():
        reader.only(key, (sizes[field],), f"{sizes[field]}, as the model's own key for it has")


def gate_size(reader: Reader, v_head_dim: int) -> int:
    """Return the width per head of the output gate of latent attention, 0 for no gate [-]."""
    reader.pass_over(_GRANULARITY)
    if reader.flag("mla_use_output_gate", False):
        return v_head_dim
    has_gate = reader.family.linear != "kimi.ling" or reader.get(_KERNEL) is not None
    kind = reader.get(_GRANULARITY, reader.family.latent_gate if has_gate else None)
    sizes = {None: 0, "head_wise": 1, "element_wise": v_head_dim}
    is_known = isinstance(kind, str | None) and kind in sizes
    reader.need(is_known, _GRANULARITY, "head_wise, element_wise or null")
    return sizes[kind]


def residuals(reader: Reader, layers: list[Fields]) -> Fields:
    """Return the field `residuals` by the keys of Kimi or GLM; {} for one residual stream."""
    block = reader.whole("attn_res_block_size", 0)
    streams = reader.whole("hc_mult", 1)
    streams = streams if reader.flag("mhc", False) else 1
    reader.need(not block or streams == 1, "mhc", "false, as there is attn_res_block_size")
    if block:
        return {"residuals": {"kind": "attention_residuals", "block_layers": block}}
    own = {"kind": "hyper_connections", "num_streams": streams}
    return {"residuals": own} if streams > 1 else {}


def by_lists(reader: Reader, num_layers: int) -> list[str]:
    """Return the kind of each layer by the two lists of `linear_attn_config`."""
    nested = reader.nested(_NESTED)
    if nested is None or all(nested.get(key) is None for key in _LISTS):
        return []
    first = reader.family.first_layer
    delta, full = (nested.layer_numbers(key, first, num_layers) or set[int]() for key in _LISTS)
    is_partition = not delta & full and delta | full == set(range(num_layers))
    last = num_layers - 1 + first
    expected = f"each layer from {first} to {last} that is not in full_attn_layers"
    nested.need(is_partition, _LISTS[0], expected)
    return [LINEAR if i in delta else reader.family.kinds[0] for i in range(num_layers)]


def by_groups(reader: Reader, num_layers: int) -> list[str]:
    """Return linear attention, except in the last layer of each group of layers.

    The last layer of a group and all layers after the last whole group have full attention.
    """
    size = reader.whole("layer_group_size")
    grouped = num_layers // size * size
    return [FULL if (i + 1) % size == 0 or i >= grouped else LINEAR for i in range(num_layers)]
