"""Draft lengths by batch size, as vLLM reads them."""

from collections.abc import Sequence

from specmodel.base.errors import InputError


def scheduled_draft_length(schedule: Sequence[Sequence[int]], batch_size: int) -> int:
    """Return the draft length that vLLM takes from a schedule by batch size.

    Parameters
    ----------
    schedule, batch_size
        Entries of first batch size, last one (included) [request] and draft length [token]; in a
        gap, and beyond the last entry, that of the entry before holds; the batch size [request].

    Examples
    --------
    >>> scheduled_draft_length([[1, 16, 3], [17, 64, 2], [65, 4096, 0]], 20)
    2
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
    return _draft_length_at(sorted(schedule, key=list), batch_size)


def _draft_length_at(ranges: Sequence[Sequence[int]], batch_size: int) -> int:
    """Return the draft length at a batch size; refuse ranges that leave out 1 or overlap."""
    end = chosen = 0
    for first, last, length in ranges:
        if first != 1 and end == 0:
            expected = "ranges of which the first starts at 1"
            raise InputError("table", [first, last, length], expected)
        if first <= end:
            expected = f"ranges that do not overlap: another holds {first} too"
            raise InputError("table", [first, last, length], expected)
        if first <= batch_size:
            chosen = length
        end = last
    return chosen
