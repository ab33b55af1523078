"""``specmodel schedule``: its options, and a schedule in words, as tables, as JSON and CSV."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from specmodel.base.errors import InputError
from specmodel.base.ranges import MAX_VALUES, parse_values, ranges_text, runs
from specmodel.base.text import align, wrap
from specmodel.cli import settings
from specmodel.show import report
from specmodel.show.report import cells

if TYPE_CHECKING:
    from specmodel.answers import Dialect, Schedule
    from specmodel.base.units import FloatArray
    from specmodel.prediction.outcome import Prediction

DEFAULT_MAX_BATCH_SIZE = 512
"""Largest batch size of a schedule where more would fit in memory [request]."""

_MOST_COLUMNS = 9
"""Batch sizes beside each other in a table."""


@click.command(context_settings=settings.SETTINGS)
@click.option(
    "--for",
    "dialect",
    required=True,
    type=click.Choice(["vllm", "tensorrt-llm", "sglang"]),
    help="Whose configuration the schedule is written in.",
)
@click.option(
    "--engine-version",
    metavar="VERSION",
    help="Of TensorRT-LLM, whose form changed with 1.3.  [default: the newest]",
)
@settings.where_options(required=True, engine="that of --for")
@settings.acceptance_options(one_length=False)
@settings.option(
    "context_length",
    help="KV entries per sequence before the step; several count alike.  [default: 1024]",
)
@settings.option("max_draft_length")
@click.option(
    "--max-batch-size",
    type=int,
    help="Largest batch size of the schedule.  [default: what fits in memory, at most 512]",
)
@click.option(
    "--tolerance",
    type=float,
    help="Share of the best speedup that may be given up for fewer changes.  [default: 0.01]",
)
@settings.detail_options()
@click.option("--fragment-only", is_flag=True, help="Print the engine's configuration only.")
@settings.form_options(", a row a batch size")
def schedule(*, as_json: bool, as_csv: bool, fragment_only: bool, **options: Any) -> None:
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
    if as_json + as_csv + fragment_only > 1:
        name = "csv" if as_csv else "fragment_only"
        raise InputError(name, True, "one of --json, --csv and --fragment-only")
    plan = plan_from(options)
    if as_json:
        click.echo(to_json(plan))
    elif as_csv:
        rows = plan.schedule.rows()
        click.echo(report.csv_text(rows, rows[0]))
        settings.echo_warnings(warnings(plan))
    elif fragment_only:
        click.echo(plan.fragment, nl=bool(plan.fragment))
        settings.echo_warnings([*warnings(plan), *plan.caveats])
    else:
        parts = [_for_engine(plan), ranges_table(plan.schedule), contexts_table(plan)]
        click.echo(report.page(plan.prediction, verdict(plan), *parts))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Plan:
    """A schedule in the words of an engine, and what it was made from.

    `unbound` is the schedule without the engine's own rule; `speedup` and `best_draft_length` are
    by context and batch size; `end` says in words why the batch sizes end where they do.
    """

    dialect: str
    format: Dialect
    drafter: str
    schedule: Schedule
    unbound: Schedule
    context_length: list[int]
    speedup: FloatArray
    best_draft_length: FloatArray
    end: str
    prediction: Prediction

    @property
    def fragment(self) -> str:
        """The schedule in the words of the engine."""
        modules = len(self.prediction.deployment.drafter.parts)
        return self.format.fragment(self.schedule, self.drafter, max(modules, 1))

    @property
    def place(self) -> str:
        """Where that goes, and what else must be set; nothing where there is nothing to write."""
        return self.format.place(self.schedule, self.drafter) if self.fragment else ""

    @property
    def caveats(self) -> tuple[str, ...]:
        """When the engine does otherwise than the schedule says, a sentence each."""
        return self.format.caveats if self.fragment else ()

    @property
    def cost_of_rule(self) -> float:
        """Share of the mean speedup that the engine's own rule costs [-]."""
        return max(0.0, 1 - self.schedule.mean_speedup / self.unbound.mean_speedup)


