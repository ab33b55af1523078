"""What is published of draft heads: of one target with one drafter, and of all of a kind.

``data/typical_lengths.csv`` has one value for each target, kind of drafter and draft length.
"""

from dataclasses import dataclass
from functools import cache, cached_property
from itertools import groupby, pairwise

import numpy as np

from specmodel.algebra import speculation
from specmodel.algebra.acceptance import (
    Acceptance,
    acceptance_from_lengths,
    acceptance_of_blocks,
    expected_tokens_per_step_by_position,
)
from specmodel.base.units import FloatArray, quantiles
from specmodel.drafters.names import DRAFTERS
from specmodel.drafters.published import (
    PublishedAcceptance,
    is_named,
    published_acceptance,
    rows_of,
)

QUARTILES_FROM = 6
"""Targets of a kind from which quartiles are told; of fewer, the lowest and the highest [-]."""
_RANGE_FROM = 2
NAMES = ("typical-low", "typical", "typical-high")
"""Names by which the three levels are taken as an acceptance."""
_LEVELS = {True: ("lower quartile", "median", "upper quartile")}
_LEVELS[False] = ("lowest", "median", "highest")


@dataclass(frozen=True)
class PublishedHead:
    """Tokens per step that were measured of a target with a drafter, by draft length [token]."""

    target: str
    drafter: str
    data_set: str
    lengths: tuple[int, ...]
    tokens_per_step: tuple[float, ...]
    date: str
    source: str

    @property
    def name(self) -> str:
        """By which it is taken for another target."""
        return f"{self.target}-{self.drafter}"

    @property
    def told(self) -> str:
        """Where the numbers are from."""
        return f"{self.target} with {self.drafter}: {self.source}, {self.date}, {self.data_set}"

    @cached_property
    def acceptance(self) -> Acceptance:
        """Up to the longest draft that was measured, with its source."""
        rates = self._rates(max(self.lengths))
        return Acceptance(acceptance_by_position=rates.tolist(), source=self.told)

    def tokens_at(self, longest: int) -> FloatArray:
        """Return the tokens per step at lengths of 1 to so many, held beyond the measured ones."""
        lengths = np.arange(1, longest + 1)
        return np.asarray(expected_tokens_per_step_by_position(self._rates(longest), lengths))

    def _rates(self, longest: int) -> FloatArray:
        """Return rates by position, for drafters of blocks a row for each length [-]."""
        measured = np.array(self.lengths, dtype=float)
        if DRAFTERS[self.drafter].is_block:
            solved = speculation.solve_acceptance_rate(np.array(self.tokens_per_step), measured)
            rates = np.interp(np.arange(1.0, longest + 1), measured, solved)
            return np.repeat(rates[:, None], longest, axis=1)
        if self.lengths == tuple(range(1, len(self.lengths) + 1)):
            known = acceptance_from_lengths(self.tokens_per_step)
        else:
            known = _between(self.lengths, self.tokens_per_step)
        return np.concatenate([known, np.full(longest, known[-1])])[:longest]


def _between(lengths: tuple[int, ...], tokens: tuple[float, ...]) -> FloatArray:
    """Return rates by position that give the tokens at some lengths, one rate between two [-]."""
    reached, rates = 1.0, list[float]()
    for (first, before), (last, after) in pairwise([(0, 1.0), *zip(lengths, tokens, strict=True)]):
        count = last - first
        gain = min(max((after - before) / reached, 0.0), float(count)) if reached else 0.0
        rate = float(speculation.solve_acceptance_rate(1.0 + gain, count))
        rates += [rate] * count
        reached *= rate**count
    return np.array(rates)


@cache
def published_heads() -> tuple[PublishedHead, ...]:
    """Return what is published of heads, one entry for each target and kind of drafter.

    >>> published_heads()[0].drafter
    'dflash'
    """
    keys = ("target", "drafter", "data_set", "date", "source")
    found = []
    for _, group in groupby(
        rows_of("typical_lengths.csv"), lambda row: (row["target"], row["drafter"])
    ):
        rows = list(group)
        told = {key: rows[0][key] for key in keys}
        lengths = tuple(int(row["draft_length"]) for row in rows)
        tokens = tuple(float(row["tokens_per_step"]) for row in rows)
        found.append(PublishedHead(**told, lengths=lengths, tokens_per_step=tokens))
    return tuple(found)


def acceptance_by_name() -> dict[str, PublishedAcceptance | PublishedHead]:
    """Return all that is published, by name; what has a name of its own before the same in a table.

    >>> acceptance_by_name()["qwen3-30b-a3b-eagle3"].lengths
    (3, 5, 7)
    """
    found: dict[str, PublishedAcceptance | PublishedHead] = {
        head.name: head for head in published_heads()
    }
    return found | {published.name: published for published in published_acceptance()}


@cache
def measured_acceptance(target: str, drafter: str) -> Acceptance | None:
    """Return what is published of this very target, by its name, with this kind of drafter.

    >>> float(measured_acceptance("Qwen3-30B-A3B", "eagle3").expected_tokens_per_step(5).round(2))
    3.01
    >>> measured_acceptance("Mixtral-8x7B", "eagle3")
    """
    for published in published_acceptance():
        if published.is_of(target) and published.drafter == drafter:
            return published.acceptance
    for head in published_heads():
        if head.drafter == drafter and is_named(target, head.target):
            return head.acceptance
    return None


@dataclass(frozen=True)
class TypicalHeads:
    """What published heads of a kind reach: three levels, low, middle and high.

    `max_draft_length` is the longest draft at which half of them were measured [token].
    """

    drafter: str
    heads: tuple[PublishedHead, ...]
    max_draft_length: int

    @property
    def num_targets(self) -> int:
        """How many there are [-]."""
        return len(self.heads)

    @property
    def levels(self) -> tuple[str, str, str]:
        """Names of the three levels: quartiles where there are enough of them."""
        return _LEVELS[self.num_targets >= QUARTILES_FROM]

    @cached_property
    def acceptance(self) -> list[Acceptance]:
        """Acceptance at the three levels."""
        tokens = np.stack([head.tokens_at(self.max_draft_length) for head in self.heads])
        shares = (0.25, 0.5, 0.75) if self.num_targets >= QUARTILES_FROM else (0.0, 0.5, 1.0)
        return [_of_kind(self.drafter, reached) for reached in quantiles(tokens, shares)]


def typical_heads(drafter: str) -> TypicalHeads | None:
    """Return what published heads of a kind reach, None if fewer than two targets have one.

    Examples
    --------
    >>> found = typical_heads("eagle3")
    >>> found.levels, found.num_targets >= 20
    (('lower quartile', 'median', 'upper quartile'), True)
    >>> typical_heads("pard")
    """
    heads = tuple(head for head in published_heads() if head.drafter == drafter)
    if len(heads) < _RANGE_FROM:
        return None
    return TypicalHeads(drafter, heads, int(np.median([max(head.lengths) for head in heads])))


def _of_kind(drafter: str, tokens: FloatArray) -> Acceptance:
    """Return the acceptance that gives so many tokens a step at lengths of 1, 2, … [-]."""
    of_lengths = acceptance_of_blocks if DRAFTERS[drafter].is_block else acceptance_from_lengths
    return Acceptance(acceptance_by_position=of_lengths(tokens).tolist())
