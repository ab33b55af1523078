"""Schedules in words, tables and the configuration of engines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from specmodel.base.ranges import ranges_text, spans
from specmodel.base.text import align_blocks, command_lines, wrap
from specmodel.prediction.best import alike_places
from specmodel.prediction.table import Form, Row
from specmodel.show import loads, report
from specmodel.show.columns import units
from specmodel.show.facts import Fact, known, lines
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
    " {beyond} with the best length, 0 too; {seats_option} ends there.",
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
    caveats = (f"for {plan.config.name}, {plan.place}", f"made for {plan.limits}", *plan.caveats)
    facts, ranges = _facts(plan), _ranges(plan)
    (headline,) = lines([_HEADLINES[facts["advice"].value]], facts)
    off = [] if plan.schedule.max_draft_length else [headline.removesuffix(".")]
    if plan.largest < plan.schedule.batch_size[-1]:
        headline = report.if_it_fitted(headline, plan.largest, _counted(plan))
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


def _facts(plan: Plan) -> dict[str, Fact]:
    """Return what the page tells, by name."""
    schedule, is_full = plan.schedule, plan.largest == plan.schedule.batch_size.size
    facts = {
        "engine": Fact(plan.config.name),
        "mean_speedup": Fact(schedule.mean_speedup),
        "last_batch_size": Fact(schedule.batch_size.size, "request"),
        "why_last": Fact(plan.end + (_counted(plan) if is_full else "")),
        "not_counted": Fact("" if plan.evaluation.prefill else "prompts of other requests"),
        **_graphs(plan),
        **loads.of_schedules(plan),
    }
    if schedule.max_draft_length:
        return known((facts | _gains(plan) | _losses(plan) | _end(plan)).items())
    best, off = schedule.best_speedup, ("off in tolerance", "off by rule")
    kind = "off" if best.max() == 1 else off[plan.unbound.max_draft_length > 0]
    most = {"most": Fact(float(best.max())), "most_at": Fact(int(best.argmax()) + 1, "request")}
    return known((facts | most | {"advice": Fact(kind)}).items())


def _gains(plan: Plan) -> dict[str, Fact]:
    """Return the advice of a schedule that drafts, the most and least, and where it pays."""
    speedup, gains, drafts = plan.schedule.speedup.tolist(), plan.gains, plan.schedule.draft_length
    most, least = speedup.index(max(speedup)), speedup.index(min(speedup))
    has_ends = all(gain or not length for gain, length in zip(gains, drafts, strict=True))
    sure = [gain.low > 1 if gain else s > 1 for gain, s in zip(gains, speedup, strict=True)]
    may = [bool(has_ends and gain and gain.is_open) for gain in gains]
    top, advice = gains[most], "on" if all(sure) else "on where it pays"
    advice = "close" if top and top.is_open else advice

    def where(holds: Iterable[bool]) -> Fact:
        return Fact([*map(list, spans(plan.schedule.batch_size.tolist(), holds))], "request")

    return {
        "advice": Fact(advice if report.verbs(plan.prediction)[0] == "pays" else "may"),
        "most": Fact(speedup[most], "-", top and top.low, top and top.high),
        "most_at": Fact(most + 1, "request"),
        "least": Fact(speedup[least]),
        "least_at": Fact(least + 1, "request"),
        "chance": Fact(top.chance if top and top.is_open else None),
        "pays_at" if has_ends else "gains_at": where(sure),
        "may_pay_at": where(may),
    }


def _losses(plan: Plan) -> dict[str, Fact]:
    """Return what one length, the engine's own rule and one schedule for all contexts lose."""
    from specmodel.answers.schedule import mean_speedup

    schedule, has_one = plan.schedule, len(plan.schedule.ranges) == 1
    context, size = divmod(int(plan.speedup.argmin()), schedule.batch_size.size)
    # where a command is printed, it ends the batch
    above = None if plan.config.start else int(schedule.draft_length[-1]) * plan.config.keeps_last
    slowest = {
        "slowest": Fact(float(plan.speedup.min())),
        "slowest_at": Fact(size + 1, "request"),
        "slowest_context": Fact(plan.context_length[context], "token"),
    }
    return (slowest if plan.alone else {}) | {
        "one_length": Fact(schedule.single_draft_length, "token"),
        "one_length_speedup": Fact(mean_speedup(schedule.single_speedup)),
        "more": Fact(None if has_one else schedule.gain_over_single - 1),
        "only_length": Fact(schedule.max_draft_length if has_one else None, "token"),
        "drafts_above": Fact(above, "token"),
        "mean_loss": Fact(schedule.mean_loss),
        "max_loss": Fact(float(schedule.loss.max())),
        "cost_of_rule": Fact(plan.cost_of_rule or None),
    }


def _end(plan: Plan) -> dict[str, Fact]:
    """Return the batch size above which no length pays; {} where there is none."""
    beyond = (plan.whole or plan.schedule).speedup[plan.paying :]
    if not beyond.size:
        return {}
    seats = plan.paying // plan.deployment.layout.replicas
    return {
        "stops_paying_above": Fact(plan.paying, "request"),
        "beyond": Fact([[plan.paying + 1, plan.paying + beyond.size]], "request"),
        "beyond_least": Fact(float(beyond.min())),
        "beyond_most": Fact(float(beyond.max())),
        "seats_option": Fact(f"{plan.config.most_requests} {seats}"),
    }


def _graphs(plan: Plan) -> dict[str, Fact]:
    """Return what larger CUDA graphs gain; {} where they gain nothing."""
    schedule, freed = plan.whole or plan.schedule, plan.freed
    limit = plan.deployment.graph_limit
    if not (freed and limit):
        return {}
    size = freed.batch_size * (freed.draft_length + 1 if limit.unit == "token" else 1)
    count = int(-(-size.max() // plan.deployment.layout.replicas))
    place = int((freed.speedup / schedule.speedup).argmax())
    return {
        "graphs_option": Fact(f"{limit.option} {count}"),
        "graphs_needed": Fact(count, limit.unit),
        "with_graphs": Fact(freed.mean_speedup),
        "with_graphs_up_to": Fact(freed.batch_size.size, "request"),
        "most_with_graphs_at": Fact(place + 1, "request"),
        "most_with_graphs": Fact(float(freed.speedup[place])),
        "now_without_graphs": Fact(float(schedule.speedup[place])),
        "only_length_then": Fact(freed.ranges[0][2] if len(freed.ranges) == 1 else None, "token"),
    }


def _counted(plan: Plan) -> str:
    """Return as text the context, and the room for drafts, that each request is counted with."""
    told = f" at context {max(plan.context_length)}"
    if plan.deployment.recurrent_model and plan.schedule.max_draft_length:
        told += f", with room for drafts of {plan.schedule.max_draft_length} in each request"
    return told


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
