"""Drafters of a ``config.json``: draft heads, assistants, and models that draft with masks."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specmodel.base.errors import InputError
from specmodel.base.records import build
from specmodel.drafters.blocks import DFLASH, DSPARK, dspark_drafter
from specmodel.drafters.eagle import EAGLE, EAGLE3, P_EAGLE
from specmodel.drafters.heads import one_head
from specmodel.drafters.models import pard_drafter
from specmodel.drafters.mtp import assistant_drafter
from specmodel.drafters.passes import (
    Drafter,
    features_first,
    masks_after_anchor,
    masks_after_verified,
    masks_from_anchor,
    verified_first,
)
from specmodel.models.architecture import Architecture

_WRAPPED = "EagleLlamaForCausalLM"
"""Class of the head inside vLLM's wrapper."""
_OWN_OF_V4 = (
    "dspark_markov_rank",
    "dspark_target_layer_ids",
    "dspark_noise_token_id",
    "n_mtp_layers",
    "target_layer_ids",
    "enable_confidence_head",
    "confidence_head_with_markov",
)
"""Keys of DeepSeek-V4's DSpark head that the configuration of its target lacks."""


def _unwrapped(content: Mapping[str, Any], argument: str) -> Mapping[str, Any]:
    """Return the head inside vLLM's wrapper of 2024, others as they are; refuse Medusa."""
    for key, told in {"medusa_num_heads": "Medusa", "hydra_num_heads": "Hydra"}.items():
        if key in content:
            raise InputError(argument, key, f"another head: {told} is not modelled")
    inner = content.get("model")
    if content.get("model_type") != "eagle" or not isinstance(inner, dict):
        return content
    # a bias is too small to count
    return {k: v for k, v in inner.items() if k != "eagle_fc_bias"} | {"architectures": [_WRAPPED]}


def read_drafter(path: str | Path, target: Architecture) -> Drafter | None:
    """Return the drafter of a ``config.json``, None if it is a model that drafts in turn.

    `path` is the file or its folder. An InputError says if a head is for another target or has a
    part that is not known.
    """
    from specmodel.drafters import head_configs as heads
    from specmodel.models.hf import gemma
    from specmodel.models.hf.config import architecture_fields
    from specmodel.models.hf.drafting import is_draft_head
    from specmodel.models.hf.files import read_config

    file = read_config(path, "drafter")
    content, argument = _unwrapped(file.content, file.argument), file.argument

    def built(fields: Mapping[str, Any]) -> Architecture:
        return build(Architecture, file.with_origin(fields), argument)

    def model(keys: Mapping[str, Any]) -> Architecture:
        return built(architecture_fields(keys, argument, file.quantisation()))

    if sizes_of_v4 := heads.dspark_of_v4(content, argument):
        own = {key: value for key, value in content.items() if key not in _OWN_OF_V4}
        return dspark_drafter(
            model(own | {"architectures": ["DeepseekV4ForCausalLM"]}), **sizes_of_v4
        )
    if heads.is_block_head(content):
        read = heads.block_head(content, argument, target)
        rule = masks_from_anchor if read.drafts_from_anchor else masks_after_anchor
        return Drafter(
            name=DSPARK if read.is_chained else DFLASH,
            parts=((built(read.fields), rule),),
            is_head=True,
            is_chain=True,
            block_size=read.block_size,
        )
    if not is_draft_head(content):
        if content.get("pard_token") is None:
            return None
        return pard_drafter(model({k: v for k, v in content.items() if k != "pard_token"}))
    if content.get("model_type") in gemma.ASSISTANTS:
        sizes = {"hidden_size": target.hidden_size, "vocabulary_size": target.vocabulary_size}
        fields = gemma.assistant_fields(content, argument, **sizes)
        return assistant_drafter(built(fields), target, argument)
    head = built(heads.eagle3_fields(content, argument, target))
    if heads.is_first_version(content):
        return one_head(target, EAGLE, head, verified_first)
    is_masked = heads.drafts_with_masks(content)
    name, rule = (P_EAGLE, masks_after_verified) if is_masked else (EAGLE3, features_first)
    return Drafter(name=name, parts=((head, rule),), is_head=True, is_chain=is_masked)
