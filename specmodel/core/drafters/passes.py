"""Passes of a draft: which architecture runs on how many tokens, and how often in a step.

A drafter is a function from the length of a draft to the passes that make it, by one of the rules
here, the time that it takes on the host, and how often it proposes at all.
"""

from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from specmodel.core.base.errors import InputError
from specmodel.core.base.records import unchecked
from specmodel.core.base.units import LONGEST_TIME, FloatArray, Numeric, check
from specmodel.core.drafters.names import named_drafters
from specmodel.core.layers.run import Pass
from specmodel.core.layers.work import Work
from specmodel.core.models.architecture import Architecture

OwnWork = Callable[[Architecture, Pass], dict[str, Work]]
"""Function that returns the work of a pass by component, for passes of a new kind."""

Part = Literal["layers", "drawing", "projection", "context"] | OwnWork
"""Part of a model that runs in a pass. "layers" includes embedding and LM head; "drawing" adds the
sampling of tokens. For drafters, "projection" only projects the target's features, and "context"
also computes keys and values of all layers from them. A function returns any other work."""


class DraftPasses(Struct, frozen=True, eq=False):
    """Equal passes of a draft: `count` of them in a step [-].

    A token sees the tokens before it if the passes are causal, else all tokens of its pass.
    `takes_host` states whether each pass is a separate launch, for which the host needs time.
    """

    architecture: Architecture
    tokens_per_sequence: FloatArray
    count: FloatArray
    logits_per_sequence: FloatArray | None = None  # tokens whose logits are computed; None for all
    name: str = "draft pass"
    part: Part = "layers"
    is_causal: bool = True
    takes_host: bool | None = None  # None: if its layers run

    @property
    def host_passes(self) -> float:
        """Passes that cost host time for each pass of this entry: 1 or 0 [-]."""
        return float(self.part == "layers" if self.takes_host is None else self.takes_host)


PARD = named_drafters()["pard"].kind
"""Kind of a draft model that drafts all tokens in one pass."""

_SIZES = ("hidden_size", "vocabulary_size")

Passes = tuple[DraftPasses, ...]

Rule = Callable[[Architecture, FloatArray, FloatArray], Passes]
"""Function that returns the passes of an architecture, from the draft length gamma and the drafted
tokens to verify: more than gamma for a tree [token]."""


def one_at_a_time(model: Architecture, gamma: FloatArray, drafted: FloatArray) -> Passes:
    """Return one pass for each drafted token, or for each level of a tree."""
    return (DraftPasses(model, _width(gamma, drafted), gamma),)


def verified_first(model: Architecture, gamma: FloatArray, drafted: FloatArray) -> Passes:
    """Return a pass over the `drafted` + 1 tokens just verified, then gamma - 1 further passes.

    Each pass drafts one token, or one level of a tree. None runs at gamma 0.
    """
    # the first pass fills the head's cache with features of these tokens, accepted or not, as in
    # vLLM and SGLang; only the last accepted token of a sequence needs logits
    first = np.minimum(gamma, 1.0)
    return (
        DraftPasses(model, drafted + 1, first, np.ones(()), "first draft pass"),
        DraftPasses(model, _width(gamma, drafted), gamma - first),
    )


def next_and_verified_first(model: Architecture, gamma: FloatArray, drafted: FloatArray) -> Passes:
    """Return the passes of `verified_first`; the first also carries the newest token."""
    first, rest = verified_first(model, gamma, drafted)
    return replace(first, tokens_per_sequence=drafted + 2), rest


READ_AGAIN = "read again"
"""Value of `EngineProfile.draft_model_first` for a separate pass over the verified tokens."""


def read_again(model: Architecture, gamma: FloatArray, drafted: FloatArray) -> Passes:
    """Return a pass over the `drafted` + 1 tokens just verified, then one for each drafted token.

    llama.cpp 0.7.0 (``common_speculative_impl_draft_*``): the pass fills the drafter's cache, and
    its logits are not used.
    """
    first = np.minimum(gamma, 1.0)
    return (
        DraftPasses(model, drafted + 1, first, np.zeros(()), "draft pass that reads again"),
        DraftPasses(model, _width(gamma, drafted), gamma),
    )


