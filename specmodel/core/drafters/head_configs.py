"""Readers of the ``config.json`` of draft heads: EAGLE and EAGLE-3, and blocks (DFlash, DSpark).

All heads are small dense models of the target's width. Their keys are keys of a Llama or Qwen3, or
of a DeepSeek-V3 if they have latents. The name of its class identifies a head, as in the registries
of vLLM 0.33.0 and SGLang 0.5.23 and in speculators 0.9.0. EAGLE's authors use the name of a model
and the key ``draft_vocab_size``. Other classes are refused, as the same keys may have another
meaning there.
"""

import itertools
from collections.abc import Callable, Mapping
from typing import Any

from specmodel.core.drafters.heads import one_head
from specmodel.core.drafters.kinds.blocks import DFLASH, DSPARK
from specmodel.core.drafters.kinds.eagle import EAGLE, EAGLE3, P_EAGLE
from specmodel.core.drafters.passes import (
    Drafter,
    features_first,
    masks_after_anchor,
    masks_after_verified,
    masks_from_anchor,
    verified_first,
)
from specmodel.core.models.architecture import Architecture
from specmodel.core.models.hf.config import grouped
from specmodel.core.models.hf.drafting import (
    MOST_LAYERS,
    check_known,
    check_target,
    head_kind,
    head_layers,
)
from specmodel.core.models.hf.quantization import checkpoint_dtypes
from specmodel.core.models.hf.reader import Fields, Reader

# EAGLE and EAGLE-3, sequential or with masks (P-EAGLE)

_FIRST = "EAGLE"
_GROUPED, _MASKED, _WITH_LATENTS = "EAGLE-3", "P-EAGLE", "EAGLE-3 with latents"

_MASK_KEYS = ("pard_token", "ptd_token_id", "mask_token_id")
"""Keys of the mask with which a head drafts all tokens in one pass."""

_DEFAULT_TAPS = 3


Built = Callable[[Fields], Architecture]
"""Makes the `Architecture` of a head from its fields."""


def eagle_head(
    config: Mapping[str, Any], argument: str, target: Architecture, built: Built
) -> Drafter:
    """Return the head of EAGLE or EAGLE-3 that a configuration describes, trained for a target.

    Queries, keys and values of the first layer, or their latents, read the embedding and the
    target's features. Further layers read the width of the head only. In a first version of EAGLE,
    the projection reads both, and no layer does.
    """
    layer = config.get("transformer_layer_config")
    nested = layer if isinstance(layer, dict) else {}
    reader = Reader({"model_type": "llama", **config, **nested}, argument)
    check_known(reader, (_FIRST, _GROUPED, _MASKED, _WITH_LATENTS))
    kinds = "eagle3 or peagle in a head of this class"
    reader.only("speculators_model_type", ("eagle3", "peagle"), kinds)
    kind = head_kind(config)
    is_latent = kind == _WITH_LATENTS
    reader.only("quantization_config", (), "none, as in a head it is not known here")
    width = reader.whole("hidden_size")
    check_target(reader, target.hidden_size, target.vocabulary_size)
    layers = head_layers(reader, has_latents=is_latent)
    name, rule, more = EAGLE, verified_first, Fields()
    inputs = width + target.hidden_size
    if kind != _FIRST:
        inputs = _num_taps(reader, _DEFAULT_TAPS) * target.hidden_size
        if not inputs and width != target.hidden_size:
            raise reader.fault("hidden_size", f"{target.hidden_size} without auxiliary features")
        layers[0]["mixer"]["input_size"] = 2 * width
        # for engines, the key of speculators has priority
        told, is_named = config.get("speculators_model_type"), kind == _MASKED
        is_masked = is_named or any(config.get(key) is not None for key in _MASK_KEYS)
        name, rule = EAGLE3, features_first
        if told == "peagle" or (told is None and is_masked):
            name, rule, more = P_EAGLE, masks_after_verified, {"is_chain": True}
    groups = ["draft heads", *["heads with latents"] * is_latent]
    head = built(_fields(reader, target, layers, inputs, groups))
    return one_head(target, name, head, rule, **more)


