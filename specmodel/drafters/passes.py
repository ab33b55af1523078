"""Passes of a draft: which architecture runs on how many tokens, and how often in a step.

A drafter is a function from the length of a draft to these passes; the rules here say which.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from specmodel.base.errors import InputError
from specmodel.base.units import LONGEST_TIME, FloatArray, Numeric, check
from specmodel.layers.sparse import SparseAttention
from specmodel.models.architecture import Architecture

Part = Literal["layers", "projection", "context", "markov"]
"""What of a drafter runs in a pass: its layers, with all that is around them; the projection of
features of the target alone; that and the keys and values that all layers make of them; or the bias
that a token gives to the logits of the next."""


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
    part
        What of it runs. All but the layers is launched with these, by no call of the host's own.
    is_causal
        Whether a token sees those before it and not all of the pass.
    """

    architecture: Architecture
    tokens_per_sequence: FloatArray
    count: FloatArray
    logits_per_sequence: FloatArray | None = None
    name: str = "draft pass"
    part: Part = "layers"
    is_causal: bool = True


PARD = "PARD model"
"""What a draft model is called that drafts all tokens in one pass."""

_SIZES = ("hidden_size", "vocabulary_size")

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


def next_and_verified_first(
    model: Architecture, draft_length: FloatArray, drafted_tokens: FloatArray
) -> tuple[DraftPasses, ...]:
    """Return the passes of `verified_first`, whose first carries the token to go on from beside."""
    first, rest = verified_first(model, draft_length, drafted_tokens)
    return replace(first, tokens_per_sequence=drafted_tokens + 2), rest


MODEL_RULES: dict[str, Rule] = {
    "one token": one_at_a_time,
    "verified": verified_first,
    "verified and next": next_and_verified_first,
}
"""What engines give a draft model first in a step: of a model as small as most are, the last token
alone costs as much until batches are large; of one that is a MoE it costs less."""


def features_first(
    model: Architecture, draft_length: FloatArray, drafted_tokens: FloatArray
) -> tuple[DraftPasses, ...]:
    """Return the passes of `verified_first`, of which the first alone projects the features."""
    first, rest = verified_first(model, draft_length, drafted_tokens)
    later = model.model_copy(update={"input_projection_size": 0})
    return first, replace(rest, architecture=later)


def selection_first(
    model: Architecture, draft_length: FloatArray, drafted_tokens: FloatArray
) -> tuple[DraftPasses, ...]:
    """Return the passes of `verified_first`, of which the first selects entries for all others."""
    first, rest = verified_first(model, draft_length, drafted_tokens)
    layers = []
    for group in model.layers:
        mixer = group.mixer
        if isinstance(mixer, SparseAttention):
            mixer = mixer.model_copy(update={"has_indexer": False})
        layers.append(group.model_copy(update={"mixer": mixer}))
    later = model.model_copy(update={"layers": tuple(layers)})
    return first, replace(rest, architecture=later)


def module_in_turn(
    place: int,
    num_modules: int,
    model: Architecture,
    draft_length: FloatArray,
    drafted_tokens: FloatArray,
) -> tuple[DraftPasses, ...]:
    """Return the passes of one of several modules that draft one position each, and then again.

    Each of them carries all tokens just verified, as the cache of the module must have them.

    Parameters
    ----------
    place, num_modules
        Which of the modules it is, from 0, and how many there are [-].
    model
        The module.
    draft_length, drafted_tokens
        As for every rule [token].

    Returns
    -------
    tuple of DraftPasses
        Those of the module, which are alike.

    Notes
    -----
    As vLLM 0.33 (``v1/worker/gpu/spec_decode/multi_module_mtp``) runs them, and SGLang 0.5.23
    (``multi_layer_eagle_worker_v2.py``), whose passes carry some tokens more.
    """
    own = draft_length - place
    rounds = np.floor(own / num_modules)
    count = rounds + np.minimum(own - num_modules * rounds, 1.0)
    return (DraftPasses(model, drafted_tokens + 1, count, np.ones(()), "draft pass"),)


def all_at_once(
    model: Architecture, draft_length: FloatArray, drafted_tokens: FloatArray
) -> tuple[DraftPasses, ...]:
    """Return one pass for the whole draft, and none without a draft."""
    return (DraftPasses(model, drafted_tokens, np.minimum(draft_length, 1.0)),)