MODEL_RULES: dict[str, Rule] = {
    "one token": one_at_a_time,
    "verified": verified_first,
    "verified and next": next_and_verified_first,
    READ_AGAIN: read_again,
}
"""Rules by the tokens that an engine gives a draft model first in a step. The last token by itself
takes a small model as long until batches are large, and an MoE less time."""


def features_first(model: Architecture, gamma: FloatArray, drafted: FloatArray) -> Passes:
    """Return the passes of `verified_first`; only the first projects the features."""
    first, rest = verified_first(model, gamma, drafted)
    return first, replace(rest, architecture=_projected(model))


def selection_first(model: Architecture, gamma: FloatArray, drafted: FloatArray) -> Passes:
    """Return the passes of `verified_first`; the first selects entries for all others."""
    first, rest = verified_first(model, gamma, drafted)
    return first, replace(rest, architecture=_without_indexers(model))


def module_in_turn(
    place: int, num_modules: int, model: Architecture, gamma: FloatArray, drafted: FloatArray
) -> Passes:
    """Return the passes of one of several modules, which draft one position after another.

    Each pass carries all tokens just verified, as the cache of the module needs them. vLLM 0.33
    (``v1/worker/gpu/spec_decode/multi_module_mtp``) and SGLang 0.5.23
    (``multi_layer_eagle_worker_v2.py``) do this; passes of SGLang carry a few more tokens.
    """
    own = gamma - place  # `place` counts the modules from 0
    rounds = np.floor(own / num_modules)
    count = rounds + np.minimum(own - num_modules * rounds, 1.0)
    return (DraftPasses(model, drafted + 1, count, np.ones(()), "draft pass"),)


def all_at_once(model: Architecture, gamma: FloatArray, drafted: FloatArray) -> Passes:
    """Return one pass for the whole draft, and none without a draft."""
    return (DraftPasses(model, drafted, np.minimum(gamma, 1.0)),)


def masks_after_anchor(model: Architecture, gamma: FloatArray, drafted: FloatArray) -> Passes:
    """Return the passes of a block drafter over the last token and a mask for each drafted one.

    DFlash in vLLM 0.33 (``v1/worker/gpu/spec_decode/dflash/speculator.py``) also projects rejected
    tokens, as the host then need not know their number.
    """
    return _block(model, gamma, drafted, gamma + 1)


def masks_from_anchor(model: Architecture, gamma: FloatArray, drafted: FloatArray) -> Passes:
    """Return the passes of `masks_after_anchor` where the last token drafts too: one mask fewer."""
    # DSpark: a step of a Markov head for each token follows, launched together with the pass
    # (spec_decode/dspark/speculator.py in vLLM 0.33)
    return _block(model, gamma, drafted, np.maximum(gamma, 1.0))


def masks_after_verified(model: Architecture, gamma: FloatArray, drafted: FloatArray) -> Passes:
    """Return a pass of a head over the verified tokens and masks for all drafted but the first."""
    # P-EAGLE: the last verified token drafts the first; only features of verified tokens are
    # projected. As vLLM 0.33 counts slots (SpeculativeConfig.max_num_new_slots_for_drafting)
    once, masks = np.minimum(gamma, 1.0), np.maximum(gamma - 1, 0.0)
    tokens, logits = drafted + 1, np.maximum(gamma, 1.0)
    return (
        DraftPasses(model, tokens, once, name="projection", part="projection"),
        DraftPasses(_projected(model), tokens + masks, once, logits),
    )


def masks_after_accepted(model: Architecture, gamma: FloatArray, drafted: FloatArray) -> Passes:
    """Return one pass of a model over the verified tokens, the new one, and masks (PARD)."""
    # rejected tokens among these 2 gamma + 1 are padding, which runs as well, as in
    # vLLM 0.33 (v1/spec_decode/utils.py)
    once, logits = np.minimum(gamma, 1.0), np.maximum(gamma, 1.0)
    return (DraftPasses(model, drafted + 1 + logits, once, logits),)


