"""What a policy is; draft lengths by batch size."""

import numbers
from collections.abc import Sequence
from typing import Protocol

from specmodel.base.errors import InputError


class Policy(Protocol):
    """A draft-length policy of one request: asked before each step, told after it.

    It may have a `phase`, a word for people ("test" is counted), and a `utility` it measured.
    """

    def propose(self) -> int:
        """Return the draft length of the next step, 0 for none [token]."""
        ...

    def observe(self, emitted_tokens: int, step_time: float) -> None:
        """Take in what a step emitted, bonus token included [token], and how long it took [s]."""
        ...


def is_number(value: object, *, whole: bool = False) -> bool:
    """Return whether `value` is one number: no truth value, text or list. NaN is one."""
    kind = numbers.Integral if whole else numbers.Real
    return isinstance(value, kind) and not isinstance(value, bool)


def scheduled_draft_length(schedule: Sequence[Sequence[int]], batch_size: int) -> int:
    """Return what a schedule by batch size says, as vLLM reads it.

    Parameters
    ----------
    schedule
        Entries of first batch size, last one (included) and draft length [request] [token].
    batch_size
        Sequences decoded together [request].

    Returns
    -------
    int
        Draft length; a gap takes that of the entry before it, 0 before the first [token].

    Raises
    ------
    InputError
        If there is no entry, one is not three whole numbers, or its range is reversed.

    Examples
    --------
    >>> scheduled_draft_length([[1, 16, 3], [17, 64, 2], [65, 4096, 0]], 20)
    2
    """
    chosen = 0
    if not isinstance(schedule, Sequence) or not schedule:
        expected = "at least one [first batch size, last batch size, draft length]"
        raise InputError("table", schedule, expected)
    for entry in schedule:
        is_entry = isinstance(entry, Sequence) and len(entry) == 3
        if not is_entry or any(type(number) is not int for number in entry):
            raise InputError("table", entry, "[first batch size, last batch size, draft length]")
        first, last, length = entry
        if not 1 <= first <= last or length < 0:
            expected = "a range from 1 on that is not reversed, and a length of at least 0"
            raise InputError("table", list(entry), expected)
    for first, _, length in sorted(schedule, key=lambda entry: entry[0]):
        if first <= batch_size:
            chosen = length
    return chosen
