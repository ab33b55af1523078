"""Fit whole layers whose kernels share parameters by their kind.

A table of whole layers does not show how efficient each kernel is. Kernels of one kind therefore
have one set of parameters, and kinds may share some. Parameters that no row determines have values
that were measured elsewhere.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from msgspec import Struct, field
from msgspec.structs import replace
from numpy.typing import NDArray

from published import datasets
from specmodel.calibrate.fit.kernels import KernelFitting, normal_spreads
from specmodel.calibrate.fit.result import FitResult, best_of_sharpnesses, log_fit_result, rounded
from specmodel.calibrate.fit.timed_work import shape_errors
from specmodel.core.algebra.roofline import KernelParameters
from specmodel.core.base.errors import InputError
from specmodel.core.base.records import build
from specmodel.core.base.units import FloatArray
from specmodel.core.cost.passes import component_time
from specmodel.core.layers.batch import SINGLE_GPU, Batch, Carried, Layout, sequence_group
from specmodel.core.layers.parts import TokenMixer
from specmodel.core.layers.run import Pass
from specmodel.core.layers.stream import Stream
from specmodel.core.layers.work import Work
from specmodel.core.machines.hardware import HardwareProfile
from specmodel.core.machines.kernels import FITTED_DTYPE, KernelFit

SHARPNESSES = (1.0, 2.0, 4.0)
"""Exponents tried [-]."""

_FOLDS = 4

Works: TypeAlias = Sequence[tuple[NDArray[np.intp], list[Work]]]
"""Places of rows that are of one shape and dtype, and the works that were timed there."""

WorksOf: TypeAlias = Callable[
    [pd.DataFrame, HardwareProfile], Iterator[tuple[NDArray[np.intp], list[Work]]]
]


def read_engine(
    operation: str, hardware: str, engine: str, versions: Mapping[str, str]
) -> pd.DataFrame:
    """Return the timings of an engine, of the version that is read of it."""
    if engine not in versions:
        raise InputError("engine", engine, f"one of {', '.join(versions)}")
    return datasets.read_timings(operation, hardware, engine, versions[engine])


def shape_names(table: pd.DataFrame, columns: Sequence[str]) -> pd.Series:
    """Return the name of each row's shape: the values of these columns, joined with slashes."""
    return table[list(columns)].astype(str).agg("/".join, axis=1)


def decoded(
    mixer: TokenMixer,
    rows: pd.DataFrame,
    stream: Stream,
    hardware: HardwareProfile,
    layout: Layout = SINGLE_GPU,
) -> list[Work]:
    """Return the work that rows timed: a layer over one token of each sequence, by component."""
    sequences = sequence_group(
        batch_size=rows["batch_size"].to_numpy(float),
        context_length=rows["context_length"].to_numpy(float),
    )
    run = Pass(stream, layout, compute_capability=hardware.compute_capability)
    carried = Carried(Batch((sequences,)))
    return [work.at(carried) for work in mixer.work(run, 1).values()]


def table_stream(rows: pd.DataFrame, hidden_size: int) -> Stream:
    """Return the stream through a layer of this width, in the dtypes of a table's first row."""
    first = rows.iloc[0]
    return Stream(
        hidden_size=hidden_size,
        weight_dtype=first["weight_dtype"],
        expert_dtype=first["weight_dtype"],
        outer_dtype="bf16",
        activation_dtype=first["activation_dtype"],
        kv_dtype=first["kv_dtype"],
    )


def predicted_time(
    works: Works, hardware: HardwareProfile, parameters: Mapping[str, KernelParameters]
) -> FloatArray:
    """Return the time of layers, in the order of their rows [s]."""
    times = np.empty(sum(len(places) for places, _ in works))
    for places, parts in works:
        each = [component_time(part, hardware, parameters[part.kind]).total_time for part in parts]
        times[places] = sum(each[1:], each[0])
    return times


