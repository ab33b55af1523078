"""Read lists and ranges: ``1,2,4``, ``1:64:2``, ``1:128:x2``, ``0.5:0.9:0.1``."""

import itertools
import math
import re
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import TypeVar

from specmodel.core.base.errors import InputError

Value = TypeVar("Value")
Number = TypeVar("Number", int, float)

MAX_VALUES = 100_000
"""Maximum values of a list [-]."""
MAX_POINTS = 120_000
"""Maximum operating points that one call prints, one per draft length; they need 1 GB [-]."""

_TOO_MANY = f"at most {MAX_VALUES} values"
_EXPECTED = "whole numbers as a list or range: 1,2,4 or 1:64:2 or 1:128:x2"
_EXPECTED_NUMBERS = "numbers as a list or range: 0.5,0.7 or 0.5:0.9:0.1 or 1e9:1e12:x10"


def parse_values(argument: str, text: str) -> list[int]:
    """Return the whole numbers of a list whose entries may be ranges, including both ends.

    An entry is a number, ``first:last``, ``first:last:step`` or ``first:last:xfactor``.

    Examples
    --------
    >>> parse_values("batch_size", "1,4:8:2,16:128:x2")
    [1, 4, 6, 8, 16, 32, 64, 128]
    """
    return _parse(argument, text, int, _EXPECTED)


def check_points(argument: str, counts: dict[str, int], of: str = " in all") -> None:
    """Refuse more points than one call prints; `counts` has the values along each axis."""
    points = math.prod(counts.values())
    if points > MAX_POINTS:
        words = {name: re.sub("[-_]+", " ", name).strip().removesuffix("s") for name in counts}
        axes = " x ".join(f"{n} {words[name]}s" for name, n in counts.items())
        value = f"{points} points: {axes}"
        raise InputError(argument, value, f"at most {MAX_POINTS} points{of}")


def parse_numbers(argument: str, text: str) -> list[float]:
    """Return the numbers of a list whose entries may be ranges, including both ends.

    An entry is a number, ``first:last:step`` or ``first:last:xfactor``; steps count from the first.

    Examples
    --------
    >>> parse_numbers("acceptance_rate", "0.5:0.8:0.1,0.95")
    [0.5, 0.6, 0.7, 0.8, 0.95]
    """
    return _parse(argument, text, float, _EXPECTED_NUMBERS)


def _parse(argument: str, text: str, number: type[Number], expected: str) -> list[Number]:
    values: list[Number] = []
    for entry in text.split(","):
        try:
            values += _values(entry.strip(), number)
        except (ValueError, OverflowError) as fault:
            remedy = _without_suffix(entry.strip()) + getattr(fault, "expected", expected)
            raise InputError(argument, text, remedy) from None
        if len(values) > MAX_VALUES:
            raise InputError(argument, text, _TOO_MANY)
    return values


def _without_suffix(entry: str) -> str:
    """Return a hint that writes a number such as 4k in full, "" for other entries."""
    match = re.fullmatch(r"(\d{1,6})[kK]i?", entry)
    if match is None:
        return ""
    thousands = int(match[1])
    return f"{1024 * thousands} or {1000 * thousands} for {entry}: "


def _values(entry: str, number: type[Number]) -> Iterable[Number]:
    """Return the values of a number or range. A range of whole numbers needs no step."""
    first, *rest = entry.split(":")
    if not rest:
        return [_finite(first, number)]
    last, step = (*rest, "1") if number is int and len(rest) == 1 else rest
    is_geometric = step.startswith("x")
    texts = (first, last, step.removeprefix("x"))
    low, high, stride = (_finite(text, number) for text in texts)
    if high < low or stride <= is_geometric:
        raise ValueError
    if is_geometric and low <= 0:
        raise InputError("", entry, "a geometric range that starts above 0")
    span = math.log(high / low) / math.log(stride) if is_geometric else (high - low) / stride
    if span >= MAX_VALUES:
        raise InputError("", span, _TOO_MANY)
    # include the last value even if rounding just misses it
    places = range(math.floor(span * (1 + 1e-12) + 1e-9) + 1)
    values = (low * stride**i if is_geometric else low + i * stride for i in places)
    if number is int:
        return (value for value in values if value <= high)
    return (number(f"{value:.12g}") for value in values)


def _finite(text: str, number: type[Number]) -> Number:
    value = number(text)
    if not math.isfinite(value):
        raise ValueError
    return value


def whole_of(text: str) -> int | None:
    """Return the number in a text of at most 18 digits from 0 to 9, None for other texts.

    Examples
    --------
    >>> whole_of("16"), whole_of("²"), whole_of("1_0")
    (16, None, None)
    """
    return int(text) if re.fullmatch("[0-9]{1,18}", text) else None


def parse_named_range(argument: str, text: str) -> tuple[str, float, float]:
    """Return the name and ends of a range ``name=low:high``; the caller checks the ends.

    Examples
    --------
    >>> parse_named_range("range", "acceptance_rate=0.6:0.8")
    ('acceptance_rate', 0.6, 0.8)
    """
    name, _, ends = text.partition("=")
    try:
        low, high = (_finite(end, float) for end in ends.split(":"))
    except ValueError:
        name = ""
    if not name.strip():
        raise InputError(argument, text, "NAME=LOW:HIGH, such as acceptance_rate=0.6:0.8")
    return name.strip(), low, high


def runs(values: Iterable[Value]) -> list[tuple[int, int, Value]]:
    """Return the first and last index, and the value, of each run of equal neighbours.

    Examples
    --------
    >>> runs("aab")
    [(0, 1, 'a'), (2, 2, 'b')]
    """
    found = []
    for value, group in itertools.groupby(enumerate(values), key=itemgetter(1)):
        places = [place for place, _ in group]
        found.append((places[0], places[-1], value))
    return found


def spans(values: Sequence[int], holds: Iterable[bool]) -> list[tuple[int, int]]:
    """Return the first and last value of each run of neighbours for which `holds` is true.

    Examples
    --------
    >>> spans([1, 2, 4, 8], [True, True, False, True])
    [(1, 2), (8, 8)]
    """
    return [(values[first], values[last]) for first, last, is_there in runs(holds) if is_there]


def among(values: Iterable[int], those: Iterable[int]) -> str:
    """Return as text the values that are also in `those`; runs of neighbours become ranges.

    Examples
    --------
    >>> among([1, 2, 4, 8], [8, 1, 2])
    '1-2, 8'
    """
    every, meant = sorted({*values}), {*those}
    return ranges_text(spans(every, (value in meant for value in every)))


def ranges_text(pairs: Iterable[tuple[int, int]]) -> str:
    """Return pairs of first and last number as text, in the usual form of ranges.

    Examples
    --------
    >>> ranges_text([(1, 4), (7, 7)])
    '1-4, 7'
    """
    return ", ".join(f"{first}-{last}" if last > first else f"{first}" for first, last in pairs)
