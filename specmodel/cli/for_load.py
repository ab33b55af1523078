"""The schedule that carries most within targets, of those that an engine takes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from specmodel.cli.capacity import UNASKED, searched, trial_from, within_targets

if TYPE_CHECKING:
    from specmodel.answers import Schedule
    from specmodel.base.units import FloatArray


def carrying_most(
    options: dict[str, Any], schedule: Schedule, gain: FloatArray, longest: int
) -> tuple[Schedule, dict[str, Any], dict[str, Any]]:
    """Return the one that carries most of a schedule, single lengths and none, by simulation.

    With it what is said of the load, and what was assumed of it. `gain` is the speedup by context,
    batch size and draft length [-].
    """
    tried = {_table(schedule): schedule, "none": _single(schedule, gain, 0)}
    tried |= {f"fixed:{k}": _single(schedule, gain, k) for k in range(1, longest + 1)}
    if len(schedule.ranges) == 1:  # it is one of the others
        tried.pop(_table(schedule))
    asked = {"policy": ",".join(tried), "max_draft_length": longest, "seed": 0}
    trial, policies, assumed = trial_from(UNASKED | options | asked)
    every = searched([(trial, name) for name in policies], options)
    found = dict(zip(policies, every, strict=True))
    best = max(policies, key=lambda name: found[name].rate)
    single = max(found[name].rate for name in policies if name.startswith("fixed"))
    here = {"none": "no draft", _table(schedule): "this schedule"}.get(
        best, f"one length, {best[6:]},"
    )
    load = (
        f"Within {within_targets(trial)}, {here} carries most: {found[best].rate:.3g} requests/s;"
        f" the best single length {single:.3g}, none {found['none'].rate:.3g}."
    )
    rows = tuple(
        {"policy": name, "capacity": each.rate, "simulated_interval": list(each.simulated)}
        for name, each in found.items()
    )
    names = ("workload", "ttft_target", "attainment", "requests")
    told = {name: assumed[name] for name in names if name in assumed}
    return tried[best], {"load": load, "carried": rows}, told


def _table(schedule: Schedule) -> str:
    """Return a schedule as the name of a policy."""
    ranges = (f"{first}-{last}={length}" for first, last, length in schedule.ranges)
    return ":".join(["table", *ranges])


def _single(schedule: Schedule, gain: FloatArray, length: int) -> Schedule:
    """Return a schedule of one length, with its speedups over contexts in the mean."""
    import numpy as np

    speedup = np.exp(np.log(gain[..., length]).mean(axis=0))
    lengths = np.full_like(schedule.draft_length, length)
    return replace(
        schedule, draft_length=lengths, speedup=speedup if length else np.ones_like(speedup)
    )
