"""Serving under load: requests, a simulator of continuous batching, steady states in closed form.

What cannot be used is refused with an `InputError` that names argument, value and remedy.
"""

from typing import TYPE_CHECKING

from specmodel.base.fronts import front

if TYPE_CHECKING:
    from specmodel.serving.asked import Loaded as Loaded, load as load
    from specmodel.serving.capacity import Capacity as Capacity, Targets as Targets
    from specmodel.serving.carried import (
        best_schedule as best_schedule,
        capacities as capacities,
        carried_by as carried_by,
        largest_rates as largest_rates,
        with_single_lengths as with_single_lengths,
    )
    from specmodel.serving.closed_forms import chain_state as chain_state
    from specmodel.serving.compared import compare as compare
    from specmodel.serving.drains import Drain as Drain, drained as drained
    from specmodel.serving.limits import Scheduler as Scheduler
    from specmodel.serving.outcome import Run as Run
    from specmodel.serving.recorded import read_requests as read_requests
    from specmodel.serving.requests import (
        Arrivals as Arrivals,
        Lengths as Lengths,
        Requests as Requests,
        draw_requests as draw_requests,
    )
    from specmodel.serving.run import Service as Service, prepare as prepare
    from specmodel.serving.scheduled import schedule as schedule
    from specmodel.serving.study import Study as Study, under_load as under_load
    from specmodel.serving.token_time import Course as Course
    from specmodel.serving.trial import Trial as Trial

__getattr__, __dir__ = front(__name__)
