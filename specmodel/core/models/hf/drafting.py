"""Drafting in a ``config.json``: MTP modules of a target, and what readers of draft heads share."""

import itertools
from collections.abc import Collection, Mapping
from typing import Any

from specmodel.core.base.errors import nearest
from specmodel.core.models.hf.family import FULL, INDEXED, SLIDING
from specmodel.core.models.hf.keys import table
from specmodel.core.models.hf.mixers import attention, latent_heads
from specmodel.core.models.hf.reader import Fields, Reader

MOST_LAYERS = 64
"""Layers of a head, or modules of a target, at most [-]."""


def is_draft_head(config: Mapping[str, Any]) -> bool:
    """Tell whether a configuration describes a draft head, which looks like a small model."""
    names = str(config.get("architectures")).lower()
    signs = table("draft_heads")["signs"]
    return any(map(config.get, signs["keys"])) or any(part in names for part in signs["names"])


def mtp_fields(reader: Reader) -> Fields:
    """Return the fields of an `Architecture` about its MTP modules.

    Modules whose attention, experts, embedding or head are not the target's are refused. One module
    is the default of an `Architecture`.
    """
    config, has_own_layer = reader.config, bool(reader.family.mtp_layer)
    counts = table("key_names")["mtp_counts"]
    key = next((name for name in counts if config.get(name) is not None), "")
    count = config[key] if key else reader.family.untold_mtp
    if type(count) is not int or not 0 <= count <= MOST_LAYERS:
        raise reader.fault(key, f"a whole number from 0 to {MOST_LAYERS}")
    attends = (FULL, INDEXED, "deepseek_sparse_attention")
    for key, known in (("mtp_layer_types", attends), ("mtp_mlp_layer_types", ("sparse",))):
        kinds = [] if has_own_layer else config.get(key) or []
        if not isinstance(kinds, list) or any(kind not in known for kind in kinds):
            expected = f"a list of {' or '.join(known)}, as specmodel knows no other modules"
            raise reader.fault(key, expected)
    shares = reader.flag("index_share_for_mtp_iteration", False)
    fields: Fields = {} if count == 1 else {"num_mtp_modules": count}
    return fields | ({"shares_mtp_index": True} if shares else {})


def head_kind(config: Mapping[str, Any]) -> str | None:
    """Return the kind of a draft head by the name of its class, None if it is not known here.

    EAGLE's authors gave heads the class of a model, before which vLLM puts Eagle3.
    """
    name, own = _class_of(config), config.get("dflash_config")
    if name == "DFlashDraftModel" and isinstance(own, dict) and own.get("markov_rank"):
        name = "DSparkDraftModel"  # as SpecForge first named it
    classes = table("draft_heads")["classes"]
    tried = (name, f"Eagle3{name}")[: 1 + ("draft_vocab_size" in config)]
    return next((kind for each in tried for kind, known in classes.items() if each in known), None)


def _class_of(config: Mapping[str, Any]) -> Any:
    """Return the one class of a configuration, None where it has several or none tells it.

    Without any, keys of a head tell it.
    """
    names = config.get("architectures")
    if names is None:
        told = {text for key, n in config.items() if n for text in (key, f"{key} {n}")}
        classes = table("draft_heads")["classless"]
        return next((name for sign, name in classes.items() if sign in told), None)
    return names[0] if isinstance(names, list) and len(names) == 1 else None


def check_known(reader: Reader, kinds: Collection[str]) -> None:
    """Refuse a head whose class is not one of `kinds`; the error names what is not modelled."""
    if head_kind(reader.config) in kinds:
        return
    name, known = str(_class_of(reader.config)), table("draft_heads")
    told = known["unread"].get(name)
    if told:
        expected = f"an EAGLE-3 or block head: {told} is not modelled"
        raise reader.fault("architectures", expected)
    classes = nearest(name, itertools.chain(*known["classes"].values()))
    expected = f"an EAGLE-3 or block head of a known class, such as {classes}"
    raise reader.fault("architectures", expected)


def check_target(
    reader: Reader, hidden_size: int, vocabulary_size: int, num_streams: int = 1
) -> int:
    """Refuse a head that was trained for another target; return the width of a feature [-].

    A target of several residual streams may give them all: `hc_mult` or the width says so.
    """
    is_told = reader.config.get("target_hidden_size") is not None
    key, wide = "target_hidden_size" if is_told else "hidden_size", hidden_size * num_streams
    streams = reader.whole("hc_mult", 1)
    if streams not in (1, num_streams):
        raise reader.fault("hc_mult", f"that of the target, {num_streams}, for a head of it")
    told = reader.whole(key)
    if told != hidden_size and not (is_told and told == wide):
        raise reader.fault(key, f"that of the target, {hidden_size}, for a head of this target")
    if reader.whole("vocab_size") != vocabulary_size:
        needed = f"that of the target, {vocabulary_size}, for a head of this target"
        raise reader.fault("vocab_size", needed)
    return max(told, hidden_size * streams)


def head_layers(reader: Reader, *, has_latents: bool) -> list[Fields]:
    """Return the dense layers of a head, with latents or groups of heads, some with a window."""
    kinds = FULL, SLIDING
    num_layers = reader.whole("num_hidden_layers", most=MOST_LAYERS)
    types = reader.by_layer("layer_types", num_layers, kinds)
    is_windowed = reader.get("sliding_window") and reader.get("use_sliding_window", True)
    if is_windowed and reader.get("layer_types") is None:
        raise reader.fault("layer_types", "the layers that sliding_window is for")
    own = {"window": reader.whole("sliding_window")} if SLIDING in types else {}
    if has_latents:
        reader.whole("q_lora_rank")  # engines read no head without
    mixer = latent_heads(reader) if has_latents else attention(reader)
    # of Llama 4, the key that SGLang takes
    names = "intermediate_size", "intermediate_size_mlp"
    reader.pass_over(*names)
    width = reader.whole(names[reader.config["model_type"] == "llama4_text"])
    block = {"kind": "dense", "ffn_size": width}
    made = {FULL: mixer, SLIDING: mixer | own}
    return [{"mixer": {**made[kind]}, "feed_forward": block} for kind in types]
