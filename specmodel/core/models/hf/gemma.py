"""Read Gemma 4, and its assistants: draft heads that attend to the caches of their target.

Gemma 4 has two sizes of attention heads, keys that serve as values, and caches that layers share.
MoE models have a dense block in addition to the experts.
"""

from collections.abc import Mapping
from typing import Any

from specmodel.core.models.hf.family import FULL, SLIDING
from specmodel.core.models.hf.feed_forward import chosen_experts
from specmodel.core.models.hf.reader import Fields, Layers, Reader, grouped_heads

ASSISTANTS = ("gemma4_assistant", "gemma4_unified_assistant")
_TEXTS = ("gemma4_text", "gemma4_unified_text")
"""`model_type` of assistants, which do not differ, and of the models nested in their files."""

_HEAD_DIM, _FULL_HEAD_DIM, _KV_HEADS = 256, 512, 4
_LAYER_INPUT_SIZE, _LAYER_VOCABULARY_SIZE = 256, 262_144
_CENTROIDS, _BEST_CENTROIDS = 2048, 32
"""Defaults of transformers 5.23 for missing keys."""


def gemma_mixers(reader: Reader, kinds: list[str], window: int | None) -> list[Fields]:
    """Return the attention of each layer. Layers with full attention have other head sizes.

    If `attention_k_eq_v` is true, layers with full attention have no matrix of values. The last
    `num_kv_shared_layers` layers read the cache of the last earlier layer of their kind.
    """
    kinds = [*kinds[:-1], FULL]
    own = _mixers_of_kinds(reader, kinds, window)
    count = _given_readers(reader)
    first_reader = len(kinds) - count
    are_kept = not count or set(kinds[first_reader:]) <= set(kinds[:first_reader])
    expected = "fewer: one layer of each kind must keep the cache of later ones"
    reader.need(are_kept, "num_kv_shared_layers", expected)
    return own[:first_reader] + [_reader_of(mixer) for mixer in own[first_reader:]]


def gemma_blocks(reader: Reader, num_layers: int) -> Layers:
    """Return the feed-forward block of each layer: dense, or experts and a dense block."""
    ffn_size, num_readers = reader.whole("intermediate_size"), _given_readers(reader)
    is_double = reader.flag("use_double_wide_mlp", False) and num_readers > 0
    if not reader.flag("enable_moe_block", False):
        widths = [ffn_size] * num_layers
        if is_double:
            widths[-num_readers:] = [2 * ffn_size] * num_readers
        return [{"kind": "dense", "ffn_size": width} for width in widths]
    expected = "false, as a model with experts has dense blocks of one width"
    reader.need(not is_double, "use_double_wide_mlp", expected)
    fields = chosen_experts(reader, "num_experts", "top_k_experts") | {
        "expert_size": reader.whole("moe_intermediate_size"),
        "num_shared_experts": 1,
        "shared_expert_size": ffn_size,
        "is_shared_apart": True,
    }
    return [fields] * num_layers


def gemma_fields(reader: Reader, layers: list[Fields]) -> Fields:
    """Return the embeddings of each layer, {} if there are none; set each layer's count of norms.

    A layer has a norm before and after each part. A block of experts and a dense block together
    have three more, and the embedding of the layer has one more.
    """
    usual = 0 if reader.family.name == "gemma4_unified" else _LAYER_INPUT_SIZE
    size = reader.whole("hidden_size_per_layer_input", usual, minimum=0)
    vocabulary_size = reader.whole("vocab_size_per_layer_input", _LAYER_VOCABULARY_SIZE)
    for layer in layers:
        has_experts = layer["feed_forward"]["kind"] == "experts"
        layer["num_norms"] = 4 + 3 * has_experts + (size > 0)
    if not size:
        return {}
    return {"layer_inputs": {"vocabulary_size": vocabulary_size, "size": size}}


