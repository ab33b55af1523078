"""Show views of a prediction's points: lengths, the peak, break-even, tasks, plain decoding.

The times of components of passes are here too, as several views have them.
"""

from collections.abc import Callable

from msgspec.structs import replace

from specmodel import plan
from specmodel.core.base.errors import InputError
from specmodel.core.base.ranges import spans
from specmodel.core.base.text import TABLE, Columns, align, wrap
from specmodel.core.prediction.outcome import Prediction
from specmodel.core.prediction.predicting import at_all_lengths, predicted, with_known_intervals
from specmodel.core.prediction.table import Row, columns_of, varies
from specmodel.plan import curves
from specmodel.plan.advice import gain_of
from specmodel.plan.ranking import lengths_by_size
from specmodel.show import operator, report
from specmodel.show.columns import of_table
from specmodel.show.facts import AT, Fact, picked
from specmodel.show.forms import Answer, records, text_table
from specmodel.show.glossary import PAGES
from specmodel.show.views import case as case_of

_KINDS = {
    "break_even_tokens_per_step": "speculation pays",
    "sure_tokens_per_step": "the 80 % interval is above 1",
}
"""Columns of acceptance, and what is true above it."""
_USUAL = 3
"""Draft length at which published acceptance is shown, or the nearest one considered [token]."""
_REMEDY = "to_frame(), --csv and --json have all"
"""Where to find columns of plain decoding that do not fit on the screen."""
_ALWAYS = ("forward", "verify", "prefill")
"""Passes of all points; other passes exist only with a draft, or only without one."""
_NONE: Row = dict.fromkeys(("time", "hidden_time", "peak_share"))
_FEW_PASSES = 2
"""Most passes for which a table has room for hidden times and shares of the peak [-]."""


def lengths(prediction: Prediction, *, interval: bool | None = None) -> Answer:
    """Return the speedup of each draft length, 0 included, by batch size and context."""
    p = report.with_ends(at_all_lengths(case_of(prediction)), interval)
    names = PAGES["tables"]["lengths_by_size"].split()
    every = {tuple(row[name] for name in names[:3]): row for row in p.rows()}.values()
    rows = [{name: row[name] for name in names if name in row} for row in every]
    best = report.fitting([r for r in every if r["draft_length"] == r["best_draft_length"]])
    marked = [r | {"mark": "*" * (r["draft_length"] == r["best_draft_length"])} for r in rows]
    cells = report.by_length(marked, "Speedup (*: the best length)", "{mark}{speedup:.2f}")
    tables = (cells + report.left_out(rows), wrap(report.ended(best, p)))

    top = max(best, key=lambda row: float(row["speedup"]))
    drafted, longest = [row["draft_length"] for row in best], p.max_draft_length
    facts = {
        "best_lengths": Fact(lengths_by_size(best), "token"),
        **picked("most", _placed(top, best), "speedup", **AT, length="draft_length"),
        "no_gain_points": Fact(drafted.count(0) or None),
        "points": Fact(len(best)),
        "longest_considered": Fact(longest if longest in drafted else None, "token"),
    }
    return report.answer(p, rows, PAGES["lengths"]["lines"], lambda: tables, facts)


def peak(prediction: Prediction, *, interval: bool | None = None) -> Answer:
    """Return the batch sizes at which speculation pays, and the largest speedup."""
    p = report.with_ends(prediction, interval)
    if case_of(p).draft_length is not None and not p.draft_length.all():
        raise InputError("draft_length", p.draft_length.tolist(), "at least 1")
    every, (pays, denial) = curves.curves_of(p), report.verbs(p)
    spots = [curves.spot_with_ends(curve, p) for curve in every]
    best = max(spots, key=lambda row: row["peak_speedup"])
    curve = every[spots.index(best)]
    sizes = [row["batch_size"] for row in curve]
    gains = [gain_of(row) if row["draft_length"] else None for row in curve]
    top = curve[sizes.index(best["peak_batch_size"])]
    gain = gain_of(top)
    is_open, has_gain = bool(gain and gain.is_open), round(best["peak_speedup"], 2) > 1
    surely = [bool(g and g.low > 1) for g in gains] if gain else [r["speedup"] > 1 for r in curve]
    placed = {name: best[name] for name in best if name != "draft_length"}
    where = report.place(placed | {"batch_size": best["peak_batch_size"]}, spots)
    facts = {
        "advice": Fact(("may pay or not" if is_open else pays) if has_gain else denial),
        **picked("most", top | {"where": where}, "speedup", **AT, length="draft_length"),
        "pays_at": Fact(spans(sizes, surely), "request"),
        "may_pay_at": Fact(spans(sizes, (bool(g and g.is_open) for g in gains)), "request"),
        "largest_considered": Fact(best["largest_batch_size"], "request"),
    }
    texts = PAGES["sweet_spots"]
    words = texts["lines"]
    if len(spots) == 1:  # the table has them for each spot
        words = [*words, texts["considered"], *texts["sure" if gain else "gains"]]
    return report.answer(p, spots, words, lambda: [text_table(spots, "sweet_spots")], facts)


