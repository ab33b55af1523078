"""Answers: where speculation pays, with which draft length, from which acceptance, and why."""

from specmodel.answers.curves import (
    SweetSpot,
    best_draft_lengths,
    break_even,
    compare,
    sweet_spot,
    sweet_spots,
)
from specmodel.answers.explain import Explanation, explain

__all__ = [
    "Explanation",
    "SweetSpot",
    "best_draft_lengths",
    "break_even",
    "compare",
    "explain",
    "sweet_spot",
    "sweet_spots",
]
