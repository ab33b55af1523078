"""Published acceptance of draft heads: of one target with one drafter, on each kind of task.

``data/acceptance.csv`` has a row for each data set and draft length that a head was measured on.
"""

import re
from collections.abc import Mapping
from functools import cache, cached_property
from itertools import groupby

import numpy as np
from msgspec import Struct

from specmodel.core.algebra import speculation
from specmodel.core.algebra.acceptance import (
    Acceptance,
    acceptance_from_lengths,
    acceptance_of_blocks,
)
from specmodel.core.base.errors import InputError
from specmodel.core.base.text import listed
from specmodel.core.base.units import FloatArray, Numeric, quantiles
from specmodel.core.drafters.names import NamedDrafter, named_drafters
from specmodel.core.drafters.published import is_named, rows_of
from specmodel.core.drafters.tasks import MIXTURE, TASKS, shares_of, task_shifts
from specmodel.core.models.architecture import list_architectures
from specmodel.core.models.checkpoints import checkpoint

_SHOWN = 0.005
"""Smallest difference between tokens per step that shows in print [token]."""
_UNNAMED = "not named"
_SHIFTS = np.linspace(-8, 8, 1601)
"""Shifts of logits, of which the search selects the one that agrees with a measurement [-]."""


class Measured(Struct, frozen=True):
    """Tokens per step of a head on one kind of task, at the draft lengths measured [token].

    Values are harmonic means over data sets, as each has the same share of tokens. `source`
    contains the date.
    """

    lengths: tuple[int, ...]
    tokens_per_step: tuple[float, ...]
    data_sets: tuple[str, ...]
    source: str


