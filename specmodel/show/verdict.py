"""The page of ``predict``: whether speculation pays, how much, and how sure that is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specmodel.base.text import TABLE
from specmodel.prediction.predicting import with_intervals, with_known_intervals
from specmodel.show import forms, glossary, operator, report, turned
from specmodel.show.components import component_rows, component_tables, fields_of
from specmodel.show.within import within_target

if TYPE_CHECKING:
    from specmodel.prediction.outcome import Prediction
    from specmodel.prediction.table import Row


def answer(
    prediction: Prediction,
    *,
    tpot_target: float | None = None,
    columns: str | None = None,
    interval: bool | None = None,
    components: bool = False,
) -> forms.Answer:
    """Return a prediction in all forms, of a time per token with what is within it.

    `interval` says whether errors are told, None where they are known.
    """
    if prediction.turned:
        return turned.answer(
            prediction, tpot_target=tpot_target, columns=columns, components=components
        )
    within = None
    if tpot_target is not None:
        has_interval = interval is not False
        prediction, within = within_target(prediction, tpot_target, has_interval=has_interval)
    at_best = prediction.case is None or prediction.case.draft_length is None
    if interval:
        prediction = with_intervals(prediction)
    is_judged = interval is not False
    gains = operator.gains_of(prediction) if is_judged else [None] * prediction.tpot.size

    def kept(rows: list[Row]) -> list[Row]:
        return rows if within is None else within.kept(rows)

    def page() -> str:
        rows = operator.with_gains(prediction.rows(), gains)
        met = {*map(id, kept(rows))}
        judged = [pair for pair in zip(rows, gains, strict=True) if id(pair[0]) in met]
        judged = judged or [*zip(rows, gains, strict=True)]
        words = operator.verdict(prediction, *map(list, zip(*judged, strict=True)))
        told = within.told() if within else ""
        words[0] = f"{told} {words[0]}{report.would_hold(prediction)}".lstrip()
        shown = operator.with_tokens(prediction, [row for row, _ in judged], at_best=at_best)
        words[1:1] = filter(None, [operator.tasks_told(prediction, [row for row, _ in judged])])
        rows = kept(rows)
        fitted: dict[str, Any] = {"width": TABLE.get(), "columns": columns}
        fitted["target"] = within and within.target
        parts = [operator.table(prediction, rows, **fitted)] if rows else []
        parts += [component_tables(prediction)] if components else []
        limits = glossary.limits_told({row["limited_by"] for row in rows} if not columns else set())
        notes = [_held(prediction, rows), operator.room_told(prediction, rows)] if at_best else []
        return report.page(shown, words, *parts, notes=filter(None, [*notes, limits]))

    def told() -> Prediction:
        return with_known_intervals(prediction) if interval is None else prediction

    def rows() -> list[Row]:
        if components:
            return component_rows(prediction)
        return operator.chosen_rows(kept(told().rows()), columns)

    return forms.Answer(
        page=page,
        fields=lambda: fields_of(told(), kept(told().rows()), with_components=components),
        rows=rows,
        warnings=prediction.warnings,
        case="" if columns else report.heading(prediction.deployment),
    )


def _held(prediction: Prediction, rows: list[Row]) -> str:
    """Say where a CUDA graph, and not acceptance, ends the drafts of a table."""
    from numpy import array

    kept = [row for row in rows if row["fits"]] or rows
    drafts = [row for row in kept if row["draft_length"] < prediction.max_draft_length]
    names = ("batch_size", "verify_tokens")
    sizes, tokens = (array([row[name] for row in drafts]) for name in names)
    return prediction.deployment.graph_note(sizes, tokens)
