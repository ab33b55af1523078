"""Answers along one axis of a prediction: where speculation pays, with which draft length."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from specmodel.base.errors import InputError
from specmodel.base.ranges import ranges_text, runs
from specmodel.base.units import Numeric, check
from specmodel.prediction.outcome import Prediction

if TYPE_CHECKING:
    import pandas as pd

_COORDINATES = ("batch_size", "draft_length", "context_length")


@dataclass(frozen=True, kw_only=True)
class SweetSpot:
    """The batch sizes where speculation pays.

    Parameters
    ----------
    peak_batch_size, peak_speedup
        Where it pays most, and how much there [request] [-].
    paying
        First and last batch size of each run of neighbours whose speedup is above 1 [request].
    near_peak
        First and last of the run around the peak whose speedup is above the peak's over √2,
        MoESD's range of batch sizes [request].
    """

    peak_batch_size: int
    peak_speedup: float
    paying: tuple[tuple[int, int], ...]
    near_peak: tuple[int, int]


def sweet_spot(batch_size: Numeric, speedup: Numeric) -> SweetSpot:
    """Return where on a curve speculation pays.

    Parameters
    ----------
    batch_size
        Rising; the ends of ranges are as fine as these [request].
    speedup
        One for each [-].

    Returns
    -------
    SweetSpot
        Of the first of equal peaks.

    Raises
    ------
    InputError
        If the batch sizes do not rise or the lengths differ.

    Notes
    -----
    Section 3.2 of MoESD, B_min and B_max.

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
        raise InputError("batch_size", B.tolist(), "rising numbers")
    peak = int(gain.argmax())
    near = next(run for run in _runs(gain >= gain[peak] / np.sqrt(2)) if run[0] <= peak <= run[1])
    return SweetSpot(
        peak_batch_size=int(B[peak]),
        peak_speedup=float(gain[peak]),
        paying=tuple((int(B[i]), int(B[j])) for i, j in _runs(gain > 1)),
        near_peak=(int(B[near[0]]), int(B[near[1]])),
    )


def sweet_spots(prediction: Prediction) -> pd.DataFrame:
    """Return the sweet spot of each curve over the batch size.

    Parameters
    ----------
    prediction
        With an axis of rising batch sizes. Those that do not fit in memory are left out where
        any fits.

    Returns
    -------
    pandas.DataFrame
        A row a curve: draft_length, context_length, tokens_per_step, peak_batch_size,
        peak_speedup, paying (as text), near_peak_first, near_peak_last, and largest_batch_size,
        the last that was considered.

    Examples
    --------
    >>> from specmodel import predict
    >>> p = predict(target="qwen3-30b-a3b", hardware="h200_sxm", drafter="eagle", acceptance=0.7,
    ...             batch_size=range(1, 257), draft_length=[[1], [3]], stack="datasheet")
    >>> sweet_spots(p)[["draft_length", "peak_batch_size"]].values.tolist()
    [[1, 85], [3, 64]]
    """
    import pandas as pd

    axis = _axis(prediction, "batch_size")
    names = ("batch_size", "speedup", "draft_length", "context_length", "tokens_per_step")
    curves = {name: _last(getattr(prediction, name), axis) for name in names}
    most = _last(prediction.max_batch_size, axis)
    rows = []
    for i in range(len(most)):
        batch = curves["batch_size"][i]
        kept = batch <= most[i].max()
        if not kept.any():
            kept[:] = True
        spot = sweet_spot(batch[kept], curves["speedup"][i][kept])
        rows.append(
            {
                "draft_length": int(curves["draft_length"][i][0]),
                "context_length": int(curves["context_length"][i][0]),
                "tokens_per_step": float(curves["tokens_per_step"][i][0]),
                "peak_batch_size": spot.peak_batch_size,
                "peak_speedup": spot.peak_speedup,
                "paying": ranges_text(spot.paying),
                "near_peak_first": spot.near_peak[0],
                "near_peak_last": spot.near_peak[1],
                "largest_batch_size": int(batch[kept][-1]),
            }
        )
    return pd.DataFrame(rows)


