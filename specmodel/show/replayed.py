"""Replays of policies in words and tables, and their times as JSON has them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from specmodel import replay
from specmodel.base.text import SCREEN, listed
from specmodel.prediction.table import Row
from specmodel.show import report
from specmodel.show.behind import behind
from specmodel.show.columns import REPLAYS, chosen
from specmodel.show.forms import Answer, plain_fields, records, text_table
from specmodel.show.notes import in_words, si

if TYPE_CHECKING:
    from specmodel.replay.asked import Replayed, ReplayQuestion

_TOLD = "told the requests beforehand, as no engine is; not among the best"
"""What is noted of policies of hindsight."""


def heading(question: ReplayQuestion) -> str:
    """Return the heading: the deployment, or the source of the times, and the requests."""
    where = question.deployment and report.heading(question.deployment)
    return f"{where or question.heading}; {question.requests}"


def answer(found: Replayed) -> Answer:
    """Return the answer of a replay of several policies, in all forms."""
    question, case = found.question, heading(found.question)
    known = {} if question.fits is None else {"fits": question.fits}  # unknown of measured times
    assumed, rest = found.summary["assumed"], records(found.summary.drop(columns="assumed"))
    rows = [{**row, **known, "assumed": told} for row, told in zip(rest, assumed, strict=True)]
    warnings = [*map(str, question.warnings)]
    said = {
        "heading": case,
        "assumptions": in_words(question.assumed),
        "warnings": warnings,
        **known,
    }
    sentences = behind(question.deployment) if question.deployment else []
    return Answer(
        page=lambda: page(said, question.times, rows, sentences),
        fields=lambda: said | {"step_times": fields_of(question.times), "policies": rows},
        rows=lambda: rows,
        warnings=warnings,
        case=case,
    )


def page(
    said: dict[str, Any], times: replay.ReplayTimes, rows: list[Row], behind: list[str]
) -> str:
    """Return the page for people: below the verdict the relative step times, which decide."""
    costs = ", ".join(f"{cost:.2f}" for cost in times.step_time / times.forward_time)
    plain = si(times.forward_time, "s")
    line = f"A decode step takes {plain}; steps that verify 0, 1, ... draft tokens: {costs} of it."
    labels = _labels(row["policy"] for row in rows)
    rows = [row | {"policy": labels[row["policy"]]} for row in rows]
    verdict = _verdict(rows) if said.get("fits", True) else report.if_it_fitted(_verdict(rows))
    values = said["assumptions"].items()
    assumed = {name: f"{v:g}" if isinstance(v, float) else v for name, v in values}
    told = assumed, said["warnings"], [verdict, line], [_table(rows, labels)]
    return report.laid_out(said["heading"], behind, *told)


def fields_of(times: replay.ReplayTimes) -> Row:
    """Return times for JSON, the later ones as a list of the same fields."""
    fields: Row = plain_fields(times)
    later = [
        {name: value for name, value in fields_of(row).items() if not name.startswith("context")}
        for row in fields.pop("later")
    ]
    return fields | ({"later": later} if later else {})


def _verdict(rows: list[Row]) -> str:
    """Return a sentence on the best policy, and on Cascade if it was replayed."""
    rows = [row for row in rows if row["time_over_best"] is not None]
    if not rows:
        return "Policies that know the trace only: bounds, nothing to deploy."
    best = max(rows, key=lambda row: row["speedup"])
    told = [f"Best at batch size 1: {_gain(best)}{_lead([row for row in rows if row is not best])}"]
    if best["speedup"] <= 1:
        told = ["Speculation does not pay at batch size 1 under any of these policies"]
    told += [_gain(row) for row in rows if row["policy"] == "cascade" and row is not best]
    return f"{'; '.join(told)}."


def _lead(others: list[Row]) -> str:
    """Return the lead of the best policy over the next as text, or those within noise of it.

    Times are compared request by request; "" if there is no other policy.
    """
    close = [row for row in others if (row["time_over_best_low"] or 1) <= 1]
    nearest = close or sorted(others, key=lambda row: row["time_over_best"])[:1]
    if not nearest:
        return ""
    told = listed([_ratio(row) for row in nearest])
    return f", {told}{', not told apart' if close else ''} over the same requests"


def _ratio(row: Row) -> str:
    """Return as text how much faster the best policy is than this row's, and its 95 % interval."""
    low, high = row["time_over_best_low"], row["time_over_best_high"]
    ends = "" if low is None else f" (95 % {low:.3f} to {high:.3f})"
    return f"{row['time_over_best']:.3f}x of {row['policy']}'s{ends}"


def _gain(row: Row) -> str:
    """Return a policy's speedup as text, with the share of its steps that test draft lengths."""
    testing = f", {row['test_share']:.0%} of its steps testing lengths" if row["test_share"] else ""
    return f"{row['policy']}, {row['speedup']:.2f}x{testing}"


def _table(rows: list[Row], labels: dict[str, str]) -> str:
    """Return a text table with a row for each policy, and notes that explain its labels."""
    notes = [_fill(f"{label}: {name}") for name, label in labels.items() if label != name]
    by_text: dict[str, list[str]] = {}
    for row in rows:
        if text := row["assumed"] or ("" if row["time_over_best"] is not None else _TOLD):
            by_text.setdefault(text, []).append(row["policy"])
    notes += [_fill(f"{', '.join(names)}: {text}.") for text, names in by_text.items()]
    columns = chosen(["policy", *(column.name for column in REPLAYS)], REPLAYS)
    return "\n".join([text_table(rows, columns, width=SCREEN.get(), left=("policy",)), *notes])


def _labels(names: Iterable[str], width: int = 20) -> dict[str, str]:
    """Return the labels of policies; long names, and those beside them, get a number.

    A note explains each number.
    """
    labels = {name: name for name in names}
    long = {name.split(":")[0] for name in labels if len(name) > width}
    marked = [name for name in labels if ":" in name and name.split(":")[0] in long]
    for number, name in enumerate(marked, start=1):
        mark = f" [{number}]"
        labels[name] = name.split(":")[0][: width - len(mark)] + mark
    return labels


def _fill(text: str) -> str:
    """Wrap text with names that the user typed; longer words than a line are cut."""
    return textwrap.fill(text, SCREEN.get(), break_on_hyphens=False)
