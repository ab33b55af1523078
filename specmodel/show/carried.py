"""What alternatives carry within targets, in words and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from specmodel.prediction.table import Row, seconds, text_table
from specmodel.show import report
from specmodel.show.columns import ALTERNATIVES, chosen
from specmodel.show.compared import CLOSE
from specmodel.show.loads import within_targets
from specmodel.show.views import case as case_of
from specmodel.show.within import Within

if TYPE_CHECKING:
    from specmodel.answers.alternatives import Alternatives
    from specmodel.serving import Targets

_MOST_SEARCHED = 1024
"""Largest batch size among which one within a target is looked for, at least [request]."""
_PRICE = "cost_per_million_tokens"


def within_target(
    found: Alternatives, target: float, prices: Mapping[str, float]
) -> tuple[list[Row], str, str]:
    """Return what each alternative carries within a time per token [s], and how to say it."""
    rows = [
        {"alternative": name} | _within(p, target).row(prices.get(name))
        for name, p in found.predictions.items()
    ]
    return rows, *within_table(rows, seconds(target))


def _within(prediction: report.Prediction, target: float) -> Within:
    """Return the largest batches of an alternative that meet a time per token [s]."""
    from specmodel.prediction.predicting import at_best_lengths, at_given_lengths

    most = max(_MOST_SEARCHED, int(prediction.batch_size.max()))
    case = case_of(prediction).at(batch_size=range(1, most + 1))
    make = at_best_lengths if case.draft_length is None else at_given_lengths
    return Within(target=target, prediction=make(case))


def within_table(rows: Sequence[Row], target: str) -> tuple[str, str]:
    """Return what the largest batches within a time per token carry, in a sentence and a table."""
    rates = {row["alternative"]: row["throughput_per_gpu_within"] or 0.0 for row in rows}
    best = max(rows, key=lambda row: rates[row["alternative"]])
    most = rates[best["alternative"]]
    if not most:
        return f"Within {target} a token no alternative has a batch.", ""
    close = [
        name
        for name, rate in rates.items()
        if name != best["alternative"] and rate * (1 + CLOSE) > most
    ]
    near = f"; too close to tell apart: {'; '.join(close)}" if close else ""
    told = (
        f"Within {target} a token, most per GPU: {best['alternative']}, {most:.0f} tokens/s with"
        f" {best['largest_batch_size']} requests at once{near}."
    )
    names = ("alternative", "largest_batch_size", "throughput_per_gpu_within", _PRICE)
    table = text_table(rows, chosen(names, ALTERNATIVES), left=["alternative"])
    return told, f"Within {target} a token:\n{table}"


def carried_table(rows: Sequence[Row], targets: Targets, *, has_prices: bool) -> tuple[str, str]:
    """Return what alternatives carry under a simulated load, in a sentence and a table."""
    best = max(rows, key=lambda row: row["capacity_per_gpu"])
    told = f"Within {within_targets(targets)}, {best['alternative']} carries most per GPU."
    names = ("alternative", "capacity_plain", "capacity", "capacity_per_gpu", _PRICE)
    columns = chosen(names, ALTERNATIVES, capacity="requests/s\nat best")
    return told, text_table(rows, columns, left=["alternative"])
