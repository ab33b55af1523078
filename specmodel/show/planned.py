"""Show the answers of `plan`: schedules, comparisons of alternatives, and sensitivities."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from specmodel.core.base.text import command_lines, wrap
from specmodel.core.prediction.outcome import Prediction
from specmodel.core.prediction.table import Row
from specmodel.plan import Plan
from specmodel.plan.advice import counted, plan_facts
from specmodel.plan.alternatives import Alternatives
from specmodel.plan.ranking import Ranking, carried_facts as carried_by_gpu
from specmodel.plan.sensitivity import Sensitivity, sensitivity_facts
from specmodel.show import forms, report
from specmodel.show.behind import FOR_PROGRAMS, behind, ground_facts, ground_texts, value_text
from specmodel.show.columns import of_table, units
from specmodel.show.facts import Fact, known, lines
from specmodel.show.forms import Answer, records, text_table
from specmodel.show.glossary import PAGES
from specmodel.simulate.facts import carried_facts, within_targets

_SCHEDULES, _COMPARED = PAGES["schedules"], PAGES["compared"]
_CELLS = "{tpot:s} {speedup:.2f} ({best_draft_length})"
_POINT = ("batch_size", "draft_length", "context_length")
_MOST_ROWS = 15
"""Largest number of rows in a table for people [-]."""
_VISIBLE = 0.005
"""Smallest share that two decimals show [-]."""


def schedule(plan: Plan) -> Answer:
    """Return a schedule in all forms."""
    e = plan.prediction.evaluation
    spread = {"acceptance_spread": Fact(e.acceptance.spread or None)}
    every = plan_facts(plan) | carried_facts(plan) | spread | ground_facts(e)
    facts = known(every.items())
    ranges, rows, by_context = plan.ranges(), plan.rows(), plan.rows_by_context()
    (headline,) = lines([_SCHEDULES["headlines"][facts["advice"].value]], facts)
    off = [] if plan.schedule.max_draft_length else [headline.removesuffix(".")]
    if plan.largest < plan.schedule.batch_size[-1]:
        headline = report.if_it_fitted(headline, plan.largest, counted(plan))
    words = lines(PAGES["loads"]["lines"]["capacity"], facts)
    words += [headline, *lines([*_SCHEDULES["lines"], *ground_texts(facts)], facts)]
    warnings = [*plan.warnings, *off]
    fields = report.case_fields(plan) | {
        "warnings": warnings,
        "for": plan.config.name.lower(),
        "fragment": plan.fragment or None,
        "place": plan.place or None,
        "caveats": plan.caveats,
        "ranges": ranges,
        "rows_by_context": by_context,
        "carried": plan.carried,
        "units": units(rows[0]),
        "rows": rows,
    }
    given = (f"for {plan.config.name}, in {plan.place}", f"made for {plan.limits}", *plan.caveats)

    return Answer(
        page=lambda: report.page(plan, words, _for_engine(plan), text_table(ranges, "ranges")),
        facts=facts,
        fields=fields,
        rows=by_context or rows,
        warnings=warnings,
        case=report.caption(plan),
        fragment=plan.fragment,
        caveats=given if plan.fragment else (),
    )


def _for_engine(plan: Plan) -> str:
    """Return the fragment with its place and caveats as text; "" without a fragment."""
    if not plan.fragment:
        return ""
    since = f" {plan.config.since} or newer" if plan.is_schedule and plan.config.since else ""
    own = " (DRAFTER: the drafter's path)" * ("DRAFTER" in plan.fragment)
    start = f"Start command for {plan.config.name}{since}{own}:"
    head = start if plan.config.start else f"For {plan.config.name}, paste into {plan.place}:"
    notes = [wrap(f"{'. '.join(plan.caveats)}.")] if plan.caveats else []
    return "\n".join([wrap(head), _command(plan), *notes])


def _command(plan: Plan) -> str:
    """Return the engine's start command with the fragment, or the fragment if it is a file."""
    if not plan.config.start:
        return plan.fragment
    layout = plan.deployment.layout
    degrees = {
        "tensor-parallel-size": layout.tensor_parallel,
        "data-parallel-size": layout.replicas,
        "decode-context-parallel-size": layout.decode_context_parallel,
    }
    words = [f"--{name} {degree}" for name, degree in degrees.items() if degree > 1]
    words += ["--enable-expert-parallel"] if plan.deployment.expert_parallel > 1 else []
    words += [plan.limits, "--speculative-config '"]
    return f"{command_lines([f'{plan.config.start} {plan.served}', *words])}\n{plan.fragment}'"


def comparison(found: Alternatives) -> Answer:
    """Return a comparison of alternatives in all forms."""
    predictions, ranking, carried = found.predictions, found.ranking, found.within
    facts, words = ranking.facts() | {"room": Fact(found.rooms, "request")}, list[str]()
    if carried:
        facts |= carried_by_gpu(carried, ranking.deployments, found.targets)
        facts["within"] = Fact(within_targets(**found.targets))
        words = lines(PAGES["within"]["alternatives"], facts) or [PAGES["within"]["none"]]
    is_alone = len(ranking.numbers) == 1 and not any("Left out" in note for note in found.notes)
    fits = any(row["fits"] for row in ranking.best)
    words += [_COMPARED["alone"]] if is_alone else report.opening(_COMPARED["lines"], facts, fits)
    layouts = {(p.deployment.layout, p.deployment.expert_parallel) for p in predictions.values()}

    def page() -> str:
        parts = [text_table(carried, "carried")] if carried else []
        is_best = any(case.draft_length is None for case in found.cases.values())
        parts += [side_by_side(ranking, found.rooms, " with 1 drafted" * is_best)]
        return _page(found, words, parts, [_COMPARED["layouts"]] * (len(layouts) > 1))

    return report.comparison(predictions, ranking.best, page, facts)


