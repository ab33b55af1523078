"""Drafting in a ``config.json``: whether it is a draft head, and MTP modules of a target."""

from collections.abc import Mapping
from typing import Any

from specmodel.base.errors import InputError
from specmodel.models.hf.family import FULL, INDEXED, MTP_COUNTS
from specmodel.models.hf.head_parts import MOST_LAYERS
from specmodel.models.hf.mamba2 import check_module

_NAME_PARTS = ("eagle", "medusa", "dflash", "dspark", "xpress", "speculator", "draft", "assistant")
_HEAD_KEYS = (
    "draft_vocab_size",
    "speculators_model_type",
    "eagle_config",
    "dflash_config",
    "markov_rank",
)


def is_draft_head(config: Mapping[str, Any]) -> bool:
    """Tell whether a configuration describes a draft head, which looks like a small model."""
    names = str(config.get("architectures")).lower()
    has_key = any(config.get(key) for key in _HEAD_KEYS)
    return has_key or any(part in names for part in _NAME_PARTS)


def mtp_fields(
    config: Mapping[str, Any], argument: str, *, untold: int = 0, has_own_layer: bool = False
) -> dict[str, Any]:
    """Return the fields of an `Architecture` about its MTP modules.

    `untold` is their number where no key says it [-]; `has_own_layer` says that they are not like
    the target's layers and are read elsewhere. One module is the default of an `Architecture`.
    """
    key = next((name for name in MTP_COUNTS if config.get(name) is not None), None)
    count = config[key] if key else untold
    if type(count) is not int or not 0 <= count <= MOST_LAYERS:
        raise InputError(f"{argument} {key}", count, f"a whole number from 0 to {MOST_LAYERS}")
    fields: dict[str, Any] = {} if count == 1 else {"num_mtp_modules": count}
    _check_mtp_layers(config, argument, has_own_layer=has_own_layer)
    check_module(config, argument)
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
