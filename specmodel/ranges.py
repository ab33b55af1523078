"""Lists and ranges as people type them: ``1,2,4``, ``1:64:2``, ``1:128:x2``."""

from specmodel.errors import InputError

MAX_VALUES = 100_000
"""Most values that one list may have [-]."""

_EXPECTED = "whole numbers as a list or range: 1,2,4 or 1:64:2 or 1:128:x2"


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
    values: list[int] = []
    for entry in text.split(","):
        values += _parse_entry(argument, text, entry.strip())
        if len(values) > MAX_VALUES:
            raise InputError(argument, text, f"at most {MAX_VALUES} values")
    return values


def _parse_entry(argument: str, text: str, entry: str) -> list[int]:
    first, *rest = entry.split(":")
    last = rest[0] if rest else first
    step = rest[1] if len(rest) > 1 else "1"
    is_geometric = step.startswith("x")
    try:
        low, high, stride = int(first), int(last), int(step.removeprefix("x"))
    except ValueError:
        raise InputError(argument, text, _EXPECTED) from None
    if len(rest) > 2 or high < low or stride < (2 if is_geometric else 1):
        raise InputError(argument, text, _EXPECTED)
    if not is_geometric:
        if (high - low) // stride >= MAX_VALUES:
            raise InputError(argument, text, f"at most {MAX_VALUES} values")
        return list(range(low, high + 1, stride))
    if low < 1:
        raise InputError(argument, text, "a geometric range that starts at 1 or more")
    values = []
    while low <= high:
        values.append(low)
        low *= stride
    return values
