"""Represent notes on an answer as data; the output writes the sentence of each kind."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from specmodel.core.base.fronts import SHOWN


class Note(Struct, frozen=True):
    """One thing that a reader must know: its kind, and by name the values that its words need.

    As a text it is a sentence without a full stop, or the words of a value that was assumed; kind
    and values where nobody shows it.
    """

    kind: str
    values: Mapping[str, Any] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(self.kind)

    def __str__(self) -> str:
        return str(SHOWN["words"](self) if SHOWN else f"{self.kind}: {dict(self.values)}")
