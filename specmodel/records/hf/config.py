"""Reader of the ``config.json`` that comes with a model: an explicit table of families and keys.

Nothing is guessed: a family that is not in the table, or a key that hints at experts, another kind
of attention or quantisation and is not listed for its family, is refused by name. Layers for
multi-token prediction are drafters and no part of the shape.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from specmodel.base.errors import InputError, nearest
from specmodel.records.hf.families import (
    ALIASES,
    FAMILIES,
    HARMLESS_KEYS,
    OTHER_KINDS,
    SUSPECT_KEY,
    Family,
)
from specmodel.records.hf.quantization import quantised_dtypes

_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}

_MAX_SIZE = 10**7


def architecture_fields(config: Mapping[str, Any], argument: str) -> dict[str, Any]:
    """Return the fields of an `Architecture` that a configuration describes.

    Parameters
    ----------
    config
        Content of a ``config.json``.
    argument
        Name that an error should carry.

    Returns
    -------
    dict
        Fields by name, without `schema_version`, `name` and `source`.

    Raises
    ------
    InputError
        If the family is unknown, a key is missing or of the wrong kind, keys contradict each
        other, or a key that could change the shape is not understood.

    Examples
    --------
    >>> architecture_fields({"model_type": "gpt2"}, "config")
    Traceback (most recent call last):
    ...
    specmodel.base.errors.InputError: config model_type: got 'gpt2'; expected one of: deepseek, ...
    """
    reader = _Reader(_text_config(config, argument), argument)
    family = reader.family()
    reader.refuse_unknown_keys(family)
    num_heads, num_layers = reader.whole("num_attention_heads"), reader.whole("num_hidden_layers")
    fields: dict[str, Any] = {
        "hidden_size": reader.whole("hidden_size"),
        "vocabulary_size": reader.whole("vocab_size"),
        "has_tied_embeddings": reader.flag("tie_word_embeddings", family.ties_embeddings),
    }
    attention = _attention(reader, family, num_heads, num_layers)
    if family.positions_offset is not None:
        fields["max_positions"] = reader.whole("max_position_embeddings") + family.positions_offset
        embedding_size = reader.whole("word_embed_proj_dim", fields["hidden_size"])
        is_narrow = embedding_size != fields["hidden_size"]
        fields["embedding_size"] = embedding_size if is_narrow else None
    blocks = _feed_forwards(reader, family, num_layers)
    mixers = [
        attention if window is None else attention | {"window": window}
        for window in _windows(reader, family, num_layers)
    ]
    fields["layers"] = _grouped(mixers, blocks)
    dtype = reader.dtype()
    if reader.config.get("quantization_config"):
        return fields | quantised_dtypes(reader.config, argument, dtype, fields["layers"])
    return fields | dict.fromkeys(("weight_dtype", "activation_dtype", "kv_dtype"), dtype)


def _text_config(config: Mapping[str, Any], argument: str) -> Mapping[str, Any]:
    """Return the configuration of the language model, which Llama 4 nests."""
    if config.get("model_type") == "llama4_text":
        return {**config, "model_type": "llama4"}
    if config.get("model_type") != "llama4":
        return config
    text = config.get("text_config")
    if not isinstance(text, dict) or text.get("model_type", "llama4_text") != "llama4_text":
        raise InputError(f"{argument} text_config", text, "an object of model_type llama4_text")
    outer = {key: config[key] for key in config.keys() - {"text_config", "vision_config"}}
    for key in ("torch_dtype", "dtype", "tie_word_embeddings", "quantization_config"):
        inner = text.get(key)
        if None not in (inner, outer.get(key)) and inner != outer[key]:
            expected = f"the same as text_config.{key} = {inner!r}"
            raise InputError(f"{argument} {key}", outer[key], expected)
    given = {key: value for key, value in text.items() if value is not None or key not in outer}
    return outer | given | {"model_type": "llama4"}


def _attention(
    reader: "_Reader", family: Family, num_heads: int, num_layers: int
) -> dict[str, Any]:
    types = reader.config.get("attn_type_list")
    if types is not None and types != [1] * num_layers:
        expected = f"{num_layers} entries, each 1: layers of another type have linear attention"
        raise reader.fault("attn_type_list", expected)
    if family.has_latent:
        has_query_latent = reader.config.get("q_lora_rank", 0) is not None
        return {
            "kind": "latent_attention",
            "num_heads": num_heads,
            "kv_lora_rank": reader.whole("kv_lora_rank"),
            "q_lora_rank": reader.whole("q_lora_rank", minimum=0) if has_query_latent else 0,
            "qk_nope_head_dim": reader.whole("qk_nope_head_dim"),
            "qk_rope_head_dim": reader.whole("qk_rope_head_dim"),
            "v_head_dim": reader.whole("v_head_dim"),
        }
    hidden_size = reader.whole("hidden_size")
    head_dim = family.head_dim or (hidden_size // num_heads if hidden_size % num_heads == 0 else 0)
    return {
        "kind": "attention",
        "num_heads": num_heads,
        "num_kv_heads": reader.part_of(
            "num_key_value_heads", num_heads, family.kv_heads or num_heads
        ),
        "head_dim": reader.whole("head_dim", head_dim or None),
    }


def _grouped(mixers: list[dict[str, Any]], blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return layers that are alike together, in the order in which they first appear."""
    groups: list[dict[str, Any]] = []
    for mixer, block in zip(mixers, blocks, strict=True):
        parts = {"mixer": mixer, "feed_forward": block}
        same = next((group for group in groups if group | parts == group), None)
        if same:
            same["count"] += 1
        else:
            groups.append({"count": 1} | parts)
    return groups


