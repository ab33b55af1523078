"""What a deployment with speculation gains, point by point, and what was assumed for that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Unpack

import numpy as np

from specmodel.algebra import speculation
from specmodel.algebra.acceptance import Acceptance
from specmodel.algebra.experts import MAX_TOKENS_PER_SEQUENCE
from specmodel.base.errors import InputError
from specmodel.base.units import FloatArray, Numeric, check
from specmodel.cost.arguments import DeploymentArguments
from specmodel.cost.deploying import deployed
from specmodel.cost.deployment import Deployment
from specmodel.prediction.columns import COLUMNS, LOAD_COLUMNS, Column
from specmodel.prediction.evaluate import LOAD, Evaluation, evaluate
from specmodel.prediction.intervals import MAX_POINTS, central_intervals, states_errors
from specmodel.prediction.outcome import Prediction

MOST = 1e9
"""Largest batch size [request] and context length [token] that are accepted."""
MOST_PROMPT = 1e7
"""Longest prompt and output that are accepted [token]."""
DEFAULT_CONTEXT_LENGTH = 1024
DEFAULT_MAX_DRAFT_LENGTH = 10
_EVERY_STEP = (
    "the look-up is assumed to find a proposal in every step, which is optimistic: on measured"
    " traces it does in 15 to 32 % of the steps (proposal_rate)"
)


def predict(  # noqa: PLR0913 - all keyword-only
    *,
    draft_length: Numeric,
    batch_size: Numeric,
    acceptance: Acceptance | Numeric | str,
    context_length: Numeric | None = None,
    prompt_length: Numeric | None = None,
    output_length: Numeric | None = None,
    verify_tokens: Numeric | None = None,
    max_draft_length: int | None = None,
    interval: bool = False,
    **deployment: Unpack[DeploymentArguments],
) -> Prediction:
    """Predict target efficiency and speedup of speculative decoding.

    With n-gram look-up, tokens per step and step efficiency are means over all steps, given and
    returned; rates and the accepted fraction are about the tokens drafted. "ngram" is assumed to
    propose in 0.2 of the steps; `ngram_drafter` takes what was measured.

    Parameters
    ----------
    draft_length, batch_size
        Tokens drafted per sequence and step, 0 for none, and sequences decoded together,
        broadcasting [token] [request].
    acceptance
        Acceptance rate [-], or an `Acceptance` in another form, broadcasting; "preset" for what is
        published of the target with this drafter, or a name as `load_acceptance` takes it.
    context_length
        KV entries of each sequence before the step, broadcasting [token].
    prompt_length, output_length
        Tokens of a prompt and tokens that each request makes, where steps carry the prefill of
        other requests (`cost.prefill.carried_prefill`); none is carried by default [token].
    verify_tokens
        Tokens of each sequence in the verify pass, `draft_length` + 1 unless it is a tree [token].
    max_draft_length, interval
        Longest draft considered for `best_draft_length` [token]; whether to add central 80 %
        intervals, by a Monte Carlo with a fixed seed.
    **deployment
        What runs where: target, hardware and drafter, and any other argument of
        `cost.arguments.PlainArguments` and `cost.arguments.DeploymentArguments`.

    Returns
    -------
    Prediction
        Arrays of the shape to which the arguments broadcast.

    Examples
    --------
    >>> p = predict(target="mixtral-8x7b", hardware="h100_sxm", drafter="ngram", draft_length=3,
    ...             batch_size=[1, 16], acceptance=0.4, tensor_parallel=2, context_length=512)
    >>> (p.speedup > 1).tolist()
    [False, True]
    """
    return predict_deployed(
        *deployed(deployment, DeploymentArguments),
        draft_length=draft_length,
        batch_size=batch_size,
        acceptance=acceptance,
        context_length=context_length,
        prompt_length=prompt_length,
        output_length=output_length,
        verify_tokens=verify_tokens,
        max_draft_length=max_draft_length,
        interval=interval,
    )


def predict_deployed(  # noqa: PLR0913 - keyword-only but for the deployment
    deployment: Deployment,
    assumed: Mapping[str, Any],
    *,
    draft_length: Numeric,
    batch_size: Numeric,
    acceptance: Acceptance | Numeric | str,
    context_length: Numeric | None = None,
    prompt_length: Numeric | None = None,
    output_length: Numeric | None = None,
    verify_tokens: Numeric | None = None,
    max_draft_length: int | None = None,
    interval: bool = False,
) -> Prediction:
    """Predict for a deployment and what was assumed of it, as `deploy` gives them."""
    points, told = plain_points(batch_size, context_length, prompt_length, output_length)
    assumed = {**assumed, **told}
    block = deployment.drafter.block_size
    if max_draft_length is None:
        most = DEFAULT_MAX_DRAFT_LENGTH
        max_draft_length = assumed["max_draft_length"] = min(most, block or most)
    gamma = speculation.check_draft_length(draft_length, whole=True)
    points |= {"draft_length": gamma, "verify_tokens": _verify_tokens(verify_tokens, gamma)}
    if not deployment.has_drafter and gamma.any():
        raise InputError("drafter", None, "a drafter, as draft_length is above 0")
    most = speculation.MAX_DRAFT_LENGTH
    longest = check("max_draft_length", max_draft_length, minimum=1, maximum=most, whole=True)
    if isinstance(acceptance, str):
        from specmodel.drafters.acceptance import load_acceptance

        acceptance = load_acceptance(deployment.target, deployment.drafter, acceptance)
    elif not isinstance(acceptance, Acceptance):
        acceptance = Acceptance(acceptance_rate=acceptance)
    if acceptance.source:
        assumed["acceptance"] = acceptance.source
    _check_shapes(points, acceptance)
    rate = deployment.drafter.proposal_rate
    acceptance = acceptance.measured_at(gamma).where_proposed(rate)
    known = min(int(longest), acceptance.max_draft_length, block or int(longest))
    evaluation = evaluate(deployment, points, acceptance, max_draft_length=int(known))
    return as_prediction(evaluation, COLUMNS, assumed, interval=interval, warn=warnings_of)


def warnings_of(predicted: Prediction) -> tuple[str, ...]:
    """Return what the reader of a prediction with drafts must know."""
    evaluation = predicted.evaluation
    return (
        *warnings_of_times(predicted),
        *_beyond_measured(evaluation, predicted.best_draft_length),
        *_between_modules(evaluation, predicted.best_draft_length),
        *([_EVERY_STEP] if predicted.assumptions.get("proposal_rate") == 1 else []),
    )


def _plain_warnings(predicted: Prediction) -> tuple[str, ...]:
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


def as_prediction(
    evaluation: Evaluation,
    columns: tuple[Column, ...],
    assumed: Mapping[str, Any],
    *,
    interval: bool = False,
    warn: Callable[[Prediction], tuple[str, ...]] = _plain_warnings,
) -> Prediction:
    """Return columns of an evaluation, those of its load included, computed when they are read."""
    shown = (*columns, *LOAD_COLUMNS) if evaluation.points.keys() >= {*LOAD} else columns
    found = Prediction(evaluation=evaluation, assumptions=dict(assumed), warn=warn, shown=shown)
    return with_intervals(found) if interval else found


def with_intervals(prediction: Prediction) -> Prediction:
    """Return a prediction with central 80 % intervals, by a Monte Carlo with a fixed seed."""
    e = prediction.evaluation
    found = central_intervals(e.deployment, e.points, e.acceptance, columns=prediction.shown)
    return replace(prediction, intervals=found)


def with_known_intervals(prediction: Prediction) -> Prediction:
    """Return a prediction with intervals where errors are known and points are not too many."""
    is_wanted = states_errors(prediction.deployment) and prediction.speedup.size <= MAX_POINTS
    return with_intervals(prediction) if is_wanted else prediction


def plain_points(
    batch_size: Numeric,
    context_length: Numeric | None,
    prompt_length: Numeric | None,
    output_length: Numeric | None,
) -> tuple[dict[str, FloatArray], dict[str, int | str]]:
    """Return coordinates of points by name but for the draft, and the context if it is assumed.

    Under load the assumed context is the mean of a request.
    """
    load = _load(prompt_length, output_length)
    told: dict[str, int | str] = {}
    if context_length is None:
        context_length, told["context_length"] = _default_context(load)
    points = {
        "batch_size": check("batch_size", batch_size, minimum=1, maximum=MOST, whole=True),
        "context_length": check(
            "context_length", context_length, minimum=0, maximum=MOST, whole=True
        ),
        **load,
    }
    return points, told


def _load(prompt_length: Numeric | None, output_length: Numeric | None) -> dict[str, FloatArray]:
    """Return the lengths of prompts and outputs, nothing if neither is given [token]."""
    given = dict(zip(LOAD, (prompt_length, output_length), strict=True))
    missing = [name for name, value in given.items() if value is None]
    if len(missing) == len(given):
        return {}
    if missing:
        other = next(name for name in LOAD if name not in missing)
        raise InputError(missing[0], None, f"a length, as {other} is given")
    most = MOST_PROMPT
    return {n: check(n, v, minimum=1, maximum=most, whole=True) for n, v in given.items()}


def _default_context(load: Mapping[str, FloatArray]) -> tuple[Numeric, int | str]:
    """Return the context where none is given [token], and the number or what it is."""
    if not load:
        return DEFAULT_CONTEXT_LENGTH, DEFAULT_CONTEXT_LENGTH
    mean = np.asarray(load["prompt_length"] + np.floor(load["output_length"] / 2))
    return mean, int(mean.item()) if mean.size == 1 else "prompt + output / 2"


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


def _check_shapes(points: dict[str, FloatArray], acceptance: Acceptance) -> None:
    shapes = {name: array.shape for name, array in points.items()}
    if acceptance.form != "acceptance_by_position":
        shapes[acceptance.form] = np.shape(getattr(acceptance, acceptance.form))
    try:
        np.broadcast_shapes(*shapes.values())
    except ValueError:
        varying = {name: shape for name, shape in shapes.items() if shape}
        expected = "shapes that broadcast, such as (3, 1) and (4,)"
        raise InputError("shapes", varying, expected) from None


def _verify_tokens(verify_tokens: Numeric | None, gamma: FloatArray) -> FloatArray:
    if verify_tokens is None:
        return np.asarray(gamma + 1)
    tokens = check(
        "verify_tokens", verify_tokens, minimum=1, maximum=MAX_TOKENS_PER_SEQUENCE, whole=True
    )
    is_idle = (gamma == 0) & (tokens != 1)
    if is_idle.any():
        bad = np.broadcast_to(tokens, is_idle.shape)[is_idle].item(0)
        raise InputError("verify_tokens", int(bad), "1 where draft_length is 0")
    return tokens
