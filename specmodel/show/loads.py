"""Show servers under load: effects of rates, the largest rate within targets, and drains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from specmodel.core.prediction.table import Row
from specmodel.show import report
from specmodel.show.behind import behind
from specmodel.show.columns import units
from specmodel.show.facts import lines
from specmodel.show.forms import Answer, text_table
from specmodel.show.glossary import PAGES
from specmodel.show.notes import in_words
from specmodel.simulate.facts import capacity_facts, drain_facts, rate_facts

if TYPE_CHECKING:
    from specmodel.core.base.notes import Note
    from specmodel.simulate.load_question import Loaded
    from specmodel.simulate.study import Study

_TEXTS = PAGES["loads"]
_OF_DRAINS = ("prompts", "samples", "servers", "finished")


def answer(loaded: Loaded) -> Answer:
    """Return the answer of a load in all forms: at the rates asked for, the largest, or a drain."""
    from specmodel.core.prediction.cautions import notes_of_run
    from specmodel.simulate.study import not_carried

    study, rows, drain = loaded.study, loaded.rows, loaded.drain
    tidy, fields = loaded.tried or rows, dict[str, Any]()
    running, warnings = tidy, list[object]()
    if loaded.trial is None:
        warnings += notes_of_run(study.deployment, study.typical.longest)
    if drain is not None:
        kind, table, facts = "drain", "drains", drain_facts(drain, rows)
        fields["drain"] = {name: getattr(drain, name) for name in _OF_DRAINS}
        running = [*map(drain.at_peak, rows)]
    elif loaded.trial is not None:
        kind, table, facts = "capacity", "largest", capacity_facts(loaded.trial, rows)
        fields["rates_tried"] = loaded.tried
    else:
        kind, table, facts = "load", "loads", rate_facts(rows)
        overloads = not_carried(rows).items()
        warnings += [_TEXTS["not_carried"].format(*rates) for rates in overloads]
    case = report.heading(study.deployment)
    assumed = report.with_brief_source(in_words(loaded.assumed))
    warned = [*map(str, (*warnings, *graph_notes(study, running), *study.notes))]
    names = rows[0] | tidy[0]
    of = dict.fromkeys(names, "-") | units(names, "loads")
    known = {"case": case, "assumptions": assumed, "warnings": warned, "units": of, "rows": rows}
    notes = [*_TEXTS["notes"][kind], *[_TEXTS["policies"]] * loaded.is_usual]

    def page() -> str:
        below, words = behind(study.deployment), lines(_TEXTS["lines"][kind], facts)
        parts = [text_table(rows, table)]
        return report.laid_out(case, below, assumed, warned, words, parts, notes)

    fields = known | fields
    return Answer(
        page=page, facts=facts, fields=fields, rows=tidy, warnings=warned, case=case, figure=kind
    )


def graph_notes(study: Study, rows: Sequence[Row]) -> tuple[Note, ...]:
    """Return notes on mean running requests whose verified tokens no CUDA graph holds."""
    from numpy import array

    sizes = array([row["running"] for row in rows]).round()
    tokens = array([row["drafted_tokens_per_step"] for row in rows]) + 1
    return study.deployment.graph_warnings(sizes.clip(1), tokens)
