"""Draft lengths by batch size, as in schedules of engines and policies."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta, Struct, ValidationError, convert

from specmodel.core.base.errors import InputError
from specmodel.core.base.ranges import whole_of
from specmodel.core.base.records import read_text
from specmodel.core.base.units import FloatArray, Numeric


class ByBatch(Struct, frozen=True):
    """A schedule: its ranges are first and last batch size [request], and draft length [token]."""

    ranges: Annotated[list[tuple[int, int, int]], Meta(min_length=1)]

    def at(self, batch_size: Numeric) -> FloatArray:
        """Return the draft length at each batch size, as vLLM reads the schedule [token]."""
        firsts, _, lengths = zip(*sorted(self.ranges), strict=True)
        which = np.searchsorted(firsts, np.asarray(batch_size), side="right")
        return np.asarray(np.array([0, *lengths], dtype=float)[which])

    @property
    def lengths(self) -> list[int]:
        """Its draft lengths, rising [token]."""
        return sorted({length for *_, length in self.ranges})

    @staticmethod
    def of(schedule: Any, argument: str = "table") -> ByBatch:
        """Return a checked schedule from entries of first and last batch size and draft length."""
        try:
            found = convert({"ranges": schedule}, ByBatch)
        except ValidationError:
            expected = "at least one entry [first batch size, last batch size, draft length]"
            raise InputError(argument, schedule, expected) from None
        before = [0, 0, 0]
        for entry in map(list, sorted(found.ranges)):
            first, last, length = entry
            if first > last or length < 0:
                expected = "first batch size, last batch size and a draft length from 0"
                raise InputError(argument, entry, expected)
            if first != 1 and before[1] == 0:
                raise InputError(argument, entry, "a first range that starts at batch size 1")
            if first <= before[1]:
                expected = f"ranges that do not overlap; another one has batch size {first} too"
                raise InputError(argument, entry, expected)
            before = entry
        return found


def scheduled_draft_lengths(schedule: Sequence[Sequence[int]], max_batch_size: int) -> list[int]:
    """Return the draft length that vLLM reads from a schedule at each batch size.

    Parameters
    ----------
    schedule
        Entries of first and last batch size (both included) [request] and draft length [token]. In
        a gap, and beyond the last entry, the draft length of the entry before applies.
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
    found: list[int] = ByBatch.of(schedule).at(range(max_batch_size + 1)).astype(int).tolist()
    return found


def by_batch(text: str) -> ByBatch:
    """Return the draft lengths that ``below:B:K`` or ``table:FIRST-LAST=K:...`` states.

    >>> by_batch("below:31:3").at([31, 32]).tolist()
    [3.0, 0.0]
    """
    kind, *words = text.strip().split(":")
    if kind not in ("below", "table"):
        expected = "whole numbers, or a rule such as below:64:3 or table:1-16=3:17-64=2"
        raise InputError("draft_length", text, expected)
    return ByBatch.of(schedule_of(text, words, "draft_length"), "draft_length")


def schedule_of(policy: str, words: Sequence[str], argument: str = "policy") -> Any:
    """Return the draft lengths by batch size that ``table:`` or ``below:`` states, unchecked.

    Ranges are ``[first, last, draft length]``; `words` are the parts of `policy` after its name.
    """
    if policy.strip().partition(":")[0] == "below":
        numbers = [number for word in words if (number := whole_of(word))]
        if len(words) != 2 or len(numbers) != 2:
            expected = "below:B:K, such as below:64:3 for 3 tokens up to batch size 64"
            raise InputError(argument, policy, expected)
        size, length = numbers
        return [[1, size, length], [size + 1, size + 1, 0]]
    try:
        if len(words) == 1 and "=" not in words[0]:
            return json.loads(read_text(Path(words[0]), f"{argument} table", "JSON"))
        for word in words:
            if not re.fullmatch(r"\d+-\d+=\d+", word):
                raise ValueError(f"{word} is not FIRST-LAST=LENGTH")
        return [[int(number) for number in re.split("[-=]", word)] for word in words]
    except (ValueError, RecursionError) as error:
        reason = error.expected if isinstance(error, InputError) else error
        expected = "entries such as table:1-16=3:17-64=2, or a JSON file of [[1, 16, 3], ...]"
        raise InputError(argument, policy, f"{expected} ({reason})") from None
