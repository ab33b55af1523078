"""Measuring a running engine: plan, client, counters, the table of requests and its summary."""

from typing import TYPE_CHECKING

from specmodel.base.fronts import front

if TYPE_CHECKING:
    from specmodel.measure.live.client import Server as Server, Told as Told, connected as connected
    from specmodel.measure.live.driver import (
        Done as Done,
        drive as drive,
    )
    from specmodel.measure.live.engines import METHODS as METHODS, launch_options as launch_options
    from specmodel.measure.live.log import Log as Log
    from specmodel.measure.live.plan import (
        Budget as Budget,
        Plan as Plan,
        Run as Run,
        budget as budget,
        seconds_of as seconds_of,
    )
    from specmodel.measure.live.prompts import (
        found_prompts as found_prompts,
        mean_length as mean_length,
        random_ids as random_ids,
        random_words as random_words,
        read_prompts as read_prompts,
    )
    from specmodel.measure.live.summaries import summary as summary

__getattr__, __dir__ = front(__name__)