def masks_after_anchor(
    model: Architecture, draft_length: FloatArray, drafted_tokens: FloatArray
) -> tuple[DraftPasses, ...]:
    """Return the passes of a block drafter over the last token and a mask for each drafted one.

    Parameters
    ----------
    model, draft_length, drafted_tokens
        As for every rule [token].

    Returns
    -------
    tuple of DraftPasses
        One in which features of the verified tokens become keys and values of all layers; one of
        the layers over the block, whose tokens see each other, with logits for each mask.

    Notes
    -----
    DFlash in vLLM 0.33 (``v1/worker/gpu/spec_decode/dflash/speculator.py``): tokens that were
    rejected are projected like the others, so that the host need not know how many there are.
    """
    return _block(model, draft_length, drafted_tokens, draft_length + 1)


def masks_from_anchor(
    model: Architecture, draft_length: FloatArray, drafted_tokens: FloatArray
) -> tuple[DraftPasses, ...]:
    """Return the passes of `masks_after_anchor` where the last token drafts too: one mask fewer."""
    # DSpark: steps of a Markov head follow, one for each token, all launched together with the pass
    # (spec_decode/dspark/speculator.py in vLLM 0.33)
    return _block(model, draft_length, drafted_tokens, np.maximum(draft_length, 1.0))


def masks_after_verified(
    model: Architecture, draft_length: FloatArray, drafted_tokens: FloatArray
) -> tuple[DraftPasses, ...]:
    """Return a pass of a head over the verified tokens and masks for all drafted but the first."""
    # P-EAGLE: the last verified token drafts the first; features are projected of verified tokens
    # alone. As vLLM 0.33 counts slots (SpeculativeConfig.max_num_new_slots_for_drafting)
    once, masks = np.minimum(draft_length, 1.0), np.maximum(draft_length - 1, 0.0)
    tokens, logits = drafted_tokens + 1, np.maximum(draft_length, 1.0)
    later = model.model_copy(update={"input_projection_size": 0})
    return (
        DraftPasses(model, tokens, once, name="projection", part="projection"),
        DraftPasses(later, tokens + masks, once, logits),
    )


def masks_after_accepted(
    model: Architecture, draft_length: FloatArray, drafted_tokens: FloatArray
) -> tuple[DraftPasses, ...]:
    """Return one pass of a model over the verified tokens, the new one, and masks (PARD)."""
    # of 2 K + 1 tokens those that were rejected are padding, which runs nevertheless, as vLLM 0.33
    # has it (v1/spec_decode/utils.py)
    once, logits = np.minimum(draft_length, 1.0), np.maximum(draft_length, 1.0)
    return (DraftPasses(model, drafted_tokens + 1 + logits, once, logits),)


def _block(
    model: Architecture, draft_length: FloatArray, drafted_tokens: FloatArray, block: FloatArray
) -> tuple[DraftPasses, ...]:
    """Return what becomes of features, the pass over a block, and steps of a Markov head."""
    once, logits = np.minimum(draft_length, 1.0), np.maximum(draft_length, 1.0)
    later = model.model_copy(update={"input_projection_size": 0})
    context = DraftPasses(model, drafted_tokens + 1, once, name="context", part="context")
    drafted = DraftPasses(later, block, once, logits, is_causal=False)
    if model.markov is None:
        return context, drafted
    return (
        context,
        drafted,
        DraftPasses(model, np.ones(()), draft_length, name="Markov step", part="markov"),
    )


def _width(draft_length: FloatArray, drafted_tokens: FloatArray) -> FloatArray:
    """Return the tokens of a level: one in a chain."""
    depth = np.maximum(draft_length, 1.0)
    is_chain = bool((drafted_tokens == depth).all())
    return np.ones(()) if is_chain else np.maximum(drafted_tokens / depth, 1.0)


