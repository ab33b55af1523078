"""A schedule of draft lengths in words, as tables, as JSON: returns text, prints nothing."""

import csv
import io
from typing import Any

import numpy as np

from specmodel.answers.schedule import COLUMN_UNITS, draft_ranges
from specmodel.base.ranges import ranges_text, runs
from specmodel.base.text import Columns, align, wrap
from specmodel.cli.schedule_options import Plan
from specmodel.prediction import report

_MOST_COLUMNS = 9
"""Batch sizes beside each other in a table."""


def to_text(plan: Plan) -> str:
    """Return the answer for people, at most 80 columns wide."""
    prediction = plan.prediction
    fragment = f"{wrap(f'For {plan.format.name}, {plan.format.place}:')}\n{plan.fragment}"
    sections = [
        f"{report.heading(prediction.deployment)}\n{verdict(plan)}",
        *report.warnings(prediction),
        fragment,
        ranges_table(plan),
        *([contexts_table(plan)] if len(plan.context_length) > 1 else []),
        report.assumptions(prediction),
    ]
    return "\n\n".join(sections)


def verdict(plan: Plan) -> str:
    """Return whether speculation pays and where, and what the schedule gives up."""
    schedule, prediction = plan.schedule, plan.prediction
    pays, _ = report.verbs(prediction.deployment)
    sizes = f"Batch sizes up to {schedule.batch_size[-1]}, {plan.end}."
    lines = [_gain(plan, pays), sizes]
    if schedule.max_draft_length:
        lines[1] += (
            f" Against the best length at each, the schedule gives up {schedule.mean_loss:.1%} on"
            f" average, {schedule.loss.max():.1%} at most."
        )
    lines += [*_rule(plan), *_slowest(plan), *report.behind(prediction.deployment)]
    return "\n".join(map(wrap, lines))


def warnings(plan: Plan) -> list[str]:
    """Return what must be known even where only the fragment is read."""
    advice = [] if plan.schedule.max_draft_length else [_gain(plan, "pays").removesuffix(".")]
    return [*plan.prediction.warnings, *advice]


def ranges_table(plan: Plan) -> str:
    """Return the ranges of batch sizes with their draft lengths and speedups."""
    rows = _ranges(plan)
    columns: Columns = [
        ("batch\nsizes", [ranges_text([row[:2]]) for row in plan.schedule.ranges]),
        ("draft\nlength", [f"{row['draft_length']}" for row in rows]),
        ("speedup", [f"{_low_high(row['min_speedup'], row['max_speedup'])}" for row in rows]),
        ("given up\nat most", [f"{row['max_loss']:.1%}" for row in rows]),
    ]
    return align(columns)


def contexts_table(plan: Plan) -> str:
    """Return the best draft length by context and batch size, and the schedule's."""
    sizes = _some(plan.schedule.batch_size)
    labels = [f"{context}" for context in plan.context_length]
    lengths = np.vstack([plan.best_draft_length, plan.schedule.draft_length])[:, sizes - 1]
    columns: Columns = [("context", [*labels, "schedule"])]
    for size, column in zip(sizes, lengths.T, strict=True):
        columns.append((f"{size}", [f"{length:.0f}" for length in column]))
    return f"Best draft length by context and batch size:\n{align(columns)}"


def to_json(plan: Plan) -> str:
    """Return the schedule as JSON, in SI units."""
    schedule, prediction = plan.schedule, plan.prediction
    contexts = [
        {
            "context_length": context,
            "best_ranges": draft_ranges(lengths),
            "min_speedup": float(gain.min()),
        }
        for context, lengths, gain in zip(
            plan.context_length, plan.best_draft_length, plan.speedup, strict=True
        )
    ]
    document = {
        "deployment": report.deployment_fields(prediction.deployment),
        "assumptions": prediction.assumptions,
        "warnings": warnings(plan),
        "serving_engine": plan.engine,
        "fragment": plan.fragment,
        "ranges": _ranges(plan),
        "mean_speedup": schedule.mean_speedup,
        "mean_loss": schedule.mean_loss,
        "max_loss": float(schedule.loss.max()),
        "loss_at_batch_size_1": float(schedule.loss[0]),
        "cost_of_rule": plan.cost_of_rule,
        "contexts": contexts,
        "units": COLUMN_UNITS,
        "rows": schedule.rows(),
    }
    return report.json_text(document)


