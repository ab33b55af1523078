"""The acceptance that ``predict`` takes, in words: as typed, in tokens a step, and by task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from specmodel.core.base.text import VERBOSE
from specmodel.core.drafters.published import PRESET
from specmodel.show import notes
from specmodel.show.facts import Fact, lines
from specmodel.show.glossary import PAGES
from specmodel.show.report import given_told, is_at_best

if TYPE_CHECKING:
    from specmodel.core.prediction.case import Case
    from specmodel.core.prediction.outcome import Prediction
    from specmodel.core.prediction.table import Row

_TASKS = PAGES["tasks"]["of"]
_PUBLISHED = PAGES["tasks"]["published"]
_EXTREMES = ("code", "chat")
"""Kinds of tasks on which acceptance is told: a high one and a low one."""


def with_tokens(prediction: Prediction, best: Row, *, is_told: bool = False) -> Prediction:
    """Return a prediction whose assumed acceptance is stated in tokens a step at row `best`.

    With its draft length, unless that `is_told` above.
    Where draft lengths were given, `max_draft_length` is no longer among the assumptions.
    """
    assumed = dict(prediction.assumptions)
    if not is_at_best(prediction) and prediction.evaluation.chains is None:
        assumed.pop("max_draft_length", None)
    if length := best["draft_length"]:
        told = f"{best['tokens_per_step']:.2f} tokens a step"
        told += "" if is_told else f" with {length} drafted"
        if by_task := tokens_on_tasks(prediction, best):
            told += _on_task(prediction.case, by_task)
        elif prediction.evaluation.acceptance.spread and (ends := between_tasks(best, prediction)):
            told += " ({:.2f} to {:.2f} by task)".format(*ends)
        assumed.pop("acceptance_by_position", None)
        source = assumed.get("acceptance")
        if source and by_task and not VERBOSE.get() and is_of_pair(prediction.case):
            source = _PUBLISHED + str(source).rpartition(")")[2]
        told += f", {source}" if source else _typed(prediction, length)
        assumed["acceptance"] = told
    return replace(prediction, assumptions=assumed, told=prediction.notes)


def tokens_on_tasks(prediction: Prediction, best: Row) -> dict[str, float]:
    """Return the tokens a step at row `best` by kind of task, {} where none are published."""
    case, length = prediction.case, best["draft_length"]
    is_chain = bool(prediction.evaluation.is_chain.all())
    return case.tokens_by_task(length) if case and length and is_chain else {}


def _on_task(case: Case | None, by_task: dict[str, float]) -> str:
    """Say on which task tokens are; of mixed use also how many on some tasks, or `VERBOSE` all."""
    template = _TASKS.get(case.accepted.tasks, _TASKS["shares"]) if case else ""
    shown = {name: by_task[name] for name in (by_task if VERBOSE.get() else _EXTREMES)}
    return " ".join(["", *lines([template], {"tokens_by_task": Fact(shown, "token")})])


def is_of_pair(case: Case | None) -> bool:
    """Return whether acceptance is that published of the very target and drafter."""
    return case is not None and case.accepted.form.get("acceptance", PRESET) == PRESET


def between_tasks(row: Row, prediction: Prediction) -> list[float]:
    """Return the tokens per step between which 80 % of the tasks of a head lie, for a row.

    [] where the gain does not vary by task: of look-ups, trees and prefill.
    """
    from specmodel.core.algebra import acceptance
    from specmodel.core.algebra.speculation import expected_tokens_per_step, solve_acceptance_rate
    from specmodel.core.prediction.accepted import task_spread

    e, length = prediction.evaluation, row["draft_length"]
    if not length or e.deployment.drafter.is_lookup or e.prefill or not e.is_chain.all():
        return []
    rate = float(solve_acceptance_rate(row["tokens_per_step"], length))
    spread = e.acceptance.spread or task_spread(e.deployment)
    low, high = acceptance.between_tasks(rate, spread)
    ends = expected_tokens_per_step([max(low, 0.0), min(high, 1.0)], length)
    return [float(end) for end in ends]


def _typed(prediction: Prediction, length: int) -> str:
    """Return the acceptance as it was typed, in brackets, for drafts of `length` [token]."""
    case, rate = prediction.case, prediction.deployment.drafter.proposal_rate
    given = (case and case.acceptance) or prediction.evaluation.acceptance
    told = given_told(given).removeprefix("acceptance ")
    ways = case.accepted.ways if case else {}
    if len(ways) > 1 or any(way.startswith("cumulative") for way in ways):
        told = f"by position {notes.rates_read({'ways': ways, 'length': length, 'rate': rate})}"
    measured_at = prediction.evaluation.acceptance.measured_draft_length
    told += "" if measured_at is None else f" at draft length {measured_at:g}"
    share = f", a proposal in {100 * rate:g} % of steps" if rate < 1 else ""
    return f" ({told}{share})"
