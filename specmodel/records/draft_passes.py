"""Passes of a draft: which architecture runs on how many tokens, and how often in a step."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from specmodel.base.units import FloatArray
from specmodel.records.architecture import Architecture


@dataclass(frozen=True, eq=False, repr=False)
class DraftPasses:
    """Passes of a draft that are alike.

    Parameters
    ----------
    architecture
        What runs.
    tokens_per_sequence
        Tokens of each sequence in one pass [token].
    count
        Passes of a step [-].
    logits_per_sequence
        Tokens of each whose logits are computed; all of them if None [token].
    name
        What tables call one of them.
    """

    architecture: Architecture
    tokens_per_sequence: FloatArray
    count: FloatArray
    logits_per_sequence: FloatArray | None = None
    name: str = "draft pass"


Rule = Callable[[Architecture, FloatArray, FloatArray], tuple[DraftPasses, ...]]
"""Passes that an architecture makes, from the draft length and the tokens to be verified beside the
target's own, which are more if they form a tree [token]."""


def one_at_a_time(
    model: Architecture, draft_length: FloatArray, drafted_tokens: FloatArray
) -> tuple[DraftPasses, ...]:
    """Return one pass for each drafted token; in a tree each carries the width of a level."""
    return (DraftPasses(model, _width(draft_length, drafted_tokens), draft_length),)


def verified_first(
    model: Architecture, draft_length: FloatArray, drafted_tokens: FloatArray
) -> tuple[DraftPasses, ...]:
    """Return a pass over all tokens just verified, which drafts one, and one for each other."""
    # it gives the head's cache what the target has computed of them, accepted or not, as vLLM and
    # SGLang run it; only the last accepted one of each sequence needs logits
    first = np.minimum(draft_length, 1.0)
    return (
        DraftPasses(model, drafted_tokens + 1, first, np.ones(()), "first draft pass"),
        DraftPasses(model, _width(draft_length, drafted_tokens), draft_length - first),
    )


def features_first(
    model: Architecture, draft_length: FloatArray, drafted_tokens: FloatArray
) -> tuple[DraftPasses, ...]:
    """Return the passes of `verified_first`, of which the first alone projects the features."""
    first, rest = verified_first(model, draft_length, drafted_tokens)
    later = model.model_copy(update={"input_projection_size": 0})
    return first, replace(rest, architecture=later)


def all_at_once(
    model: Architecture, draft_length: FloatArray, drafted_tokens: FloatArray
) -> tuple[DraftPasses, ...]:
    """Return one pass for the whole draft, and none without a draft."""
    return (DraftPasses(model, drafted_tokens, np.minimum(draft_length, 1.0)),)


def _width(draft_length: FloatArray, drafted_tokens: FloatArray) -> FloatArray:
    """Return the tokens of a level: one in a chain."""
    depth = np.maximum(draft_length, 1.0)
    is_chain = bool((drafted_tokens == depth).all())
    return np.ones(()) if is_chain else np.maximum(drafted_tokens / depth, 1.0)
