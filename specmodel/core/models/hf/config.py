"""Reader of the ``config.json`` that comes with a model: from its keys to an `Architecture`.

Nothing is guessed: a family that is not in the table, or a key that is neither read nor known to be
harmless, is refused by name. MTP modules are drafters and no part of the shape.
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
"""Keys that wrappers may have outside of `text_config`, inside, or in both if they agree."""

_TIED = "tie_word_embeddings"
"""Holds outside of `text_config` if it is there, as vLLM 0.33 and SGLang 0.5.23 read it: the head
is the wrapper's, and transformers 5 writes a default of its own inside."""

_OTHER_PARTS = {"text_config", "vision_config", "audio_config"}


def architecture_fields(
    config: Mapping[str, Any],
    argument: str,
    beside: Mapping[str, Any] | None = None,
    *,
    weight_dtype: str | None = None,
) -> Fields:
    """Return the fields of an `Architecture` that a configuration describes.

    `beside` is the content of its ``hf_quant_config.json``, if there is one. If the dtype of
    weights is given elsewhere, a quantisation that is not understood is passed over.
    """
    reader = Reader(_text_config(config, argument), argument)
    if is_draft_head(config):
        expected = "a model, as this file is a draft head: give it as the drafter"
        raise reader.fault("architectures", expected)
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
    # the dtype that a family keeps its cache in holds against that of its checkpoint
    return dtypes | fields | {"layers": grouped(layers), "ignored_config_keys": reader.cast or None}


def _outer_fields(reader: Reader) -> Fields:
    """Return the fields of what is around the layers, and of MTP modules."""
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
    """Return groups of layers that are alike, in order of appearance, without empty layers."""
    groups: list[Fields] = []
    for parts in (layer for layer in layers if layer["mixer"] or layer["feed_forward"]):
        same = next((group for group in groups if group == parts | {"count": group["count"]}), None)
        if same:
            same["count"] += 1
        else:
            groups.append({"count": 1} | parts)
    return groups


def _text_config(config: Mapping[str, Any], argument: str) -> Mapping[str, Any]:
    """Return the configuration of the language model, which wrappers nest in `text_config`."""
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
    """Return a wrapper whose layers are described outside, with the family of its language model.

    transformers 5 leaves its keys where they are, and adds a `text_config` with defaults, which are
    not those of the checkpoint. Of a model that thinks and speaks, what thinks is returned. Keys of
    parts that a family nests stand beside the others.
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
