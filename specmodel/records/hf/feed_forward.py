"""Feed-forward block of each layer of a ``config.json``: dense, or routed and shared experts."""

from collections.abc import Callable
from typing import Any

from specmodel.records.hf.families import Family
from specmodel.records.hf.reader import Reader


def feed_forwards(reader: Reader, family: Family, num_layers: int) -> list[dict[str, Any]]:
    """Return the feed-forward block of each layer."""
    is_dense = [True] * num_layers
    routed: dict[str, Any] = {}
    if family.experts and family.expert_size:
        is_dense = [False] * num_layers
        if family.dense_layers:
            is_dense = _DENSE_LAYERS[family.dense_layers](reader, num_layers)
        routed = _experts(reader, family, family.experts, family.expert_size)
    dense: dict[str, Any] = {"kind": "dense", "is_gated": family.is_gated}
    if any(is_dense):
        if family.dense_size is None:
            raise reader.fault("model_type", "a family whose layers all route")
        dense["ffn_size"] = reader.whole(family.dense_size)
    return [dense if is_layer_dense else routed for is_layer_dense in is_dense]


def _experts(reader: Reader, family: Family, count_key: str, size_key: str) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "kind": "experts",
        "num_experts": reader.whole(count_key),
        "experts_per_token": reader.whole("num_experts_per_tok"),
        "expert_size": reader.whole(size_key),
        "is_gated": family.is_gated,
    }
    if fields["experts_per_token"] > fields["num_experts"]:
        raise reader.fault("num_experts_per_tok", f"at most {count_key}")
    num_shared = reader.count(family.num_shared) if family.num_shared else 1
    if family.shared_size and num_shared:
        fields["num_shared_experts"] = num_shared
        fields["shared_expert_size"] = reader.whole(family.shared_size)
    return fields


def _dense_by_step(reader: Reader, num_layers: int) -> list[bool]:
    step = reader.whole("decoder_sparse_step", 1)
    listed = reader.layer_numbers("mlp_only_layers") or ()
    return [i in listed or (i + 1) % step > 0 for i in range(num_layers)]


def _dense_leading(reader: Reader, num_layers: int) -> list[bool]:
    num_leading = reader.whole("first_k_dense_replace", minimum=0)
    if not isinstance(reader.get("moe_layer_freq"), list):
        step = reader.whole("moe_layer_freq", 1)
        return [i < num_leading or i % step > 0 for i in range(num_layers)]
    pattern = reader.by_layer("moe_layer_freq", num_layers, (0, 1))
    if any(pattern[:num_leading]):
        expected = f"0 for the layers of first_k_dense_replace = {num_leading}"
        raise reader.fault("moe_layer_freq", expected)
    return [is_sparse == 0 for is_sparse in pattern]


def _dense_interleaved(reader: Reader, num_layers: int) -> list[bool]:
    step = reader.whole("interleave_moe_layer_step", 1)
    listed = reader.layer_numbers("moe_layers")
    sparse = range(step - 1, num_layers, step) if listed is None else listed
    return [i not in sparse for i in range(num_layers)]


_DENSE_LAYERS: dict[str, Callable[[Reader, int], list[bool]]] = {
    "by step": _dense_by_step,
    "leading": _dense_leading,
    "interleaved": _dense_interleaved,
}
"""Rules for which layers are dense."""
