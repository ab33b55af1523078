"""EAGLE, MTP and parallel heads: what they take over from their target, and what is their own."""

from dataclasses import replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specmodel.base.dtypes import BYTES_PER_ELEMENT, Dtype
from specmodel.base.errors import InputError
from specmodel.base.records import as_table, build
from specmodel.drafters.names import DRAFTERS
from specmodel.drafters.passes import (
    Drafter,
    Rule,
    all_at_once,
    features_first,
    masks_after_verified,
    module_in_turn,
    selection_first,
    verified_first,
)
from specmodel.drafters.published import HeadShape, published_assistant, published_head
from specmodel.layers.group import LayerGroup, Mixer
from specmodel.layers.grouped import GroupedAttention
from specmodel.layers.parts import TokenMixer
from specmodel.models.architecture import Architecture
from specmodel.models.shape import EXTRAS

if TYPE_CHECKING:
    from specmodel.layers.attention import LatentAttention

EAGLE3_VOCABULARY_SIZE = 32_000
"""Reduced draft vocabulary that EAGLE-3 heads often have [token]."""

EAGLE, EAGLE3, MTP = (DRAFTERS[name].kind for name in ("eagle", "eagle3", "mtp"))
PARALLEL, P_EAGLE = DRAFTERS["parallel"].kind, DRAFTERS["p-eagle"].kind
ASSISTANT = "assistant"
"""Names of heads for people, by which fits and measurements know them."""


def eagle_drafter(
    target: Architecture, *, ffn_size: int | None = None, vocabulary_size: int | None = None
) -> Drafter:
    """Return an EAGLE head: a 2h-to-h projection, one dense layer, an LM head; not quantised.

    Its first pass of a step carries all tokens that were verified, the others one each.

    Parameters
    ----------
    target
        The model it sits on.
    ffn_size
        Width of its feed-forward block; by default the target's dense width, or 3.5 times the
        hidden size where the target has none [-].
    vocabulary_size
        Draft vocabulary, by default the target's [token].

    Examples
    --------
    >>> from specmodel.models.architecture import load_architecture
    >>> head = eagle_drafter(load_architecture("mixtral-8x7b"))
    >>> head.architectures[0].layers[0].feed_forward.ffn_size
    14336
    """
    return _eagle_head(target, EAGLE, verified_first, ffn_size, vocabulary_size)


def eagle3_drafter(
    target: Architecture,
    *,
    ffn_size: int | None = None,
    vocabulary_size: int | None = None,
) -> Drafter:
    """Return an EAGLE-3 head: a 3h-to-h projection, one dense layer, a reduced LM head.

    Queries, keys and values read the embedding beside the features, so twice the hidden size. The
    projection runs once a step, on the tokens that were verified, as the first pass does. Where a
    head is published for the target, it has the sizes of that one, which `assumed` says.

    Parameters
    ----------
    target
        As for `eagle_drafter`.
    ffn_size
        Width of its feed-forward block; by default that of the published head, else that of a
        dense target, or 6 times the hidden size for an MoE, the median of SpecForge's heads [-].
    vocabulary_size
        Draft vocabulary; by default that of the published head, or 32,000 [token].
    """
    h, known = target.hidden_size, published_head(target, "eagle3")
    known = known.given(ffn_size=ffn_size, vocabulary_size=vocabulary_size)
    rule = 0 if known.ffn_size else (0 if target.is_moe else dense_size(target)) or 6 * h
    told = f"{rule} ({'6 x hidden_size' if rule == 6 * h else 'as the target'})"
    assumed = (*known.told, *((("draft_ffn_size", told),) if rule else ()))
    usual = {"num_layers": 1, "taps": 3, "vocabulary_size": EAGLE3_VOCABULARY_SIZE}
    shape = known.usually(**usual, ffn_size=rule)
    mixer = replace(own_attention(target, shape), input_size=2 * h)
    head = derived_head(target, EAGLE3, shape, mixer)
    return one_head(target, EAGLE3, head, features_first, assumed=assumed)