class PublishedHead(Struct, frozen=True, dict=True):
    """A draft head with published acceptance.

    `name` is the name for use with another target, and `target` the beginning of the name of its
    own. `drafter` is a kind in `named_drafters`, and `ids` are names on a hub. `tasks` contains the
    measurements by kind of task. The kind is "mixture" if one number covers data sets of several
    kinds, or unnamed data sets.
    """

    name: str
    target: str
    drafter: str
    ids: tuple[str, ...]
    tasks: Mapping[str, Measured]

    @cached_property
    def base(self) -> str:
        """The kind of task measured at most draft lengths, from which others are derived.

        Among kinds with equally many lengths, a mixture comes first, then the one with most data
        sets.
        """

        def reach(task: str) -> tuple[int, ...]:
            known = self.tasks[task]
            return len(known.lengths), task == MIXTURE, len(known.data_sets)

        return max(self.tasks, key=reach)

    @property
    def longest(self) -> int:
        """Longest draft that was measured [token]."""
        return max(self.tasks[self.base].lengths)

    def acceptance(self, task: str = MIXTURE) -> Acceptance:
        """Return the acceptance on a kind of task, or a mixture, up to the longest draft measured.

        Its source states what was measured and what is derived.
        """
        tokens = self.tokens_on(task, self.longest)
        of_lengths = acceptance_of_blocks if self._kind.is_block else acceptance_from_lengths
        rates = of_lengths(tokens)
        on = "in mixed use" if task == MIXTURE else f"on {task}"
        return Acceptance(
            acceptance_by_position=rates.tolist(),
            source=f"{self.name} {on} ({self._told(task)}{self._smoothed(task)})",
            spread=self.spread_on(task),
        )

    def tokens_on(self, task: str, longest: int) -> FloatArray:
        """Return tokens per step at lengths 1 to `longest`, extended by the last rate [token].

        For a mixture, this is the harmonic mean, as shares of the mixture are shares of tokens.
        """
        shares = self._shares_of(task).items()
        return np.asarray(1 / sum(share / self._curve(kind, longest) for kind, share in shares))

    def spread_on(self, task: str) -> float:
        """Return the standard deviation of the acceptance rate on a kind of task, or a mixture [-].

        For a mixture, it is the deviation between tasks, else between data sets of the kind.
        """
        if task not in TASKS:
            return self._kind.task_spread
        shift = task_shifts()[task]
        return shift.spread if task in self.tasks else shift.derived_spread

    def unlike(self, named: str) -> str:
        """Return a clause for the source if a path or id names another head, else "".

        A module without the name of another model is assumed to be in the target's checkpoint.
        """
        own = named.rstrip("/").rpartition("/")[2].lower()
        model = checkpoint(re.sub("[-_.](nextn|mtp).*", "", own), list_architectures())
        is_own = (
            not self.ids
            and self.drafter == "mtp"
            and (not model or is_named(model[0], self.target))
        )
        if not own or is_own or own in (each.rpartition("/")[2].lower() for each in self.ids):
            return ""
        if not self.ids and self.drafter != "mtp":
            return "; of a head that its source does not name"
        return f"; of another head: {', '.join(self.ids) or f'the module of {self.target}'}"

    @property
    def _kind(self) -> NamedDrafter:
        return named_drafters()[self.drafter]

    def _shares_of(self, task: str) -> dict[str, float]:
        """Return shares by kind; a mixture that was measured as a whole is one kind."""
        shares = shares_of(task)
        if task != MIXTURE or {*shares} <= {*self.tasks}:
            return shares
        if MIXTURE in self.tasks or not self._kind.function:
            return {MIXTURE if MIXTURE in self.tasks else self.base: 1.0}
        return shares

    def _curve(self, task: str, longest: int) -> FloatArray:
        """Return tokens per step on one kind of task at lengths 1 to `longest` [token].

        If the kind was measured at as many lengths as the base, these are measured values.
        Otherwise, the logits of the base's rates are shifted: to agree with what was measured, or
        by the mean difference between the kinds.
        """
        own = self.tasks.get(task)
        if own is None and not self._kind.function:  # look-ups do not show how tasks differ
            expected = f"{' or '.join(self.tasks)}: {self.name} is published for no other task"
            raise InputError("task", task, expected)
        if own is None:
            return self.derived(task_shifts()[task].shift, longest)
        if len(own.lengths) >= len(self.tasks[self.base].lengths):
            return self._tokens(self._rates(own, longest))
        curves = self._shifted(_SHIFTS[:, np.newaxis], max(own.lengths))
        measured = zip(own.lengths, own.tokens_per_step, strict=True)
        shifts = [np.interp(tokens, curves[:, n - 1], _SHIFTS) for n, tokens in measured]
        return self._shifted(np.mean(shifts), longest)

    def derived(self, shift: float, longest: int) -> FloatArray:
        """Return tokens per step on a kind of task with a `TaskShift.shift`, not measured [token].

        At lengths 1 to `longest`.
        """
        base = self.tasks[self.base]
        return self._shifted(shift - task_shifts()[self.base].of(base.data_sets), longest)

    def _shifted(self, by: Numeric, longest: int) -> FloatArray:
        """Return the tokens per step of the base, the logits of its rates shifted [token]."""
        rates = self._rates(self.tasks[self.base], longest)
        with np.errstate(divide="ignore"):
            logits = np.log(rates) - np.log1p(-rates)
        return self._tokens(1 / (1 + np.exp(-logits - by)))

    def _tokens(self, rates: FloatArray) -> FloatArray:
        """Return tokens per step at lengths 1, 2, … from the rates on the last axis [token]."""
        if self._kind.is_block:
            lengths = np.arange(1, rates.shape[-1] + 1)
            return np.asarray(speculation.expected_tokens_per_step(rates, lengths))
        return np.asarray(1 + np.cumsum(np.cumprod(rates, axis=-1), axis=-1))

    def _rates(self, measured: Measured, longest: int) -> FloatArray:
        """Return the rates of positions 1 to `longest`, or of blocks of each length [-].

        Beyond the longest measured length, the last rate is repeated.
        """
        known, tokens = np.array(measured.lengths, dtype=float), measured.tokens_per_step
        if self._kind.is_block:
            solved = speculation.solve_acceptance_rate(np.array(tokens), known)
            return np.interp(np.arange(1, longest + 1), known, solved)
        rates = acceptance_from_lengths(tokens, measured.lengths)
        return np.concatenate([rates, np.full(longest, rates[-1])])[:longest]

    def _told(self, task: str) -> str:
        """Return text on what was measured for the kinds of a task, and on which data sets."""
        taken = self._shares_of(task)
        measured = [kind for kind in taken if kind in self.tasks]
        derived = [kind for kind in taken if kind not in self.tasks]
        by_source: dict[str, list[str]] = {}
        for kind in measured or [self.base]:
            known = self.tasks[kind]
            by_source.setdefault(known.source, []).append(f"{kind}: {', '.join(known.data_sets)}")
        told = [f"{'; '.join(sets)}; source: {source}" for source, sets in by_source.items()]
        if derived:
            told.append(f"{listed(derived)}: estimated from {listed(measured or [self.base])}")
        return "; ".join(told)

    def _smoothed(self, task: str) -> str:
        """Return a clause on how far smoothing moves measured tokens per step, "" if not at all."""
        own = self.tasks.get(task)
        if own is None:
            return ""
        lengths = np.array(own.lengths)
        reached = self._tokens(self._rates(own, lengths[-1]))[lengths - 1]
        off = np.abs(reached - own.tokens_per_step)
        if off.max() <= _SHOWN:
            return ""
        where = ", ".join(f"{length}" for length in lengths[off > _SHOWN])
        by = f"by up to {off.max():.2f} tokens at draft length {where}"
        return f"; smoothed {by}, as measured gains per drafted token rise or are negative"


