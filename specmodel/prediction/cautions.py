"""What the reader of a prediction must know, a sentence each."""

from __future__ import annotations

import numpy as np

from specmodel.base.units import FloatArray
from specmodel.prediction.evaluate import Evaluation
from specmodel.prediction.outcome import Prediction

_EVERY_STEP = (
    "the look-up is assumed to find a proposal in every step, which is optimistic: on measured"
    " traces it does in 15 to 32 % of the steps (proposal_rate)"
)


def warnings_of(predicted: Prediction) -> tuple[str, ...]:
    """Return what the reader of a prediction with drafts must know."""
    evaluation = predicted.evaluation
    return (
        *warnings_of_times(predicted),
        *_beyond_measured(evaluation, predicted.best_draft_length),
        *_between_modules(evaluation, predicted.best_draft_length),
        *([_EVERY_STEP] if predicted.assumptions.get("proposal_rate") == 1 else []),
    )


def plain_warnings(predicted: Prediction) -> tuple[str, ...]:
    """Return what the reader of plain decoding must know."""
    e, deployment = predicted.evaluation, predicted.deployment
    batch_size, none = e.points["batch_size"], np.zeros(())
    return (
        *e.memory.warnings(batch_size),
        *deployment.warnings(batch_size, none),
        *deployment.graph_warnings(batch_size, none + 1),
    )


def warnings_of_times(predicted: Prediction) -> tuple[str, ...]:
    """Return what the reader must know of memory and times, whatever is accepted."""
    evaluation, deployment = predicted.evaluation, predicted.deployment
    batch_size, gamma = evaluation.points["batch_size"], evaluation.points["draft_length"]
    sizes, lengths, tokens = _that_fit(evaluation, "batch_size", "draft_length", "verify_tokens")
    return (
        *evaluation.memory.warnings(batch_size, gamma),
        *deployment.warnings(sizes, lengths),
        *deployment.graph_warnings(sizes, tokens),
    )


def _that_fit(evaluation: Evaluation, *names: str) -> list[FloatArray]:
    """Return coordinates of the points that fit in memory, of all if none or all of them do."""
    found = [evaluation.points[name] for name in names]
    fits = evaluation.points["batch_size"] <= evaluation.memory.max_batch_size
    if fits.all() or not fits.any():
        return found
    fits, *found = np.broadcast_arrays(fits, *found)
    return [values[fits] for values in found]


def _beyond_measured(evaluation: Evaluation, best: FloatArray) -> list[str]:
    """Say so if a draft asked for, or the best one, is longer than what was measured."""
    lengths = evaluation.points["draft_length"], best
    longest = max(np.max(length, where=~np.isnan(length), initial=0) for length in lengths)
    measured = evaluation.acceptance.measured_draft_length
    trained = evaluation.deployment.drafter.trained_positions
    known = trained if measured is None else np.max(measured)
    by_position = evaluation.acceptance.acceptance_by_position is not None
    if by_position or known is None or longest <= known:
        return []
    of_what = "the head is trained for" if measured is None else "acceptance was measured at"
    return [
        f"{of_what} {known:g} drafted token{'s' if known > 1 else ''}; up to {longest:g} the same"
        " rate is assumed at each position, where it usually falls: acceptance by position tells"
    ]


def _between_modules(evaluation: Evaluation, best: FloatArray) -> list[str]:
    """Say so if an engine refuses a draft length asked for, or the best one."""
    modules = len(evaluation.deployment.drafter.parts)
    if modules < 2:
        return []
    asked = np.concatenate([np.ravel(evaluation.points["draft_length"]), np.ravel(best)])
    refused = np.unique(asked[(asked > modules) & (asked % modules > 0)])
    if not refused.size:
        return []
    lengths = ", ".join(f"{length:g}" for length in refused)
    return [
        f"with {modules} modules vLLM takes a draft length of at most {modules}, or a multiple of"
        f" it, and not {lengths}"
    ]