class TimedLayers(Struct, frozen=True):
    """What is fitted to layers of one kind on a GPU.

    ``bounds`` holds lower bound, upper bound and start of each parameter that is fitted beside the
    sharpness [s] [-]. ``of_kind`` says which of them each kind of kernels takes, ``works`` yields
    the works of a table's rows, and ``held`` are parameters that no row shows.
    """

    hardware: HardwareProfile
    bounds: Mapping[str, tuple[float, float, float]]
    of_kind: Mapping[str, Mapping[str, str]]
    works: WorksOf
    held: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def fit_by_cache(self, table: pd.DataFrame) -> dict[tuple[str, str], KernelFitting]:
        """Return the fits by kind of kernels and dtype of the KV cache.

        Least squares of log ratios with a soft-L1 loss, as kernels are fitted. Errors are of whole
        layers of shapes that were not fitted; spreads are of shapes left out in turn, in four
        parts.
        """
        found: dict[tuple[str, str], KernelFitting] = {}
        kept = table[table["role"].isin(["fit", "judge"])]
        for kv_dtype, rows in kept.groupby("kv_dtype"):
            rows = rows.reset_index(drop=True)
            fitted = rows[rows["role"] == "fit"]
            if len(fitted) <= len(self.bounds):
                expected = f"more than {len(self.bounds)}, one a parameter, with role 'fit'"
                raise InputError("measurements", f"{len(fitted)} layers with {kv_dtype}", expected)
            for kind, fitting in self._fit(rows).items():
                found[kind, str(kv_dtype)] = fitting
        return found

    def _parameters(self, x: FloatArray, sharpness: float) -> dict[str, KernelParameters]:
        values: dict[str, Any] = dict(zip(self.bounds, np.exp(x).tolist(), strict=True))
        found = {
            kind: KernelParameters(
                **{n: values[of] for n, of in names.items()}, sharpness=sharpness
            )
            for kind, names in self.of_kind.items()
        }
        return {kind: replace(found[kind], **self.held.get(kind, {})) for kind in found}

    def _errors(
        self, x: FloatArray, works: Works, rows: pd.DataFrame, sharpness: float
    ) -> FloatArray:
        """Return logarithms of predicted over measured [-]."""
        times = predicted_time(works, self.hardware, self._parameters(x, sharpness))
        return np.asarray(np.log(times) - np.log(rows["latency"].to_numpy()))

    def _solve(self, rows: pd.DataFrame, sharpnesses: Sequence[float]) -> tuple[Any, float]:
        """Return the best fit over the sharpnesses, and its sharpness."""
        works = list(self.works(rows, self.hardware))
        return best_of_sharpnesses(self._errors, self.bounds, sharpnesses, works, rows)

    def _missed(self, x: FloatArray, rows: pd.DataFrame, sharpness: float) -> FloatArray:
        """Return logarithms of predicted over measured of other rows [-]."""
        return self._errors(x, list(self.works(rows, self.hardware)), rows, sharpness)

    def _fit(self, rows: pd.DataFrame) -> dict[str, KernelFitting]:
        """Return the fit of each kind; all have the errors of whole layers."""
        is_fitted = rows["role"] == "fit"
        fitted, judged = rows[is_fitted], rows[~is_fitted] if (~is_fitted).any() else rows
        best, sharpness = self._solve(fitted, SHARPNESSES)
        errors = self._missed(best.x, fitted, sharpness)
        clusters = np.asarray(fitted.groupby("shape").ngroup())
        result = log_fit_result(list(self.bounds), best, errors, clusters)
        judged = judged.assign(error=np.expm1(self._missed(best.x, judged, sharpness)))
        shape_spread, row_spread = self._spreads(rows, sharpness)
        alike = {
            "sharpness": sharpness,
            "arithmetic_dtype": FITTED_DTYPE,
            "num_points": len(fitted),
            "num_judged": len(judged),
            "is_held_out": bool((~is_fitted).any()),
            **shape_errors(judged),
            "shape_spread": shape_spread,
            "row_spread": row_spread,
        }
        return {
            kind: KernelFitting(
                fit=build(KernelFit, self._record(kind, result) | alike, kind), result=result
            )
            for kind in self.of_kind
        }

    def _spreads(self, rows: pd.DataFrame, sharpness: float) -> tuple[float, float]:
        """Return the spread of what a shape has in common, and of its points, when left out."""
        shapes = np.sort(rows["shape"].unique())
        part = rows["shape"].map({shape: i % _FOLDS for i, shape in enumerate(shapes)}).to_numpy()
        missed = np.empty(len(rows))
        for fold in np.unique(part):
            left, kept = rows[part == fold], rows[part != fold]
            best, _ = self._solve(kept if len(kept) else rows, (sharpness,))
            missed[part == fold] = -self._missed(best.x, left, sharpness)
        return normal_spreads(pd.Series(missed), rows["shape"])

    def _record(self, kind: str, result: FitResult) -> dict[str, Any]:
        """Return what a profile records of the parameters of one kind."""
        names = self.of_kind[kind]
        places = [list(self.bounds).index(of) for of in names.values()]
        covariance = result.covariance[np.ix_(places, places)]
        return {
            **{name: rounded(result.parameters[of]) for name, of in names.items()},
            "at_bound": [name for name, of in names.items() if of in result.at_bound],
            "varied": list(names),
            "covariance": [[rounded(value) for value in row] for row in covariance.tolist()],
            **{name: rounded(value) for name, value in self.held.get(kind, {}).items()},
        }