def _fields(
    reader: Reader, target: Architecture, layers: list[Fields], inputs: int, groups: list[str]
) -> Fields:
    """Return the fields of the `Architecture` of a head, with the keys that were ignored."""
    whole_size = target.vocabulary_size
    dtypes, layers = checkpoint_dtypes(
        reader.config,
        reader.argument,
        reader.dtype(),
        layers,
        has_tied_embeddings=True,  # the LM head is the target's
    )
    size = reader.whole("draft_vocab_size", whole_size, most=whole_size)
    if reader.flag("tie_word_embeddings", False) and size != whole_size:
        raise reader.fault("tie_word_embeddings", f"false with draft_vocab_size = {size}")
    return {
        "hidden_size": reader.whole("hidden_size"),
        "vocabulary_size": size,
        "input_vocabulary_size": whole_size if size != whole_size else None,
        "input_projection_size": inputs,
        "layers": grouped(layers),
        **dtypes,
        "ignored_config_keys": reader.pass_over_others(groups),
    }


def _num_taps(reader: Reader, usual: int) -> int:
    """Return the number of target layers that a head reads, 0 for the last hidden state [-]."""
    nested = reader.nested("eagle_config")
    places = [nested, reader] if nested else [reader]
    if not all(part.flag("use_aux_hidden_state", True) for part in places):
        return 0
    count = reader.get("num_aux_hidden_states")
    for part, key in itertools.product(places, _TAPS):
        listed = part.get(key)
        if listed is not None and (not isinstance(listed, list) or not listed):
            raise part.fault(key, "a list of layer numbers")
        if listed and len(listed) != (count or len(listed)):
            raise part.fault(key, f"as many layers as are told elsewhere, {count}")
        count = len(listed) if listed else count
    return usual if count is None else reader.whole("num_aux_hidden_states", count)


# heads that draft a block in one pass

_DFLASH, _DSPARK, _LATENT = "DFlash", "DSpark", "DSpark with latents"
BLOCKS = (_DFLASH, _DSPARK, _LATENT)
"""Kinds of heads that draft a block."""

_BLOCK_RULES = (masks_after_anchor, masks_from_anchor)
"""Passes by whether the last known token drafts too, and not only the masks after it."""

_OF_V4, _V4_LAYERS = "DSpark of DeepSeek-V4", 3
"""A further kind, and its number of layers if no key states it, as in vLLM [-]."""

_DFLASH_BLOCK = 16
"""Tokens of a block of DFlash if no key states them, as in SGLang [token]."""

_OWN_CONFIGS = ("dflash_config", "dspark_config")
_OPEN_KEYS = {"open_spec_config_version", "speculative_config", "speculators_metadata", "method"}
_OPEN_KEYS |= {"speculative_tokens", "verifier", "training_framework", "target_layer_start_idx"}
_OPEN_KEYS |= {"training_framework_version"}
"""Keys of the Open Spec Config format that the others do not have, or need not."""

_TAPS = ("target_layer_ids", "aux_hidden_state_layer_ids", "eagle_aux_hidden_state_layer_ids")


def dspark_of_v4(config: Mapping[str, Any], argument: str) -> dict[str, int] | None:
    """Return the sizes of DeepSeek-V4's DSpark head, None if a configuration is of another class.

    The configuration describes a whole DeepSeek-V4. Its modules are the layers of the head.
    """
    is_v4 = config.get("model_type") == "deepseek_v4" and head_kind(config) == _DSPARK
    if not is_v4 and head_kind(config) != _OF_V4:
        return None
    reader = Reader(config, argument)
    taps = reader.get("dspark_target_layer_ids", config.get("target_layer_ids"))
    if not isinstance(taps, list) or not taps:
        raise reader.fault("dspark_target_layer_ids", "a list of layer numbers")
    return {
        "num_layers": reader.whole("n_mtp_layers", _V4_LAYERS),
        "num_taps": len(taps),
        "block_size": reader.whole("dspark_block_size"),
        "markov_rank": reader.whole("dspark_markov_rank"),
    }


