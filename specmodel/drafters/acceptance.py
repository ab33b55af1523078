"""Published acceptance by name: what was measured of a target with its usual drafter."""

from pathlib import Path

from specmodel.algebra.acceptance import Acceptance
from specmodel.base.errors import InputError, nearest
from specmodel.base.naming import spellings
from specmodel.base.records import is_path
from specmodel.drafters.by_name import drafter_kind
from specmodel.drafters.passes import Drafter
from specmodel.drafters.published import PRESET
from specmodel.drafters.typical import acceptance_by_name, measured_acceptance, published_as
from specmodel.models.architecture import Architecture, load_architecture


def list_acceptance() -> list[str]:
    """Return the names of the published acceptance that `load_acceptance` knows.

    Examples
    --------
    >>> {"glm-5.2-mtp", "qwen3-30b-a3b-eagle3"} <= {*list_acceptance()}
    True
    """
    return sorted(acceptance_by_name())


def load_acceptance(
    target: Architecture | str | Path, drafter: Drafter | str | Path, preset: str = PRESET
) -> Acceptance:
    """Return the acceptance that was measured of a target with a drafter, by position.

    Parameters
    ----------
    target, drafter
        The model and its drafter, names or paths; the target's name need not be one that ships.
    preset
        "preset" for the one that is published for both, or a name that `list_acceptance` gives:
        that of another target, as an assumption.

    Returns
    -------
    Acceptance
        Up to the longest draft that was measured, with its source; an InputError if none is
        published for the two, or it is that of a drafter of another kind.

    Examples
    --------
    >>> acceptance = load_acceptance("Qwen3.5-397B-A17B", "mtp")
    >>> acceptance.expected_tokens_per_step([1, 3]).round(2).tolist()
    [1.93, 3.39]
    """
    model = target
    if not isinstance(model, Architecture) and is_path(model, "target"):
        model = load_architecture(model)
    name = model.name if isinstance(model, Architecture) else str(model)
    kind = drafter_kind(drafter, model)
    if preset != PRESET:
        return _named(preset, kind)
    found = measured_acceptance(name, kind)
    if found is not None:
        return found
    expected = f"a rate of your own: none is published for {name} with {kind}; published are"
    close = nearest(f"{name}-{kind}", list_acceptance())
    raise InputError("acceptance", preset, f"{expected} {close} (`list_acceptance()`)")


def _named(preset: str, kind: str) -> Acceptance:
    """Return a published acceptance by name; refuse one measured with another kind of drafter."""
    known = acceptance_by_name()
    found = next((known[word] for word in spellings(preset) if word in known), None)
    if found is None:
        close = nearest(preset, known)
        expected = f"{PRESET} or a name such as {close}; a rate is an acceptance_rate"
        raise InputError("acceptance", preset, expected)
    if found.drafter != published_as(kind):
        raise InputError("acceptance", preset, f"one of {kind}, as the drafter is, or numbers")
    return found.acceptance
