"""``specmodel schedule``: draft lengths by batch size, or what steps take, as engines read them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from specmodel import answers
from specmodel.base.errors import InputError, given, refuse_given
from specmodel.base.naming import is_id
from specmodel.base.ranges import check_points, parse_values
from specmodel.cli import settings
from specmodel.cli.answering import answering
from specmodel.cli.load import for_load_options, refuse_without_load
from specmodel.cli.where import where_options
from specmodel.show import costs, schedules
from specmodel.show.forms import Answer

if TYPE_CHECKING:
    from specmodel.answers import Plan

_FOR = "Whose configuration is written."
_FORMS = {"cost-table": "additive", "rate-table": "rates"}
_FORMAT = (
    "schedule; or, for engines that verify as much of a draft as pays, what a step takes:"
    " cost-table, by requests and by tokens verified, or rate-table, by tokens alone (SGLang)."
    "  [default: schedule]"
)
_VERSION = "Of TensorRT-LLM, whose form changed with 1.3.  [default: the newest]"
_CONTEXT = "KV entries per sequence before the step; several count alike.  [default: 1024]"
_LONGEST = (
    "Longest draft considered; with a table that of every step."
    "  [default: 10, or as far as acceptance is known or is drafted at once]"
)
_LARGEST = (
    "Largest batch size of the schedule."
    "  [default: the last that pays, of what fits in memory, at most 512]"
)
_SIZES = "1:256:x2"
_REQUESTS = f"Requests of one replica, of a table.  [default: {_SIZES}]"
_TOLERANCE = "Share of the best speedup that may be lost for fewer changes.  [default: 0.01]"
_FOR_LOAD = "Of schedule, single lengths and none, the one that carries most within the targets."
_OF_SCHEDULES = (
    *("engine_version", "acceptance", "acceptance_rate", "tokens_per_step", "step_efficiency"),
    *("accepted_fraction", "acceptance_by_position", "measured_draft_length", "prompt_length"),
    *("output_length", "max_batch_size", "tolerance"),
)
"""Options that tables take no notice of."""


@settings.command()
@settings.own("for", ["vllm", "tensorrt-llm", "sglang"], _FOR, to="dialect", required=True)
@settings.own("format", ["schedule", *_FORMS], _FORMAT)
@settings.own("engine_version", "VERSION", _VERSION)
@where_options(engine="that of --for", has_start=True)
@settings.acceptance_options(one_length=False)
@settings.option("context_length", words=_CONTEXT)
@settings.load_options()
@settings.option("max_draft_length", words=_LONGEST)
@settings.own("max_batch_size", int, _LARGEST)
@settings.own("batch_size", "VALUES", _REQUESTS)
@settings.own("tolerance", float, _TOLERANCE)
@for_load_options(_FOR_LOAD)
@settings.detail_options()
@answering(rows=", a row a batch size", fragment="Print the engine's configuration only.")
def schedule(**options: Any) -> Answer:
    """Schedule draft lengths for an engine, or tabulate what its steps take.

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
      specmodel schedule --for sglang --format cost-table qwen3-30b-a3b h200 \\
          --drafter dspark --max-draft-length 7 --context-length 4096
    """
    if options["format"] in _FORMS:
        return _table(options)
    refuse_given(options, ["batch_size"], "none of a schedule, which has all up to the largest")
    refuse_without_load(options)
    return schedules.answer(*_plan(options))


def _plan(options: dict[str, Any]) -> tuple[Plan, str, list[dict[str, Any]]]:
    """Return the schedule asked for; of a load what is said of it, and what each tried carries."""
    from specmodel.answers.plans import engine_case
    from specmodel.cli.options import arguments_from
    from specmodel.drafters.by_name import drafter_kind

    form = answers.dialect(options["dialect"], options["engine_version"])
    form.check_drafter(drafter_kind(options["drafter"], options["target"]), options["drafter"])
    case = engine_case(form, arguments_from(options), is_drafting=False)
    ends = {n: options[n] for n in ("max_batch_size", "tolerance")}
    plan = answers.plan_schedule(case, form, ends=not options["for_load"], **ends)
    typed = click.get_current_context().params
    served = next(filter(is_id, (typed["target"] or "", *typed["words"])), "MODEL")
    plan = replace(plan, path=options.get("draft_model", ""), served=served)
    if not options["for_load"]:
        return plan, "", []
    longest = {"max_draft_length": case.longest_draft(), "engine": case.given["engine"]}
    return _carrying_most(options | longest, plan)


def _carrying_most(options: dict[str, Any], plan: Plan) -> tuple[Plan, str, list[dict[str, Any]]]:
    """Return what carries most of a schedule, single lengths and none, by simulation."""
    from specmodel.cli.load import searching, trial_from
    from specmodel.serving import best_schedule, with_single_lengths
    from specmodel.show.loads import of_schedules

    tried = with_single_lengths(plan.schedule, plan.gain)
    trial, assumed = trial_from(options, [*tried])
    with searching(options, len(tried)) as how:
        best, rows = best_schedule(trial, tried, **how)
    names = ("workload", "ttft_target", "attainment", "requests")
    told = {name: assumed[name] for name in names if name in assumed}
    predicted = plan.prediction
    predicted = replace(predicted, assumptions=predicted.assumptions | told)
    plan = replace(plan, prediction=predicted, schedule=best, freed=None)
    return plan, of_schedules(trial.targets, rows), rows


def _table(options: dict[str, Any]) -> Answer:
    """Return what steps take by tokens verified, and as SGLang reads it where one file can be."""
    from specmodel.algebra.speculation import MAX_DRAFT_LENGTH
    from specmodel.answers.cost_tables import predicted, sglang_costs
    from specmodel.answers.plans import with_engine
    from specmodel.base.units import check
    from specmodel.cli.options import arguments_from
    from specmodel.drafters.by_name import drafter_kind, longest_block
    from specmodel.prediction.case import case_of
    from specmodel.prediction.predicting import DEFAULT_CONTEXT_LENGTH

    dialect, form = options["dialect"], options["format"]
    if dialect not in costs.CAVEATS:
        raise InputError("format", form, f"schedule with --for {dialect}, which reads no other")
    if dialect == "vllm" and (form == "rate-table" or options["fragment_only"]):
        name = "fragment_only" if options["fragment_only"] else "format"
        expected = "no file with --for vllm, which reads none but measures its own; --csv has it"
        raise InputError(name, options[name], expected)
    refuse_given(options, _OF_SCHEDULES, f"none with --format {form}")
    refuse_given(options, ["for_load"] if options["for_load"] else [], f"no --format {form}")
    refuse_without_load(options)
    longest = options["max_draft_length"]
    if longest is None:
        longest = longest_block(options["drafter"], options["target"])
    if longest is None:
        raise InputError("max_draft_length", None, "tokens drafted in every step, such as 7")
    check("max_draft_length", longest, minimum=1, maximum=MAX_DRAFT_LENGTH, whole=True)
    usual = {"batch_size": _SIZES, "context_length": DEFAULT_CONTEXT_LENGTH}
    typed = usual | given(options, usual)
    grid = {name: parse_values(name, str(values)) for name, values in typed.items()}
    sizes, contexts = map(len, grid.values())
    check_points("batch_size", {"batch sizes": sizes, "contexts": contexts, "tokens": longest + 1})
    arguments, told = with_engine(dialect, arguments_from(options))
    case = case_of(arguments, is_drafting=False)
    deployment = case.deployment
    assumed = told | {**case.assumed}
    assumed |= {n: value for n, value in usual.items() if options[n] is None}
    table = answers.cost_table(deployment, draft_length=longest, **grid)
    found = None
    is_asked = options["fragment_only"] or form == "rate-table"
    if dialect == "sglang" and (contexts == 1 or is_asked):
        if drafter_kind(options["drafter"], options["target"]) not in ("dspark", "parallel"):
            expected = "dspark or parallel with --for sglang, which reads a table for DSPARK only"
            raise InputError("drafter", options["drafter"], expected)
        found = sglang_costs(table, _FORMS[form])
    return costs.answer(dialect, table, predicted(table, deployment, assumed), found)
