"""``specmodel schedule``: its options, and the schedule that they ask for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from specmodel import answers
from specmodel.base.errors import InputError
from specmodel.base.ranges import MAX_VALUES, parse_values
from specmodel.cli import settings
from specmodel.cli.answering import answering
from specmodel.show import schedules
from specmodel.show.forms import Answer

if TYPE_CHECKING:
    from specmodel.base.units import FloatArray
    from specmodel.prediction.outcome import Prediction

DEFAULT_MAX_BATCH_SIZE = 512
"""Largest batch size of a schedule where more would fit in memory [request]."""

_ENGINES = ["vllm", "tensorrt-llm", "sglang"]
_FOR = "Whose configuration the schedule is written in."
_VERSION = "Of TensorRT-LLM, whose form changed with 1.3.  [default: the newest]"
_CONTEXT = "KV entries per sequence before the step; several count alike.  [default: 1024]"
_LARGEST = "Largest batch size of the schedule.  [default: what fits in memory, at most 512]"
_TOLERANCE = "Share of the best speedup that may be given up for fewer changes.  [default: 0.01]"


@settings.command()
@settings.own("for", _ENGINES, _FOR, to="dialect", required=True)
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
    return schedules.answer(plan_from(options))


def plan_from(options: dict[str, Any]) -> schedules.Plan:
    """Return the schedule that the options ask for."""
    import numpy as np

    from specmodel.answers.schedule import DEFAULT_TOLERANCE
    from specmodel.cli.options import longest_draft, predict_from, with_engine_of_dialect
    from specmodel.cost.deploying import slots_text
    from specmodel.prediction.predicting import DEFAULT_CONTEXT_LENGTH

    form, drafter = _form(options)
    options, told = with_engine_of_dialect(options)
    options, is_of_dialect = _with_its_states(options)
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
    return schedules.Plan(
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
    """Return the warnings, with memory as an engine needs it for the longest draft [token].

    It reserves that much for each request at any batch size.
    """
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


def _with_its_states(options: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return options with recurrent states kept as by the engine of --for; and if they changed.

    --engine may name another one for the times. Nothing changes if nothing is recurrent, if both
    keep states alike, or if the engine's record says how.
    """
    from specmodel.cli.options import deployment_from
    from specmodel.cost.deployment import state_slots_of

    deployment, _ = deployment_from(options)
    slots = state_slots_of(options["dialect"])
    is_as_told = deployment.engine.state_slots or deployment.states.slots == slots
    if deployment.recurrent_model is None or is_as_told:
        return options, False
    return options | {"changes": (*options["changes"], f"engine.state_slots={slots}")}, True


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
