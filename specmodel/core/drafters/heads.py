"""Derive heads from their target: its sizes, its attention, the width of its blocks."""

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from specmodel.core.base.dtypes import BYTES_PER_ELEMENT, Dtype
from specmodel.core.base.errors import InputError
from specmodel.core.base.records import as_table, build
from specmodel.core.drafters.passes import Drafter, Rule
from specmodel.core.drafters.published import HeadShape, published_head
from specmodel.core.layers.group import Mixer
from specmodel.core.layers.grouped import GroupedAttention
from specmodel.core.layers.parts import ForHeads
from specmodel.core.models.architecture import Architecture

if TYPE_CHECKING:
    from specmodel.core.layers.attention import LatentAttention


_LABELS = {"num_layers": "draft_layers", "block_size": "draft_block", "ffn_size": "draft_ffn_size"}
"""Sizes whose assumptions are listed, and their names in the list."""


def one_head(
    target: Architecture, kind: str, head: Architecture, *rules: Rule, **fields: Any
) -> Drafter:
    """Return the drafter of a head, one part for each rule, for targets of these sizes only."""
    sizes = target.hidden_size, target.vocabulary_size
    parts = tuple((head, rule) for rule in rules)
    return Drafter(name=kind, parts=parts, is_head=True, target_sizes=sizes, **fields)


DERIVED = "derived from the target"
"""Source of heads whose sizes follow from the target and from rules."""


def head_shape(
    target: Architecture, name: str, usual: HeadShape, factor: int, **given: int | None
) -> tuple[HeadShape, tuple[tuple[str, str], ...]]:
    """Return the sizes of a head, given, published or usual, and the assumptions on them.

    The usual width is that of a dense target, for others `factor` times the hidden size.
    """
    known = published_head(target, name).given(**given)
    dense = 0 if target.is_moe else dense_size(target)
    usual = usual._replace(ffn_size=dense or factor * target.hidden_size)
    rules = {"num_layers": "usual", "block_size": "usual"}
    rules["ffn_size"] = "as the target" if dense else f"{factor} x hidden_size"
    told = tuple(
        (_LABELS[field], f"{getattr(usual, field)} ({rule})")
        for field, rule in rules.items()
        if getattr(usual, field) and getattr(known, field) is None
    )
    return known.usually(**usual._asdict()), (*known.told, *told)


def derived_head(target: Architecture, kind: str, shape: HeadShape, mixer: Mixer) -> Architecture:
    """Return a head of the target's width with equal dense layers, not quantised.

    If `shape` has no vocabulary, the head has the vocabulary of the target.
    """
    is_quantised = BYTES_PER_ELEMENT[target.activation_dtype] < 2
    dtype: Dtype = "bf16" if is_quantised else target.activation_dtype
    block = {"kind": "dense", "ffn_size": shape.ffn_size}
    size = shape.vocabulary_size or target.vocabulary_size
    fields = {
        "schema_version": 2,
        "name": f"{kind} on {target.name}",
        "source": shape.source or DERIVED,
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


def taken_attention(target: Architecture) -> ForHeads:
    """Return the `ForHeads` of the target's mixer that draft heads prefer."""
    forms = [form for mixer in target.mixers if (form := mixer.for_head)]
    if not forms:
        expected = "a target with attention layers, which draft heads need"
        raise InputError("target", target.name, expected)
    return min(forms, key=attrgetter("place"))


def plain_attention(target: Architecture) -> "GroupedAttention | LatentAttention":
    """Return attention of the target's sizes over all entries, without a gate, as in Llama.

    For a target that compresses its entries, heads have the usual size.
    """
    return taken_attention(target).plain or _usual_heads(target.hidden_size)


def own_attention(target: Architecture, shape: HeadShape) -> "GroupedAttention | LatentAttention":
    """Return the attention of a head: its own sizes, latents, or groups as in its target."""
    if shape.num_heads and shape.num_kv_heads and shape.head_dim:
        return GroupedAttention(
            num_heads=shape.num_heads, num_kv_heads=shape.num_kv_heads, head_dim=shape.head_dim
        )
    if shape.has_latents:
        return plain_attention(target)
    return taken_attention(target).grouped or _usual_heads(target.hidden_size)


def _usual_heads(hidden_size: int) -> GroupedAttention:
    """Return attention with heads of 128, and 8 key-value heads where their number allows it."""
    heads = max(hidden_size // 128, 1)
    kv_heads = 8 if heads % 8 == 0 else heads
    return GroupedAttention(num_heads=heads, num_kv_heads=kv_heads, head_dim=128)


def dense_size(target: Architecture) -> int:
    """Return the width of the target's dense feed-forward blocks, 0 if it has none [-]."""
    return next((part.dense_size for part in target.feed_forwards if part.dense_size), 0)
