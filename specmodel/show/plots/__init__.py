"""Functions that draw a table on matplotlib axes, which they return; they compute nothing.

If a table cannot be drawn, an InputError names what is missing, or what is too much.
`figures.save_figure` draws any figure into a file, by its name in `KINDS`.
"""

from typing import TYPE_CHECKING

from specmodel.core.base.fronts import front

if TYPE_CHECKING:
    from specmodel.show.plots.batches import (
        speedup as speedup,
        target_efficiency as target_efficiency,
    )
    from specmodel.show.plots.curves import (
        active_experts as active_experts,
        closed_loop as closed_loop,
        drain as drain,
        load as load,
        pareto as pareto,
        predicted_against_measured as predicted_against_measured,
        timeline as timeline,
    )
    from specmodel.show.plots.figures import KINDS as KINDS
    from specmodel.show.plots.maps import (
        best_draft_length as best_draft_length,
        break_even as break_even,
        speedup_map as speedup_map,
    )
    from specmodel.show.plots.passes import components as components, roofline as roofline
    from specmodel.show.plots.rows import (
        capacity as capacity,
        policies as policies,
        policy_bars as policy_bars,
        sobol as sobol,
        tornado as tornado,
        waterfalls as waterfalls,
    )

__getattr__, __dir__ = front(__name__)
