"""Fit kernels to measurements, and an engine to a user's runs."""

from typing import TYPE_CHECKING

from specmodel.core.base.fronts import front

if TYPE_CHECKING:
    from specmodel.calibrate.fit.facts import (
        moved_rows as moved_rows,
        run_rows as run_rows,
        update_facts as update_facts,
    )
    from specmodel.calibrate.fit.kernels import (
        KernelFitting as KernelFitting,
        fit_kernels as fit_kernels,
        fitted_stack as fitted_stack,
    )
    from specmodel.calibrate.fit.result import FitResult as FitResult
    from specmodel.calibrate.fit.timed_work import (
        predicted_time as predicted_time,
        work_of as work_of,
    )
    from specmodel.calibrate.fit.update import (
        EngineUpdate as EngineUpdate,
        FitWarning as FitWarning,
        update_engine as update_engine,
    )

__getattr__, __dir__ = front(__name__)
