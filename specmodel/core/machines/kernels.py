"""Describe fitted kernels of a serving stack: roofline parameters, and their errors."""

import math
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self, TypeAlias

import numpy as np
from msgspec import Meta, Struct, defstruct, field
from msgspec.structs import replace

from specmodel.core.algebra.roofline import DATA_SHEET, KernelParameters
from specmodel.core.base import records
from specmodel.core.base.bounds import LEAST, Day, Finite, Portion, Spread
from specmodel.core.base.dtypes import FitDtype, StorageDtype, names_of_fits
from specmodel.core.base.errors import InputError
from specmodel.core.base.records import Record
from specmodel.core.base.units import FloatArray
from specmodel.core.layers.kinds import FITTED_KINDS, kernel_kind

_LARGEST_VARIANCE = 1e4  # of a logarithm; larger variances have no meaning
_ROUNDING = 1e-3

Points = Annotated[int, Meta(ge=0, le=10**9)]

TYPICAL = "typical"
"""Name of the stack that is used if nothing was fitted."""

_AS: Mapping[str | None, str] = {"fp16": "bf16"}
"""Dtypes of arithmetic that run as fast as a fitted dtype, and the fitted dtype."""

FITTED_DTYPE: Literal["bf16"] = "bf16"
"""Standard dtype: its fit is used for dtypes that were not fitted."""

STATE_DTYPE: Literal["fp32"] = "fp32"
"""Standard dtype of recurrences, as engines keep their states in 32 bits."""


def limited_covariance(covariance: FloatArray) -> FloatArray:
    """Return a covariance with variances of at most `_LARGEST_VARIANCE` in all directions.

    Few rows that hardly determine a parameter give larger variances, which have no meaning.
    """
    variances, directions = np.linalg.eigh((covariance + covariance.T) / 2)
    if variances.max(initial=0.0) <= _LARGEST_VARIANCE:
        return covariance
    scaled = directions * np.clip(variances, 0.0, 0.999 * _LARGEST_VARIANCE)
    return np.asarray(scaled @ directions.T, float)


def check_covariance(
    table: str, varied: list[str], covariance: list[list[float]], known: Collection[str]
) -> None:
    """Refuse a matrix that is not a covariance of the logarithms of the parameters `varied`.

    `table` is the table of the fit in its record, for messages: a name and a dot, or nothing.
    """
    size = len(varied)
    if not set(varied) <= set(known) or len(set(varied)) < size:
        raise InputError(f"{table}varied", varied, f"names from {', '.join(known)}, each once")
    if [len(row) for row in covariance] != [size] * size:
        raise InputError(f"{table}covariance", covariance, f"{size} rows of {size} numbers")
    matrix = np.array(covariance).reshape(size, size)
    largest = np.abs(matrix).max(initial=0.0)
    lost = _ROUNDING * largest
    if largest > _LARGEST_VARIANCE or (np.abs(matrix - matrix.T) > lost).any():
        expected = f"a symmetric matrix of numbers up to {_LARGEST_VARIANCE:g}"
        raise InputError(f"{table}covariance", covariance, expected)
    if size and np.linalg.eigvalsh(matrix).min() < -lost:
        expected = "a positive semi-definite matrix"
        raise InputError(f"{table}covariance", covariance, expected)


def fitted_dtype(kind: str) -> StorageDtype:
    """Return the standard dtype of a kind: its fit is used for dtypes that were not fitted."""
    return STATE_DTYPE if kernel_kind(kind).follows == "state" else FITTED_DTYPE


