"""Reader of the ``config.json`` that comes with a model: an explicit table of families and keys.

Nothing is guessed: a family that is not in the table, or a key that hints at experts, another kind
of attention or quantisation and is not listed for its family, is refused by name. Layers for
multi-token prediction are drafters and no part of the shape.
"""

from collections.abc import Callable, Mapping, Sequence
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
from specmodel.records.hf.mtp import mtp_fields
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
    if is_draft_head(config):
        expected = "a model of its own, as this is a draft head: the drafter of its target"
        raise reader.fault("architectures", expected)
    family = reader.family()
    num_heads, num_layers = reader.whole("num_attention_heads"), reader.whole("num_hidden_layers")
    fields: dict[str, Any] = mtp_fields(reader.config, argument) | {
        "hidden_size": reader.whole("hidden_size"),
        "vocabulary_size": reader.whole("vocab_size"),
        "has_tied_embeddings": reader.flag("tie_word_embeddings", family.ties_embeddings),
    }
    if family.attention_types:
        hint = ": layers of another type have linear attention"
        reader.by_layer(family.attention_types, num_layers, (1,), hint)
    attention = _attention(reader, family, num_heads)
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
    reader.refuse_other_keys(family)
    if reader.config.get("quantization_config"):
        return fields | quantised_dtypes(reader.config, argument, dtype, fields["layers"])
    return fields | dict.fromkeys(("weight_dtype", "activation_dtype", "kv_dtype"), dtype)


def is_draft_head(config: Mapping[str, Any]) -> bool:
    """Tell whether a configuration is that of a head, which looks like a model of one layer."""
    names = str(config.get("architectures")).lower()
    kinds = ("draft_vocab_size", "speculators_model_type", "eagle_config")
    return "eagle" in names or "medusa" in names or any(config.get(key) for key in kinds)


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


