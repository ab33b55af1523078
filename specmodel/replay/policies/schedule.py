"""Draft lengths by batch size, as vLLM reads them."""

from collections.abc import Sequence

from specmodel.base.errors import InputError


def scheduled_draft_lengths(schedule: Sequence[Sequence[int]], max_batch_size: int) -> list[int]:
    """Return the draft length that vLLM takes from a schedule at each batch size.

    Parameters
    ----------
    schedule
        Entries of first batch size, last one (included) [request] and draft length [token]; in a
        gap, and beyond the last entry, that of the entry before holds.
    max_batch_size
        Largest batch [request].

    Returns
    -------
    list
        Draft lengths by batch size, from 0, which has none [token].

    Examples
    --------
    >>> scheduled_draft_lengths([[1, 2, 3], [4, 64, 2]], 5)
    [0, 3, 3, 3, 2, 2]
    """
    expected = "[first batch size, last batch size, draft length]"
    if not isinstance(schedule, Sequence) or not schedule:
        raise InputError("table", schedule, f"at least one {expected}")
    for entry in schedule:
        is_entry = isinstance(entry, Sequence) and len(entry) == 3
        if not is_entry or any(type(number) is not int for number in entry):
            raise InputError("table", entry, expected)
        if entry[0] > entry[1] or entry[2] < 0:
            expected = "a range that is not reversed, and a length of at least 0"
            raise InputError("table", list(entry), expected)
    lengths, end = [0], 0
    for first, last, length in sorted(schedule, key=list):
        if first != 1 and end == 0:
            expected = "ranges of which the first starts at 1"
            raise InputError("table", [first, last, length], expected)
        if first <= end:
            expected = f"ranges that do not overlap: another holds {first} too"
            raise InputError("table", [first, last, length], expected)
        before = lengths[-1]
        lengths += [before] * (min(first, max_batch_size + 1) - len(lengths))
        lengths += [length] * (min(last, max_batch_size) + 1 - len(lengths))
        end = last
    return lengths + [lengths[-1]] * (max_batch_size + 1 - len(lengths))
