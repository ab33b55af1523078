"""Offline replays: draft-length policies over acceptance traces, on predicted or measured times."""

from specmodel.replay.simulation.chance import Variation
from specmodel.replay.simulation.run import simulate
from specmodel.replay.simulation.sources import Sample
from specmodel.replay.simulation.summary import summarise
from specmodel.replay.simulation.timeline import timeline
from specmodel.replay.simulation.times import ReplayTimes, read_replay_times, replay_times

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
