"""Simulate one user or many: policies over acceptance traces, and servers under load.

A replay of a policy at batch size 1 is a server with one user and a policy for each request. An
invalid argument raises an `InputError` that names argument, value and remedy.
"""

from typing import TYPE_CHECKING

from specmodel.core.base.fronts import front

if TYPE_CHECKING:
    from specmodel.simulate.capacity import Capacity as Capacity, Targets as Targets
    from specmodel.simulate.carried import (
        best_schedule as best_schedule,
        capacities as capacities,
        carried_by as carried_by,
        largest_rates as largest_rates,
        with_single_lengths as with_single_lengths,
    )
    from specmodel.simulate.compared import compare as compare
    from specmodel.simulate.drains import Drain as Drain, drained as drained
    from specmodel.simulate.limits import Scheduler as Scheduler
    from specmodel.simulate.load_question import Loaded as Loaded, load as load
    from specmodel.simulate.outcome import Run as Run
    from specmodel.simulate.recorded import read_requests as read_requests
    from specmodel.simulate.replay_question import Replayed as Replayed, replayed as replayed
    from specmodel.simulate.replays import (
        assumed as assumed,
        simulate as simulate,
        summarise as summarise,
        timeline as timeline,
    )
    from specmodel.simulate.requests import (
        Arrivals as Arrivals,
        Lengths as Lengths,
        Requests as Requests,
        draw_requests as draw_requests,
    )
    from specmodel.simulate.sampling import Variation as Variation
    from specmodel.simulate.scheduled import schedule as schedule
    from specmodel.simulate.service import Service as Service, prepare as prepare
    from specmodel.simulate.sources import Sample as Sample
    from specmodel.simulate.study import Study as Study, under_load as under_load
    from specmodel.simulate.times_alone import (
        ReplayTimes as ReplayTimes,
        read_replay_times as read_replay_times,
        replay_times as replay_times,
    )
    from specmodel.simulate.trial import Trial as Trial

__getattr__, __dir__ = front(__name__)
