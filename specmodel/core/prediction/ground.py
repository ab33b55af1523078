"""The ground of a prediction: published rows like it, and how far off their hosts were.

``grounds.csv`` has a row for each cell of published runs with and without speculation, and for the
cells around it; ``calibration/grounds.py`` makes it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from msgspec import Struct

from specmodel.core.base.units import FloatArray
from specmodel.core.cost.deployment import Deployment
from specmodel.core.drafters.published import rows_of

TABLE = Path(__file__).with_name("grounds.csv")
LONG_CONTEXT = 16_384
"""Context above which runs are apart: few published runs, and few published acceptances, are of
longer ones [token]."""
LEAST_ROWS, LEAST_HOSTS = 20, 3
"""Rows and hosts from which a cell has a spread and words of its own [-]."""
SURELY, LIKELY = 0.95, 0.75
"""Least chances of what is said surely and likely to come, and least shares of what was said so of
left-out hosts that came [-]."""
Kind = Literal["known", "few", "none", "own", "unfitted"]
_DRAFTERS = {
    "ngram": "look-up",
    "suffix": "look-up",
    "block head": "block drafter",
    "parallel head": "block drafter",
    "model": "draft model",
    "parallel model": "draft model",
}
"""Kinds of drafters by way of drafting (`machines.engine.Drafting`), where these differ."""


class Cell(NamedTuple):
    """What runs have in common; a part that is "" may be anything.

    `context` is "short" or "long"; `engine` is the engine's stack, with "in turn" behind where host
    and GPU take turns in steps that draft, as in engines of 2025.
    """

    context: str = ""
    vendor: str = ""
    drafter: str = ""
    memory: str = ""
    engine: str = ""

    def around(self) -> list[Cell]:
        """Return the cell and those around it, in which the last parts are left open."""
        return [Cell(*self[:count]) for count in range(len(self), -1, -1)]


class Shares(NamedTuple):
    """Share of what was said of left-out hosts that came true, NaN where nothing was said [-].

    Of gains by word, and of losses, which have a chance of a gain below a half.
    """

    surely: float
    likely: float
    may: float
    loss: float


class Ground(Struct, frozen=True, kw_only=True):
    """Published runs of a cell, and how they were predicted with their hosts left out.

    Parameters
    ----------
    cell
        What the runs have in common.
    rows, hosts
        How many there are [-].
    error, bias
        Mean absolute and mean logarithm of predicted over measured speedups, as ratios less 1 [-].
    spread
        Standard deviation of the logarithm of a further factor on steps that draft [-].
    given, published
        What came true of what was said with the acceptance of the run, and with published ones.
    """

    cell: Cell
    rows: int
    hosts: int
    error: float
    bias: float
    spread: float
    given: Shares
    published: Shares

    @property
    def is_enough(self) -> bool:
        """Whether there are rows and hosts enough to judge by."""
        return self.rows >= LEAST_ROWS and self.hosts >= LEAST_HOSTS


class Place(Struct, frozen=True, kw_only=True):
    """Where a deployment stands among published runs.

    Parameters
    ----------
    cell
        That of the deployment.
    nearest, judged
        The narrowest grounds around it with any rows, and with enough to judge by.
    kind
        "known" where runs of the very cell are enough to judge by, "few" or "none" where there are
        too few or none, "own" of an engine that was fitted to runs of one host, with this GPU and
        drafter, "unfitted" of one that was fitted to nothing.
    spread
        Standard deviation of the logarithm of a further factor on steps that draft: that of the
        ground which is judged by, 0 on one's own host, and of an engine that was fitted to nothing
        as far as all runs are off [-].
    """

    cell: Cell
    nearest: Ground
    judged: Ground
    kind: Kind
    spread: float

    @property
    def may_be_sure(self) -> bool:
        """Whether more than "may" can be said."""
        return self.kind in ("known", "own")

    def word(self, chance: float, *, is_published: bool) -> str:
        """Return how sure a gain is, or a loss if that is likelier: "surely", "likely" or "may".

        By its chance [-], as far as left-out hosts of the cell bore the word out; `is_published`
        says that acceptance was not the run's own.
        """
        likelier = max(chance, 1 - chance)
        for word, least in (("surely", SURELY), ("likely", LIKELY)):
            is_borne_out = self._share(word, chance, is_published=is_published) >= least
            if likelier >= least and (self.kind == "own" or is_borne_out):
                return word
        return "may"

    def share_held(self, chance: float, *, is_published: bool) -> float | None:
        """Return the share of published cases told the same that came true [-], if any were."""
        word = self.word(chance, is_published=is_published)
        share = self._share(word, chance, is_published=is_published)
        return None if np.isnan(share) else share

    def _share(self, word: str, chance: float, *, is_published: bool) -> float:
        """Return the share that came true of what was said, NaN where this is no known ground."""
        if self.kind != "known":
            return float("nan")
        shares = self.judged.published if is_published else self.judged.given
        return float(getattr(shares, "loss" if chance < 0.5 else word))


def place_of(deployment: Deployment, context_length: float) -> Place:
    """Return where a deployment stands at a context [token]."""
    cell, fit, every = cell_of(deployment, context_length), deployment.engine.fit, grounds()
    known = [every[each] for each in cell.around() if each in every]
    if fit is None:
        spread = float((np.pi / 2) ** 0.5 * np.log1p(known[-1].error))
        return Place(cell=cell, nearest=known[0], judged=known[-1], kind="unfitted", spread=spread)
    judged = next(ground for ground in known if ground.is_enough)
    kind: Kind = "known" if judged.cell == cell else "few" if known[0].cell == cell else "none"
    spread = judged.spread
    on = None if deployment.engine.is_of_mean_host else fit.fitted_on
    if on and deployment.hardware.name in on.hardware and deployment.drafter.kind in on.drafters:
        kind, spread = "own", 0.0
    return Place(cell=cell, nearest=known[0], judged=judged, kind=kind, spread=spread)


def spread_of_ground(deployment: Deployment, context_length: FloatArray) -> FloatArray:
    """Return the spread of the ground of each context [token], 0 of an ideal engine [-]."""
    if deployment.engine.is_ideal:
        return np.zeros(())
    ends = [place_of(deployment, context).spread for context in (0, LONG_CONTEXT + 1)]
    return np.where(np.asarray(context_length) > LONG_CONTEXT, ends[1], ends[0])


def cell_of(deployment: Deployment, context_length: float) -> Cell:
    """Return the cell of a deployment at a context [token]."""
    drafting, stack = deployment.drafter.drafting, deployment.engine.stack or ""
    return Cell(
        context="long" if context_length > LONG_CONTEXT else "short",
        vendor=deployment.hardware.name.split()[0],
        drafter=_DRAFTERS.get(drafting, drafting),
        memory=deployment.hardware.memory.technology or "",
        engine=stack if deployment.engine.hides_host == "all" else f"{stack} in turn",
    )


@cache
def grounds() -> dict[Cell, Ground]:
    """Return the ground of each cell that has published runs, and of those around them."""
    rows = rows_of(TABLE.name, TABLE.parent)
    return {ground.cell: ground for ground in map(_ground, rows)}


def _ground(row: dict[str, str]) -> Ground:
    def shares(acceptance: str) -> Shares:
        told = (row[f"{acceptance}_{word}"] for word in Shares._fields)
        return Shares(*(float(share or "nan") for share in told))

    return Ground(
        cell=Cell(**{name: row[name] for name in Cell._fields}),
        rows=int(row["rows"]),
        hosts=int(row["hosts"]),
        **{name: float(row[name]) for name in ("error", "bias", "spread")},
        given=shares("given"),
        published=shares("published"),
    )