def _head(name: str, rows: list[dict[str, str]]) -> PublishedHead:
    """Return the head of a name from its rows."""
    by_task: dict[str, list[dict[str, str]]] = {}
    for row in rows:
        by_task.setdefault(row["task"].replace(_UNNAMED, MIXTURE), []).append(row)
    tasks = {task: _measured(some) for task, some in by_task.items()}
    ids = tuple(dict.fromkeys(row["head"] for row in rows if row["head"]))
    return PublishedHead(name, rows[0]["target"], rows[0]["drafter"], ids, tasks)


def _measured(rows: list[dict[str, str]]) -> Measured:
    """Return what one source measured on a kind of task.

    It is the source with most draft lengths, then with most data sets, then with thinking, as most
    models are served, then the first.
    """
    series: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in rows:
        series.setdefault((row["source"], row["thinking"]), []).append(row)
    tables = []
    for some in series.values():
        by_set: dict[str, dict[int, float]] = {}
        for row in some:
            tokens = by_set.setdefault(row["data_set"], {})
            tokens[int(row["draft_length"])] = float(row["tokens_per_step"])
        shared = sorted(set.intersection(*map(set, by_set.values())))
        tables.append((shared, by_set, some[0]))
    lengths, by_set, first = max(tables, key=_reach)
    means = [len(by_set) / sum(1 / tokens[n] for tokens in by_set.values()) for n in lengths]
    thinking = f" (thinking {first['thinking']})" if first["thinking"] else ""
    source = f"{first['source']}, {first['date']}{thinking}"
    return Measured(tuple(lengths), tuple(round(mean, 4) for mean in means), tuple(by_set), source)


def _reach(table: tuple[list[int], dict[str, dict[int, float]], dict[str, str]]) -> tuple[int, ...]:
    """Return how many lengths and data sets a series has, and whether it is with thinking."""
    lengths, by_set, first = table
    return len(lengths), len(by_set), first["thinking"] == "on"


@cache
def acceptance_by_name() -> dict[str, PublishedHead]:
    """Return all published heads by name, the usual one of a target and kind of drafter first.

    >>> acceptance_by_name()["qwen3-30b-a3b-eagle3"].longest
    7
    """
    by_name = groupby(rows_of("acceptance.csv"), lambda row: row["name"])
    return {name: _head(name, [*rows]) for name, rows in by_name}


def published_as(drafter: str) -> str:
    """Return the kind under which the acceptance of a kind of drafter is published.

    >>> published_as("assistant"), published_as("eagle3")
    ('mtp', 'eagle3')
    """
    return "mtp" if drafter == "assistant" else drafter  # engines treat assistants as MTP


def published_head_of(target: str, drafter: str, named: str = "") -> PublishedHead | None:
    """Return the head with published acceptance for a target, by name, and a kind of drafter.

    Among several heads, it is the one that a path or id names, else the usual one.

    >>> published_head_of("Qwen3-30B-A3B", "eagle3").name
    'qwen3-30b-a3b-eagle3'
    >>> published_head_of("Mixtral-8x7B", "eagle3")
    """
    kind = published_as(drafter)
    published = (head for head in acceptance_by_name().values() if head.drafter == kind)
    heads = [head for head in published if is_named(target, head.target)]
    own = [head for head in heads if named and not head.unlike(named)]
    return next(iter(own or heads), None)


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
