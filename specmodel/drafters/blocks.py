"""Drafters that draft a block in one pass: DFlash, DSpark, P-EAGLE, PARD.

DFlash and DSpark are small models of the target's width whose cache is made of features of the
target; P-EAGLE is an EAGLE-3 head, PARD a model of its own, which were trained on masks.
"""

from dataclasses import replace
from pathlib import Path

from specmodel.base.errors import InputError
from specmodel.base.records import build
from specmodel.drafters.heads import (
    EAGLE3_VOCABULARY_SIZE,
    P_EAGLE,
    dense_size,
    derived_head,
    eagle3_drafter,
    grouped_attention,
    own_layers_head,
    plain_attention,
)
from specmodel.drafters.passes import (
    PARD,
    Drafter,
    Rule,
    masks_after_accepted,
    masks_after_anchor,
    masks_after_verified,
    masks_from_anchor,
)
from specmodel.drafters.published import PublishedBlock, published_block
from specmodel.layers.compressed import CompressedAttention
from specmodel.layers.markov import MarkovHead
from specmodel.models.architecture import Architecture, load_architecture

DFLASH, DSPARK = "DFlash head", "DSpark head"
"""What these drafters are called."""

USUAL_DFLASH = PublishedBlock(num_layers=5, block_size=16, has_latents=False)
USUAL_DSPARK = PublishedBlock(num_layers=5, block_size=7, has_latents=False)
USUAL_V4 = PublishedBlock(num_layers=3, block_size=7, has_latents=False)
"""Heads as they usually are: z-lab's DFlash, DeepSeek's DSpark, and that of DeepSeek-V4, with the
layers that vLLM 0.33 takes where no key says them."""

NUM_TAPS, NUM_V4_TAPS, MARKOV_RANK = 5, 3, 256
"""Layers of the target that heads usually read, and those of DeepSeek-V4, as V4.1 says of its own;
and usual rank of a Markov head [-]."""

_PARD_MODELS = {128_256: "llama-3.2-1b"}
"""Small model that PARD was trained on for a family, by its vocabulary size."""


