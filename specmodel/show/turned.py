"""The page of ``predict`` where acceptance is unknown: from which speculation pays."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from specmodel.answers.advice import start_options
from specmodel.base.errors import refuse_given
from specmodel.base.text import TABLE
from specmodel.prediction.table import Column, Row, text_table
from specmodel.show import forms, operator, report
from specmodel.show.columns import chosen, units as units_of
from specmodel.show.facts import Fact, known
from specmodel.show.operator import pasted, place
from specmodel.show.views import case as case_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from specmodel.prediction.outcome import Prediction, Turned


_TAKEN = ("batch_size", "draft_length", "context_length", "forward_time", "limited_by", "fits")


def turned_answer(
    prediction: Prediction, turned: Turned, judged: Mapping[str, Any], *, components: bool
) -> forms.Answer:
    """Return the break-even acceptance in all forms, for a prediction without an acceptance.

    Components and arguments in `judged`, such as a target, are refused: they need one.
    """
    refuse_given(judged, judged, "an acceptance with it")
    if components:
        _ = case_of(prediction).known_acceptance  # refuses
    rows = turned_rows(prediction, turned)
    able = report.with_room(rows, prediction)
    words = turned_verdict(prediction, turned, able)
    fewest = operator.would_hold(prediction)
    words[0] += fewest
    paying = [row for row in able if row["fits"] and row["break_even_tokens_per_step"]]
    drafts = [int(row["draft_length"]) for row in paying if row["draft_length"]]
    usual = max(drafts, key=drafts.count, default=0) if turned.heads else 0
    options, where = start_options(prediction, usual)

    def page() -> str:
        table = turned_table(able, turned, TABLE.get())
        told = f"Measure it with {usual} drafted. {pasted(options, where)}"
        return report.page(prediction, words, table, notes=[told] if options else [])

    units = prediction.units() | units_of(rows[0])
    least = min(paying, key=_needed, default=None)
    facts = {
        "pays_from": Fact(_needed(least) if least else None, "token"),
        "pays_from_at": Fact(least["batch_size"] if least else None, "request"),
        "deployment": Fact(report.heading(prediction.deployment)),
        "one_length": Fact(usual or None, "token"),
        "engine_option": Fact(options),
        "paste_into": Fact(where),
        "fewest_gpus": Fact(fewest.strip()),
    }
    fields = report.case_fields(prediction)
    fields |= {"units": {n: units.get(n, "-") for n in rows[0]}, "rows": rows}
    return forms.Answer(
        page=page,
        facts=known(facts.items()),
        paste=options,
        fields=lambda: fields,
        rows=lambda: rows,
        warnings=prediction.warnings,
        case=report.caption(prediction),
    )


def turned_rows(prediction: Prediction, turned: Turned) -> list[Row]:
    """Return rows with the break-even acceptance, and the speedups of published heads."""
    import numpy as np

    needed = {
        "break_even_acceptance_rate": turned.rate_needed,
        "break_even_tokens_per_step": turned.tokens_needed,
    }
    needed |= {_column(level): values for level, values in turned.speedups.items()}
    columns = {name: np.ravel(values).tolist() for name, values in needed.items()}
    return [
        {name: row[name] for name in _TAKEN[:4]}
        | {name: None if np.isnan(values[i]) else values[i] for name, values in columns.items()}
        | {name: row[name] for name in _TAKEN[4:]}
        for i, row in enumerate(prediction.rows())
    ]


def _column(level: str) -> str:
    return f"speedup_{level.replace(' ', '_')}"


def turned_table(rows: Sequence[Row], turned: Turned, width: int) -> str:
    """Return the table of a question turned round."""
    needed = "{break_even_tokens_per_step:.2f} of {draft_length:.0f}"
    pays = Column("break_even_tokens_per_step", "", "", title="pays from\ntokens/step", form=needed)
    heads = [
        Column(
            _column(level),
            "-",
            "",
            title=level.replace(" ", "\n") if " " in level else f"heads'\n{level}",
            form=".2f",
            spare=6 + i,
        )
        for i, level in enumerate(turned.speedups)
    ]
    names = ("batch_size", "context_length", "forward_time", pays, "break_even_acceptance_rate")
    shown = chosen(
        [*names, *heads, "fits", "limited_by"],
        forward_time="TPOT\nplain",
        break_even_acceptance_rate="or rate",
    )
    ranks = ("limited_by", "break_even_acceptance_rate", "forward_time", "fits")
    spare = {name: rank for rank, name in enumerate(ranks, 1)}
    shown = [replace(c, spare=spare.get(c.name, c.spare)) for c in shown]
    return text_table(rows, shown, width=width, remedy="--csv has all")


def turned_verdict(prediction: Prediction, turned: Turned, rows: list[Row]) -> list[str]:
    """Return the break-even tokens a step, and what published heads would gain, a line each."""
    able = [row for row in rows if row["fits"] and row["break_even_tokens_per_step"]]
    able = able or [row for row in rows if row["break_even_tokens_per_step"]]
    if not able:
        return ["No acceptance makes speculation pay at any of these points."]
    low, high = (f(able, key=_needed) for f in (min, max))
    pays, heads = report.verbs(prediction)[0], turned.heads
    opening = f"Acceptance is not known: speculation {pays}"
    opening += f" from {_needed(low):.2f} tokens a step ({_where(low, rows)})"
    if _needed(high) - _needed(low) > 0.005:
        opening += f" up to {_needed(high):.2f} ({_where(high, rows)})"
    if heads is None:
        others = case_of(prediction).heads
        why = "Heads: too few of this kind are published to say what one gains."
        if others:
            why = f"Heads: those published draft chains of at most {others.max_draft_length}."
        return [f"{opening}.", why]
    gains = [f"{level} {_span(able, _column(level))}" for level in heads.levels]
    published = f"{heads.drafter} of {heads.num_targets} targets, published by November 2026"
    return [
        f"{opening}.",
        f"Heads: {', '.join(gains)} ({published}).",
        "Yours: no measurement of this target and drafter ships (specmodel acceptance).",
    ]


def _span(rows: list[Row], name: str) -> str:
    gains = [row[name] for row in rows]
    return f"{min(gains):.2f}x to {max(gains):.2f}x" if len(gains) > 1 else f"{gains[0]:.2f}x"


def _needed(row: Row) -> float:
    return float(row["break_even_tokens_per_step"])


def _where(row: Row, rows: list[Row]) -> str:
    return f"{row['draft_length']:.0f} drafted, {place(row, rows)}"
