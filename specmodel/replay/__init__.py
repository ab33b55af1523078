"""Offline replays: draft-length policies over acceptance traces, on predicted or measured times.

What cannot be used is refused with an `InputError` that names argument, value and remedy.
"""

from typing import TYPE_CHECKING

from specmodel.base.fronts import front

if TYPE_CHECKING:
    from specmodel.replay.asked import Replayed as Replayed, replayed as replayed
    from specmodel.replay.blocks import Sample as Sample
    from specmodel.replay.run import (
        assumed as assumed,
        simulate as simulate,
        summarise as summarise,
        timeline as timeline,
    )
    from specmodel.replay.sampling import Variation as Variation
    from specmodel.replay.times import (
        ReplayTimes as ReplayTimes,
        read_replay_times as read_replay_times,
        replay_times as replay_times,
    )

__getattr__, __dir__ = front(__name__)