def _block(
    model: Architecture, gamma: FloatArray, drafted: FloatArray, block: FloatArray
) -> Passes:
    """Return a pass over features of verified tokens, one over the block, and Markov steps."""
    once, logits = np.minimum(gamma, 1.0), np.maximum(gamma, 1.0)
    context = DraftPasses(model, drafted + 1, once, name="context", part="context")
    masked = DraftPasses(_projected(model), block, once, logits, is_causal=False)
    if model.markov is None:
        return context, masked
    markov = DraftPasses(model, np.ones(()), gamma, name="Markov step", part=markov_step)
    return context, masked, markov


def markov_step(model: Architecture, run: Pass) -> dict[str, Work]:
    """Return the work of the bias that a drafted token adds to the logits of the next token."""
    return model.markov.step(run, model.vocabulary_size) if model.markov else {}


@lru_cache(maxsize=256)
def _projected(model: Architecture) -> Architecture:
    """Return a head without input projection, for passes that follow the projection."""
    return replace(model, input_projection_size=0)


@lru_cache(maxsize=256)
def _without_indexers(model: Architecture) -> Architecture:
    """Return a head without indexers, for passes that reuse an earlier selection."""
    layers = tuple(
        replace(group, mixer=unchecked(group.mixer, {"has_indexer": False}))
        if group.mixer and group.mixer.selects
        else group
        for group in model.layers
    )
    return unchecked(model, {"layers": layers})  # none of them selects


def _width(gamma: FloatArray, drafted: FloatArray) -> FloatArray:
    """Return the tokens of a sequence in one level of a tree: 1 in a chain [token]."""
    depth = np.maximum(gamma, 1.0)
    is_chain = bool((drafted == depth).all())
    return np.ones(()) if is_chain else np.maximum(drafted / depth, 1.0)


def refuse_tokens(verify_tokens: Numeric, is_bad: np.ndarray | bool, expected: str) -> None:
    """Raise an InputError with the first of the `verify_tokens` where `is_bad` is true, if any."""
    if np.any(is_bad):
        bad = np.broadcast_to(verify_tokens, np.shape(is_bad))[is_bad].item(0)
        raise InputError("verify_tokens", int(bad) if bad == int(bad) else bad, expected)