def dflash_drafter(
    target: Architecture,
    *,
    num_layers: int | None = None,
    ffn_size: int | None = None,
    num_taps: int = NUM_TAPS,
    block_size: int | None = None,
) -> Drafter:
    """Return a DFlash head: dense layers that fill in a block of masks in one pass.

    Features of several layers of the target are projected to its width once for each token that
    was verified, and become keys and values of all layers. The tokens of a block see each other.

    Parameters
    ----------
    target
        The model it sits on, whose embedding and LM head it shares.
    num_layers
        Its layers, by default those of the head that is published for the target, or 5 [-].
    ffn_size
        Width of a feed-forward block; by default that of a dense target, or 3 times the hidden
        size for an MoE, whose few dense layers are unlike others [-].
    num_taps
        Layers of the target that it reads [-].
    block_size
        Tokens of a block, of which the first is known: it drafts one fewer; by default as is
        published, or 16 [token].

    Returns
    -------
    Drafter
        The head.

    Examples
    --------
    >>> head = dflash_drafter(load_architecture("qwen3-30b-a3b"))
    >>> [(p.name, float(p.tokens_per_sequence)) for p in head.passes(15)]
    [('context', 16.0), ('draft pass', 16.0)]
    """
    shape, told = _shape(target, "dflash", USUAL_DFLASH, num_layers, block_size)
    head, more = _dense_head(target, DFLASH, shape, ffn_size, num_taps)
    rule, longest = masks_after_anchor, shape.block_size - 1
    return _block_drafter(target, DFLASH, head, rule, longest, (*told, *more))


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

    That of a target with compressed attention (DeepSeek-V4) has layers like its modules for several
    tokens, with a window and experts, in the target's dtypes.

    Parameters
    ----------
    target
        The model it sits on.
    num_layers, num_taps
        As for `dflash_drafter`; by default 3 each for DeepSeek-V4 [-].
    ffn_size
        As for `dflash_drafter`; none for DeepSeek-V4 [-].
    block_size
        Tokens of a block, all of which draft; by default as is published, or 7 [token].
    markov_rank
        Rank of the bias that each token gives to the logits of the next [-].

    Returns
    -------
    Drafter
        The head, with a vector that tells how sure it is.

    Examples
    --------
    >>> head = dspark_drafter(load_architecture("glm-5.2"))
    >>> [(p.name, float(p.tokens_per_sequence), float(p.count)) for p in head.passes(7)][1:]
    [('draft pass', 7.0, 1.0), ('Markov step', 1.0, 7.0)]
    """
    module = target.mtp_layer
    is_own = module is not None and isinstance(module.mixer, CompressedAttention)
    usual = USUAL_V4 if is_own else USUAL_DSPARK
    shape, told = _shape(target, "dspark", usual, num_layers, block_size)
    if module is not None and is_own:
        if ffn_size is not None:
            expected = f"none, as a head of {target.name} has its experts"
            raise InputError("ffn_size", ffn_size, expected)
        inputs = (num_taps or NUM_V4_TAPS) * target.hidden_size
        head = own_layers_head(target, module, shape.num_layers, inputs)
    else:
        taps = num_taps or NUM_TAPS
        head, more = _dense_head(target, DSPARK, shape, ffn_size, taps)
        told = (*told, *more)
    size = target.vocabulary_size
    markov = MarkovHead(rank=markov_rank, vocabulary_size=size, has_confidence=True)
    head = head.model_copy(update={"name": f"{DSPARK} on {target.name}", "markov": markov})
    return _block_drafter(target, DSPARK, head, masks_from_anchor, shape.block_size, told)


def p_eagle_drafter(
    target: Architecture,
    *,
    ffn_size: int | None = None,
    vocabulary_size: int = EAGLE3_VOCABULARY_SIZE,
) -> Drafter:
    """Return a P-EAGLE head: an EAGLE-3 head that drafts all tokens in one pass with masks.

    Parameters
    ----------
    target, ffn_size, vocabulary_size
        As for `eagle3_drafter` [-] [token].

    Returns
    -------
    Drafter
        The head.

    Examples
    --------
    >>> head = p_eagle_drafter(load_architecture("qwen3-30b-a3b"))
    >>> [(p.name, float(p.tokens_per_sequence)) for p in head.passes(4)]
    [('projection', 5.0), ('draft pass', 8.0)]
    """
    drafter = eagle3_drafter(target, ffn_size=ffn_size, vocabulary_size=vocabulary_size)
    (head,) = drafter.architectures
    named = head.model_copy(update={"name": f"{P_EAGLE} on {target.name}"})
    parts = ((named, masks_after_verified),)
    told = (("draft_layers", "1 (as eagle3)"), *drafter.assumed)
    return replace(drafter, name=P_EAGLE, parts=parts, is_chain=True, assumed=told)


def pard_drafter(model: Architecture) -> Drafter:
    """Return a draft model that drafts all tokens in one pass with masks (PARD).

    Parameters
    ----------
    model
        The draft model.

    Returns
    -------
    Drafter
        One pass a step; tensor parallelism 1 unless said otherwise.

    Examples
    --------
    >>> drafter = pard_drafter(load_architecture("llama-3.2-1b"))
    >>> [float(p.tokens_per_sequence) for p in drafter.passes(8)]
    [17.0]
    """
    parts = ((model, masks_after_accepted),)
    return Drafter(name=f"{model.name} ({PARD})", parts=parts, is_chain=True)


def usual_pard_drafter(target: Architecture) -> Drafter:
    """Return the PARD model that is published for the target's family.

    Parameters
    ----------
    target
        The model, whose family is known by its vocabulary size.

    Returns
    -------
    Drafter
        The model.

    Raises
    ------
    InputError
        If none is known for the family.

    Examples
    --------
    >>> usual_pard_drafter(load_architecture("llama-3.1-70b")).name
    'Llama-3.2-1B (PARD model)'
    """
    name = _PARD_MODELS.get(target.vocabulary_size)
    if name is None:
        expected = f"a config.json with pard_token, as no PARD model for {target.name} is known"
        raise InputError("drafter", "pard", expected)
    return pard_drafter(load_architecture(name, "drafter"))


def read_block_drafter(path: str | Path, target: Architecture) -> Drafter | None:
    """Return the drafter of a block, or with masks, of a ``config.json``, None if it is another.

    Parameters
    ----------
    path
        The file, or the folder that holds it.
    target
        The model that a head sits on.

    Returns
    -------
    Drafter or None
        DFlash, DSpark or PARD.

    Raises
    ------
    InputError
        If it is such a drafter, but not for the target, or has a part that is not known.
    """
    from specmodel.drafters import block_configs as blocks  # tables for this path only
    from specmodel.models.hf.config import architecture_fields
    from specmodel.models.hf.drafting import is_draft_head
    from specmodel.models.hf.files import read_config

    file = read_config(path, "drafter")
    content = file.content
    if not blocks.is_block_head(content):
        if content.get("pard_token") is None or is_draft_head(content):
            return None
        plain = {key: value for key, value in content.items() if key != "pard_token"}
        fields = architecture_fields(plain, file.argument, file.quantisation())
        return pard_drafter(build(Architecture, file.with_origin(fields), file.argument))
    sizes = {"hidden_size": target.hidden_size, "vocabulary_size": target.vocabulary_size}
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
    target: Architecture,
    name: str,
    usual: PublishedBlock,
    num_layers: int | None,
    block_size: int | None,
) -> tuple[PublishedBlock, tuple[tuple[str, str], ...]]:
    """Return what a head is like, as given, published, or usual, and what was assumed of it."""
    known = published_block(target, name)
    shape = known or usual
    told = []
    if num_layers is not None:
        shape = shape._replace(num_layers=num_layers)
    elif not known:
        told.append(("draft_layers", f"{shape.num_layers} (usual)"))
    if block_size is not None:
        shape = shape._replace(block_size=block_size)
    elif not known:
        told.append(("draft_block", f"{shape.block_size} (usual)"))
    return shape, tuple(told)


def _dense_head(
    target: Architecture, kind: str, shape: PublishedBlock, ffn_size: int | None, num_taps: int
) -> tuple[Architecture, tuple[tuple[str, str], ...]]:
    """Return a head of dense layers with the target's vocabulary, and what was assumed of it."""
    h, dense = target.hidden_size, 0 if target.is_moe else dense_size(target)
    width = ffn_size or dense or 3 * h
    fields = {"vocabulary_size": target.vocabulary_size, "input_projection_size": num_taps * h}
    mixer = plain_attention(target) if shape.has_latents else grouped_attention(target)
    head = derived_head(target, kind, shape.num_layers, mixer, width, fields)
    rule = "as the target" if dense else "3 x hidden_size"
    return head, () if ffn_size else (("draft_ffn_size", f"{width} ({rule})"),)


def _block_drafter(
    target: Architecture,
    kind: str,
    head: Architecture,
    rule: Rule,
    longest: int,
    assumed: tuple[tuple[str, str], ...],
) -> Drafter:
    """Return a drafter of blocks, of which so many tokens are drafted."""
    if longest < 1:
        expected = "a block in which some token is drafted"
        raise InputError("block_size", longest + (rule is masks_after_anchor), expected)
    return Drafter(
        name=kind,
        parts=((head, rule),),
        is_head=True,
        is_chain=True,
        target_sizes=(target.hidden_size, target.vocabulary_size),
        block_size=longest,
        assumed=assumed,
    )
