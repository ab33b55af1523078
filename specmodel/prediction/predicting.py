"""What a deployment with speculation gains, point by point, and what was assumed for that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from specmodel.algebra import speculation
from specmodel.algebra.acceptance import Acceptance
from specmodel.algebra.experts import MAX_TOKENS_PER_SEQUENCE
from specmodel.base.errors import InputError
from specmodel.base.units import FloatArray, Numeric, check
from specmodel.cost.deploying import resolve
from specmodel.cost.deployment import Deployment
from specmodel.drafters.by_name import Drafter
from specmodel.machines.engine import EngineProfile
from specmodel.machines.hardware import HardwareProfile
from specmodel.models.architecture import Architecture
from specmodel.prediction.columns import COLUMNS, LOAD_COLUMNS, Column
from specmodel.prediction.evaluate import LOAD, Evaluation, evaluate
from specmodel.prediction.intervals import central_intervals
from specmodel.prediction.outcome import Prediction

INTERVAL_SEED = 0
MOST = 1e9
"""Largest batch size [request] and context length [token] that are accepted."""
MOST_PROMPT = 1e7
"""Longest prompt and output that are accepted [token]."""
DEFAULT_CONTEXT_LENGTH = 1024
DEFAULT_MAX_DRAFT_LENGTH = 10
PLAIN_ARGUMENTS = ("batch_size", "context_length", "prompt_length", "output_length", "interval")
_OF_DRAFTS = ("draft_length", "acceptance", "verify_tokens", "max_draft_length")
"""What predictions take beside a deployment: all of them, and those with drafts."""
_EVERY_STEP = (
    "the look-up is assumed to find a proposal in every step, which is optimistic: on measured"
    " traces it does in 28 to 63 % of the steps (proposal_rate)"
)


def predict(  # noqa: PLR0913 - all keyword-only: what decides the answer is named
    *,
    target: Architecture | str | Path,
    hardware: HardwareProfile | str | Path,
    drafter: Drafter | Architecture | str | Path,
    draft_length: Numeric,
    batch_size: Numeric,
    acceptance: Acceptance | Numeric | str,
    engine: EngineProfile | str | Path | None = None,
    host_speed: float | None = None,
    stack: str | None = None,
    context_length: Numeric | None = None,
    prompt_length: Numeric | None = None,
    output_length: Numeric | None = None,
    verify_tokens: Numeric | None = None,
    tree_width: int | None = None,
    weight_dtype: str | None = None,
    activation_dtype: str | None = None,
    kv_dtype: str | None = None,
    attention_dtype: str | None = None,
    expert_dtype: str | None = None,
    mtp_dtype: str | None = None,
    embedding_dtype: str | None = None,
    routing_correlation: float | None = None,
    popularity: Numeric | None = None,
    tensor_parallel: int | None = None,
    data_parallel: int | None = None,
    expert_parallel: int | None = None,
    draft_tensor_parallel: int | None = None,
    memory_utilization: float | None = None,
    state_rollback: str | None = None,
    max_draft_length: int | None = None,
    interval: bool = False,
) -> Prediction:
    """Predict target efficiency and speedup of speculative decoding.

    With n-gram look-up, tokens per step and step efficiency are means over all steps, given and
    returned; rates and the accepted fraction are about the tokens drafted. "ngram" is assumed to
    propose in 0.44 of the steps; `ngram_drafter` takes what was measured.

    Parameters
    ----------
    target, hardware, drafter, engine
        Records, names that ship with the package, or paths; the engine is "ideal" by default.
    host_speed
        How many times as fast the host is as the engine's; that of its profile by default [-].
    stack
        Whose kernels: one fitted in the hardware profile, "typical" or "datasheet"; by default the
        engine's, else the profile's default, else "typical".
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
    verify_tokens, tree_width
        Tokens of each sequence in the verify pass, `draft_length` + 1 unless it is a tree [token];
        tokens that follow each drafted one, 1 in chains, which SGLang calls top-k [-].
    weight_dtype, activation_dtype, kv_dtype, embedding_dtype
        Dtypes of the target; those of its architecture by default.
    attention_dtype, expert_dtype, mtp_dtype
        Dtypes of the weights of its attention (and other mixers), of its routed experts, and of its
        block for multi-token prediction; by default those of its architecture, else `weight_dtype`.
    routing_correlation, popularity
        How far tokens of one sequence share experts, from 0 to 1; probability that a token uses
        each expert, shape (num_experts,), equal by default [-].
    tensor_parallel, data_parallel
        GPUs that the target's matrices are cut over, routed experts aside, and replicas of these,
        each with its share of the batch; their product is the number of GPUs. As few replicas as
        `expert_parallel` needs by default [-].
    expert_parallel
        Groups of GPUs that routed experts are spread over; the GPUs of a group cut each of its
        experts. 1 cuts all experts over all GPUs; as many as there are GPUs cuts none [-].
    draft_tensor_parallel
        GPUs that a draft model is cut over [-].
    memory_utilization
        Share of a GPU's memory that weights and cache may fill, 0.9 by default as in engines [-].
    state_rollback
        How recurrent states get back to the last accepted token: "native", a state is written after
        each verified token, or "replay", one state and records of tokens are kept.
    max_draft_length, interval
        Longest draft considered for `best_draft_length` [token]; whether to add central 80 %
        intervals, by a Monte Carlo with a fixed seed.

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
    given, names = locals(), (*PLAIN_ARGUMENTS, *_OF_DRAFTS)
    return predict_deployed(*resolve(given), **{name: given[name] for name in names})


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
    evaluation = evaluate(deployment, points, acceptance, max_draft_length=int(longest))
    predicted = as_prediction(evaluation, COLUMNS, assumed, interval=interval)
    warnings = (
        *predicted.warnings,
        *deployment.warnings(points["batch_size"], gamma),
        *_beyond_measured(evaluation, predicted.best_draft_length),
        *_between_modules(evaluation, predicted.best_draft_length),
        *([_EVERY_STEP] if assumed.get("proposal_rate") == 1 else []),
    )
    return replace(predicted, warnings=warnings)


def as_prediction(
    evaluation: Evaluation,
    columns: tuple[Column, ...],
    assumed: Mapping[str, Any],
    *,
    interval: bool = False,
) -> Prediction:
    """Return columns of an evaluation as arrays of one shape, those of its load included."""
    points = evaluation.points
    shown = (*columns, *LOAD_COLUMNS) if points.keys() >= {*LOAD} else columns
    values = {column.name: column.of(evaluation) for column in shown}
    shape = np.broadcast_shapes(*(value.shape for value in values.values()))
    intervals = None
    if interval:
        generator, taken = np.random.default_rng(INTERVAL_SEED), evaluation.acceptance
        intervals = central_intervals(evaluation.deployment, points, taken, generator, shown)
    return Prediction(
        values={name: np.broadcast_to(array, shape) for name, array in values.items()},
        evaluation=evaluation,
        assumptions=dict(assumed),
        warnings=evaluation.memory.warnings(points["batch_size"]),
        intervals=intervals,
        shown=shown,
    )


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