def assistant_fields(
    config: Mapping[str, Any], argument: str, *, hidden_size: int, vocabulary_size: int
) -> Fields:
    """Return the fields of an `Architecture` that the configuration of an assistant describes.

    `input_projection_size` counts both projections of a pass: from the target's embedding and
    hidden state to the width of the head, and back. With `use_ordered_embeddings`, the LM head
    scores clusters of the vocabulary.
    """
    outer = Reader({"tie_word_embeddings": True, **config}, argument)
    key, text = "backbone_hidden_size", config.get("text_config")
    outer.need(outer.whole(key) == hidden_size, key, f"the width of the target, {hidden_size}")
    is_text = isinstance(text, dict) and text.get("model_type") in _TEXTS
    outer.need(is_text, "text_config", f"an object of model_type {_TEXTS[0]}")
    reader = Reader(text, f"{argument} text_config")
    layers = _layers_of_assistant(reader)
    is_same = reader.whole("vocab_size") == vocabulary_size
    reader.need(is_same, "vocab_size", f"that of the target, {vocabulary_size}")
    reader.pass_over("vocab_size_per_layer_input", "hidden_size", "tie_word_embeddings")
    of_outer, of_text = outer.dtype(), reader.dtype()
    dtype = of_text if reader.config.get("dtype") else of_outer
    outer.pass_over("text_config", "tie_word_embeddings")
    clusters = _clusters(outer, vocabulary_size)
    outer.refuse_other_keys()
    reader.refuse_other_keys()
    fields = {
        "hidden_size": reader.whole("hidden_size"),
        "vocabulary_size": vocabulary_size,
        "has_tied_embeddings": outer.flag("tie_word_embeddings", True),
        "input_projection_size": 3 * hidden_size,
        "layers": layers,
        "reads_target_cache": True,
        "head_clusters": clusters,
    }
    return fields | dict.fromkeys(("weight_dtype", "activation_dtype", "kv_dtype"), dtype)


def _clusters(reader: Reader, vocabulary_size: int) -> Fields | None:
    """Return the fields of `HeadClusters`, None if the LM head scores the whole vocabulary."""
    count = reader.whole("num_centroids", _CENTROIDS)
    best = reader.whole("centroid_intermediate_top_k", _BEST_CENTROIDS, most=count)
    if not reader.flag("use_ordered_embeddings", False):
        return None
    reader.check_divides("num_centroids", count, "vocab_size", vocabulary_size)
    return {"num_clusters": count, "clusters_per_token": best}


def _layers_of_assistant(reader: Reader) -> list[Fields]:
    """Return the layers of an assistant, which has no caches."""
    num_layers = reader.whole("num_hidden_layers")
    reader.only("num_kv_shared_layers", (0, num_layers), f"{num_layers} in an assistant")
    has_types = reader.get("layer_types") is not None
    reader.need(has_types, "layer_types", f"{num_layers} entries, each {FULL} or {SLIDING}")
    kinds = reader.by_layer("layer_types", num_layers, (FULL, SLIDING))
    window = reader.whole("sliding_window") if SLIDING in kinds else None
    block = {"kind": "dense", "ffn_size": reader.whole("intermediate_size")}
    return [
        {"count": 1, "mixer": _reader_of(mixer), "feed_forward": block, "num_norms": 4}
        for mixer in _mixers_of_kinds(reader, kinds, window)
    ]


def _mixers_of_kinds(reader: Reader, kinds: list[str], window: int | None) -> list[Fields]:
    """Return the attention of each layer, as if each layer had its own cache."""
    heads = grouped_heads(reader, "", {"num_key_value_heads": _KV_HEADS, "head_dim": _HEAD_DIM})
    has_values = not reader.flag("attention_k_eq_v", False)
    full = heads | _full_sizes(reader, heads["num_kv_heads"], kinds, has_values=has_values)
    windowed = heads | {"window": window}
    if not has_values:
        full["has_value_projection"] = False
    return [full if kind == FULL else windowed for kind in kinds]


def _full_sizes(
    reader: Reader, num_kv_heads: int, kinds: list[str], *, has_values: bool
) -> dict[str, int]:
    """Return the head sizes of full attention, from global keys or `per_layer_config` [-]."""
    usual = {"head_dim": _FULL_HEAD_DIM, "num_key_value_heads": num_kv_heads}
    layers = [i for i, kind in enumerate(kinds) if kind == FULL]
    overridden = reader.overrides(layers, usual, "full")
    sizes = []
    for name, size in (usual | overridden).items():
        key = "global_head_dim" if name == "head_dim" else "num_global_key_value_heads"
        own = reader.whole(key, size)
        agrees = name not in overridden or own == size
        reader.need(agrees, "per_layer_config", f"the {name} that {key} = {own} gives")
        is_shared = has_values and name != "head_dim" and name not in overridden
        sizes.append(num_kv_heads if is_shared else own)
    return {"num_kv_heads": sizes[1], "head_dim": sizes[0]}


def _given_readers(reader: Reader) -> int:
    """Return the number of last layers that read the caches of earlier layers of their kind [-]."""
    return reader.whole("num_kv_shared_layers", 0, minimum=0)


def _reader_of(mixer: Fields) -> Fields:
    """Return attention to the cache of another layer, without matrices of keys and values."""
    kept = {key: value for key, value in mixer.items() if key != "has_value_projection"}
    return kept | {"has_own_cache": False}