def _attention(reader: "_Reader", family: Family, num_heads: int) -> dict[str, Any]:
    if family.has_latent:
        has_query_latent = reader.get("q_lora_rank", 0) is not None
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
    num_kv_heads = reader.whole("num_key_value_heads", family.kv_heads or num_heads)
    if num_heads % num_kv_heads:
        raise reader.fault("num_key_value_heads", f"a divisor of num_attention_heads = {num_heads}")
    return {
        "kind": "attention",
        "num_heads": num_heads,
        "num_kv_heads": num_kv_heads,
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
    if not isinstance(reader.get("moe_layer_freq"), list):
        step = reader.whole("moe_layer_freq", 1)
        return [i < num_leading or i % step > 0 for i in range(num_layers)]
    pattern = reader.by_layer("moe_layer_freq", num_layers, (0, 1))
    if any(pattern[:num_leading]):
        expected = f"0 for the layers of first_k_dense_replace = {num_leading}"
        raise reader.fault("moe_layer_freq", expected)
    return [is_sparse == 0 for is_sparse in pattern]


def _dense_interleaved(reader: "_Reader", num_layers: int) -> list[bool]:
    step = reader.whole("interleave_moe_layer_step", 1)
    listed = reader.layer_numbers("moe_layers")
    sparse = range(step - 1, num_layers, step) if listed is None else listed
    return [i not in sparse for i in range(num_layers)]


_DENSE_LAYERS: dict[str, Callable[["_Reader", int], list[bool]]] = {
    "by step": _dense_by_step,
    "leading": _dense_leading,
    "interleaved": _dense_interleaved,
}
"""Rules for which layers are dense."""


def _windows(reader: "_Reader", family: Family, num_layers: int) -> list[int | None]:
    """Return the window of each layer, None for the whole context.

    Windows are off by a switch (Qwen), listed by layer, on the upper layers, or on all.
    """
    key, whole = family.window_key, list[int | None]([None] * num_layers)
    window = reader.get(key, family.sliding_window)
    types = _layer_types(reader, family, num_layers)
    if family.window_switch and not reader.flag(family.window_switch, False):
        return whole
    is_windowed = [True] * num_layers
    if types:
        is_windowed = [kind == family.window_type for kind in types]
    elif family.window_switch:
        first = reader.whole("max_window_layers", 28, minimum=0)
        is_windowed = [i >= first for i in range(num_layers)]
    if types and any(is_windowed) and window is None:
        raise reader.fault(key, f"the window of the {family.window_type} layers")
    if not any(is_windowed) or window is None:
        return whole
    if not family.has_windows:
        raise reader.fault(key, "no window, as this family is not known to have one")
    window = reader.whole(key, family.sliding_window)
    return [window if has_window else None for has_window in is_windowed]


def _layer_types(reader: "_Reader", family: Family, num_layers: int) -> list[str]:
    """Return the kind of attention of each layer, as listed or by the family's rule, if any."""
    kinds = ("full_attention", family.window_type)
    listed: list[str] = []
    if reader.get("layer_types") is not None:
        hint = ": linear attention is not known here"
        listed = reader.by_layer("layer_types", num_layers, kinds, hint)
    if family.layer_types == "alternating":
        return listed or [kinds[1 - i % 2] for i in range(num_layers)]
    if family.layer_types == "by rotary embedding":
        return _types_by_rotary_embedding(reader, num_layers, listed)
    return listed


def _types_by_rotary_embedding(reader: "_Reader", num_layers: int, listed: list[str]) -> list[str]:
    interval = reader.whole("no_rope_layer_interval", 4)
    rotary = [int((i + 1) % interval > 0) for i in range(num_layers)]
    is_given = bool(reader.get("no_rope_layers"))
    if is_given:
        rotary = reader.by_layer("no_rope_layers", num_layers, (0, 1))
    types = ["chunked_attention" if has_rope else "full_attention" for has_rope in rotary]
    if is_given and listed not in ([], types):
        raise reader.fault("layer_types", "the layers that no_rope_layers gives a 1 in chunks")
    return listed or types


class _Reader:
    """Values of a configuration by their keys, which are known once they were read."""

    def __init__(self, config: Mapping[str, Any], argument: str) -> None:
        self.config, self.argument = config, argument
        self._known = {"quantization_config", *HARMLESS_KEYS}

    def fault(self, key: str, expected: str) -> InputError:
        return InputError(f"{self.argument} {key}", self.config.get(key), expected)

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value; other names of its key must agree with it."""
        value = self.config.get(key, default)
        for alias in ALIASES.get(key, ()):
            other = self.config.get(alias)
            if None not in (value, other) and other != value:
                raise self.fault(alias, f"the same as {key} = {value!r}, another name for it")
        self._known |= {key, *ALIASES.get(key, ())}
        return value

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

    def refuse_other_keys(self, family: Family) -> None:
        """Refuse a key that was not read though it looks as if it changed the shape."""
        for key, value in self.config.items():
            is_other = key not in self._known and key not in family.harmless
            if is_other and value and SUSPECT_KEY.search(key):
                model_type = self.config["model_type"]
                expected = f"no such key, as its meaning in a {model_type} model is not known here"
                raise self.fault(key, expected)

    def whole(self, key: str, default: int | None = None, *, minimum: int = 1) -> int:
        value = self.get(key)
        if value is None and default is not None:
            return default
        if type(value) is not int or not minimum <= value <= _MAX_SIZE:
            raise self.fault(key, f"a whole number from {minimum} to {_MAX_SIZE}")
        return value

    def count(self, key: str) -> int:
        """Return a number of parts, where null means none but a missing key means nothing."""
        return 0 if self.get(key, "missing") is None else self.whole(key, minimum=0)

    def flag(self, key: str, default: bool) -> bool:
        value = self.get(key, default)
        if not isinstance(value, bool):
            raise self.fault(key, "true or false")
        return value

    def layer_numbers(self, key: str) -> set[int] | None:
        listed = self.get(key)
        if listed is None:
            return None
        if not isinstance(listed, list) or not all(type(i) is int for i in listed):
            raise self.fault(key, "a list of layer numbers")
        return set(listed)

    def by_layer(
        self, key: str, num_layers: int, known: Sequence[int | str], hint: str = ""
    ) -> list[Any]:
        """Return a list with one of the known values for each layer, the first if it is missing."""
        listed, kind = self.get(key), type(known[0])
        if listed is None:
            return [known[0]] * num_layers
        if not (
            isinstance(listed, list)
            and len(listed) == num_layers
            and all(type(value) is kind and value in known for value in listed)
        ):
            each = " or ".join(map(str, known))
            raise self.fault(key, f"{num_layers} entries, each {each}{hint}")
        return listed

    def dtype(self) -> str:
        old, new = self.get("torch_dtype"), self.get("dtype")
        if None not in (old, new) and old != new:
            raise self.fault("torch_dtype", f"the same as dtype = {new!r}")
        key, value = ("dtype", new) if old is None else ("torch_dtype", old)
        if value is None:
            return "bf16"
        if not isinstance(value, str) or value not in _DTYPES:
            raise self.fault(key, f"one of: {', '.join(_DTYPES)}")
        return _DTYPES[value]
