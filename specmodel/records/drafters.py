"""Drafters: who proposes the tokens, in how many passes of which architecture.

A drafter is a function from the length of a draft to the passes that make it, the time it takes on
the host, and how often it proposes at all. Its kinds are a model of its own, a head on the target
(EAGLE, MTP), an n-gram look-up on the host, and a parallel head that drafts a block in one pass.
"""

from collections.abc import Callable
from pathlib import Path

from specmodel.base.errors import InputError, nearest
from specmodel.base.records import is_path, spellings
from specmodel.records.architecture import Architecture, list_architectures, load_architecture
from specmodel.records.draft_heads import (
    eagle3_drafter,
    eagle_drafter,
    mtp_drafter,
    parallel_drafter,
    read_head,
)
from specmodel.records.draft_passes import Drafter, one_at_a_time

__all__ = [
    "NGRAM",
    "Drafter",
    "describe_drafter",
    "eagle3_drafter",
    "eagle_drafter",
    "list_drafters",
    "load_drafter",
    "model_drafter",
    "mtp_drafter",
    "ngram_drafter",
    "parallel_drafter",
]

NGRAM = "ngram"
"""Name of the look-up, which has no architecture."""


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
    "mtp": (mtp_drafter, "head: 2h-to-h projection and a layer with attention like the target's"),
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
        head = read_head(name, target) if is_config else None
        return head or model_drafter(load_architecture(name, "drafter"))
    if str(name) in _NAMED:
        return _NAMED[str(name)][0](target)
    known = [*list_drafters(), *list_architectures()]
    if not {*spellings(str(name))} & {*known}:
        expected = f"a path, or a known name such as {nearest(str(name), known)}"
        raise InputError("drafter", name, expected)
    return model_drafter(load_architecture(name, "drafter"))
