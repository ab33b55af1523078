"""Return the acceptance of published heads of a kind at three levels: low, middle and high."""

from functools import cached_property

import numpy as np
from msgspec import Struct

from specmodel.core.algebra.acceptance import (
    Acceptance,
    acceptance_from_lengths,
    acceptance_of_blocks,
)
from specmodel.core.base.units import quantiles
from specmodel.core.drafters.measured_heads import PublishedHead, acceptance_by_name, published_as
from specmodel.core.drafters.names import named_drafters
from specmodel.core.drafters.tasks import MIXTURE

QUARTILES_FROM = 6
"""Least number of targets for quartiles; with fewer, the levels are the lowest and highest [-]."""
_RANGE_FROM = 2
NAMES = ("typical-low", "typical", "typical-high")
"""Values of `acceptance` that mean the three levels."""
_LEVELS = {True: ("lower quartile", "median", "upper quartile")}
_LEVELS[False] = ("lowest", "median", "highest")


class TypicalHeads(Struct, frozen=True, dict=True):
    """Acceptance of published heads of one kind on a task, at three levels: low, middle and high.

    `max_draft_length` is the longest draft at which half of them were measured [token].
    """

    drafter: str
    task: str
    heads: tuple[PublishedHead, ...]
    max_draft_length: int

    @property
    def num_targets(self) -> int:
        """Targets with a published head [-]."""
        return len(self.heads)

    @property
    def levels(self) -> tuple[str, str, str]:
        """Names of the three levels: quartiles where there are enough of them."""
        return _LEVELS[self.num_targets >= QUARTILES_FROM]

    @cached_property
    def acceptance(self) -> list[Acceptance]:
        """Acceptance at the three levels."""
        longest = self.max_draft_length
        tokens = np.stack([head.tokens_on(self.task, longest) for head in self.heads])
        shares = (0.25, 0.5, 0.75) if self.num_targets >= QUARTILES_FROM else (0.0, 0.5, 1.0)
        kind = named_drafters()[self.drafter]
        of_lengths = acceptance_of_blocks if kind.is_block else acceptance_from_lengths
        rates = map(of_lengths, quantiles(tokens, shares))
        spread = self.heads[0].spread_on(self.task)
        return [Acceptance(acceptance_by_position=r.tolist(), spread=spread) for r in rates]


def typical_heads(drafter: str, task: str = MIXTURE) -> TypicalHeads | None:
    """Return the typical acceptance of a kind of head, None if fewer than two targets have one.

    `task` is a kind of task, or shares of several, as in `shares_of`.

    Examples
    --------
    >>> found = typical_heads("eagle3")
    >>> found.levels, found.num_targets >= 20
    (('lower quartile', 'median', 'upper quartile'), True)
    >>> typical_heads("pard")
    """
    kind = published_as(drafter)
    heads_of = [head for head in acceptance_by_name().values() if head.drafter == kind]
    by_target = {head.target: head for head in reversed(heads_of)}
    if len(by_target) < _RANGE_FROM:
        return None
    heads = tuple(by_target.values())
    return TypicalHeads(kind, task, heads, int(np.median([head.longest for head in heads])))
