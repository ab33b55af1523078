"""Schedules in words, tables and the configuration of engines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specmodel.base.ranges import ranges_text, spans
from specmodel.base.text import Columns, align, command_lines, wrap
from specmodel.prediction.table import Form, Row
from specmodel.show import report
from specmodel.show.columns import units
from specmodel.show.forms import Answer, table
from specmodel.show.loads import of_schedules
from specmodel.show.report import ends

if TYPE_CHECKING:
    from specmodel.answers import Plan, Schedule

_ALONE = (
    "Prompts of other requests are not counted; --prompt-length and --output-length count them."
)


_MOST_COLUMNS = 9
"""Batch sizes beside each other in a table."""


def answer(plan: Plan) -> Answer:
    """Return a schedule in all forms."""
    caveats = (f"for {plan.config.name}, {plan.place}", f"made for {plan.limits}", *plan.caveats)

    def page() -> str:
        parts = [_for_engine(plan), _ranges_table(plan), _contexts_table(plan)]
        return report.page(plan, _verdict(plan), *parts)

    return Answer(
        page=page,
        fields=lambda: _fields(plan),
        rows=plan.rows_by_context if plan.alone else plan.rows,
        warnings=_advice(plan),
        case=report.caption(plan),
        fragment=plan.fragment,
        caveats=caveats if plan.fragment else (),
    )


def _verdict(plan: Plan) -> list[str]:
    """Return sentences on where speculation pays, and on how much the schedule loses."""
    schedule = plan.schedule
    last = schedule.batch_size[-1]
    where = _counted(plan) if plan.largest == last else ""
    sizes = f"Batch sizes up to {last}, {plan.end}{where}."
    if schedule.max_draft_length:
        last_length = schedule.draft_length[-1] if plan.config.keeps_last else 0
        above = {0: "no draft", 1: "1 token"}.get(last_length, f"{last_length} tokens")
        if not plan.config.start:  # whose printed command ends the batch
            sizes = f"{sizes.removesuffix('.')}; above, {plan.config.name} goes on with {above}."
        sizes += (
            f" Against the best length at each, the schedule loses {schedule.mean_loss:.1%} on"
            f" average, {schedule.loss.max():.1%} at most."
        )
    gain = _gain(plan, report.verbs(plan.prediction)[0])
    if plan.largest < last:
        gain = report.if_it_fitted(gain, plan.largest, _counted(plan))
    held = " ".join(filter(None, [_graphs(plan), _losing(plan)]))
    carried = of_schedules(plan) if plan.carried else ""
    alone = "" if plan.evaluation.prefill else _ALONE
    words = [carried, gain, held, _single(schedule), sizes, _rule(plan), _slowest(plan), alone]
    return [*filter(None, words)]


def _advice(plan: Plan) -> list[str]:
    """Return the warnings, with the advice to leave speculation off where it does not pay."""
    advice = [] if plan.schedule.max_draft_length else [_gain(plan, "pays").removesuffix(".")]
    return [*plan.warnings, *advice]


def _counted(plan: Plan) -> str:
    """Return as text the context, and the room for drafts, that each request is counted with."""
    told = f" at context {max(plan.context_length)}"
    if plan.deployment.recurrent_model and plan.schedule.max_draft_length:
        told += f", with room for drafts of {plan.schedule.max_draft_length} in each request"
    return told


def _gain(plan: Plan, pays: str) -> str:
    """Return a sentence on where speculation pays and how much, or that it should stay off."""
    schedule, last = plan.schedule, plan.schedule.batch_size[-1]
    if not schedule.max_draft_length:
        return _nothing(plan)
    most, least = int(schedule.speedup.argmax()), int(schedule.speedup.argmin())
    top, bottom = plan.gains[most], plan.gains[least]
    told = f"{schedule.speedup[most]:.2f}x at batch size {most + 1}"
    if top and top.is_open:
        return f"Speculation may pay or not; most is gained with {told} ({report.chances(top)})."
    if last == 1:
        return f"Speculation {pays}: {told}{ends(top)}."
    extreme = f"most {schedule.speedup[most]:.2f}x at {most + 1}{ends(top)}"
    if schedule.speedup[least] > 1:
        is_open = " (may pay or not)" if bottom and bottom.is_open else ""
        extreme += f", least {schedule.speedup[least]:.2f}x at {least + 1}{is_open}"
    contexts = " and a geometric mean over contexts" if len(plan.context_length) > 1 else ""
    return (
        f"Speculation {_paying(plan, pays)}: {schedule.mean_speedup:.2f}x on average up to {last},"
        f" with batch sizes equally likely on a logarithmic scale{contexts}; {extreme}."
    )


def _paying(plan: Plan, pays: str) -> str:
    """Return as text the batch sizes that surely pay and may pay; by speedup without intervals."""
    sizes, gaining = plan.schedule.batch_size.tolist(), (plan.schedule.speedup > 1).tolist()
    drafts = zip(plan.gains, plan.schedule.draft_length, strict=True)
    if any(length and gain is None for gain, length in drafts):
        known = f"batch sizes {ranges_text(spans(sizes, gaining))}"
        return f"{pays} at {'every batch size' if all(gaining) else known} by the central values"
    if all(gain and gain.low > 1 for gain in plan.gains):
        return f"{pays} at every batch size"
    return report.paying(sizes, plan.gains)


def _losing(plan: Plan) -> str:
    """Return a sentence on the batch size above which no length pays; "" if there is none."""
    speedup, most = (plan.whole or plan.schedule).speedup, plan.paying
    if most == speedup.size:
        return ""
    told = "-".join(dict.fromkeys(f"{end(speedup[most:]):.2f}" for end in (min, max)))
    why = ", as the loaded drafter takes its time without a draft too"
    helps = plan.freed is not None and plan.freed.speedup[most:].min() > 1
    each = most // plan.deployment.layout.replicas
    return (
        f"{'Without that, speculation' if helps else 'Speculation'} stops paying above batch size"
        f" {most}: at {ranges_text([(most + 1, speedup.size)])} the best length gives"
        f" {told}x{why if speedup[most:].max() < 1 else ''};"
        f" {plan.config.most_requests} {each} ends there."
    )


def _graphs(plan: Plan) -> str:
    """Return a sentence on the gain from larger CUDA graphs; "" if there is none."""
    schedule, freed = plan.whole or plan.schedule, plan.freed
    deployment = plan.deployment
    limit = deployment.graph_limit
    if not (freed and limit):
        return ""
    size = freed.batch_size * (freed.draft_length + 1 if limit.unit == "token" else 1)
    count = -(-size.max() // deployment.layout.replicas)
    place = int((freed.speedup / schedule.speedup).argmax())
    here, more = schedule.speedup[place], freed.speedup[place]
    lengths = {length for *_, length in freed.ranges}
    start, given = "With", "a schedule gives"
    if len(lengths) == 1:
        start, given = "Simpler: with", f"one length, {lengths.pop()}, does at every batch size:"
    up_to = f" up to {schedule.batch_size[-1]}" if plan.whole else ""
    return (
        f"{start} {limit.option} {count} (here --graph-limit {count}) {given}"
        f" {freed.mean_speedup:.2f}x on average{up_to}, and at batch size {place + 1}"
        f" {more:.2f}x in place of {here:.2f}x."
    )


def _single(schedule: Schedule) -> str:
    """Return a sentence on the schedule's gain over the best single length; "" without drafts."""
    from specmodel.answers.schedule import mean_speedup

    single, mean = schedule.single_draft_length, mean_speedup(schedule.single_speedup)
    if not schedule.max_draft_length:
        return ""
    if len(schedule.ranges) == 1:
        return "One length does at every batch size: the engine needs no schedule."
    told = f"{single}, has {mean:.2f}x" if single else "0, has 1.00x"
    more = f"{schedule.gain_over_single - 1:.1%}"
    return f"The best single length, {told} on average: the schedule has {more} more."


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


