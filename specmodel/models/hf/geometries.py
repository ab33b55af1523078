"""Attention of two geometries in a model: with a window, or to blocks that an indexer selects.

Layers with a window have sizes of their own in MiMo-V2. Modules for multi-token prediction may have
such a layer where the target has both kinds. MiniMax-M3's layers but the first have an indexer.
"""

from collections.abc import Sequence
from typing import Any

from specmodel.models.hf.families import BLOCKS, FULL, SLIDING, Family
from specmodel.models.hf.reader import Reader

_INDEXER = {
    "index_num_heads": "sparse_num_index_heads",
    "index_head_dim": "sparse_index_dim",
    "block_size": "sparse_block_size",
    "topk_blocks": "sparse_topk_blocks",
}
"""Sizes of an indexer of blocks, and keys of checkpoints for them."""

_AS_WRITTEN = ("index_n_heads", "index_head_dim", "index_block_size", "index_topk_blocks")
"""Names of these that transformers 5.23 writes, outside of the object that checkpoints have."""

_WITHOUT_SHAPE = (
    "sparse_init_block",
    "sparse_local_block",
    "index_local_blocks",
    "sparse_score_type",
    "sparse_attention_freq",
    "sparse_disable_index_value",
)

_SPARSE = "sparse_attention_config"


def mimo_kinds(reader: Reader, family: Family, listed: list[str], num_layers: int) -> list[str]:
    """Return the kind of each layer by a pattern of ones for windows, or as listed."""
    del family
    key = "hybrid_layer_pattern"
    if reader.get(key) is None:
        if not listed:
            raise reader.fault(key, f"{num_layers} entries, 1 for a layer with a window, else 0")
        return listed
    pattern = reader.by_layer(key, num_layers, (0, 1))
    kinds = [SLIDING if has_window else FULL for has_window in pattern]
    if listed not in ([], kinds):
        raise reader.fault("layer_types", f"the layers with a 1 in {key} {SLIDING}")
    return kinds


def mimo_mixers(
    reader: Reader, family: Family, kinds: list[str], window: int | None
) -> list[dict[str, Any]]:
    """Return the attention of each layer, by keys of their own for layers with a window.

    Sinks, one number for each head, are left out. Without keys of their own, layers with a window
    have twice the key-value heads, as in transformers 5.23.
    """
    del family
    same = reader.get("sliding_window_size")
    if None not in (same, window) and same != window:
        raise reader.fault("sliding_window_size", f"the same as sliding_window = {window}")
    full = {
        "num_attention_heads": reader.whole("num_attention_heads"),
        "num_key_value_heads": reader.whole("num_key_value_heads"),
        "head_dim": reader.whole("head_dim"),
    }
    full["v_head_dim"] = reader.whole("v_head_dim", full["head_dim"])
    usual = full | {"num_key_value_heads": 2 * full["num_key_value_heads"]}
    windowed = {key: reader.whole(f"swa_{key}", usual[key]) for key in full}
    made = {
        FULL: _attention(reader, "", full),
        SLIDING: _attention(reader, "swa_", windowed) | {"window": window},
    }
    return [made[kind] for kind in kinds]


def block_sparse_kinds(
    reader: Reader, family: Family, listed: list[str], num_layers: int
) -> list[str]:
    """Return the kind of each layer by a list of ones for those with an indexer, or as listed."""
    del family
    own, key = _sparse(reader), "sparse_attention_freq"
    if own.get(key) is None:
        if not listed:
            raise own.fault(key, f"{num_layers} entries, 1 for a layer with an indexer, else 0")
        return listed
    kinds = [BLOCKS if is_sparse else FULL for is_sparse in own.by_layer(key, num_layers, (0, 1))]
    if listed not in ([], kinds):
        raise reader.fault("layer_types", f"the layers with a 1 in {_SPARSE}.{key} {BLOCKS}")
    disabled = own.by_layer("sparse_disable_index_value", num_layers, (1, 0))
    if any(kind == BLOCKS and not is_off for kind, is_off in zip(kinds, disabled, strict=True)):
        expected = "1 in all layers with an indexer, as others are not known here"
        raise own.fault("sparse_disable_index_value", expected)
    return kinds


