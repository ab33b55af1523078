"""Drafters by name, as ``data/drafters.toml`` lists them."""

import re
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from msgspec import Struct

from specmodel.core.base.files import toml_tables


class NamedDrafter(Struct, frozen=True, kw_only=True):
    """A drafter that can be named, and how to make it for a target.

    `words` describe it in help. `kind` is the value of `Drafter.kind`, also in fits and
    measurements. `function` makes the `Drafter` for a target; it is "" for a look-up, which needs
    only a name. A block drafts all its tokens at once; a name may contain their number after a
    colon. `task_spread` is the standard deviation of the acceptance rate of one head between data
    sets, from 61 to 79 published values for a kind as of November 2026. The default is the value
    for heads of all kinds (`algebra.acceptance.ACCEPTANCE_SPREAD`) [-].
    """

    words: str
    kind: str
    function: str = ""
    is_block: bool = False
    task_spread: float = 0.095

    @property
    def made_by(self) -> Callable[..., Any] | None:
        """The function, None for a look-up."""
        module, _, name = self.function.partition(".")
        kinds = "specmodel.core.drafters.kinds"
        return getattr(import_module(f"{kinds}.{module}"), name) if module else None


@cache
def named_drafters() -> dict[str, NamedDrafter]:
    """Return the drafters that can be derived from a target alone, by name."""
    rows = toml_tables(Path(__file__).parent / "data/drafters.toml")
    return {name: NamedDrafter(**row) for name, row in sorted(rows.items())}


def drafter_called(word: str) -> str | None:
    """Return the drafter of a name, however spelt, or of an engine's word; None for any other.

    >>> drafter_called("EAGLE-3"), drafter_called("deepseek_mtp"), drafter_called("eagle3-tree")
    ('eagle3', 'mtp', None)
    """
    return _words().get(_letters(word.strip("[]")))  # vLLM writes [ngram]


@cache
def _words() -> dict[str, str]:
    """Return the drafters by their names and the words of engines, without joining characters."""
    from specmodel.core.drafters.published import rows_of  # imports models

    words = {row["word"]: row["drafter"] for row in rows_of("methods.csv")}
    words |= {name: name for name in named_drafters()}
    return {_letters(word): name for word, name in words.items()}


def _letters(word: str) -> str:
    return re.sub(r"[-_\s]", "", word.lower())


def is_lookup(name: object) -> bool:
    """Return whether `name` is a look-up drafter, which runs nothing on the GPU."""
    row = named_drafters().get(str(name))
    return row is not None and row.made_by is None


def block_drafters() -> list[str]:
    """Return the names of the drafters that draft a block at once."""
    return [name for name, row in named_drafters().items() if row.is_block]
