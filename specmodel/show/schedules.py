"""Schedules in words, tables and the configuration of engines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from specmodel.base.ranges import ranges_text
from specmodel.base.text import align_blocks, command_lines, wrap
from specmodel.prediction.table import Form, Row
from specmodel.serving.facts import carried_facts
from specmodel.show import loads, report
from specmodel.show.columns import units
from specmodel.show.facts import lines
from specmodel.show.forms import Answer, table

if TYPE_CHECKING:
    from specmodel.answers import Plan

_MEAN = "{mean_speedup:.2f}x on average up to {last_batch_size} (alike on a log scale)"
_HEADLINES = {
    "on": f"Turn it on: {_MEAN}.",
    "on where it pays": f"Turn it on where it pays: {_MEAN}.",
    "close": f"Too close to call, leave it off unless you measure: {_MEAN}.",
    "may": f"It may pay: {_MEAN}.",
    "off": "Leave it off: speculation pays at no batch size up to {last_batch_size}.",
    "off in tolerance": "Leave it off: at most {most:.3f}x at {most_at}, within the tolerance.",
    "off by rule": (
        "Leave it off: no schedule that {engine} takes is worth it, at most {most:.3f}x at"
        " {most_at}."
    ),
}
"""The headline by the advice of a schedule."""
_LINES = (
    "Most: {most:.2f}x at {most_at}{most.ends}; least {least:.2f}x at {least_at}.",
    "Chance: {chance:.0%} of a gain at {most_at}.",
    "Pays: {pays_at}.",
    "Pays: {gains_at}, by the central values.",
    "May pay: {may_pay_at}.",
    "Graphs: {graphs_option} (here --graph-limit {graphs_needed}) gives {with_graphs:.2f}x on"
    " average up to {with_graphs_up_to}; {most_with_graphs:.2f}x at {most_with_graphs_at}, now"
    " {now_without_graphs:.2f}x.",
    "Simpler: with these graphs one length, {only_length_then}, at every batch size.",
    "Stops paying: above {stops_paying_above}; {beyond_least:.2f}x to {beyond_most:.2f}x at"
    " {beyond} with the best length, even 0; {seats_option} ends there.",
    "One length: {only_length} at every batch size; the engine needs no schedule.",
    "One length: {one_length}, {one_length_speedup:.2f}x on average; the schedule has {more:.1%}"
    " more.",
    "Ends: batch size {last_batch_size}, {why_last}.",
    "Above: {engine} goes on with {drafts_above} drafted.",
    "Lost: {mean_loss:.1%} on average, {max_loss:.1%} at most, against the best length at each.",
    "Rule: {engine} wants its longest draft at batch size 1, which costs {cost_of_rule:.1%}.",
    "Slowest: {slowest:.2f}x at batch size {slowest_at}, context {slowest_context}.",
    "Not counted: {not_counted} (--prompt-length, --output-length).",
)
"""Lines of the page, each where its facts are known."""
_CONTEXTS = (
    "Draft length by context and batch size, each context alone, for engines that set it by request"
    " (the schedule counts contexts alike; --csv has every batch size):"
)


def answer(plan: Plan) -> Answer:
    """Return a schedule in all forms."""
    from specmodel.answers.advice import counted, plan_facts

    caveats = (f"for {plan.config.name}, {plan.place}", f"made for {plan.limits}", *plan.caveats)
    facts, ranges = {**plan_facts(plan), **carried_facts(plan)}, _ranges(plan)
    (headline,) = lines([_HEADLINES[facts["advice"].value]], facts)
    off = [] if plan.schedule.max_draft_length else [headline.removesuffix(".")]
    if plan.largest < plan.schedule.batch_size[-1]:
        headline = report.if_it_fitted(headline, plan.largest, counted(plan))
    words = [*lines(loads.CARRIED, facts), headline, *lines(_LINES, facts)]
    warnings = [*plan.warnings, *off]
    fields = _fields(plan, ranges) | {"warnings": warnings}

    def page() -> str:
        parts = [_for_engine(plan), _ranges_table(plan, ranges), _contexts_table(plan)]
        return report.page(plan, words, *parts)

    return Answer(
        page=page,
        facts=facts,
        fields=lambda: fields,
        rows=plan.rows_by_context if plan.alone else plan.rows,
        warnings=warnings,
        case=report.caption(plan),
        fragment=plan.fragment,
        caveats=caveats if plan.fragment else (),
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


def _ranges_table(plan: Plan, rows: Sequence[Row]) -> str:
    """Return a text table with a row for each range of batch sizes."""
    columns: dict[str, Form] = {
        "batch\nsizes": lambda r: ranges_text([(r["first_batch_size"], r["last_batch_size"])]),
        "draft\nlength": lambda row: _with_alike(row["draft_length"], row["as_good"]),
        "speedup": "{min_speedup:.2f}-{max_speedup:.2f}",
        "80 %\ninterval": "{min_speedup_low:.2f}-{max_speedup_high:.2f}",
        "at most\nlost": "{max_loss:.1%}",
    }
    if rows[0]["min_speedup_low"] is None:
        del columns["80 %\ninterval"]
    if not rows[-1]["fits"]:
        part = f"to {plan.largest}"
        columns["fits"] = lambda row: (
            "yes" if row["fits"] else part if row["first_batch_size"] <= plan.largest else "no"
        )
    return table(rows, columns)


def _with_alike(length: int, as_good: tuple[int, int]) -> str:
    """Return a draft length, and in brackets those that gain as much on average."""
    return f"{length}" if len({*as_good}) == 1 else f"{length} ({ranges_text([as_good])})"


def _contexts_table(plan: Plan) -> str:
    """Return the draft lengths of each context alone, and the schedule's; empty for one."""
    if not plan.alone:
        return ""
    lengths = [each.schedule.draft_length.tolist() for each in (*plan.alone, plan)]
    largest = max(map(len, lengths))
    powers = [2**i for i in range(largest.bit_length()) if 2**i < largest]
    cells = [
        (f"{size}", [f"{own[size - 1]}" if size <= len(own) else "-" for own in lengths])
        for size in (*powers, largest)
    ]
    columns = align_blocks(("context", [*map(str, plan.context_length), "schedule"]), cells)
    return f"{wrap(_CONTEXTS)}\n{columns}"


