"""Numbers in cells of tables and keys of engines' results, and times that must be milliseconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from specmodel.base.errors import InputError
from specmodel.base.tables import as_number
from specmodel.base.units import LARGEST_NUMBER

LEAST_MILLISECONDS = 0.2  # no engine makes a token of a large model in less: such are seconds
PLAUSIBLE = (1e-3, 1e6)  # least and most of a measured time in milliseconds, and of a speedup [-]


def number_in(
    values: Mapping[str, Any], name: str, argument: str, *, strict: bool = True
) -> float | None:
    """Return the finite number in a cell of a row; None if it is empty or there is no such column.

    Text is refused if `strict`, and otherwise taken for an empty cell.
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
    """Return the finite positive number that a result has under a key; refuse anything else."""
    value = values.get(name)
    number = as_number(value) if type(value) in (int, float) else 0.0
    if 0.0 < number <= LARGEST_NUMBER:
        return number
    raise InputError(f"{source} {name}", value, expected)


def text_of(value: Any) -> str:
    """Return a text as it is, and an empty one for anything else."""
    return value if isinstance(value, str) else ""


def check_milliseconds(
    times: Iterable[Any], argument: str, least: float = LEAST_MILLISECONDS
) -> None:
    """Refuse impossible times, and those whose median is below `least`, which are seconds."""
    numbers = np.array([as_number(time) for time in times])
    numbers = numbers[~np.isnan(numbers)]
    low, high = PLAUSIBLE
    for number in numbers[(numbers < low) | (numbers > high)]:
        raise InputError(argument, float(number), f"milliseconds from {low:g} to {high:g}")
    if numbers.size and np.median(numbers) < least:
        raise InputError(argument, float(np.median(numbers)), "milliseconds, not seconds")
