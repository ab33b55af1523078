"""The ground of a prediction: published rows like it, and the errors of their predictions.

``grounds.csv`` has a row for each cell of published runs with and without speculation, and for the
cells around it. ``calibration/grounds.py`` writes the file.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from msgspec import Struct, convert

from specmodel.core.base.units import FloatArray
from specmodel.core.cost.deployment import Deployment
from specmodel.core.drafters.published import rows_of

TABLE = Path(__file__).with_name("grounds.csv")
LONG_CONTEXT = 16_384
"""Context above which runs form separate cells, as few published runs and acceptances have longer
contexts [token]."""
LEAST_ROWS, LEAST_HOSTS = 20, 3
"""Least rows and hosts for which a cell has its own spread and words [-]."""
SURELY, LIKELY = 0.95, 0.75
"""Least chances for the words "surely" and "likely", and least shares of statements with these
words that were true for hosts left out [-]."""
CHANCES = {"surely": (SURELY, 1.0), "likely": (LIKELY, SURELY), "may": (0.5, LIKELY)}
"""Ends of the chances of the published gains that are counted for a word [-]."""
Kind = Literal["known", "few", "none", "own", "unfitted"]
_DRAFTERS = {
    "ngram": "look-up",
    "ngram-gpu": "look-up",
    "suffix": "look-up",
    "block head": "block drafter",
    "parallel head": "block drafter",
    "model": "draft model",
    "parallel model": "draft model",
}
"""Kinds of drafters by way of drafting (`machines.engine.Drafting`), if their names differ."""


class Cell(NamedTuple):
    """Common properties of runs; "" means any value.

    `context` is "short" or "long". `engine` is the engine's stack. It ends in "in turn" if host and
    GPU take turns in steps that draft, as in engines of 2025.
    """

    context: str = ""
    vendor: str = ""
    drafter: str = ""
    memory: str = ""
    engine: str = ""

    def around(self) -> list[Cell]:
        """Return the cell and the cells around it, whose last parts are ""."""
        return [Cell(*self[:count]) for count in range(len(self), -1, -1)]


class Shares(NamedTuple):
    """Shares of statements on hosts left out that were true, NaN without statements [-].

    Statements on gains are counted by word. A loss means a chance of a gain below a half.
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
        Common properties of the runs.
    rows, hosts
        Their numbers [-].
    error, bias
        Mean absolute and mean logarithm of predicted over measured speedups, as ratios less 1 [-].
    spread
        Standard deviation of the logarithm of a further factor on steps that draft [-].
    given, published
        Shares of true statements, made with the acceptance of the run, and with published
        acceptance.
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
        """Whether there are enough rows and hosts for a judgement."""
        return self.rows >= LEAST_ROWS and self.hosts >= LEAST_HOSTS


class Place(Struct, frozen=True, kw_only=True):
    """The place of a deployment among published runs.

    Parameters
    ----------
    cell
        The cell of the deployment.
    nearest, judged
        The narrowest grounds around it with any rows, and with enough rows for a judgement.
    kind
        "known" if the cell has enough rows, "few" or "none" if it has too few or none. "own" if the
        engine was fitted to runs of one host with this GPU and drafter. "unfitted" if the engine
        was fitted to nothing.
    spread
        Standard deviation of the logarithm of a further factor on steps that draft [-]. It is the
        spread of `judged`, or 0 for "own". For "unfitted", it follows from the mean error of all
        runs.
    """

    cell: Cell
    nearest: Ground
    judged: Ground
    kind: Kind
    spread: float

    @property
    def may_be_sure(self) -> bool:
        """Whether a statement can use a stronger word than "may"."""
        return self.kind in ("known", "own")

    def word(self, chance: float, *, is_published: bool) -> str:
        """Return how sure a gain is, or a loss if a loss is likelier: "surely", "likely" or "may".

        `chance` is the chance of a gain [-]. A word is used only if enough statements with it were
        true for hosts left out. `is_published` means that acceptance is not the run's own.
        """
        likelier = max(chance, 1 - chance)
        for word, least in (("surely", SURELY), ("likely", LIKELY)):
            is_borne_out = self._share(word, chance, is_published=is_published) >= least
            if likelier >= least and (self.kind == "own" or is_borne_out):
                return word
        return "may"

    def share_held(self, chance: float, *, is_published: bool) -> float | None:
        """Return the share of published cases for which the same word was true [-], if any."""
        word = self.word(chance, is_published=is_published)
        share = self._share(word, chance, is_published=is_published)
        return None if np.isnan(share) else share

    def _share(self, word: str, chance: float, *, is_published: bool) -> float:
        """Return the share of true statements with a word, NaN if the ground is not known."""
        if self.kind != "known":
            return float("nan")
        shares = self.judged.published if is_published else self.judged.given
        return float(getattr(shares, "loss" if chance < 0.5 else word))


def place_of(deployment: Deployment, context_length: float) -> Place:
    """Return the place of a deployment at a context [token]."""
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
    """Return the spread of the ground at each context [token], 0 for an ideal engine [-]."""
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
    """Return the ground of each cell with published runs, and of the cells around it."""
    rows = rows_of(TABLE.name, TABLE.parent)
    return {ground.cell: ground for ground in map(_ground, rows)}


def _ground(row: dict[str, str]) -> Ground:
    told: dict[str, Any] = {"cell": [row[name] for name in Cell._fields]}
    for acceptance in ("given", "published"):
        told[acceptance] = [row[f"{acceptance}_{word}"] or "nan" for word in Shares._fields]
    return convert(row | told, Ground, strict=False)
