"""EAGLE heads: a dense layer that reads features of the target and drafts one or all tokens."""

from msgspec.structs import replace

from specmodel.core.base.units import check
from specmodel.core.drafters import heads, passes
from specmodel.core.drafters.names import named_drafters
from specmodel.core.drafters.passes import Drafter, Rule
from specmodel.core.drafters.published import HeadShape, published_head
from specmodel.core.models.architecture import Architecture

USUAL_EAGLE3 = HeadShape(taps=3, vocabulary_size=32_000)
"""Usual EAGLE-3 head: its draft vocabulary is smaller than the target's."""

P_EAGLE_LAYERS = 4
"""Layers of the heads in P-EAGLE's paper; EAGLE-3 has a single layer [-]."""

EAGLE, EAGLE3, PARALLEL, P_EAGLE = (
    named_drafters()[name].kind for name in ("eagle", "eagle3", "parallel", "p-eagle")
)
"""Names of these heads for people, in fits, and in measurements."""


def eagle_drafter(
    target: Architecture, *, ffn_size: int | None = None, vocabulary_size: int | None = None
) -> Drafter:
    """Return an EAGLE head: a 2h-to-h projection, one dense layer and an LM head, not quantised.

    Its first pass of a step reads all verified tokens, the other passes one token each.

    Parameters
    ----------
    target
        The model on which it runs.
    ffn_size
        Width of its feed-forward block; by default, the target's dense width, or 3.5 times the
        hidden size if the target has none [-].
    vocabulary_size
        Draft vocabulary, by default the target's [token].

    Examples
    --------
    >>> from specmodel.core.models.architecture import load_architecture
    >>> head = eagle_drafter(load_architecture("mixtral-8x7b"))
    >>> head.architectures[0].layers[0].feed_forward.ffn_size
    14336
    """
    return _eagle_head(target, EAGLE, passes.verified_first, ffn_size, vocabulary_size)


def eagle3_drafter(
    target: Architecture, *, ffn_size: int | None = None, vocabulary_size: int | None = None
) -> Drafter:
    """Return an EAGLE-3 head: a 3h-to-h projection, one dense layer and a reduced LM head.

    Queries, keys and values read the embedding and the features, twice the hidden size. The
    projection runs once per step, on all verified tokens, as does the first pass. If a head is
    published for the target, this one has its sizes, and `assumed` says so.

    Parameters
    ----------
    target
        As for `eagle_drafter`.
    ffn_size
        Width of its feed-forward block. The default is the width of the published head or of a
        dense target. For an MoE it is 6 times the hidden size, the median of SpecForge's heads [-].
    vocabulary_size
        Draft vocabulary; by default, the vocabulary of the published head, or 32,000 [token].
    """
    given = {"num_layers": 1, "ffn_size": ffn_size, "vocabulary_size": vocabulary_size}
    shape, told = heads.head_shape(target, "eagle3", USUAL_EAGLE3, 6, **given)
    mixer = replace(heads.own_attention(target, shape), input_size=2 * target.hidden_size)
    head = heads.derived_head(target, EAGLE3, shape, mixer)
    return heads.one_head(target, EAGLE3, head, passes.features_first, assumed=told)


def parallel_drafter(
    target: Architecture, *, ffn_size: int | None = None, vocabulary_size: int | None = None
) -> Drafter:
    """Return a parallel head: it has the shape of an EAGLE head, but one pass drafts all tokens.

    Parameters
    ----------
    target, ffn_size, vocabulary_size
        As for `eagle_drafter` [-] [token].
    """
    return _eagle_head(target, PARALLEL, passes.all_at_once, ffn_size, vocabulary_size)


def p_eagle_drafter(
    target: Architecture,
    *,
    num_layers: int = P_EAGLE_LAYERS,
    ffn_size: int | None = None,
    vocabulary_size: int | None = None,
) -> Drafter:
    """Return a P-EAGLE head: EAGLE-3's layers, which draft all tokens in one pass with masks.

    Only the first layer reads the embedding in addition to the features. As one pass is enough,
    such heads are deeper than EAGLE-3's.

    Parameters
    ----------
    target, ffn_size
        As for `eagle3_drafter` [-].
    num_layers
        Its layers, by default `P_EAGLE_LAYERS` [-].
    vocabulary_size
        Draft vocabulary; by default the target's, as in heads that speculators 0.9.0 trains without
        a smaller one [token].

    Examples
    --------
    >>> from specmodel.core.models.architecture import load_architecture
    >>> head = p_eagle_drafter(load_architecture("qwen3-30b-a3b"))
    >>> [(p.name, float(p.tokens_per_sequence)) for p in head.passes(4)]
    [('projection', 5.0), ('draft pass', 8.0)]
    """
    count = int(check("num_layers", num_layers, minimum=1, whole=True))
    size = vocabulary_size or target.vocabulary_size
    drafter = eagle3_drafter(target, ffn_size=ffn_size, vocabulary_size=size)
    (head,) = drafter.architectures
    (first,) = head.layers
    mixer = heads.own_attention(target, published_head(target, "eagle3"))
    later = (replace(first, count=count - 1, mixer=mixer),) if count > 1 else ()
    named = replace(head, name=f"{P_EAGLE} on {target.name}", layers=(first, *later))
    parts = ((named, passes.masks_after_verified),)
    usual = (("draft_layers", f"{count} (usual)"),) * (count == P_EAGLE_LAYERS)
    assumed = (*usual, *drafter.assumed)
    return replace(drafter, name=P_EAGLE, parts=parts, is_chain=True, assumed=assumed)


def _eagle_head(
    target: Architecture, kind: str, rule: Rule, ffn_size: int | None, vocabulary_size: int | None
) -> Drafter:
    """Return a head with the shape of EAGLE's and the passes of `rule`."""
    block = ffn_size or heads.dense_size(target) or 7 * target.hidden_size // 2
    shape = HeadShape(num_layers=1, taps=2, ffn_size=block, vocabulary_size=vocabulary_size)
    head = heads.derived_head(target, kind, shape, heads.plain_attention(target))
    return heads.one_head(target, kind, head, rule)
