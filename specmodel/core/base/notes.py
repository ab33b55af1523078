"""Represent notes on an answer as data; the package that shows answers has their sentences."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from specmodel.core.base.fronts import SHOWN


class Note(Struct, frozen=True):
    """A fact that a reader must know: its kind, and the values in its sentence by name.

    As a text, it is a sentence without a full stop, or the words for an assumed value. Without the
    package that shows answers, it is the kind and the values.
    """

    kind: str
    values: Mapping[str, Any] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(self.kind)

    def __str__(self) -> str:
        return str(SHOWN["words"](self) if SHOWN else f"{self.kind}: {dict(self.values)}")
