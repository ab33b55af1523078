"""Figures that take a table and an ``ax`` and return the ``ax``; nothing is computed here.

Where a table cannot be drawn, an InputError names what it lacks or has too much of.
`figures.save_figure` draws any of them, by its name in `KINDS`, into a file.
"""

from specmodel.plots.curves import (
    active_experts,
    closed_loop,
    predicted_against_measured,
    speedup,
    target_efficiency,
    timeline,
)
from specmodel.plots.figures import KINDS
from specmodel.plots.maps import best_draft_length, break_even
from specmodel.plots.passes import components, roofline
from specmodel.plots.rows import policies, sobol, tornado, waterfalls

__all__ = [
    "KINDS",
    "active_experts",
    "best_draft_length",
    "break_even",
    "closed_loop",
    "components",
    "policies",
    "predicted_against_measured",
    "roofline",
    "sobol",
    "speedup",
    "target_efficiency",
    "timeline",
    "tornado",
    "waterfalls",
]
