"""Numbers in rows of tables and in engines' results, and times that must be milliseconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from specmodel.base.classes import dataclass
from specmodel.base.errors import InputError
from specmodel.base.tables import as_number
from specmodel.base.units import LARGEST_NUMBER

LEAST_MILLISECONDS = 0.2  # no engine makes a token of a large model in less: such are seconds
PLAUSIBLE = (1e-3, 1e6)  # least and most of a measured time in milliseconds


@dataclass(frozen=True)
class Cells:
    """A row of a table, or the result of a tool; `prefix` stands before names in errors."""

    values: Mapping[str, Any]
    prefix: str

    def find(self, path: str) -> Any:
        """Return the value of a name, None if there is none.

        A dot leads to a name within a value, of lists within the last entry.
        """
        found: Any = self.values
        for key in path.split("."):
            found = found[-1] if isinstance(found, list) and found else found
            found = found.get(key) if isinstance(found, dict) else None
        return found

    def text(self, path: str) -> str:
        """Return a text, empty for anything else."""
        value = self.find(path)
        return value if isinstance(value, str) else ""

    def number(self, path: str, *, strict: bool = True) -> float | None:
        """Return a finite number; None where a cell is empty, or not there.

        Text is refused if `strict`, and otherwise taken for an empty cell.
        """
        value = self.find(path)
        number = as_number(value)
        is_empty = value is None or value is pd.NA or (isinstance(value, float) and np.isnan(value))
        if is_empty or (not strict and np.isnan(number)):
            return None
        if not np.isfinite(number):
            raise InputError(f"{self.prefix}{path}", value, "a number")
        return number

    def positive(self, path: str, expected: str) -> float:
        """Return a finite positive number; refuse anything else."""
        value = self.find(path)
        number = as_number(value) if type(value) in (int, float) else np.nan
        if 1 / LARGEST_NUMBER <= number <= LARGEST_NUMBER:
            return number
        raise InputError(f"{self.prefix}{path}", value, expected)


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