def mtp_drafter(target: Architecture) -> Drafter:
    """Return a multi-token-prediction head: a 2h-to-h projection and one layer like the target's.

    The projection and the target's LM head run in each pass. The layer is the one that the target
    says (`Architecture.mtp_layer`), or has the target's attention, over all entries and with a
    cache of its own, even where most layers are recurrent, and experts where the target has them.
    Its weights have the target's dtypes, or the dtype that a checkpoint keeps them in
    (`Architecture.mtp_dtype`); the projection stays in 16 bits.

    Parameters
    ----------
    target
        The model it sits on. One without such modules has the assistant that is published for it,
        or is taken to have one, which `assumed` says.

    Returns
    -------
    Drafter
        The head. A single module runs once for each token, first on all that were verified; of
        several, each drafts one position and runs on all tokens that were verified.

    Notes
    -----
    As vLLM 0.33 (``qwen3_5_mtp.py``, ``deepseek_mtp.py``) and SGLang 0.5.23 run it. In both, each
    GPU has the whole projection, except that vLLM cuts and then gathers those of Qwen3-Next,
    Qwen3.5, Exaone and Nemotron-H.
    """
    assistant = None if target.num_mtp_modules else published_assistant(target)
    if assistant:
        told = HeadShape(source=assistant.source).told
        return replace(_assistant(assistant, target, "drafter"), assumed=told)
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
    """Return a head of layers like that of an MTP module of the target, in the module's dtypes.

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


def parallel_drafter(
    target: Architecture, *, ffn_size: int | None = None, vocabulary_size: int | None = None
) -> Drafter:
    """Return a parallel head: shaped as an EAGLE head, but one pass drafts all tokens.

    Parameters
    ----------
    target, ffn_size, vocabulary_size
        As for `eagle_drafter` [-] [token].
    """
    return _eagle_head(target, PARALLEL, all_at_once, ffn_size, vocabulary_size)


def _eagle_head(
    target: Architecture, kind: str, rule: Rule, ffn_size: int | None, vocabulary_size: int | None
) -> Drafter:
    """Return a head shaped as EAGLE's, of which a rule says the passes."""
    block = ffn_size or dense_size(target) or 7 * target.hidden_size // 2
    shape = HeadShape(num_layers=1, taps=2, ffn_size=block, vocabulary_size=vocabulary_size)
    head = derived_head(target, kind, shape, plain_attention(target))
    return one_head(target, kind, head, rule)


def one_head(
    target: Architecture, kind: str, head: Architecture, *rules: Rule, **fields: Any
) -> Drafter:
    """Return the drafter of a head, run by one rule or several, for targets of these sizes only."""
    sizes = target.hidden_size, target.vocabulary_size
    parts = tuple((head, rule) for rule in rules)
    return Drafter(name=kind, parts=parts, is_head=True, target_sizes=sizes, **fields)


def derived_head(target: Architecture, kind: str, shape: HeadShape, mixer: Mixer) -> Architecture:
    """Return a head of the target's width, of dense layers that are alike; not quantised.

    Without a vocabulary of its own, it has that of the target.
    """
    is_quantised = BYTES_PER_ELEMENT[target.activation_dtype] < 2
    dtype: Dtype = "bf16" if is_quantised else target.activation_dtype
    block = {"kind": "dense", "ffn_size": shape.ffn_size}
    size = shape.vocabulary_size or target.vocabulary_size
    fields = {
        "schema_version": 2,
        "name": f"{kind} on {target.name}",
        "source": shape.source or "derived from the target",
        "hidden_size": target.hidden_size,
        "layers": [{"count": shape.num_layers, "mixer": as_table(mixer), "feed_forward": block}],
        "weight_dtype": dtype,
        "activation_dtype": dtype,
        "kv_dtype": target.kv_dtype,
        "vocabulary_size": size,
        "input_vocabulary_size": None if size == target.vocabulary_size else target.vocabulary_size,
        "input_projection_size": (shape.taps or 0) * target.hidden_size,
    }
    return build(Architecture, fields, "drafter")


