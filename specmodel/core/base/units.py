"""Define numeric types, limits, argument checks and formatting. All units are SI units."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specmodel.core.base.errors import InputError

Numeric: TypeAlias = ArrayLike
FloatArray: TypeAlias = NDArray[np.float64]

LONGEST_TIME = 1e6
"""Longest valid time: eleven days [s]."""

LARGEST_RATE = 1e18
"""Largest valid bandwidth or arithmetic rate of one device [B/s] [FLOP/s]."""

LARGEST_NUMBER = 1e15
"""Default for the largest valid number in a table [-]."""

NORMAL_80 = 1.2815515594
"""Standard deviations from the mean that contain 80 % of a normal distribution [-]."""

LARGEST_PRICE = 1e9
"""Largest valid price of a GPU for an hour, in any currency [-]."""

_PREFIXES = {1e12: "T", 1e9: "G", 1e6: "M", 1e3: "k", 1.0: "", 1e-3: "m", 1e-6: "u", 1e-9: "n"}


def single(argument: str, value: Any, expected: str) -> Any:
    """Return the single value of an argument, None if it was not given; refuse several values."""
    if value is None:
        return None
    if np.size(value) != 1:
        raise InputError(argument, np.ravel(value).tolist(), expected)
    return np.ravel(value).tolist()[0]


def check(
    argument: str,
    value: Any,
    *,
    minimum: float = -np.inf,
    maximum: float = np.inf,
    above: float = -np.inf,
    whole: bool = False,
) -> FloatArray:
    """Return `value` as a float array, or raise a one-line error.

    Parameters
    ----------
    argument
        Name of the argument in errors.
    value
        Number or array of any shape.
    minimum, maximum, above
        Closed bounds, and an open lower bound [-].
    whole
        Whether to accept whole numbers only.

    Returns
    -------
    FloatArray
        The same numbers, all finite; at least one [-].
    """
    try:
        array = np.asarray(value)
    except (ValueError, OverflowError):
        array = np.asarray(None)
    is_whole = array.dtype.kind in "iu"
    if array.dtype != np.float64 or array.size == 0:
        array = _as_floats(argument, value, array)
    low, high = (array.item(),) * 2 if array.ndim == 0 else (array.min(), array.max())
    in_bounds = -np.inf < low and high < np.inf and minimum <= low and high <= maximum
    is_whole = is_whole or not whole or bool((array == np.floor(array)).all())
    if in_bounds and low > above and is_whole:
        return array
    usable = np.isfinite(array) & (array >= minimum) & (array <= maximum) & (array > above)
    if whole:
        usable &= array == np.floor(array)
    culprit = value if isinstance(value, int | float) else array[~usable].flat[0].item()
    raise InputError(argument, culprit, _describe(minimum, maximum, above, whole))


def unwrap(array: FloatArray) -> FloatArray:
    """Return the array, or a scalar if it has no axes."""
    scalar: FloatArray = array[()]
    return scalar


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
    rounded = float(f"{value:.{digits}g}")  # 999.9e6 is 1.00 of the next prefix
    for factor, prefix in _PREFIXES.items():
        if abs(rounded) >= factor:
            return f"{value / factor:.{digits}g} {prefix}{unit}"
    return f"{value:.{digits}g} {unit}"


def parse_seconds(argument: str, text: str | float) -> float:
    """Return a time from a text such as ``20ms``, ``0.02`` or ``0.02 s`` [s].

    A text of 1 or more needs a unit. A number is in seconds [s].

    >>> parse_seconds("tpot_target", "20ms"), parse_seconds("tpot_target", "0.5")
    (0.02, 0.5)
    """
    if not isinstance(text, str):
        return float(check(argument, text, above=0))
    typed, per_second = text.strip().lower(), {"ms": 1e3, "us": 1e6, "s": 1.0, "": 1.0}
    unit = next(unit for unit in per_second if typed.endswith(unit))
    number = typed.removesuffix(unit).strip()
    try:
        value = float(number) / per_second[unit]  # exact, unlike a product with 1e-6
    except ValueError:
        value = np.nan
    if not 0 < value < np.inf:
        raise InputError(argument, text, "a time above 0, such as 20ms or 0.02")
    if not unit and value >= 1:  # people often type 20 for 20 ms
        raise InputError(argument, text, f"a time with its unit: {number}ms or {number}s")
    return value


def rows_of(columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return arrays of one shape, by name, as a list of dicts, one for each element."""
    flat = [np.ravel(values).tolist() for values in columns.values()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*flat, strict=True)]


def quantiles(values: FloatArray, shares: Sequence[float]) -> list[FloatArray]:
    """Return quantiles along the first axis; np.quantile would import masked arrays."""
    places = [share * (len(values) - 1) for share in shares]
    near = {min(int(place) + more, len(values) - 1) for place in places for more in (0, 1)}
    ordered = np.partition(values, sorted(near), axis=0)
    found = []
    for place in places:
        below, above = ordered[int(place)], ordered[min(int(place) + 1, len(values) - 1)]
        found.append(below + (above - below) * (place - int(place)))
    return found


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


def _as_floats(argument: str, value: Any, array: NDArray[Any]) -> FloatArray:
    """Return an array of numbers as floats; refuse other arrays."""
    with suppress(ValueError, OverflowError):  # whole numbers beyond all floats
        if array.dtype == object and all(type(number) is int for number in array.flat):
            array = array.astype(np.float64)
    if array.size == 0:
        raise InputError(argument, value, "at least one number")
    if array.dtype.kind not in "fiu":
        raise InputError(argument, value, "a number or an array of numbers")
    return array.astype(np.float64, copy=False)
