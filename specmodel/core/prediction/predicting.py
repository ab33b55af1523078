"""Predict what speculation gains, point by point, and the assumptions behind it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from msgspec.structs import replace

from specmodel.core.algebra import speculation
from specmodel.core.algebra.acceptance import ONE_FOR_ALL, Acceptance
from specmodel.core.algebra.experts import MAX_TOKENS_PER_SEQUENCE
from specmodel.core.algebra.money import cost_per_million_tokens
from specmodel.core.base.errors import InputError
from specmodel.core.base.units import LARGEST_PRICE, FloatArray, Numeric, check
from specmodel.core.cost.arguments import AskedArguments, DeployedPoints
from specmodel.core.cost.deployment import Deployment
from specmodel.core.drafters.passes import Drafter, refuse_tokens
from specmodel.core.machines.hardware import HardwareProfile
from specmodel.core.models.architecture import Architecture
from specmodel.core.prediction.accepted import NEEDS_ACCEPTANCE
from specmodel.core.prediction.by_batch import ByBatch
from specmodel.core.prediction.case import LONGEST_SEARCHED, Case, case_of
from specmodel.core.prediction.cautions import notes_at_best
from specmodel.core.prediction.columns import COLUMNS, COST, LOAD_COLUMNS
from specmodel.core.prediction.evaluate import LOAD, LOCKSTEP, evaluate, lengths_considered
from specmodel.core.prediction.intervals import MAX_POINTS, central_intervals
from specmodel.core.prediction.outcome import Prediction, Turned

MOST = 1e9
"""Largest batch size [request] and context length [token] that are accepted."""
MOST_PROMPT = 1e7
"""Longest prompt and output that are accepted [token]."""
DEFAULT_CONTEXT_LENGTH = 1024
_HOW = ("interval", "gpu_hour_price", "others")
"""Arguments of `predict` that are not part of its question."""
MET = ("prefill of all other requests in the steps", "prefill of other requests, in lockstep")
"""Assumptions on the prompts of other requests: they arrive at random, or in lockstep."""


def predict(  # noqa: PLR0913 - keyword-only but for the two words
    target: Architecture | str | Path,
    hardware: HardwareProfile | str | Path,
    *,
    drafter: Drafter | Architecture | str | Path | None = None,
    acceptance: Acceptance | Numeric | str | None = None,
    draft_length: Numeric | None = None,
    batch_size: Numeric | None = None,
    context_length: Numeric | None = None,
    prompt_length: Numeric | None = None,
    output_length: Numeric | None = None,
    lockstep: bool = False,
    verify_tokens: Numeric | None = None,
    max_draft_length: int | None = None,
    interval: bool = False,
    gpu_hour_price: float | None = None,
    **others: Unpack[AskedArguments],
) -> Prediction:
    """Predict whether speculation pays, by batch size.

    A model and a GPU are enough. By default, the fewest GPUs with enough memory run the model and
    its usual drafter, with the published acceptance of both and the best draft length for each
    batch size. If no acceptance is known, `Prediction.turned` contains the least acceptance at
    which drafting pays. Speedups then assume the median of published heads.

    With n-gram look-up, tokens per step and step efficiency are means over all steps, as arguments
    and as results. Rates and the accepted fraction describe drafted tokens.

    Parameters
    ----------
    target, hardware
        Model and GPU: records, shipped names or their beginnings, or paths. ``8xh200`` means eight
        GPUs.
    drafter
        The drafter: a record, a name or a path; "none" for no drafter.
    acceptance
        Acceptance rate [-], or an `Acceptance` in another form, broadcasting. "preset" means the
        published acceptance of the target with this drafter; `load_acceptance` lists other names.
        "typical", "typical-low" and "typical-high" mean what published heads of the kind reach. You
        can pass other forms by name instead, such as `tokens_per_step`.
    draft_length, batch_size
        Tokens drafted per sequence and step, 0 for none, and sequences decoded together,
        broadcasting; 1, 2, 4 to 256 sequences by default [token] [request].
    context_length
        KV entries of each sequence before the step, broadcasting; 1,024 by default [token].
    prompt_length, output_length
        Tokens of a prompt and tokens that each request generates. Steps then include the prefill of
        other requests (`cost.prefill.carried_prefill`); by default they include none [token].
    lockstep
        Whether a client sends all requests together, and again when all have ended, as benchmarks
        with equal lengths do. Each request then meets at most half of the others' prompts.
    verify_tokens
        Tokens of each sequence in the verify pass, `draft_length` + 1 except for trees [token].
    max_draft_length, interval, gpu_hour_price
        Longest draft length to consider [token]. Whether columns have central 80 % intervals, from
        a Monte Carlo with a fixed seed. Price of a GPU for an hour, for the cost of tokens.
    **others
        How it runs, and acceptance in other forms: the arguments of
        `cost.arguments.AskedArguments`.

    Returns
    -------
    Prediction
        Arrays of the shape to which the arguments broadcast. It prints as the command's answer.

    Examples
    --------
    >>> p = predict("qwen3.5-397b", "h200", batch_size=[1, 64])
    >>> p.draft_length.tolist(), p.deployment.layout.num_gpus
    ([6.0, 6.0], 8)
    >>> p = predict("mixtral-8x7b", "h100_sxm", drafter="ngram", draft_length=3,
    ...             batch_size=[1, 16], acceptance=0.4, tensor_parallel=2, context_length=512)
    >>> (p.speedup > 1).tolist()
    [False, True]
    """
    given = locals() | others
    case = case_of({n: v for n, v in given.items() if n not in _HOW})
    found = priced(predicted(case), gpu_hour_price)
    return with_intervals(found) if interval else found


def predicted(case: Case) -> Prediction:
    """Return the prediction of a case: at given or best lengths, or the acceptance it needs."""
    is_turned = case.acceptance is None and not isinstance(case.draft_length, ByBatch)
    if is_turned and case.deployment.has_drafter:
        return turned_round(case)
    return at_best_lengths(case) if case.draft_length is None else at_given_lengths(case)


def at_given_lengths(case: Case, **changes: Any) -> Prediction:
    """Return the prediction at the draft lengths that were given, or at others."""
    told: dict[str, Any] = {"draft_length": case.lengths, **case.points}
    told |= {"max_draft_length": case.max_draft_length} | changes
    acceptance = case.known_acceptance if case.deployment.has_drafter else 0.0
    found = predict_deployed(case.deployment, case.alone, acceptance=acceptance, **told)
    return replace(found, case=case)


def at_best_lengths(case: Case) -> Prediction:
    """Return the prediction at the draft length with the largest speedup of each point.

    A draft length is 0 if no draft pays.
    """
    case.check_trees()
    longest = case.longest_draft()
    told = replace(case, assumed={**case.assumed, **case.longest_told(longest)})
    found = at_given_lengths(told, draft_length=None, max_draft_length=longest)
    return replace(found, case=case)


def at_all_lengths(case: Case) -> Prediction:
    """Return the prediction at all draft lengths from 0 to the longest considered.

    Draft lengths are along a new axis, the last but one.
    """
    longest = case.longest_draft()
    points = {name: _with_axis(values) for name, values in case.points.items()}
    told = {"draft_length": np.arange(longest + 1)[:, None], **points}
    case = replace(case, assumed={**case.assumed, **case.longest_told(longest)})
    found = at_given_lengths(case, max_draft_length=longest, **told)
    return replace(found, told=notes_at_best(found.evaluation, found.assumptions))


def _with_axis(values: Numeric) -> Numeric:
    array = np.asarray(values)
    return np.expand_dims(array, -2) if array.ndim > 1 else array


def turned_round(case: Case) -> Prediction:
    """Return the least acceptance at which drafting pays, and speedups with published heads.

    The prediction has the draft lengths described in `Turned`, and a `Turned` as `turned`.
    """
    measured = case.accepted.measured_draft_length
    if measured is not None:
        raise InputError("measured_draft_length", measured, NEEDS_ACCEPTANCE)
    case.check_trees()
    heads, draft_length = case.heads, case.turned_lengths()
    if heads and (case.has_trees or max(draft_length) > heads.max_draft_length):
        heads = None  # published for shorter drafts, and for chains
    acceptance = heads.acceptance[1] if heads else Acceptance(acceptance_rate=0.5)
    if case.has_trees:
        acceptance = Acceptance(tokens_per_step=1.0, measured_draft_length=1)
    asked, case = case, replace(case, acceptance=acceptance)
    told = {"max_draft_length": max(draft_length), **case.points}
    shape = at_given_lengths(case, **told, draft_length=1).speedup.shape
    lengths = np.array(draft_length, dtype=float).reshape(-1, *(1,) * len(shape))
    each = at_given_lengths(case, **told, draft_length=lengths)
    has_room = each.fits | ~each.fits.any(axis=0)
    tokens = np.where(each.relative_step_time <= lengths + 1, each.relative_step_time, np.nan)
    least = tokens if case.has_trees else each.break_even_acceptance_rate
    least = np.where(has_room, least, np.nan)
    # lengths that pay at some acceptance; all lengths if none does
    is_never = np.isnan(least).all(axis=0)
    able = has_room & (is_never | ~np.isnan(least))
    asked_of = np.where(able, each.speedup, 0) if heads else -np.nan_to_num(least, nan=np.inf)
    taken = np.array(draft_length, dtype=float)[asked_of.argmax(axis=0)]
    found = at_given_lengths(case, **told, draft_length=taken)
    levels = zip(heads.levels, heads.acceptance, strict=True) if heads else ()
    turned = Turned(
        heads=heads,
        rate_needed=np.where(is_never, np.nan, found.break_even_acceptance_rate),
        tokens_needed=np.where(is_never, np.nan, found.relative_step_time),
        speedups={
            level: np.asarray(kind.expected_tokens_per_step(taken) / found.relative_step_time)
            for level, kind in levels
        },
    )
    # the gain of a mean head does not predict the gain of this head
    return replace(found, case=asked, turned=turned)


def predict_deployed(
    deployment: Deployment,
    assumed: Mapping[str, Any],
    *,
    draft_length: Numeric | None,
    acceptance: Acceptance | Numeric,
    verify_tokens: Numeric | None = None,
    max_draft_length: int | None = None,
    interval: bool = False,
    **others: Unpack[DeployedPoints],
) -> Prediction:
    """Predict a deployment, as `deploy` returns it, at given draft lengths.

    Parameters
    ----------
    deployment, assumed
        What runs where, and the assumptions about it, as `deploy` returns them.
    draft_length, verify_tokens
        Tokens drafted in each step, 0 for none, and tokens verified, by default one more. If the
        draft length is None, each point has its best one, 0 if no draft pays [token].
    acceptance
        An `Acceptance`, or the acceptance rate [-].
    max_draft_length
        Longest draft length to consider, by default the longest of the usual search [token].
    interval
        Whether to add 80 % intervals.
    **others
        Other points: the arguments of `cost.arguments.DeployedPoints`.
    """
    points, told = plain_points(**others)
    assumed = {**assumed, **told}
    block = deployment.drafter.block_size
    if max_draft_length is None:
        most = LONGEST_SEARCHED
        max_draft_length = assumed["max_draft_length"] = min(most, block or most)
    most = speculation.MAX_DRAFT_LENGTH
    longest = check("max_draft_length", max_draft_length, minimum=1, maximum=most, whole=True)
    if not isinstance(acceptance, Acceptance):
        acceptance = Acceptance(acceptance_rate=acceptance)
    if acceptance.source:
        assumed["acceptance"] = acceptance.source
    known = int(min(int(longest), acceptance.max_draft_length, block or int(longest)))
    is_searched = draft_length is None
    if draft_length is None:
        axes = len(_checked_shape(points, acceptance))
        draft_length = lengths_considered(deployment, known, axes)
    gamma = speculation.check_draft_length(draft_length, whole=True)
    tokens = gamma + 1 if verify_tokens is None else _checked_tokens(verify_tokens, gamma)
    points |= {"draft_length": gamma, "verify_tokens": np.asarray(tokens)}
    if not deployment.has_drafter and gamma.any():
        raise InputError("drafter", None, "a drafter, as draft_length is above 0")
    _checked_shape(points, acceptance)
    acceptance = acceptance.measured_at(gamma).at_context(points["context_length"])
    acceptance = acceptance.where_proposed(deployment.drafter.proposal_rate)
    e = evaluate(deployment, points, acceptance, max_draft_length=known)
    if is_searched:
        best = replace(e, chains=e).best_draft_length
        e = replace(e.at_lengths(best), chains=e)
    shown = (*COLUMNS, *LOAD_COLUMNS) if "prompt_length" in points else COLUMNS
    found = Prediction(evaluation=e, assumptions=assumed, shown=shown)
    return with_intervals(found) if interval else found


def with_intervals(prediction: Prediction) -> Prediction:
    """Return a prediction with central 80 % intervals, by a Monte Carlo with a fixed seed."""
    found = central_intervals(prediction.evaluation, columns=prediction.shown)
    return replace(prediction, intervals=found)


def with_known_intervals(prediction: Prediction) -> Prediction:
    """Return a prediction with intervals where errors are known and points are not too many."""
    is_wanted = prediction.states_errors and prediction.speedup.size <= MAX_POINTS
    return with_intervals(prediction) if is_wanted else prediction


def priced(prediction: Prediction, gpu_hour_price: float | None) -> Prediction:
    """Return a prediction with the column `cost_per_million_tokens`; unchanged without a price."""
    if gpu_hour_price is None:
        return prediction
    if prediction.turned:
        raise InputError("gpu_hour_price", gpu_hour_price, NEEDS_ACCEPTANCE)
    price = check("gpu_hour_price", gpu_hour_price, minimum=0, maximum=LARGEST_PRICE)
    gpus = prediction.deployment.layout.num_gpus
    made = next(column.of for column in prediction.shown if column.name == "throughput")
    cost = replace(COST, source=lambda e: cost_per_million_tokens(price, gpus, made(e)))
    return replace(prediction, shown=(*prediction.shown, cost))


def plain_points(
    batch_size: Numeric,
    context_length: Numeric | None = None,
    prompt_length: Numeric | None = None,
    output_length: Numeric | None = None,
    *,
    lockstep: Numeric | None = None,
) -> tuple[dict[str, FloatArray], dict[str, int | str]]:
    """Return the coordinates of points except the draft length, and assumptions on them.

    If lengths of prompts and outputs are given, the assumptions are the mean context of a request
    and the prefills of other requests that its steps carry.
    """
    lengths = dict(zip(LOAD, (prompt_length, output_length), strict=True))
    given = [name for name, value in lengths.items() if value is not None]
    if len(given) == 1:
        missing = next(name for name in LOAD if name not in given)
        raise InputError(missing, None, f"a length, because {given[0]} is given")
    bounds: dict[str, Any] = {"minimum": 1, "maximum": MOST_PROMPT, "whole": True}
    load = {name: check(name, lengths[name], **bounds) for name in given}
    if lockstep is not None and np.any(lockstep):
        if not load:
            raise InputError(LOCKSTEP, True, "This needs `prompt_length` and `output_length`.")
        load[LOCKSTEP] = np.asarray(lockstep, dtype=bool)
    told: dict[str, int | str] = {"carried": MET[LOCKSTEP in load]} if load else {}
    if context_length is None and load:
        mean = np.asarray(load["prompt_length"] + np.floor(load["output_length"] / 2))
        told["context_length"] = int(mean.item()) if mean.size == 1 else "prompt + output / 2"
        context_length = mean
    elif context_length is None:
        context_length = told["context_length"] = DEFAULT_CONTEXT_LENGTH
    points = {
        "batch_size": check("batch_size", batch_size, minimum=1, maximum=MOST, whole=True),
        "context_length": check(
            "context_length", context_length, minimum=0, maximum=MOST, whole=True
        ),
        **load,
    }
    return points, told


def _checked_shape(points: dict[str, FloatArray], acceptance: Acceptance) -> tuple[int, ...]:
    """Return the shape to which points and acceptance broadcast."""
    form, every = acceptance.form, dict[str, Any](points)
    if form not in ONE_FOR_ALL:
        every |= {name: getattr(acceptance, name) for name in (form, "measured_draft_length")}
    try:
        return np.broadcast_shapes(*map(np.shape, every.values()))
    except ValueError:
        varying = {name: np.shape(value) for name, value in every.items() if np.ndim(value)}
        expected = "shapes that broadcast, such as (3, 1) and (4,)"
        raise InputError("shapes", varying, expected) from None


def _checked_tokens(verify_tokens: Numeric, gamma: FloatArray) -> FloatArray:
    tokens = check(
        "verify_tokens", verify_tokens, minimum=1, maximum=MAX_TOKENS_PER_SEQUENCE, whole=True
    )
    refuse_tokens(tokens, (gamma == 0) & (tokens != 1), "1 where draft_length is 0")
    return tokens
