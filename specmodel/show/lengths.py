"""The speedup of each draft length, and which is the largest: a view of a prediction."""

from __future__ import annotations

from specmodel.base.ranges import ranges_text, runs
from specmodel.base.text import wrap
from specmodel.prediction.table import Row
from specmodel.show import forms, operator, report
from specmodel.show.views import case as case_of

_COLUMNS = (
    *("batch_size", "context_length", "draft_length", "best_draft_length", "tokens_per_step"),
    *("speedup", "speedup_low", "speedup_high", "tpot", "tpot_low", "tpot_high"),
    *("throughput", "limited_by", "in_graph", "fits"),
)


def answer(prediction: report.Prediction, *, interval: bool | None = None) -> forms.Answer:
    """Return the speedup of each length, none included, by batch size and context, in all forms."""
    from specmodel.prediction.predicting import at_all_lengths

    p = report.with_ends(at_all_lengths(case_of(prediction)), interval)
    rows = ({name: row[name] for name in _COLUMNS if name in row} for row in p.rows())
    found = [*{tuple(row.values()): row for row in rows}.values()]
    best = report.fitting([r for r in found if r["draft_length"] == r["best_draft_length"]])
    return report.answer(
        p, found, lambda: (verdict(best, p, found), table(found), wrap(report.ended(best, p)))
    )


def verdict(rows: list[Row], prediction: report.Prediction, found: list[Row]) -> str:
    """Return a sentence on the best draft lengths, and on the point where they gain most.

    `rows` has each point at its best length, `found` each point at all lengths.
    """
    from specmodel.prediction.gains import gains_at

    pays, denial = report.verbs(prediction)
    top = max(rows, key=lambda row: float(row["speedup"]))
    if round(top["speedup"], 2) <= 1:
        return f"Speculation {denial} with any draft length: at most {top['speedup']:.2f}x."
    (gain,) = gains_at(prediction, [top])
    sure = report.ends(gain)
    if gain and gain.is_open:
        sure = f" (may pay or not: {report.chances(gain)})"
    lengths = [row["draft_length"] for row in rows]
    idle = lengths.count(0)
    none = f"; none {pays} at {idle} of {len(rows)} points" if idle else ""
    most = max(lengths)
    longest = f" ({most} is the longest considered)" * (most == prediction.max_draft_length)
    return (
        f"Best draft length: {_lengths(rows, found)}{longest}; most gained at"
        f" {operator.place(top, rows)}: {top['speedup']:.2f}x with {top['draft_length']}{sure}"
        f"{none}."
    )


def _lengths(rows: list[Row], found: list[Row]) -> str:
    """Return as text the best lengths by batch size, or their range over several contexts.

    Lengths that gain as much as the best are shown as a range.
    """
    rows = sorted(rows, key=lambda row: int(row["batch_size"]))
    sizes, lengths = ([row[name] for row in rows] for name in ("batch_size", "draft_length"))
    if len({*sizes}) < len(rows):
        return ranges_text([(min(filter(None, lengths)), max(lengths))])
    ends = [_alike([r for r in found if r["batch_size"] == size]) for size in sizes]
    told = [
        f"{ranges_text([alike]) if any(alike) else 'none'} at {ranges_text([(sizes[i], sizes[j])])}"
        for i, j, alike in runs(ends)
    ]
    return ", ".join(told)


def _alike(rows: list[Row]) -> tuple[int, int]:
    """Return the first and the last of the lengths of a point that gain as much; 0 for none."""
    from numpy import array

    from specmodel.prediction.best import alike_places

    length = rows[0]["best_draft_length"]
    drafts = [row for row in rows if row["draft_length"]]
    gains = array([row["speedup"] * row["fits"] for row in drafts])
    if not length or not gains.any():
        return length, length
    first, last = alike_places(gains, length - 1)
    return first + 1, last + 1


def table(found: list[Row]) -> str:
    """Return the speedups of all lengths, the largest of each point marked."""
    marked = [r | {"mark": "*" * (r["draft_length"] == r["best_draft_length"])} for r in found]
    cells = report.by_length(marked, "Speedup (*: the best)", "{mark}{speedup:.2f}")
    return cells + report.left_out(found)
