"""Drains in words and tables: how long a set of prompts takes, and what speculation saves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from specmodel.base.ranges import among
from specmodel.prediction.table import Row
from specmodel.show.columns import DRAINS, chosen
from specmodel.show.facts import Fact, known, lines
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
_WORTH = 0.01
"""How much less time a policy must take to be told as a gain [-]."""
_FEW = 8
"""Of what part of the most that run it is told how long fewer run, where none is the limit [-]."""
_MOST_TOLD = 4
"""Lengths of a schedule that are told [-]."""
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
    facts = _facts(drain, rows)
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


def _facts(drain: Drain, rows: Sequence[Row]) -> dict[str, Fact]:
    """Return the best policy, what it gains, and the share of time with few requests."""
    plain = next((row for row in rows if row["policy"] == "none"), None)
    best = min(rows, key=lambda row: row["makespan"])
    if plain and best["makespan"] > (1 - _WORTH) * plain["makespan"]:
        best = plain
    kind, *numbers = best["policy"].split(":")
    share = f"{100 * drain.finished:g} % of " if drain.finished < 1 else ""
    facts = {
        "advice": Fact((kind if kind in _ADVICE else "other") if plain else "only"),
        "policy": Fact(best["policy"]),
        "asked": Fact(f"{share}{drain.prompts} prompts x {drain.samples}"),
        "makespan": Fact(best["makespan"], "s", best["makespan_low"], best["makespan_high"]),
        "gpu_hours": Fact(best["gpu_hours"]),
        "drafted": Fact(int(numbers[-1]) if kind in ("fixed", "below") else None, "token"),
        "while_running": Fact(int(numbers[0]) if kind == "below" else None, "request"),
        "lengths": Fact(_lengths(drain, best) if kind == "schedule" else None),
        **_few(best, ""),
    }
    if plain and plain is not best:
        facts |= {
            "speedup": Fact(best["speedup"], "-", best["speedup_low"], best["speedup_high"]),
            "makespan_plain": Fact(plain["makespan"], "s"),
            "gpu_hours_plain": Fact(plain["gpu_hours"]),
            **_few(plain, "_plain"),
        }
    return known(facts.items())


def _lengths(drain: Drain, row: Row) -> str:
    """Return the draft lengths of a schedule by running requests as text; "" for many."""
    lengths = drain.study.service("schedule").drafts.by_batch[: row["most_running"] + 1]
    sizes = {k: [n for n, own in enumerate(lengths) if n and own == k] for k in lengths[1:]}
    ranges = [f"{k} at {among(range(1, len(lengths)), own)}" for k, own in sizes.items()]
    return "; ".join(ranges) if len(ranges) <= _MOST_TOLD else ""


def _few(row: Row, of: str) -> dict[str, Fact]:
    """Return the share of time in which few requests run; {} if few is below 2."""
    limit = row["speculates_up_to"] or row["most_running"] // _FEW
    if limit < 2:
        return {}
    sizes = [int(name.removeprefix("share_at_")) for name in row if name.startswith("share_at_")]
    few = max(size for size in sizes if size <= limit)
    share = sum(row[f"share_at_{size}"] or 0.0 for size in sizes if size < few)
    return {
        f"few{of}": Fact(few, "request"),
        f"few_share{of}": Fact(share),
        f"most_running{of}": Fact(row["most_running"], "request"),
    }
