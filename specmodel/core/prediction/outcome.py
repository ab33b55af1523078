"""The outcome of a prediction: arrays of one shape, as rows, as a table."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict, replace

from specmodel.core.base.fronts import SHOWN
from specmodel.core.base.notes import Note
from specmodel.core.base.text import Printed
from specmodel.core.base.units import FloatArray
from specmodel.core.cost.blocks import BlockedTimes
from specmodel.core.cost.deployment import Deployment
from specmodel.core.cost.steps import StepTimes
from specmodel.core.drafters.measured_heads import TypicalHeads
from specmodel.core.prediction.case import Case
from specmodel.core.prediction.cautions import (
    notes_of_run,
    notes_of_times,
    notes_with_drafts,
    plain_notes,
)
from specmodel.core.prediction.columns import COLUMNS, Array, interval_of, with_interval
from specmodel.core.prediction.evaluate import Evaluation
from specmodel.core.prediction.intervals import Interval, states_errors
from specmodel.core.prediction.table import Column, Row, text_table

if TYPE_CHECKING:
    import pandas as pd


_ALL = "to_frame() has all"
_MOST_PRINTED = 60
"""Most points that print as a page, and most rows of a printed table [-]."""
_WHERE_VARIED = ("draft_length", "fits")
"""Columns that a table only contains if they vary."""


class ViewSettings(TypedDict, total=False):
    """Settings of views: the verdict accepts all, other views accept `interval` only.

    `tpot_target` is the largest acceptable time per output token [s]. `columns` are the names of
    the table's columns, with commas. `interval` adds intervals, by default if errors are known.
    `components` adds the times of components.
    """

    tpot_target: float
    columns: str
    interval: bool | None
    components: bool


class Turned(Struct, frozen=True, kw_only=True, eq=False):
    """Least acceptance at which drafting pays at each point, and speedups with published heads.

    The prediction has the draft length that is best with the median head, and the tokens and
    speedups of that head. Without heads, it has the length that needs the least acceptance.

    Parameters
    ----------
    heads
        Published heads of the drafter's kind; None if too few are published, for trees, and for
        longer drafts than their longest.
    rate_needed, tokens_needed
        Least acceptance rate at which this length pays [-], and the same as tokens per step; NaN if
        no rate is enough [token].
    speedups
        Speedup by level of the heads; empty without heads [-].
    """

    heads: TypicalHeads | None
    rate_needed: FloatArray
    tokens_needed: FloatArray
    speedups: dict[str, FloatArray]


class Prediction(Printed, Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """Gains and costs of speculation at each operating point.

    Every column is an attribute, such as `speedup`, `target_efficiency` [-] or `forward_time` [s].
    All are arrays of one shape, and `units` names them.

    Parameters
    ----------
    evaluation, shown
        Source from which columns are computed when you read them, and the columns in their order.
    assumptions, told
        Values that were assumed for arguments that were not given. The `notes`, if known.
    intervals
        Central 80 % intervals by column, if requested.
    case, turned
        The question that it answers, if asked by names. If no acceptance is known, the acceptance
        from which drafting pays.
    """

    evaluation: Evaluation
    assumptions: dict[str, Any]
    told: tuple[Note, ...] | None = None
    intervals: dict[str, Interval] | None = None
    shown: tuple[Column, ...] = COLUMNS
    case: Case | None = None
    turned: Turned | None = None

    @cached_property
    def _by_name(self) -> dict[str, Column]:
        return {column.name: column for column in self.shown}

    def __getattr__(self, name: str) -> Array:
        if name.startswith("_") or name not in self._by_name:
            raise AttributeError(f"a prediction has no {name!r}; its columns are in units()")
        values, words = self.value(name), self._by_name[name].words
        return np.asarray(np.array(words)[values]) if words else values

    def value(self, name: str) -> Array:
        """Return a column by name; a column of words as indices into `Column.words`."""
        known: dict[str, Array] = vars(self).setdefault("_known", {})
        if name not in known:
            found = self._by_name[name].of(self.evaluation)
            known[name] = np.broadcast_to(found, self.evaluation.shape)
        return known[name]

    @property
    def values(self) -> dict[str, Array]:
        """All columns by name, as `value` returns them."""
        return {name: self.value(name) for name in self._by_name}

    @cached_property
    def notes(self) -> tuple[Note, ...]:
        """Notes for the reader of the prediction."""
        if self.told is not None:
            return self.told
        if "draft_length" not in self._by_name:
            return plain_notes(self.evaluation)
        if self.turned:  # the gain of a mean head does not predict this head's
            e = self.evaluation
            run = notes_of_run(self.deployment, e.points["context_length"])
            return (*run, *notes_of_times(e))
        return notes_with_drafts(self.evaluation, self.assumptions)

    @property
    def states_errors(self) -> bool:
        """Whether the errors of the engine and its kernels are known at these contexts."""
        return states_errors(self.deployment, self.evaluation.points["context_length"])

    @property
    def warnings(self) -> tuple[str, ...]:
        """Notes for the reader of the prediction, one sentence each."""
        return tuple(map(str, self.notes))

    def view(self, name: str = "", **how: Unpack[ViewSettings]) -> Any:
        """Return a view of the prediction, which prints in all forms: ``print(p.view("peak"))``.

        Parameters
        ----------
        name
            "verdict", "lengths" (each draft length), "peak" (over batch sizes), "terms" (what
            reduces the gain) or, for `specmodel.decode`, "plain". The default is the verdict.
        **how
            Settings of the view, as in `ViewSettings`.
        """
        return SHOWN["view"](self, name, **how)

    def report(self, *, verbose: bool = False, **how: Unpack[ViewSettings]) -> str:
        """Return the page that the command prints, with all its inputs and sources if `verbose`.

        `how` passes settings to `view`.
        """
        return str(self.view(**how).report(verbose=verbose))

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Facts on the command's first screen, by name: ``p.facts["one_length"].value``."""
        return dict(self.view().facts)

    def to_dict(self, **how: Unpack[ViewSettings]) -> dict[str, Any]:
        """Return the content of the command's JSON; `how` passes settings to `view`."""
        return dict(self.view(**how).to_dict())

    def __str__(self) -> str:
        if self.is_brief:
            return self.report()
        size, most = self.batch_size.size, _MOST_PRINTED
        rest = f"\nThe first {most} of {size} points; to_frame() has all." if size > most else ""
        return self.to_text(most=most) + rest

    def __repr__(self) -> str:
        d = self.deployment
        drafter, gpus = f" + {d.drafter.name}" * d.has_drafter, d.layout.num_gpus
        what = f"{d.target.name}{drafter} on {gpus} x {d.hardware.name}"
        return f"<Prediction: {what}; points: {self.batch_size.size}>"

    @property
    def is_brief(self) -> bool:
        """Whether it prints as a page, not as a table of its first points."""
        return bool(self.case and self.batch_size.size <= _MOST_PRINTED and SHOWN)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._by_name})

    @property
    def deployment(self) -> Deployment:
        """Target, drafter, GPUs and engine of the prediction."""
        return self.evaluation.deployment

    @property
    def times(self) -> StepTimes | BlockedTimes:
        """Times by pass and component. An axis that does not affect a time stays short."""
        return self.evaluation.times

    @property
    def max_draft_length(self) -> int:
        """Longest draft length to consider for the best one [token]."""
        return self.evaluation.max_draft_length

    def units(self) -> dict[str, str]:
        """Return the unit of each column, including ends of intervals and chances of a gain."""
        with_ends = self.intervals or {}
        return {
            name: column.unit
            for column in self.shown
            for name in (with_interval(column.name) if column.name in with_ends else [column.name])
        }

    def columns(self) -> dict[str, Array]:
        """Return the columns flattened, in order. The ends of an interval follow their column."""
        found: dict[str, Array] = {}
        for name in self._by_name:
            found[name] = np.ravel(getattr(self, name))
            if self.intervals and name in self.intervals:
                found |= {
                    f"{name}_{part}": np.ravel(values)
                    for part, values in asdict(self.intervals[name]).items()
                    if values is not None
                }
        return found

    def rows(self, most: int | None = None) -> list[Row]:
        """Return one dict for each of at most `most` points, with None for undefined values."""
        columns: dict[str, list[Any]] = {}
        for name, array in self.columns().items():
            values = array[:most].tolist()
            if array.dtype.kind == "f" and np.isnan(array).any():
                values = [None if value != value else value for value in values]
            if name in self._by_name and self._by_name[name].is_whole:
                values = [None if value is None else int(value) for value in values]
            columns[name] = values
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def to_text(self, width: int = 80, most: int | None = None, remedy: str = _ALL) -> str:
        """Return the points as a table of text.

        Parameters
        ----------
        width, most
            Maximum characters per line; a line below the table names the columns that do not fit.
            Maximum number of points, from the first on; all if None [-].
        remedy
            Where to find the columns that do not fit.
        """
        return text_table(self.rows(most), self._titled(), width=width, remedy=remedy)

    def _titled(self) -> list[Column]:
        """Return the columns with a title, words last, the interval behind its column."""
        lacking = () if self.deployment.target.is_moe else ("active_experts",)
        titled = (
            replace(column, is_coordinate=column.is_coordinate or column.name in _WHERE_VARIED)
            for column in self.shown
            if column.title and column.name not in lacking
        )
        columns = sorted(titled, key=lambda column: bool(column.words))
        leading = "speedup" if "speedup" in self._by_name else "tpot"
        if leading in (self.intervals or {}):
            place = [column.name for column in columns].index(leading) + 1
            columns.insert(place, interval_of(leading, is_time=leading == "tpot"))
        return columns

    def to_frame(self) -> pd.DataFrame:
        """Return the points as a tidy table: one row per point, columns as in `units`.

        Counts are integers, unless a column has an undefined or unbounded count.
        """
        import pandas as pd

        found = self.columns()
        for name, column in self._by_name.items():
            if column.is_whole and np.isfinite(found[name]).all():
                found[name] = found[name].astype(np.int64)
        return pd.DataFrame(found)