def side_by_side(ranking: Ranking, rooms: Mapping[str, int], drafted: str = "") -> str:
    """Return the legend, the fastest at each batch size, and a table of all alternatives.

    `rooms` are the requests that fit in memory with each alternative [request]. The legend states
    for which draft, as text in `drafted`.
    """
    numbers, are_several = ranking.numbers, len(ranking.numbers) > 1
    held = {
        n: f"for {room} requests{drafted}" if room else "too small" for n, room in rooms.items()
    }
    legend = [f"[{i}] {name}: memory {held[name]}" for name, i in numbers.items()]
    fastest = [
        row
        | {"fastest": numbers[row["alternative"]] if are_several else None}
        | {"as_fast": ranking.close([row, *others]) or None}
        for row, *others in ranking.by_size.values()
    ]
    cells = text_table(fastest, "fastest") + report.left_out(ranking.best)
    if not are_several:
        return cells
    groups: dict[str, list[Row]] = {}
    for row in ranking.kept:
        groups.setdefault(f"[{numbers[row['alternative']]}]", []).append(row)
    each = forms.by_batch_size(ranking.by_size, groups, _CELLS)
    each = f"TPOT, speedup (draft length) of all alternatives:\n{each}"
    return "\n\n".join(["\n".join(legend), cells, each])


def _page(
    found: Alternatives, words: Iterable[str], parts: Sequence[str], notes: Iterable[str]
) -> str:
    """Return the page; a line that is true for some alternatives starts with their numbers."""
    predictions = found.predictions
    first, *rest = (p.assumptions for p in predictions.values())
    common = {k: v for k, v in first.items() if all(other.get(k) == v for other in rest)}
    warnings, own_warnings = _marked({n: p.warnings for n, p in predictions.items()})
    listed = {n: [*behind(p.deployment), *_assumed(p, common)] for n, p in predictions.items()}
    below, own = _marked(listed)
    targets = " / ".join({p.deployment.target.name: None for p in predictions.values()})
    title, *others = found.notes or [targets]
    own = [(marks, f"Warning: {line}.") for marks, line in own_warnings] + own
    notes = [*notes, *map(" ".join, own)]
    common = report.with_brief_source(common)
    return report.laid_out(title, below, common, warnings, [*words, *others], parts, notes)


def _assumed(prediction: Prediction, common: Collection[str]) -> list[str]:
    """Return a line with the assumptions of one alternative; [] if all of them are `common`."""
    rest = {k: v for k, v in prediction.assumptions.items() if k not in (*common, *FOR_PROGRAMS)}
    own = "; ".join(f"{name}\xa0{value_text(name, value)}" for name, value in rest.items())
    return [f"Assumed: {own}."] if own else []


def _marked(lines: Mapping[str, Iterable[str]]) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the lines of all alternatives, and other lines with the [numbers] that have them."""
    owners: dict[str, str] = {}
    for number, of_one in enumerate(lines.values(), 1):
        for line in of_one:
            owners[line] = f"{owners.get(line, '')}[{number}]"
    every = "".join(f"[{i}]" for i in range(1, len(lines) + 1))
    shared = [line for line, marks in owners.items() if marks == every]
    return shared, [(marks, line) for line, marks in owners.items() if marks != every]


def sensitivity(found: Sensitivity) -> Answer:
    """Return the analyses of a point in all forms."""
    facts, texts = sensitivity_facts(found), PAGES["sensitivities"]
    words = report.opening(texts["lines"], facts, found.fits)
    elasticities, swings, indices = map(records, (found.elasticities, found.swings, found.indices))
    fields = report.case_fields(found) | found.outcome | {"samples": found.samples}
    fields |= {"point": {name: getattr(found.point, name) for name in _POINT}}
    fields |= {"elasticities": elasticities, "tornado": swings, "sobol": indices}
    fields |= {"laws": {name: span.law for name, span in found.ranges.items()}}

    def page() -> str:
        of_output = {name: [r for r in indices if r["output"] == name] for name in found.outcome}
        tables = [
            text_table(elasticities[:_MOST_ROWS], "elasticities"),
            text_table(swings[:_MOST_ROWS], "swings"),
            *(_shares(rows, name.replace("_", " ")) for name, rows in of_output.items()),
        ]
        return report.page(found, words, *tables, notes=lines(texts["notes"], facts))

    tidy, warnings, case = records(found.tidy()), found.warnings, report.caption(found)
    return Answer(page=page, facts=facts, fields=fields, rows=tidy, warnings=warnings, case=case)


def _shares(rows: list[Row], words: str) -> str:
    """Return the visible shares of the variance of an output as a table."""
    if not rows:
        return wrap(f"No input with a range changes the {words}.")
    visible = [row for row in rows if row["total"] >= _VISIBLE] or rows[:1]
    columns = of_table("shares", input=f"share of variance of {words}")
    return text_table(visible[:_MOST_ROWS], columns)
