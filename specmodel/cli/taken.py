"""The usual drafter of a target, and what is published of both, by the options that name them."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

from specmodel.base.errors import InputError

if TYPE_CHECKING:
    from specmodel.algebra.acceptance import Acceptance
    from specmodel.drafters.typical import TypicalHeads
    from specmodel.models.architecture import Architecture


def usual_drafter(command: Any) -> Any:
    """Let a command have the target's usual drafter where none is typed."""

    @wraps(command)
    def run(**options: Any) -> Any:
        if options["drafter"] is None and options["target"] and "," not in options["target"]:
            options |= drafter_of(options["target"])
        return command(**options)

    return run


def drafter_of(target: str) -> dict[str, Any]:
    """Return the drafter that is taken for a target, as options, with what to say of it."""
    from specmodel.drafters.published import taken_drafter
    from specmodel.models.architecture import load_architecture

    drafter, why = taken_drafter(load_architecture(target))
    return {"drafter": drafter, "taken_drafter": f"{drafter} ({why})"}


def measured_or_none(options: dict[str, Any]) -> Acceptance | None:
    """Return the acceptance that is published of this very target and drafter, None for none."""
    from specmodel.drafters.typical import measured_acceptance

    target, kind = _target_and_kind(options)
    return measured_acceptance(target.name, kind)


def typical_or_none(options: dict[str, Any]) -> TypicalHeads | None:
    """Return what published heads of the drafter's kind reach, None if too few are published."""
    from specmodel.drafters.typical import typical_heads

    return typical_heads(_target_and_kind(options)[1])


def _target_and_kind(options: dict[str, Any]) -> tuple[Architecture, str]:
    """Return the target, and the name of the kind of its drafter."""
    from specmodel.drafters.by_name import drafter_kind
    from specmodel.models.architecture import load_architecture

    for name in ("target", "drafter"):
        if "," in options[name]:
            raise InputError(name, options[name], "one, with the acceptance that is published")
    target = load_architecture(options["target"])
    return target, drafter_kind(options["drafter"], target)