def best_draft_lengths(prediction: Prediction) -> pd.DataFrame:
    """Return the draft length with the largest speedup at each other coordinate.

    Parameters
    ----------
    prediction
        With an axis of draft lengths; 0 is always considered.

    Returns
    -------
    pandas.DataFrame
        A row a point: batch_size, context_length, best_draft_length, and what it gives: speedup,
        tpot, throughput, and limited_by; tpot_plain and throughput_plain without speculation;
        fits, whether it does in memory.

    Examples
    --------
    >>> from specmodel import predict
    >>> p = predict(target="mixtral-8x7b", hardware="h100_sxm", drafter="ngram", acceptance=0.5,
    ...             batch_size=[1, 8, 64], draft_length=[[1], [2], [3]], tensor_parallel=2)
    >>> best_draft_lengths(p)["best_draft_length"].tolist()
    [1, 3, 3]
    """
    import pandas as pd

    axis = _axis(prediction, "draft_length")
    speedup = _last(prediction.speedup, axis)
    best = np.where(_last(prediction.draft_length, axis) > 0, speedup, 1.0).argmax(axis=1)

    def taken(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.take_along_axis(_last(values, axis), best[:, None], axis=1)[:, 0]

    pays = taken(prediction.speedup) > 1
    B, forward = taken(prediction.batch_size), taken(prediction.forward_time)
    return pd.DataFrame(
        {
            "batch_size": B.astype(int),
            "context_length": taken(prediction.context_length).astype(int),
            "best_draft_length": np.where(pays, taken(prediction.draft_length), 0).astype(int),
            "speedup": np.where(pays, taken(prediction.speedup), 1.0),
            "tpot": np.where(pays, taken(prediction.tpot), forward),
            "throughput": np.where(pays, taken(prediction.throughput), B / forward),
            "limited_by": np.where(pays, taken(prediction.limited_by), "none"),
            "tpot_plain": forward,
            "throughput_plain": B / forward,
            "fits": taken(prediction.max_batch_size) >= B,
        }
    )


def break_even(prediction: Prediction) -> pd.DataFrame:
    """Return the acceptance rate from which speculation pays, whatever rate was predicted with.

    Parameters
    ----------
    prediction
        Its points.

    Returns
    -------
    pandas.DataFrame
        A row a point: batch_size, context_length, draft_length, break_even_acceptance_rate, NaN
        where no rate pays, and fits, whether it does in memory.

    Examples
    --------
    >>> from specmodel import predict
    >>> p = predict(target="mixtral-8x7b", hardware="h100_sxm", drafter="ngram", acceptance=0,
    ...             batch_size=[1, 64], draft_length=1, context_length=0, stack="datasheet",
    ...             routing_correlation=0)
    >>> break_even(p)["break_even_acceptance_rate"].round(2).tolist()
    [0.66, 0.01]
    """
    import pandas as pd

    whole = ("batch_size", "context_length", "draft_length")
    columns = {name: np.ravel(getattr(prediction, name)).astype(int) for name in whole}
    rate = np.ravel(prediction.break_even_acceptance_rate)
    fits = np.ravel(prediction.max_batch_size) >= columns["batch_size"]
    frame = pd.DataFrame(columns | {"break_even_acceptance_rate": rate, "fits": fits})
    return frame.drop_duplicates(ignore_index=True)


def compare(predictions: Mapping[str, Prediction]) -> pd.DataFrame:
    """Return alternatives side by side, each with its best draft length.

    Parameters
    ----------
    predictions
        By the name of the alternative, each with an axis of draft lengths: other drafters, GPUs,
        targets or engines, with the acceptance of each.

    Returns
    -------
    pandas.DataFrame
        Rows of `best_draft_lengths`, with the columns alternative and throughput_per_gpu in
        front and behind.

    Raises
    ------
    InputError
        If there is nothing to compare.
    """
    import pandas as pd

    if not predictions:
        raise InputError("predictions", None, "at least one alternative")
    frames = []
    for name, prediction in predictions.items():
        frame = best_draft_lengths(prediction)
        frame.insert(0, "alternative", name)
        frame["throughput_per_gpu"] = frame["throughput"] / prediction.deployment.layout.num_gpus
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def _runs(flags: np.ndarray[Any, np.dtype[np.bool_]]) -> list[tuple[int, int]]:
    """Return first and last place of each run of neighbours that hold."""
    return [(first, last) for first, last, holds in runs(flags.tolist()) if holds]


def _axis(prediction: Prediction, name: str) -> int | None:
    """Return the axis that the values run along; None where there is only one value."""
    values = getattr(prediction, name)
    axes = [axis for axis in range(values.ndim) if np.ptp(values, axis=axis).any()]
    if len(axes) > 1:
        expected = f"a prediction with {name} along one axis"
        raise InputError(name, f"shape {prediction.speedup.shape}", expected)
    for other in {*_COORDINATES} - {name}:
        if axes and np.ptp(getattr(prediction, other), axis=axes[0]).any():
            expected = f"a prediction with {other} along another axis than {name}"
            raise InputError(other, f"shape {prediction.speedup.shape}", expected)
    return axes[0] if axes else None


def _last(values: np.ndarray[Any, Any], axis: int | None) -> np.ndarray[Any, Any]:
    """Return a column as curves along an axis, one a row."""
    moved = values[..., None] if axis is None else np.moveaxis(values, axis, -1)
    return moved.reshape(-1, moved.shape[-1])