@dataclass(frozen=True, kw_only=True)
class Drafter:
    """How tokens are drafted.

    Parameters
    ----------
    name
        Name for people.
    parts
        What runs on the GPU, and by which rule; nothing for a look-up on the host.
    is_head
        Whether it sits on the target: shares its embedding and, at the same vocabulary, its LM
        head, and runs at its tensor parallelism.
    lookup_time
        Host time of looking up the draft of one sequence [s].
    proposal_rate
        Share of the steps of a sequence that have a proposal at all [-].
    trained_positions
        Drafted tokens that it was trained to propose, if it is run on for more [token].
    target_sizes
        Hidden size [-] and vocabulary size [token] of the target that a head is for, if it sits on
        no other.
    block_size
        Tokens that it drafts at most, at once; None if it goes on as long as asked [token].
    is_chain
        Whether it drafts no trees.
    assumed
        What was taken for it by a rule, by name.
    """

    name: str
    parts: tuple[tuple[Architecture, Rule], ...] = ()
    is_head: bool = False
    lookup_time: float = 0.0
    proposal_rate: float = 1.0
    trained_positions: int | None = None
    target_sizes: tuple[int, int] | None = None
    block_size: int | None = None
    is_chain: bool = False
    assumed: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        check("lookup_time", self.lookup_time, minimum=0, maximum=LONGEST_TIME)
        check("proposal_rate", self.proposal_rate, minimum=0, maximum=1)

    @property
    def is_lookup(self) -> bool:
        """Whether nothing runs on the GPU."""
        return not self.parts

    @property
    def kind(self) -> str:
        """What it is, whichever model it runs: a head of a kind, a look-up, or a draft model."""
        if self.is_head or self.is_lookup:
            return self.name
        return PARD if self.is_chain else "draft model"

    @property
    def architectures(self) -> tuple[Architecture, ...]:
        """What runs on the GPU."""
        return tuple(architecture for architecture, _ in self.parts)

    def run_by(self, first: str) -> "Drafter":
        """Return it as an engine runs it that gives a draft model so much first (`MODEL_RULES`)."""
        if self.is_head or self.is_lookup or self.is_chain:
            return self
        return replace(self, parts=tuple((model, MODEL_RULES[first]) for model, _ in self.parts))

    def passes(
        self, draft_length: Numeric, verify_tokens: Numeric | None = None
    ) -> tuple[DraftPasses, ...]:
        """Return the passes that make a draft.

        Parameters
        ----------
        draft_length
            Tokens drafted per sequence, or levels of a tree, any shape [token].
        verify_tokens
            Tokens of each sequence in the verify pass, by default those of a chain [token].

        Returns
        -------
        tuple of DraftPasses
            Passes that are alike together, in the order of the step.
        """
        gamma = check("draft_length", draft_length, minimum=0)
        verified = gamma + 1 if verify_tokens is None else verify_tokens
        drafted = np.maximum(check("verify_tokens", verified, minimum=1) - 1, 1.0)
        return tuple(part for model, rule in self.parts for part in rule(model, gamma, drafted))

    def check_draft(self, draft_length: FloatArray, verify_tokens: Numeric) -> None:
        """Say in one line if it drafts neither so much nor such a tree [token]."""
        longest = float(np.max(draft_length, initial=0))
        if self.block_size is not None and longest > self.block_size:
            value = int(longest) if longest == int(longest) else longest
            expected = f"at most {self.block_size}, the block that the {self.name} drafts at once"
            raise InputError("draft_length", value, expected)
        is_tree = np.asarray(verify_tokens != draft_length + 1)
        if self.is_chain and is_tree.any():
            bad = np.broadcast_to(verify_tokens, is_tree.shape)[is_tree].item(0)
            value = int(bad) if bad == int(bad) else bad
            expected = f"draft_length + 1, a chain: the {self.name} drafts no trees"
            raise InputError("verify_tokens", value, expected)

    def check_target(self, target: Architecture) -> None:
        """Say in one line if it is a head for another target."""
        if self.target_sizes is None:
            return
        needed = target.hidden_size, target.vocabulary_size
        for name, own, other in zip(_SIZES, self.target_sizes, needed, strict=True):
            if own != other:
                expected = f"a head for the {name} {other} of {target.name}"
                raise InputError("drafter", f"{self.name}, for a target of {name} {own}", expected)

    def with_changes(self, argument: str, changes: Mapping[str, Any]) -> "Drafter":
        """Return a copy with fields of `Architecture` replaced in what runs on the GPU."""
        if not changes:
            return self
        if self.is_lookup:
            key, value = next(iter(changes.items()))
            raise InputError(f"{argument}.{key}", value, "a drafter with an architecture")
        parts = ((model.with_changes(argument, changes), rule) for model, rule in self.parts)
        return replace(self, parts=tuple(parts))
