"""Drafters: who proposes the tokens, in how many passes of which architecture.

A drafter is one record, whatever its kind: a model of its own, a head on the target (EAGLE, MTP),
an n-gram look-up on the host, or a parallel head that drafts a block in one pass.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from specmodel.base.errors import InputError, nearest
from specmodel.base.records import is_path
from specmodel.base.units import BYTES_PER_ELEMENT, FloatArray, Numeric, check
from specmodel.records.architecture import Architecture, list_architectures, load_architecture
from specmodel.records.hardware import Dtype

EAGLE3_VOCABULARY_SIZE = 32_000
"""Reduced draft vocabulary that EAGLE-3 heads often have [token]."""


@dataclass(frozen=True, kw_only=True)
class Drafter:
    """How tokens are drafted.

    Parameters
    ----------
    name
        Name for people.
    architecture
        What runs in a draft pass; None if nothing runs on the GPU.
    is_head
        Whether it sits on the target: shares its embedding and, at the same vocabulary, its LM
        head, and runs at its tensor parallelism.
    is_parallel
        Whether one pass drafts all tokens.
    lookup_time
        Host time of a look-up, once a step [s].
    proposal_rate
        Share of the steps of a sequence that have a proposal at all [-].
    """

    name: str
    architecture: Architecture | None = None
    is_head: bool = False
    is_parallel: bool = False
    lookup_time: float = 0.0
    proposal_rate: float = 1.0

    def __post_init__(self) -> None:
        check("lookup_time", self.lookup_time, minimum=0)
        check("proposal_rate", self.proposal_rate, minimum=0, maximum=1)

    def passes(self, draft_length: Numeric) -> FloatArray:
        """Return the draft passes of a step [-], for any shape of `draft_length` [token]."""
        gamma = np.asarray(draft_length, dtype=float)
        if self.architecture is None:
            return np.zeros_like(gamma)
        return np.minimum(gamma, 1.0) if self.is_parallel else gamma


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
    return Drafter(name=architecture.name, architecture=architecture)


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
    >>> head.architecture.dense_ffn_size
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
    changes: dict[str, object] = {
        "name": f"MTP head of {target.name}",
        "num_layers": 1,
        "num_dense_layers": 0 if target.num_moe_layers else 1,
        "num_sliding_layers": 0,
        "sliding_window": None,
        "input_projection_size": 2 * target.hidden_size,
    }
    head = target.with_changes("drafter", changes)
    return Drafter(name="MTP head", architecture=head, is_head=True)


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
    head = _head(target, "parallel head", 2, ffn_size, vocabulary_size or target.vocabulary_size)
    return replace(head, is_parallel=True)


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


_HEADS = {
    "eagle": eagle_drafter,
    "eagle3": eagle3_drafter,
    "mtp": mtp_drafter,
    "parallel": parallel_drafter,
}


def list_drafters() -> list[str]:
    """Return the names that `load_drafter` knows beside those of architectures.

    Examples
    --------
    >>> list_drafters()
    ['eagle', 'eagle3', 'mtp', 'ngram', 'parallel']
    """
    return sorted([*_HEADS, "ngram"])


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
    if name == "ngram":
        return ngram_drafter()
    if name in _HEADS:
        return _HEADS[name](target)
    known = [*list_drafters(), *list_architectures()]
    if name.lower().replace("_", "-") not in known:
        raise InputError("drafter", name, f"a path, or a known name such as {nearest(name, known)}")
    return model_drafter(load_architecture(name, "drafter"))


def _head(
    target: Architecture, kind: str, inputs: int, ffn_size: int | None, vocabulary_size: int
) -> Drafter:
    h = target.hidden_size
    is_quantised = BYTES_PER_ELEMENT[target.activation_dtype] < 2
    dtype: Dtype = "bf16" if is_quantised else target.activation_dtype
    dense_size = target.dense_ffn_size or (0 if target.is_moe else target.expert_size)
    head = Architecture(
        schema_version=1,
        name=f"{kind} on {target.name}",
        source="derived from the target",
        hidden_size=h,
        num_layers=1,
        num_heads=target.num_heads,
        num_kv_heads=target.num_kv_heads,
        head_dim=target.head_dim,
        vocabulary_size=vocabulary_size,
        num_dense_layers=1,
        dense_ffn_size=ffn_size or dense_size or 7 * h // 2,
        input_projection_size=inputs * h,
        latent=target.latent,
        weight_dtype=dtype,
        activation_dtype=dtype,
        kv_dtype=target.kv_dtype,
    )
    return Drafter(name=kind, architecture=head, is_head=True)
