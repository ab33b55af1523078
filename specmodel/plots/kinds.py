"""The kinds of figures by name: what draws each, and how high it wants to be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from specmodel.plots import curves, effects, maps, measured, passes, replays


@dataclass(frozen=True)
class Kind:
    """A kind of figure.

    Parameters
    ----------
    draw
        The function of `plots` that draws it.
    height, row_height
        Inches that it wants, legends above it left out, and for each unit of its vertical axes,
        where these number rows [-].
    most_height
        Inches that are enough [-].
    panels
        Axes, one above the other [-].
    has_outcome
        Whether `draw` takes an outcome.
    """

    draw: Callable[..., Any]
    height: float
    row_height: float = 0.0
    most_height: float = 8.0
    panels: int = 1
    has_outcome: bool = False


KINDS = {
    "speedup": Kind(curves.speedup, 2.1),
    "target_efficiency": Kind(curves.target_efficiency, 2.1),
    "active_experts": Kind(curves.active_experts, 2.1),
    "best_draft_length": Kind(maps.best_draft_length, 0.8, 0.2, most_height=3.5),
    "break_even": Kind(maps.break_even, 0.8, 0.2, most_height=3.5),
    "roofline": Kind(passes.roofline, 2.4),
    "components": Kind(passes.components, 2.3),
    "waterfalls": Kind(effects.waterfalls, 1.1, 0.24, panels=2),
    "tornado": Kind(effects.tornado, 0.5, 0.36, has_outcome=True),
    "sobol": Kind(effects.sobol, 0.5, 0.28, has_outcome=True),
    "predicted_against_measured": Kind(measured.predicted_against_measured, 3.0),
    "closed_loop": Kind(measured.closed_loop, 2.2),
    "timeline": Kind(replays.timeline, 2.8, panels=2),
    "policies": Kind(replays.policies, 0.6, 0.25),
}
"""Kinds of figures by the names of the functions that draw them."""
