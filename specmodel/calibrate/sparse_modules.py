"""Whole layers of sparse attention: published timings of them, and the roofline fitted to these.

A row timed one layer as an engine decodes with it: all that stands between two residual additions.
`SparseAttention` of the shape that was timed says what such a layer does, so that measurements and
predictions are of the same work. Its kernels share one set of parameters for each dtype of the KV
cache, but for what the indexer reads and chooses: a table of whole layers does not tell how
efficient each kernel is. With one token a sequence nothing shows how fast the indexer computes,
which decides verification; its kernel was timed alone on many.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from specmodel.algebra.roofline import KernelParameters
from specmodel.base.errors import InputError
from specmodel.base.records import build
from specmodel.base.units import FloatArray
from specmodel.calibrate import datasets
from specmodel.calibrate.fitting.kernels import KernelFitting, normal_spreads, shape_errors
from specmodel.calibrate.fitting.result import (
    FitResult,
    best_of_sharpnesses,
    log_fit_result,
    rounded,
)
from specmodel.calibrate.published_roles import mixed_third
from specmodel.cost.passes import component_time
from specmodel.records.hardware import HardwareProfile, load_hardware
from specmodel.records.kernels import FITTED_DTYPE, KernelFit
from specmodel.records.layers.batch import (
    ONE,
    SINGLE_GPU,
    ZERO,
    Batch,
    Pass,
    Routing,
    Stream,
    sequence_group,
)
from specmodel.records.layers.sparse import SparseAttention
from specmodel.records.layers.work import Work

ENGINES = {"sglang": "0.5.14", "trtllm": "1.3.0rc20", "vllm": "0.24.0"}
"""Version of each engine whose tables are read."""

MOST_SEQUENCES = {"sglang": 256}
"""Largest batch taken of an engine [request]. SGLang's layers take 1.2 to 2.4 ms from the next
larger one on, five times as long as at half of it and no longer at twice: launched one by one."""

FALLBACK = 1.1
"""A point that takes so many times as long as at the next longer context ran another kernel [-]:
TensorRT-LLM's do at one entry more than are chosen."""

_LATENT = {"kv_lora_rank": 512, "qk_rope_head_dim": 64}
_INDEX = {"index_head_dim": 128, "index_topk": 2048}
_FAMILIES = {
    "DeepSeek-V3.2": (
        7168,
        {"q_lora_rank": 1536, "qk_nope_head_dim": 128, "v_head_dim": 128, "index_num_heads": 64},
    ),
    "GLM-5": (
        6144,
        {"q_lora_rank": 2048, "qk_nope_head_dim": 192, "v_head_dim": 256, "index_num_heads": 32},
    ),
}
"""Width and layer of models by the start of their name."""

SHAPE = ("family", "has_indexer", "num_heads", "weight_dtype")
"""What makes a shape, which is fitted or judged as a whole."""

PARAMETERS = {
    "launch_time": (1e-7, 1e-4, 4e-6),
    "memory_efficiency": (0.2, 1.0, 0.8),
    "compute_efficiency": (0.05, 1.0, 0.5),
    "index_memory_efficiency": (0.5, 1.0, 0.75),
    "group_time": (1e-9, 1e-5, 1e-7),
}
"""Lower bound, upper bound and start of what is fitted beside the sharpness [s] [-]. Layers of
SGLang end where their index keys take hardly any time; a bound keeps that share plausible."""

OF_KIND = {
    "sparse_attention": {
        "launch_time": "launch_time",
        "memory_efficiency": "memory_efficiency",
        "compute_efficiency": "compute_efficiency",
    },
    "indexer": {
        "launch_time": "launch_time",
        "memory_efficiency": "index_memory_efficiency",
        "group_time": "group_time",
    },
}
"""Parameters of each kind of kernels, and what is fitted for each."""

LONG_SCORES = 1e-4
"""Time from which the peak's time of scores is long enough to show how fast they compute [s]."""

SHARPNESSES = (1.0, 2.0, 4.0)
"""Exponents tried [-]."""

_FOLDS = 4

Works = Sequence[tuple[NDArray[np.intp], list[Work]]]


