"""Drafting in a ``config.json``: whether it is a draft head, and MTP modules of a target."""

from collections.abc import Mapping
from typing import Any

from specmodel.base.errors import InputError
from specmodel.models.hf.family import FULL, INDEXED
from specmodel.models.hf.head_parts import MOST_LAYERS
from specmodel.models.hf.keys import table
from specmodel.models.hf.reader import Fields


def is_draft_head(config: Mapping[str, Any]) -> bool:
    """Tell whether a configuration describes a draft head, which looks like a small model."""
    names = str(config.get("architectures")).lower()
    signs = table("draft_heads")["signs"]
    return any(map(config.get, signs["keys"])) or any(part in names for part in signs["names"])


def mtp_fields(
    config: Mapping[str, Any], argument: str, *, untold: int = 0, has_own_layer: bool = False
) -> Fields:
    """Return the fields of an `Architecture` about its MTP modules.

    `untold` is their number where no key says it [-]; `has_own_layer` says that they are not like
    the target's layers and are read elsewhere. One module is the default of an `Architecture`.
    """
    counts = table("key_names")["mtp_counts"]
    key = next((name for name in counts if config.get(name) is not None), None)
    count = config[key] if key else untold
    if type(count) is not int or not 0 <= count <= MOST_LAYERS:
        raise InputError(f"{argument} {key}", count, f"a whole number from 0 to {MOST_LAYERS}")
    fields: Fields = {} if count == 1 else {"num_mtp_modules": count}
    _check_mtp_layers(config, argument, has_own_layer=has_own_layer)
    shares = config.get("index_share_for_mtp_iteration", False)
    if not isinstance(shares, bool | None):
        raise InputError(f"{argument} index_share_for_mtp_iteration", shares, "true or false")
    return fields | ({"shares_mtp_index": True} if shares else {})


def _check_mtp_layers(config: Mapping[str, Any], argument: str, *, has_own_layer: bool) -> None:
    """Refuse MTP modules whose attention, experts, embedding or head are not the target's."""
    key = "mtp_use_dedicated_embeddings"
    if config.get(key) not in (None, False):
        expected = "false, as modules with an embedding of their own are not known here"
        raise InputError(f"{argument} {key}", config[key], expected)
    for key, known in (
        ("mtp_layer_types", (FULL, *INDEXED)),
        ("mtp_mlp_layer_types", ("sparse",)),
    ):
        kinds = [] if has_own_layer else config.get(key) or []
        if not isinstance(kinds, list) or any(kind not in known for kind in kinds):
            expected = f"a list of {' or '.join(known)}, as other modules are not known here"
            raise InputError(f"{argument} {key}", kinds, expected)
    for key, fitting in (
        ("mtp_layers_block_type", (["attention", "moe"], [FULL, "moe"])),
        ("mtp_hybrid_override_pattern", ("*E",)),
    ):
        if config.get(key) is not None and config[key] not in fitting:
            expected = f"{fitting[0]!r}, as other modules are not known here"
            raise InputError(f"{argument} {key}", config[key], expected)
