"""Servers under load in words and tables: what rates do, and the largest within targets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from specmodel.base.text import SCREEN
from specmodel.prediction.table import Column, Row, seconds
from specmodel.serving.facts import capacity_facts, rate_facts, within_targets
from specmodel.show import report
from specmodel.show.behind import behind
from specmodel.show.columns import ALTERNATIVES, LOADS, chosen, units
from specmodel.show.facts import lines
from specmodel.show.forms import Answer, text_table
from specmodel.show.notes import in_words

if TYPE_CHECKING:
    from specmodel.answers.alternatives import Alternatives
    from specmodel.base.notes import Note
    from specmodel.serving.asked import Loaded
    from specmodel.serving.study import Study
    from specmodel.serving.trial import Trial

USUAL_POLICIES = (
    "Policies: fixed:K drafts K tokens in each step, schedule as many as are best for the requests"
    " that run, none never."
)
"""What is said where no policies were named."""
_NINETY = "90 % of requests stay below the columns so named."
_RATES_TOLD = (
    "Run {fastest}: fastest at {fastest_at} {unit}.",
    "Gain: {gain:.2f}x faster than without drafts.",
    "Only with drafts: {only_drafted_at} {unit} carried.",
    "Not carried: {not_carried_at} {unit}.",
)
"""What is told of given loads."""
_NOT_CARRIED = (
    "{:.3g} requests/s are not carried by any policy here: at most about {:.3g}, above which"
    " requests wait ever longer; near it more --requests tell"
)
CARRIED = (
    "Within {within}: {carries_most} carries most, {capacity} requests/s{capacity.ends}.",
    "Without speculation: {capacity_plain} requests/s, {gain:.2g}x less.",
    "Without speculation: {tpot_alone} a token of a request alone.",
    "Steep: with targets a tenth longer {gain_if_looser:.2g}x, {if_looser_plain} requests/s without"
    " speculation.",
    "Carried: {capacity_fixed} requests/s by the best fixed length, {capacity_plain} by none.",
    "As good: {as_good}, which runs with other requests do not tell apart.",
)
"""What is told of the largest rate."""
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
_TOGETHER = (
    "Users start together. Where all lengths are alike and nothing is drafted, prompts that share a"
    " step stay together, and a token waits for those of other steps alone; by formula, as in"
    " predict, they are spread out, and it waits for all of the others'."
)
_SPARE = ("tpot_p90", "ttft_p90", "tpot_closed")
_SPARE_LARGEST = ("running", "ttft_p90", "tpot_p90", "simulated_low")
"""Those that are dropped from a table that is too wide, in this order."""
_INTERVALS = (
    "80 % by simulation: of runs with other requests; by prediction: of what predicted times may be"
    " off by, acceptance taken as exact."
)


def answer(loaded: Loaded) -> Answer:
    """Return the answer of a load in all forms: at the rates asked for, or the largest rate."""
    notes = [USUAL_POLICIES] if loaded.is_usual else []
    return _largest(loaded, loaded.trial, notes) if loaded.trial else _at_rates(loaded, notes)


def framed(
    study: Study,
    assumed: Mapping[str, Any],
    warnings: Iterable[object],
    words: Sequence[str],
    table: Callable[[], str],
    notes: Sequence[str],
    *,
    said: Mapping[str, Any],
    **how: Any,
) -> Answer:
    """Return an answer of headline and lines in `words`, a table and notes."""
    case, told = report.heading(study.deployment), in_words(assumed)
    warned = [*map(str, warnings)]

    def page() -> str:
        sentences = behind(study.deployment)
        return report.laid_out(case, sentences, told, warned, words, [table()], notes)

    fields = {"case": case, "assumptions": told, "warnings": warned, **said}
    return Answer(page=page, fields=lambda: fields, warnings=warned, case=case, **how)


def _at_rates(loaded: Loaded, notes: Sequence[str]) -> Answer:
    """Return the answer at the loads asked for, in all forms."""
    from specmodel.prediction.cautions import notes_of_run
    from specmodel.serving.limits import usual_scheduler
    from specmodel.serving.study import not_carried

    study, rows = loaded.study, loaded.rows
    warnings = [
        *notes_of_run(study.deployment, study.typical.longest),
        *(_NOT_CARRIED.format(*rates) for rates in not_carried(rows).items()),
        *(*graph_notes(study, rows), *study.notes),
    ]
    scheduler = asdict(usual_scheduler(study.deployment, study.max_draft_length))
    limits = dict(study.limits)
    told = {**loaded.assumed, **{n: v for n, v in scheduler.items() if n not in limits}}
    if study.first_token_time:
        added = f"{seconds(study.first_token_time)} (HTTP, tokenization, as fitted)"
        told["first_token_time"] = added
    asked = dict(zip(("ttft_p90", "tpot_p90"), loaded.targets, strict=True))
    spare = sorted(_SPARE, key=lambda name: asked.get(name) is not None)
    all_carried = all(row["is_steady"] for row in rows)
    shown = [name for name in _AT_RATES if name != "is_steady" or not all_carried]
    notes = [f"TPOT counts each token once; {_NINETY}", *notes]
    notes += [_TOGETHER] if rows[0]["users"] else []
    facts = rate_facts(rows)
    return framed(
        study,
        told,
        warnings,
        lines(_RATES_TOLD, facts),
        lambda: table_of(rows, shown, spare),
        notes,
        facts=facts,
        said={"scheduler": scheduler, "units": units_of(rows[0]), "rows": rows},
        rows=lambda: rows,
        figure="load",
    )


def graph_notes(study: Study, rows: Sequence[Row]) -> tuple[Note, ...]:
    """Return notes on mean running requests whose verified tokens no CUDA graph holds."""
    from numpy import array

    sizes = array([row["running"] for row in rows]).round()
    return study.deployment.graph_warnings(
        sizes.clip(1), array([row["drafted_tokens_per_step"] for row in rows]) + 1
    )


def units_of(columns: Iterable[str]) -> dict[str, str]:
    """Return the units of all columns of a row."""
    return dict.fromkeys(columns, "-") | units(columns, LOADS)


def table_of(rows: list[Row], names: Sequence[str | Column], spare: Sequence[str]) -> str:
    """Return rows as a table, without columns of which no row has a value."""
    ranks = {name: rank for rank, name in enumerate(spare, 1)}
    columns = [replace(c, spare=ranks.get(c.name, 0)) for c in chosen(names, LOADS)]
    return text_table(rows, columns, width=SCREEN.get(), left=("policy",))


def _largest(loaded: Loaded, trial: Trial, notes: Sequence[str]) -> Answer:
    """Return the largest rate of each policy and the rates that were tried, in all forms."""
    study, rows, tried = trial.study, loaded.rows, loaded.tried
    again = [
        f"{row['policy']} meets the targets again at {row['passes_again']:.3g} requests/s."
        for row in rows
        if row["passes_again"]
    ]
    notes = [*again, *notes, _INTERVALS, _NINETY]

    facts = capacity_facts(trial, rows)
    return framed(
        study,
        loaded.assumed,
        (*study.notes, *graph_notes(study, tried)),
        lines(CARRIED, facts),
        lambda: table_of(rows, _LARGEST, _SPARE_LARGEST),
        notes,
        facts=facts,
        said={"units": units_of({**rows[0], **tried[0]}), "rows": rows, "rates_tried": tried},
        rows=lambda: tried,
        figure="capacity",
    )


def of_alternatives(found: Alternatives) -> tuple[str, str]:
    """Return a sentence and a table of the capacities of alternatives within targets."""
    from specmodel.serving.capacity import Targets

    best = max(found.carried, key=lambda row: row["capacity_per_gpu"])
    within = within_targets(Targets(**found.targets))
    told = f"Within {within}, {best['alternative']} carries most per GPU."
    names = ("alternative", "capacity_plain", "capacity", "capacity_per_gpu")
    columns = chosen([*names, *_PRICED[:1]], ALTERNATIVES, capacity="requests/s\nat best")
    return told, text_table(found.carried, columns, left=["alternative"])
