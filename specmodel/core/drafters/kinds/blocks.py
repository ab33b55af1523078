"""Heads that draft a block in one pass, DFlash and DSpark.

They are small models of the target's width. Their cache is computed from features of the target.
"""

from msgspec.structs import replace

from specmodel.core.base.errors import InputError
from specmodel.core.base.units import check
from specmodel.core.drafters.heads import derived_head, head_shape, one_head, own_attention
from specmodel.core.drafters.kinds.mtp import own_layers_head
from specmodel.core.drafters.names import named_drafters
from specmodel.core.drafters.passes import Drafter, masks_after_anchor, masks_from_anchor
from specmodel.core.drafters.published import HeadShape
from specmodel.core.layers.markov import MarkovHead
from specmodel.core.models.architecture import Architecture

DFLASH, DSPARK = (named_drafters()[name].kind for name in ("dflash", "dspark"))
"""Names of these drafters for people."""

USUAL_DFLASH = HeadShape(num_layers=5, block_size=16, taps=5)
USUAL_DSPARK = HeadShape(num_layers=5, block_size=7, taps=5)
USUAL_V4 = HeadShape(num_layers=3, block_size=7, taps=3)
"""Usual heads: z-lab's DFlash, DeepSeek's DSpark, and the DSpark head of DeepSeek-V4. Its number of
layers is vLLM 0.33's default, and its number of taps is that of V4.1."""

MARKOV_RANK = 256
"""Usual rank of a Markov head [-]."""


def dflash_drafter(
    target: Architecture,
    *,
    num_layers: int | None = None,
    ffn_size: int | None = None,
    num_taps: int | None = None,
    block_size: int | None = None,
) -> Drafter:
    """Return a DFlash head: dense layers that fill in a block of masks in one pass.

    For each verified token, the head projects features of several target layers to its width once.
    They become keys and values of all its layers. The tokens of a block see each other.

    Parameters
    ----------
    target
        The model on which it runs. It shares the model's embedding and LM head.
    num_layers, num_taps
        Layers of the head, and layers of the target that it reads. By default, as in the head
        published for the target, or else 5 [-].
    ffn_size
        Width of a feed-forward block. The default is the published width, or the width of a dense
        target. For an MoE it is 3 times the hidden size, as its few dense layers are unusual [-].
    block_size
        Tokens of a block. The first one is known, so that the head drafts one fewer. By default,
        the published size, or else 16 [token].

    Examples
    --------
    >>> from specmodel.core.models.architecture import load_architecture
    >>> head = dflash_drafter(load_architecture("qwen3-30b-a3b"))
    >>> [(p.name, float(p.tokens_per_sequence)) for p in head.passes(15)]
    [('context', 16.0), ('draft pass', 16.0)]
    """
    given = {"num_layers": num_layers, "block_size": block_size, "taps": num_taps}
    shape, told = head_shape(target, "dflash", USUAL_DFLASH, 3, **given, ffn_size=ffn_size)
    head = derived_head(target, DFLASH, shape, own_attention(target, shape))
    longest = _drafted_at_most(shape.block_size or 0, known=1)
    own = {"is_chain": True, "block_size": longest, "assumed": told}
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

    On a target with compressed attention (DeepSeek-V4), its layers resemble the target's MTP
    modules: they have a window and experts, in the target's dtypes.

    Parameters
    ----------
    target, num_layers, num_taps, ffn_size
        As for `dflash_drafter`. DeepSeek-V4 has 3 layers and 3 taps by default, and no width [-].
    block_size
        Tokens of a block, which are all drafted; by default, the published size, or else 7 [token].
    markov_rank
        Rank of the bias that each token adds to the logits of the next one [-].

    Examples
    --------
    >>> from specmodel.core.models.architecture import load_architecture
    >>> head = dspark_drafter(load_architecture("glm-5.2"))
    >>> [(p.name, float(p.tokens_per_sequence), float(p.count)) for p in head.passes(7)][1:]
    [('draft pass', 7.0, 1.0), ('Markov step', 1.0, 7.0)]
    """
    module = target.mtp_layer
    of_module = module and module.mixer and module.mixer.for_head
    is_own = bool(of_module and of_module.fills_blocks)
    given = {"num_layers": num_layers, "block_size": block_size, "taps": num_taps}
    usual, width = (USUAL_V4, 0) if is_own else (USUAL_DSPARK, ffn_size)
    shape, told = head_shape(target, "dspark", usual, 3, **given, ffn_size=width)
    if module is not None and is_own:
        if ffn_size is not None:
            expected = f"A head of {target.name} has experts instead. Remove `ffn_size`."
            raise InputError("ffn_size", ffn_size, expected)
        inputs = (shape.taps or 0) * target.hidden_size
        head = own_layers_head(target, module, shape.num_layers or 0, inputs)
    else:
        head = derived_head(target, DSPARK, shape, own_attention(target, shape))
    size = target.vocabulary_size
    markov = MarkovHead(rank=markov_rank, vocabulary_size=size, has_confidence=True)
    head = replace(head, name=f"{DSPARK} on {target.name}", markov=markov)
    longest = _drafted_at_most(shape.block_size or 0, known=0)
    own = {"is_chain": True, "block_size": longest, "assumed": told}
    return one_head(target, DSPARK, head, masks_from_anchor, **own)


def _drafted_at_most(block_size: int, known: int) -> int:
    """Return the number of drafted tokens of a block: all but the `known` tokens [token]."""
    return int(check("block_size", block_size, minimum=known + 1, whole=True)) - known
