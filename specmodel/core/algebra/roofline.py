"""Time of kernels from FLOPs and bytes: the roofline and what bends it."""

from functools import cached_property
from typing import TypeAlias

import numpy as np
from msgspec import Struct

from specmodel.core.base.units import FloatArray

SHARPNESS = 8.0
"""Exponent p of the smooth roofline where none was fitted [-]. At the ridge point, where both times
are equal, it gives ``2^(1/8)`` of the textbook's time, 9 % more."""

_BENDING = (
    *("group_time", "tile_rows", "tile_width", "reread_rows", "result_terms"),
    *("ramp_time", "depth_time", "vector_rows", "vector_rereads"),
)

Value: TypeAlias = FloatArray | float
"""A number, or an array of them."""

_TINY = float(np.finfo(float).tiny)
_FEWEST = 1e-9


class KernelParameters(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """How well kernels of one kind use a GPU; the defaults are the data sheet.

    Each is a number, or an array of draws that broadcasts with the points.

    Parameters
    ----------
    launch_time, group_time
        Added for each kernel, and for each independent group, such as an expert, that work falls
        into [s].
    memory_efficiency, compute_efficiency
        Achieved over peak, of streaming weights or KV and of arithmetic; the latter is above 1
        where the peak is that of other kernels: those that convert to a wider dtype are faster on
        a CPU without instructions for the narrow one [-].
    activation_efficiency
        Achieved over peak bandwidth of activations, whose time then adds to the rest; above 1 where
        they stay in cache; None if they stream with the weights [-].
    sharpness
        Exponent of `smooth_maximum` [-].
    tile_rows, tile_growth
        Arithmetic on r rows of a matrix takes as long as on ``(r^2 + (tile_rows r^g)^2)^(1/2)``
        rows. Kernels pad rows to whole tiles: few rows cost a tile, many nearly their number [-].
    tile_width
        Reading a matrix of width w takes as long as one ``(w^2 + tile_width^2)^(1/2)`` wide [-].
    reread_rows
        A matrix is read once more for each row beyond the first, at most for so many: few rows are
        multiplied one by one, more of them together, once the matrix is laid out anew [-].
    result_terms
        Each result of a product takes as long as so many further terms of its sum [-].
    ramp_time
        Reads much shorter than this take twice their time, much longer ones this much more [s].
    depth_time, depth_limit
        A product whose results each sum over d terms takes at least
        ``depth_time d / (1 + d / depth_limit)``: a kernel walks the depth step by step, however
        small the product; kernels that cut it into parts walk at most `depth_limit` [s] [-].
    vector_rows, vector_memory_efficiency, vector_compute_efficiency
        Up to so many rows other kernels run, which multiply a matrix with one vector after another,
        and their shares of both peaks [-].
    vector_rereads
        Which share of the matrices that rows have in common these read anew for each row: experts,
        which they do not group by [-].
    """

    launch_time: Value = 0.0
    memory_efficiency: Value = 1.0
    compute_efficiency: Value = 1.0
    activation_efficiency: Value | None = None
    sharpness: Value = SHARPNESS
    tile_rows: Value = 0.0
    tile_growth: Value = 0.0
    tile_width: Value = 0.0
    reread_rows: Value = 0.0
    result_terms: Value = 0.0
    group_time: Value = 0.0
    ramp_time: Value = 0.0
    depth_time: Value = 0.0
    depth_limit: Value = 1e9
    vector_rows: Value = 0.0
    vector_memory_efficiency: Value = 1.0
    vector_compute_efficiency: Value = 1.0
    vector_rereads: Value = 0.0

    @cached_property
    def bends(self) -> frozenset[str]:
        """Which of the parameters that bend the roofline are not 0."""
        return frozenset(name for name in _BENDING if np.any(getattr(self, name)))

    def tiled_arithmetic(self, seconds: Value, rows: Value, spread: Value) -> Value:
        r"""Return the time of arithmetic on rows padded to tiles, from `seconds` without [s].

        .. math:: T_\mathrm{compute} = \frac{\mathrm{FLOP}}{e_\mathrm{comp}\, \mathrm{peak}}
                  \sqrt{1 + \left(\mathrm{tile\ rows} \cdot r^{g-1}\right)^2}

        The `rows` are divided evenly among `spread` matrices.
        """
        if "tile_rows" not in self.bends:
            return seconds
        each = np.maximum(rows / np.maximum(spread, _FEWEST), _FEWEST)
        tiles = self.tile_rows * np.power(each, np.subtract(self.tile_growth, 1.0))
        return np.asarray(seconds * np.sqrt(1 + tiles * tiles))

    def tiled_weights(self, weight_bytes: Value, width: Value) -> Value:
        """Return the bytes of matrices `width` wide, padded to tiles [B]."""
        if "tile_width" not in self.bends:
            return weight_bytes
        return np.asarray(weight_bytes * np.sqrt(1 + np.square(self.tile_width / width)))

    def reread(self, weight_bytes: Value, rows: Value, spread: Value) -> Value:
        """Return the bytes of matrices with those that are read anew for further rows [B].

        The `rows` are divided evenly among `spread` matrices.
        """
        if "reread_rows" not in self.bends:
            return weight_bytes
        further = np.maximum(rows / np.maximum(spread, _FEWEST) - 1, _TINY)
        few, most = np.asarray(1 / further), np.asarray(1 / (self.reread_rows + _TINY))
        return np.asarray(weight_bytes * (1 + 1 / smooth_maximum(few, most, SHARPNESS)))

    def with_results(self, value: Value, depth: Value, kernels: Value) -> Value:
        """Return the bytes or FLOPs of products with what each of their results adds [B] [FLOP].

        `depth` is the sum over `kernels`, which are taken to be equally deep.
        """
        if "result_terms" not in self.bends:
            return value
        each = np.maximum(depth / np.maximum(kernels, _FEWEST), 1.0)
        return np.asarray(value * (1 + self.result_terms / each))

    def ramped(self, seconds: Value, kernels: Value) -> Value:
        """Return the time of reads with the ramp of each kernel to full bandwidth [s].

        `seconds` is their time at full bandwidth. Long reads take `ramp_time` more for each kernel,
        short ones at most twice as long.
        """
        if "ramp_time" not in self.bends:
            return seconds
        ramp = kernels * self.ramp_time
        return seconds * (1 + ramp / (seconds + (ramp + _TINY)))

    def streamed(self, moved: Value, peak: Value, rows: Value, spread: Value) -> Value:
        """Return the time of reads [s] of bytes [B] at a peak rate [B/s].

        The `rows` are divided among `spread` matrices.
        """
        seconds = moved / (self.memory_efficiency * peak)
        if "vector_rows" not in self.bends:
            return seconds
        few = np.minimum(rows, self.vector_rows) / np.maximum(spread, _FEWEST)
        again = self.vector_rereads * np.maximum(few - 1, 0.0)
        by_vectors = moved * (1 + again) / (self.vector_memory_efficiency * peak)
        return np.where(rows <= self.vector_rows, by_vectors, seconds)

    def computed(self, flop: Value, peak: Value, rows: Value, spread: Value) -> Value:
        """Return the time of arithmetic [s] on FLOPs [FLOP] at a peak rate [FLOP/s].

        The `rows` are divided among `spread` matrices.
        """
        seconds = self.tiled_arithmetic(flop / (self.compute_efficiency * peak), rows, spread)
        if "vector_rows" not in self.bends:
            return seconds
        few = flop / (self.vector_compute_efficiency * peak)
        return np.where(rows <= self.vector_rows, few, seconds)

    def walked(self, seconds: Value, depth: Value, kernels: Value) -> Value:
        """Return the time of reads that stream in `seconds` while kernels walk their depths [s].

        `depth` is the sum over `kernels`. They are taken to be equally deep, which for unequal ones
        is at most a little too long. Walking and streaming overlap as computing and streaming do.
        """
        if "depth_time" not in self.bends:
            return seconds
        walking = depth * self.depth_time
        if not np.any(walking):
            return seconds
        if not np.all(np.isinf(self.depth_limit)):
            each = depth / np.maximum(kernels, _FEWEST)
            walking = walking / (1 + each / self.depth_limit)
        return smooth_maximum(np.asarray(seconds), np.asarray(walking), self.sharpness)


DATA_SHEET = KernelParameters()
"""Peaks as the vendor states them, no overhead, no tiles."""


def smooth_maximum(first: FloatArray, second: FloatArray, sharpness: Value) -> FloatArray:
    r"""Return a maximum without a kink, safe from overflow.

    .. math:: t = \left(a^p + b^p\right)^{1/p}

    Compute and memory traffic overlap, so that the larger time decides; near the ridge point they
    overlap imperfectly, and the norm is up to ``2^(1/p)`` above the larger of the two.

    Parameters
    ----------
    first, second, sharpness
        Times that overlap [s], and the exponent p, which broadcasts with them; infinity gives the
        textbook roofline [-].

    Returns
    -------
    FloatArray
        Time of both together [s].

    Examples
    --------
    >>> float(smooth_maximum(np.float64(3.0), np.float64(4.0), 2.0))
    5.0
    """
    p, larger = np.asarray(sharpness), np.maximum(first, second)
    ratio = np.asarray(np.minimum(first, second) / (larger + _TINY))
    return np.asarray(larger * (1 + ratio**p) ** (1 / p))