class KernelFit(Record, frozen=True, kw_only=True):
    """Fitted parameters of one kind of kernel at one dtype of weights or KV.

    Parameters
    ----------
    launch_time, memory_efficiency, compute_efficiency, activation_efficiency, sharpness
        Parameters of the roofline, as in `KernelParameters` [s] [-].
    tile_rows, tile_growth, tile_width, group_time, ramp_time, depth_time, depth_limit
        Parameters of tiles [-], of groups and ramps [s], and of depths [s] [-].
    reread_rows, result_terms
        Parameters of products on a CPU [-].
    vector_rows, vector_memory_efficiency, vector_compute_efficiency, vector_rereads
        Parameters of vector kernels [-].
    arithmetic_dtype
        Dtype in which the kernels compute: the fit is valid for this dtype only.
    num_points, num_judged, is_held_out
        Number of points in the fit, and of points for the errors [-]. Whether the points for the
        errors have shapes that were left out of the fit.
    mean_error, median_error, percentile_90_error
        Of abs(predicted / measured - 1): mean over points within a shape and then
        over shapes, median and 90th percentile over points [-].
    shape_spread, row_spread
        Standard deviation of ln(measured / predicted) between shapes, and between points within a
        shape [-].
    at_bound
        Parameters at a bound, with that bound as value.
    varied, covariance
        Fitted parameters, and the covariance of their logarithms [-].
    """

    launch_time: Annotated[float, Meta(ge=0, le=1)]
    memory_efficiency: Portion
    compute_efficiency: Annotated[float, Meta(ge=LEAST, le=100)] = 1.0
    activation_efficiency: Annotated[float, Meta(ge=LEAST, le=100)] | None = None
    sharpness: Annotated[float, Meta(ge=1, le=64)]
    tile_rows: Annotated[float, Meta(ge=0, le=4096)] = 0.0
    tile_growth: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    tile_width: Annotated[float, Meta(ge=0, le=4096)] = 0.0
    reread_rows: Annotated[float, Meta(ge=0, le=4096)] = 0.0
    result_terms: Annotated[float, Meta(ge=0, le=1e6)] = 0.0
    group_time: Annotated[float, Meta(ge=0, le=1e-3)] = 0.0
    ramp_time: Annotated[float, Meta(ge=0, le=1)] = 0.0
    depth_time: Annotated[float, Meta(ge=0, le=1e-3)] = 0.0
    depth_limit: Annotated[float, Meta(ge=1, le=1e9)] = 1e9
    vector_rows: Annotated[float, Meta(ge=0, le=4096)] = 0.0
    vector_memory_efficiency: Annotated[float, Meta(ge=LEAST, le=100)] = 1.0
    vector_compute_efficiency: Annotated[float, Meta(ge=1e-9, le=1e4)] = 1.0
    vector_rereads: Annotated[float, Meta(ge=0, le=1)] = 0.0
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
    covariance: list[list[Finite]]

    def __post_init__(self) -> None:
        check_covariance("", self.varied, self.covariance, _PARAMETERS)
        if not set(self.at_bound) <= set(self.varied):
            raise InputError("at_bound", self.at_bound, f"some of {', '.join(self.varied)}")

    def with_errors(self, error: float, shape: float, row: float = 0.0) -> Self:
        """Return the fit with the larger errors of a substitute: least error, added spreads."""
        return replace(
            self,
            mean_error=max(self.mean_error, error),
            shape_spread=math.hypot(self.shape_spread, shape),
            row_spread=math.hypot(self.row_spread, row),
        )

    @cached_property
    def parameters(self) -> KernelParameters:
        """Parameters of this fit for the roofline."""
        return KernelParameters(**{name: getattr(self, name) for name in _PARAMETERS})


class _Source(Record, frozen=True, kw_only=True):
    """Version of a stack, data set and device of its fits, their day, and if it is the default."""

    version: str
    source: Annotated[str, Meta(min_length=3)]
    date: Day
    lent_by: str = ""
    is_default: bool = False
    is_measured_here: bool = False


if TYPE_CHECKING:
    _FitsByKind: TypeAlias = _Source
else:  # a field for each kind of the table, so that errors name kinds as they name other fields
    _FitsByKind = defstruct(
        "_FitsByKind",
        [(kind, dict[FitDtype, KernelFit], field(default_factory=dict)) for kind in FITTED_KINDS],
        bases=(_Source,),
        kw_only=True,
    )


class FittedStack(_FitsByKind, frozen=True):
    """Fitted kernels of one serving stack on one GPU, with their data set.

    Each fitted kind of `layers.kinds` is a further field with fits by dtype of weights, cache or
    state.

    Parameters
    ----------
    version
        Version of the stack.
    source
        Data set of the fits, and its device.
    date
        Day of the fit, such as 2026-11-21.
    lent_by
        Name of another device that was measured and runs the same kernels. Errors are then the
        errors of kernels on devices without measurements.
    is_default
        Whether to use this stack if none is named.
    is_measured_here
        Whether it was timed on the machine of the profile. It then replaces an engine's stack.
    """

    def of_kind(self, kind: str) -> Mapping[str, KernelFit]:
        """Return the fits of a kind by dtype; none for a kind that is never fitted."""
        fits: Mapping[str, KernelFit] = getattr(self, kernel_kind(kind).name, {})
        return fits

    def fits(self) -> Iterator[tuple[str, str, KernelFit]]:
        """Yield kind, dtype and fit for all fits."""
        for kind in FITTED_KINDS:
            for dtype, fit in self.of_kind(kind).items():
                yield kind, dtype, fit


