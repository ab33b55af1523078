"""What else decides at the best draft length: memory, and a drafter that stays loaded."""

from dataclasses import dataclass, replace

import numpy as np

from specmodel.base.ranges import among
from specmodel.base.units import FloatArray, format_si
from specmodel.cost.latency import StepTimes
from specmodel.cost.memory import MemoryUse
from specmodel.prediction.cautions import warnings_of
from specmodel.prediction.evaluate import (
    COORDINATES,
    LIMITS,
    Evaluation,
    evaluate,
    lengths_considered,
)
from specmodel.prediction.outcome import Prediction

MEMORY = "memory"
"""What `limited_by` says where a draft would gain, but none fits."""
MORE = 1.01
"""Times the speedup of the best draft that fits, from which a longer one is told [-]."""


@dataclass(frozen=True, eq=False)
class Held:
    """Drafts that would gain more than any that fits in memory, by point.

    `draft_length` is the shortest such, 0 where there is none [token], with its `speedup` [-];
    `memory` is that with it.
    """

    draft_length: FloatArray
    speedup: FloatArray
    memory: MemoryUse


def held_by_memory(evaluation: Evaluation) -> Held | None:
    """Return where memory ends drafts; None without recurrent layers, whose states drafts take."""
    e = evaluation
    if e.deployment.recurrent_model is None or not e.is_chain.all():
        return None
    shape = np.broadcast_shapes(*map(np.shape, _coordinates(e).values()), e.acceptance.shape)
    lengths = lengths_considered(e.deployment, e.max_draft_length, len(shape))
    chains = e.chains or _at_lengths(e, lengths)
    gain, idle = np.broadcast_to(chains.speedup, chains.shape), 1.0
    if e.deployment.runs_idle_drafter:
        idle, gain, lengths = gain[0], gain[1:], lengths[1:]
    memory = MemoryUse(e.deployment, e.points["context_length"], lengths + 1)
    fits = e.points["batch_size"] <= memory.max_batch_size
    best = np.maximum(np.where(fits, gain, 0.0).max(axis=0), e.plain_fits * idle)
    is_more = ~fits & (gain > np.maximum(MORE * best, 1.0)) & (best > 0)
    first = is_more.argmax(axis=0)[None]
    length = np.where(is_more.any(axis=0), lengths.ravel()[first[0]], 0.0)
    return Held(
        draft_length=length,
        speedup=np.take_along_axis(gain, first, axis=0)[0],
        memory=replace(memory, verify_tokens=length + 1),
    )


def _coordinates(e: Evaluation) -> dict[str, FloatArray]:
    return {name: e.points[name] for name in COORDINATES if name in e.points}


def _at_lengths(e: Evaluation, draft_length: FloatArray) -> Evaluation:
    """Return the points of an evaluation of chains with drafts of other lengths."""
    return evaluate(
        e.deployment,
        _coordinates(e) | {"draft_length": draft_length},
        e.acceptance,
        known=e.times if isinstance(e.times, StepTimes) else None,
        max_draft_length=e.max_draft_length,
        prefill=e.prefill,
    )


def at_best(prediction: Prediction) -> Prediction:
    """Return a prediction of all `lengths_considered` at the best of each point.

    It also says what else ends drafts.
    """
    each = prediction.evaluation
    best = replace(each, chains=each).best_draft_length
    found, words = replace(_at_lengths(each, best), chains=each), (*LIMITS, MEMORY)

    def limit(e: Evaluation) -> np.ndarray:
        held = held_by_memory(e)
        is_held = False if held is None else held.draft_length > 0
        return np.where(is_held & (e.points["draft_length"] == 0), words.index(MEMORY), e.limit)

    shown = tuple(
        replace(column, words=words, source=limit) if column.name == "limited_by" else column
        for column in prediction.shown
    )
    return replace(prediction, evaluation=found, shown=shown, warn=_warnings)


def warnings_at_best(prediction: Prediction) -> tuple[str, ...]:
    """Return what the reader must know of the best draft length of each point, not of others."""
    e = prediction.evaluation
    return _warnings(replace(prediction, evaluation=_at_lengths(e, e.best_draft_length)))


def _warnings(prediction: Prediction) -> tuple[str, ...]:
    e = prediction.evaluation
    return (*_of_memory(e), *_of_idle(e), *warnings_of(prediction))


def _of_memory(e: Evaluation) -> list[str]:
    """Say where memory ends drafts, and what it costs where it costs most."""
    held = held_by_memory(e)
    if held is None or not held.draft_length.any():
        return []
    size, length, gain, taken, needed = np.broadcast_arrays(
        e.points["batch_size"],
        held.draft_length,
        held.speedup,
        e.speedup,
        held.memory.total_bytes(e.points["batch_size"]),
    )
    most = np.where(length > 0, gain / taken, 0).argmax()
    held_at, usable = _ranges(size, length > 0), held.memory.capacity_bytes
    at = f"at {size.flat[most]:.0f}, " if np.ptp(size[length > 0]) else ""
    return [
        f"memory ends drafts at batch size {held_at}: {at}draft length {length.flat[most]:.0f}"
        f" would gain {gain.flat[most]:.2f}x, but needs"
        f" {format_si(float(needed.flat[most]), 'B')} of the {format_si(usable, 'B')} that an"
        " engine uses of a GPU"
    ]


def _of_idle(e: Evaluation) -> list[str]:
    """Say where the drafter that stays loaded makes all steps lose, without a draft by what."""
    size, length, gain, draft, host = np.broadcast_arrays(
        e.points["batch_size"],
        e.points["draft_length"],
        e.speedup,
        e.times.draft_time,
        e.times.reject_time,
    )
    fits = size <= e.memory.max_batch_size
    is_losing = (gain < 0.995) & (fits | ~fits.any())
    with_draft = is_losing & (length > 0)
    least = gain.min(where=with_draft, initial=np.inf)
    told = [
        f"at batch size {_ranges(size, with_draft)} the best draft loses, though less than none"
        f" would, as the drafter stays loaded: down to {least:.2f}x, which an engine started"
        " without speculation avoids"
    ] * bool(with_draft.any())
    is_losing &= length == 0
    if not is_losing.any():
        return told
    worst = np.where(is_losing, gain, np.inf).argmin()
    spent = {"its pass": float(draft.flat[worst]), "the host's work": float(host.flat[worst])}
    parts = [
        f"{words} {format_si(time, 's')}"
        for words, time in spent.items()
        if time > 0.1 * sum(spent.values())
    ]
    return [
        f"at batch size {_ranges(size, is_losing)} nothing is drafted, and the drafter, which stays"
        f" loaded, takes its time in each step all the same ({' and '.join(parts)}): down to"
        f" {gain.flat[worst]:.2f}x, which an engine started without speculation avoids",
        *told,
    ]


def _ranges(size: FloatArray, holds: np.ndarray) -> str:
    """Return the batch sizes of points where something holds, neighbours together."""
    return among(map(int, size.flat), map(int, size[holds]))
