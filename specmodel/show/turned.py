"""Show ``predict`` without known acceptance: the acceptance from which speculation pays."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from specmodel.core.base.errors import refuse_given
from specmodel.core.prediction.accepted import NEEDS_ACCEPTANCE
from specmodel.core.prediction.outcome import Prediction, Turned
from specmodel.core.prediction.predicting import predicted
from specmodel.core.prediction.table import Column, Row
from specmodel.plan.config_formats import accepted_lengths, start_options
from specmodel.plan.decision import Decision, decide
from specmodel.show import operator, report
from specmodel.show.columns import of_table, units
from specmodel.show.facts import Fact, known, lines
from specmodel.show.forms import Answer, text_table
from specmodel.show.glossary import PAGES
from specmodel.show.views import case as case_of

_NEEDED, _RATE = "break_even_tokens_per_step", "break_even_acceptance_rate"
_FIRST = ("batch_size", "draft_length", "context_length", "forward_time")
_TEXTS = PAGES["turned"]


def turned_answer(
    prediction: Prediction, turned: Turned, judged: Mapping[str, Any], *, components: bool
) -> Answer:
    """Return the break-even acceptance in all forms, for a prediction without an acceptance.

    Components and the arguments in `judged`, such as a target, need an acceptance and are refused.
    """
    refuse_given(judged, judged, NEEDS_ACCEPTANCE)
    if components:
        _ = case_of(prediction).known_acceptance  # raises
    case, decision = case_of(prediction), None
    if turned.heads and not case.has_trees:  # the options for their median
        decision = decide(predicted(case.with_typical()))
    if decision and decision.graphs:  # the options set these graphs
        graphs: Any = case_of(decision.prediction).where.named["graph_limit"]
        prediction = predicted(case.with_graphs_of(graphs))
        turned = prediction.turned or turned
    rows = turned_rows(prediction, turned)
    shown = report.with_room(rows, prediction)
    paying = [row for row in shown if row["fits"] and row[_NEEDED]]
    able = paying or [row for row in shown if row[_NEEDED]]
    usual, options, where = _measured_with(prediction, decision, paying)
    needed = sorted((float(row[_NEEDED]), row["batch_size"]) for row in able)
    gains = [[row[_column(level)] for row in able] for level in turned.speedups if able]
    of_page = _published(prediction, turned) | {"verb": Fact(report.verbs(prediction)[0])}
    facts = {
        "pays_from": Fact(needed[0][0] if needed else None, "token"),
        "pays_from_at": Fact(needed[0][1] if needed else None, "request"),
        "needed": Fact([(needed[0][0], needed[-1][0])] if needed else None, "token"),
        "levels": Fact([*turned.speedups] if able else None),
        "heads": Fact([(min(each), max(each)) for each in gains]),
        "deployment": Fact(report.heading(prediction.deployment)),
        "one_length": Fact(usual or None, "token"),
        "engine_option": Fact(options),
        "paste_into": Fact(where),
        "fewest_gpus": Fact(operator.fewest_gpus(prediction)),
    }
    words = [*[_TEXTS["none"]] * (not needed), *lines(_TEXTS["lines"], of_page | facts)]

    def page() -> str:
        pasted = [operator.pasted(options, where)] if options else []
        return report.page(prediction, words, _table(shown, turned), *pasted)

    of = prediction.units() | units(rows[0])
    fields = report.case_fields(prediction)
    fields |= {"units": {name: of.get(name, "-") for name in rows[0]}, "rows": rows}
    return Answer(
        page=page,
        facts=known(facts.items()),
        fields=fields,
        rows=rows,
        warnings=prediction.warnings,
        case=report.caption(prediction),
    )


def _measured_with(
    prediction: Prediction, decision: Decision | None, paying: Sequence[Row]
) -> tuple[int, str, str]:
    """Return the draft length to measure with (0: none), the start options and the program."""
    if not paying or prediction.turned is None or prediction.turned.heads is None:
        return 0, "", ""
    if decision:
        return decision.length, *decision.paste
    lengths = [int(row["draft_length"]) for row in paying]
    *_, length = accepted_lengths(prediction.deployment, max(lengths, key=lengths.count))
    return length, *start_options(prediction, length)


def turned_rows(prediction: Prediction, turned: Turned) -> list[Row]:
    """Return rows with the break-even acceptance, and the speedups of published heads."""
    columns = {_RATE: turned.rate_needed, _NEEDED: turned.tokens_needed}
    columns |= {_column(level): values for level, values in turned.speedups.items()}
    values = {name: np.ravel(each).tolist() for name, each in columns.items()}
    return [
        {name: row[name] for name in _FIRST}
        | {name: None if np.isnan(each[i]) else each[i] for name, each in values.items()}
        | {name: row[name] for name in ("limited_by", "fits")}
        for i, row in enumerate(prediction.rows())
    ]


def _column(level: str) -> str:
    return f"speedup_{level.replace(' ', '_')}"


def _published(prediction: Prediction, turned: Turned) -> dict[str, Fact]:
    """Return the source of the published heads, or why there are none."""
    heads, others = turned.heads, case_of(prediction).heads
    if heads:
        source = f"{heads.drafter} for {heads.num_targets} targets, by November 2026"
        return {"published": Fact(source)}
    if others:
        return {"longest_published": Fact(others.max_draft_length, "token")}
    return {"few_published": Fact(prediction.deployment.drafter.name)}


def _table(rows: Sequence[Row], turned: Turned) -> str:
    """Return the table of break-even acceptance."""
    heads = [
        Column(_column(level), "-", "", level.replace(" ", "\n"), ".2f", spare=6 + i)
        for i, level in enumerate(turned.speedups)
    ]
    *first, fits, limit = of_table("turned")
    return text_table(rows, [*first, *heads, fits, limit], remedy="--csv has all")