class Kernels(Struct, frozen=True, eq=False):
    """How the kernels of a deployment use their GPU.

    Parameters
    ----------
    stack
        Stack of the kernels: a fitted one, "typical" or "datasheet".
    fits
        Fits by kind and dtype of weights, cache or state: the stack's own, and fits of other stacks
        in place of missing ones (`fallbacks.stack_kernels`); empty for the data sheet.
    record
        The stack's record in the hardware profile; None for the data sheet.
    typical
        Kinds for which typical fits replace a missing fit at the standard dtype.
    all_reduces
        Stack of the all-reduces, if it differs.
    borrowed
        Stack of the borrowed fit, or "typical", by kind and dtype.
    standard_errors
        Errors by kind, if its fit at the standard dtype is used for another dtype: least mean
        error, and addition to the spread over shapes [-].
    """

    stack: str
    fits: Mapping[str, Mapping[str, KernelFit]] = field(default_factory=dict)
    record: FittedStack | None = None
    typical: tuple[str, ...] = ()
    all_reduces: str | None = None
    borrowed: Mapping[tuple[str, str], str] = field(default_factory=dict)
    standard_errors: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def link_stack(self) -> str:
        """Stack of the all-reduces."""
        return self.all_reduces or self.stack

    @property
    def measured_here(self) -> str:
        """Day on which the stack was timed on this device, "" if it was not."""
        return self.record.date if self.record and self.record.is_measured_here else ""

    def place(
        self, kind: str, stored: str, arithmetic: str | None = None
    ) -> tuple[str, str] | None:
        """Return the kind and dtype of the fit that kernels use, None if they use the data sheet.

        It is the first fit in the order of `names_of_fits`, then the standard dtype, then the
        fallback kind. `stored` is the dtype of weights, cache or state. `arithmetic` is the dtype
        of the arithmetic on them, None for the fitted one. A fit to weights is valid for its own
        arithmetic only. Kernels that read a cache or a state compute in the same way for all stored
        dtypes.
        """
        row, fits = kernel_kind(kind), self.fits.get(kind, {})
        is_any = row.follows in ("cache", "state") or arithmetic is None
        computed = _AS.get(arithmetic, arithmetic)
        for name in names_of_fits(stored, arithmetic):
            if name in fits and (is_any or fits[name].arithmetic_dtype == computed):
                return kind, name
        if fitted_dtype(kind) in fits:
            return kind, fitted_dtype(kind)
        return self.place(row.fallback, stored, arithmetic) if row.fallback else None

    def is_typical(self, place: tuple[str, str]) -> bool:
        """Return whether the fit of a place is typical, because the stack has no fit."""
        kind, dtype = place
        if place in self.borrowed:
            return self.borrowed[place] == TYPICAL
        return kind in self.typical and not (self.record and dtype in self.record.of_kind(kind))

    def fit(self, kind: str, stored: str, arithmetic: str | None = None) -> KernelFit | None:
        """Return the fit of `place`, with larger errors if it serves another dtype or kind.

        The result is None if kernels use the data sheet. `place` describes the arguments. Fits of
        other stacks already have their larger errors.
        """
        place = self.place(kind, stored, arithmetic)
        if place is None:
            return None
        fit, untimed = self.fits[place[0]][place[1]], kernel_kind(kind).untimed
        if untimed and place[0] != kind:
            fit = fit.with_errors(*untimed)
        is_standard = place[1] == fitted_dtype(place[0]) and stored not in (place[1], "fp16")
        if is_standard and place[0] in self.standard_errors:
            fit = fit.with_errors(*self.standard_errors[place[0]])
        return fit

    def parameters(self, kind: str, stored: str, arithmetic: str | None = None) -> KernelParameters:
        """Return the parameters of the fit for a kind and dtypes, or the data sheet's.

        Raise an InputError for an unknown kind, or a kind for which the stack has neither fit nor
        fallback: kernels without a measurement do not run at the speed of the data sheet.
        """
        place = self.place(kind, stored, arithmetic)
        if place:
            return self.fits[place[0]][place[1]].parameters
        if kernel_kind(kind).follows and self.record:
            remedy = "give it a fallback in specmodel/core/layers/data/kinds.toml, or fit it"
            raise InputError("kind", kind, f"a kind that is fitted for {self.stack}: {remedy}")
        return DATA_SHEET

    def arithmetic(self, kind: str, stored: str, arithmetic: str) -> str:
        """Return the dtype whose peak rate limits the kernels of `parameters`.

        It is `arithmetic`, or the dtype of the fit for prompt attention. If only 16-bit caches were
        fitted, prompt attention on an 8-bit cache computes in 16 bits, as no fit shows a gain from
        8.
        """
        follows_fit = kernel_kind(kind).computes_as_fitted
        place = self.place(kind, stored) if follows_fit else None
        return self.fits[place[0]][place[1]].arithmetic_dtype if place else arithmetic

    def kind_of_errors(self, kind: str) -> str:
        """Return the kind of kernels with the errors for `kind`: the kind of its fit."""
        kind = kernel_kind(kind).errors_of or kind
        while self.record and not self.fits.get(kind):
            row = kernel_kind(kind)
            if row.untimed or not row.fallback:
                break
            kind = row.fallback
        return kind


DATA_SHEET_KERNELS = Kernels("datasheet")


def load_typical() -> FittedStack:
    """Return typical kernels, for a device without measurements."""
    return records.load(FittedStack, TYPICAL, Path(__file__).parent / "data/stacks", "stack")


_PARAMETERS = tuple(KernelParameters.__struct_fields__)
