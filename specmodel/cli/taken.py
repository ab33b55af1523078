"""The usual drafter of a target, as options."""

from __future__ import annotations

from functools import wraps
from typing import Any


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
    from specmodel.cost.usual import with_usual_drafter

    found = with_usual_drafter({"target": target, "is_drafting": True})
    return {"drafter": found["drafter"], "taken_drafter": found["told_drafter"]}
