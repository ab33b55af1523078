"""Read MTP modules of a target, and the parts that all readers of draft heads share."""

import itertools
from collections.abc import Collection, Mapping
from typing import Any

from specmodel.core.base.errors import nearest
from specmodel.core.models.hf.family import FULL, INDEXED, SLIDING
from specmodel.core.models.hf.keys import table
from specmodel.core.models.hf.mixers import attention, latent_heads
from specmodel.core.models.hf.reader import Fields, Reader

MOST_LAYERS = 64
"""Maximum layers of a head, or MTP modules of a target [-]."""


def is_draft_head(config: Mapping[str, Any]) -> bool:
    """Return whether a configuration describes a draft head, which looks like a small model."""
    names = str(config.get("architectures")).lower()
    signs = table("draft_heads")["signs"]
    return any(map(config.get, signs["keys"])) or any(part in names for part in signs["names"])


def mtp_fields(reader: Reader) -> Fields:
    """Return the fields of an `Architecture` about its MTP modules.

    Modules must have the target's attention, experts, embedding and LM head; others are refused.
    One module is the default of an `Architecture`.
    """
    config, has_own_layer = reader.config, bool(reader.family.mtp_layer)
    counts = table("key_names")["mtp_counts"]
    key = next((name for name in counts if config.get(name) is not None), "")
    count = config[key] if key else reader.family.untold_mtp
    is_count = type(count) is int and 0 <= count <= MOST_LAYERS
    reader.need(is_count, key, f"a whole number from 0 to {MOST_LAYERS}")
    attends = (FULL, INDEXED, "deepseek_sparse_attention")
    for key, known in (("mtp_layer_types", attends), ("mtp_mlp_layer_types", ("sparse",))):
        kinds = [] if has_own_layer else config.get(key) or []
        are_known = isinstance(kinds, list) and all(kind in known for kind in kinds)
        expected = f"a list of {' or '.join(known)}, as specmodel knows no other modules"
        reader.need(are_known, key, expected)
    shares = reader.flag("index_share_for_mtp_iteration", False)
    fields: Fields = {} if count == 1 else {"num_mtp_modules": count}
    return fields | ({"shares_mtp_index": True} if shares else {})


def head_kind(config: Mapping[str, Any]) -> str | None:
    """Return the kind of a draft head by the name of its class, None if the class is unknown.

    EAGLE's authors gave heads the class name of a model; vLLM puts Eagle3 before this name.
    """
    name, own = _class_of(config), config.get("dflash_config")
    if name == "DFlashDraftModel" and isinstance(own, dict) and own.get("markov_rank"):
        name = "DSparkDraftModel"  # SpecForge first used the other name
    classes = table("draft_heads")["classes"]
    tried = (name, f"Eagle3{name}")[: 1 + ("draft_vocab_size" in config)]
    return next((kind for each in tried for kind, known in classes.items() if each in known), None)


def _class_of(config: Mapping[str, Any]) -> Any:
    """Return the class of a configuration, None if it names several or is unknown.

    If the configuration names no class, the class follows from keys that only one kind of head has.
    """
    names = config.get("architectures")
    if names is None:
        told = {text for key, n in config.items() if n for text in (key, f"{key} {n}")}
        classes = table("draft_heads")["classless"]
        return next((name for sign, name in classes.items() if sign in told), None)
    return names[0] if isinstance(names, list) and len(names) == 1 else None


def check_known(reader: Reader, kinds: Collection[str]) -> None:
    """Refuse a head whose kind is not in `kinds`. The error names the kind if it is known."""
    if head_kind(reader.config) in kinds:
        return
    name, known = str(_class_of(reader.config)), table("draft_heads")
    told = known["unread"].get(name)
    classes = nearest(name, itertools.chain(*known["classes"].values()))
    expected = f": {told} is not modelled" if told else f" of a known class, such as {classes}"
    raise reader.fault("architectures", f"an EAGLE-3 or block head{expected}")


def check_target(
    reader: Reader, hidden_size: int, vocabulary_size: int, num_streams: int = 1
) -> int:
    """Refuse a head that was trained for another target; return the width of a feature [-].

    If the target has several residual streams, a head may read one or all of them. `hc_mult` or the
    width shows which.
    """
    is_told = reader.config.get("target_hidden_size") is not None
    key, wide = "target_hidden_size" if is_told else "hidden_size", hidden_size * num_streams
    expected = "that of the target, {}, for a head of this target".format
    streams, width, vocabulary = reader.whole("hc_mult", 1), reader.whole(key), "vocab_size"
    reader.need(streams in (1, num_streams), "hc_mult", expected(num_streams))
    is_width = width == hidden_size or (is_told and width == wide)
    reader.need(is_width, key, expected(hidden_size))
    is_size = reader.whole(vocabulary) == vocabulary_size
    reader.need(is_size, vocabulary, expected(vocabulary_size))
    return max(width, hidden_size * streams)


def head_layers(reader: Reader, *, has_latents: bool) -> list[Fields]:
    """Return the dense layers of a head, with latent or grouped attention, some with a window."""
    kinds = FULL, SLIDING
    num_layers = reader.whole("num_hidden_layers", most=MOST_LAYERS)
    types = reader.by_layer("layer_types", num_layers, kinds)
    is_windowed = reader.get("sliding_window") and reader.get("use_sliding_window", True)
    has_types = reader.get("layer_types") is not None
    reader.need(has_types or not is_windowed, "layer_types", "the layers that have sliding_window")
    own = {"window": reader.whole("sliding_window")} if SLIDING in types else {}
    if has_latents:
        reader.whole("q_lora_rank")  # engines refuse heads without it
    mixer = latent_heads(reader) if has_latents else attention(reader)
    # for Llama 4, the key that SGLang reads
    names = "intermediate_size", "intermediate_size_mlp"
    reader.pass_over(*names)
    width = reader.whole(names[reader.config["model_type"] == "llama4_text"])
    block = {"kind": "dense", "ffn_size": width}
    made = {FULL: mixer, SLIDING: mixer | own}
    return [{"mixer": {**made[kind]}, "feed_forward": block} for kind in types]
