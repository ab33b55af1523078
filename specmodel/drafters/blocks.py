"""Drafters that draft a block in one pass: DFlash, DSpark, P-EAGLE, PARD.

DFlash and DSpark are small models of the target's width whose cache is made of features of the
target. P-EAGLE is an EAGLE-3 head and PARD a model of its own, both trained on masks.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from specmodel.base.errors import InputError
from specmodel.base.records import build
from specmodel.drafters.heads import (
    P_EAGLE,
    dense_size,
    derived_head,
    eagle3_drafter,
    one_head,
    own_attention,
    own_layers_head,
)
from specmodel.drafters.names import DRAFTERS
from specmodel.drafters.passes import (
    PARD,
    Drafter,
    masks_after_accepted,
    masks_after_anchor,
    masks_after_verified,
    masks_from_anchor,
)
from specmodel.drafters.published import HeadShape, published_head
from specmodel.layers.markov import MarkovHead
from specmodel.models.architecture import Architecture, load_architecture

DFLASH, DSPARK = DRAFTERS["dflash"].kind, DRAFTERS["dspark"].kind
"""Names of these drafters for people."""

USUAL_DFLASH = HeadShape(num_layers=5, block_size=16, taps=5)
USUAL_DSPARK = HeadShape(num_layers=5, block_size=7, taps=5)
USUAL_V4 = HeadShape(num_layers=3, block_size=7, taps=3)
"""Heads as they usually are: z-lab's DFlash, DeepSeek's DSpark, and that of DeepSeek-V4, with the
layers that vLLM 0.33 takes where no key says them, and as many taps as V4.1 has."""

P_EAGLE_LAYERS = 4
"""Layers of P-EAGLE's own heads, whose paper sets them beside EAGLE-3's single one [-]."""

MARKOV_RANK = 256
"""Usual rank of a Markov head [-]."""

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

_PARD_MODELS = {128_256: "llama-3.2-1b"}
"""Small model that PARD was trained on for a family, by its vocabulary size."""


def dflash_drafter(
    target: Architecture,
    *,
    num_layers: int | None = None,
    ffn_size: int | None = None,
    num_taps: int | None = None,
    block_size: int | None = None,
) -> Drafter:
    """Return a DFlash head: dense layers that fill in a block of masks in one pass.

    Features of several layers of the target are projected to its width once for each token that
    was verified, and become keys and values of all layers. The tokens of a block see each other.

    Parameters
    ----------
    target
        The model it sits on, whose embedding and LM head it shares.
    num_layers, num_taps
        Its layers, by default those of the head that is published for the target, or 5; and layers
        of the target that it reads, by default as is published, or 5 [-].
    ffn_size
        Width of a feed-forward block; by default as is published, or that of a dense target, or 3
        times the hidden size for an MoE, whose few dense layers are unlike others [-].
    block_size
        Tokens of a block, of which the first is known: it drafts one fewer; by default as is
        published, or 16 [token].

    Examples
    --------
    >>> head = dflash_drafter(load_architecture("qwen3-30b-a3b"))
    >>> [(p.name, float(p.tokens_per_sequence)) for p in head.passes(15)]
    [('context', 16.0), ('draft pass', 16.0)]
    """
    given = {"num_layers": num_layers, "block_size": block_size}
    given |= {"taps": num_taps, "ffn_size": ffn_size}
    shape, told = _shape(target, "dflash", USUAL_DFLASH, given)
    head, more = _dense_head(target, DFLASH, shape)
    longest = _drafted_at_most(shape.block_size or 0, known=1)
    own = {"is_chain": True, "block_size": longest, "assumed": (*told, *more)}
    return one_head(target, DFLASH, head, masks_after_anchor, **own)


def dspark_drafter(
    target: Architecture,
    *,
    num_layers: int | None = None,
    ffn_size: int | None = None,
    num_taps: int | None = None,
    block_size: int | None = None,
    markov_rank: int = MARKOV_RANK,
) -> Drafter:
    """Return a DSpark head: a DFlash head whose last known token drafts too, and a Markov head.

    On a target with compressed attention (DeepSeek-V4), its layers are like those of the target's
    MTP modules: with a window and experts, in the target's dtypes.

    Parameters
    ----------
    target, num_layers, num_taps, ffn_size
        As for `dflash_drafter`; for DeepSeek-V4 by default 3 layers and 3 taps, and no width [-].
    block_size
        Tokens of a block, all of which draft; by default as is published, or 7 [token].
    markov_rank
        Rank of the bias that each token gives to the logits of the next [-].

    Examples
    --------
    >>> head = dspark_drafter(load_architecture("glm-5.2"))
    >>> [(p.name, float(p.tokens_per_sequence), float(p.count)) for p in head.passes(7)][1:]
    [('draft pass', 7.0, 1.0), ('Markov step', 1.0, 7.0)]
    """
    module = target.mtp_layer
    is_own = module is not None and module.mixer is not None and module.mixer.fills_blocks
    usual = USUAL_V4 if is_own else USUAL_DSPARK
    given = {"num_layers": num_layers, "block_size": block_size}
    given |= {"taps": num_taps, "ffn_size": ffn_size}
    shape, told = _shape(target, "dspark", usual, given)
    if module is not None and is_own:
        if ffn_size is not None:
            expected = f"none, as a head of {target.name} has its experts"
            raise InputError("ffn_size", ffn_size, expected)
        inputs = (shape.taps or 0) * target.hidden_size
        head = own_layers_head(target, module, shape.num_layers or 0, inputs)
    else:
        head, more = _dense_head(target, DSPARK, shape)
        told = (*told, *more)
    size = target.vocabulary_size
    markov = MarkovHead(rank=markov_rank, vocabulary_size=size, has_confidence=True)
    head = replace(head, name=f"{DSPARK} on {target.name}", markov=markov)
    longest = _drafted_at_most(shape.block_size or 0, known=0)
    own = {"is_chain": True, "block_size": longest, "assumed": told}
    return one_head(target, DSPARK, head, masks_from_anchor, **own)


def p_eagle_drafter(
    target: Architecture,
    *,
    num_layers: int = P_EAGLE_LAYERS,
    ffn_size: int | None = None,
    vocabulary_size: int | None = None,
) -> Drafter:
    """Return a P-EAGLE head: EAGLE-3's layers, of which one pass drafts all tokens with masks.

    Only the first layer reads the embedding beside the features. As one pass is all it takes, such
    heads are deeper than EAGLE-3's.

    Parameters
    ----------
    target, ffn_size
        As for `eagle3_drafter` [-].
    num_layers
        Its layers, by default `P_EAGLE_LAYERS` [-].
    vocabulary_size
        Draft vocabulary; by default the target's, as speculators 0.9.0 trains a head where no
        smaller one is asked for [token].

    Examples
    --------
    >>> head = p_eagle_drafter(load_architecture("qwen3-30b-a3b"))
    >>> [(p.name, float(p.tokens_per_sequence)) for p in head.passes(4)]
    [('projection', 5.0), ('draft pass', 8.0)]
    """
    size = vocabulary_size or target.vocabulary_size
    drafter = eagle3_drafter(target, ffn_size=ffn_size, vocabulary_size=size)
    (head,) = drafter.architectures
    (first,) = head.layers
    mixer = own_attention(target, published_head(target, "eagle3"))
    later = (replace(first, count=num_layers - 1, mixer=mixer),) if num_layers > 1 else ()
    named = replace(head, name=f"{P_EAGLE} on {target.name}", layers=(first, *later))
    parts = ((named, masks_after_verified),)
    told = (("draft_layers", f"{num_layers} (usual)"), *drafter.assumed)
    return replace(drafter, name=P_EAGLE, parts=parts, is_chain=True, assumed=told)


def pard_drafter(model: Architecture) -> Drafter:
    """Return a draft model that drafts all tokens in one pass with masks (PARD).

    Parameters
    ----------
    model
        The draft model.

    Examples
    --------
    >>> drafter = pard_drafter(load_architecture("llama-3.2-1b"))
    >>> [float(p.tokens_per_sequence) for p in drafter.passes(8)]
    [17.0]
    """
    parts = ((model, masks_after_accepted),)
    return Drafter(name=f"{model.name} ({PARD})", parts=parts, is_chain=True)


def usual_pard_drafter(target: Architecture) -> Drafter:
    """Return the PARD model published for the target's family, which its vocabulary size tells.

    >>> usual_pard_drafter(load_architecture("llama-3.1-70b")).name
    'Llama-3.2-1B (PARD model)'
    """
    name = _PARD_MODELS.get(target.vocabulary_size)
    if name is None:
        expected = f"a config.json with pard_token, as no PARD model for {target.name} is known"
        raise InputError("drafter", "pard", expected)
    return pard_drafter(load_architecture(name, "drafter"))


def read_block_drafter(path: str | Path, target: Architecture) -> Drafter | None:
    """Return the DFlash, DSpark or PARD drafter of a ``config.json``, None if it is another.

    `path` is the file or its folder. An InputError says if the drafter is for another target or has
    a part that is not known.
    """
    from specmodel.drafters import block_configs as blocks  # tables for this path only
    from specmodel.models.hf.config import architecture_fields
    from specmodel.models.hf.drafting import is_draft_head
    from specmodel.models.hf.files import read_config

    file = read_config(path, "drafter")
    content = file.content
    sizes_of_v4 = blocks.dspark_of_v4(content, file.argument)
    if sizes_of_v4:
        own = {key: value for key, value in content.items() if key not in _OWN_OF_V4}
        own["architectures"] = ["DeepseekV4ForCausalLM"]
        fields = architecture_fields(own, file.argument, file.quantisation())
        model = build(Architecture, file.with_origin(fields), file.argument)
        return dspark_drafter(model, **sizes_of_v4)
    if not blocks.is_block_head(content):
        if content.get("pard_token") is None or is_draft_head(content):
            return None
        plain = {key: value for key, value in content.items() if key != "pard_token"}
        fields = architecture_fields(plain, file.argument, file.quantisation())
        return pard_drafter(build(Architecture, file.with_origin(fields), file.argument))
    sizes = {"hidden_size": target.hidden_size, "vocabulary_size": target.vocabulary_size}
    sizes["num_streams"] = getattr(target.residuals, "num_streams", 1)
    read = blocks.block_head(content, file.argument, **sizes)
    head = build(Architecture, file.with_origin(read.fields), file.argument)
    rule = masks_from_anchor if read.drafts_from_anchor else masks_after_anchor
    return Drafter(
        name=DSPARK if read.is_chained else DFLASH,
        parts=((head, rule),),
        is_head=True,
        is_chain=True,
        block_size=read.block_size,
    )


def _shape(
    target: Architecture, name: str, usual: HeadShape, given: Mapping[str, int | None]
) -> tuple[HeadShape, tuple[tuple[str, str], ...]]:
    """Return the sizes of a head as given, published or usual, and what is assumed of them."""
    known = published_head(target, name).given(**given)
    left = {"num_layers": "draft_layers", "block_size": "draft_block"}
    told = tuple(
        (label, f"{getattr(usual, field)} (usual)")
        for field, label in left.items()
        if getattr(known, field) is None
    )
    sizes = {field: getattr(usual, field) for field in (*left, "taps")}
    return known.usually(**sizes), (*known.told, *told)


def _dense_head(
    target: Architecture, kind: str, shape: HeadShape
) -> tuple[Architecture, tuple[tuple[str, str], ...]]:
    """Return a head of dense layers, and what was assumed of their width."""
    dense = 0 if target.is_moe else dense_size(target)
    width = dense or 3 * target.hidden_size
    rule = "as the target" if dense else "3 x hidden_size"
    told = () if shape.ffn_size else (("draft_ffn_size", f"{width} ({rule})"),)
    filled = shape.usually(ffn_size=width)
    return derived_head(target, kind, filled, own_attention(target, filled)), told


def _drafted_at_most(block_size: int, known: int) -> int:
    """Return the tokens of a block that are drafted, as the first may be known [token]."""
    if block_size <= known:
        raise InputError("block_size", block_size, "a block in which some token is drafted")
    return block_size - known
