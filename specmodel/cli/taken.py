"""The usual drafter of a target, as options."""

from __future__ import annotations

from typing import Any


def with_usual_drafter(options: dict[str, Any]) -> dict[str, Any]:
    """Return options with the target's usual drafter where none is typed."""
    if options["drafter"] is not None or not options["target"] or "," in options["target"]:
        return options
    weights = (options.get("weight_dtype") or "").partition(",")[0]  # several are compared
    return options | drafter_of(options["target"], weights or None)


def drafter_of(target: str, weights: str | None) -> dict[str, Any]:
    """Return the drafter that is taken for a target, as options, with what to say of it.

    `weights` is the dtype of its weights, None for the checkpoint's.
    """
    from specmodel.cost.usual import with_usual_drafter

    found = with_usual_drafter({"target": target, "weight_dtype": weights, "is_drafting": True})
    return {"drafter": found["drafter"], "taken_drafter": found["told_drafter"]}