def to_csv(plan: Plan) -> str:
    """Return a row for each batch size as CSV."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(COLUMN_UNITS), lineterminator="\n")
    writer.writeheader()
    writer.writerows(plan.schedule.rows())
    return text.getvalue().rstrip("\n")


def _ranges(plan: Plan) -> list[dict[str, Any]]:
    schedule, rows = plan.schedule, []
    for first, last, length in schedule.ranges:
        gain, loss = schedule.speedup[first - 1 : last], schedule.loss[first - 1 : last]
        rows.append(
            {
                "first_batch_size": first,
                "last_batch_size": last,
                "draft_length": length,
                "min_speedup": float(gain.min()),
                "max_speedup": float(gain.max()),
                "max_loss": float(loss.max()),
            }
        )
    return rows


def _gain(plan: Plan, pays: str) -> str:
    """Return the answer: where it pays and by how much, or that it should stay off."""
    schedule = plan.schedule
    last = schedule.batch_size[-1]
    if not schedule.max_draft_length:
        best = int(schedule.best_speedup.argmax())
        if schedule.best_speedup[best] == 1:
            return f"Speculation pays at no batch size up to {last}: leave it off."
        gain = f"{schedule.best_speedup[best]:.3f}x at batch size {best + 1}"
        if plan.unbound.max_draft_length:
            return (
                f"No schedule that {plan.format.name} takes is worth it: leave speculation off. The"
                f" most it could gain is {gain}."
            )
        return f"Speculation gains at most {gain}, within the tolerance: leave it off."
    if last == 1:
        return f"Speculation {pays}: {schedule.speedup[0]:.2f}x at batch size 1."
    most, least = int(schedule.speedup.argmax()), int(schedule.speedup.argmin())
    top = f"most {schedule.speedup[most]:.2f}x at {most + 1}"
    is_paying = schedule.speedup > 1
    if is_paying.all():
        where = "at every batch size"
        top += f", least {schedule.speedup[least]:.2f}x at {least + 1}"
    else:
        paying = [(first + 1, end + 1) for first, end, gains in runs(is_paying.tolist()) if gains]
        where = f"at batch sizes {ranges_text(paying)}"
    contexts = " and a geometric mean over contexts" if len(plan.context_length) > 1 else ""
    return (
        f"Speculation {pays} {where}: {schedule.mean_speedup:.2f}x on average up to {last}, with"
        f" batch sizes equally likely on a logarithmic scale{contexts}; {top}."
    )


def _rule(plan: Plan) -> list[str]:
    """Say what it costs that the longest draft must stand at batch size 1."""
    schedule, unbound = plan.schedule, plan.unbound
    if schedule.ranges == unbound.ranges or schedule.max_draft_length == 0:
        return []
    here, free = schedule.draft_length[0], unbound.draft_length[0]
    told = (
        f"{schedule.speedup[0]:.2f}x there with {_tokens(here)} instead of"
        f" {unbound.speedup[0]:.2f}x with {_tokens(free)}"
    )
    if here == free:
        told = f"{_tokens(here)} at most, instead of {_tokens(unbound.max_draft_length)}"
    return [
        f"{plan.format.name} wants its longest draft at batch size 1: {told};"
        f" {plan.cost_of_rule:.1%} over all batch sizes."
    ]


def _slowest(plan: Plan) -> list[str]:
    """Say where one of the contexts loses by a schedule made for all."""
    if len(plan.context_length) == 1 or plan.speedup.min() >= 1:
        return []
    context, size = np.unravel_index(plan.speedup.argmin(), plan.speedup.shape)
    return [
        f"One schedule for all contexts slows some down: {plan.speedup.min():.2f}x at batch size"
        f" {size + 1} and context {plan.context_length[context]}."
    ]


def _some(sizes: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return powers of two up to the last size, and that, thinned out to fit a line."""
    largest = int(sizes[-1])
    powers = [2**i for i in range(largest.bit_length()) if 2**i < largest]
    stride = -(-len(powers) // _MOST_COLUMNS) or 1
    return np.array([*powers[::stride], largest])


def _tokens(count: int) -> str:
    if count == 0:
        return "no draft"
    return f"{count} tokens" if count > 1 else "1 token"


def _low_high(low: float, high: float) -> str:
    low_text, high_text = f"{low:.2f}", f"{high:.2f}"
    return low_text if low_text == high_text else f"{low_text}-{high_text}"
