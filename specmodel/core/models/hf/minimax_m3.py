"""Read MiniMax-M3: in most layers, an indexer selects blocks of the context."""

from specmodel.core.models.hf.family import BLOCKS, FULL
from specmodel.core.models.hf.reader import Fields, Reader, grouped_heads

_OUTSIDE = (
    *("index_n_heads", "index_head_dim", "index_block_size", "index_topk_blocks"),
    "index_local_blocks",
)
"""Keys that checkpoints nest in an object, and that transformers 5.23 writes outside it."""

_SPARSE = "sparse_attention_config"


def block_sparse_kinds(reader: Reader, num_layers: int) -> list[str]:
    """Return the kind of each layer, by a list that marks layers with an indexer by 1."""
    own = _sparse(reader)
    sparse = own.flagged_layers("sparse_attention_freq", num_layers)
    if sparse is None:
        return []
    key = "sparse_disable_index_value"
    disabled = own.by_layer(key, num_layers, (1, 0))
    are_disabled = all(disabled[i] for i in sparse)
    expected = "1 in all layers with an indexer, as specmodel knows no other value"
    own.need(are_disabled, key, expected)
    return [BLOCKS if i in sparse else FULL for i in range(num_layers)]


def block_sparse_mixers(reader: Reader, kinds: list[str], window: int | None) -> list[Fields]:
    """Return the grouped attention of each layer: to all entries, or to selected blocks.

    The number of selected blocks includes the blocks that are always selected, the first or the
    last of a context. Engines and transformers 5.23 give these blocks the best scores (vLLM 0.33:
    ``minimax_m3/common/ops/index_topk.py``; SGLang 0.5.23:
    ``minimax_sparse/decode/flash_with_topk_idx.py``).
    """
    family = reader.family
    own = _sparse(reader)
    own.only("use_sparse_attention", (True,), "true, as engines ignore it")
    expected, width = f"the same as {family.expert_size}, which engines use", family.expert_size
    reader.only("moe_intermediate_size", (reader.whole(str(width)),), expected)
    full = grouped_heads(reader, "", {"head_dim": family.head_dim})
    index = own.sizes("indexer of blocks")
    expected = f"a multiple of num_key_value_heads = {full['num_kv_heads']}"
    is_multiple = not index["index_num_heads"] % full["num_kv_heads"]
    own.need(is_multiple, "sparse_num_index_heads", expected)
    own.refuse_other_keys(family.harmless, [*family.harmless_groups, "indexers of blocks"])
    sparse = full | index
    return [sparse if kind == BLOCKS else full for kind in kinds]


def _sparse(reader: Reader) -> Reader:
    """Return a reader of the object about block-sparse attention, with keys from outside it."""
    nested = reader.nested(_SPARSE)
    flat = {key: reader.get(key) for key in ("model_type", *_OUTSIDE)}
    own = {key: value for key, value in flat.items() if value is not None}
    return Reader(own | dict(nested.config if nested else {}), f"{reader.argument} {_SPARSE}")