def _feed_forwards(reader: "_Reader", family: Family, num_layers: int) -> list[dict[str, Any]]:
    """Return the feed-forward block of each layer."""
    is_dense = [True] * num_layers
    routed: dict[str, Any] = {}
    if family.experts and family.expert_size:
        find_dense = _DENSE_LAYERS[family.dense_layers][0] if family.dense_layers else None
        is_dense = find_dense(reader, num_layers) if find_dense else [False] * num_layers
        routed = _experts(reader, family, family.experts, family.expert_size)
    dense: dict[str, Any] = {"kind": "dense", "is_gated": family.is_gated}
    if any(is_dense):
        if family.dense_size is None:
            raise reader.fault("model_type", "a family whose layers all route")
        dense["ffn_size"] = reader.whole(family.dense_size)
    return [dense if is_layer_dense else routed for is_layer_dense in is_dense]


def _experts(reader: "_Reader", family: Family, count_key: str, size_key: str) -> dict[str, Any]:
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


def _dense_by_step(reader: "_Reader", num_layers: int) -> list[bool]:
    step = reader.whole("decoder_sparse_step", 1)
    listed = reader.layer_numbers("mlp_only_layers") or ()
    return [i in listed or (i + 1) % step > 0 for i in range(num_layers)]


def _dense_leading(reader: "_Reader", num_layers: int) -> list[bool]:
    num_leading = reader.whole("first_k_dense_replace", minimum=0)
    pattern = reader.config.get("moe_layer_freq")
    if not isinstance(pattern, list):
        step = reader.whole("moe_layer_freq", 1)
        return [i < num_leading or i % step > 0 for i in range(num_layers)]
    pattern = reader.switches("moe_layer_freq", num_layers)
    if any(pattern[:num_leading]):
        expected = f"0 for the layers of first_k_dense_replace = {num_leading}"
        raise reader.fault("moe_layer_freq", expected)
    return [is_sparse == 0 for is_sparse in pattern]


def _dense_interleaved(reader: "_Reader", num_layers: int) -> list[bool]:
    step = reader.whole("interleave_moe_layer_step", 1)
    listed = reader.layer_numbers("moe_layers")
    sparse = range(step - 1, num_layers, step) if listed is None else listed
    return [i not in sparse for i in range(num_layers)]


