"""``specmodel schedule``: draft lengths by batch size, as engines read them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from specmodel import answers
from specmodel.base.errors import InputError
from specmodel.base.ranges import MAX_VALUES, parse_values, ranges_text, runs
from specmodel.base.text import Columns, align, wrap
from specmodel.cli import settings
from specmodel.cli.answering import answering
from specmodel.prediction.table import Form, Row
from specmodel.show import report
from specmodel.show.forms import Answer, table

if TYPE_CHECKING:
    from specmodel.base.units import FloatArray

DEFAULT_MAX_BATCH_SIZE = 512
"""Largest batch size of a schedule where more would fit in memory [request]."""

_FOR = "Whose configuration the schedule is written in."
_VERSION = "Of TensorRT-LLM, whose form changed with 1.3.  [default: the newest]"
_CONTEXT = "KV entries per sequence before the step; several count alike.  [default: 1024]"
_LARGEST = "Largest batch size of the schedule.  [default: what fits in memory, at most 512]"
_TOLERANCE = "Share of the best speedup that may be given up for fewer changes.  [default: 0.01]"
_MOST_COLUMNS = 9
"""Batch sizes beside each other in a table."""


@settings.command()
@settings.own("for", ["vllm", "tensorrt-llm", "sglang"], _FOR, to="dialect", required=True)
@settings.own("engine_version", "VERSION", _VERSION)
@settings.where_options(engine="that of --for")
@settings.acceptance_options(one_length=False)
@settings.option("context_length", words=_CONTEXT)
@settings.option("max_draft_length")
@settings.own("max_batch_size", int, _LARGEST)
@settings.own("tolerance", float, _TOLERANCE)
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

    def page() -> str:
        parts = [_for_engine(plan), _ranges_table(plan.schedule), _contexts_table(plan)]
        return report.page(plan.prediction, _verdict(plan), *parts)

    return Answer(
        page=page,
        fields=lambda: _fields(plan),
        rows=plan.schedule.rows,
        warnings=_warnings(plan),
        fragment=plan.fragment,
        caveats=plan.caveats,
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Plan:
    """A schedule for an engine, and the prediction that it was made from.

    `unbound` is the schedule without the engine's own rule. Speedup [-] and best draft length
    [token] are by context and batch size. `end` says why the batch sizes end where they do.
    """

    dialect: str
    format: answers.Dialect
    drafter: str
    schedule: answers.Schedule
    unbound: answers.Schedule
    context_length: list[int]
    speedup: FloatArray
    best_draft_length: FloatArray
    end: str
    prediction: report.Prediction

    @property
    def fragment(self) -> str:
        """The schedule as the engine reads it; empty if speculation should be off."""
        modules = len(self.prediction.deployment.drafter.parts)
        return self.format.fragment(self.schedule, self.drafter, max(modules, 1))

    @property
    def place(self) -> str:
        """Where the fragment goes, and what else must be set."""
        return self.format.place(self.schedule, self.drafter) if self.fragment else ""

    @property
    def caveats(self) -> tuple[str, ...]:
        """Cases in which the engine departs from the schedule."""
        return self.format.caveats if self.fragment else ()

    @property
    def cost_of_rule(self) -> float:
        """Share of the mean speedup lost to the engine's own rule [-]."""
        return max(0.0, 1 - self.schedule.mean_speedup / self.unbound.mean_speedup)


