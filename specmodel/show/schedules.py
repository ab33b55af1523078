"""Show schedules in words, tables and the configuration of engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmodel.core.base.text import command_lines, wrap
from specmodel.show import report
from specmodel.show.behind import ground_facts, ground_texts
from specmodel.show.columns import units
from specmodel.show.facts import Fact, known, lines
from specmodel.show.forms import Answer, text_table
from specmodel.show.glossary import PAGES
from specmodel.simulate.facts import carried_facts

if TYPE_CHECKING:
    from specmodel.plan import Plan

_TEXTS = PAGES["schedules"]


def answer(plan: Plan) -> Answer:
    """Return a schedule in all forms."""
    from specmodel.plan.advice import counted, plan_facts

    e = plan.prediction.evaluation
    spread = {"acceptance_spread": Fact(e.acceptance.spread or None)}
    told = plan_facts(plan) | carried_facts(plan) | spread | ground_facts(e)
    facts = known(told.items())
    ranges, rows, by_context = plan.ranges(), plan.rows(), plan.rows_by_context()
    (headline,) = lines([_TEXTS["headlines"][facts["advice"].value]], facts)
    off = [] if plan.schedule.max_draft_length else [headline.removesuffix(".")]
    if plan.largest < plan.schedule.batch_size[-1]:
        headline = report.if_it_fitted(headline, plan.largest, counted(plan))
    words = lines(PAGES["loads"]["lines"]["capacity"], facts)
    words += [headline, *lines([*_TEXTS["lines"], *ground_texts(facts)], facts)]
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
    given = (f"for {plan.config.name}, {plan.place}", f"made for {plan.limits}", *plan.caveats)

    return Answer(
        page=lambda: report.page(plan, words, _for_engine(plan), text_table(ranges, "ranges")),
        facts=facts,
        paste=plan.fragment,
        fields=fields,
        rows=by_context or rows,
        warnings=warnings,
        case=report.caption(plan),
        fragment=plan.fragment,
        caveats=given if plan.fragment else (),
    )


def _for_engine(plan: Plan) -> str:
    """Return as text the fragment, where it goes, and its caveats; "" without a fragment."""
    if not plan.fragment:
        return ""
    since = f" {plan.config.since} or newer" if plan.is_schedule and plan.config.since else ""
    head = wrap(f"For {plan.config.name}{since}, {plan.place}:")
    notes = [wrap(f"{'. '.join(plan.caveats)}.")] if plan.caveats else []
    return "\n".join([head, _command(plan), *notes])


def _command(plan: Plan) -> str:
    """Return the fragment in the engine's start command, or alone where a file holds it."""
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