def sparse_modules(hardware: str, engine: str) -> pd.DataFrame:
    """Return the published decode timings of layers of sparse attention of an engine.

    Parameters
    ----------
    hardware
        Name of the profile.
    engine
        One of `ENGINES`.

    Returns
    -------
    pandas.DataFrame
        Rows with the columns of `SHAPE`, batch_size [request], context_length before the token
        [token], num_heads on the GPU [-], kv_dtype, activation_dtype, latency [s], ``shape``, and
        ``role``: "fit", "judge" or "fallback".

    Raises
    ------
    InputError
        If there is no such table, the package is not installed, or a model is not known.
    """
    if engine not in ENGINES:
        raise InputError("engine", engine, f"one of {', '.join(ENGINES)}")
    raw = datasets.read_timings("dsa", hardware, engine, ENGINES[engine])
    table = raw[raw["batch_size"] <= MOST_SEQUENCES.get(engine, np.inf)]
    table = table.assign(
        family=[_family(model) for model in table["model"]],
        has_indexer=~table["operation"].str.contains("skip_indexer"),
    )
    key = [*SHAPE, "kv_dtype", "batch_size"]
    point = [*key, "activation_dtype", "context_length"]
    table = table.groupby(point)["latency"].median().reset_index()
    longer = table.groupby(key)["latency"].shift(-1)
    shapes = table[list(SHAPE)].astype(str).agg("/".join, axis=1)
    role = np.where(mixed_third(table, SHAPE), "fit", "judge")
    role = np.where(table["latency"] > FALLBACK * longer, "fallback", role)
    return table.assign(shape=shapes, role=role)


def _family(model: str) -> str:
    name = str(model).rpartition("/")[2]
    for family in _FAMILIES:
        if name.startswith(family):
            return family
    raise InputError("model", model, f"one that starts with {' or '.join(_FAMILIES)}")


def modules_work(
    table: pd.DataFrame, hardware: HardwareProfile
) -> Iterator[tuple[NDArray[np.intp], list[Work]]]:
    """Yield places of rows that are of one shape and dtype, and the works that were timed there.

    Parameters
    ----------
    table
        As `sparse_modules` returns it.
    hardware
        The GPU.

    Yields
    ------
    tuple
        Places in the table, and the components of one layer with an element a row.
    """
    parts = table.reset_index(drop=True).groupby([*SHAPE, "kv_dtype", "activation_dtype"])
    for _, rows in parts:
        first = rows.iloc[0]
        hidden_size, own = _FAMILIES[first["family"]]
        size = {"num_heads": int(first["num_heads"]), "has_indexer": bool(first["has_indexer"])}
        mixer = SparseAttention.model_validate(_LATENT | _INDEX | own | size)
        stream = Stream(
            hidden_size=hidden_size,
            weight_dtype=first["weight_dtype"],
            expert_dtype=first["weight_dtype"],
            outer_dtype="bf16",
            activation_dtype=first["activation_dtype"],
            kv_dtype=first["kv_dtype"],
        )
        sequences = sequence_group(
            batch_size=rows["batch_size"].to_numpy(float),
            context_length=rows["context_length"].to_numpy(float),
        )
        run = Pass(
            stream,
            Batch((sequences,)),
            SINGLE_GPU,
            Routing(ZERO),
            ONE,
            compute_capability=hardware.compute_capability,
        )
        yield rows.index.to_numpy(), list(mixer.work(run, 1).values())


def index_compute_efficiency(hardware: str) -> float:
    """Return the share of the peak at which an indexer scores many tokens.

    Parameters
    ----------
    hardware
        Name of the profile.

    Returns
    -------
    float
        Median over the longest of the published scores of GLM-5's indexer [-].

    Raises
    ------
    InputError
        If there is no such table, or the package is not installed.
    """
    raw = datasets.read_timings("dsa_index", hardware, "sglang", ENGINES["sglang"])
    tokens, context = raw["query_tokens"], raw["context_length"]
    width = int(_FAMILIES["GLM-5"][1]["index_num_heads"]) * _INDEX["index_head_dim"]
    flop = 2 * width * raw["batch_size"] * tokens * (context + (tokens + 1) / 2)
    seconds = flop / load_hardware(hardware).peak_flops_per_s("fp8")
    return float((seconds / raw["latency"])[seconds > LONG_SCORES].median())


def fit_sparse_modules(
    table: pd.DataFrame, hardware: HardwareProfile, index_compute: float
) -> dict[tuple[str, str], KernelFitting]:
    """Fit launches, efficiencies and the time of choosing to layers of sparse attention.

    Parameters
    ----------
    table
        As `sparse_modules` returns it.
    hardware
        The GPU it was measured on.
    index_compute
        Share of the peak at which its indexer computes (`index_compute_efficiency`) [-].

    Returns
    -------
    dict
        By kind, "sparse_attention" and "indexer", and dtype of the KV cache; errors are of whole
        layers of shapes that were not fitted.

    Raises
    ------
    InputError
        If there are fewer points than parameters.

    Notes
    -----
    Least squares of log ratios with a soft-L1 loss, as kernels are fitted. Spreads are those of
    shapes left out in turn, in four parts.
    """
    found: dict[tuple[str, str], KernelFitting] = {}
    for kv_dtype, rows in table[table["role"] != "fallback"].groupby("kv_dtype"):
        rows = rows.reset_index(drop=True)
        fitted = rows[rows["role"] == "fit"]
        if len(fitted) <= len(PARAMETERS):
            expected = f"more than {len(PARAMETERS)}, one a parameter, with role 'fit'"
            raise InputError("measurements", f"{len(fitted)} layers with {kv_dtype}", expected)
        for kind, fitting in _Problem(hardware, index_compute).fit(rows).items():
            found[kind, str(kv_dtype)] = fitting
    return found


