"""``specmodel schedule``: draft lengths by batch size, as engines read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specmodel import answers
from specmodel.base.ranges import ranges_text, spans
from specmodel.base.text import Columns, align, wrap
from specmodel.cli import settings
from specmodel.cli.answering import answering
from specmodel.cli.capacity import ATTAINMENT, workers_options
from specmodel.cli.loads import OPTIONS
from specmodel.cli.scheduling import LOAD, Plan, plan_from
from specmodel.cli.where import where_options
from specmodel.prediction.table import Form, Row
from specmodel.show import report
from specmodel.show.forms import Answer, table

if TYPE_CHECKING:
    from specmodel.base.units import FloatArray
    from specmodel.prediction.gains import Gain

_FOR = "Whose configuration the schedule is written in."
_VERSION = "Of TensorRT-LLM, whose form changed with 1.3.  [default: the newest]"
_CONTEXT = "KV entries per sequence before the step; several count alike.  [default: 1024]"
_LARGEST = "Largest batch size of the schedule.  [default: what fits in memory, at most 512]"
_TOLERANCE = "Share of the best speedup that may be lost for fewer changes.  [default: 0.01]"
_FOR_LOAD = "Of schedule, single lengths and none, the one that carries most within the targets."
_ALONE = (
    "Prompts of other requests are not counted; --prompt-length and --output-length count them."
)
_MOST_JUDGED = 1000
"""Batch sizes that are told one by one as sure or open [-]."""
_MOST_COLUMNS = 9
"""Batch sizes beside each other in a table."""


@settings.command()
@settings.own("for", ["vllm", "tensorrt-llm", "sglang"], _FOR, to="dialect", required=True)
@settings.own("engine_version", "VERSION", _VERSION)
@where_options(engine="that of --for", has_start=True)
@settings.acceptance_options(one_length=False)
@settings.option("context_length", words=_CONTEXT)
@settings.load_options()
@settings.option("max_draft_length")
@settings.own("max_batch_size", int, _LARGEST)
@settings.own("tolerance", float, _TOLERANCE)
@settings.own("for_load", bool, _FOR_LOAD)
@settings.options(*(settings.own(name, *OPTIONS[name]) for name in LOAD))
@settings.own("attainment", float, ATTAINMENT)
@workers_options()
@settings.detail_options()
@answering(rows=", a row a batch size", fragment="Print the engine's configuration only.")
def schedule(**options: Any) -> Answer:
    """Schedule draft lengths for an engine.

    At each batch size the draft length is one whose speedup is within the tolerance of the best
    there, 0 where none pays; the schedule changes it as seldom as that allows. Where no batch
    size gains, nothing is written: speculation is left off by not turning it on.

    \b
    Examples:
      specmodel schedule --for vllm --target qwen3-30b-a3b --drafter eagle3 \\
          --hardware h200_sxm --acceptance-rate 0.7
      specmodel schedule --for tensorrt-llm --target gpt-oss-120b \\
          --drafter eagle3 --hardware h200_sxm --context-length 1024,16384 \\
          --acceptance-by-position 0.8,0.7,0.6,0.5 --fragment-only
    """
    plan = plan_from(options)
    caveats = (f"for {plan.format.name}, {plan.place}", *plan.caveats)

    def page() -> str:
        parts = [_for_engine(plan), _ranges_table(plan), _contexts_table(plan)]
        return report.page(plan.prediction, _verdict(plan), *parts)

    return Answer(
        page=page,
        fields=lambda: _fields(plan),
        rows=plan.rows,
        warnings=_warnings(plan),
        case=report.heading(plan.prediction.deployment),
        fragment=plan.fragment,
        caveats=caveats if plan.fragment else (),
    )


def _verdict(plan: Plan) -> list[str]:
    """Say whether and where speculation pays, and what the schedule loses."""
    schedule, deployment = plan.schedule, plan.prediction.deployment
    last = schedule.batch_size[-1]
    where = plan.counted if plan.largest == last else ""
    sizes = f"Batch sizes up to {last}, {plan.end}{where}."
    if schedule.max_draft_length:
        above = _tokens(schedule.draft_length[-1]) if plan.format.keeps_last else "no draft"
        sizes = f"{sizes.removesuffix('.')}; above, {plan.format.name} goes on with {above}."
        sizes += (
            f" Against the best length at each, the schedule loses {schedule.mean_loss:.1%} on"
            f" average, {schedule.loss.max():.1%} at most."
        )
    gain = _gain(plan, report.verbs(deployment)[0])
    if plan.largest < last:
        gain = report.if_it_fitted(gain, plan.largest, plan.counted)
    is_loaded = plan.prediction.evaluation.prefill is not None
    words = [
        plan.load,
        " ".join(filter(None, [gain, _losing(plan), _graphs(plan)])),
        _single(schedule),
        sizes,
        _rule(plan),
        _slowest(plan),
        "" if is_loaded else _ALONE,
    ]
    return [*filter(None, words)]


def _warnings(plan: Plan) -> list[str]:
    """Return the warnings, with the advice to leave speculation off where it does not pay."""
    advice = [] if plan.schedule.max_draft_length else [_gain(plan, "pays").removesuffix(".")]
    return [*plan.prediction.warnings, *advice]


def _gain(plan: Plan, pays: str) -> str:
    """Say where speculation pays and by how much, or that it should stay off."""
    schedule, last = plan.schedule, plan.schedule.batch_size[-1]
    if not schedule.max_draft_length:
        return _nothing(plan)
    most, least = int(schedule.speedup.argmax()), int(schedule.speedup.argmin())
    top, bottom = _gains(plan, most, least)
    if top and top.is_open:
        told = f"{schedule.speedup[most]:.2f}x at batch size {most + 1} ({report.chances(top)})"
        return f"Speculation may pay or not; most is gained with {told}."
    if last == 1:
        return f"Speculation {pays}: {schedule.speedup[0]:.2f}x at batch size 1."
    where, extreme = " at every batch size", f"most {schedule.speedup[most]:.2f}x at {most + 1}"
    is_paying = (schedule.speedup > 1).tolist()
    if all(is_paying):
        extreme += f", least {schedule.speedup[least]:.2f}x at {least + 1}"
        if bottom and bottom.is_open:
            pays, extreme = "is expected to pay", f"{extreme} ({report.may_pay(bottom)})"
    else:
        paying = spans(range(1, last + 1), is_paying)
        pays = f"{pays} at batch sizes {ranges_text(paying)} by the central values"
        pays, where = _paying(plan) or pays, ""
    contexts = " and a geometric mean over contexts" if len(plan.context_length) > 1 else ""
    return (
        f"Speculation {pays}{where}: {schedule.mean_speedup:.2f}x on average up to {last}, with"
        f" batch sizes equally likely on a logarithmic scale{contexts}; {extreme}."
    )


def _paying(plan: Plan) -> str:
    """Say at which batch sizes a gain is sure and at which it is open; "" if that is not known."""
    lengths = plan.schedule.draft_length
    places = [place for place, length in enumerate(lengths) if length]
    if len(places) > _MOST_JUDGED:
        return ""
    gains = dict(zip(places, _gains(plan, *places), strict=True))
    sizes = [*range(1, len(lengths) + 1)]
    return report.paying(sizes, [gains.get(place) for place in range(len(lengths))])


def _losing(plan: Plan) -> str:
    """Say where a loaded drafter loses whatever is drafted, how much, and what avoids that."""
    import numpy as np

    schedule = plan.schedule
    last = int(schedule.batch_size[-1])
    most = int(np.flatnonzero(schedule.speedup >= 1).max(initial=-1)) + 1
    if most in (0, last):
        return ""
    first, lost = most + 1, _lost(schedule.speedup[most:])
    avoids = f"{plan.format.most_requests} {most} avoids that"
    return (
        f"At batch sizes {ranges_text([(first, last)])} the best length loses {lost}, as the loaded"
        f" drafter takes its time without a draft too: {avoids}."
    )


def _graphs(plan: Plan) -> str:
    """Say what larger CUDA graphs would gain, where the schedule ends drafts as none holds them."""
    schedule, freed, deployment = plan.schedule, plan.freed, plan.prediction.deployment
    limit = deployment.graph_limit
    if not (freed and limit):
        return ""
    size = freed.batch_size * (freed.draft_length + 1 if limit.unit == "token" else 1)
    option = f"{limit.option} {-(-size.max() // deployment.layout.replicas)}"
    place = int((freed.speedup / schedule.speedup).argmax())
    here, more = schedule.speedup[place], freed.speedup[place]
    return (
        f"Larger CUDA graphs ({option}) would give {freed.mean_speedup:.2f}x on average, and at"
        f" batch size {place + 1} {more:.2f}x in place of {here:.2f}x."
    )


def _lost(speedup: FloatArray) -> str:
    """Return the least and the largest share that is lost, once if they read alike."""
    ends = (f"{100 * (1 - gain):.0f}" for gain in (speedup.max(), speedup.min()))
    return "-".join(dict.fromkeys(ends)) + " %"


def _gains(plan: Plan, *places: int) -> list[Gain | None]:
    """Return how sure the gain is at some batch sizes; not told over several contexts."""
    from specmodel.prediction.gains import gains_at

    lengths = plan.schedule.draft_length
    if len(plan.context_length) > 1 or not all(lengths[place] for place in places):
        return [None] * len(places)
    rows = [{"batch_size": place + 1, "draft_length": lengths[place]} for place in places]
    return gains_at(plan.prediction, rows)


def _single(schedule: answers.Schedule) -> str:
    """Say what the schedule gains over the best single draft length."""
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
    """Return the fragment, where it goes, and its caveats."""
    if not plan.fragment:
        return ""
    head = wrap(f"For {plan.format.name}, {plan.place}:")
    notes = [wrap(f"{'. '.join(plan.caveats)}.")] if plan.caveats else []
    return "\n".join([head, plan.fragment, *notes])


def _nothing(plan: Plan) -> str:
    """Say that speculation should stay off, and what it could gain at most."""
    best, last = plan.schedule.best_speedup, plan.schedule.batch_size[-1]
    if best.max() == 1:
        return f"Speculation pays at no batch size up to {last}: leave it off."
    gain = f"{best.max():.3f}x at batch size {best.argmax() + 1}"
    if plan.unbound.max_draft_length:
        return (
            f"No schedule that {plan.format.name} takes is worth it: leave speculation off. The"
            f" most it could gain is {gain}."
        )
    return f"Speculation gains at most {gain}, within the tolerance: leave it off."


def _rule(plan: Plan) -> str:
    """Say what the rule costs that the longest draft stands at batch size 1."""
    schedule, unbound = plan.schedule, plan.unbound
    if schedule.ranges == unbound.ranges or schedule.max_draft_length == 0:
        return ""
    here, free = schedule.draft_length[0], unbound.draft_length[0]
    told = (
        f"{schedule.speedup[0]:.2f}x there with {_tokens(here)} instead of"
        f" {unbound.speedup[0]:.2f}x with {_tokens(free)}"
    )
    if here == free:
        told = f"{_tokens(here)} at most, instead of {_tokens(unbound.max_draft_length)}"
    return (
        f"{plan.format.name} wants its longest draft at batch size 1: {told};"
        f" {plan.cost_of_rule:.1%} over all batch sizes."
    )


def _slowest(plan: Plan) -> str:
    """Say where one schedule for all contexts slows one of them down."""
    least = plan.speedup.min()
    if len(plan.context_length) == 1 or least >= 1:
        return ""
    context, size = divmod(int(plan.speedup.argmin()), plan.speedup.shape[1])
    return (
        f"One schedule for all contexts slows some down: {least:.2f}x at batch size"
        f" {size + 1} and context {plan.context_length[context]}."
    )


def _tokens(count: int) -> str:
    return {0: "no draft", 1: "1 token"}.get(count, f"{count} tokens")


def _ranges_table(plan: Plan) -> str:
    """Return a row for each range of batch sizes."""
    ends = ("first_batch_size", "last_batch_size")
    columns: dict[str, Form] = {
        "batch\nsizes": lambda row: ranges_text([(row[ends[0]], row[ends[1]])]),
        "draft\nlength": "{draft_length}",
        # the least and the largest of a range, once if they read alike
        "speedup": lambda row: "-".join(
            dict.fromkeys(f"{row[f'{end}_speedup']:.2f}" for end in ("min", "max"))
        ),
        "at most\nlost": "{max_loss:.1%}",
    }
    rows = _ranges(plan)
    if not rows[-1]["fits"]:
        columns["fits"] = lambda row: _fits(row, plan.largest)
    return table(rows, columns)


def _fits(row: Row, largest: int) -> str:
    """Say whether a range of batch sizes fits in memory, or up to which."""
    return "yes" if row["fits"] else "no" if row["first_batch_size"] > largest else f"to {largest}"


def _contexts_table(plan: Plan) -> str:
    """Return the best draft lengths by context, and the schedule's; empty for one context."""
    if len(plan.context_length) == 1:
        return ""
    lengths = [*plan.best_draft_length, plan.schedule.draft_length]
    columns: Columns = [("context", [*map(str, plan.context_length), "schedule"])]
    largest = int(plan.schedule.batch_size[-1])
    powers = [2**i for i in range(largest.bit_length()) if 2**i < largest]
    stride = -(-len(powers) // _MOST_COLUMNS) or 1
    for size in [*powers[::stride], largest]:
        columns.append((f"{size}", [f"{by_size[size - 1]:.0f}" for by_size in lengths]))
    return f"Best draft length by context and batch size:\n{align(columns)}"


def _fields(plan: Plan) -> dict[str, Any]:
    """Return the fields of JSON, in SI units."""
    from specmodel.answers.schedule import COLUMN_UNITS

    schedule = plan.schedule
    by_context = zip(plan.context_length, plan.best_draft_length, plan.speedup, strict=True)
    return (
        report.case_fields(plan.prediction)
        | {
            "warnings": _warnings(plan),
            "for": plan.dialect,
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
                    "best_ranges": answers.draft_ranges(lengths),
                    "min_speedup": float(gain.min()),
                }
                for context, lengths, gain in by_context
            ],
            "units": COLUMN_UNITS | {"fits": "-"},
            "rows": plan.rows(),
        }
        | ({"carried": plan.carried} if plan.carried else {})
    )


def _ranges(plan: Plan) -> list[Row]:
    """Return each range of batch sizes with its draft length, speedups, loss, and if it fits."""
    schedule = plan.schedule
    return [
        {
            "first_batch_size": first,
            "last_batch_size": last,
            "draft_length": length,
            "min_speedup": float(schedule.speedup[first - 1 : last].min()),
            "max_speedup": float(schedule.speedup[first - 1 : last].max()),
            "max_loss": float(schedule.loss[first - 1 : last].max()),
            "fits": last <= plan.largest,
        }
        for first, last, length in schedule.ranges
    ]