def _nothing(plan: Plan) -> str:
    """Return a sentence that speculation should stay off, with the most that it could gain."""
    best, last = plan.schedule.best_speedup, plan.schedule.batch_size[-1]
    if best.max() == 1:
        return f"Speculation pays at no batch size up to {last}: leave it off."
    gain = f"{best.max():.3f}x at batch size {best.argmax() + 1}"
    if plan.unbound.max_draft_length:
        return (
            f"No schedule that {plan.config.name} takes is worth it: leave speculation off. The"
            f" most it could gain is {gain}."
        )
    return f"Speculation gains at most {gain}, within the tolerance: leave it off."


def _rule(plan: Plan) -> str:
    """Return a sentence on the cost of having the longest draft at batch size 1; "" for none."""
    if plan.schedule.ranges == plan.unbound.ranges or plan.schedule.max_draft_length == 0:
        return ""
    return (
        f"{plan.config.name} wants its longest draft at batch size 1, which costs"
        f" {plan.cost_of_rule:.1%} over all batch sizes."
    )


def _slowest(plan: Plan) -> str:
    """Return a sentence on a context that one schedule for all slows down; "" if there is none."""
    least = plan.speedup.min()
    if len(plan.context_length) == 1 or least >= 1:
        return ""
    context, size = divmod(int(plan.speedup.argmin()), plan.speedup.shape[1])
    return (
        f"One schedule for all contexts slows some down: {least:.2f}x at batch size"
        f" {size + 1} and context {plan.context_length[context]}."
    )