def read_head(path: str | Path, target: Architecture) -> Drafter | None:
    """Return the EAGLE head or assistant of a ``config.json``, None if it is of another model."""
    from specmodel.drafters.eagle3_configs import (
        drafts_with_masks,
        eagle3_fields,
        is_first_version,
    )
    from specmodel.models.hf import gemma
    from specmodel.models.hf.drafting import is_draft_head
    from specmodel.models.hf.files import read_config

    file = read_config(path, "drafter")
    if not is_draft_head(file.content):
        return None
    sizes = {"hidden_size": target.hidden_size, "vocabulary_size": target.vocabulary_size}
    if file.content.get("model_type") in gemma.ASSISTANTS:
        fields = gemma.assistant_fields(file.content, file.argument, **sizes)
        assistant = build(Architecture, file.with_origin(fields), file.argument)
        return _assistant(assistant, target, file.argument)
    fields = eagle3_fields(file.content, file.argument, **sizes)
    head = build(Architecture, file.with_origin(fields), file.argument)
    if is_first_version(file.content):
        return one_head(target, EAGLE, head, verified_first)
    is_masked = drafts_with_masks(file.content)
    name, rule = (P_EAGLE, masks_after_verified) if is_masked else (EAGLE3, features_first)
    return Drafter(name=name, parts=((head, rule),), is_head=True, is_chain=is_masked)


def _assistant(head: Architecture, target: Architecture, argument: str) -> Drafter:
    """Return an assistant, which attends to caches of its target and keeps none of its own.

    Its first pass carries the tokens just verified, as in vLLM 0.33 (``spec_decode/gemma4``);
    SGLang 0.5.23 goes on from the last accepted one alone (``frozen_kv_mtp_worker_v2.py``).
    """
    if not head.caches_read <= target.caches_kept:
        expected = f"layers whose heads and window are those of caches of {target.name}"
        raise InputError(f"{argument} text_config", "other heads", expected)
    head = replace(head, kv_dtype=target.kv_dtype)
    return one_head(target, ASSISTANT, head, verified_first)


def _mtp_layer(target: Architecture) -> LayerGroup:
    """Return a layer with the target's attention and experts, and with their dtypes by default."""
    mixer, groups = _attention(target), target.layers
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
    """Return the dtypes of an MTP head that a checkpoint keeps in another dtype than the rest."""
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
        "embedding_dtype": target.outer_dtype,  # it shares the LM head, whose dtype stays as well
        "activation_dtype": "bf16" if narrow else target.activation_dtype,
    }


def _attention(target: Architecture) -> TokenMixer:
    """Return the target's attention: with an indexer if it has one, else over all entries."""
    forms = [form for mixer in target.mixers if (form := mixer.for_head)]
    if not forms:
        expected = "layers with attention, for a head to be built on"
        raise InputError("target", target.name, expected)
    return min(forms, key=itemgetter(0))[1]


def plain_attention(target: Architecture) -> "GroupedAttention | LatentAttention":
    """Return plain attention of the target's sizes over all entries: as Llama's, without a gate.

    For a target that compresses its entries, heads have the usual size.
    """
    return _attention(target).plain or _usual_heads(target.hidden_size)


def grouped_attention(target: Architecture) -> GroupedAttention:
    """Return grouped attention over all entries, without a gate: usual heads for latents."""
    return _attention(target).grouped or _usual_heads(target.hidden_size)


def own_attention(target: Architecture, shape: HeadShape) -> "GroupedAttention | LatentAttention":
    """Return the attention of a head: of its sizes, over latents, or grouped as its target's."""
    if shape.num_heads and shape.num_kv_heads and shape.head_dim:
        return GroupedAttention(
            num_heads=shape.num_heads, num_kv_heads=shape.num_kv_heads, head_dim=shape.head_dim
        )
    return plain_attention(target) if shape.has_latents else grouped_attention(target)


def _usual_heads(hidden_size: int) -> GroupedAttention:
    """Return attention with heads of 128, and 8 key-value heads where their number allows it."""
    heads = max(hidden_size // 128, 1)
    kv_heads = 8 if heads % 8 == 0 else heads
    return GroupedAttention(num_heads=heads, num_kv_heads=kv_heads, head_dim=128)


def dense_size(target: Architecture) -> int:
    """Return the width of the target's dense feed-forward blocks, 0 if all of them route [-]."""
    return next((part.dense_size for part in target.feed_forwards if part.dense_size), 0)