def _types_alternating(reader: "_Reader", num_layers: int) -> list[str]:
    return ["full_attention" if i % 2 else "sliding_attention" for i in range(num_layers)]


def _types_by_rotary_embedding(reader: "_Reader", num_layers: int) -> list[str]:
    interval = reader.whole("no_rope_layer_interval", 4)
    rotary = [int((i + 1) % interval > 0) for i in range(num_layers)]
    if reader.config.get("no_rope_layers"):
        rotary = reader.switches("no_rope_layers", num_layers)
    return ["chunked_attention" if has_rope else "full_attention" for has_rope in rotary]


_DenseLayers = Callable[["_Reader", int], list[bool]]
_DENSE_LAYERS: dict[str, tuple[_DenseLayers, set[str]]] = {
    "by step": (_dense_by_step, {"decoder_sparse_step", "mlp_only_layers"}),
    "leading": (_dense_leading, {"first_k_dense_replace", "moe_layer_freq"}),
    "interleaved": (_dense_interleaved, {"interleave_moe_layer_step", "moe_layers"}),
}
"""Rules for which layers are dense, and the keys that they read."""

_LAYER_TYPES: dict[str, tuple[Callable[["_Reader", int], list[str]], set[str]]] = {
    "alternating": (_types_alternating, set()),
    "by rotary embedding": (
        _types_by_rotary_embedding,
        {"no_rope_layers", "no_rope_layer_interval"},
    ),
}
"""Rules for which layers have a window where `layer_types` is missing, and the keys they read."""


def _windows(reader: "_Reader", family: Family, num_layers: int) -> list[int | None]:
    """Return the window of each layer, None for the whole context.

    Windows are off by a switch (Qwen), listed by layer, on the upper layers, or on all.
    """
    key = family.window_key
    whole: list[int | None] = [None] * num_layers
    types = _layer_types(reader, family, num_layers)
    if family.window_switch and not reader.flag(family.window_switch, False):
        return whole
    window = reader.config.get(key, family.sliding_window)
    is_windowed = _windowed_layers(reader, family, types, num_layers)
    if types is not None and any(is_windowed) and window is None:
        raise reader.fault(key, f"the window of the {family.window_type} layers")
    if not any(is_windowed) or window is None:
        return whole
    if not family.has_windows:
        raise reader.fault(key, "no window, as this family is not known to have one")
    window = reader.whole(key, family.sliding_window)
    return [window if has_window else None for has_window in is_windowed]


def _windowed_layers(
    reader: "_Reader", family: Family, types: list[str] | None, num_layers: int
) -> list[bool]:
    """Return which layers have a window, if there is one."""
    if types is not None:
        return [kind == family.window_type for kind in types]
    if not family.window_switch:
        return [True] * num_layers
    first = reader.whole("max_window_layers", 28, minimum=0)
    return [i >= first for i in range(num_layers)]


def _layer_types(reader: "_Reader", family: Family, num_layers: int) -> list[str] | None:
    """Return the kind of attention of each layer, as listed or by the family's rule."""
    listed = reader.layer_types(num_layers, family.window_type)
    if not family.layer_types or (listed is not None and not reader.config.get("no_rope_layers")):
        return listed
    by_rule = _LAYER_TYPES[family.layer_types][0](reader, num_layers)
    if listed not in (None, by_rule):
        raise reader.fault("layer_types", "the layers that no_rope_layers gives a 1 in chunks")
    return by_rule


