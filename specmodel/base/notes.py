"""What a reader must know of an answer, as data: `show.notes` has the sentence of each kind."""

from collections.abc import Mapping
from dataclasses import field
from importlib import import_module
from typing import Any

from specmodel.base.classes import dataclass


@dataclass(frozen=True)
class Note:
    """One thing that a reader must know: its kind, and by name the values that its words need.

    As a text it is a sentence without a full stop, or the words of a value that was assumed.
    """

    kind: str
    values: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        return str(import_module("specmodel.show.notes").words(self))
