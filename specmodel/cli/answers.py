"""What the commands that answer have in common: options, predictions, pages, JSON and CSV."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from specmodel.base.errors import InputError
from specmodel.base.text import Columns, align_blocks
from specmodel.cli import settings
from specmodel.show import report

if TYPE_CHECKING:
    import pandas as pd

    from specmodel.prediction.outcome import Prediction

Answer = tuple[Mapping[str, "Prediction"], "pd.DataFrame", Callable[[], str]]
"""Predictions by name of the alternative, rows for programs, and what writes the page for people.
One prediction goes by the empty name."""

_UNITS = {
    **dict.fromkeys(("peak_batch_size", "near_peak_first", "near_peak_last"), "request"),
    "largest_batch_size": "request",
    "peak_speedup": "-",
    "value": "-",
    "tpot_plain": "s",
    **dict.fromkeys(("throughput_plain", "throughput_per_gpu"), "token/s"),
}
"""Units of columns of answers that a prediction does not have."""


def command(
    *options: str | Callable[[Any], Any], **points: str | None
) -> Callable[[Callable[..., Answer]], click.Command]:
    """Turn a function that answers into a command that prints the answer in the form asked for.

    Parameters
    ----------
    *options
        Its own options, shared ones by name; those of what runs where go before, details and
        forms after.
    **points
        Which of batch_size and draft_length it takes: the default as typed, None for one that
        must be given.

    Returns
    -------
    Callable
        Decorator of a function of the values of all options.
    """

    def decorate(function: Callable[..., Answer]) -> click.Command:
        @wraps(function)
        def run(**values: Any) -> None:
            settings.check_forms(values["as_json"], values["as_csv"])
            predictions, frame, text = function(**values)
            if values["as_json"]:
                click.echo(_json(predictions, frame))
            elif values["as_csv"]:
                warnings = [warning for p in predictions.values() for warning in p.warnings]
                click.echo(frame.to_csv(index=False), nl=False)
                settings.echo_warnings(dict.fromkeys(warnings))
            else:
                click.echo(text())

        own = [_point_option(*point) for point in points.items()]
        own += [settings.option(name) if isinstance(name, str) else name for name in options]
        after = [settings.detail_options(), settings.form_options()]
        for add in reversed([settings.where_options(required=True), *own, *after]):
            run = add(run)
        return click.command(context_settings=settings.SETTINGS)(run)

    return decorate


def _point_option(name: str, default: str | None) -> Callable[[Any], Any]:
    changes: dict[str, Any] = {"default": default, "show_default": True}
    if default is None:
        changes = {"required": True}
    if name == "draft_length":
        changes["help"] = "Tokens drafted per sequence and step."
    return settings.option(name, **changes)


def drafted_from(options: dict[str, Any]) -> Prediction:
    """Return the prediction that the options ask for, all points of which must draft."""
    from specmodel.cli.options import predict_from

    # the best draft length is not asked for: no longer one is tried
    prediction = predict_from(options | {"max_draft_length": 1})
    if not prediction.draft_length.all():
        raise InputError("draft_length", options["draft_length"], "at least 1")
    return prediction


def lengths_from(options: dict[str, Any]) -> Prediction:
    """Return the prediction that the options ask for, draft lengths from 1 up along an axis."""
    from specmodel.cli.options import acceptance_from, longest_draft, predict_from
    from specmodel.drafters.by_name import longest_block

    asked, block = options["max_draft_length"], longest_block(options["drafter"], options["target"])
    longest = longest_draft(acceptance_from(options), asked, block)
    lengths = {"draft_length": f"1:{longest}", "max_draft_length": longest}
    prediction = predict_from(options | lengths)
    assumed = {"max_draft_length": longest} if asked is None else {}
    return replace(prediction, assumptions=prediction.assumptions | assumed)


def by_batch_size(
    batch_sizes: Iterable[int], columns: Mapping[str, pd.DataFrame], cell: Callable[[Any], str]
) -> str:
    """Return a table with batch sizes down and groups of rows across, "-" where there is no row."""
    sizes, texts = sorted(set(batch_sizes)), Columns()
    for title, rows in columns.items():
        cells = {row.batch_size: cell(row) for row in rows.itertuples()}
        texts.append((title, [cells.get(size, "-") for size in sizes]))
    return align_blocks(("batch\nsize", list(map(str, sizes))), texts)


def speedup_cell(row: Any) -> str:
    """Return the speedup of a row, and the draft length that gives it."""
    return f"{row.speedup:.2f} ({row.best_draft_length})"


def fitting(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that fit in memory; all, if none does."""
    return rows[rows["fits"]] if rows["fits"].any() else rows


def _json(predictions: Mapping[str, Prediction], frame: pd.DataFrame) -> str:
    """Return rows as JSON with what they are about; what has no meaning is null, never NaN."""
    from specmodel.prediction.columns import COLUMN_UNITS

    cases = [{"alternative": name} | report.case_fields(p) for name, p in predictions.items()]
    known = COLUMN_UNITS | _UNITS
    units = {name: known[name] for name in frame if name in known}
    rows = report.records(frame.astype(object).where(frame.notna(), None))
    return report.json_text({"cases": cases, "units": units, "rows": rows})
