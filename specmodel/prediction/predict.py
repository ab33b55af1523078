"""The façade: what a deployment with speculation gains, point by point, and what was assumed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from specmodel.algebra import speculation
from specmodel.algebra.acceptance import Acceptance
from specmodel.base.errors import InputError
from specmodel.base.units import FloatArray, Numeric, check
from specmodel.cost.deployment import Deployment, deploy
from specmodel.cost.latency import StepTimes, step_times
from specmodel.cost.memory import memory_use, memory_warnings
from specmodel.prediction.intervals import central_intervals
from specmodel.prediction.outcome import LIMITS, Prediction
from specmodel.records.architecture import Architecture
from specmodel.records.drafters import Drafter
from specmodel.records.engine import EngineProfile
from specmodel.records.hardware import HardwareProfile
from specmodel.records.layers.work import CAUSES

INTERVAL_SEED = 0
MOST = 1e9
"""Largest batch size [request] and context length [token] that are taken."""
DEFAULT_CONTEXT_LENGTH = 1024
DEFAULT_MAX_DRAFT_LENGTH = 10


def predict(  # noqa: PLR0913 - all keyword-only: what decides the answer is named
    *,
    target: Architecture | str | Path,
    hardware: HardwareProfile | str | Path,
    drafter: Drafter | Architecture | str | Path,
    draft_length: Numeric,
    batch_size: Numeric,
    acceptance: Acceptance | Numeric,
    engine: EngineProfile | str | Path | None = None,
    stack: str | None = None,
    context_length: Numeric | None = None,
    verify_tokens: Numeric | None = None,
    weight_dtype: str | None = None,
    activation_dtype: str | None = None,
    kv_dtype: str | None = None,
    expert_dtype: str | None = None,
    embedding_dtype: str | None = None,
    routing_correlation: float | None = None,
    popularity: Numeric | None = None,
    tensor_parallel: int | None = None,
    expert_parallel: int | None = None,
    draft_tensor_parallel: int | None = None,
    max_draft_length: int | None = None,
    interval: bool = False,
) -> Prediction:
    """Predict target efficiency and speedup of speculative decoding.

    Parameters
    ----------
    target, hardware, drafter, engine
        Records, names that ship with the package, or paths; the engine is "ideal" by default.
    stack
        Whose kernels: one fitted in the hardware profile, "typical" or "datasheet"; by default
        the engine's, else the profile's default, else "typical".
    draft_length
        Tokens drafted per sequence and step, 0 for none, any shape [token].
    batch_size
        Sequences decoded together, broadcasting with `draft_length` [request].
    acceptance
        Acceptance rate [-], or an `Acceptance` in another form; broadcasting.
    context_length
        KV entries of each sequence before the step, broadcasting [token].
    verify_tokens
        Tokens of each sequence in the verify pass, `draft_length` + 1 unless it is a tree [token].
    weight_dtype, activation_dtype, kv_dtype, expert_dtype, embedding_dtype
        Dtypes of the target; those of its architecture by default.
    routing_correlation
        How far tokens of one sequence share experts, from 0 to 1 [-].
    popularity
        Probability that a token uses each expert, shape (num_experts,); equal by default [-].
    tensor_parallel, expert_parallel, draft_tensor_parallel
        GPUs that the target's matrices are cut over, that its experts are spread over (attention
        is data-parallel where there are more), and that a draft model is cut over [-].
    max_draft_length
        Longest draft considered for `best_draft_length` [token].
    interval
        Whether to add central 80 % intervals, by a Monte Carlo with a fixed seed.

    Returns
    -------
    Prediction
        Arrays of the shape to which the arguments broadcast.

    Raises
    ------
    InputError
        In one line: the argument, its value and what would do.

    Notes
    -----
    With n-gram look-up, tokens per step and step efficiency are means over all steps, given and
    returned; rates and the accepted fraction are about the tokens drafted.

    Examples
    --------
    >>> p = predict(target="mixtral-8x7b", hardware="h100_sxm", drafter="ngram", draft_length=3,
    ...             batch_size=[1, 16], acceptance=0.4, tensor_parallel=2, context_length=512)
    >>> (p.speedup > 1).tolist()
    [False, True]
    """
    deployment, assumed = deploy(
        target=target,
        hardware=hardware,
        drafter=drafter,
        engine=engine,
        stack=stack,
        routing_correlation=routing_correlation,
        popularity=popularity,
        tensor_parallel=tensor_parallel,
        expert_parallel=expert_parallel,
        draft_tensor_parallel=draft_tensor_parallel,
        weight_dtype=weight_dtype,
        expert_dtype=expert_dtype,
        embedding_dtype=embedding_dtype,
        activation_dtype=activation_dtype,
        kv_dtype=kv_dtype,
    )
    if context_length is None:
        context_length = assumed["context_length"] = DEFAULT_CONTEXT_LENGTH
    if max_draft_length is None:
        max_draft_length = assumed["max_draft_length"] = DEFAULT_MAX_DRAFT_LENGTH
    gamma = speculation.check_draft_length(draft_length, whole=True)
    points = {
        "batch_size": check("batch_size", batch_size, minimum=1, maximum=MOST, whole=True),
        "draft_length": gamma,
        "verify_tokens": _verify_tokens(verify_tokens, gamma),
        "context_length": check(
            "context_length", context_length, minimum=0, maximum=MOST, whole=True
        ),
    }
    longest = check(
        "max_draft_length",
        max_draft_length,
        minimum=1,
        maximum=speculation.MAX_DRAFT_LENGTH,
        whole=True,
    )
    if not isinstance(acceptance, Acceptance):
        acceptance = Acceptance(acceptance_rate=acceptance)
    _check_shapes(points, acceptance)
    prediction = _evaluate(deployment, points, acceptance, int(longest), assumed)
    if not interval:
        return prediction
    generator = np.random.default_rng(INTERVAL_SEED)
    tokens = prediction.tokens_per_step
    return replace(prediction, intervals=central_intervals(deployment, points, tokens, generator))


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
    tokens = check("verify_tokens", verify_tokens, minimum=1, maximum=4096, whole=True)
    is_idle = (gamma == 0) & (tokens != 1)
    if is_idle.any():
        bad = np.broadcast_to(tokens, is_idle.shape)[is_idle].item(0)
        raise InputError("verify_tokens", int(bad), "1 where draft_length is 0")
    return tokens


def _evaluate(
    deployment: Deployment,
    points: dict[str, FloatArray],
    acceptance: Acceptance,
    longest: int,
    assumed: dict[str, Any],
) -> Prediction:
    gamma, B = points["draft_length"], points["batch_size"]
    is_chain = points["verify_tokens"] == gamma + 1
    rate = deployment.drafter.proposal_rate
    acceptance = acceptance.measured_at(gamma).where_proposed(rate)
    if not is_chain.all() and acceptance.form != "tokens_per_step":
        expected = f"draft_length + 1, as {acceptance.form} holds for no tree: give tokens_per_step"
        bad = np.broadcast_to(points["verify_tokens"], is_chain.shape)[~is_chain].item(0)
        raise InputError("verify_tokens", int(bad), expected)
    tokens = _tokens_per_step(acceptance, gamma, deployment.drafter, is_chain)
    times = step_times(
        deployment,
        batch_size=B,
        draft_length=gamma,
        verify_tokens=points["verify_tokens"],
        context_length=points["context_length"],
    )
    forward, step = times.forward_time, times.step_time
    relative = speculation.relative_step_time(forward, step)
    gain = speculation.utility(tokens, relative)
    memory = memory_use(deployment, points["context_length"], points["verify_tokens"])
    best = break_even = np.full((), np.nan)
    if is_chain.any():
        known = times if is_chain.all() else None  # a draft pass carries the width of a tree
        best = _best_draft_length(deployment, points, acceptance, longest, known)
        break_even = speculation.break_even_acceptance_rate(relative, gamma, rate)
    if not is_chain.all():
        best, break_even = (np.where(is_chain, column, np.nan) for column in (best, break_even))
    columns: dict[str, np.ndarray[Any, Any]] = points | {
        "tokens_per_step": tokens,
        "step_efficiency": tokens / (gamma + 1),
        "active_experts": times.forward.active_experts,
        "active_experts_verify": times.active_experts_verify,
        "forward_time": forward,
        "verify_time": times.verify_time,
        "draft_time": times.draft_time,
        "reject_time": times.reject_time,
        "step_time": step,
        "target_efficiency": speculation.target_efficiency(forward, times.verify_time),
        "relative_step_time": relative,
        "utility": gain,
        "speedup": gain,
        "tpot": step / tokens,
        "throughput": B * tokens / step,
        "limit": _limit(times, gamma),
        "break_even_acceptance_rate": break_even,
        "best_draft_length": best,
        "memory_bytes": memory.total_bytes(B),
        "max_batch_size": memory.max_batch_size,
    }
    shape = np.broadcast_shapes(*(column.shape for column in columns.values()))
    arrays: dict[str, Any] = {n: np.broadcast_to(a, shape) for n, a in columns.items()}
    return Prediction(
        **arrays,
        max_draft_length=longest,
        assumptions=assumed,
        warnings=memory_warnings(deployment, memory, B),
        deployment=deployment,
        times=times,
    )


def _tokens_per_step(
    acceptance: Acceptance, gamma: FloatArray, drafter: Drafter, is_chain: np.ndarray[Any, Any]
) -> FloatArray:
    """Mean over all steps; a step without a proposal emits one token."""
    if is_chain.all():
        tokens = acceptance.expected_tokens_per_step(gamma)
    else:
        tokens = check("tokens_per_step", acceptance.tokens_per_step, minimum=1)
        is_beyond = ~is_chain & (tokens > gamma + 1)
        if is_beyond.any():
            most = np.broadcast_to(gamma, is_beyond.shape)[is_beyond].min() + 1
            expected = f"numbers from 1 to draft_length + 1 = {most:g}"
            raise InputError("tokens_per_step", acceptance.tokens_per_step, expected)
        if is_chain.any():
            tokens = np.where(is_chain, acceptance.expected_tokens_per_step(gamma), tokens)
    return np.asarray(1 + drafter.proposal_rate * (tokens - 1))


def _best_draft_length(
    deployment: Deployment,
    points: dict[str, FloatArray],
    acceptance: Acceptance,
    longest: int,
    known: StepTimes | None,
) -> FloatArray:
    """Compare all lengths on a new first axis; acceptance is broadcast last."""
    shape = np.broadcast_shapes(*(points[name].shape for name in ("batch_size", "context_length")))
    rate_axes = 0 if acceptance.form == "acceptance_by_position" else acceptance.rate().ndim
    axes = (1,) * max(len(shape), rate_axes)
    candidates = np.arange(1.0, min(longest, acceptance.max_draft_length) + 1)
    column = candidates.reshape(-1, *axes)
    times = step_times(
        deployment,
        batch_size=points["batch_size"],
        draft_length=column,
        verify_tokens=column + 1,
        context_length=points["context_length"],
        known=known,
    )
    proposed = acceptance.expected_tokens_per_step(column)
    tokens = 1 + deployment.drafter.proposal_rate * (proposed - 1)
    gain = tokens * (times.forward_time / times.step_time)
    return np.asarray(speculation.best_draft_length(gain, candidates, axis=0))


def _limit(times: StepTimes, gamma: FloatArray) -> np.ndarray[Any, np.dtype[np.int8]]:
    growth = times.growth_by_cause()
    stacked = np.stack(np.broadcast_arrays(*(growth[cause] for cause in CAUSES)))
    largest = stacked.argmax(axis=0).astype(np.int8)
    is_limited = (gamma > 0) & (stacked.max(axis=0) > 0)
    return np.where(is_limited, largest, np.int8(LIMITS.index("none")))
