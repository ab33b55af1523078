"""Measure kernels on your GPU, and read the counters and logs of an engine."""

from typing import TYPE_CHECKING

from specmodel.core.base.fronts import front

if TYPE_CHECKING:
    from specmodel.calibrate.measure import kernels as kernels
    from specmodel.calibrate.measure.arguments import acceptance_arguments as acceptance_arguments
    from specmodel.calibrate.measure.logs import (
        LoggedAcceptance as LoggedAcceptance,
        lengths_by_table as lengths_by_table,
        logged_acceptance as logged_acceptance,
    )
    from specmodel.calibrate.measure.measurements import (
        check_measurements as check_measurements,
        read_measurements as read_measurements,
    )
    from specmodel.calibrate.measure.scrapes import (
        MeasuredAcceptance as MeasuredAcceptance,
        scraped_acceptance as scraped_acceptance,
    )

__getattr__, __dir__ = front(__name__)