@dataclass(frozen=True)
class _Reader:
    config: Mapping[str, Any]
    argument: str

    def fault(self, key: str, expected: str) -> InputError:
        return InputError(f"{self.argument} {key}", self.config.get(key), expected)

    def family(self) -> Family:
        model_type = self.config.get("model_type")
        for kind, families in OTHER_KINDS.items():
            if model_type in families:
                expected = f"a model with attention in every layer: this has {kind}, not known here"
                raise self.fault("model_type", expected)
        if not isinstance(model_type, str) or model_type not in FAMILIES:
            expected = f"one of: {nearest('', FAMILIES)}, or a TOML architecture"
            raise self.fault("model_type", expected)
        return FAMILIES[model_type]

    def refuse_unknown_keys(self, family: Family) -> None:
        known: set[str | None] = {*HARMLESS_KEYS, *family.harmless, family.window_key}
        known |= {"quantization_config"}
        if family.experts:
            known |= {family.experts, family.expert_size, family.shared_size, family.num_shared}
            known |= self.aliases(family.experts) | self.aliases("num_experts_per_tok")
        if family.dense_layers:
            known |= _DENSE_LAYERS[family.dense_layers][1]
        if family.layer_types:
            known |= _LAYER_TYPES[family.layer_types][1]
        if family.has_latent:
            known |= {"kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "v_head_dim"}
        for key, value in self.config.items():
            if SUSPECT_KEY.search(key) and value and key not in known:
                model_type = self.config["model_type"]
                expected = f"no such key, as its meaning in a {model_type} model is not known here"
                raise self.fault(key, expected)

    def aliases(self, key: str) -> set[str]:
        """Return a key and its other names, which must agree with it."""
        value = self.config.get(key)
        for alias in ALIASES[key]:
            other = self.config.get(alias)
            if None not in (value, other) and other != value:
                raise self.fault(alias, f"the same as {key} = {value!r}, another name for it")
        return {key, *ALIASES[key]}

    def whole(self, key: str, default: int | None = None, *, minimum: int = 1) -> int:
        value = self.config.get(key)
        if value is None and default is not None:
            return default
        if type(value) is not int or not minimum <= value <= _MAX_SIZE:
            raise self.fault(key, f"a whole number from {minimum} to {_MAX_SIZE}")
        return value

    def count(self, key: str) -> int:
        """Return a number of parts, where null means none but a missing key means nothing."""
        is_null = key in self.config and self.config[key] is None
        return 0 if is_null else self.whole(key, minimum=0)

    def part_of(self, key: str, whole: int, default: int) -> int:
        value = self.whole(key, default)
        if whole % value:
            raise self.fault(key, f"a divisor of num_attention_heads = {whole}")
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self.config.get(key, default)
        if not isinstance(value, bool):
            raise self.fault(key, "true or false")
        return value

    def layer_numbers(self, key: str) -> set[int] | None:
        listed = self.config.get(key)
        if listed is None:
            return None
        if not isinstance(listed, list) or not all(type(i) is int for i in listed):
            raise self.fault(key, "a list of layer numbers")
        return set(listed)

    def switches(self, key: str, num_layers: int) -> list[int]:
        """Return a list of one 0 or 1 for each layer."""
        listed = self.config.get(key)
        if (
            not isinstance(listed, list)
            or len(listed) != num_layers
            or any(type(i) is not int or i not in (0, 1) for i in listed)
        ):
            raise self.fault(key, f"{num_layers} entries, each 0 or 1")
        return listed

    def layer_types(self, num_layers: int, window_type: str) -> list[str] | None:
        types = self.config.get("layer_types")
        known = ("full_attention", window_type)
        if types is None:
            return None
        if (
            not isinstance(types, list)
            or len(types) != num_layers
            or any(kind not in known for kind in types)
        ):
            expected = f"{num_layers} entries, each {' or '.join(known)}"
            if isinstance(types, list) and "linear_attention" in types:
                expected += ": linear attention is not known here"
            raise self.fault("layer_types", expected)
        return types

    def dtype(self) -> str:
        old, new = self.config.get("torch_dtype"), self.config.get("dtype")
        if None not in (old, new) and old != new:
            raise self.fault("torch_dtype", f"the same as dtype = {new!r}")
        key = "dtype" if old is None else "torch_dtype"
        value = self.config.get(key)
        if value is None:
            return "bf16"
        if not isinstance(value, str) or value not in _DTYPES:
            raise self.fault(key, f"one of: {', '.join(_DTYPES)}")
        return _DTYPES[value]