def plan_from(options: dict[str, Any]) -> Plan:
    """Return the schedule that the options of the command line ask for."""
    import numpy as np

    from specmodel.answers import draft_length_schedule
    from specmodel.answers.schedule import DEFAULT_TOLERANCE
    from specmodel.cli.options import (
        acceptance_from,
        longest_draft,
        predict_from,
        with_engine_of_dialect,
    )
    from specmodel.cost.deploying import slots_text
    from specmodel.drafters.by_name import longest_block
    from specmodel.prediction.predicting import DEFAULT_CONTEXT_LENGTH

    form, drafter = _form(options)
    options, told = with_engine_of_dialect(options)
    options, is_of_dialect = _with_its_states(options)
    block = longest_block(options["drafter"], options["target"])
    longest = longest_draft(acceptance_from(options), options["max_draft_length"], block)
    contexts = [DEFAULT_CONTEXT_LENGTH]
    if options["context_length"] is not None:
        contexts = parse_values("context_length", options["context_length"])
    largest, end = _largest_batch(options, contexts, longest)
    tolerance = DEFAULT_TOLERANCE if options["tolerance"] is None else options["tolerance"]
    used = {"max_batch_size": largest, "max_draft_length": longest, "tolerance": tolerance}
    axes = {"draft_length": f"1:{longest}", "batch_size": f"1:{largest}"}
    prediction = predict_from(options | used | axes)
    shape = (len(contexts), longest, largest)
    gain = np.broadcast_to(prediction.speedup, shape).swapaxes(1, 2)
    unbound = chosen = draft_length_schedule(gain, tolerance=tolerance)
    if form.longest_first:
        chosen = draft_length_schedule(gain, tolerance=tolerance, longest_first=True)
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
            warnings=_warnings(prediction, chosen.max_draft_length),
        ),
    )


def _warnings(prediction: Prediction, longest: int) -> tuple[str, ...]:
    """Return the warnings, that of memory as a schedule needs it whose longest draft is given.

    An engine reserves as much for each request as its longest draft takes, at any batch size.
    """
    batch, of_all = prediction.batch_size, prediction.evaluation.memory
    passed_over = of_all.warnings(batch)
    own = replace(of_all, verify_tokens=longest + 1).warnings(batch)
    return (*own, *(warning for warning in prediction.warnings if warning not in passed_over))


def _form(options: dict[str, Any]) -> tuple[Dialect, str]:
    """Return how the engine takes a schedule, and the kind of a drafter whose length it varies."""
    from specmodel.answers.dialects import dialect
    from specmodel.drafters.by_name import drafter_kind

    name, drafter = options["dialect"], options["drafter"]
    form = dialect(name, options["engine_version"])
    kind = drafter_kind(drafter, options["target"])
    if form.drafters and kind not in form.drafters:
        expected = f"{', '.join(form.drafters)} with --for {name}, which varies no other's length"
        raise InputError("drafter", drafter, expected)
    return form, kind


