"""Drafters: who proposes the tokens, in how many passes of which architecture.

A drafter is a function from the length of a draft to the passes that make it, the time it takes on
the host, and how often it proposes at all. Its kinds are a model of its own, a head on the target
(EAGLE, MTP), an n-gram look-up on the host, and a parallel head that drafts a block in one pass.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from specmodel.base.errors import InputError, nearest
from specmodel.base.records import is_path
from specmodel.base.units import BYTES_PER_ELEMENT, FloatArray, Numeric, check
from specmodel.records.architecture import Architecture, list_architectures, load_architecture
from specmodel.records.hardware import Dtype
from specmodel.records.layers.attention import GroupedAttention, LatentAttention
from specmodel.records.layers.feed_forward import DenseFeedForward, RoutedExperts
from specmodel.records.layers.group import LayerGroup, Mixer

EAGLE3_VOCABULARY_SIZE = 32_000
"""Reduced draft vocabulary that EAGLE-3 heads often have [token]."""

NGRAM = "ngram"
"""Name of the look-up, which has no architecture."""


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
    """

    architecture: Architecture
    tokens_per_sequence: FloatArray
    count: FloatArray


Rule = Callable[[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]
"""Tokens of each sequence in a pass [token] and passes of a step [-], from the draft length and the
tokens to be verified beside the target's own, which are more if they form a tree [token]."""


def one_at_a_time(
    draft_length: FloatArray, drafted_tokens: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return one pass for each drafted token; in a tree each carries the width of a level."""
    depth = np.maximum(draft_length, 1.0)
    if (drafted_tokens == depth).all():
        return np.ones(()), draft_length
    return np.maximum(drafted_tokens / depth, 1.0), draft_length


def all_at_once(
    draft_length: FloatArray, drafted_tokens: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return one pass for the whole draft, and none without a draft."""
    return drafted_tokens, np.minimum(draft_length, 1.0)


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
        Host time of a look-up, once a step [s].
    proposal_rate
        Share of the steps of a sequence that have a proposal at all [-].
    trained_positions
        Drafted tokens that it was trained to propose, if it is run on for more [token].
    """

    name: str
    parts: tuple[tuple[Architecture, Rule], ...] = ()
    is_head: bool = False
    lookup_time: float = 0.0
    proposal_rate: float = 1.0
    trained_positions: int | None = None

    def __post_init__(self) -> None:
        check("lookup_time", self.lookup_time, minimum=0)
        check("proposal_rate", self.proposal_rate, minimum=0, maximum=1)

    @property
    def is_lookup(self) -> bool:
        """Whether nothing runs on the GPU."""
        return not self.parts

    @property
    def architectures(self) -> tuple[Architecture, ...]:
        """What runs on the GPU."""
        return tuple(architecture for architecture, _ in self.parts)

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
            One entry for each part.
        """
        gamma = check("draft_length", draft_length, minimum=0)
        verified = gamma + 1 if verify_tokens is None else verify_tokens
        drafted = np.maximum(check("verify_tokens", verified, minimum=1) - 1, 1.0)
        return tuple(DraftPasses(model, *rule(gamma, drafted)) for model, rule in self.parts)

    def with_changes(self, argument: str, changes: Mapping[str, Any]) -> "Drafter":
        """Return a copy with fields of `Architecture` replaced in what runs on the GPU."""
        if not changes:
            return self
        if self.is_lookup:
            key, value = next(iter(changes.items()))
            raise InputError(f"{argument}.{key}", value, "a drafter with an architecture")
        parts = ((model.with_changes(argument, changes), rule) for model, rule in self.parts)
        return replace(self, parts=tuple(parts))


def model_drafter(architecture: Architecture) -> Drafter:
    """Return a drafter that is a model of its own.

    Parameters
    ----------
    architecture
        The draft model.

    Returns
    -------
    Drafter
        One pass a token; tensor parallelism 1 unless said otherwise.
    """
    return Drafter(name=architecture.name, parts=((architecture, one_at_a_time),))


def eagle_drafter(
    target: Architecture, *, ffn_size: int | None = None, vocabulary_size: int | None = None
) -> Drafter:
    """Return an EAGLE head: a 2h-to-h projection, one dense layer, an LM head; not quantised.

    Parameters
    ----------
    target
        The model it sits on.
    ffn_size
        Width of its feed-forward block; by default the target's dense width, or 3.5 times the
        hidden size where the target has none [-].
    vocabulary_size
        Draft vocabulary, by default the target's [token].

    Returns
    -------
    Drafter
        The head.

    Examples
    --------
    >>> head = eagle_drafter(load_architecture("mixtral-8x7b"))
    >>> head.architectures[0].layers[0].feed_forward.ffn_size
    14336
    """
    return _head(target, "EAGLE head", 2, ffn_size, vocabulary_size or target.vocabulary_size)


def eagle3_drafter(
    target: Architecture,
    *,
    ffn_size: int | None = None,
    vocabulary_size: int = EAGLE3_VOCABULARY_SIZE,
) -> Drafter:
    """Return an EAGLE-3 head: a 3h-to-h projection, one dense layer, a reduced LM head.

    Parameters
    ----------
    target
        The model it sits on.
    ffn_size
        As for `eagle_drafter` [-].
    vocabulary_size
        Draft vocabulary [token].

    Returns
    -------
    Drafter
        The head.
    """
    return _head(target, "EAGLE-3 head", 3, ffn_size, vocabulary_size)


def mtp_drafter(target: Architecture) -> Drafter:
    """Return a multi-token-prediction head: a 2h-to-h projection and one layer like the target's.

    Parameters
    ----------
    target
        The model it sits on; an MoE target has an MoE head.

    Returns
    -------
    Drafter
        The head, run once for each token.
    """
    routed = (part for part in target.feed_forwards if isinstance(part, RoutedExperts))
    feed_forward = next(routed, None) or next(iter(target.feed_forwards))
    layer = LayerGroup(count=1, mixer=_full_mixer(target), feed_forward=feed_forward)
    changes = {
        "name": f"MTP head of {target.name}",
        "layers": (layer,),
        "input_projection_size": 2 * target.hidden_size,
    }
    head = target.model_copy(update=changes)
    parts = ((head, one_at_a_time),)
    return Drafter(name="MTP head", parts=parts, is_head=True, trained_positions=1)


def parallel_drafter(
    target: Architecture, *, ffn_size: int | None = None, vocabulary_size: int | None = None
) -> Drafter:
    """Return a parallel head: shaped as an EAGLE head, but one pass drafts all tokens.

    Parameters
    ----------
    target
        The model it sits on.
    ffn_size, vocabulary_size
        As for `eagle_drafter` [-] [token].

    Returns
    -------
    Drafter
        The head; its pass carries `draft_length` tokens of each sequence.
    """
    size = vocabulary_size or target.vocabulary_size
    return _head(target, "parallel head", 2, ffn_size, size, all_at_once)


def ngram_drafter(*, lookup_time: float = 0.0, proposal_rate: float = 1.0) -> Drafter:
    """Return an n-gram (prompt look-up) drafter: host time only.

    Parameters
    ----------
    lookup_time
        Host time of a look-up, once a step [s].
    proposal_rate
        Share of the steps of a sequence that have a proposal; the others are plain passes [-].

    Returns
    -------
    Drafter
        The look-up.
    """
    return Drafter(name="n-gram look-up", lookup_time=lookup_time, proposal_rate=proposal_rate)


_NAMED: dict[str, tuple[Callable[[Architecture], Drafter], str]] = {
    "eagle": (
        eagle_drafter,
        "head: 2h-to-h projection, one dense layer, the target's vocabulary",
    ),
    "eagle3": (eagle3_drafter, "head: 3h-to-h projection, one dense layer, 32000 draft tokens"),
    "mtp": (mtp_drafter, "head: 2h-to-h projection and a layer of the target's kind"),
    NGRAM: (lambda _target: ngram_drafter(), "prompt look-up on the host"),
    "parallel": (parallel_drafter, "head shaped as eagle, one pass for all tokens"),
}
"""Drafters by name: how one is made for a target, and what it is."""


def list_drafters() -> list[str]:
    """Return the names that `load_drafter` knows beside those of architectures.

    Examples
    --------
    >>> list_drafters()
    ['eagle', 'eagle3', 'mtp', 'ngram', 'parallel']
    """
    return sorted(_NAMED)


def describe_drafter(name: str) -> str:
    """Return in a few words what a drafter is that `list_drafters` names."""
    return _NAMED[name][1]


def load_drafter(name: str | Path, target: Architecture) -> Drafter:
    """Return a drafter by name or path.

    Parameters
    ----------
    name
        A name that `list_drafters` or `list_architectures` gives, or the path of an architecture.
    target
        The model that a head sits on.

    Returns
    -------
    Drafter
        The drafter.

    Raises
    ------
    InputError
        If there is no such drafter.

    Examples
    --------
    >>> load_drafter("ngram", load_architecture("mixtral-8x7b")).name
    'n-gram look-up'
    """
    if isinstance(name, Path) or is_path(name):
        return model_drafter(load_architecture(name, "drafter"))
    if name in _NAMED:
        return _NAMED[name][0](target)
    known = [*list_drafters(), *list_architectures()]
    if name.lower().replace("_", "-") not in known:
        raise InputError("drafter", name, f"a path, or a known name such as {nearest(name, known)}")
    return model_drafter(load_architecture(name, "drafter"))


def _head(
    target: Architecture,
    kind: str,
    inputs: int,
    ffn_size: int | None,
    vocabulary_size: int,
    rule: Rule = one_at_a_time,
) -> Drafter:
    h = target.hidden_size
    is_quantised = BYTES_PER_ELEMENT[target.activation_dtype] < 2
    dtype: Dtype = "bf16" if is_quantised else target.activation_dtype
    block = DenseFeedForward(ffn_size=ffn_size or _dense_size(target) or 7 * h // 2)
    head = Architecture(
        schema_version=2,
        name=f"{kind} on {target.name}",
        source="derived from the target",
        hidden_size=h,
        layers=(LayerGroup(count=1, mixer=_full_mixer(target), feed_forward=block),),
        vocabulary_size=vocabulary_size,
        input_projection_size=inputs * h,
        weight_dtype=dtype,
        activation_dtype=dtype,
        kv_dtype=target.kv_dtype,
    )
    return Drafter(name=kind, parts=((head, rule),), is_head=True)


def _full_mixer(target: Architecture) -> Mixer:
    """Return attention as the target's first layer with attention has it, over all entries."""
    for mixer in target.mixers:
        if isinstance(mixer, GroupedAttention):
            return mixer.model_copy(update={"window": None})
        if isinstance(mixer, LatentAttention):
            return mixer
    raise InputError("target", target.name, "layers with attention, for a head to be built on")


def _dense_size(target: Architecture) -> int:
    """Return the width of the target's dense feed-forward blocks, 0 if all of them route."""
    for part in target.feed_forwards:
        if isinstance(part, DenseFeedForward):
            return part.ffn_size
        if not part.is_routed:  # a single expert
            return part.expert_size
    return 0
