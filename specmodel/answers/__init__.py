"""Answers: where speculation pays, with which draft length, from which acceptance, and why."""

from specmodel.answers.cost_tables import CostTable, cost_table, sglang_costs
from specmodel.answers.curves import (
    SweetSpot,
    best_draft_lengths,
    break_even,
    compare,
    sweet_spot,
    sweet_spots,
)
from specmodel.answers.dialects import DIALECTS, Dialect, dialect
from specmodel.answers.explain import Explanation, explain, pass_components
from specmodel.answers.schedule import Schedule, draft_length_schedule, draft_ranges

__all__ = [
    "DIALECTS",
    "CostTable",
    "Dialect",
    "Explanation",
    "Schedule",
    "SweetSpot",
    "best_draft_lengths",
    "break_even",
    "compare",
    "cost_table",
    "dialect",
    "draft_length_schedule",
    "draft_ranges",
    "explain",
    "pass_components",
    "sglang_costs",
    "sweet_spot",
    "sweet_spots",
]