def plan_from(options: dict[str, Any]) -> Plan:
    """Return the schedule that the options ask for."""
    import numpy as np

    from specmodel.answers.schedule import DEFAULT_TOLERANCE
    from specmodel.cli.options import longest_draft, predict_from, with_its_engine, with_its_states
    from specmodel.cost.deploying import slots_text
    from specmodel.prediction.predicting import DEFAULT_CONTEXT_LENGTH

    form, drafter = _form(options)
    options, told = with_its_engine(options)
    options, is_of_dialect = with_its_states(options)
    longest = longest_draft(options)
    typed = options["context_length"]
    contexts = [DEFAULT_CONTEXT_LENGTH] if typed is None else parse_values("context_length", typed)
    largest, end = _largest_batch(options, contexts, longest)
    tolerance = DEFAULT_TOLERANCE if options["tolerance"] is None else options["tolerance"]
    used = {"max_batch_size": largest, "max_draft_length": longest, "tolerance": tolerance}
    axes = {"draft_length": f"1:{longest}", "batch_size": f"1:{largest}"}
    prediction = predict_from(options | used | axes)
    shape = (len(contexts), longest, largest)
    gain = np.broadcast_to(prediction.speedup, shape).swapaxes(1, 2)
    unbound = chosen = answers.draft_length_schedule(gain, tolerance=tolerance)
    if form.longest_first:
        chosen = answers.draft_length_schedule(gain, tolerance=tolerance, longest_first=True)
    assumed = {given: value for given, value in used.items() if options[given] is None}
    if is_of_dialect:
        assumed["state_slots"] = slots_text(prediction.deployment.states)
    return Plan(
        dialect=options["dialect"],
        format=form,
        drafter=drafter,
        schedule=chosen,
        unbound=unbound,
        context_length=contexts,
        speedup=_along(gain, chosen),
        best_draft_length=np.broadcast_to(prediction.best_draft_length, shape)[:, 0],
        end=end,
        prediction=replace(
            prediction,
            assumptions=told | prediction.assumptions | assumed,
            warn=lambda _: _memory_warnings(prediction, chosen.max_draft_length),
        ),
    )


def _memory_warnings(prediction: report.Prediction, longest: int) -> tuple[str, ...]:
    """Return the warnings, with the memory that engines reserve for the longest draft [token]."""
    batch, of_all = prediction.batch_size, prediction.evaluation.memory
    passed_over = of_all.warnings(batch)
    own = replace(of_all, verify_tokens=longest + 1).warnings(batch)
    return (*own, *(warning for warning in prediction.warnings if warning not in passed_over))


def _form(options: dict[str, Any]) -> tuple[answers.Dialect, str]:
    """Return the engine's format and the drafter's kind; refuse a drafter of fixed length."""
    from specmodel.drafters.by_name import drafter_kind

    name, drafter = options["dialect"], options["drafter"]
    form = answers.dialect(name, options["engine_version"])
    kind = drafter_kind(drafter, options["target"])
    if form.drafters and kind not in form.drafters:
        expected = f"{', '.join(form.drafters)} with --for {name}, which varies no other's length"
        raise InputError("drafter", drafter, expected)
    return form, kind


def _along(gain: FloatArray, schedule: answers.Schedule) -> FloatArray:
    """Return the speedup of a schedule by context and batch size; without a draft it is 1 [-]."""
    import numpy as np

    by_length = np.pad(gain, ((0, 0), (0, 0), (1, 0)), constant_values=1.0)
    return np.take_along_axis(by_length, schedule.draft_length[None, :, None], axis=-1)[..., 0]


def _largest_batch(options: dict[str, Any], contexts: list[int], longest: int) -> tuple[int, str]:
    """Return the last batch size of the schedule [request], and why it ends there."""
    from specmodel.base.units import check
    from specmodel.cli.options import check_points, deployment_from
    from specmodel.cost.memory import MemoryUse

    largest, end = options["max_batch_size"], "as asked"
    if largest is None:
        deployment, _ = deployment_from(options)
        fits = int(MemoryUse(deployment, max(contexts), longest + 1).max_batch_size)
        largest, end = fits, f"the largest that fits in memory at context {max(contexts)}"
        end += f" and draft length {longest}" if deployment.recurrent_model else ""
        if not 1 <= fits <= DEFAULT_MAX_BATCH_SIZE:
            largest = DEFAULT_MAX_BATCH_SIZE
            end = "though more fit in memory" if fits else "as if they fitted"
    check("max_batch_size", largest, minimum=1, maximum=MAX_VALUES, whole=True)
    counts = {"--max-batch-size": largest, "--max-draft-length": longest, "contexts": len(contexts)}
    check_points("max_batch_size", counts, of="")
    return largest, end


