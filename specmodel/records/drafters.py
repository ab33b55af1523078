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
from specmodel.base.records import build, is_path, read_mapping, spellings
from specmodel.base.units import BYTES_PER_ELEMENT, LONGEST_TIME, Numeric, check
from specmodel.records.architecture import (
    Architecture,
    config_file,
    list_architectures,
    load_architecture,
)
from specmodel.records.draft_passes import (
    DraftPasses,
    Rule,
    all_at_once,
    features_first,
    one_at_a_time,
    verified_first,
)
from specmodel.records.hardware import Dtype
from specmodel.records.layers.attention import GroupedAttention, LatentAttention
from specmodel.records.layers.feed_forward import DenseFeedForward, RoutedExperts
from specmodel.records.layers.group import LayerGroup, Mixer

EAGLE3_VOCABULARY_SIZE = 32_000
"""Reduced draft vocabulary that EAGLE-3 heads often have [token]."""

NGRAM = "ngram"
"""Name of the look-up, which has no architecture."""


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
    """

    name: str
    parts: tuple[tuple[Architecture, Rule], ...] = ()
    is_head: bool = False
    lookup_time: float = 0.0
    proposal_rate: float = 1.0
    trained_positions: int | None = None

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
        return self.name if self.is_head or self.is_lookup else "draft model"

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
            Passes that are alike together, in the order of the step.
        """
        gamma = check("draft_length", draft_length, minimum=0)
        verified = gamma + 1 if verify_tokens is None else verify_tokens
        drafted = np.maximum(check("verify_tokens", verified, minimum=1) - 1, 1.0)
        return tuple(part for model, rule in self.parts for part in rule(model, gamma, drafted))

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
    block = ffn_size or _dense_size(target) or 7 * target.hidden_size // 2
    size = vocabulary_size or target.vocabulary_size
    return _head(target, "EAGLE head", _full_mixer(target), 2, block, size, verified_first)


def eagle3_drafter(
    target: Architecture,
    *,
    ffn_size: int | None = None,
    vocabulary_size: int = EAGLE3_VOCABULARY_SIZE,
) -> Drafter:
    """Return an EAGLE-3 head: a 3h-to-h projection, one dense layer, a reduced LM head.

    Queries, keys and values read the embedding beside the features, so twice the hidden size. The
    projection runs once a step, on the tokens that were verified, as the first pass does.

    Parameters
    ----------
    target
        The model it sits on.
    ffn_size
        Width of its feed-forward block; by default that of a dense target, or 6 times the hidden
        size for an MoE, the median of heads published by SpecForge [-].
    vocabulary_size
        Draft vocabulary [token].

    Returns
    -------
    Drafter
        The head.
    """
    h, mixer = target.hidden_size, _full_mixer(target)
    if not isinstance(mixer, GroupedAttention):  # heads for MLA targets have grouped heads
        heads = max(h // 128, 1)
        kv_heads = 8 if heads % 8 == 0 else heads
        mixer = GroupedAttention(num_heads=heads, num_kv_heads=kv_heads, head_dim=128)
    mixer = mixer.model_copy(update={"input_size": 2 * h})
    block = ffn_size or (0 if target.is_moe else _dense_size(target)) or 6 * h
    return _head(target, "EAGLE-3 head", mixer, 3, block, vocabulary_size, features_first)


def mtp_drafter(target: Architecture) -> Drafter:
    """Return a multi-token-prediction head: a 2h-to-h projection and one layer like the target's.

    Parameters
    ----------
    target
        The model it sits on; an MoE target has an MoE head.

    Returns
    -------
    Drafter
        The head, run once for each token, first on all that were verified.
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
    parts = ((head, verified_first),)
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
    head = eagle_drafter(target, ffn_size=ffn_size, vocabulary_size=vocabulary_size)
    name = {"name": f"parallel head on {target.name}"}
    parts = ((model.model_copy(update=name), all_at_once) for model in head.architectures)
    return replace(head, name="parallel head", parts=tuple(parts))


def ngram_drafter(*, lookup_time: float = 0.0, proposal_rate: float = 1.0) -> Drafter:
    """Return an n-gram (prompt look-up) drafter: host time only.

    Parameters
    ----------
    lookup_time
        Host time of looking up the draft of one sequence [s].
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
    if is_path(name, "drafter"):
        is_config = Path(name).suffix != ".toml" and Path(name).exists()
        head = _read_head(name, target) if is_config else None
        return head or model_drafter(load_architecture(name, "drafter"))
    if str(name) in _NAMED:
        return _NAMED[str(name)][0](target)
    known = [*list_drafters(), *list_architectures()]
    if not {*spellings(str(name))} & {*known}:
        expected = f"a path, or a known name such as {nearest(str(name), known)}"
        raise InputError("drafter", name, expected)
    return model_drafter(load_architecture(name, "drafter"))


def _head(
    target: Architecture,
    kind: str,
    mixer: Mixer,
    inputs: int,
    ffn_size: int,
    vocabulary_size: int,
    rule: Rule,
) -> Drafter:
    h = target.hidden_size
    is_quantised = BYTES_PER_ELEMENT[target.activation_dtype] < 2
    dtype: Dtype = "bf16" if is_quantised else target.activation_dtype
    block = {"kind": "dense", "ffn_size": ffn_size}
    shape = {
        "schema_version": 2,
        "name": f"{kind} on {target.name}",
        "source": "derived from the target",
        "hidden_size": h,
        "layers": [{"count": 1, "mixer": mixer.model_dump(), "feed_forward": block}],
        "vocabulary_size": vocabulary_size,
        "input_projection_size": inputs * h,
        "weight_dtype": dtype,
        "activation_dtype": dtype,
        "kv_dtype": target.kv_dtype,
    }
    head = build(Architecture, shape, "drafter")
    return Drafter(name=kind, parts=((head, rule),), is_head=True)


def _read_head(path: str | Path, target: Architecture) -> Drafter | None:
    """Return the EAGLE-3 head that a ``config.json`` describes, None if it is a model's."""
    from specmodel.records.hf import heads  # its tables are for this path only

    file, name = config_file(path)
    config = read_mapping(file, "drafter")
    if not heads.is_draft_head(config):
        return None
    sizes = {"hidden_size": target.hidden_size, "vocabulary_size": target.vocabulary_size}
    fields = heads.eagle3_fields(config, f"drafter {file.name}", **sizes)
    data = {"schema_version": 2, "name": name, "source": str(file), **fields}
    head = build(Architecture, data, f"drafter {file.name}")
    return Drafter(name="EAGLE-3 head", parts=((head, features_first),), is_head=True)


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
