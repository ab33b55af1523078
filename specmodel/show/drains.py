"""Drains in words and tables: how long a set of prompts takes, and what speculation saves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from specmodel.base.ranges import among
from specmodel.prediction.table import Row
from specmodel.show.columns import DRAINS, chosen, duration
from specmodel.show.forms import Answer
from specmodel.show.loads import framed, graph_notes, named, table_of, units_of

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
    notes = [_share_told(row) for row in rows if row["policy"] == "none"]
    has_formula = any(row["makespan_closed"] for row in rows)
    notes = [*filter(None, notes), *[_CLOSED] * has_formula, *[_POLICIES] * drained.is_usual]
    notes += [_PREEMPTED] if any(row.get("preemptions") for row in rows) else []
    shown = [name for name in _SHOWN if name != "makespan_closed" or not drain.by_formula]
    times = {name: "s" for name in rows[0] if name.startswith("last_at_")}
    asked = {name: getattr(drain, name) for name in ("prompts", "samples", "servers", "finished")}
    return framed(
        study,
        drained.assumed,
        (*beyond, *graph_notes(study, peaks), *study.notes),
        lambda: (verdict(drain, rows), table_of(rows, chosen(shown, DRAINS), _SPARE), notes),
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


def verdict(drain: Drain, rows: Sequence[Row]) -> str:
    """Return sentences on the best policy, its gain, and the share of time with few requests."""
    plain = next((row for row in rows if row["policy"] == "none"), None)
    best = min(rows, key=lambda row: row["makespan"])
    what = f"{drain.prompts} prompts" + (f" x {drain.samples}" if drain.samples > 1 else "")
    share = f"{100 * drain.finished:g} % of " if drain.finished < 1 else ""
    if plain is None or best["makespan"] > (1 - _WORTH) * plain["makespan"]:
        row = plain or best
        taken = f"{share}{what} are done in {duration(row['makespan'])}"
        told = f"Do not speculate: {taken}" if plain else f"With {best['policy']} {taken}"
        told = taken[:1].upper() + taken[1:] if len(rows) == 1 and plain else told
        return f"{told}{_sure(row, 'makespan', duration)}, {row['gpu_hours']:.3g} GPU hours."
    gain = f"{best['speedup']:.2f}x{_sure(best, 'speedup', '{:.2f}'.format)}"
    hours = f"{best['gpu_hours']:.3g} GPU hours for {plain['gpu_hours']:.3g}"
    return (
        f"{_advice(drain, best)}: {share}{what} are done in {duration(best['makespan'])} instead of"
        f" {duration(plain['makespan'])} ({gain}), {hours}. {_share_told(best)}"
    ).rstrip()


def _sure(row: Row, name: str, told: Callable[[float], str]) -> str:
    """Return the 80 % interval of a column as text; "" where errors are not known."""
    if row.get(f"{name}_low") is None:
        return ""
    return f", 80 % interval {told(row[f'{name}_low'])} to {told(row[f'{name}_high'])}"


def _advice(drain: Drain, row: Row) -> str:
    """Return as text the advice to speculate, with draft lengths by running requests."""
    name, *numbers = row["policy"].split(":")
    if name == "fixed":
        return f"Speculate throughout with {numbers[0]} drafted"
    if name == "below":
        return f"Speculate while at most {numbers[0]} requests run, with {numbers[1]} drafted"
    if name != "schedule":
        return f"Speculate with {named(row['policy'])}"
    lengths = drain.study.service("schedule").drafts.by_batch[: row["most_running"] + 1]
    sizes = {k: [n for n, own in enumerate(lengths) if n and own == k] for k in lengths[1:]}
    ranges = [f"{k} at {among(range(1, len(lengths)), own)}" for k, own in sizes.items()]
    told = f" ({'; '.join(ranges)} requests)" if len(ranges) <= _MOST_TOLD else ""
    return f"Speculate by schedule{told}"


def _share_told(row: Row) -> str:
    """Return a sentence on the share of time in which few requests run; "" if few is below 2."""
    how = "Without drafts" if row["policy"] == "none" else "Then"
    limit = row["speculates_up_to"] or row["most_running"] // _FEW
    if limit < 2:
        return ""
    sizes = [int(name.removeprefix("share_at_")) for name in row if name.startswith("share_at_")]
    few = max(size for size in sizes if size <= limit)
    share = sum(row[f"share_at_{size}"] or 0.0 for size in sizes if size < few)
    return (
        f"{how} fewer than {few} of at most {row['most_running']} requests run {100 * share:.0f} %"
        " of the time."
    )
