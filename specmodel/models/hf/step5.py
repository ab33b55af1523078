"""Step-5 in a ``config.json``: windows with heads of their own, and blocks that an indexer selects.

As vLLM 0.33 (``models/step5/nvidia``) builds it; transformers 5.23 has no such class.
"""

from typing import Any

from specmodel.models.hf.family import FULL, SLIDING, Family
from specmodel.models.hf.mimo import grouped_heads
from specmodel.models.hf.mixers import attention
from specmodel.models.hf.reader import Reader

_OTHER = "attention_other_setting"
_HARMLESS = (
    *("apply_to_layer_types", "attention_impl", "compression_method", "index_tp_size"),
    *("num_provider_groups", "sparse_indexer_csa_z_norm_type", "sparse_indexer_k_norm_type"),
    *("sparse_indexer_q_norm_type", "sparse_indexer_rope_dim", "sparse_indexer_softmax_variant"),
    *("sparse_indexer_ssmax_s_granularity", "sparse_indexer_use_rope"),
)


def step5_mixers(
    reader: Reader, family: Family, kinds: list[str], window: int | None
) -> list[dict[str, Any]]:
    """Return the attention of each layer; those without a window attend to selected blocks."""
    made = {FULL: attention(reader, family), SLIDING: attention(reader, family)}
    other = reader.nested(_OTHER)
    if other:
        kind = other.by_name("attention_type", (SLIDING, FULL))
        made[kind] = _other_heads(other)
    heads, kv = made[SLIDING]["num_heads"], made[SLIDING]["num_kv_heads"]
    heads = reader.whole("swa_num_attention_heads", heads)
    reader.check_divides("num_key_value_heads", kv, "swa_num_attention_heads", heads)
    made[SLIDING] |= {"num_heads": heads, "window": window}
    made[FULL] |= _selected_blocks(reader.nested("sparse_config"))
    return [made[kind] for kind in kinds]


def _other_heads(other: Reader) -> dict[str, Any]:
    keys = ("num_attention_heads", "num_key_value_heads", "head_dim")
    sizes = {key: other.whole(key) for key in keys}
    other.refuse_unknown(
        {*keys, "num_attention_groups", "attention_type"},
        "no such key, as its meaning is not known",
    )
    return grouped_heads(other, "", sizes | {"v_head_dim": sizes["head_dim"]})


def _selected_blocks(own: Reader | None) -> dict[str, Any]:
    """Return the fields of selected blocks, whose index keys are means of 8 bits; {} for none."""
    if own is None or not own.flag("enabled", True):
        return {}
    found = {
        "kind": "block_sparse_attention",
        "index_num_heads": own.whole("sparse_indexer_num_heads", 16),
        "index_head_dim": own.whole("proxy_dim", 256),
        "block_size": own.whole("region_block_size", 8),
        "topk_blocks": own.whole("topk", 512),
        "is_pooled": True,
        "is_weighted": True,
        "index_dtype": "fp8",
    }
    if own.whole("sparse_indexer_num_k_heads", 1) != 1:
        raise own.fault("sparse_indexer_num_k_heads", "1, as all index heads share one key")
    own.refuse_other_keys(_HARMLESS)
    return found
