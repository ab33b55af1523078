"""Published acceptance by name: what was measured of a target with its usual drafter."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from msgspec.structs import replace

from specmodel.core.algebra.acceptance import Acceptance
from specmodel.core.base.errors import InputError, nearest
from specmodel.core.base.naming import spellings
from specmodel.core.base.records import is_path
from specmodel.core.drafters.by_name import drafter_kind
from specmodel.core.drafters.measured_heads import (
    PublishedHead,
    acceptance_by_name,
    published_as,
    published_head_of,
)
from specmodel.core.drafters.passes import Drafter
from specmodel.core.drafters.published import PRESET
from specmodel.core.drafters.tasks import MIXTURE, task_text
from specmodel.core.models.architecture import Architecture, load_architecture


def list_acceptance() -> list[str]:
    """Return the names of published acceptance that `load_acceptance` accepts.

    Examples
    --------
    >>> {"glm-5.2-mtp", "qwen3-30b-a3b-eagle3"} <= {*list_acceptance()}
    True
    """
    return sorted(acceptance_by_name())


def load_acceptance(
    target: Architecture | str | Path,
    drafter: Drafter | str | Path,
    preset: str = PRESET,
    task: str | Mapping[str, float] = MIXTURE,
) -> Acceptance:
    """Return the published acceptance of a target with a drafter on a kind of task, by position.

    Parameters
    ----------
    target, drafter
        The model and its drafter, as names or paths. The target need not ship with the package.
    preset
        "preset" for the acceptance published for both. A name from `list_acceptance` assumes that
        of another target.
    task
        Kind of task, or shares of several kinds, as text or by kind [-].

    Returns
    -------
    Acceptance
        Acceptance up to the longest measured draft, with its source. For a kind of task that was
        not measured, it is derived from a measured one. Raise an InputError if none is published
        for the two, or only for another kind of drafter.

    Examples
    --------
    >>> acceptance = load_acceptance("Qwen3.5-397B-A17B", "mtp", task="code")
    >>> acceptance.expected_tokens_per_step([1, 3]).round(2).tolist()
    [1.93, 3.39]
    """
    model = target
    if not isinstance(model, Architecture) and is_path(model, "target"):
        model = load_architecture(model)
    name = model.name if isinstance(model, Architecture) else str(model)
    kind = drafter_kind(drafter, model)
    head = published_head_of(name, kind) if preset == PRESET else _named(preset, kind)
    if head is not None:
        return head.acceptance(task_text(task))
    expected = f"No acceptance is published for {name} with {kind}. Give your own, or use"
    close = nearest(f"{name}-{kind}", list_acceptance())
    raise InputError("acceptance", preset, f"{expected} {close} (`list_acceptance()`).")


@cache
def measured_acceptance(
    target: str, drafter: str, named: str = "", task: str = MIXTURE
) -> Acceptance | None:
    """Return the published acceptance of a target, by name, and drafter; None if there is none.

    Its source contains a note if a path or id names another head than the measured one.

    >>> measured_acceptance("Qwen3-30B-A3B", "eagle3").max_draft_length
    7.0
    >>> measured_acceptance("Mixtral-8x7B", "eagle3")
    """
    head = published_head_of(target, drafter, named)
    if head is None:
        return None
    found = head.acceptance(task)
    return replace(found, source=found.source + head.unlike(named))


def _named(preset: str, kind: str) -> PublishedHead:
    """Return a published head by name; refuse one of another kind of drafter."""
    known = acceptance_by_name()
    found = next((known[word] for word in spellings(preset) if word in known), None)
    if found is None:
        close = nearest(preset, known)
        expected = f"{PRESET} or a name such as {close}; for a rate, use `acceptance_rate`"
        raise InputError("acceptance", preset, expected)
    if found.drafter != published_as(kind):
        expected = f"the name of an acceptance that was measured with {kind}, or your own numbers"
        raise InputError("acceptance", preset, expected)
    return found