def block_sparse_mixers(
    reader: Reader, family: Family, kinds: list[str], window: int | None
) -> list[dict[str, Any]]:
    """Return the attention of each layer: grouped, to all entries or to blocks of them.

    Blocks that are always selected, the first or the last of a context, are among those that are
    chosen and not beside them: engines give them the best scores (vLLM 0.33,
    ``minimax_m3/common/ops/index_topk.py``; SGLang 0.5.23,
    ``minimax_sparse/decode/flash_with_topk_idx.py``), as transformers 5.23 does.
    """
    del window
    own = _sparse(reader)
    if not own.flag("use_sparse_attention", True):
        raise own.fault("use_sparse_attention", "true, as engines pass over it")
    if reader.flag("attention_output_gate", False):
        raise reader.fault("attention_output_gate", "false, as gates are not known here")
    same = reader.whole("moe_intermediate_size", reader.whole(str(family.expert_size)))
    if same != reader.whole(str(family.expert_size)):
        expected = f"the same as {family.expert_size}, which engines take"
        raise reader.fault("moe_intermediate_size", expected)
    sizes = {
        "num_attention_heads": reader.whole("num_attention_heads"),
        "num_key_value_heads": reader.whole("num_key_value_heads"),
        "head_dim": reader.whole("head_dim", family.head_dim),
    }
    full = _attention(reader, "", sizes | {"v_head_dim": sizes["head_dim"]})
    index = {field: own.whole(key) for field, key in _INDEXER.items()}
    if index["index_num_heads"] % full["num_kv_heads"]:
        expected = f"a multiple of num_key_value_heads = {full['num_kv_heads']}"
        raise own.fault("sparse_num_index_heads", expected)
    own.refuse_other_keys(family.harmless)
    sparse = full | {"kind": "block_sparse_attention"} | index
    return [sparse if kind == BLOCKS else full for kind in kinds]


def _sparse(reader: Reader) -> Reader:
    """Return a reader of what a configuration has of block-sparse attention."""
    given = reader.get(_SPARSE)
    if not isinstance(given, dict | None):
        raise reader.fault(_SPARSE, "an object")
    keys = ("model_type", *_AS_WRITTEN, "index_local_blocks")
    flat = {key: reader.get(key) for key in keys}
    own = {key: value for key, value in flat.items() if value is not None} | (given or {})
    found = Reader(own, f"{reader.argument} {_SPARSE}")
    for key in _WITHOUT_SHAPE:
        found.get(key)
    return found


def windowed_mtp_layer(
    reader: Reader, family: Family, mixers: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Return the layer of a module that attends to a window, unless told, and has a dense block.

    Lists of layers may go on with those of modules, or have lists of their own beside them
    (`mtp_layer_types`, `mtp_mlp_layer_types`).

    As vLLM 0.33 (``mimo_v2_mtp.py``, ``step3p5_mtp.py``) and SGLang 0.5.23
    (``mimo_v2_nextn.py``) build it.
    """
    num_layers = len(mixers)
    kinds = _of_modules(reader, "layer_types", num_layers)
    if kinds and (kinds[0] not in (FULL, SLIDING) or kinds != kinds[:1] * len(kinds)):
        key = "mtp_layer_types" if reader.get("mtp_layer_types") else "layer_types"
        raise reader.fault(key, f"modules that are all {FULL}, or all {SLIDING}")
    _check_dense(reader, family, num_layers)
    is_windowed = not kinds or kinds[0] == SLIDING
    fitting = (mixer for mixer in mixers if bool(mixer.get("window")) == is_windowed)
    block = {"kind": "dense", "ffn_size": reader.whole("intermediate_size")}
    return {"count": 1, "mixer": next(fitting, mixers[0]), "feed_forward": block}


def _attention(reader: Reader, prefix: str, sizes: dict[str, int]) -> dict[str, Any]:
    heads, kv_heads = sizes["num_attention_heads"], sizes["num_key_value_heads"]
    if heads % kv_heads:
        expected = f"a divisor of {prefix}num_attention_heads = {heads}"
        raise reader.fault(f"{prefix}num_key_value_heads", expected)
    fields = {
        "kind": "attention",
        "num_heads": heads,
        "num_kv_heads": kv_heads,
        "head_dim": sizes["head_dim"],
    }
    is_own = sizes["v_head_dim"] != sizes["head_dim"]
    return fields | ({"value_head_dim": sizes["v_head_dim"]} if is_own else {})


def _check_dense(reader: Reader, family: Family, num_layers: int) -> None:
    """Refuse modules with experts, by whichever key says that they have them."""
    expected = "modules without experts, as others are not known here"
    if any(kind != "dense" for kind in _of_modules(reader, "mlp_layer_types", num_layers)):
        is_own = bool(reader.get("mtp_mlp_layer_types"))
        raise reader.fault("mtp_mlp_layer_types" if is_own else "mlp_layer_types", expected)
    routed = reader.get("moe_layers_enum") if family.dense_layers == "enumerated" else None
    numbers = routed.split(",") if isinstance(routed, str) else routed or []
    if any(int(number) >= num_layers for number in numbers):
        raise reader.fault("moe_layers_enum", expected)


def _of_modules(reader: Reader, key: str, num_layers: int) -> list[Any]:
    """Return what a list says of modules: its own list, or what goes on after the layers."""
    own, listed = reader.get(f"mtp_{key}"), reader.get(key)
    if not isinstance(own, list | None):
        raise reader.fault(f"mtp_{key}", "a list with the kind of each module")
    return own or (listed or [])[num_layers:]