def tasks(prediction: Prediction, *, interval: bool | None = None) -> Answer:
    """Return the best draft length for each kind of task with published acceptance."""
    rows = list[Row]()
    for task, case in curves.cases_by_task(case_of(prediction)).items():
        p = report.with_ends(predicted(case), interval)
        of_task = zip(operator.with_alike(p, p.rows()), curves.ends_at_context(case), strict=True)
        for row, end in of_task:
            alike = {"alike": str(row["draft_length"])}
            rows.append({"task": task} | alike | row | {"ends_at_context": end})
    others = {k: v for k, v in prediction.assumptions.items() if k != "acceptance"}
    prediction = replace(prediction, assumptions=others)

    size = min(row["batch_size"] for row in rows)
    first = [row for row in rows if row["batch_size"] == size]
    facts = {
        "batch_size": Fact(size, "request"),
        "best_lengths": Fact({row["task"]: row["alike"] for row in first}, "token"),
        "speedups": Fact({row["task"]: row["speedup"] for row in first}),
    }
    texts = PAGES["tasks"]["lines"]
    return report.answer(prediction, rows, texts, lambda: [text_table(rows, "tasks")], facts)


def plain(prediction: Prediction, *, components: bool = False) -> Answer:
    """Return a prediction of plain decoding in all forms, with its components if asked."""
    rows = prediction.rows()
    fitting = [row for row in rows if row["batch_size"] <= row["max_batch_size"]]
    points = fitting or rows
    least = min(points, key=lambda row: row["tpot"])
    most = max(points, key=lambda row: row["throughput"])
    of = {"at": "batch_size", "where": "where", "share": "largest_share"}
    facts = picked("least_tpot", _placed(least, points), "tpot", **of)
    facts |= picked("most_throughput", _placed(most, points), "throughput", **of)
    words = report.opening(PAGES["plain"]["lines"], facts, fitting)

    def page() -> str:
        parts = [prediction.to_text(TABLE.get(), remedy=_REMEDY)]
        parts += [component_tables(prediction)] if components else []
        return report.page(prediction, words, *parts)

    return Answer(
        page=page,
        facts=facts,
        fields=fields_of(prediction, list, components=components),
        rows=component_rows(prediction) if components else rows,
        warnings=prediction.warnings,
    )


def break_even(prediction: Prediction) -> Answer:
    """Return the acceptance above which speculation pays, and that of a whole interval above 1.

    The acceptance of the prediction changes nothing, unless it is by context.
    """
    p = with_known_intervals(prediction)
    least = curves.break_even_rows(p)
    kept, is_own = report.fitting(least), "speedup" in least[0]
    near = p.evaluation.acceptance.measured_draft_length if is_own else _USUAL
    usual = min({row["draft_length"] for row in least}, key=lambda length: abs(length - near))
    at_usual = [row for row in kept if row["draft_length"] == usual]
    tokens, source = (0.0, "") if is_own else curves.published_tokens(p, usual)
    worth = [row["speedup_per_token"] / 10 for row in at_usual]
    gains = [row["speedup"] > 1 for row in at_usual if is_own]
    facts = {
        "verb": Fact(report.verbs(prediction)[0]),
        "usual_length": Fact(usual, "token"),
        "tenth_adds": Fact([(min(worth), max(worth))]),
        **_needed(kept, "break_even", "pays"),
        **_needed(kept, "sure", "surely"),
        "yours_pays": Fact(sum(gains) if is_own else None),
        "published": Fact(tokens or None, "token"),
        "published_by": Fact(report.brief_source(source)),
    }
    if tokens:
        at_usual = [row | {"speedup": tokens * row["speedup_per_token"]} for row in at_usual]
    texts = PAGES["break_even"]
    words = texts["lines"] if "pays_from" in facts else [texts["none"]]

    def tables() -> list[str]:
        title = f"speedup\nat {tokens:.2f}" if tokens else "speedup\nat your own"
        cells = text_table(at_usual, of_table("break_even", speedup=title))
        if varies("draft_length", kept):
            by_length = [
                report.by_length(kept, f"Tokens per step above which {what}", f"{{{name}:.2f}}")
                for name, what in _KINDS.items()
                if name in kept[0]
            ]
            cells = "\n\n".join([f"Draft length {usual}:\n{cells}", *by_length])
        dash = f"\n{texts['dash']}" * ("-" in cells.split())
        return [cells + dash + report.left_out(least)]

    found = report.answer(p, least, words, tables, facts)
    return found if is_own else replace(found, case=report.heading(p.deployment))


