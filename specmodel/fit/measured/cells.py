"""Numbers in cells of tables and keys of results of engines; times that must be milliseconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from specmodel.base.errors import InputError
from specmodel.base.units import LARGEST_NUMBER

LEAST_MILLISECONDS = 0.2
"""No engine makes a token of a large model in less: such a column is in seconds [-]."""

PLAUSIBLE = (1e-3, 1e6)
"""Least and most of a measured time in milliseconds, and of a speedup [-]."""


def as_number(value: Any) -> float:
    """Return the number that a cell holds, NaN where it holds none [-]."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return np.nan


def number_in(
    values: Mapping[str, Any], name: str, argument: str, *, strict: bool = True
) -> float | None:
    """Return the number in a cell of a row.

    Parameters
    ----------
    values
        The row, by column.
    name
        The column, which need not be there.
    argument
        Name that an error should carry.
    strict
        Whether a text is refused; otherwise it is as good as an empty cell.

    Returns
    -------
    float or None
        Finite; None where the cell is empty or there is no column [-].

    Raises
    ------
    InputError
        If it is no number.
    """
    value = values.get(name)
    number = as_number(value)
    is_empty = value is None or value is pd.NA or (isinstance(value, float) and np.isnan(value))
    if is_empty or (not strict and np.isnan(number)):
        return None
    if not np.isfinite(number):
        raise InputError(argument, value, "a number")
    return number


def positive_in(values: Mapping[str, Any], name: str, source: str, expected: str) -> float:
    """Return the positive number that a result has under a key.

    Parameters
    ----------
    values
        The result, by key.
    name
        The key.
    source
        Where the result is, for an error.
    expected
        What the error should say is expected.

    Returns
    -------
    float
        Finite [-].

    Raises
    ------
    InputError
        If it is not there, no number, zero, negative or without end.
    """
    value = values.get(name)
    number = as_number(value) if type(value) in (int, float) else 0.0
    if 0.0 < number <= LARGEST_NUMBER:
        return number
    raise InputError(f"{source} {name}", value, expected)


def text_of(value: Any) -> str:
    """Return a text as it is, empty for what is none."""
    return value if isinstance(value, str) else ""


def check_milliseconds(
    times: Iterable[Any], argument: str, least: float = LEAST_MILLISECONDS
) -> None:
    """Refuse seconds given for milliseconds, and what is no time.

    Parameters
    ----------
    times
        Numbers, and NaN or texts where there is none.
    argument
        Name that an error should carry.
    least
        Median in milliseconds below which they are seconds [-].

    Raises
    ------
    InputError
        With the first time that cannot be, or the median.
    """
    numbers = np.array([as_number(time) for time in times])
    numbers = numbers[~np.isnan(numbers)]
    low, high = PLAUSIBLE
    for number in numbers[(numbers < low) | (numbers > high)]:
        raise InputError(argument, float(number), f"milliseconds from {low:g} to {high:g}")
    if numbers.size and np.median(numbers) < least:
        raise InputError(argument, float(np.median(numbers)), "milliseconds, not seconds")
