"""Drafters that are models of their own, and look-ups on the host."""

from specmodel.core.base.errors import InputError
from specmodel.core.drafters.names import named_drafters
from specmodel.core.drafters.passes import PARD, Drafter, masks_after_accepted, one_at_a_time
from specmodel.core.models.architecture import Architecture, load_architecture

_NGRAM, _SUFFIX = (named_drafters()[name].kind for name in ("ngram", "suffix"))
"""Names of these for people."""

_PARD_MODELS = {128_256: "llama-3.2-1b"}
"""Small model that PARD was trained on for a family, by its vocabulary size."""


def model_drafter(architecture: Architecture) -> Drafter:
    """Return a drafter that is a separate model.

    Parameters
    ----------
    architecture
        The draft model.
    """
    return Drafter(name=architecture.name, parts=((architecture, one_at_a_time),))


def pard_drafter(model: Architecture) -> Drafter:
    """Return a draft model that drafts all tokens in one pass with masks (PARD).

    Parameters
    ----------
    model
        The draft model.

    Examples
    --------
    >>> drafter = pard_drafter(load_architecture("llama-3.2-1b"))
    >>> [float(p.tokens_per_sequence) for p in drafter.passes(8)]
    [17.0]
    """
    parts = ((model, masks_after_accepted),)
    return Drafter(name=f"{model.name} ({PARD})", parts=parts, is_chain=True)


def usual_pard_drafter(target: Architecture) -> Drafter:
    """Return the PARD model published for the target's family, found by vocabulary size.

    >>> usual_pard_drafter(load_architecture("llama-3.1-70b")).name
    'Llama-3.2-1B (PARD model)'
    """
    name = _PARD_MODELS.get(target.vocabulary_size)
    if name is None:
        expected = f"No PARD model for {target.name} ships. Give its config.json (with pard_token)."
        raise InputError("drafter", "pard", expected)
    return pard_drafter(load_architecture(name, "drafter"))


def ngram_drafter(*, lookup_time: float = 0.0, proposal_rate: float = 1.0) -> Drafter:
    """Return an n-gram (prompt look-up) drafter: host time only.

    Parameters
    ----------
    lookup_time
        Host time to look up the draft of one sequence [s].
    proposal_rate
        Share of a sequence's steps that have a proposal; the others are decode steps [-].
    """
    return Drafter(name=_NGRAM, lookup_time=lookup_time, proposal_rate=proposal_rate)


def suffix_drafter(*, lookup_time: float = 0.0, proposal_rate: float = 1.0) -> Drafter:
    """Return a look-up in suffix trees of prompts and earlier answers: host time only.

    As in vLLM 0.33 (``v1/spec_decode/suffix_decoding.py``), it proposes only tokens that it is sure
    of. The draft length is then the mean number of these.

    Parameters
    ----------
    lookup_time, proposal_rate
        As for `ngram_drafter` [s] [-].
    """
    return Drafter(name=_SUFFIX, lookup_time=lookup_time, proposal_rate=proposal_rate)
