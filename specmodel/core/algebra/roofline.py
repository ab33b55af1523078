"""Compute the time of kernels from FLOPs and bytes: the roofline, and deviations from it."""

from functools import cached_property
from typing import TypeAlias

import numpy as np
from msgspec import Struct

from specmodel.core.base.units import FloatArray

SHARPNESS = 8.0
"""Default exponent p of the smooth roofline [-]. At the ridge point, where both times are equal,
its time is ``2^(1/8)`` times the textbook's time, 9 % more."""

_BENDING = (
    *("group_time", "tile_rows", "tile_width", "reread_rows", "result_terms"),
    *("ramp_time", "depth_time", "vector_rows", "vector_rereads"),
)

Value: TypeAlias = FloatArray | float
"""A number, or an array of them."""

_TINY = float(np.finfo(float).tiny)
_FEWEST = 1e-9


class KernelParameters(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """Parameters of one kind of kernels on a GPU; the defaults are the data sheet.

    Each parameter is a number, or an array of draws that broadcasts with the points.

    Parameters
    ----------
    launch_time, group_time
        Time for each kernel, and for each independent group of work, such as an expert [s].
    memory_efficiency, compute_efficiency
        Achieved over peak rate of reading weights or KV, and of arithmetic. The second is above 1
        if the peak is that of slower kernels: on a CPU without instructions for a narrow dtype,
        kernels that convert it to a wider one are faster [-].
    activation_efficiency
        Achieved over peak bandwidth of activations, whose time then adds to the rest; above 1 if
        they stay in cache; None if they are read together with the weights [-].
    sharpness
        Exponent of `smooth_maximum` [-].
    tile_rows, tile_growth
        Arithmetic on r rows of a matrix takes as long as on ``(r^2 + (tile_rows r^g)^2)^(1/2)``
        rows. Kernels pad rows to whole tiles: few rows cost a tile, many nearly their number [-].
    tile_width
        Reading a matrix of width w takes as long as a width of ``(w^2 + tile_width^2)^(1/2)`` [-].
    reread_rows
        Maximum rows beyond the first for which a matrix is read again. Few rows are multiplied one
        by one; more rows are multiplied together, after the matrix is rearranged [-].
    result_terms
        Extra time of each result of a product, in terms of its sum [-].
    ramp_time
        Extra time of long reads; reads that are much shorter take twice their time [s].
    depth_time, depth_limit
        A product whose results each sum over d terms takes at least
        ``depth_time d / (1 + d / depth_limit)``, as a kernel goes through the depth step by step,
        even in small products. Kernels that cut the depth into parts need at most the steps of
        `depth_limit` [s] [-].
    vector_rows, vector_memory_efficiency, vector_compute_efficiency
        Maximum rows for which other kernels run, which multiply a matrix by one vector after
        another; and their shares of both peaks [-].
    vector_rereads
        Share of matrices used by several rows, such as experts, that these kernels read again for
        each row, as they do not group rows by matrix [-].
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
        """Names of the parameters that change the roofline and are not 0."""
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
        """Return the bytes of matrices, including bytes that are read again for further rows [B].

        The `rows` are divided evenly among `spread` matrices.
        """
        if "reread_rows" not in self.bends:
            return weight_bytes
        further = np.maximum(rows / np.maximum(spread, _FEWEST) - 1, _TINY)
        few, most = np.asarray(1 / further), np.asarray(1 / (self.reread_rows + _TINY))
        return np.asarray(weight_bytes * (1 + 1 / smooth_maximum(few, most, SHARPNESS)))

    def with_results(self, value: Value, depth: Value, kernels: Value) -> Value:
        """Return the bytes or FLOPs of products, including what each result adds [B] [FLOP].

        `depth` is the sum over `kernels`, which are assumed to be equally deep.
        """
        if "result_terms" not in self.bends:
            return value
        each = np.maximum(depth / np.maximum(kernels, _FEWEST), 1.0)
        return np.asarray(value * (1 + self.result_terms / each))

    def ramped(self, seconds: Value, kernels: Value) -> Value:
        """Return the time of reads, including the ramp of each kernel to full bandwidth [s].

        `seconds` is the time at full bandwidth. Long reads take `ramp_time` more for each kernel.
        Short reads take at most twice as long.
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
        """Return the time of reads, of `seconds`, while kernels go through their depths [s].

        `depth` is the sum over `kernels`, which are assumed to be equally deep. If they are not,
        the result is at most slightly too long. Both times overlap like arithmetic and reads.
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
"""Kernels at the vendor's peaks, without overhead or tiles."""


def smooth_maximum(first: FloatArray, second: FloatArray, sharpness: Value) -> FloatArray:
    r"""Return a maximum without a kink, safe from overflow.

    .. math:: t = \left(a^p + b^p\right)^{1/p}

    Arithmetic and memory traffic overlap, so the larger time decides. Near the ridge point, they
    overlap imperfectly, and the result is up to ``2^(1/p)`` times the larger time.

    Parameters
    ----------
    first, second, sharpness
        Overlapping times [s], and the exponent p, which broadcasts with them; infinity gives the
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
