"""Measuring a running engine: plan, client, counters, the table of requests and its summary."""

from specmodel.calibrate.live.client import Server, Told, connected
from specmodel.calibrate.live.driver import Done, drive, fitted_words, random_ids, random_words
from specmodel.calibrate.live.engines import METHODS, launch_options
from specmodel.calibrate.live.log import Log
from specmodel.calibrate.live.plan import Budget, Plan, Run, budget, seconds_of
from specmodel.calibrate.live.summaries import summary

__all__ = [
    "METHODS",
    "Budget",
    "Done",
    "Log",
    "Plan",
    "Run",
    "Server",
    "Told",
    "budget",
    "connected",
    "drive",
    "fitted_words",
    "launch_options",
    "random_ids",
    "random_words",
    "seconds_of",
    "summary",
]