def _verdict(plan: Plan) -> list[str]:
    """Say whether and where speculation pays, and what the schedule gives up."""
    schedule, deployment = plan.schedule, plan.prediction.deployment
    sizes = f"Batch sizes up to {schedule.batch_size[-1]}, {plan.end}."
    if schedule.max_draft_length:
        sizes += (
            f" Against the best length at each, the schedule gives up {schedule.mean_loss:.1%} on"
            f" average, {schedule.loss.max():.1%} at most."
        )
    gain = _gain(plan, report.verbs(deployment)[0])
    words = [gain, _single(schedule), sizes, _rule(plan), _slowest(plan)]
    return [*filter(None, words), *report.behind(deployment)]


def _warnings(plan: Plan) -> list[str]:
    """Return the warnings, with the advice to leave speculation off where it does not pay."""
    advice = [] if plan.schedule.max_draft_length else [_gain(plan, "pays").removesuffix(".")]
    return [*plan.prediction.warnings, *advice]


def _gain(plan: Plan, pays: str) -> str:
    """Say where speculation pays and by how much, or that it should stay off."""
    schedule, last = plan.schedule, plan.schedule.batch_size[-1]
    if not schedule.max_draft_length:
        return _nothing(plan)
    if last == 1:
        return f"Speculation {pays}: {schedule.speedup[0]:.2f}x at batch size 1."
    most, least = int(schedule.speedup.argmax()), int(schedule.speedup.argmin())
    where, top = "at every batch size", f"most {schedule.speedup[most]:.2f}x at {most + 1}"
    is_paying = (schedule.speedup > 1).tolist()
    if all(is_paying):
        top += f", least {schedule.speedup[least]:.2f}x at {least + 1}"
    else:
        paying = [(first + 1, end + 1) for first, end, gains in runs(is_paying) if gains]
        where = f"at batch sizes {ranges_text(paying)}"
    contexts = " and a geometric mean over contexts" if len(plan.context_length) > 1 else ""
    return (
        f"Speculation {pays} {where}: {schedule.mean_speedup:.2f}x on average up to {last}, with"
        f" batch sizes equally likely on a logarithmic scale{contexts}; {top}."
    )


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
    notes = wrap(f"{'. '.join(plan.caveats)}.")
    return f"{head}\n{plan.fragment}\n{notes}"


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


def _ranges_table(schedule: answers.Schedule) -> str:
    """Return a row for each range of batch sizes."""
    ends = ("first_batch_size", "last_batch_size")
    columns: dict[str, Form] = {
        "batch\nsizes": lambda row: ranges_text([(row[ends[0]], row[ends[1]])]),
        "draft\nlength": "{draft_length}",
        # the least and the largest of a range, once if they read alike
        "speedup": lambda row: "-".join(
            dict.fromkeys(f"{row[f'{end}_speedup']:.2f}" for end in ("min", "max"))
        ),
        "given up\nat most": "{max_loss:.1%}",
    }
    return table(_ranges(schedule), columns)


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
    return report.case_fields(plan.prediction) | {
        "warnings": _warnings(plan),
        "for": plan.dialect,
        "fragment": plan.fragment or None,
        "place": plan.place or None,
        "caveats": plan.caveats,
        "ranges": _ranges(schedule),
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
        "units": COLUMN_UNITS,
        "rows": schedule.rows(),
    }


def _ranges(schedule: answers.Schedule) -> list[Row]:
    """Return each range of batch sizes with its draft length, speedups and loss."""
    return [
        {
            "first_batch_size": first,
            "last_batch_size": last,
            "draft_length": length,
            "min_speedup": float(schedule.speedup[first - 1 : last].min()),
            "max_speedup": float(schedule.speedup[first - 1 : last].max()),
            "max_loss": float(schedule.loss[first - 1 : last].max()),
        }
        for first, last, length in schedule.ranges
    ]
