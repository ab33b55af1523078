"""Turn the keys of a model's ``config.json`` into the fields of an `Architecture`.

Nothing is guessed. The reader refuses a family that is not in the table, and a key that it does not
read and that is not known to be harmless. MTP modules are drafters and do not count as layers.
"""

import json
from collections.abc import Mapping
from typing import Any

from specmodel.core.base.errors import InputError
from specmodel.core.models.hf.drafting import is_draft_head, mtp_fields
from specmodel.core.models.hf.keys import table
from specmodel.core.models.hf.mixers import layer_kinds
from specmodel.core.models.hf.quantization import checkpoint_dtypes
from specmodel.core.models.hf.reader import Fields, Reader

_SHARED_KEYS = ("torch_dtype", "dtype", "quantization_config")
"""Keys that wrappers may have outside `text_config` or inside it; two values must be equal."""

_TIED = "tie_word_embeddings"
"""Key whose value outside `text_config` has priority, as in vLLM 0.33 and SGLang 0.5.23. The LM
head belongs to the wrapper, and transformers 5 writes its own default inside."""

_OTHER_PARTS = {"text_config", "vision_config", "audio_config"}


def architecture_fields(
    config: Mapping[str, Any],
    argument: str,
    beside: Mapping[str, Any] | None = None,
    *,
    weight_dtype: str | None = None,
) -> Fields:
    """Return the fields of an `Architecture` that a configuration describes.

    `beside` is the content of ``hf_quant_config.json``, if the file exists. If `weight_dtype` is
    given, an unknown quantisation is ignored.
    """
    reader = Reader(_text_config(config, argument), argument)
    expected = "a model, as this file is a draft head: give it as the drafter"
    reader.need(not is_draft_head(config), "architectures", expected)
    reader.find_family()
    family = reader.family
    for key, known in family.only.items():
        values = " or ".join(map(json.dumps, known))
        reader.only(key, known, f"{values}, as others are not known here")
    num_layers = family.rule("num_layers", reader)
    if family.lists_mtp:
        reader.trailing = reader.whole("num_nextn_predict_layers", 0, minimum=0)
    fields = _outer_fields(reader)
    blocks = family.rule("blocks", reader, num_layers)
    mixers = family.rule("mixers", reader, *layer_kinds(reader, num_layers))
    if family.mtp_layer:
        fields["mtp_layer"] = family.rule("mtp_layer", reader, [m for m in mixers if m])
    pairs = zip(mixers, blocks, strict=True)
    layers = [{"mixer": mixer, "feed_forward": block} for mixer, block in pairs]
    if family.fields:
        fields |= family.rule("fields", reader, layers)
    dtype = reader.dtype(keeps_fp32=weight_dtype == "fp32")
    record = reader.get("quantization_config")
    reader.refuse_other_keys(family.harmless, family.harmless_groups)
    try:
        dtypes, layers = checkpoint_dtypes(
            {**reader.config, "quantization_config": record},
            argument,
            dtype,
            layers,
            beside=beside,
            has_tied_embeddings=fields["has_tied_embeddings"],
            splits_layers=family.splits_layers,
        )
    except InputError:
        if weight_dtype is None:
            raise
        dtypes, layers = checkpoint_dtypes({}, argument, dtype, layers)
    # a dtype of the KV cache that the family sets replaces the checkpoint's
    return dtypes | fields | {"layers": grouped(layers), "ignored_config_keys": reader.cast or None}


def _outer_fields(reader: Reader) -> Fields:
    """Return the fields of the embedding, the LM head, positions and MTP modules."""
    family = reader.family
    fields = mtp_fields(reader) | {
        "hidden_size": reader.whole("hidden_size"),
        "vocabulary_size": reader.whole("vocab_size"),
        "has_tied_embeddings": reader.flag("tie_word_embeddings", family.ties_embeddings),
        "max_context_length": reader.longest_context(),
    }
    if family.positions_offset is not None:
        width = reader.whole("word_embed_proj_dim", fields["hidden_size"])
        fields["embedding_size"] = width if width != fields["hidden_size"] else None
        positions = reader.whole("max_position_embeddings")
        fields["max_positions"] = positions + family.positions_offset
    return fields


def grouped(layers: list[Fields]) -> list[Fields]:
    """Return groups of equal layers in order of appearance, without layers that are empty."""
    full = [layer for layer in layers if layer["mixer"] or layer["feed_forward"]]
    different = [layer for i, layer in enumerate(full) if layer not in full[:i]]
    return [{"count": full.count(layer)} | layer for layer in different]


def _text_config(config: Mapping[str, Any], argument: str) -> Mapping[str, Any]:
    """Return the configuration of the language model; wrappers nest it in `text_config`."""
    config = _unwrapped(config)
    known = table("other_model_types")["wrappers"].get(str(config.get("model_type")))
    if known is None:
        return config
    text = config.get("text_config")
    if not isinstance(text, dict) or text.get("model_type", known[0]) not in known:
        expected = f"an object of model_type {' or '.join(known)}"
        raise InputError(f"{argument} text_config", text, expected)
    outer = {key: config[key] for key in config.keys() - _OTHER_PARTS}
    tied = {key: outer[key] for key in (_TIED,) if outer.get(key) is not None}
    for key in _SHARED_KEYS:
        inner = text.get(key)
        if None not in (inner, outer.get(key)) and inner != outer[key]:
            expected = f"the same as text_config.{key} = {inner!r}"
            raise InputError(f"{argument} {key}", outer[key], expected)
    given = {key: value for key, value in text.items() if value is not None or key not in outer}
    return outer | given | tied | {"model_type": text.get("model_type", known[0])}


def _unwrapped(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a configuration whose keys about layers are at the top level.

    For these models, transformers 5 adds a `text_config` with its own defaults, which the
    checkpoint does not have. Of a model with a thinker and a talker, the thinker is returned. Keys
    of objects that a family nests move to the top level.
    """
    types = table("other_model_types")
    nested = [config.get(key) for key in types["nested"].get(str(config.get("model_type")), ())]
    for part in (part for part in nested if isinstance(part, dict)):
        config = {**part, **config}
    thinker = config.get("thinker_config")
    if isinstance(thinker, dict):
        shared = {key: config[key] for key in _SHARED_KEYS if config.get(key) is not None}
        return shared | thinker
    family = types["flat"].get(str(config.get("model_type")))
    if not family or config.get("num_hidden_layers") is None:
        return config
    return {key: config[key] for key in config.keys() - _OTHER_PARTS} | {"model_type": family}
