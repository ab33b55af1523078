"""Answer where speculation pays, with which draft length, from which acceptance, and why.

An invalid argument raises an `InputError` that names argument, value and remedy.
"""

from typing import TYPE_CHECKING

from specmodel.core.base.fronts import front

if TYPE_CHECKING:
    from specmodel.plan import sensitivity as sensitivity, sweeps as sweeps
    from specmodel.plan.config_formats import (
        CONFIG_FORMATS as CONFIG_FORMATS,
        ConfigFormat as ConfigFormat,
        config_format as config_format,
    )
    from specmodel.plan.curves import (
        SweetSpot as SweetSpot,
        break_even as break_even,
        compare as compare,
        sweet_spot as sweet_spot,
        sweet_spots as sweet_spots,
    )
    from specmodel.plan.decision import Decision as Decision, decide as decide
    from specmodel.plan.explaining import (
        Explanation as Explanation,
        explain as explain,
        pass_components as pass_components,
    )
    from specmodel.plan.plans import Plan as Plan, plan_schedule as plan_schedule
    from specmodel.plan.schedule import (
        Schedule as Schedule,
        draft_length_schedule as draft_length_schedule,
        draft_ranges as draft_ranges,
    )

__getattr__, __dir__ = front(__name__)
