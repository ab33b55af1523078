"""What ``predict`` answers: at lengths that were typed, at the best ones, or turned round."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from specmodel.base.errors import InputError
from specmodel.base.ranges import parse_values
from specmodel.base.units import parse_seconds
from specmodel.cli.answering import screen_width
from specmodel.cli.options import (
    alone_from,
    best_from,
    grid_from,
    predict_from,
    typed_acceptance,
)
from specmodel.cli.settings import refuse_given
from specmodel.cli.taken import measured_or_none, typical_or_none, would_hold
from specmodel.prediction.predicting import warnings_of_times, with_intervals, with_known_intervals
from specmodel.prediction.priced import priced
from specmodel.show import forms, glossary, operator, report
from specmodel.show.components import component_rows, component_tables, fields_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specmodel.drafters.typical import TypicalHeads
    from specmodel.prediction.outcome import Prediction
    from specmodel.prediction.table import Row
    from specmodel.show.within import Within

_AXES = ("verify_tokens", "tree_width")
_MOST_SEARCHED = 4096
"""Most points that are tried for the largest batch within a target [-]."""
_JUDGED = ("tpot_target", "columns", "gpu_hour_price")


def outlook_from(options: dict[str, Any]) -> forms.Answer:
    """Return what was asked for, in all forms."""
    is_known = typed_acceptance(options) or measured_or_none(options) is not None
    if not is_known and not options["components"]:
        return _turned(options)
    target, at_best = options["tpot_target"], options["draft_length"] is None
    seconds = None if target is None else parse_seconds("tpot_target", target)
    if at_best:
        refuse_given(options, _AXES, "--draft-length with it, as trees have no best length")
    make, asked = best_from if at_best else predict_from, options | {"interval": False}
    prediction = make(asked)
    if seconds is None:
        return _answer(prediction, options)
    from specmodel.show.within import Within

    sizes = parse_values("batch_size", options["batch_size"])
    every, most = prediction, max(sizes)
    has_one_context = prediction.context_length.min() == prediction.context_length.max()
    if has_one_context and prediction.tpot.size // len(sizes) * most <= _MOST_SEARCHED:
        every = make(asked | {"batch_size": f"1:{most}"})
    has_interval = options["interval"] is not False
    found = Within(target=seconds, prediction=every, has_interval=has_interval)
    if found.largest:
        last = found.largest["batch_size"]
        kept = sorted({last, *(size for size in sizes if size < last)})
        prediction = make(asked | {"batch_size": ",".join(map(str, kept))})
    return _answer(prediction, options, found)


def _answer(
    prediction: Prediction, options: dict[str, Any], within: Within | None = None
) -> forms.Answer:
    """Return a prediction in all forms, of a time per token with what is within it."""
    prediction = priced(prediction, options["gpu_hour_price"])
    with_components, columns = options["components"], options["columns"]
    wanted, at_best = options["interval"], options["draft_length"] is None
    if wanted:
        prediction = with_intervals(prediction)
    gains = operator.gains_of(prediction) if wanted is not False else [None] * prediction.tpot.size

    def kept(rows: list[Row]) -> list[Row]:
        return rows if within is None else within.kept(rows)

    def page() -> str:
        rows = operator.with_gains(prediction.rows(), gains)
        met = {*map(id, kept(rows))}
        judged = [pair for pair in zip(rows, gains, strict=True) if id(pair[0]) in met]
        judged = judged or [*zip(rows, gains, strict=True)]
        words = operator.verdict(prediction, *map(list, zip(*judged, strict=True)))
        told = within.told() if within else ""
        words[0] = f"{told} {words[0]}{would_hold(prediction)}".lstrip()
        shown = operator.with_tokens(prediction, [row for row, _ in judged], at_best=at_best)
        words[1:1] = filter(None, [operator.tasks_told(prediction, [row for row, _ in judged])])
        rows = kept(rows)
        fitted: dict[str, Any] = {"width": screen_width(), "columns": columns}
        fitted["target"] = within and within.target
        parts = [operator.table(prediction, rows, **fitted)] if rows else []
        parts += [component_tables(prediction)] if with_components else []
        limits = glossary.limits_told({row["limited_by"] for row in rows} if not columns else set())
        notes = [_held(prediction, rows), operator.room_told(prediction, rows)] if at_best else []
        return report.page(shown, words, *parts, notes=filter(None, [*notes, limits]))

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

    kept = [row for row in rows if row["fits"]] or rows
    drafts = [row for row in kept if row["draft_length"] < prediction.max_draft_length]
    names = ("batch_size", "verify_tokens")
    sizes, tokens = (array([row[name] for row in drafts]) for name in names)
    return prediction.deployment.graph_note(sizes, tokens)


def _told(prediction: Prediction, wanted: bool | None) -> Prediction:
    """Return a prediction for programs: with intervals of all columns where errors are known."""
    return with_known_intervals(prediction) if wanted is None else prediction


def _turned(options: dict[str, Any]) -> forms.Answer:
    """Return from which acceptance it pays, where none is known."""
    from specmodel.answers.outlook import turned_round
    from specmodel.show import turned

    refuse_given(options, (*_AXES, *_JUDGED), "an acceptance with it")
    if options["measured_draft_length"] is not None:
        typed = options["measured_draft_length"]
        raise InputError("measured_draft_length", typed, "a form of acceptance with it")
    deployment, assumed = alone_from(options)
    heads = typical_or_none(options)
    lengths = _lengths_of(options, heads, deployment.drafter.block_size)
    points = grid_from(options | {"draft_length": None})
    found = turned_round(deployment, assumed, heads, lengths, points)
    rows = turned.turned_rows(found)
    # what a mean head would gain is no prediction of this one
    prediction = replace(found.prediction, warn=warnings_of_times)

    def page() -> str:
        words = turned.turned_verdict(found, rows)
        words[0] += would_hold(prediction)
        table = turned.turned_table(rows, found, screen_width())
        return report.page(prediction, words, table)

    units = prediction.units() | turned.UNITS
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


def _lengths_of(
    options: dict[str, Any], heads: TypicalHeads | None, block: int | None
) -> Sequence[int]:
    """Return the draft lengths that may be taken where acceptance is not known [token]."""
    text, asked = options["draft_length"], options["max_draft_length"]
    known = heads.max_draft_length if heads else block or 8
    lengths: Sequence[int] = range(1, (asked or min(known, block or 8)) + 1)
    if text is not None:
        lengths = parse_values("draft_length", str(text))
    if min(lengths) < 1:
        raise InputError("draft_length", text, "at least 1, as no acceptance is given")
    if heads and max(lengths) > known:
        name, expected = "draft_length" if text else "max_draft_length", f"at most {known}"
        expected += f", up to which {heads.drafter} heads are published, or an acceptance with it"
        raise InputError(name, text or asked, expected)
    return lengths
