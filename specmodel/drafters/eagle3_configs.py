"""Reader of the ``config.json`` of an EAGLE or EAGLE-3 head, sequential or with masks (P-EAGLE).

A head looks like a model of few layers. It is known by the name of its class, as in the registries
of vLLM 0.33.0 and SGLang 0.5.23 and in speculators 0.9.0, or by that of a model beside
``draft_vocab_size``, as EAGLE's authors have it; other classes, for which the same keys may mean
something else, are refused.
"""

from collections.abc import Mapping
from typing import Any

from specmodel.base.errors import InputError
from specmodel.models.architecture import Architecture
from specmodel.models.hf.drafting import (
    check_known,
    check_target,
    ffn_size,
    head_kind,
    heads,
    num_layers_of,
    vocabularies,
    windows,
)
from specmodel.models.hf.keys import table
from specmodel.models.hf.reader import Fields, Reader

_FIRST = "EAGLE"
_GROUPED, _MASKED, _LATENT = "EAGLE-3", "P-EAGLE", "EAGLE-3 with latents"

_MASK_KEYS = ("pard_token", "ptd_token_id", "mask_token_id")
"""Keys of the mask with which a head drafts all tokens in one pass."""

_UNKNOWN = ("quantization_config", "num_experts", "num_local_experts")

_DEFAULT_TAPS = 3


def eagle3_fields(config: Mapping[str, Any], argument: str, target: Architecture) -> Fields:
    """Return the fields of an `Architecture` that the configuration of such a head describes.

    Queries, keys and values of the first layer, or their latents, read the embedding beside what
    the target computed; those of further layers the width of the head alone. In a first version of
    EAGLE, the projection reads the two, and no layer does.
    """
    layer = config.get("transformer_layer_config")
    nested = layer if isinstance(layer, dict) else {}
    reader = Reader({"model_type": "llama", **config, **nested}, argument)
    check_known(reader, (_FIRST, _GROUPED, _MASKED, _LATENT))
    if config.get("speculators_model_type") not in (None, "eagle3", "peagle"):
        raise reader.fault("speculators_model_type", "eagle3 or peagle in a head of this class")
    is_latent = head_kind(config) == _LATENT
    for key in _UNKNOWN if is_latent else (*_UNKNOWN, "kv_lora_rank"):
        if reader.config.get(key):
            raise reader.fault(key, "none, as in a head it is not known here")
    width = reader.whole("hidden_size")
    hidden_size, vocabulary_size = target.hidden_size, target.vocabulary_size
    check_target(reader, hidden_size, vocabulary_size)
    own_fields = windows(reader, num_layers_of(reader))
    mixer = heads(reader, has_latents=is_latent)
    block = {"kind": "dense", "ffn_size": ffn_size(reader)}
    dtype = reader.dtype()
    is_first = is_first_version(config)
    if is_first:
        inputs = width + hidden_size
    else:
        inputs = _num_taps(reader, width, hidden_size) * hidden_size
        own_fields[0] |= {"input_size": 2 * width}
    layers = [{"count": 1, "mixer": mixer | own, "feed_forward": block} for own in own_fields]
    fields = {
        "hidden_size": width,
        **vocabularies(reader, vocabulary_size),
        "input_projection_size": inputs,
        "layers": layers,
    }
    groups = ["draft heads", *["heads with latents"] * is_latent]
    fields["ignored_config_keys"] = reader.pass_over_others(groups)
    return fields | dict.fromkeys(("weight_dtype", "activation_dtype", "kv_dtype"), dtype)


def is_first_version(config: Mapping[str, Any]) -> bool:
    """Tell whether a configuration describes a head of EAGLE's first version."""
    return head_kind(config) == _FIRST


def drafts_with_masks(config: Mapping[str, Any]) -> bool:
    """Tell whether an EAGLE-3 head drafts all tokens in one pass, with masks (P-EAGLE)."""
    told = config.get("speculators_model_type")  # by which engines go where it is told
    if told is not None:
        return bool(told == "peagle")
    names = config.get("architectures")
    is_named = isinstance(names, list) and bool(
        {*names} & {*table("draft_heads")["classes"][_MASKED]}
    )
    return is_named or any(config.get(key) is not None for key in _MASK_KEYS)


def _num_taps(reader: Reader, width: int, hidden_size: int) -> int:
    """Return of how many target layers a head reads features, 0 for the last hidden state alone."""
    own = reader.config.get("eagle_config")
    if not isinstance(own, dict | None):
        raise reader.fault("eagle_config", "an object")
    own = own or {}
    if own.get("use_aux_hidden_state", True) is False:
        if width != hidden_size:
            raise reader.fault("hidden_size", f"{hidden_size} without auxiliary features")
        return 0
    key = "eagle_aux_hidden_state_layer_ids"
    given = {f"eagle_config.{key}": own.get(key), key: reader.config.get(key)}
    listed = {name: ids for name, ids in given.items() if ids}
    for name, ids in listed.items():
        if not isinstance(ids, list):
            raise InputError(f"{reader.argument} {name}", ids, "a list of layer numbers")
    count = next((len(ids) for ids in listed.values()), _DEFAULT_TAPS)
    told = reader.whole("num_aux_hidden_states", count)
    for name, ids in listed.items():
        if len(ids) != told:
            expected = f"as many layers as are told elsewhere, {told}"
            raise InputError(f"{reader.argument} {name}", ids, expected)
    return told
