"""What each alternative of ``specmodel compare`` carries within targets, per GPU and per dollar."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specmodel.base.errors import InputError
from specmodel.base.text import wrap
from specmodel.cli.capacity import UNASKED, searching, trial_from, within_targets
from specmodel.prediction.table import Form, Row
from specmodel.show import forms

_LONGEST = 3
"""Longest draft of the schedules that are tried, where acceptance is known so far [token]."""
_COLUMNS: dict[str, Form] = {
    "alternative": "{alternative}",
    "requests/s\nplain": "{capacity_plain:.3g}",
    "requests/s\nat best": "{capacity:.3g}",
    "\nper GPU": "{capacity_per_gpu:.3g}",
    "$/M\ntokens": "{cost_per_million_tokens:.3g}",
}


def carried_by(
    cases: Mapping[str, dict[str, Any]], prices: Mapping[str, float]
) -> tuple[list[Row], str]:
    """Return what each alternative carries, without drafts and at best, and the page's part.

    `prices` are those of a GPU for an hour, by its name.
    """
    rows, words = [], ""
    with searching(2 * len(cases)) as bar:
        for name, case in cases.items():
            row, told = _carried(case, prices.get(case["hardware"]), bar.update)
            words = words or told
            rows.append({"alternative": name} | row)
    best = max(rows, key=lambda row: row["capacity_per_gpu"] or 0.0)
    text = f"Within {words}, {best['alternative']} carries most per GPU." if words else ""
    columns = _COLUMNS if prices else dict([*_COLUMNS.items()][:-1])
    return rows, f"{wrap(text)}\n{forms.table(rows, columns, left=['alternative'])}"


def _carried(case: dict[str, Any], price: float | None, progress: Any) -> tuple[Row, str]:
    """Return what an alternative carries, nothing where it does not fit in memory."""
    from specmodel.algebra.money import cost_per_million_tokens
    from specmodel.cli.options import longest_draft

    longest = min(longest_draft(case), _LONGEST)
    length = None if case["draft_length"] is None else int(case["draft_length"])
    policies = "none," + ("schedule" if length is None else f"fixed:{length}")
    asked = {"policy": policies, "max_draft_length": max(longest, length or 1), "seed": 0}
    asked["gpu_hour_price"] = None
    trial, names, _ = trial_from(UNASKED | case | asked, must_meet=False)
    try:
        found = [trial.capacity(name, progress).rate for name in names]
    except InputError as error:
        if error.argument != "memory":
            raise
        found = [0.0, 0.0]
    gpus, most = trial.study.deployment.layout.num_gpus, max(found)
    cost = None
    if price is not None and most:
        cost = float(cost_per_million_tokens(price, gpus, most * trial.mean_output))
    row = {"capacity_plain": found[0], "capacity": most, "capacity_per_gpu": most / gpus}
    return row | {"cost_per_million_tokens": cost}, within_targets(trial)
