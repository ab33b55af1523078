"""Times of steps at many points, in blocks that fit in a cache.

Only the components that read the KV cache depend on contexts. All others depend on the numbers of
requests and tokens, of which many points have few distinct pairs. Each pair is timed once. Then the
components that depend on contexts are timed block by block.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from specmodel.core.base.units import FloatArray, check
from specmodel.core.cost.deployment import Deployment
from specmodel.core.cost.latency import (
    KnownPasses,
    decode_pass,
    drafting_pass,
    sequences_of,
    step_times,
    target_pass,
)
from specmodel.core.cost.passes import PassTime
from specmodel.core.cost.steps import DraftTime, StepTimes, step_of
from specmodel.core.layers.batch import LONGEST_DECODE, SequenceGroup

BLOCK = 2**15
"""Points that are computed at a time [-]: their arrays fit in a cache, and Python's own work takes
little of the time."""

MANY, MOST = 2**12, 2**19
"""Points from which times are computed in blocks: counted without contexts, and with them [-]."""

TOTALS = ("forward_time", "verify_time", "draft_time", "reject_time", "step_time")
"""Times of a step that are kept for all points."""

_OF_PASSES = ("batch_size", "draft_length", "verify_tokens")
"""Coordinates of a step other than its context."""

_OF_DRAFTS = ("tokens_per_sequence", "count", "logits_per_sequence")
_OF_STEPS = ("draft_length", "is_tree", "proposing", "chance", "lookup_time")
"""Fields of `DraftPasses` and of `Step` that do not depend on contexts."""

_MOST_DISTINCT = 0.5
"""Largest share of distinct points at which they are timed separately [-]."""

_MOST_CODES = 2**24
"""Largest table in which distinct points are found [-]."""

Points = Mapping[str, FloatArray]


class Cuts(Struct, frozen=True, dict=True):
    """Blocks of points of a shape, cut along its longest axis."""

    shape: tuple[int, ...]

    @cached_property
    def axis(self) -> int:
        """The axis that is cut, counted from the last, which is 1 [-]."""
        return len(self.shape) - int(np.argmax(self.shape))

    def __iter__(self) -> Iterator[slice]:
        size = max(self.shape)
        count = -(-math.prod(self.shape) // BLOCK)
        step = -(-size // min(count, size))
        return (slice(start, min(start + step, size)) for start in range(0, size, step))

    def cut(self, array: FloatArray, block: slice) -> FloatArray:
        """Return the part of an array, which broadcasts with the shape, that is in a block."""
        if np.ndim(array) < self.axis or array.shape[-self.axis] == 1:
            return array
        places: Any = (..., block, *(slice(None),) * (self.axis - 1))
        return np.asarray(array[places])

    def whole(self, of_block: Callable[[slice], dict[str, FloatArray]]) -> dict[str, FloatArray]:
        """Return arrays of all points by name; `of_block` returns the arrays of a block."""
        found: dict[str, FloatArray] = {}
        for block in self:
            for name, part in of_block(block).items():
                if name not in found:
                    missing = (1,) * (self.axis - np.ndim(part))
                    shape = [*missing, *np.shape(part)]
                    shape[-self.axis] = max(self.shape)
                    found[name] = np.empty(shape, np.asarray(part).dtype)
                self.cut(found[name], block)[...] = part
        return found


class Distinct(Struct, frozen=True, eq=False):
    """Distinct points of a step, without contexts, and the index of each point among them."""

    points: Points
    shape: tuple[int, ...]
    places: np.ndarray | None = None  # None if all points are distinct

    def all(self, array: FloatArray) -> FloatArray:
        """Return the values at all points, given those at the distinct points."""
        return array if self.places is None else np.broadcast_to(array, self.shape)[self.places]

    def cut(self, array: Any, cuts: Cuts, block: slice) -> Any:
        """Return the values at the points of a block, given those at the distinct points."""
        if self.places is None or not np.ndim(array):
            return cuts.cut(array, block)
        if (array == array.flat[0]).all():  # one number is faster than an array
            return np.asarray(array.flat[0])
        return np.broadcast_to(array, self.shape).take(self.places[block], mode="clip")


def distinct(points: Points) -> Distinct:
    """Return the distinct points of a step, or all points if few of them are alike."""
    own = {name: np.asarray(points[name]) for name in _OF_PASSES}
    shape = np.broadcast_shapes(*(array.shape for array in own.values()))
    if len(shape) != 1 or shape[0] <= MANY:
        return Distinct(own, shape)
    lows = [array.min() for array in own.values()]
    counts = [int(array.max() - low) + 1 for array, low in zip(own.values(), lows, strict=True)]
    are_whole = all((array == np.floor(array)).all() for array in own.values())
    if math.prod(counts) > _MOST_CODES or not are_whole:
        return Distinct(own, shape)
    digits = [(array - low).astype(int) for array, low in zip(own.values(), lows, strict=True)]
    codes = np.ravel_multi_index(np.broadcast_arrays(*digits), counts)
    is_there = np.zeros(math.prod(counts), dtype=bool)
    is_there[codes] = True
    each = np.flatnonzero(is_there)
    if len(each) > _MOST_DISTINCT * shape[0]:
        return Distinct(own, shape)
    few = zip(own, lows, np.unravel_index(each, counts), strict=True)
    points = {name: low + digit for name, low, digit in few}
    return Distinct(points, each.shape, (np.cumsum(is_there) - 1)[codes])


class BlockedTimes(Struct, frozen=True, eq=False, dict=True):
    """Times of steps as `StepTimes` has them, computed in blocks of many points.

    `points` contains the arguments of `step_times` by name. `plain` contains the requests of the
    decode step, if steps with a draft run other numbers of requests [request].
    """

    deployment: Deployment
    points: Mapping[str, FloatArray]
    plain: FloatArray | None = None

    @cached_property
    def _cuts(self) -> Cuts:
        return Cuts(np.broadcast_shapes(*map(np.shape, self.points.values())))

    @cached_property
    def _distinct(self) -> Distinct:
        return distinct(self.points)

    @cached_property
    def _free(self) -> StepTimes:
        """Times of the components that do not depend on contexts, at the distinct points."""
        points: Any = self._distinct.points
        return step_times(self.deployment, **points, context_length=np.zeros(()), only="free")

    def _of_blocks(self, of: Callable[[StepTimes], dict[str, FloatArray]]) -> dict[str, FloatArray]:
        """Return arrays of all points; `of` computes them from the times of a block."""
        return self._cuts.whole(lambda block: of(self._timed(lambda a: self._cuts.cut(a, block))))

    def _timed(self, cut: Callable[[FloatArray], FloatArray]) -> StepTimes:
        """Return the times at some points; `cut` selects them from an array of all points."""
        own: Any = {name: cut(array) for name, array in self.points.items()}
        if self.plain is None:
            return step_times(self.deployment, **own)
        plain = SequenceGroup(batch_size=cut(self.plain), context_length=own["context_length"])
        known = KnownPasses(decode_pass(self.deployment, plain, plain.batch_size))
        return step_times(self.deployment, **own, known=known)

    @cached_property
    def _totals(self) -> dict[str, FloatArray]:
        is_prompt = self.points["verify_tokens"].max() >= LONGEST_DECODE / 2
        if is_prompt or self.plain is not None:
            return self._of_blocks(_totals)  # launches, or requests, depend on contexts
        return self._cuts.whole(self._totals_of)

    def _totals_of(self, block: slice) -> dict[str, FloatArray]:
        """Return the `TOTALS` of a block [s].

        Only components that depend on contexts are computed here. The others are in `_free`.
        """
        d, free = self.deployment, self._free
        own = {name: self._cuts.cut(array, block) for name, array in self.points.items()}
        context = check("context_length", own["context_length"], minimum=0)
        plain, verified = sequences_of(d, own["batch_size"], own["verify_tokens"], context)

        def cut(value: Any) -> Any:
            return self._distinct.cut(value, self._cuts, block)

        def joined(time: PassTime, rest: PassTime) -> PassTime:
            beside, host = cut(rest.gpu_time), cut(rest.host_time)
            return replace(time, beside=beside, host_time=host, launch_time=cut(rest.launch_time))

        def drafted(part: DraftTime) -> DraftTime:
            taken = {name: cut(getattr(part.passes, name)) for name in _OF_DRAFTS}
            passes = replace(part.passes, **taken)
            return DraftTime(passes, joined(drafting_pass(d, passes, plain, "contexts"), part.each))

        whole = step_of(
            joined(target_pass(d, plain, "contexts"), free.plain_pass),
            joined(target_pass(d, verified, "contexts"), free.verify_pass),
            tuple(map(drafted, free.draft_passes)),
            replace(free.step, **{name: cut(getattr(free.step, name)) for name in _OF_STEPS}),
            free.engine,
        )
        return _totals(whole)

    @property
    def active_experts(self) -> FloatArray:
        """Distinct experts per layer in a decode step [-]."""
        return self._experts("active_experts")

    @property
    def active_experts_verify(self) -> FloatArray:
        """Distinct experts per layer in the mean target pass of a step [-]."""
        return self._experts("active_experts_verify")

    def _experts(self, name: str) -> FloatArray:
        if self.plain is not None:
            return self._of_blocks(lambda times: {name: getattr(times, name)})[name]
        return self._distinct.all(getattr(self._free, name))

    def growth_by_cause(self) -> dict[str, FloatArray]:
        """Return the time of steps beyond a decode step, by cause, with an exact sum [s]."""
        return self._of_blocks(StepTimes.growth_by_cause)

    def plain_by_cause(self) -> dict[str, FloatArray]:
        """Return the time of decode steps, by cause [s]."""
        return self._of_blocks(StepTimes.plain_by_cause)

    @cached_property
    def _whole(self) -> StepTimes:
        return self._timed(np.asarray)

    def __getattr__(self, name: str) -> Any:
        return self._totals[name] if name in TOTALS else getattr(self._whole, name)


def _totals(times: StepTimes) -> dict[str, FloatArray]:
    return {name: getattr(times, name) for name in TOTALS}