def predicted_time(
    works: Works, hardware: HardwareProfile, parameters: Mapping[str, KernelParameters]
) -> FloatArray:
    """Return the time of layers, in the order of their rows.

    Parameters
    ----------
    works
        As `modules_work` yields them.
    hardware
        The GPU.
    parameters
        By kind.

    Returns
    -------
    FloatArray
        Seconds of each row [s].
    """
    times = np.empty(sum(len(places) for places, _ in works))
    for places, parts in works:
        each = [component_time(part, hardware, parameters[part.kind]).total_time for part in parts]
        times[places] = sum(each[1:], each[0])
    return times


@dataclass(frozen=True)
class _Problem:
    """What is fitted to layers on a GPU whose indexer computes at a share of the peak."""

    hardware: HardwareProfile
    index_compute: float

    def parameters(self, x: FloatArray, sharpness: float) -> dict[str, KernelParameters]:
        values: dict[str, Any] = dict(zip(PARAMETERS, np.exp(x).tolist(), strict=True))
        found = {
            kind: KernelParameters(
                **{n: values[of] for n, of in names.items()}, sharpness=sharpness
            )
            for kind, names in OF_KIND.items()
        }
        found["indexer"] = replace(found["indexer"], compute_efficiency=self.index_compute)
        return found

    def errors(
        self, x: FloatArray, works: Works, rows: pd.DataFrame, sharpness: float
    ) -> FloatArray:
        """Return logarithms of predicted over measured [-]."""
        times = predicted_time(works, self.hardware, self.parameters(x, sharpness))
        return np.asarray(np.log(times) - np.log(rows["latency"].to_numpy()))

    def solve(self, rows: pd.DataFrame, sharpnesses: Sequence[float]) -> tuple[Any, float]:
        """Return the best fit over the sharpnesses, and its sharpness."""
        works = list(modules_work(rows, self.hardware))
        return best_of_sharpnesses(self.errors, PARAMETERS, sharpnesses, works, rows)

    def missed(self, x: FloatArray, rows: pd.DataFrame, sharpness: float) -> FloatArray:
        """Return logarithms of predicted over measured of other rows [-]."""
        return self.errors(x, list(modules_work(rows, self.hardware)), rows, sharpness)

    def fit(self, rows: pd.DataFrame) -> dict[str, KernelFitting]:
        """Return the fit of each kind; both have the errors of whole layers."""
        is_fitted = rows["role"] == "fit"
        fitted, judged = rows[is_fitted], rows[~is_fitted] if (~is_fitted).any() else rows
        best, sharpness = self.solve(fitted, SHARPNESSES)
        errors = self.missed(best.x, fitted, sharpness)
        clusters = np.asarray(fitted.groupby("shape").ngroup())
        result = log_fit_result(list(PARAMETERS), best, errors, clusters)
        judged = judged.assign(error=np.expm1(self.missed(best.x, judged, sharpness)))
        shape_spread, row_spread = self.spreads(rows, sharpness)
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
        held = {"indexer": {"compute_efficiency": rounded(self.index_compute)}}
        return {
            kind: KernelFitting(
                fit=build(KernelFit, _record(kind, result) | held.get(kind, {}) | alike, kind),
                result=result,
            )
            for kind in OF_KIND
        }

    def spreads(self, rows: pd.DataFrame, sharpness: float) -> tuple[float, float]:
        """Return the spread of what a shape has in common, and of its points, when left out."""
        shapes = np.sort(rows["shape"].unique())
        part = rows["shape"].map({shape: i % _FOLDS for i, shape in enumerate(shapes)}).to_numpy()
        missed = np.empty(len(rows))
        for fold in np.unique(part):
            left, kept = rows[part == fold], rows[part != fold]
            best, _ = self.solve(kept if len(kept) else rows, (sharpness,))
            missed[part == fold] = -self.missed(best.x, left, sharpness)
        return normal_spreads(pd.Series(missed), rows["shape"])


def _record(kind: str, result: FitResult) -> dict[str, Any]:
    """Return what a profile records of the parameters of one kind."""
    places = [list(PARAMETERS).index(of) for of in OF_KIND[kind].values()]
    covariance = result.covariance[np.ix_(places, places)]
    return {
        **{name: rounded(result.parameters[of]) for name, of in OF_KIND[kind].items()},
        "at_bound": [name for name, of in OF_KIND[kind].items() if of in result.at_bound],
        "varied": list(OF_KIND[kind]),
        "covariance": [[rounded(value) for value in row] for row in covariance.tolist()],
    }
