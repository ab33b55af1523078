"""Multi-token prediction: a layer like the target's, and assistants, which replace such a layer."""

from functools import partial
from typing import Any

from msgspec.structs import replace

from specmodel.core.base.dtypes import BYTES_PER_ELEMENT
from specmodel.core.base.errors import InputError
from specmodel.core.drafters.heads import one_head, taken_attention
from specmodel.core.drafters.names import named_drafters
from specmodel.core.drafters.passes import (
    Drafter,
    Rule,
    module_in_turn,
    selection_first,
    verified_first,
)
from specmodel.core.drafters.published import HeadShape, published_assistant
from specmodel.core.layers.group import LayerGroup
from specmodel.core.models.architecture import Architecture
from specmodel.core.models.shape import EXTRAS

MTP, ASSISTANT = named_drafters()["mtp"].kind, "assistant"
"""Names of these heads for people; only a file defines an assistant."""


def mtp_drafter(target: Architecture) -> Drafter:
    """Return a multi-token-prediction head: a 2h-to-h projection and one layer like the target's.

    The projection and the target's LM head run in each pass. The layer is the one that the target
    defines (`Architecture.mtp_layer`). By default, it has the target's attention over all entries,
    with its own cache, even if most layers are recurrent, and experts if the target has them. Its
    weights have the target's dtypes, or the one in the checkpoint (`Architecture.mtp_dtype`). The
    projection stays in 16 bits.

    Parameters
    ----------
    target
        The model on which it runs. A model without such modules uses the assistant published for
        it, or is assumed to have one module, and `assumed` says so.

    Returns
    -------
    Drafter
        The head. A single module runs once for each drafted token, first on all verified tokens.
        With several modules, each drafts one position and runs on all verified tokens.

    Notes
    -----
    vLLM 0.33 (``qwen3_5_mtp.py``, ``deepseek_mtp.py``) and SGLang 0.5.23 run it so. In
    both, each GPU has the whole projection. For Qwen3-Next, Qwen3.5, Exaone and Nemotron-H,
    however, vLLM splits the projection and gathers its results.
    """
    assistant = None if target.num_mtp_modules else published_assistant(target)
    if assistant:
        return assistant_drafter(assistant, target)
    module = target.mtp_layer or _mtp_layer(target)
    head = own_layers_head(target, module, 1, 2 * target.hidden_size)
    modules = target.num_mtp_modules or 1
    rules: list[Rule] = [selection_first if target.shares_mtp_index else verified_first]
    if modules > 1:
        rules = [partial(module_in_turn, place, modules) for place in range(modules)]
    lacking = (("mtp_block", "none in the checkpoint, as if it had one"),)
    assumed = () if target.num_mtp_modules else lacking
    return one_head(target, MTP, head, *rules, trained_positions=modules, assumed=assumed)


def own_layers_head(
    target: Architecture, module: LayerGroup, num_layers: int, input_projection_size: int
) -> Architecture:
    """Return a head of layers like the layer of the target's MTP module, in the same dtypes.

    `input_projection_size` is the width that is projected down before the layers [-].
    """
    extras: dict[str, Any] = dict.fromkeys(EXTRAS)
    extras |= {name: own for name in EXTRAS if (own := getattr(target, name)) and own.in_modules}
    return replace(
        target,
        name=f"{MTP} of {target.name}",
        layers=(replace(module, count=num_layers),),
        input_projection_size=input_projection_size,
        mtp_layer=None,
        **extras,
        **_mtp_dtypes(target),
    )


def assistant_drafter(head: Architecture, target: Architecture, argument: str = "") -> Drafter:
    """Return an assistant, which reads the caches of its target and has no cache.

    `argument` names the file in errors, "" if it was not read from a file. The first pass carries
    the tokens just verified, as in vLLM 0.33 (``spec_decode/gemma4``). SGLang 0.5.23 continues from
    the last accepted token only (``frozen_kv_mtp_worker_v2.py``).
    """
    if not head.caches_read <= target.caches_kept:
        expected = f"an assistant for {target.name}, with the same KV heads and window"
        raise InputError(argument or "drafter", "other heads" if argument else head.name, expected)
    told = () if argument else HeadShape(source=head.source).told
    head = replace(head, kv_dtype=target.kv_dtype)
    return one_head(target, ASSISTANT, head, verified_first, assumed=told)


def _mtp_layer(target: Architecture) -> LayerGroup:
    """Return a layer with the target's attention and experts, and with their dtypes by default."""
    mixer, groups = taken_attention(target).mixer, target.layers
    of_mixer = next(group for group in groups if group.mixer and group.mixer.kind == mixer.kind)
    routed = (group for group in groups if group.feed_forward and group.feed_forward.experts)
    of_block = next(routed, None) or next(group for group in groups if group.feed_forward)
    as_stored = target.mtp_dtype is None
    return LayerGroup(
        count=1,
        mixer=mixer,
        feed_forward=of_block.feed_forward,
        mixer_dtype=of_mixer.mixer_dtype if as_stored else None,
        output_dtype=of_mixer.output_dtype if as_stored else None,
        ffn_dtype=of_block.ffn_dtype if as_stored else None,
    )


def _mtp_dtypes(target: Architecture) -> dict[str, Any]:
    """Return the dtypes of an MTP head if the checkpoint has another dtype for it, else {}."""
    dtype = target.mtp_dtype
    if dtype is None:
        return {}
    narrow = BYTES_PER_ELEMENT[target.activation_dtype] < 2 <= BYTES_PER_ELEMENT[dtype]
    return {
        "weight_dtype": dtype,
        "attention_dtype": None,
        "attention_activation_dtype": None,
        "expert_activation_dtype": None,
        "expert_dtype": None,
        "embedding_dtype": target.outer_dtype,  # the shared LM head keeps its dtype too
        "activation_dtype": "bf16" if narrow else target.activation_dtype,
    }
