"""Offline replays: draft-length policies over acceptance traces, on predicted or measured times.

Names load on first use, because traces and policies are also used where pandas is not needed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specmodel.replay.blocks import Sample
    from specmodel.replay.chance import Variation
    from specmodel.replay.run import simulate, summarise, timeline
    from specmodel.replay.times import ReplayTimes, read_replay_times, replay_times

__all__ = [
    "ReplayTimes",
    "Sample",
    "Variation",
    "read_replay_times",
    "replay_times",
    "simulate",
    "summarise",
    "timeline",
]

_HOME = {"Sample": "blocks", "Variation": "chance"} | {
    **dict.fromkeys(("simulate", "summarise", "timeline"), "run"),
    **dict.fromkeys(("ReplayTimes", "read_replay_times", "replay_times"), "times"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value