def _ranges_table(plan: Plan) -> str:
    """Return a text table with a row for each range of batch sizes."""
    columns: dict[str, Form] = {
        "batch\nsizes": lambda row: ranges_text(
            [(row["first_batch_size"], row["last_batch_size"])]
        ),
        "draft\nlength": lambda row: _alike(plan, row),
        # the least and the largest of a range, once if they read alike
        "speedup": lambda row: "-".join(
            dict.fromkeys(f"{row[f'{end}_speedup']:.2f}" for end in ("min", "max"))
        ),
        "80 %\ninterval": "{min_speedup_low:.2f}-{max_speedup_high:.2f}",
        "at most\nlost": "{max_loss:.1%}",
    }
    rows = _ranges(plan)
    if rows[0]["min_speedup_low"] is None:
        del columns["80 %\ninterval"]
    if not rows[-1]["fits"]:
        part = f"to {plan.largest}"
        columns["fits"] = lambda row: (
            "yes" if row["fits"] else part if row["first_batch_size"] <= plan.largest else "no"
        )
    return table(rows, columns)


def _alike(plan: Plan, row: Row) -> str:
    """Return the draft length of a range of batch sizes, and those that gain as much on average."""
    from specmodel.prediction.best import alike_places

    length = row["draft_length"]
    own = plan.gain[:, row["first_batch_size"] - 1 : row["last_batch_size"]]
    told = ranges_text([alike_places(own.mean(axis=(0, 1)), length)])
    return f"{length}" if told == f"{length}" else f"{length} ({told})"


def _contexts_table(plan: Plan) -> str:
    """Return the draft lengths of each context alone, and the schedule's; empty for one."""
    if not plan.alone:
        return ""
    lengths = [each.schedule.draft_length.tolist() for each in (*plan.alone, plan)]
    columns: Columns = [("context", [*map(str, plan.context_length), "schedule"])]
    largest = max(map(len, lengths))
    powers = [2**i for i in range(largest.bit_length()) if 2**i < largest]
    stride = -(-len(powers) // _MOST_COLUMNS) or 1
    for size in [*powers[::stride], largest]:
        columns.append(
            (f"{size}", [f"{own[size - 1]}" if size <= len(own) else "-" for own in lengths])
        )
    head = wrap(
        "Draft length by context and batch size, each context alone, for engines that set it by"
        " request (--csv has every batch size):"
    )
    return f"{head}\n{align(columns)}"


def _fields(plan: Plan) -> dict[str, Any]:
    """Return the fields of JSON, in SI units."""
    from specmodel.answers.schedule import draft_ranges

    schedule, own, rows = plan.schedule, plan.rows(), plan.rows_by_context()
    by_context = zip(plan.context_length, plan.best_draft_length, plan.speedup, strict=True)
    return (
        report.case_fields(plan)
        | {
            "warnings": _advice(plan),
            "for": plan.config.name.lower(),
            "fragment": plan.fragment or None,
            "place": plan.place or None,
            "caveats": plan.caveats,
            "ranges": _ranges(plan),
            "mean_speedup": schedule.mean_speedup,
            "single_draft_length": schedule.single_draft_length,
            "gain_over_single": schedule.gain_over_single,
            "mean_loss": schedule.mean_loss,
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
                "min_speedup": min(row["speedup"] for row in own),
                "max_speedup": max(row["speedup"] for row in own),
                "min_speedup_low": min(lows) if known else None,
                "max_speedup_high": max(highs) if known else None,
                "max_loss": float(schedule.loss[first - 1 : last].max()),
                "fits": last <= plan.largest,
            }
        )
    return found
