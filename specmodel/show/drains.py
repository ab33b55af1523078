"""Drains in words and tables: how long a set of prompts takes, and what speculation saves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmodel.prediction.table import Row
from specmodel.serving.facts import drain_facts
from specmodel.show.columns import DRAINS, chosen
from specmodel.show.facts import lines
from specmodel.show.forms import Answer
from specmodel.show.loads import framed, graph_notes, table_of, units_of

if TYPE_CHECKING:
    from specmodel.serving.asked import Drained
    from specmodel.serving.drains import Drain

_SHOWN = (
    *("policy", "makespan", "makespan_closed", "speedup", "speedup_low", "done_p50", "done_p90"),
    *("done_p99", "throughput", "running", "gpu_hours", "cost"),
)
_SPARE = ("done_p99", "running", "done_p50", "makespan_closed", "throughput", "speedup_low")
_CLOSED = (
    "By formula: all that run advance alike, each with a quantile of the noise of its drafts;"
    " policies that learn have none."
)
_PREEMPTED = "Requests that memory preempted count as running until they are done."
_ADVICE = {
    "none": "Do not speculate",
    "only": "With {policy}",
    "fixed": "Speculate throughout with {drafted} drafted",
    "below": "Speculate while at most {while_running} requests run, with {drafted} drafted",
    "schedule": "Speculate by schedule",
    "other": "Speculate with {policy}",
}
_TIMES = ": {asked} in {makespan}{makespan.ends}, {gpu_hours} GPU hours."
"""The headline: by kind of advice, and what all end in."""
_LINES = (
    "Gain: {speedup:.2f}x{speedup.ends}, from {makespan_plain} and {gpu_hours_plain} GPU hours.",
    "Drafted: {lengths} requests.",
    "Few: below {few} of at most {most_running} requests run {few_share:.0%} of the time.",
    "Few without drafts: below {few_plain}, {few_share_plain:.0%} of the time.",
)
_POLICIES = (
    "Policies: fixed:K drafts K tokens in each step, below:B:K where at most B requests run,"
    " schedule as many as are best for those that run, none never."
)


def answer(drained: Drained) -> Answer:
    """Return the answer of a drain in all forms."""
    from specmodel.prediction.cautions import notes_of_run

    drain, study, rows = drained.drain, drained.study, drained.rows
    peaks = [_at_peak(drain, row) for row in rows]
    beyond = notes_of_run(study.deployment, study.typical.longest)
    has_formula = any(row["makespan_closed"] for row in rows)
    notes = [*[_CLOSED] * has_formula, *[_POLICIES] * drained.is_usual]
    notes += [_PREEMPTED] if any(row.get("preemptions") for row in rows) else []
    shown = [name for name in _SHOWN if name != "makespan_closed" or not drain.by_formula]
    times = {name: "s" for name in rows[0] if name.startswith("last_at_")}
    asked = {name: getattr(drain, name) for name in ("prompts", "samples", "servers", "finished")}
    facts = drain_facts(drain, rows)
    return framed(
        study,
        drained.assumed,
        (*beyond, *graph_notes(study, peaks), *study.notes),
        lines((_ADVICE[facts["advice"].value] + _TIMES, *_LINES), facts),
        lambda: table_of(rows, chosen(shown, DRAINS), _SPARE),
        notes,
        facts=facts,
        said={"drain": asked, "units": units_of(rows[0]) | times, "rows": rows},
        rows=lambda: rows,
        figure="drain",
    )


def _at_peak(drain: Drain, row: Row) -> Row:
    """Return a row with the peak batch size under a policy, and the draft length there."""
    from specmodel.serving.state import BY_BATCH

    drafts, most = drain.study.service(row["policy"]).drafts, row["most_running"]
    at = min(most, len(drafts.by_batch) - 1)
    drafted = drafts.by_batch[at] if drafts.kind == BY_BATCH else drafts.max_draft_length
    return {"running": most, "drafted_tokens_per_step": drafted}
