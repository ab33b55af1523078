"""Answers: where speculation pays, with which draft length, from which acceptance, and why."""

from specmodel.answers.components import pass_components
from specmodel.answers.curves import (
    SweetSpot,
    best_draft_lengths,
    break_even,
    compare,
    sweet_spot,
    sweet_spots,
)
from specmodel.answers.explain import Explanation, explain
from specmodel.answers.fragments import FORMATS, Format
from specmodel.answers.schedule import Schedule, draft_length_schedule, runs

__all__ = [
    "FORMATS",
    "Explanation",
    "Format",
    "Schedule",
    "SweetSpot",
    "best_draft_lengths",
    "break_even",
    "compare",
    "draft_length_schedule",
    "explain",
    "pass_components",
    "runs",
    "sweet_spot",
    "sweet_spots",
]
