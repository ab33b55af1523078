"""What each alternative of ``specmodel compare`` carries within targets, per GPU and per dollar.

At a batch within a time per token, or under a simulated load.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from specmodel.cli.capacity import UNASKED, num_gpus, searched, trial_from, within_targets
from specmodel.prediction.table import Form, Row
from specmodel.show import forms, report
from specmodel.show.within import Within

if TYPE_CHECKING:
    from specmodel.serving.promises import Trial

_LONGEST = 3
"""Longest draft of the schedules that are tried, where acceptance is known so far [token]."""
_MOST_SEARCHED = 1024
"""Largest batch size among which one within a target is looked for, at least [request]."""
_COLUMNS: dict[str, Form] = {
    "alternative": "{alternative}",
    "requests/s\nplain": "{capacity_plain:.3g}",
    "requests/s\nat best": "{capacity:.3g}",
    "\nper GPU": "{capacity_per_gpu:.3g}",
    "$/M\ntokens": "{cost_per_million_tokens:.3g}",
}


def carried_by(
    cases: Mapping[str, dict[str, Any]], options: dict[str, Any], prices: Mapping[str, float]
) -> tuple[list[Row], str, str]:
    """Return what each alternative carries, without drafts and at best, in a sentence and a table.

    Nothing where it does not fit in memory. `prices` are those of a GPU for an hour, by its name.
    """
    trials = {name: _trial(case) for name, case in cases.items()}
    pieces = [(trial, policy) for trial, policies in trials.values() for policy in policies]
    found = iter(searched(pieces, options))
    rows = []
    for name, (trial, policies) in trials.items():
        rates = [next(found).rate for _ in policies]
        price = prices.get(cases[name]["hardware"])
        rows.append({"alternative": name} | _row(trial, rates, price))
    best = max(rows, key=lambda row: row["capacity_per_gpu"])
    words = within_targets(trial)
    told = f"Within {words}, {best['alternative']} carries most per GPU."
    columns = _COLUMNS if prices else dict([*_COLUMNS.items()][:-1])
    return rows, told, forms.table(rows, columns, left=["alternative"])


def _trial(case: dict[str, Any]) -> tuple[Trial, list[str]]:
    """Return what is tried of an alternative, and under which policies."""
    from specmodel.cli.options import longest_draft

    longest = min(longest_draft(case), _LONGEST)
    length = None if case["draft_length"] is None else int(case["draft_length"])
    policies = "none," + ("schedule" if length is None else f"fixed:{length}")
    asked = {"policy": policies, "max_draft_length": max(longest, length or 1), "seed": 0}
    asked["gpu_hour_price"] = None
    trial, names, _ = trial_from(UNASKED | case | asked, must_meet=False)
    return trial, names


def _row(trial: Trial, rates: list[float], price: float | None) -> Row:
    """Return what is carried without drafts and at best, per GPU, and what tokens then cost."""
    from specmodel.algebra.money import cost_per_million_tokens

    gpus, most, cost = num_gpus(trial), max(rates), None
    if price is not None and most:
        cost = float(cost_per_million_tokens(price, gpus, most * trial.mean_output))
    row = {"capacity_plain": rates[0], "capacity": most, "capacity_per_gpu": most / gpus}
    return row | {"cost_per_million_tokens": cost}


def within(
    prediction: report.Prediction,
    case: dict[str, Any],
    target: float,
    prices: Mapping[str, float],
) -> Row:
    """Return the largest batches that meet a time per token [s], and what they carry per GPU."""
    from specmodel.algebra.money import cost_per_million_tokens
    from specmodel.cli.options import best_from, predict_from

    most = max(_MOST_SEARCHED, int(prediction.batch_size.max()))
    make = best_from if case["draft_length"] is None else predict_from
    found = Within(target=target, prediction=make(case | {"batch_size": f"1:{most}"}))
    gpus, row = prediction.deployment.layout.num_gpus, Row()
    ends = ("_plain", found.plain, "forward_time"), ("", found.largest, "tpot")
    for end, largest, time in ends:
        rate = largest["batch_size"] / largest[time] / gpus if largest else None
        row[f"largest_batch_size{end}"] = int(largest["batch_size"]) if largest else None
        row[f"throughput_per_gpu_within{end}"] = rate
    if prices:
        price = prices[case["hardware"]]
        cost = cost_per_million_tokens(price, 1, rate) if rate else None
        row["cost_per_million_tokens"] = cost
    return row
