"""Servers under load: what rates do, and the largest rate within targets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from specmodel.base.text import SCREEN
from specmodel.prediction.table import Row
from specmodel.show import report
from specmodel.show.behind import behind
from specmodel.show.columns import DRAINS, LOADS, chosen, units
from specmodel.show.facts import Facts, lines
from specmodel.show.forms import Answer, text_table
from specmodel.show.glossary import PAGES
from specmodel.show.notes import in_words
from specmodel.simulate.facts import capacity_facts, rate_facts

if TYPE_CHECKING:
    from specmodel.base.notes import Note
    from specmodel.simulate.load_question import Loaded
    from specmodel.simulate.study import Study

_TEXTS = PAGES["loads"]
_NINETY = "90 %: of requests, which stay below it."
CARRIED = _TEXTS["carried"]
_PRICED = ("cost_per_million_tokens", "replicas", "gpus", "cost_per_hour")
_AT_RATES = (
    *("request_rate", "users", "policy", "running", "tpot", "tpot_closed", "tpot_p90"),
    *("ttft_p50", "ttft_p90", "goodput", "is_steady", *_PRICED),
)
_LARGEST = (
    *("policy", "capacity", "simulated_low", "predicted_low", "running", "tpot_p90", "ttft_p90"),
    *_PRICED,
)
"""Columns of tables for people."""
_SPARE = ("running", "tpot_closed", "ttft_p90", "tpot_p90", "simulated_low")
"""Those that are dropped from a table that is too wide, in this order."""


def answer(loaded: Loaded) -> Answer:
    """Return the answer of a load in all forms: at the rates asked for, or the largest rate."""
    from specmodel.prediction.cautions import notes_of_run
    from specmodel.simulate.study import not_carried

    study, rows, tried = loaded.study, loaded.rows, loaded.tried
    warnings: list[object] = [*graph_notes(study, tried or rows), *study.notes]
    if loaded.trial is not None:
        facts, notes = capacity_facts(loaded.trial, rows), (_TEXTS["intervals"], _NINETY)
        said = {"rates_tried": tried}
        return framed(loaded, warnings, CARRIED, facts, (_LARGEST, _SPARE), notes, said, "capacity")
    beyond = notes_of_run(study.deployment, study.typical.longest)
    overloads = [_TEXTS["not_carried"].format(*rates) for rates in not_carried(rows).items()]
    warnings, columns = [*beyond, *overloads, *warnings], (_AT_RATES, _SPARE[1:])
    facts = rate_facts(rows)
    return framed(loaded, warnings, _TEXTS["rates"], facts, columns, (_NINETY,), {}, "load")


def framed(
    loaded: Loaded,
    warnings: Iterable[object],
    templates: Iterable[str],
    facts: Facts,
    columns: tuple[Sequence[str], Sequence[str]],
    notes: Sequence[str],
    fields: Mapping[str, Any],
    figure: str,
) -> Answer:
    """Return an answer of facts, a table and notes.

    `columns` are those of the table, and which are dropped first; `fields` are more of the JSON.
    """
    rows, tidy = loaded.rows, loaded.tried or loaded.rows
    case = report.heading(loaded.study.deployment)
    assumed = report.with_brief_source(in_words(loaded.assumed))
    warned, policies = [*map(str, warnings)], [_TEXTS["policies"]] * loaded.is_usual
    ranks = {name: rank for rank, name in enumerate(columns[1], 1)}
    shown = [replace(c, spare=ranks.get(c.name, 0)) for c in chosen(columns[0], LOADS, DRAINS)]
    names = rows[0] | tidy[0]
    known: dict[str, Any] = {"case": case, "assumptions": assumed, "warnings": warned}
    known |= {"units": dict.fromkeys(names, "-") | units(names, LOADS), "rows": rows, **fields}

    def page() -> str:
        table = text_table(rows, shown, width=SCREEN.get(), left=("policy",))
        below, words = behind(loaded.study.deployment), lines(templates, facts)
        return report.laid_out(case, below, assumed, warned, words, [table], [*notes, *policies])

    return Answer(
        page=page, facts=facts, fields=known, rows=tidy, warnings=warned, case=case, figure=figure
    )


def graph_notes(study: Study, rows: Sequence[Row]) -> tuple[Note, ...]:
    """Return notes on mean running requests whose verified tokens no CUDA graph holds."""
    from numpy import array

    sizes = array([row["running"] for row in rows]).round()
    tokens = array([row["drafted_tokens_per_step"] for row in rows]) + 1
    return study.deployment.graph_warnings(sizes.clip(1), tokens)