def _needed(kept: list[Row], kind: str, name: str) -> dict[str, Fact]:
    """Return facts `name`_from and `name`_everywhere: the acceptance at the easiest, hardest point.

    `kind` is "break_even" or "sure".
    """
    rate = f"{kind}_acceptance_rate"
    others = {"rate": rate, "length": "draft_length", "where": "where"}
    if rate not in kept[0]:
        return {}
    easiest = curves.easiest_points(kept, rate)
    able = [row for row in easiest if row[rate] is not None]
    nowhere = Fact(len(easiest) - len(able) or None)
    facts = {"points": Fact(len(easiest)), f"{name}_nowhere": nowhere}
    for end, row in zip(("from", "everywhere"), [*able[:1], *able[1:][-1:]], strict=False):
        column = f"{kind}_tokens_per_step"
        facts |= picked(f"{name}_{end}", _placed(row, easiest), column, **others)
    return facts


def _placed(row: Row, rows: list[Row]) -> Row:
    """Return a row with its place among the rows as text."""
    return row | {"where": operator.place(row, rows)}


def fields_of(prediction: Prediction, kept: Callable[..., list[Row]], *, components: bool) -> Row:
    """Return the JSON of a prediction: the rows that `kept` returns, with components if asked."""
    rows = prediction.rows()
    if components:
        for row, passes in zip(rows, _passes(prediction), strict=True):
            row["components"] = {
                kind: {name: component["time"] for name, component in of_pass.items()}
                for kind, of_pass in passes.items()
            }
    return report.case_fields(prediction) | {"units": prediction.units(), "rows": kept(rows)}


def component_rows(prediction: Prediction) -> list[Row]:
    """Return a row for each point, pass and component."""
    return records(plan.pass_components(prediction))


def component_tables(prediction: Prediction) -> str:
    """Return a table for each point: the times of components by pass.

    With at most two passes, a table also has the time that runs during other work, and the share of
    the data sheet's peak: of its bandwidth or of its arithmetic, whichever is larger.
    """
    points, blocks = prediction.rows(), []
    drafted = ", draft length {draft_length}" if "draft_length" in points[0] else ""
    title = f"batch size {{batch_size}}{drafted}, context {{context_length}}"
    for point, passes in zip(points, _passes(prediction), strict=True):
        is_idle = not point.get("draft_length", 1)
        shown = {k: rows for k, rows in passes.items() if k in _ALWAYS or ("idle" in k) == is_idle}
        names = [*dict.fromkeys(name for rows in passes.values() for name in rows)]
        columns: Columns = [("component", [*names, "total"])]
        for kind, rows in shown.items():
            total = sum(row["time"] for row in rows.values())
            every = [rows.get(name, _NONE) for name in names] + [_NONE | {"time": total}]
            cells = [row | {"share": row["time"] and row["time"] / total} for row in every]
            wanted = [(kind.replace(" ", "\n"), "{time:s}"), ("", "{share:.0%}")]
            if len(shown) <= _FEW_PASSES:
                hides = any(row["hidden_time"] for row in rows.values())
                wanted += [("hidden", "{hidden_time:s}")] * hides
                wanted += [("of\npeak", "{peak_share:.0%}")]
            columns += columns_of(cells, wanted)
        blocks.append(f"{title.format_map(point)}\n{align(columns, left=['component'])}")
    return "\n\n".join(blocks)


def _passes(prediction: Prediction) -> list[dict[str, dict[str, Row]]]:
    """Return for each point the rows of its components, by pass and component."""
    rows = component_rows(prediction)
    points: list[dict[str, dict[str, Row]]] = [{} for _ in range(prediction.batch_size.size)]
    each = len(rows) // len(points)  # all points have the same components
    for i, row in enumerate(rows):
        points[i // each].setdefault(row["pass"], {})[row["component"]] = row
    return points