def _with_its_states(options: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return options by which states are kept as the engine does that the schedule is for.

    The times may be those of another engine. Also return whether anything was changed: not where
    nothing is recurrent, where both keep states alike, or where an engine's record says how.
    """
    from specmodel.cli.options import deployment_from
    from specmodel.cost.deployment import state_slots_of

    deployment, _ = deployment_from(options)
    slots = state_slots_of(options["dialect"])
    is_as_told = deployment.engine.state_slots or deployment.states.slots == slots
    if deployment.recurrent_model is None or is_as_told:
        return options, False
    return options | {"changes": (*options["changes"], f"engine.state_slots={slots}")}, True


def _along(gain: FloatArray, schedule: Schedule) -> FloatArray:
    """Return the speedup of a schedule by context and batch size, 1 where it does not draft."""
    import numpy as np

    lengths = schedule.draft_length[None, :, None]
    taken = np.take_along_axis(gain, np.maximum(lengths - 1, 0), axis=-1)
    return np.asarray(np.where(lengths > 0, taken, 1.0)[..., 0])


def _largest_batch(options: dict[str, Any], contexts: list[int], longest: int) -> tuple[int, str]:
    """Return the last batch size of the schedule, of which not all may be predicted, and why."""
    from specmodel.base.units import check
    from specmodel.cli.options import MAX_POINTS, deployment_from
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
    points = largest * longest * len(contexts)
    if points > MAX_POINTS:
        given = {"--max-batch-size": largest, "--max-draft-length": longest}
        given |= {"contexts": len(contexts)}
        raise InputError("max_batch_size", given, f"at most {MAX_POINTS} points, not {points}")
    return largest, end


def verdict(plan: Plan) -> list[str]:
    """Return whether speculation pays and where, and what the schedule gives up."""
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


def warnings(plan: Plan) -> list[str]:
    """Return what must be known even where only the fragment is read."""
    advice = [] if plan.schedule.max_draft_length else [_gain(plan, "pays").removesuffix(".")]
    return [*plan.prediction.warnings, *advice]


def _gain(plan: Plan, pays: str) -> str:
    """Return the answer: where it pays and by how much, or that it should stay off."""
    schedule = plan.schedule
    last = schedule.batch_size[-1]
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


def _single(schedule: Schedule) -> str:
    """Say what the schedule gains over the best length that never changes."""
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
    """Return what the engine is to be given, and when it does otherwise."""
    if not plan.fragment:
        return ""
    head = wrap(f"For {plan.format.name}, {plan.place}:")
    notes = wrap(f"{'. '.join(plan.caveats)}.")
    return f"{head}\n{plan.fragment}\n{notes}"


def _nothing(plan: Plan) -> str:
    """Say that speculation should stay off, and the most that it could gain."""
    best = plan.schedule.best_speedup
    if best.max() == 1:
        last = plan.schedule.batch_size[-1]
        return f"Speculation pays at no batch size up to {last}: leave it off."
    gain = f"{best.max():.3f}x at batch size {best.argmax() + 1}"
    if plan.unbound.max_draft_length:
        return (
            f"No schedule that {plan.format.name} takes is worth it: leave speculation off. The"
            f" most it could gain is {gain}."
        )
    return f"Speculation gains at most {gain}, within the tolerance: leave it off."


def _rule(plan: Plan) -> str:
    """Say what it costs that the longest draft must stand at batch size 1."""
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
    """Say where one of the contexts loses by a schedule made for all."""
    least = plan.speedup.min()
    if len(plan.context_length) == 1 or least >= 1:
        return ""
    context, size = divmod(int(plan.speedup.argmin()), plan.speedup.shape[1])
    return (
        f"One schedule for all contexts slows some down: {least:.2f}x at batch size"
        f" {size + 1} and context {plan.context_length[context]}."
    )


def _tokens(count: int) -> str:
    if count == 0:
        return "no draft"
    return f"{count} tokens" if count > 1 else "1 token"


def ranges_table(schedule: Schedule) -> str:
    """Return the ranges of batch sizes with their draft lengths and speedups."""
    rows = _ranges(schedule)
    low, high = (cells(rows, "{:.2f}", f"{end}_speedup") for end in ("min", "max"))
    gains = [a if a == b else f"{a}-{b}" for a, b in zip(low, high, strict=True)]
    return align(
        [
            ("batch\nsizes", [ranges_text([span[:2]]) for span in schedule.ranges]),
            ("draft\nlength", cells(rows, "{}", "draft_length")),
            ("speedup", gains),
            ("given up\nat most", cells(rows, "{:.1%}", "max_loss")),
        ]
    )


def contexts_table(plan: Plan) -> str:
    """Return the best draft length by context and batch size, and the schedule's."""
    if len(plan.context_length) == 1:
        return ""
    lengths = [*plan.best_draft_length, plan.schedule.draft_length]
    columns = [("context", [*map(str, plan.context_length), "schedule"])]
    for size in _some_sizes(int(plan.schedule.batch_size[-1])):
        columns.append((f"{size}", [f"{by_size[size - 1]:.0f}" for by_size in lengths]))
    return f"Best draft length by context and batch size:\n{align(columns)}"


def _some_sizes(largest: int) -> list[int]:
    """Return powers of two up to the last size, and that, thinned out to fit a line."""
    powers = [2**i for i in range(largest.bit_length()) if 2**i < largest]
    stride = -(-len(powers) // _MOST_COLUMNS) or 1
    return [*powers[::stride], largest]


def to_json(plan: Plan) -> str:
    """Return the schedule as JSON, in SI units."""
    from specmodel.answers.schedule import COLUMN_UNITS, draft_ranges

    schedule = plan.schedule
    by_context = zip(plan.context_length, plan.best_draft_length, plan.speedup, strict=True)
    fields = {
        "warnings": warnings(plan),
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
                "best_ranges": draft_ranges(lengths),
                "min_speedup": float(gain.min()),
            }
            for context, lengths, gain in by_context
        ],
        "units": COLUMN_UNITS,
        "rows": schedule.rows(),
    }
    return report.json_text(report.case_fields(plan.prediction) | fields)


def _ranges(schedule: Schedule) -> list[report.Row]:
    """Return a row for each range of batch sizes."""
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
