"""Offline replays: draft-length policies over acceptance traces, on predicted or measured times."""

from specmodel.simulation.chance import Variation
from specmodel.simulation.run import simulate
from specmodel.simulation.sources import Sample
from specmodel.simulation.summary import summarise
from specmodel.simulation.timeline import timeline
from specmodel.simulation.times import ReplayTimes, read_replay_times, replay_times

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
