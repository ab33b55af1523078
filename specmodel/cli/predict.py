"""``specmodel predict``: target efficiency and speedup at operating points."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from specmodel import answers
from specmodel.base.ranges import ranges_text, runs
from specmodel.base.text import Columns, align
from specmodel.cli import settings
from specmodel.cli.answering import answering, screen_width
from specmodel.prediction.table import Row, columns_of, varies
from specmodel.show import forms, report

_MOST_JUDGED = 256
"""Points that the first line tells one by one; of more, how sure the best and the least are."""


@settings.command()
@settings.where_options()
@settings.options("batch_size", "draft_length", required=True)
@settings.acceptance_options()
@settings.options("context_length", "prompt_length", "output_length", "verify_tokens", "tree_width")
@settings.option(
    "max_draft_length", words="Longest draft considered for the best one.  [default: 10]"
)
@settings.detail_options()
@settings.own("interval", bool, "Add central 80 % intervals.")
@settings.own("components", bool, "Add the breakdown of each pass; CSV has it alone.")
@answering()
def predict(*, components: bool, **options: Any) -> forms.Answer:
    """Predict target efficiency and speedup of speculative decoding.

    Give exactly one form of acceptance. All but the rate and the rates by position hold at the
    draft length they were measured at.

    \b
    Examples:
      specmodel predict --target qwen2-57b-a14b --drafter qwen2-0.5b \\
          --hardware a800_sxm_80gb --tensor-parallel 2 --batch-size 1:64:x2 \\
          --draft-length 4 --acceptance-rate 0.9 --context-length 512
      specmodel predict --target ./config.json --drafter ngram \\
          --proposal-rate 0.4 --hardware l40s --batch-size 1 --draft-length 1:5 \\
          --tokens-per-step 1.4 --measured-draft-length 3 --json
    """
    from specmodel.cli.options import predict_from

    prediction = predict_from(options)
    return answer(prediction, verdict, with_components=components)


def answer(
    prediction: report.Prediction, words: Callable[..., list[str]], *, with_components: bool
) -> forms.Answer:
    """Return a prediction in all forms, with the times of components if asked for."""

    def page() -> str:
        parts = [prediction.to_text(screen_width())]
        parts += [component_tables(prediction)] if with_components else []
        return report.page(prediction, words(prediction), *parts)

    def fields() -> dict[str, Any]:
        rows = prediction.rows()
        if with_components:
            for row, passes in zip(rows, _components(prediction), strict=True):
                row["components"] = passes
        return report.case_fields(prediction) | {"units": prediction.units(), "rows": rows}

    def rows() -> list[Row]:
        if with_components:
            return forms.records(answers.pass_components(prediction))
        return prediction.rows()

    return forms.Answer(page=page, fields=fields, rows=rows, warnings=prediction.warnings)


def verdict(prediction: report.Prediction) -> list[str]:
    """Say whether and where speculation pays, by how much, and what limits it."""
    drafted = [row for row in prediction.rows() if row["draft_length"]]
    if not drafted:
        return [_idle(prediction.rows())]
    rows = [row for row in drafted if row["fits"]]
    opening = "Speculation"
    if not rows:
        rows, opening = drafted, "Nothing fits in memory. If it did, speculation"
    elif len(rows) < len(drafted):
        these = f"{len(rows)} of {len(drafted)} points fit" if len(rows) > 1 else "One point fits"
        opening = f"{these} in memory, where speculation"
    best = max(rows, key=lambda row: row["speedup"])
    gain, best = _gain(best, rows, prediction)
    answer = f"{opening} {gain}."
    return [answer, report.why(best, rows, prediction), *report.behind(prediction.deployment)]


def _idle(rows: list[Row]) -> str:
    """Say what steps without a draft gain: nothing, or less where a loaded drafter runs."""
    worst = min(rows, key=lambda row: row["speedup"])
    if worst["speedup"] == 1:
        return "No draft, no speculation: speedup 1 by definition."
    told = f"no draft, and the loaded drafter takes its time all the same: {_at(worst, rows)}"
    return f"Speculation does not pay: {told}."


def _gain(best: Row, rows: list[Row], prediction: report.Prediction) -> tuple[str, Row]:
    """Say whether speculation pays, where it gains most and least, and where that is open.

    Also return the row that is called best: of sure gains, where there are any.
    """
    from specmodel.prediction.gains import gains_at

    pays, denial = report.verbs(prediction.deployment)
    worst = min(rows, key=lambda row: row["speedup"])
    judged = rows if len(rows) <= _MOST_JUDGED else [best, worst]
    gains = gains_at(prediction, judged)
    top, bottom = (gains[judged.index(row)] for row in (best, worst))
    sure = [row for row, gain in zip(judged, gains, strict=True) if report.is_sure(gain, row)]
    if judged is not rows:
        is_gain, gains = best in sure, [None] * len(rows)
        sure = [row for row in rows if is_gain and report.is_sure(None, row)]
    if top and top.is_open and not sure:
        return f"may pay or not: {_at(best, rows)} ({report.chances(top)})", best
    if not sure:
        return f"{denial}: {_at(best, rows)}", best
    best = max(sure, key=lambda row: row["speedup"])
    if len(sure) == len(rows):
        least = f"; least {_at(worst, rows)}" if len(rows) > 1 else ""
        is_open = " (may pay or not)" if bottom and bottom.is_open else ""
        return f"{pays}: {_at(best, rows)}{least}{is_open}", best
    unsure = [row for row, gain in zip(rows, gains, strict=True) if gain and gain.is_open]
    told = f"{pays} at {_places(sure, rows)}; best {_at(best, rows)}"
    return told + (f"; it may pay or not at {_places(unsure, rows)}" if unsure else ""), best


def _at(row: Row, rows: list[Row]) -> str:
    return f"{row['speedup']:.2f}x at {report.place(row, rows)}"


def _places(some: list[Row], rows: list[Row]) -> str:
    """Return the batch sizes of some rows as ranges; how many points, if more than these vary."""
    if varies("draft_length", rows) or varies("context_length", rows):
        return f"{len(some)} of {len(rows)} points"
    sizes, those = sorted({row["batch_size"] for row in rows}), {row["batch_size"] for row in some}
    found = runs(size in those for size in sizes)
    spans = ranges_text((sizes[first], sizes[last]) for first, last, is_there in found if is_there)
    return f"batch size{'s' if len(those) > 1 else ''} {spans}"


def component_tables(prediction: report.Prediction) -> str:
    """Return the times of components by pass, a table for each point."""
    points, blocks = prediction.rows(), []
    drafted = ", draft length {draft_length}" if "draft_length" in points[0] else ""
    title = f"batch size {{batch_size}}{drafted}, context {{context_length}}"
    for point, passes in zip(points, _components(prediction), strict=True):
        names = [*dict.fromkeys(name for times in passes.values() for name in times), "total"]
        columns: Columns = [("component", names)]
        for kind, times in passes.items():
            total = sum(times.values())
            spent = [(times | {"total": total}).get(name) for name in names]
            rows = [{"time": t, "share": None if t is None else 100 * t / total} for t in spent]
            head = kind.replace("first draft pass", "first\ndraft")
            columns += columns_of(rows, [(head, "{time:s}"), ("%", "{share:.0f}")])
        blocks.append(f"{title.format_map(point)}\n{align(columns, left=['component'])}")
    return "\n\n".join(blocks)


def _components(prediction: report.Prediction) -> list[dict[str, dict[str, float]]]:
    """Return for each point, by pass, the times of components and host [s]."""
    table = answers.pass_components(prediction)
    points: list[dict[str, dict[str, float]]] = [{} for _ in range(prediction.batch_size.size)]
    each = len(table) // len(points)  # the same components at every point
    spent = table[["pass", "component", "time"]].itertuples(index=False, name=None)
    for i, (kind, component, seconds) in enumerate(spent):
        points[i // each].setdefault(kind, {})[component] = seconds
    return points
