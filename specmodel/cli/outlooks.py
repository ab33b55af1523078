"""What ``predict`` answers: at lengths that were typed, at the best ones, or turned round."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from specmodel.base.errors import InputError
from specmodel.base.ranges import parse_values
from specmodel.base.units import parse_seconds
from specmodel.cli.answering import screen_width
from specmodel.cli.options import (
    acceptance_from,
    deployment_from,
    grid_from,
    longest_draft,
    longest_told,
    predict_from,
    typed_acceptance,
)
from specmodel.cli.settings import given, refuse_given
from specmodel.cli.taken import measured_or_none, typical_or_none, would_hold
from specmodel.prediction.intervals import MAX_POINTS
from specmodel.prediction.predicting import with_intervals
from specmodel.prediction.priced import priced
from specmodel.show import forms, glossary, operator, report
from specmodel.show.components import component_rows, component_tables, fields_of

if TYPE_CHECKING:
    from specmodel.cost.deployment import Deployment
    from specmodel.prediction.outcome import Prediction
    from specmodel.prediction.table import Row

_AXES = ("verify_tokens", "tree_width")
_WITH = "with speculation"
_JUDGED = ("tpot_target", "columns", "gpu_hour_price")


def outlook_from(options: dict[str, Any]) -> forms.Answer:
    """Return what was asked for, in all forms."""
    is_known = typed_acceptance(options) or measured_or_none(options) is not None
    if not is_known and options["draft_length"] is None and not options["components"]:
        return _turned(options)
    target = options["tpot_target"]
    seconds = None if target is None else parse_seconds("tpot_target", target)
    if options["draft_length"] is not None:
        prediction = predict_from(options | {"interval": False})
    else:
        prediction = _at_best(options, options["batch_size"])
    largest = {} if seconds is None else _largest(options, prediction, seconds)
    if answer := options["draft_length"] is None and largest.get(_WITH):
        sizes = {*parse_values("batch_size", options["batch_size"]), answer}
        prediction = _at_best(options, ",".join(map(str, sorted(sizes))))
    return _answer(prediction, options, seconds, largest)


def _at_best(options: dict[str, Any], batch_sizes: str) -> Prediction:
    """Return the prediction at the best length of each batch size."""
    from specmodel.answers.outlook import at_best_lengths

    refuse_given(options, _AXES, "--draft-length with it, as trees have no best length")
    deployment, assumed = _deployment_from(options)
    longest, acceptance = longest_draft(options), acceptance_from(options)
    acceptance.measured_at([1, 2])
    told = {} if options["max_draft_length"] else longest_told(options, longest)
    points = grid_from(options | {"batch_size": batch_sizes, "draft_length": None})
    return at_best_lengths(deployment, assumed | told, acceptance, longest, points)


def _deployment_from(options: dict[str, Any]) -> tuple[Deployment, dict[str, Any]]:
    """Return the deployment and what was assumed of it, that no prefill is carried included."""
    deployment, assumed = deployment_from(options)
    is_loaded = given(options, ("prompt_length", "output_length"))
    return deployment, ({} if is_loaded else {"prefill": "none carried"}) | assumed


def _answer(
    prediction: Prediction,
    options: dict[str, Any],
    seconds: float | None,
    largest: dict[str, int],
) -> forms.Answer:
    """Return a prediction in all forms, of a time per token with the largest batches within it."""
    prediction = priced(prediction, options["gpu_hour_price"])
    with_components, columns = options["components"], options["columns"]
    wanted = options["interval"]
    if wanted:
        prediction = with_intervals(prediction)
    gains = operator.gains_of(prediction) if wanted is not False else [None] * prediction.tpot.size

    def kept(rows: list[Row]) -> list[Row]:
        return rows if seconds is None else operator.within(rows, seconds, {})[0]

    def page() -> str:
        rows = operator.with_gains(prediction.rows(), gains)
        judged, told = [*zip(rows, gains, strict=True)], ""
        if seconds is not None:
            rows, told = operator.within(rows, seconds, largest)
            met = {*map(id, rows)}
            judged = [pair for pair in judged if id(pair[0]) in met] or judged
        words = operator.verdict(prediction, *map(list, zip(*judged, strict=True)))
        words[0] = f"{told} {words[0]}{would_hold(prediction)}".lstrip()
        words += report.behind(prediction.deployment)
        fitted: dict[str, Any] = {"width": screen_width(), "columns": columns, "target": seconds}
        parts = [operator.table(prediction, rows, **fitted)] if rows else []
        parts += [component_tables(prediction)] if with_components else []
        limits = glossary.limits_told({row["limited_by"] for row in rows} if not columns else set())
        notes = [_held(prediction, rows) if options["draft_length"] is None else "", limits]
        return report.page(prediction, words, *parts, notes=filter(None, notes), taken_first=True)

    def told() -> Prediction:
        return _told(prediction, wanted)

    def rows() -> list[Row]:
        if with_components:
            return component_rows(prediction)
        return operator.chosen_rows(kept(told().rows()), columns)

    return forms.Answer(
        page=page,
        fields=lambda: fields_of(told(), kept(told().rows()), with_components=with_components),
        rows=rows,
        warnings=prediction.warnings,
        case="" if columns else report.heading(prediction.deployment),
    )


def _held(prediction: Prediction, rows: list[Row]) -> str:
    """Say where a CUDA graph, and not acceptance, ends the drafts of a table."""
    from numpy import array

    drafts = [row for row in rows if row["draft_length"] < prediction.max_draft_length]
    names = ("batch_size", "verify_tokens")
    sizes, tokens = (array([row[name] for row in drafts]) for name in names)
    return prediction.deployment.graph_note(sizes, tokens)


def _told(prediction: Prediction, wanted: bool | None) -> Prediction:
    """Return a prediction for programs: with intervals of all columns where errors are known."""
    d = prediction.deployment
    is_known = d.kernels.record is not None and not d.engine.is_ideal
    is_wanted = wanted is None and is_known and prediction.speedup.size <= MAX_POINTS
    return with_intervals(prediction) if is_wanted else prediction


def _largest(options: dict[str, Any], prediction: Prediction, seconds: float) -> dict[str, int]:
    """Return the largest batches that meet a time per token, of all up to the largest typed."""
    most = int(prediction.batch_size.max())
    if options["draft_length"] is None and most <= 4096 and prediction.batch_size.ndim == 1:
        prediction = _at_best(options, f"1:{most}")
    rows = [row for row in prediction.rows() if row["fits"]]
    times = {_WITH: "tpot", "without": "forward_time"}
    return {
        how: max((row["batch_size"] for row in rows if row[name] <= seconds), default=0)
        for how, name in times.items()
    }


def _turned(options: dict[str, Any]) -> forms.Answer:
    """Return from which acceptance it pays, where none is known."""
    from specmodel.answers.outlook import turned_round

    refuse_given(options, (*_AXES, *_JUDGED), "an acceptance with it")
    if options["measured_draft_length"] is not None:
        typed = options["measured_draft_length"]
        raise InputError("measured_draft_length", typed, "a form of acceptance with it")
    deployment, assumed = _deployment_from(options)
    heads = typical_or_none(options)
    longest = options["max_draft_length"] or min(
        heads.max_draft_length if heads else 8, deployment.drafter.block_size or 8
    )
    points = grid_from(options | {"draft_length": None})
    turned = turned_round(deployment, assumed, heads, longest, points)
    rows = operator.turned_rows(turned)
    # what a mean head would gain is no prediction of this one
    prediction = replace(
        turned.prediction, warn=lambda p: p.evaluation.memory.warnings(p.batch_size)
    )

    def page() -> str:
        words = [*operator.turned_verdict(turned, rows), *report.behind(deployment)]
        words[0] += would_hold(prediction)
        table = operator.turned_table(rows, turned, screen_width())
        return report.page(prediction, words, table, taken_first=True)

    units = prediction.units() | {"break_even_tokens_per_step": "token"}
    return forms.Answer(
        page=page,
        fields=lambda: (
            report.case_fields(prediction)
            | {"units": {n: units.get(n, "-") for n in rows[0]}, "rows": rows}
        ),
        rows=lambda: rows,
        warnings=prediction.warnings,
        case=report.heading(deployment),
    )
