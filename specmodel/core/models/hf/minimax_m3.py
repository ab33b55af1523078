"""MiniMax-M3 in a ``config.json``: in most layers, an indexer selects blocks of the context."""

from specmodel.core.models.hf.family import BLOCKS, FULL
from specmodel.core.models.hf.reader import Fields, Reader, grouped_heads

_OUTSIDE = (
    *("index_n_heads", "index_head_dim", "index_block_size", "index_topk_blocks"),
    "index_local_blocks",
)
"""Keys that transformers 5.23 writes outside of the object in which checkpoints have them."""

_SPARSE = "sparse_attention_config"


def block_sparse_kinds(reader: Reader, num_layers: int) -> list[str]:
    """Return the kind of each layer by a list of ones for those with an indexer."""
    own = _sparse(reader)
    sparse = own.flagged_layers("sparse_attention_freq", num_layers)
    if sparse is None:
        return []
    key = "sparse_disable_index_value"
    disabled = own.by_layer(key, num_layers, (1, 0))
    if not all(disabled[i] for i in sparse):
        expected = "1 in all layers with an indexer, as specmodel knows no other value"
        raise own.fault(key, expected)
    return [BLOCKS if i in sparse else FULL for i in range(num_layers)]


def block_sparse_mixers(reader: Reader, kinds: list[str], window: int | None) -> list[Fields]:
    """Return the grouped attention of each layer: to all entries, or to blocks of them.

    Blocks that are always selected, the first or the last of a context, are among those that are
    chosen and not beside them: engines give them the best scores (vLLM 0.33,
    ``minimax_m3/common/ops/index_topk.py``; SGLang 0.5.23,
    ``minimax_sparse/decode/flash_with_topk_idx.py``), as transformers 5.23 does.
    """
    family = reader.family
    own = _sparse(reader)
    own.only("use_sparse_attention", (True,), "true, as engines pass over it")
    expected, width = f"the same as {family.expert_size}, which engines take", family.expert_size
    reader.only("moe_intermediate_size", (reader.whole(str(width)),), expected)
    full = grouped_heads(reader, "", {"head_dim": family.head_dim})
    index = own.sizes("indexer of blocks")
    if index["index_num_heads"] % full["num_kv_heads"]:
        expected = f"a multiple of num_key_value_heads = {full['num_kv_heads']}"
        raise own.fault("sparse_num_index_heads", expected)
    own.refuse_other_keys(family.harmless, [*family.harmless_groups, "indexers of blocks"])
    sparse = full | index
    return [sparse if kind == BLOCKS else full for kind in kinds]


def _sparse(reader: Reader) -> Reader:
    """Return a reader of the object about block-sparse attention and of the same keys outside."""
    nested = reader.nested(_SPARSE)
    flat = {key: reader.get(key) for key in ("model_type", *_OUTSIDE)}
    own = {key: value for key, value in flat.items() if value is not None}
    return Reader(own | dict(nested.config if nested else {}), f"{reader.argument} {_SPARSE}")
