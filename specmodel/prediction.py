"""The façade: what a deployment with speculation gains, point by point, and what was assumed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from specmodel import speculation
from specmodel.acceptance import Acceptance
from specmodel.architecture import Architecture
from specmodel.deployment import Deployment, deploy
from specmodel.drafters import Drafter
from specmodel.engine import EngineProfile
from specmodel.errors import InputError
from specmodel.hardware import HardwareProfile
from specmodel.latency import CAUSES, StepTimes, step_times
from specmodel.memory import memory_use, memory_warnings
from specmodel.units import FloatArray, Numeric, check

if TYPE_CHECKING:
    import pandas as pd

COLUMN_UNITS = {
    "batch_size": "request",
    "draft_length": "token",
    "verify_tokens": "token",
    "context_length": "token",
    "tokens_per_step": "token",
    "step_efficiency": "-",
    "active_experts": "-",
    "active_experts_verify": "-",
    "forward_time": "s",
    "verify_time": "s",
    "draft_time": "s",
    "reject_time": "s",
    "step_time": "s",
    "target_efficiency": "-",
    "relative_step_time": "-",
    "utility": "-",
    "speedup": "-",
    "tpot": "s",
    "throughput": "token/s",
    "limited_by": "-",
    "break_even_acceptance_rate": "-",
    "best_draft_length": "token",
    "memory_bytes": "B",
    "max_batch_size": "request",
}
"""Columns of a prediction in their order, and their units."""

MOST = 1e9
"""Largest batch size [request] and context length [token] that are taken."""
DEFAULT_CONTEXT_LENGTH = 1024
DEFAULT_MAX_DRAFT_LENGTH = 10


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Prediction:
    """What speculation gains at each operating point; all arrays have one shape.

    Parameters
    ----------
    batch_size, draft_length, verify_tokens, context_length
        The operating points [request] [token] [token] [token].
    tokens_per_step, step_efficiency
        Tokens emitted per sequence and step [token], and MoESD's σ [-].
    active_experts, active_experts_verify
        Distinct experts per layer of a plain and of a verify pass [-].
    forward_time, verify_time, draft_time, reject_time, step_time
        Plain pass, verify pass, all drafting of a step, rejection, the whole step [s].
    target_efficiency, relative_step_time
        ``forward_time / verify_time`` and ``step_time / forward_time`` [-].
    utility, speedup
        The same number: tokens per step over relative step time [-].
    tpot, throughput
        Time per output token of a request [s], output tokens of all requests [token/s].
    limited_by
        What lengthens the step most: one of `CAUSES`, or "none" without a draft.
    break_even_acceptance_rate
        Rate from which speculation pays; NaN where none does or it has no meaning [-].
    best_draft_length
        Draft length with the largest speedup, 0 for none; NaN where it has no meaning [token].
    memory_bytes, max_batch_size
        Memory needed on the fullest GPU [B]; largest batch that fits it [request].
    max_draft_length
        Longest draft considered for the best one [token].
    assumptions
        What was assumed because it was not given, by argument.
    warnings
        What the reader must know, one sentence each.
    deployment, times
        The records behind the numbers, and the times by component.
    """

    batch_size: FloatArray
    draft_length: FloatArray
    verify_tokens: FloatArray
    context_length: FloatArray
    tokens_per_step: FloatArray
    step_efficiency: FloatArray
    active_experts: FloatArray
    active_experts_verify: FloatArray
    forward_time: FloatArray
    verify_time: FloatArray
    draft_time: FloatArray
    reject_time: FloatArray
    step_time: FloatArray
    target_efficiency: FloatArray
    relative_step_time: FloatArray
    utility: FloatArray
    speedup: FloatArray
    tpot: FloatArray
    throughput: FloatArray
    limited_by: np.ndarray[Any, np.dtype[np.str_]]
    break_even_acceptance_rate: FloatArray
    best_draft_length: FloatArray
    memory_bytes: FloatArray
    max_batch_size: FloatArray
    max_draft_length: int
    assumptions: dict[str, Any]
    warnings: tuple[str, ...]
    deployment: Deployment
    times: StepTimes

    def rows(self) -> list[dict[str, Any]]:
        """Return one plain dict a point; None stands for what has no meaning."""
        columns = {name: np.ravel(getattr(self, name)).tolist() for name in COLUMN_UNITS}
        for name in ("break_even_acceptance_rate", "best_draft_length"):
            columns[name] = [None if value != value else value for value in columns[name]]
        for name, unit in COLUMN_UNITS.items():
            if unit in ("request", "token") and name != "tokens_per_step":
                columns[name] = [None if v is None else int(v) for v in columns[name]]
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def to_frame(self) -> pd.DataFrame:
        """Return the points as a tidy table, one row each, columns as in `COLUMN_UNITS`."""
        import pandas as pd

        return pd.DataFrame({name: np.ravel(getattr(self, name)) for name in COLUMN_UNITS})


def predict(  # noqa: PLR0913 - all keyword-only: what decides the answer is named
    *,
    target: Architecture | str | Path,
    hardware: HardwareProfile | str | Path,
    drafter: Drafter | Architecture | str | Path,
    draft_length: Numeric,
    batch_size: Numeric,
    acceptance: Acceptance | Numeric,
    engine: EngineProfile | str | Path | None = None,
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
) -> Prediction:
    """Predict target efficiency and speedup of speculative decoding.

    Parameters
    ----------
    target, hardware, drafter, engine
        Records, names that ship with the package, or paths; the engine is "ideal" by default.
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
    ...             batch_size=[1, 16], acceptance=0.5, tensor_parallel=2, context_length=512)
    >>> (p.speedup > 1).tolist()
    [False, True]
    """
    deployment, assumed = deploy(
        target=target,
        hardware=hardware,
        drafter=drafter,
        engine=engine,
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
    return _evaluate(deployment, points, acceptance, int(longest), assumed)


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
    if ((gamma == 0) & (tokens != 1)).any():
        raise InputError("verify_tokens", verify_tokens, "1 where draft_length is 0")
    return tokens


def _evaluate(
    deployment: Deployment,
    points: dict[str, FloatArray],
    acceptance: Acceptance,
    longest: int,
    assumed: dict[str, Any],
) -> Prediction:
    gamma, B = points["draft_length"], points["batch_size"]
    is_chain = bool((points["verify_tokens"] == gamma + 1).all())
    rate = deployment.drafter.proposal_rate
    acceptance = acceptance.measured_at(gamma).where_proposed(rate)
    if not is_chain and acceptance.form != "tokens_per_step":
        expected = f"draft_length + 1, as {acceptance.form} holds for no tree: give tokens_per_step"
        raise InputError("verify_tokens", points["verify_tokens"].flat[0].item(), expected)
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
    if is_chain:
        best = _best_draft_length(deployment, points, acceptance, longest, times)
        if rate:
            needed = np.maximum(1 + (relative - 1) / rate, 1e-9)
            break_even = speculation.break_even_acceptance_rate(needed, gamma)
    columns = points | {
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
        "limited_by": _limited_by(times, gamma),
        "break_even_acceptance_rate": break_even,
        "best_draft_length": best,
        "memory_bytes": memory.total_bytes(B),
        "max_batch_size": memory.max_batch_size,
    }
    shape = np.broadcast_shapes(*(column.shape for column in columns.values()))
    return Prediction(
        **{name: np.broadcast_to(columns[name], shape) for name in COLUMN_UNITS},
        max_draft_length=longest,
        assumptions=assumed,
        warnings=memory_warnings(deployment, memory, B),
        deployment=deployment,
        times=times,
    )


def _tokens_per_step(
    acceptance: Acceptance, gamma: FloatArray, drafter: Drafter, is_chain: bool
) -> FloatArray:
    """Mean over all steps; a step without a proposal emits one token."""
    if is_chain:
        tokens = acceptance.expected_tokens_per_step(gamma)
    else:
        tokens = check("tokens_per_step", acceptance.tokens_per_step, minimum=1)
        if ((gamma > 0) & (tokens > gamma + 1)).any():
            expected = f"numbers from 1 to draft_length + 1 = {gamma[gamma > 0].min() + 1:g}"
            raise InputError("tokens_per_step", acceptance.tokens_per_step, expected)
        tokens = np.where(gamma > 0, tokens, 1.0)
    return np.asarray(1 + drafter.proposal_rate * (tokens - 1))


def _best_draft_length(
    deployment: Deployment,
    points: dict[str, FloatArray],
    acceptance: Acceptance,
    longest: int,
    known: StepTimes,
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


def _limited_by(times: StepTimes, gamma: FloatArray) -> np.ndarray[Any, np.dtype[np.str_]]:
    growth = times.growth_by_cause()
    stacked = np.stack(np.broadcast_arrays(*(growth[cause] for cause in CAUSES)))
    largest = np.array(CAUSES)[stacked.argmax(axis=0)]
    return np.where((gamma > 0) & (stacked.max(axis=0) > 0), largest, "none")