def block_head(
    config: Mapping[str, Any], argument: str, target: Architecture, built: Built
) -> Drafter:
    """Return the head that a configuration describes, trained for a target.

    A head may read all residual streams of a target that has several. If no layers of the target
    are listed, vLLM and SGLang use as many as the head has. By default, the last known token of a
    DSpark head drafts, except in heads of speculators. The projection of features is assumed to
    stay in 16 bits if layers are quantised.
    """
    reader, kind = _flat(config, argument), head_kind(config)
    plain = "a plain one, as Domino and others are not modelled"
    reader.only("projector_type", ("dflash", "dspark", "linear"), plain)
    gates = (False, True, "disabled", "per-head")
    reader.only("gating", gates, "one gate for each head, or none")
    reader.pass_over(*(key for key in reader.config if key.startswith("confidence_")))
    num_streams = getattr(target.residuals, "num_streams", 1)
    feature = check_target(reader, target.hidden_size, target.vocabulary_size, num_streams)
    layers = head_layers(reader, has_latents=kind == _LATENT)
    markov = None if kind == _DFLASH else _markov(reader, target.vocabulary_size)
    from_anchor = _drafts_from_anchor(reader, kind)
    # of the tokens of a block, the first may be the last known token
    name = "block_size" if reader.config.get("dspark_block_size") is None else "dspark_block_size"
    block = reader.whole(name, _DFLASH_BLOCK if kind == _DFLASH else None)
    size = block - (not from_anchor)
    if size < 1:
        raise reader.fault("block_size", "at least 2, so that some token is drafted")
    inputs = _num_taps(reader, len(layers)) * feature
    groups = ["draft heads", "heads that draft a block"]
    fields = _fields(reader, target, layers, inputs, groups) | {"markov": markov}
    rule, more = _BLOCK_RULES[from_anchor], {"is_chain": True, "block_size": size}
    return one_head(target, DSPARK if markov else DFLASH, built(fields), rule, **more)


def _flat(config: Mapping[str, Any], argument: str) -> Reader:
    """Return a reader of a configuration with nested objects merged into the top level."""
    whole = {"model_type": "qwen3", **config}
    for key in ("transformer_layer_config", *_OWN_CONFIGS):
        if config.get(key) is not None:
            whole |= Reader(config[key], f"{argument} {key}").config
    whole["architectures"] = config.get("architectures")
    return Reader(whole | _windowed(Reader(whole, argument)), argument)


def with_native_keys(config: Mapping[str, Any], argument: str) -> Mapping[str, Any]:
    """Return a head in the Open Spec Config format with the keys of speculators, others unchanged.

    As speculators' ``open_spec_config.py`` translates version 0.0.0, which has DFlash alone.
    """
    reader = Reader(config, argument)
    if reader.get("open_spec_config_version") is None:
        return config
    reader.only("open_spec_config_version", ("0.0.0",), "0.0.0, as other versions are not known")
    reader.only("architectures", (["DflashDraftModel"],), "['DflashDraftModel'] in this format")
    told = Reader(config.get("speculative_config"), f"{argument} speculative_config")
    told.only("method", ("dflash",), "dflash, as other heads have no such format yet")
    is_anchored = told.flag("sample_from_anchor", False)
    more = {key: n for key, n in told.config.items() if key not in _OPEN_KEYS}
    kept = {key: n for key, n in config.items() if key not in _OPEN_KEYS}
    block = told.whole("speculative_tokens") + (not is_anchored)
    return kept | more | {"architectures": ["DFlashSpeculator"], "block_size": block}


def _windowed(reader: Reader) -> Fields:
    """Return the keys of windows under the names that models have for them."""
    kinds, own = reader.config.get("layer_types"), reader.config.get("swa_window_size")
    window = own if own is not None else reader.config.get("sliding_window")
    is_listed = isinstance(kinds, list) and "sliding_attention" in kinds
    if reader.flag("use_swa", False) and not is_listed:
        kinds = ["sliding_attention"] * reader.whole("num_hidden_layers", most=MOST_LAYERS)
        return {"layer_types": kinds, "sliding_window": window, "use_sliding_window": True}
    return {"use_sliding_window": False} if kinds is None else {"sliding_window": window}


def _markov(reader: Reader, vocabulary_size: int) -> Fields:
    reader.only("markov_head_type", ("vanilla",), "vanilla, as other heads are not known here")
    key = "dspark_draft_topk"
    some = None if reader.get(key) is None else reader.whole(key, most=vocabulary_size)
    return {
        "has_confidence": reader.flag("enable_confidence_head", False),
        "rank": reader.whole("markov_rank"),
        "vocabulary_size": vocabulary_size,
        "num_candidates": some,
    }


def _drafts_from_anchor(reader: Reader, kind: str | None) -> bool:
    if kind == _DFLASH:
        return reader.flag("sample_from_anchor", False)
    is_other = reader.config.get("speculators_model_type") is not None
    usual = not is_other and not reader.flag("dspark_bonus_anchor", False)
    return reader.flag("sample_from_anchor", usual)
