"""What is published of draft heads: of one target with one drafter, and of all of a kind.

``data/typical_lengths.csv`` has one value for each target, kind of drafter and draft length,
``data/task_lengths.csv`` one for each kind of task.
"""

import re
from dataclasses import replace
from functools import cache, cached_property
from itertools import groupby

import numpy as np

from specmodel.algebra import speculation
from specmodel.algebra.acceptance import (
    Acceptance,
    acceptance_from_lengths,
    acceptance_of_blocks,
    expected_tokens_per_step_by_position,
)
from specmodel.base.classes import dataclass
from specmodel.base.naming import checkpoint
from specmodel.base.units import FloatArray, quantiles
from specmodel.drafters.names import named_drafters
from specmodel.drafters.published import is_named, rows_of
from specmodel.models.architecture import list_architectures

QUARTILES_FROM = 6
"""Targets of a kind from which quartiles are told; of fewer, the lowest and the highest [-]."""
_RANGE_FROM = 2
_BENCHMARK = "InferenceX: SPEED-Bench coding, thinking on, B300, vLLM, as of November 2026"
_SHOWN = 0.005
"""Tokens per step that differ by less are printed alike [token]."""
NAMES = ("typical-low", "typical", "typical-high")
"""Names by which the three levels are taken as an acceptance."""
_LEVELS = {True: ("lower quartile", "median", "upper quartile")}
_LEVELS[False] = ("lowest", "median", "highest")


@dataclass(frozen=True)
class PublishedHead:
    """Tokens per step that were measured of a target with a drafter, by draft length [token].

    `name` is that by which it is taken for another target, `target` the beginning of a target's
    name, `drafter` a kind in `named_drafters`; `task` is the kind of prompts, "mixture" of several
    kinds; `source` tells where the numbers are from.
    """

    name: str
    target: str
    drafter: str
    task: str
    source: str
    lengths: tuple[int, ...]
    tokens_per_step: tuple[float, ...]

    @cached_property
    def acceptance(self) -> Acceptance:
        """Up to the longest draft that was measured, with its source."""
        rates = self._rates(max(self.lengths))
        return Acceptance(acceptance_by_position=rates.tolist(), source=self.source)

    @property
    def smoothed(self) -> str:
        """Clause on how far smoothing moves the measured tokens per step, "" if it does not."""
        lengths = np.array(self.lengths)
        off = np.abs(self.tokens_at(len(lengths)) - self.tokens_per_step)
        if off.max() <= _SHOWN:
            return ""
        where = ", ".join(f"{length}" for length in lengths[off > _SHOWN])
        by = f"by up to {off.max():.2f} tokens at length {where}"
        return f"; smoothed, as gains rise or are losses: {by}"

    def is_of(self, target: str) -> bool:
        """Tell whether a model's name contains the name of this head's target."""
        return is_named(target, self.target)

    def unlike(self, named: str) -> str:
        """Clause that this is not the head which a path or id names, "" if it is or "" is named.

        A module that is named after no other model is taken to be that of the target's checkpoint.
        """
        own = named.rstrip("/").rpartition("/")[2].lower()
        ids = [row["id"] for row in rows_of("measured_heads.csv") if row["name"] == self.name]
        model = checkpoint(re.sub("[-_.](nextn|mtp).*", "", own), list_architectures())
        is_own = not ids and self.drafter == "mtp" and (not model or self.is_of(model[0]))
        if not own or is_own or own in (each.rpartition("/")[2].lower() for each in ids):
            return ""
        if not ids and self.drafter != "mtp":
            return "; of a head that its source does not name"
        return f"; of another head: {', '.join(ids) or f'the module of {self.target}'}"

    def tokens_at(self, longest: int) -> FloatArray:
        """Return tokens per step at lengths 1 to `longest`, extended by the last rate [token]."""
        lengths = np.arange(1, longest + 1)
        return np.asarray(expected_tokens_per_step_by_position(self._rates(longest), lengths))

    def _rates(self, longest: int) -> FloatArray:
        """Return rates by position, for drafters of blocks a row for each length [-]."""
        measured = np.array(self.lengths, dtype=float)
        if named_drafters()[self.drafter].is_block:
            solved = speculation.solve_acceptance_rate(np.array(self.tokens_per_step), measured)
            rates = np.interp(np.arange(1.0, longest + 1), measured, solved)
            return np.repeat(rates[:, None], longest, axis=1)
        known = acceptance_from_lengths(self.tokens_per_step, self.lengths)
        return np.concatenate([known, np.full(longest, known[-1])])[:longest]


