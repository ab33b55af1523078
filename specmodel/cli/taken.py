"""The usual drafter of a target, as options."""

from __future__ import annotations

from functools import wraps
from typing import Any


def usual_drafter(command: Any) -> Any:
    """Let a command have the target's usual drafter where none is typed."""

    @wraps(command)
    def run(**options: Any) -> Any:
        if options["drafter"] is None and options["target"] and "," not in options["target"]:
            weights = (options.get("weight_dtype") or "").partition(",")[0]  # several are compared
            options |= drafter_of(options["target"], weights or None)
        return command(**options)

    return run


def drafter_of(target: str, weights: str | None) -> dict[str, Any]:
    """Return the drafter that is taken for a target, as options, with what to say of it.

    `weights` is the dtype of its weights, None for the checkpoint's.
    """
    from specmodel.cost.usual import with_usual_drafter

    found = with_usual_drafter({"target": target, "weight_dtype": weights, "is_drafting": True})
    return {"drafter": found["drafter"], "taken_drafter": found["told_drafter"]}
