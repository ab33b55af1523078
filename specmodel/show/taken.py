"""The acceptance that ``predict`` takes, in words: as typed, in tokens a step, and by task."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from specmodel.show.report import is_at_best

if TYPE_CHECKING:
    from specmodel.prediction.outcome import Prediction
    from specmodel.prediction.table import Row

_FORMS_TYPED = {
    "acceptance_rate": "rate {:g}",
    "tokens_per_step": "{:.4g} tokens a step",
    "step_efficiency": "step efficiency {:g}",
    "accepted_fraction": "accepted fraction {:g}",
    "acceptance_by_position": "rates by position ",
}
"""How each form of acceptance is told."""


def with_tokens(prediction: Prediction, best: Row) -> Prediction:
    """Return a prediction whose acceptance is told in tokens a step, at the best of its rows.

    At lengths that were typed, how long a draft might have been is no assumption of the table.
    """
    assumed = dict(prediction.assumptions)
    if not is_at_best(prediction):
        assumed.pop("max_draft_length", None)
    if length := best["draft_length"]:
        told = f"{best['tokens_per_step']:.2f} tokens a step of {length} drafted"
        if prediction.evaluation.acceptance.spread and has_tasks(best, prediction):
            told = f"{best['tokens_per_step']:.2f} of {length + 1} tokens a step"
            told += " ({:.2f} to {:.2f} by task)".format(*tokens_of_tasks(best, prediction))
        source = f", {assumed['acceptance']}" if "acceptance" in assumed else _typed(prediction)
        assumed["acceptance"] = told + source
    return replace(prediction, assumptions=assumed, told=prediction.notes)


def tasks_told(prediction: Prediction, best: Row) -> str:
    """Say what an acceptance taken as exact, as heads' differ between tasks, gives at the best."""
    if prediction.evaluation.acceptance.spread or not has_tasks(best, prediction):
        return ""
    tokens = tokens_of_tasks(best, prediction)
    least, most = (best["speedup"] * each / best["tokens_per_step"] for each in tokens)
    told = f"In 80 % of tasks a head has {tokens[0]:.2f} to {tokens[1]:.2f}"
    return f"{told}: {least:.2f}x to {most:.2f}x at batch size {best['batch_size']}"


def has_tasks(row: Row, prediction: Prediction) -> bool:
    """Whether tasks tell what is gained: not of look-ups, trees, and steps with prefill."""
    e = prediction.evaluation
    is_other = e.deployment.drafter.is_lookup or e.prefill or not e.is_chain.all()
    return bool(row["draft_length"]) and not is_other


def tokens_of_tasks(row: Row, prediction: Prediction) -> tuple[float, float]:
    """Return the tokens per step between which 80 % of the tasks of a head lie, for a row."""
    from specmodel.algebra.acceptance import between_tasks
    from specmodel.algebra.speculation import expected_tokens_per_step, solve_acceptance_rate
    from specmodel.prediction.case import task_spread

    length, e = row["draft_length"], prediction.evaluation
    rate = float(solve_acceptance_rate(row["tokens_per_step"], length))
    low, high = between_tasks(rate, e.acceptance.spread or task_spread(e.deployment))
    least, most = expected_tokens_per_step([max(low, 0.0), min(high, 1.0)], length)
    return float(least), float(most)


def _typed(prediction: Prediction) -> str:
    """Return the acceptance as it was typed, in brackets."""
    from specmodel.algebra.acceptance import mean_tokens_per_step

    given, rate = prediction.evaluation.acceptance, prediction.deployment.drafter.proposal_rate
    words = _FORMS_TYPED[given.form]
    if given.acceptance_by_position is not None:
        told = words + _rates_told(prediction)
    elif pairs := given.measured_by_context:
        told = "by context " + ",".join(f"{context:.0f}:{tokens:g}" for context, tokens in pairs)
    else:
        value = float(getattr(given, given.form))
        if given.form == "tokens_per_step":  # of the steps with a proposal
            value = float(mean_tokens_per_step(value, rate))
        told = words.format(value)
    if given.measured_draft_length is not None:
        told += f" at draft length {given.measured_draft_length:g}"
    share = f", a proposal in {100 * rate:g} % of steps" if rate < 1 else ""
    return f" ({told}{share})"


def _rates_told(prediction: Prediction) -> str:
    """Return rates by position as they were given, and what they are of where that may mislead."""
    import numpy as np

    from specmodel.algebra.acceptance import typed_rates

    rates = np.atleast_1d(prediction.evaluation.acceptance.acceptance_by_position or 0.0)
    given = prediction.case and prediction.case.given.get("acceptance_by_position")
    if isinstance(given, str) and typed_rates(given)[1] == "cumulative":
        return f"{given.rpartition(':')[2]}, of all drafts, as vLLM prints them"
    told = ",".join(f"{rate:g}" for rate in rates.ravel())
    is_named = given is None or (isinstance(given, str) and ":" in given)
    if is_named or rates.ndim > 1 or len(rates) < 2 or (np.diff(rates) >= 0).any():
        return told
    tokens = 1 + sum(rates)
    return (
        f"{told}, each of the drafts that got there; if they are of all drafts, as vLLM prints"
        f" them, give cumulative:{told}, which is {tokens:.2f} tokens a step"
    )
