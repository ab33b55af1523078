"""The acceptance that ``predict`` takes, in words: as typed, in tokens a step, and by task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from specmodel.base.text import VERBOSE
from specmodel.drafters.published import PRESET
from specmodel.show import notes
from specmodel.show.facts import Fact, lines
from specmodel.show.glossary import PAGES
from specmodel.show.report import given_told, is_at_best

if TYPE_CHECKING:
    from specmodel.prediction.case import Case
    from specmodel.prediction.outcome import Prediction
    from specmodel.prediction.table import Row

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
        elif prediction.evaluation.acceptance.spread and has_tasks(best, prediction):
            told += " ({:.2f} to {:.2f} by task)".format(*tokens_of_tasks(best, prediction))
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


def tasks_told(prediction: Prediction, best: Row) -> str:
    """Return as text the speedups that 80 % of tasks have at row `best`.

    "" where acceptance has a spread between tasks already, or `has_tasks` is false.
    """
    if prediction.evaluation.acceptance.spread or not has_tasks(best, prediction):
        return ""
    tokens = tokens_of_tasks(best, prediction)
    least, most = speedups_by_task(prediction, best)
    told = f"In 80 % of tasks a head has {tokens[0]:.2f} to {tokens[1]:.2f}"
    return f"{told}: {least:.2f}x to {most:.2f}x at batch size {best['batch_size']}"


def speedups_by_task(prediction: Prediction, best: Row) -> list[float]:
    """Return the speedups between which 80 % of the tasks of a head lie, at row `best`; or []."""
    if not has_tasks(best, prediction):
        return []
    scale = best["speedup"] / best["tokens_per_step"]
    return [scale * tokens for tokens in tokens_of_tasks(best, prediction)]


def tokens_by_task(prediction: Prediction, best: Row) -> tuple[float | None, float | None]:
    """Return the tokens per step of 80 % of the tasks at row `best`; None where none are known."""
    return tokens_of_tasks(best, prediction) if has_tasks(best, prediction) else (None, None)


def has_tasks(row: Row, prediction: Prediction) -> bool:
    """Return whether the gain of a row varies by task: not for look-ups, trees or prefill."""
    e = prediction.evaluation
    is_other = e.deployment.drafter.is_lookup or e.prefill or not e.is_chain.all()
    return bool(row["draft_length"]) and not is_other


def tokens_of_tasks(row: Row, prediction: Prediction) -> tuple[float, float]:
    """Return the tokens per step between which 80 % of the tasks of a head lie, for a row."""
    from specmodel.algebra.acceptance import between_tasks
    from specmodel.algebra.speculation import expected_tokens_per_step, solve_acceptance_rate
    from specmodel.prediction.accepted import task_spread

    length, e = row["draft_length"], prediction.evaluation
    rate = float(solve_acceptance_rate(row["tokens_per_step"], length))
    low, high = between_tasks(rate, e.acceptance.spread or task_spread(e.deployment))
    least, most = expected_tokens_per_step([max(low, 0.0), min(high, 1.0)], length)
    return float(least), float(most)


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
