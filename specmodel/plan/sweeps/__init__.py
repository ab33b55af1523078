"""Sweep over lists of any parameters, into a tidy table or into files."""

from typing import TYPE_CHECKING

from specmodel.core.base.fronts import front

if TYPE_CHECKING:
    from specmodel.plan.sweeps.files import (
        MOST_IN_FRAME as MOST_IN_FRAME,
        csv_chunks as csv_chunks,
        sweep as sweep,
        sweep_to_file as sweep_to_file,
    )
    from specmodel.plan.sweeps.plan import Plan as Plan, plan_sweep as plan_sweep

__getattr__, __dir__ = front(__name__)