class Drafter(Struct, frozen=True, kw_only=True, dict=True):
    """A way to draft tokens: its passes on the GPU, or its look-up on the host.

    Parameters
    ----------
    name, parts
        Name for people. Models that run on the GPU, each with its rule; none for a look-up.
    is_head, target_sizes
        Whether it is a head on the target, which shares the target's embedding and runs at its
        tensor parallelism. The hidden size [-] and vocabulary size [token] that the target must
        have.
    lookup_time, proposal_rate
        Host time to look up one sequence's draft [s]. Share of a sequence's steps that have a
        proposal [-].
    trained_positions
        Number of tokens that it was trained to draft, if it may draft more [token].
    shares_lm_head
        Whether a head runs its target's LM head if both have the same vocabulary.
    block_size
        Most tokens that it drafts, all at once; None if it has no such limit [token].
    is_chain, assumed
        Whether it drafts chains only, no trees. Sizes that a rule chose, by name.
    """

    name: str
    parts: tuple[tuple[Architecture, Rule], ...] = ()
    is_head: bool = False
    shares_lm_head: bool = True
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
        """Kind of head, look-up or draft model, whichever model it runs."""
        if self.is_head or self.is_lookup:
            return self.name
        return PARD if self.is_chain else "draft model"

    @property
    def drafting(self) -> str:
        """Way of drafting, by which engines distinguish drafters: `machines.engine.Drafting`."""
        if self.is_lookup:
            rows = named_drafters().items()
            return next((name for name, row in rows if row.kind == self.name), "")
        kind = "head" if self.is_head else "model"
        if self.block_size is not None:
            return f"block {kind}"
        return f"parallel {kind}" if self.is_chain else kind

    @cached_property
    def architectures(self) -> tuple[Architecture, ...]:
        """Architectures that run on the GPU."""
        return tuple(architecture for architecture, _ in self.parts)

    def run_by(self, first: str) -> "Drafter":
        """Return the drafter for an engine in which draft models first read the tokens `first`."""
        is_one_by_one = self.drafting in ("head", "model")
        if not is_one_by_one or (self.is_head and first != READ_AGAIN):
            return self
        return replace(self, parts=tuple((model, MODEL_RULES[first]) for model, _ in self.parts))

    def passes(
        self, draft_length: Numeric, verify_tokens: Numeric | None = None
    ) -> tuple[DraftPasses, ...]:
        """Return the passes that make a draft, in order, with equal ones grouped.

        The draft length counts tokens per sequence, or levels of a tree. By default, the verify
        pass has the tokens of a chain for each sequence [token].
        """
        gamma = check("draft_length", draft_length, minimum=0)
        verified = gamma + 1 if verify_tokens is None else verify_tokens
        drafted = np.maximum(check("verify_tokens", verified, minimum=1) - 1, 1.0)
        found: Passes = ()
        for model, rule in self.parts:
            found += rule(model, gamma, drafted)
        return found

    @cached_property
    def idle_pass(self) -> DraftPasses:
        """Pass that a loaded drafter, other than a look-up, runs in a step without drafts.

        It is the first pass of a draft, over the newest token, and keeps the drafter's cache up to
        date. vLLM 0.33 (``v1/worker/gpu/spec_decode``) runs it for heads and models, and for the
        context of a block drafter. The LM head is not needed, and does not run outside graphs. The
        full graph of a first pass contains it, however, and is replayed here
        (``target_dependent_ar/speculator.py``: `_prefill` without `skip_sample`).
        """
        one, first = np.ones(()), replace(self.passes(1.0)[0], name="idle draft pass")
        return replace(first, count=one, tokens_per_sequence=one, logits_per_sequence=one)

    @property
    def is_made_up(self) -> bool:
        """Whether it is an MTP module that the checkpoint lacks."""
        return "mtp_block" in dict(self.assumed)

    def check_draft(self, draft_length: FloatArray, verify_tokens: Numeric) -> None:
        """Check that a draft fits a block, and is a chain if the drafter makes no trees [token]."""
        longest = float(np.max(draft_length, initial=0))
        if self.block_size is not None and longest > self.block_size:
            value = int(longest) if longest == int(longest) else longest
            expected = f"at most {self.block_size}, the block size of the {self.name}"
            if "draft_block" in dict(self.assumed):
                expected += "; to change it, name it after a colon, such as dspark:16"
            raise InputError("draft_length", value, expected)
        if self.is_chain:
            expected = f"draft_length + 1 (a chain), as the {self.name} drafts no trees"
            refuse_tokens(verify_tokens, verify_tokens != draft_length + 1, expected)

    def check_target(self, target: Architecture) -> None:
        """Check that the target has the sizes that the head needs."""
        if self.target_sizes is None:
            return
        needed = target.hidden_size, target.vocabulary_size
        for name, own, other in zip(_SIZES, self.target_sizes, needed, strict=True):
            if own != other:
                expected = f"a head with the {name} of {target.name}, {other}"
                raise InputError("drafter", f"{self.name}, for a target of {name} {own}", expected)

    def with_changes(self, argument: str, changes: Mapping[str, Any]) -> "Drafter":
        """Return a copy with fields of all its architectures replaced."""
        if not changes:
            return self
        if self.is_lookup:
            key, value = next(iter(changes.items()))
            raise InputError(f"{argument}.{key}", value, "a drafter with weights, such as eagle3")
        parts = ((model.with_changes(argument, changes), rule) for model, rule in self.parts)
        return replace(self, parts=tuple(parts))
