"""Constants, numeric types, argument checks and formatting. Everything inside is in SI units."""

from functools import cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specmodel.base.errors import InputError

Numeric: TypeAlias = ArrayLike
FloatArray: TypeAlias = NDArray[np.float64]

BYTES_PER_ELEMENT: dict[str, float] = {
    "fp32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "fp8_block": (8 + 32 / 128**2) / 8,
    "mxfp8": 8.25 / 8,
    "int8": 1.0,
    "int8_g128": 8.125 / 8,
    "fp4": 4.5 / 8,
    "mxfp4": 4.25 / 8,
    "int4": (4 + 20 / 128) / 8,
    "int4_g128": (4 + 16 / 128) / 8,
    "int4_g64": (4 + 16 / 64) / 8,
    "int4_g32": (4 + 16 / 32) / 8,
}
"""Size of one element [B] with its share of the scales: fp4 (NVFP4) has 8 bits for each 16
elements, mxfp4 and mxfp8 8 for each 32, int4 16 and a 4-bit zero point for each 128; int4_g128 and
the like have 16 bits for each group of so many, and no zero points; fp8_block has 32 for each block
of 128 x 128. Those of fp8 and int8 by tensor or channel are at most 0.1 %."""

_KERNELS = {
    "fp8_block": "fp8",
    "mxfp8": "fp8",
    "int8_g128": "int8",
    "int4_g128": "int4",
    "int4_g64": "int4",
    "int4_g32": "int4",
}
"""Dtypes that differ from another in what shares a scale only, and that one."""

_WITH_FP8 = {"mxfp4": "mxfp4_fp8", "int4": "int4_fp8"}
"""Weights of four bits that some kernels widen to 8 bits, and how fits of these are named."""

_OTHER_NAMES = {
    "nvfp4": "fp4",
    "bfloat16": "bf16",
    "float16": "fp16",
    "float32": "fp32",
    "fp8_e4m3": "fp8",
    "float8_e4m3fn": "fp8",
}
"""What checkpoints and engines call a dtype, and its name here."""

ARITHMETIC_BITS = {
    name: 4 if size < 1 else int(8 * size) for name, size in BYTES_PER_ELEMENT.items()
}
"""Width of the arithmetic on a dtype [-]: scales do not count."""

LONGEST_TIME = 1e6
"""Longest time that is taken from anyone: eleven days [s]."""

LARGEST_RATE = 1e18
"""Largest bandwidth or arithmetic rate of one device that is taken [B/s] [FLOP/s]."""

LARGEST_NUMBER = 1e15
"""Largest number that a table may hold where nothing narrower is known [-]."""

_PREFIXES = {1e12: "T", 1e9: "G", 1e6: "M", 1e3: "k", 1.0: "", 1e-3: "m", 1e-6: "u", 1e-9: "n"}


def check(
    argument: str,
    value: Any,
    *,
    minimum: float = -np.inf,
    maximum: float = np.inf,
    above: float = -np.inf,
    whole: bool = False,
) -> FloatArray:
    """Return `value` as a float array, or say in one line why it cannot be used.

    Parameters
    ----------
    argument
        Name the error should carry.
    value
        Number or array of any shape.
    minimum, maximum
        Closed bounds [-].
    above
        Open lower bound [-].
    whole
        Refuse what is not a whole number.

    Returns
    -------
    FloatArray
        The same numbers, finite and not empty [-].

    Raises
    ------
    InputError
        If a number is missing, not finite, out of bounds or not whole where it must be.
    """
    array = _numbers(argument, value)
    low, high = (array.item(),) * 2 if array.ndim == 0 else (array.min(), array.max())
    in_bounds = -np.inf < low and high < np.inf and minimum <= low and high <= maximum
    if in_bounds and low > above and (not whole or bool((array == np.floor(array)).all())):
        return array
    usable = np.isfinite(array) & (array >= minimum) & (array <= maximum) & (array > above)
    if whole:
        usable &= array == np.floor(array)
    culprit = value if isinstance(value, int | float) else array[~usable].flat[0].item()
    raise InputError(argument, culprit, _describe(minimum, maximum, above, whole))


def unwrap(array: FloatArray) -> FloatArray:
    """Return the array, or its scalar where it has no axes."""
    scalar: FloatArray = array[()]
    return scalar


def kernel_dtype(dtype: str) -> str:
    """Return the dtype whose kernels read a dtype: the same but for how many share a scale."""
    return _KERNELS.get(dtype, dtype)


@cache
def names_of_fits(stored: str, arithmetic: str | None = None) -> tuple[str, ...]:
    """Return the names under which kernels of some dtypes may be fitted, the best first.

    Parameters
    ----------
    stored, arithmetic
        Dtypes of what is read and of the arithmetic on it, None for the usual one.

    Returns
    -------
    tuple of str
        The dtype itself, then the one whose kernels read it; another name where weights of four
        bits meet activations of 8.

    Examples
    --------
    >>> names_of_fits("int4_g32", "bf16"), names_of_fits("mxfp4", "fp8")
    (('int4_g32', 'int4'), ('mxfp4_fp8',))
    """
    kernels = kernel_dtype(stored)
    if arithmetic == "fp8" and kernels in _WITH_FP8:
        return (_WITH_FP8[kernels],)
    return tuple(dict.fromkeys((stored, kernels)))


def check_dtype(argument: str, dtype: object) -> str:
    """Return `dtype` if it is known, else say which dtypes are; activations have no groups."""
    is_of_activations = argument == "activation_dtype"
    groups = {"mxfp4", *_KERNELS} if is_of_activations else set()
    known = [name for name in BYTES_PER_ELEMENT if name not in groups]
    if isinstance(dtype, str) and dtype in known:
        return dtype
    ours = _OTHER_NAMES.get(dtype.lower()) if isinstance(dtype, str) else None
    meant = f"{ours}, as it is called here; " if ours in known else ""
    raise InputError(argument, dtype, f"{meant}one of {', '.join(known)}")


def format_si(value: float, unit: str, digits: int = 3) -> str:
    """Return a number with a metric prefix, for people.

    Parameters
    ----------
    value
        Number in SI units [-].
    unit
        The unit, without a prefix.
    digits
        Significant digits [-].

    Returns
    -------
    str
        Number, prefix and unit.

    Examples
    --------
    >>> format_si(0.00123, "s"), format_si(2.039e12, "B/s"), format_si(0, "s")
    ('1.23 ms', '2.04 TB/s', '0 s')
    """
    for factor, prefix in _PREFIXES.items():
        if abs(value) >= factor:
            return f"{value / factor:.{digits}g} {prefix}{unit}"
    return f"{value:.{digits}g} {unit}"


def _describe(minimum: float, maximum: float, above: float, whole: bool) -> str:
    kind = "whole numbers" if whole else "finite numbers"
    if minimum > -np.inf and maximum < np.inf:
        return f"{kind} from {minimum:g} to {maximum:g}"
    if above > -np.inf:
        upper = f" and at most {maximum:g}" if maximum < np.inf else ""
        return f"{kind} above {above:g}{upper}"
    if minimum > -np.inf:
        return f"{kind} of at least {minimum:g}"
    return kind


def _numbers(argument: str, value: Any) -> FloatArray:
    try:
        array = np.asarray(value)
        if array.dtype == object and all(type(number) is int for number in array.flat):
            array = array.astype(np.float64)
    except (ValueError, OverflowError):
        array = np.asarray(None)
    if array.size == 0:
        raise InputError(argument, value, "at least one number")
    if array.dtype.kind not in "fiu":
        raise InputError(argument, value, "a number or an array of numbers")
    return array.astype(np.float64, copy=False)