@cache
def published_acceptance() -> tuple[PublishedHead, ...]:
    """Return the heads measured by one benchmark, "preset" ones first for a target and drafter.

    >>> [published.name for published in published_acceptance()][:2]
    ['deepseek-v4-pro-mtp', 'glm-5.2-mtp']
    """
    found = []
    for row in rows_of("accept_lengths.csv"):
        tokens = tuple(float(value) for key, value in row.items() if key.isdecimal())
        lengths = tuple(range(1, len(tokens) + 1))
        name, target, drafter, task = (row[key] for key in ("name", "target", "drafter", "task"))
        head = PublishedHead(name, target, drafter, task, "", lengths, tokens)
        found.append(replace(head, source=f"{head.name} ({_BENCHMARK}{head.smoothed})"))
    return tuple(found)


@cache
def published_heads() -> tuple[PublishedHead, ...]:
    """Return the published heads, one for each target and kind of drafter.

    >>> published_heads()[0].drafter
    'dflash'
    """
    found = []
    for (target, drafter), group in groupby(
        rows_of("typical_lengths.csv"), lambda row: (row["target"], row["drafter"])
    ):
        rows = list(group)
        from_where = ", ".join(rows[0][key] for key in ("source", "date", "data_set"))
        told = f"{target} with {drafter}: {from_where}"
        found.append(_head_of(rows, f"{target}-{drafter}", told))
    return tuple(found)


def published_as(drafter: str) -> str:
    """Return the kind under which the acceptance of a kind of drafter is published.

    >>> published_as("assistant"), published_as("eagle3")
    ('mtp', 'eagle3')
    """
    return "mtp" if drafter == "assistant" else drafter  # as engines count them


def acceptance_by_task(target: str, drafter: str) -> dict[str, Acceptance]:
    """Return the published acceptance by kind of task, for a target's name and kind of drafter.

    >>> list(acceptance_by_task("Gemma-4-26B-A4B", "mtp"))
    ['chat', 'code', 'maths', 'prose']
    """
    rows = [
        row
        for row in rows_of("task_lengths.csv")
        if row["drafter"] == published_as(drafter) and is_named(target, row["target"])
    ]
    by_task = groupby(rows, lambda row: row["task"])
    return {task: _head_of(list(group), task, "").acceptance for task, group in by_task}


def _head_of(rows: list[dict[str, str]], name: str, source: str) -> PublishedHead:
    """Return a head from rows of a table, one row for each draft length."""
    lengths = tuple(int(row["draft_length"]) for row in rows)
    tokens = tuple(float(row["tokens_per_step"]) for row in rows)
    target, drafter, task = (rows[0][key] for key in ("target", "drafter", "task"))
    return PublishedHead(name, target, drafter, task, source, lengths, tokens)


def acceptance_by_name() -> dict[str, PublishedHead]:
    """Return all published heads by name; the benchmark's replace those of the table.

    >>> acceptance_by_name()["qwen3-30b-a3b-eagle3"].lengths
    (3, 5, 7)
    """
    return {head.name: head for head in (*published_heads(), *published_acceptance())}


@cache
def measured_acceptance(target: str, drafter: str, named: str = "") -> Acceptance | None:
    """Return the published acceptance of a target, by name, and drafter; None if there is none.

    Its source says so if it is of another head than the one that a path or id names.

    >>> float(measured_acceptance("Qwen3-30B-A3B", "eagle3").expected_tokens_per_step(5).round(2))
    3.01
    >>> measured_acceptance("Mixtral-8x7B", "eagle3")
    """
    for head in (*published_acceptance(), *published_heads()):
        if head.drafter == published_as(drafter) and head.is_of(target):
            return replace(head.acceptance, source=head.source + head.unlike(named))
    return None


@dataclass(frozen=True)
class TypicalHeads:
    """Acceptance of published heads of one kind, at three levels: low, middle and high.

    `max_draft_length` is the longest draft at which half of them were measured [token].
    """

    drafter: str
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
        tokens = np.stack([head.tokens_at(self.max_draft_length) for head in self.heads])
        shares = (0.25, 0.5, 0.75) if self.num_targets >= QUARTILES_FROM else (0.0, 0.5, 1.0)
        is_block = named_drafters()[self.drafter].is_block
        of_lengths = acceptance_of_blocks if is_block else acceptance_from_lengths
        rates = map(of_lengths, quantiles(tokens, shares))
        return [Acceptance(acceptance_by_position=each.tolist()) for each in rates]


def typical_heads(drafter: str) -> TypicalHeads | None:
    """Return the typical acceptance of a kind of head, None if fewer than two targets have one.

    Examples
    --------
    >>> found = typical_heads("eagle3")
    >>> found.levels, found.num_targets >= 20
    (('lower quartile', 'median', 'upper quartile'), True)
    >>> typical_heads("pard")
    """
    drafter = published_as(drafter)
    heads = tuple(head for head in published_heads() if head.drafter == drafter)
    if len(heads) < _RANGE_FROM:
        return None
    return TypicalHeads(drafter, heads, int(np.median([max(head.lengths) for head in heads])))
