"""Lists and ranges as people type them: ``1,2,4``, ``1:64:2``, ``1:128:x2``, ``0.5:0.9:0.1``."""

import itertools
import math
from collections.abc import Callable, Iterable
from typing import TypeVar

from specmodel.base.errors import InputError

Value = TypeVar("Value")

MAX_VALUES = 100_000
"""Most values that one list may have [-]."""

_TOO_MANY = f"at most {MAX_VALUES} values"
_EXPECTED = "whole numbers as a list or range: 1,2,4 or 1:64:2 or 1:128:x2"
_EXPECTED_NUMBERS = "numbers as a list or range: 0.5,0.7 or 0.5:0.9:0.1 or 1e9:1e12:x10"


def parse_values(argument: str, text: str) -> list[int]:
    """Return the whole numbers of a list whose entries may be ranges, ends included.

    Parameters
    ----------
    argument
        Name that an error should carry.
    text
        Entries separated by commas: a number, ``first:last``, ``first:last:step`` or
        ``first:last:xfactor``.

    Returns
    -------
    list of int
        The numbers in the order given.

    Raises
    ------
    InputError
        If an entry is not a number or range, is reversed, or there are too many.

    Examples
    --------
    >>> parse_values("batch_size", "1,4:8:2,16:128:x2")
    [1, 4, 6, 8, 16, 32, 64, 128]
    """
    return _parse(argument, text, _whole_numbers, _EXPECTED)


def parse_numbers(argument: str, text: str) -> list[float]:
    """Return the numbers of a list whose entries may be ranges, ends included.

    Parameters
    ----------
    argument
        Name that an error should carry.
    text
        Entries separated by commas: a number, ``first:last:step`` or ``first:last:xfactor``.

    Returns
    -------
    list of float
        The numbers in the order given, steps counted from the first.

    Raises
    ------
    InputError
        If an entry is not a number or range, is reversed, or there are too many.

    Examples
    --------
    >>> parse_numbers("acceptance_rate", "0.5:0.8:0.1,0.95")
    [0.5, 0.6, 0.7, 0.8, 0.95]
    """
    return _parse(argument, text, _numbers, _EXPECTED_NUMBERS)


def _parse(
    argument: str, text: str, entry_values: Callable[[str], Iterable[Value]], expected: str
) -> list[Value]:
    """Return the values of each entry in turn; `entry_values` raises where one is none."""
    values: list[Value] = []
    for entry in text.split(","):
        try:
            values += itertools.islice(entry_values(entry.strip()), MAX_VALUES + 1)
        except ValueError as fault:
            raise InputError(argument, text, getattr(fault, "expected", expected)) from None
        if len(values) > MAX_VALUES:
            raise InputError(argument, text, _TOO_MANY)
    return values


def _whole_numbers(entry: str) -> Iterable[int]:
    first, *rest = entry.split(":")
    last, step, *more = [*rest, "1"] if rest else [first, "1"]
    is_geometric = step.startswith("x")
    low, high, stride = int(first), int(last), int(step.removeprefix("x"))
    if len(more) > 1 or high < low or stride < (2 if is_geometric else 1):
        raise ValueError
    if not is_geometric:
        return range(low, high + 1, stride)
    if low < 1:
        raise InputError("", entry, "a geometric range that starts at 1 or more")
    powers = (low * stride**i for i in itertools.count())
    return itertools.takewhile(lambda value: value <= high, powers)


def _numbers(entry: str) -> Iterable[float]:
    is_geometric = entry.rpartition(":")[2].startswith("x")
    first, *rest = (float(part.removeprefix("x")) for part in entry.split(":"))
    if not all(map(math.isfinite, [first, *rest])):
        raise ValueError
    if not rest:
        return [first]
    last, step = rest
    if last < first or step <= is_geometric or (is_geometric and first <= 0):
        raise ValueError
    span = math.log(last / first) / math.log(step) if is_geometric else (last - first) / step
    values = (first * step**i if is_geometric else first + i * step for i in _places(span))
    return (float(f"{value:.12g}") for value in values)


def _places(span: float) -> range:
    """Count the places of a range by its length in steps, an end just missed by rounding too."""
    if span >= MAX_VALUES:
        raise InputError("", span, _TOO_MANY)
    return range(math.floor(span * (1 + 1e-12) + 1e-9) + 1)


def parse_named_range(argument: str, text: str) -> tuple[str, float, float]:
    """Return name and ends of a range of one input.

    Parameters
    ----------
    argument
        Name that an error should carry.
    text
        ``name=low:high``.

    Returns
    -------
    tuple
        Name, low and high end; the caller knows which ends would do [-].

    Raises
    ------
    InputError
        If it is not of that form, or an end is not a finite number.

    Examples
    --------
    >>> parse_named_range("range", "acceptance_rate=0.6:0.8")
    ('acceptance_rate', 0.6, 0.8)
    """
    name, _, ends = text.partition("=")
    try:
        low, high = (float(end) for end in ends.split(":"))
    except ValueError:
        low = high = math.nan
    if not name.strip() or not (math.isfinite(low) and math.isfinite(high)):
        raise InputError(argument, text, "NAME=LOW:HIGH, such as acceptance_rate=0.6:0.8")
    return name.strip(), low, high


def runs(values: Iterable[Value]) -> list[tuple[int, int, Value]]:
    """Return the runs of equal neighbours in a list.

    Parameters
    ----------
    values
        The list.

    Returns
    -------
    list of tuple
        Places of the first and the last of each run, from 0, and their value.

    Examples
    --------
    >>> runs("aab")
    [(0, 1, 'a'), (2, 2, 'b')]
    """
    found, start = [], 0
    for value, group in itertools.groupby(values):
        size = sum(1 for _ in group)
        found.append((start, start + size - 1, value))
        start += size
    return found


def ranges_text(pairs: Iterable[tuple[int, int]]) -> str:
    """Return ranges as people write them.

    Parameters
    ----------
    pairs
        First and last number of each [-].

    Returns
    -------
    str
        Separated by commas.

    Examples
    --------
    >>> ranges_text([(1, 4), (7, 7)])
    '1-4, 7'
    """
    return ", ".join(f"{first}-{last}" if last > first else f"{first}" for first, last in pairs)