_MEANS = ("mean_speedup", "single_draft_length", "gain_over_single", "mean_loss")


def _fields(plan: Plan, ranges: Sequence[Row]) -> dict[str, Any]:
    """Return the fields of JSON, in SI units."""
    from specmodel.answers.schedule import draft_ranges

    schedule, own, rows = plan.schedule, plan.rows(), plan.rows_by_context()
    by_context = zip(plan.context_length, plan.best_draft_length, plan.speedup, strict=True)
    return (
        report.case_fields(plan)
        | {
            "for": plan.config.name.lower(),
            "fragment": plan.fragment or None,
            "place": plan.place or None,
            "caveats": plan.caveats,
            "ranges": ranges,
            **{name: getattr(schedule, name) for name in _MEANS},
            "max_loss": float(schedule.loss.max()),
            "loss_at_batch_size_1": float(schedule.loss[0]),
            "cost_of_rule": plan.cost_of_rule,
            "contexts": [
                {
                    "context_length": context,
                    "best_ranges": draft_ranges(lengths),
                    "min_speedup": float(gain.min()),
                    "rows": [row for row in rows if row["context_length"] == context],
                }
                for context, lengths, gain in by_context
            ],
            "units": units(own[0]),
            "rows": own,
        }
        | ({"carried": plan.carried} if plan.carried else {})
    )


def _ranges(plan: Plan) -> list[Row]:
    """Return each range of batch sizes with its draft length, speedups, loss, and if it fits.

    The interval reaches from the least to the largest end of those at its batch sizes.
    """
    from specmodel.prediction.best import alike_places

    schedule, rows = plan.schedule, plan.rows()
    found = []
    for first, last, length in schedule.ranges:
        own = rows[first - 1 : last]
        lows, highs = ([row[f"speedup_{end}"] for row in own] for end in ("low", "high"))
        known = None not in lows
        found.append(
            {
                "first_batch_size": first,
                "last_batch_size": last,
                "draft_length": length,
                "as_good": alike_places(plan.gain[:, first - 1 : last].mean(axis=(0, 1)), length),
                "min_speedup": min(row["speedup"] for row in own),
                "max_speedup": max(row["speedup"] for row in own),
                "min_speedup_low": min(lows) if known else None,
                "max_speedup_high": max(highs) if known else None,
                "max_loss": float(schedule.loss[first - 1 : last].max()),
                "fits": last <= plan.largest,
            }
        )
    return found
