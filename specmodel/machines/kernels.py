"""Fitted kernels of a serving stack: parameters of the roofline, and how far to trust them."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, make_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeAlias

from specmodel.algebra.roofline import DATA_SHEET, KernelParameters
from specmodel.base import records
from specmodel.base.dtypes import FitDtype, StorageDtype, names_of_fits
from specmodel.base.errors import InputError
from specmodel.base.records import Record
from specmodel.base.schemas import Day, Setting
from specmodel.layers.kinds import FITTED_KINDS, kernel_kind
from specmodel.machines.covariance import check_covariance

Share = Annotated[float, Setting(gt=0, le=1)]
Spread = Annotated[float, Setting(ge=0, le=10)]
Points = Annotated[int, Setting(ge=0, le=10**9)]

TYPICAL = "typical"
"""Name of the stack that stands in where nothing was fitted."""

_AS = {"fp16": "bf16"}

FITTED_DTYPE: Literal["bf16"] = "bf16"
"""Dtype whose parameters stand in for dtypes that were not fitted."""

STATE_DTYPE: Literal["fp32"] = "fp32"
"""The same of recurrences, whose state engines keep in 32 bits."""


def fitted_dtype(kind: str) -> StorageDtype:
    """Return the dtype whose fit stands in for dtypes of a kind that were not fitted."""
    return STATE_DTYPE if kernel_kind(kind).follows == "state" else FITTED_DTYPE


@dataclass(frozen=True, kw_only=True)
class KernelFit(Record):
    """Fitted parameters of one kind of kernel at one dtype of weights or KV.

    Parameters
    ----------
    launch_time, memory_efficiency, compute_efficiency, activation_efficiency, sharpness
        Parameters of the roofline, as in `KernelParameters` [s] [-].
    tile_rows, tile_growth, tile_width, group_time, ramp_time, depth_time, depth_limit
        Further ones, of tiles [-], of groups and ramps [s], and of depths [s] [-].
    arithmetic_dtype
        Dtype that the kernels compute in: the fit holds for no other.
    num_points, num_judged, is_held_out
        Points fitted, points that the errors are of, and whether these are of shapes that were not
        fitted [-].
    mean_error, median_error, percentile_90_error
        Of predicted over measured less one, absolute: mean over points within a shape and then
        over shapes, median and 90th percentile over points [-].
    shape_spread, row_spread
        Standard deviation of ln(measured / predicted) that a shape has in common, and of its
        points around that [-].
    at_bound
        Parameters that the fit left at a bound: what is taken of them is the bound.
    varied, covariance
        Parameters that were fitted, and the covariance of their logarithms [-].
    """

    launch_time: Annotated[float, Setting(ge=0, le=1)]
    memory_efficiency: Share
    compute_efficiency: Share = 1.0
    activation_efficiency: Annotated[float, Setting(gt=0, le=100)] | None = None
    sharpness: Annotated[float, Setting(ge=1, le=64)]
    tile_rows: Annotated[float, Setting(ge=0, le=4096)] = 0.0
    tile_growth: Annotated[float, Setting(ge=0, lt=1)] = 0.0
    tile_width: Annotated[float, Setting(ge=0, le=4096)] = 0.0
    group_time: Annotated[float, Setting(ge=0, le=1e-3)] = 0.0
    ramp_time: Annotated[float, Setting(ge=0, le=1)] = 0.0
    depth_time: Annotated[float, Setting(ge=0, le=1e-3)] = 0.0
    depth_limit: Annotated[float, Setting(gt=0, le=1e9)] = 1e9
    arithmetic_dtype: str
    num_points: Points
    num_judged: Points
    is_held_out: bool
    mean_error: Spread
    median_error: Spread
    percentile_90_error: Spread
    shape_spread: Spread
    row_spread: Spread
    at_bound: list[str] = field(default_factory=list)
    varied: list[str]
    covariance: list[list[float]]

    def __post_init__(self) -> None:
        check_covariance("", self.varied, self.covariance, _PARAMETERS)
        if not set(self.at_bound) <= set(self.varied):
            raise InputError("at_bound", self.at_bound, f"some of {', '.join(self.varied)}")

    def with_errors(self, error: float, shape: float, row: float = 0.0) -> Self:
        """Return a fit that stands in for another, which misses that by so much more [-]."""
        return replace(
            self,
            mean_error=max(self.mean_error, error),
            shape_spread=math.hypot(self.shape_spread, shape),
            row_spread=math.hypot(self.row_spread, row),
        )

    @property
    def parameters(self) -> KernelParameters:
        """What the roofline takes."""
        return KernelParameters(**{name: getattr(self, name) for name in _PARAMETERS})


@dataclass(frozen=True, kw_only=True)
class _Source(Record):
    """Version of a stack, data set and device of its fits, their day, and if it is the default."""

    version: str
    source: Annotated[str, Setting(min_length=3)]
    date: Day
    lent_by: str = ""
    is_default: bool = False


if TYPE_CHECKING:
    _FitsByKind: TypeAlias = _Source
else:  # a field for each kind of the table, so that errors name kinds as they name other fields
    _FitsByKind = make_dataclass(
        "_FitsByKind",
        [(kind, dict[FitDtype, KernelFit], field(default_factory=dict)) for kind in FITTED_KINDS],
        bases=(_Source,),
        frozen=True,
        kw_only=True,
    )


class FittedStack(_FitsByKind):
    """Kernels of one serving stack on one GPU, with the data set that they were fitted to.

    Each fitted kind of `layers.kinds` is a further field: its fits by dtype of weights, cache or
    state.

    Parameters
    ----------
    version
        Version of the stack.
    source
        Data set of the fits, and the device that it was measured on.
    date
        Day of the fit as 2026-11-21.
    lent_by
        Name of another device that it was measured on, whose kernels this one runs; errors are
        then those of kernels on devices that nothing was measured on.
    is_default
        Whether this stack is taken if none is named.
    """

    def of_kind(self, kind: str) -> Mapping[str, KernelFit]:
        """Return the fits of a kind by dtype; none of a kind that is never fitted."""
        fits: Mapping[str, KernelFit] = getattr(self, kernel_kind(kind).name, {})
        return fits

    def with_fits(self, fits: Mapping[str, Mapping[str, KernelFit]]) -> Self:
        """Return the stack with all fits of some kinds replaced, by kind and dtype."""
        kinds: dict[str, Any] = {**fits}
        return replace(self, **kinds)

    def dtype_of_fit(self, kind: str, stored: str, arithmetic: str | None = None) -> str | None:
        """Return the dtype whose fit is taken: the first of `names_of_fits`, else `fitted_dtype`.

        `stored` is the dtype of weights, cache or state, and `arithmetic` that of the arithmetic on
        them, None for whatever was fitted. A fit to weights holds for its own arithmetic only; what
        reads a cache or a state computes alike whatever that holds.
        """
        fits, follows = self.of_kind(kind), kernel_kind(kind).follows
        is_same = follows in ("cache", "state") or arithmetic is None
        for name in names_of_fits(stored, arithmetic):
            own = fits.get(name)
            if own and (is_same or own.arithmetic_dtype == _AS.get(str(arithmetic), arithmetic)):
                return name
        standard = fitted_dtype(kind)
        return standard if standard in fits else None

    def place(
        self, kind: str, stored: str, arithmetic: str | None = None
    ) -> tuple[str, str] | None:
        """Return kind and dtype of the fit that is taken: of the kind, or of what stands in."""
        while kind:
            dtype = self.dtype_of_fit(kind, stored, arithmetic)
            if dtype:
                return kind, dtype
            kind = kernel_kind(kind).stand_in
        return None

    def fit(self, kind: str, stored: str, arithmetic: str | None = None) -> KernelFit | None:
        """Return the fit of `place`, with larger errors if nobody timed this kind."""
        place = self.place(kind, stored, arithmetic)
        if not place:
            return None
        fit, untimed = self.of_kind(place[0])[place[1]], kernel_kind(kind).untimed
        return fit.with_errors(*untimed) if untimed and place[0] != kind else fit

    def fits(self) -> Iterator[tuple[str, str, KernelFit]]:
        """Yield kind, dtype and fit of all there are."""
        for kind in FITTED_KINDS:
            for dtype, fit in self.of_kind(kind).items():
                yield kind, dtype, fit


@dataclass(frozen=True, eq=False, repr=False)
class Kernels:
    """How the kernels of a deployment use their GPU.

    Parameters
    ----------
    stack
        Whose kernels: a fitted stack, "typical" or "datasheet".
    fits, record
        Parameters by kind and dtype of weights or KV, and the fits that they were taken from, with
        errors; None for the data sheet.
    typical
        Kinds that the stack has no fit of, so that typical ones were taken.
    all_reduces
        Stack whose all-reduces run, if not of the same.
    stand_ins
        By kind and dtype that the stack has no fit of: whose stands in.
    """

    stack: str
    fits: Mapping[str, Mapping[str, KernelParameters]]
    record: FittedStack | None = None
    typical: tuple[str, ...] = ()
    all_reduces: str | None = None
    stand_ins: Mapping[tuple[str, str], str] = field(default_factory=dict)

    @property
    def link_stack(self) -> str:
        """Stack whose all-reduces run."""
        return self.all_reduces or self.stack

    def taken(
        self, kind: str, stored: str, arithmetic: str | None = None
    ) -> tuple[str, str] | None:
        """Return kind and dtype of the fit that is taken for a kind and dtypes, if there is one."""
        return self.record.place(kind, stored, arithmetic) if self.record else None

    def kind_of_errors(self, kind: str) -> str:
        """Return the kind whose errors kernels of a kind have: that of the fits they take."""
        kind = kernel_kind(kind).errors_of or kind
        while self.record and not self.record.of_kind(kind):
            row = kernel_kind(kind)
            if row.untimed or not row.stand_in:
                break
            kind = row.stand_in
        return kind

    def parameters(self, kind: str, stored: str, arithmetic: str | None = None) -> KernelParameters:
        """Return the parameters of the fit for a kind and dtypes, or the data sheet's.

        An InputError names a kind that the table has not, or that a stack has no fit of where
        nothing stands in: kernels that nobody timed do not run at the speed of the data sheet.
        """
        place = self.taken(kind, stored, arithmetic)
        if place:
            return self.fits[place[0]][place[1]]
        if kernel_kind(kind).follows and self.record:
            remedy = "give it a stand-in in specmodel/layers/kinds.py, or fit it"
            raise InputError("kind", kind, f"one that {self.stack} has a fit of: {remedy}")
        return DATA_SHEET

    def arithmetic(self, kind: str, stored: str, arithmetic: str) -> str:
        """Return the dtype whose peak those parameters are of: `arithmetic`, or that of the fit.

        Prompts that take the fit to caches of 16 bits for one of 8 compute in 16: that kernels
        gain from 8 bits is what their own fit would have said.
        """
        follows_fit = kernel_kind(kind).computes_as_fitted
        fit = self.record.fit(kind, stored) if self.record and follows_fit else None
        return fit.arithmetic_dtype if fit else arithmetic


DATA_SHEET_KERNELS = Kernels("datasheet", {})


def stack_kernels(
    name: str, stack: FittedStack, stand_ins: Mapping[tuple[str, str], str] | None = None
) -> Kernels:
    """Return the kernels of a stack by its fits, and typical ones of kinds that it has no fit of.

    `stand_ins` says by kind and dtype whose those of its fits are that are others'.
    """
    filled: dict[str, dict[str, KernelFit]] = {}
    if name != TYPICAL:
        typical = load_typical()
        missing = [kind for kind in FITTED_KINDS if _takes_typical(stack, kind)]
        filled = {kind: {**typical.of_kind(kind), **stack.of_kind(kind)} for kind in missing}
        stack = stack.with_fits(filled)
    fits: dict[str, dict[str, KernelParameters]] = {}
    for kind, dtype, fit in stack.fits():
        fits.setdefault(kind, {})[dtype] = fit.parameters
    typical_kinds = tuple(kind for kind in filled if filled[kind])
    return Kernels(name, fits, stack, typical_kinds, stand_ins=stand_ins or {})


def _takes_typical(stack: FittedStack, kind: str) -> bool:
    """Return whether typical fits fill in for a kind that the stack has none of."""
    row = kernel_kind(kind)
    is_fitted = fitted_dtype(kind) in stack.of_kind(kind)
    return not is_fitted and not (row.takes_own_first and stack.of_kind(row.stand_in))


def load_typical() -> FittedStack:
    """Return typical kernels: for a device that nothing was measured on."""
    return records.load(FittedStack, TYPICAL, Path(__file__).parent / "data/stacks", "stack")


_PARAMETERS = tuple(KernelParameters.__dataclass_fields__)
