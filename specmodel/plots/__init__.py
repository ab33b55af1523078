"""Figures that take a table and an ``ax`` and return the ``ax``; nothing is computed here.

`figures.save_figure` draws any of them, by its name in `KINDS`, into a file.
"""

from specmodel.plots.curves import active_experts, speedup, target_efficiency
from specmodel.plots.effects import sobol, tornado, waterfalls
from specmodel.plots.figures import KINDS
from specmodel.plots.maps import best_draft_length, break_even
from specmodel.plots.measured import closed_loop, predicted_against_measured
from specmodel.plots.passes import components, roofline
from specmodel.plots.replays import policies, timeline

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
