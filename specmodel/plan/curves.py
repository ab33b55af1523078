"""Find the points of a prediction where speculation pays: curves, break-even, comparisons."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from specmodel.core.algebra.experts import active_experts, correlated_active_experts
from specmodel.core.algebra.speculation import break_even_acceptance_rate
from specmodel.core.base.errors import InputError, refuse_given
from specmodel.core.base.ranges import ranges_text, spans
from specmodel.core.base.units import Numeric, check, rows_of
from specmodel.core.drafters.measured_heads import published_head_of
from specmodel.core.drafters.tasks import MIXED, MIXTURE
from specmodel.core.prediction.accepted import kind_of, published_or_none
from specmodel.core.prediction.case import Case
from specmodel.core.prediction.gains import peak_at
from specmodel.core.prediction.outcome import Prediction
from specmodel.core.prediction.predicting import predicted
from specmodel.core.prediction.table import Row

if TYPE_CHECKING:
    import pandas as pd

_UNIONS = Path(__file__).parent / "data/expert_unions.csv"
"""Measured numbers of experts that several tokens load, for published models."""
_CONTEXTS = tuple(1024 * 2**i for i in range(9))
"""Contexts to try, up to the longest that a model supports [token]."""
_COORDINATES = ("batch_size", "context_length", "draft_length")


class SweetSpot(Struct, frozen=True, kw_only=True):
    """The batch sizes where speculation pays.

    Parameters
    ----------
    peak_batch_size, peak_speedup
        The batch size with the largest speedup, and that speedup [request] [-].
    paying, near_peak
        First and last batch size of each range with a speedup above 1, and of the range around the
        peak whose speedup is at least the peak's over √2, as in MoESD [request].
    """

    peak_batch_size: int
    peak_speedup: float
    paying: tuple[tuple[int, int], ...]
    near_peak: tuple[int, int]


def sweet_spot(batch_size: Numeric, speedup: Numeric) -> SweetSpot:
    """Return the ranges where a curve pays, and its peak: B_min and B_max in MoESD, section 3.2.

    Parameters
    ----------
    batch_size, speedup
        Ascending batch sizes [request], and the speedup at each of them [-]. Ranges end at these
        sizes. Of several equal peaks, the first counts.

    Examples
    --------
    >>> sweet_spot([1, 2, 4, 8, 16, 32], [1.1, 0.9, 1.2, 2.0, 1.5, 0.8])
    SweetSpot(peak_batch_size=8, peak_speedup=2.0, paying=((1, 1), (4, 16)), near_peak=(8, 16))
    """
    B = np.atleast_1d(check("batch_size", batch_size, minimum=1, whole=True))
    gain = np.atleast_1d(check("speedup", speedup, above=0))
    if B.ndim != 1 or B.shape != gain.shape:
        raise InputError("speedup", f"shape {gain.shape}", f"one for each of {B.size} batch sizes")
    if (np.diff(B) <= 0).any():
        raise InputError("batch_size", B.tolist(), "batch sizes in rising order, each once")
    sizes, peak = B.astype(int).tolist(), int(B[gain.argmax()])
    near = spans(sizes, (gain >= gain.max() / np.sqrt(2)).tolist())
    return SweetSpot(
        peak_batch_size=peak,
        peak_speedup=float(gain.max()),
        paying=tuple(spans(sizes, (gain > 1).tolist())),
        near_peak=next(ends for ends in near if ends[0] <= peak <= ends[1]),
    )


def sweet_spots(prediction: Prediction) -> pd.DataFrame:
    """Return the sweet spot of each curve over the batch size.

    Parameters
    ----------
    prediction
        Points with ascending batch sizes along one axis, at one draft length or at the best draft
        length of each point. Points that do not fit in memory are ignored, unless none fits.

    Returns
    -------
    pandas.DataFrame
        A row for each curve: draft_length and tokens_per_step (at the peak if they vary),
        context_length, peak_batch_size, peak_speedup, paying (as text), near_peak_first,
        near_peak_last, and largest_batch_size, the last one considered.

    Examples
    --------
    >>> from specmodel import predict
    >>> p = predict(target="qwen3-30b-a3b", hardware="h200_sxm", drafter="eagle", acceptance=0.7,
    ...             batch_size=range(1, 257), draft_length=[[1], [3]], stack="datasheet")
    >>> sweet_spots(p)[["draft_length", "peak_batch_size"]].values.tolist()
    [[1, 54], [3, 61]]
    """
    import pandas as pd

    return pd.DataFrame(map(_spot_of, curves_of(prediction)))


def curves_of(prediction: Prediction) -> list[list[Row]]:
    """Return the points of each curve over the batch size: those that fit, or all if none fits."""
    is_at_best = np.array_equal(prediction.draft_length, prediction.best_draft_length)
    others = ("context_length", "draft_length")[: 1 if is_at_best else 2]
    axis, shape = _axis(prediction, others), prediction.batch_size.shape
    places = np.arange(prediction.batch_size.size).reshape(*shape, *[1] * (axis == len(shape)))
    along = np.moveaxis(places, axis, -1)
    rows = prediction.rows()
    curves = [[rows[i] for i in line] for line in along.reshape(-1, along.shape[-1]).tolist()]
    return [[row for row in curve if row["fits"]] or curve for curve in curves]


def _spot_of(curve: Sequence[Row]) -> Row:
    """Return the sweet spot of a curve as a row of `sweet_spots`."""
    spot = sweet_spot(*([row[name] for row in curve] for name in ("batch_size", "speedup")))
    peak = next(row for row in curve if row["batch_size"] == spot.peak_batch_size)
    return {
        **{name: peak[name] for name in ("draft_length", "context_length", "tokens_per_step")},
        "peak_batch_size": spot.peak_batch_size,
        "peak_speedup": spot.peak_speedup,
        "paying": ranges_text(spot.paying),
        "near_peak_first": spot.near_peak[0],
        "near_peak_last": spot.near_peak[1],
        "largest_batch_size": curve[-1]["batch_size"],
    }


def easiest_points(rows: Iterable[Row], rate: str) -> list[Row]:
    """Return the row with the least `rate` at each batch size and context, the least rate first."""
    least = dict[tuple[int, int], Row]()
    for row in sorted(rows, key=lambda row: (row[rate] is None, row[rate] or 0.0)):
        least.setdefault((row["batch_size"], row["context_length"]), row)
    return [*least.values()]


def published_tokens(prediction: Prediction, length: int) -> tuple[float, str]:
    """Return the published tokens per step of the target and drafter, and the source; 0 if none."""
    named = prediction.case.where.head if prediction.case else ""
    found = published_or_none(prediction.deployment, named)
    if found is None or length > found.max_draft_length:
        return 0.0, ""
    return float(found.expected_tokens_per_step(length)), found.source


def spot_with_ends(curve: list[Row], prediction: Prediction) -> Row:
    """Return the sweet spot of a curve, with 80 % intervals of its peak if errors are known."""
    spot = _spot_of(curve)
    if not prediction.intervals:
        return spot
    (peak,) = (row for row in curve if row["batch_size"] == spot["peak_batch_size"])
    surely = (bool(row["draft_length"]) and row["speedup_low"] > 1 for row in curve)
    at_low, at_high = peak_at(prediction, [row for row in curve if row["draft_length"]])
    return spot | {
        "peak_batch_size_low": at_low,
        "peak_batch_size_high": at_high,
        "peak_speedup_low": peak["speedup_low"],
        "peak_speedup_high": peak["speedup_high"],
        "surely_paying": ranges_text(spans([row["batch_size"] for row in curve], surely)),
    }


def break_even(prediction: Prediction) -> pd.DataFrame:
    """Return the acceptance rate from which speculation pays at each point.

    It depends on times alone.

    Parameters
    ----------
    prediction
        The points. Their acceptance has no effect, unless it is by context.

    Returns
    -------
    pandas.DataFrame
        A row for each point: batch_size, context_length, draft_length, break_even_acceptance_rate
        and break_even_tokens_per_step, NaN if no rate pays; speedup_per_token, the speedup that one
        more token per step adds; max_graph_batch_size, missing without a limit; and fits, whether
        the point fits in memory. With intervals and no prefill also sure_acceptance_rate and
        sure_tokens_per_step, from which the whole 80 % interval of the speedup is above 1, NaN if
        no rate suffices. With acceptance by context also tokens_per_step and speedup.

    Examples
    --------
    >>> from specmodel import predict
    >>> p = predict(target="mixtral-8x7b", hardware="h100_sxm", drafter="ngram", acceptance=0,
    ...             batch_size=[1, 64], draft_length=1, context_length=0, stack="datasheet",
    ...             routing_correlation=0)
    >>> break_even(p)["break_even_acceptance_rate"].round(2).tolist()
    [0.61, 0.1]
    """
    import pandas as pd

    rows = break_even_rows(prediction)
    ends = ("_acceptance_rate", "_tokens_per_step", "graph_batch_size")
    numbers = [name for name in rows[0] if name.endswith(ends)]
    return pd.DataFrame(rows).astype(dict.fromkeys(numbers, float))


def break_even_rows(prediction: Prediction) -> list[Row]:
    """Return the table of `break_even` as plain rows, with None if no rate pays."""
    p = prediction
    found: dict[str, Any] = {name: getattr(p, name).astype(int) for name in _COORDINATES}
    least = p.break_even_acceptance_rate
    needed = {"break_even": (least, p.relative_step_time)}
    if p.intervals and p.evaluation.prefill is None:  # prefill depends on acceptance
        cost = p.tokens_per_step / p.intervals["speedup"].low
        rate = p.deployment.drafter.proposal_rate
        sure = break_even_acceptance_rate(cost, p.draft_length, rate)
        needed["sure"] = np.where(np.isnan(least), np.nan, sure), cost
    for name, (rates, tokens) in needed.items():
        for unit, values in (("acceptance_rate", rates), ("tokens_per_step", tokens)):
            found[f"{name}_{unit}"] = np.where(np.isnan(rates), np.array(None), values)
    found["speedup_per_token"] = 1 / p.relative_step_time
    if p.evaluation.acceptance.measured_by_context:
        found |= {"tokens_per_step": p.tokens_per_step, "speedup": p.speedup}
    graphs = p.max_graph_batch_size
    found["max_graph_batch_size"] = np.where(np.isnan(graphs), np.array(None), graphs)
    found["fits"] = p.fits
    return [*{tuple(row.values()): row for row in rows_of(found)}.values()]


def compare(predictions: Mapping[str, Prediction]) -> pd.DataFrame:
    """Return a table of alternatives and their gains at the predicted draft lengths.

    Parameters
    ----------
    predictions
        Predictions by the name of the alternative (other drafters, GPUs, targets or engines).

    Returns
    -------
    pandas.DataFrame
        A row for each alternative and point: alternative, batch_size, context_length,
        best_draft_length; speedup, target_efficiency, tpot, throughput and limited_by with this
        length; tpot_plain and throughput_plain without speculation; fits, throughput_per_gpu,
        max_graph_batch_size and max_graph_batch_size_plain; with intervals speedup_low and
        speedup_high, None if nothing is drafted.
    """
    import pandas as pd

    return pd.DataFrame(compared_rows(predictions))


def compared_rows(predictions: Mapping[str, Prediction]) -> list[Row]:
    """Return the table of `compare` as plain rows."""
    if not predictions:
        raise InputError("predictions", None, "at least one alternative")
    rows: list[Row] = []
    for name, p in predictions.items():
        columns: dict[str, Any] = {
            "batch_size": p.batch_size.astype(int),
            "context_length": p.context_length.astype(int),
            "best_draft_length": p.draft_length.astype(int),
            "speedup": p.speedup,
            "target_efficiency": p.target_efficiency,
            "tpot": p.tpot,
            "throughput": p.batch_size / p.tpot,
            "limited_by": p.limited_by,
            "tpot_plain": p.forward_time,
            "throughput_plain": p.batch_size / p.forward_time,
            "fits": p.fits,
            "throughput_per_gpu": p.batch_size / p.tpot / p.deployment.layout.num_gpus,
            "max_graph_batch_size": p.max_graph_batch_size,
            "max_graph_batch_size_plain": p.max_graph_batch_size_plain,
        }
        if all(each.intervals for each in predictions.values()):
            gain, none = (p.intervals or {})["speedup"], np.array(None)
            columns["speedup_low"] = np.where(p.draft_length > 0, gain.low, none)
            columns["speedup_high"] = np.where(p.draft_length > 0, gain.high, none)
        rows += [{"alternative": name} | row for row in rows_of(columns)]
    return rows


def _axis(prediction: Prediction, others: Sequence[str]) -> int:
    """Return the axis along which the batch size varies; refuse others that vary along it."""
    values = prediction.batch_size
    axes = [axis for axis in range(values.ndim) if np.ptp(values, axis=axis).any()]
    if len(axes) > 1:
        expected = "a prediction with batch_size along one axis"
        raise InputError("batch_size", f"shape {values.shape}", expected)
    for other in others:
        if axes and np.ptp(getattr(prediction, other), axis=axes[0]).any():
            expected = f"a prediction with {other} and batch_size along different axes"
            raise InputError(other, f"shape {values.shape}", expected)
    return axes[0] if axes else values.ndim


def measured_unions() -> pd.DataFrame:
    """Return a table of experts loaded per layer, by model and number of tokens [-].

    Its columns have the measured number, the one by the law of correlated tokens, and the one of
    independent tokens.
    """
    import pandas as pd

    published = pd.read_csv(_UNIONS, comment="#")
    shape = ["num_experts", "experts_per_token", "routing_correlation"]
    tokens = pd.DataFrame({"tokens": np.arange(1, published["tokens"].max() + 1)})
    models = published[["model", *shape]].drop_duplicates().merge(tokens, how="cross")
    measured = published.rename(columns={"active_experts": "measured"})
    table = models.merge(measured[["model", "tokens", "measured"]], how="left")
    t, E, k, correlation = (table[name].to_numpy() for name in ("tokens", *shape))
    law = correlated_active_experts(1, t, E, k, correlation)
    return table.assign(law=law, independent=active_experts(t, E, k))


def cases_by_task(case: Case) -> dict[str, Case]:
    """Return the case with published acceptance on each kind of task, and on their mixture."""
    given = {**case.accepted.form, "task": case.accepted.task}
    refuse_given(given, given, "Each kind of task has its own acceptance. Remove this one.")
    if published_head_of(case.deployment.target.name, kind_of(case.deployment)) is None:
        expected = "a target and drafter with published acceptance (`list_acceptance()`)"
        raise InputError("view", "tasks", expected)
    return {task: case.on_task(task) for task in (*MIXED, MIXTURE)}


def ends_at_context(case: Case) -> list[int | None]:
    """Return the first context at which no draft pays, by batch size; None if drafts always pay."""
    longest = case.deployment.target.max_context_length or _CONTEXTS[-1]
    contexts = [context for context in _CONTEXTS if context <= longest]
    points = {**case.points, "context_length": np.array(contexts)[:, np.newaxis]}
    points["batch_size"] = np.ravel(case.points["batch_size"])
    stops = predicted(replace(case, points=points)).speedup <= 1
    return [contexts[own.argmax()] if own.any() else None for own in stops.T]
