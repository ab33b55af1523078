"""Find the largest rates of policies, schedules and alternatives within targets."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from msgspec.structs import replace

from specmodel.core.algebra.money import cost_per_million_tokens
from specmodel.core.base.errors import InputError
from specmodel.core.base.units import FloatArray, format_si
from specmodel.plan.sweeps.workers import results
from specmodel.simulate.arguments import ComputeArguments
from specmodel.simulate.capacity import NOTHING, Capacity
from specmodel.simulate.outcome import MEANS
from specmodel.simulate.study import Row, add_costs
from specmodel.simulate.trial import Trial

if TYPE_CHECKING:
    from specmodel.plan.schedule import Schedule

_OF_POLICY = ("capacity", "simulated_low", "simulated_high", "predicted_low", "predicted_high")


def largest_rates(
    trial: Trial,
    policies: Sequence[str],
    *,
    for_rate: float | None = None,
    gpu_hour_price: float | None = None,
    **how: Unpack[ComputeArguments],
) -> tuple[list[Row], list[Row]]:
    """Return rows with the largest sustained rate of each policy, and rows of all rates tried.

    Parameters
    ----------
    trial, policies
        The study and its targets, and the policies by name.
    for_rate, gpu_hour_price
        Total rate, to add the replicas and GPUs that it needs [request/s]. Price of a GPU for an
        hour, to add costs [-].
    **how
        Settings of the computation: `ComputeArguments`, as in `capacities`.
    """
    rows, tried = list[Row](), list[Row]()
    asked = {f"{name}_target": getattr(trial.targets, name) for name in ("tpot", "ttft")}
    every = capacities([(trial, name) for name in policies], **how)
    for name, found in zip(policies, every, strict=True):
        rows.append(capacity_row(trial, name, found))
        tried += [
            {
                "request_rate": load.rate,
                "policy": name,
                **load.means,
                "goodput": load.share(),
                "is_steady": load.is_steady,
                "meets_targets": load.passes(trial.targets.attainment),
                **{key: rows[-1][key] for key in _OF_POLICY},
                **asked,
            }
            for load in found.loads
        ]
    if not any(row["capacity"] for row in rows):
        expected = "At no rate do so many requests meet the targets. Give a smaller share."
        raise InputError("attainment", trial.targets.attainment, expected)
    for row in rows if for_rate is not None else ():
        count = math.ceil(for_rate / row["capacity"]) if row["capacity"] else None
        row["replicas"], row["gpus"] = count, count and count * trial.study.num_gpus
    add_costs([*rows, *tried], gpu_hour_price, trial.study.num_gpus)
    return rows, tried


def with_single_lengths(schedule: Schedule, speedup: FloatArray) -> dict[str, Schedule]:
    """Return a schedule, no draft, and every single length, by the names of their policies.

    Parameters
    ----------
    schedule, speedup
        A schedule, and the speedups from which it was made, by context, batch size and draft length
        from 0 [-].
    """
    ranges = (f"{first}-{last}={length}" for first, last, length in schedule.ranges)
    is_single = len(schedule.ranges) == 1  # then it is one of the single lengths
    found = {} if is_single else {":".join(["table", *ranges]): schedule}
    mean = np.exp(np.log(speedup).mean(axis=0))
    mean[:, 0] = 1.0  # no drafter is loaded
    for length in range(mean.shape[1]):
        lengths = np.full_like(schedule.draft_length, length)
        one = replace(schedule, draft_length=lengths, speedup=mean[:, length])
        found[f"fixed:{length}" if length else "none"] = one
    return found


def best_schedule(
    trial: Trial, schedules: Mapping[str, Schedule], **how: Unpack[ComputeArguments]
) -> tuple[Schedule, list[Row]]:
    """Return the schedule with the highest capacity, and a row with the capacity of each policy.

    Parameters
    ----------
    trial, schedules
        The study and its targets, and schedules by the names of `with_single_lengths`.
    **how
        Settings of the computation: `ComputeArguments`, as in `capacities`.
    """
    every = capacities([(trial, name) for name in schedules], **how)
    rows: list[Row] = [
        {"policy": name, "capacity": each.rate, "simulated_interval": list(each.simulated)}
        for name, each in zip(schedules, every, strict=True)
    ]
    return schedules[max(rows, key=lambda row: row["capacity"])["policy"]], rows


def carried_by(
    trials: Mapping[str, tuple[Trial, Sequence[str]]],
    prices: Mapping[str, float],
    **how: Unpack[ComputeArguments],
) -> list[Row]:
    """Return each alternative's capacity without drafts, at best and per GPU, and its cost.

    The capacity is 0 if nothing fits in memory.

    Parameters
    ----------
    trials
        A trial and its policies for each alternative by name; the first policy drafts nothing.
    prices
        Price of a GPU for an hour, by name of the alternative, to add costs [-].
    **how
        Settings of the computation: `ComputeArguments`, as in `capacities`.
    """
    pieces = [(trial, name) for trial, names in trials.values() for name in names]
    found, rows = iter(capacities(pieces, **how)), list[Row]()
    for alternative, (trial, names) in trials.items():
        rates = [next(found).rate for _ in names]
        most, gpus, cost = max(rates), trial.study.num_gpus, None
        if alternative in prices and most:
            made = most * trial.mean_output
            cost = float(cost_per_million_tokens(prices[alternative], gpus, made))
        rows.append(
            {
                "alternative": alternative,
                "capacity_plain": rates[0],
                "capacity": most,
                "capacity_per_gpu": most / gpus,
                "cost_per_million_tokens": cost,
            }
        )
    return rows


def capacities(
    pieces: Sequence[tuple[Trial, str]],
    *,
    workers: int = 1,
    client: Any = None,
    progress: Callable[[int], object] = lambda done: None,
) -> list[Capacity]:
    """Return the capacity of a policy in each trial, `NOTHING` if no request fits in memory.

    Workers and clients do not change the result.

    Parameters
    ----------
    pieces
        Trials, each with the name of a policy.
    workers, client
        Number of processes, or a Dask client or the address of its scheduler [-].
    progress
        Called with the approximate number of rates tried [-].
    """
    if client is None and workers == 1:
        return [_capacity(piece, progress) for piece in pieces]
    others = None if client is not None and workers == 1 else min(workers, len(pieces))
    found = list[Capacity]()
    for _, capacity in results(pieces, _capacity, others, client, processes=True):
        found.append(capacity)
        progress(len(capacity.loads))
    return found


def _capacity(
    piece: tuple[Trial, str], progress: Callable[[int], object] = lambda done: None
) -> Capacity:
    trial, name = piece
    try:
        return trial.capacity(name, progress)
    except InputError as error:
        if error.argument != "memory":
            raise
        return NOTHING


def check_alone(trial: Trial, policies: Sequence[str], assumed: Collection[str] = ()) -> None:
    """Refuse targets that a single request misses under every policy; the error has its time.

    `assumed` contains the names of the targets that were not given, such as ``tpot_target``.
    """
    targets = {"tpot": trial.targets.tpot, "ttft": trial.targets.ttft}
    found = {name: dict(zip(targets, trial.alone(name)[::-1], strict=True)) for name in policies}

    def missed(policy: str) -> dict[str, float]:
        return {n: t for n, t in found[policy].items() if t > (targets[n] or np.inf)}

    best = min(policies, key=lambda policy: (bool(missed(policy)), *found[policy].values()))
    what = "a single request" if trial.arrivals.burst == 1 else "a burst"
    for name, time in missed(best).items():
        expected = f"at least {format_si(time, 's')}, the time of {what} with {best}"
        typed = None if f"{name}_target" in assumed else f"{targets[name]:g} s"
        raise InputError(f"{name}_target", typed, expected)


def capacity_row(trial: Trial, name: str, found: Capacity) -> Row:
    """Return a policy's capacity and its intervals, and means over requests at that rate."""
    met, predicted = found.met, found.predicted or (None, None)
    rates = zip(_OF_POLICY, (found.rate, *found.simulated, *predicted), strict=True)
    return {
        "policy": name,
        **dict(rates),
        **(met.means if met else dict.fromkeys(MEANS)),
        "goodput": met.share() if met else None,
        "throughput": found.rate * trial.mean_output,
    }
