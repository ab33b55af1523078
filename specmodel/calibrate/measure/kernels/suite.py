"""The suite: points of each component that are timed on a device, and their roles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct
from msgspec.structs import asdict, replace

from specmodel.calibrate.measure.kernels.operators import NO_MORE, Timed
from specmodel.core.base.dtypes import BYTES_PER_ELEMENT
from specmodel.core.base.files import toml_tables

if TYPE_CHECKING:
    from specmodel.core.models.architecture import Architecture

SUITE_VERSION = "2"  # increases when points or their work change; a file has one version

COPY, LAUNCH, ALL_REDUCE = OTHERS = ("copy", "launch", "all_reduce")
"""Components that are timed but not fitted as kernels."""

LAUNCHED_AS = {0: "eager", 1: "graph"}  # names for values of the column ``graphs``
DTYPES = ("bf16", "fp32")  # of weights, activations and KV cache
GENERAL = (COPY, LAUNCH, "gemm")  # timed at all shapes, even for a single model
CORRELATION = 0.3  # routing correlation of the points with correlated routing [-]

Length = Literal["tiny", "quick", "full"]
Device = Literal["cpu", "cuda", "xpu", "mps"]
Sizes = dict[str, float]
Shape = Sequence[int]


class Point(Struct, frozen=True, kw_only=True, eq=False):
    """One workload, and the reference that is timed right before and after each of its repeats.

    `measurements.COLUMNS` and `ROLES` define components and roles. All points of a group have the
    columns in `fixed` and the same reference. `varied` are other columns of the point, for which
    `reference` has the values of the reference.
    """

    component: str
    role: str
    fixed: Mapping[str, float]
    varied: Mapping[str, float]
    reference: Mapping[str, float]
    weight_dtype: str = ""  # dtype of quantised weights
    every: int = 1  # the point is timed in one of this many rounds

    @property
    def sizes(self) -> Sizes:
        """All columns of the point [-]."""
        return {**self.fixed, **self.varied}

    @property
    def reference_sizes(self) -> Sizes:
        """All columns of its reference [-]."""
        return {**self.fixed, **self.reference}

    @property
    def group(self) -> str:
        """Name of all points with the same reference."""
        return _name(self.component, self.weight_dtype, self.fixed)

    @property
    def name(self) -> str:
        """Name of the point, the same for all its repeats."""
        return _name(self.component, self.weight_dtype, self.sizes)


def _name(component: str, dtype: str, sizes: Mapping[str, float]) -> str:
    return "-".join([component, *filter(None, [dtype]), *map(plain, sizes.values())])


def plain(value: float) -> str:
    """Return a size as text; whole numbers have no decimals."""
    return str(int(value)) if value == int(value) else str(value)


SUITES = toml_tables(Path(__file__).parent / "data/suite.toml")  # help texts need it, without NumPy
for _device in ("xpu", "mps"):
    for _table in (SUITES, SUITES["repeats"], SUITES["pace"]):
        _table[_device] = _table["cuda"]
REPEATS: dict[Device, dict[Length, int]] = SUITES["repeats"]
"""Repeats of each point, by device and length of the suite [-]."""
COMPONENTS = (*SUITES["components"], ALL_REDUCE)
"""Components that are timed; all-reduces only with several GPUs."""
_LONG, _FEW = 1.1e8, 5  # on a CPU, points that read more bytes are timed in 1 of 5 rounds
# batch_size and tokens_per_sequence with correlated routing
_CORRELATED = [(1, 4), (4, 4), (4, 8), (16, 4)]


def suite(device: Device, length: Length, timed: Timed = NO_MORE) -> list[Point]:
    """Return the points of a suite in the order of a round; names are unique.

    The length "tiny" is for tests. `timed` determines the products of quantised weights.
    """
    if length == "tiny":
        points = [point for row in SUITES["tiny"] for point in _crossed(**row)]
        return points + _quantised(SUITES["tiny_quantised"], timed)
    own = dict(SUITES[device])
    if timed.shapes is not None:
        fit = {kind: {"fit": shapes} for kind, shapes in timed.shapes.items()}
        kinds = own.keys() & SUITES["components"].keys() - {*GENERAL}
        own |= {kind: fit.get(kind, {}) for kind in kinds}
        own["quantised"] = own["quantised"] | {"experts": fit.get("experts", {})}
    correlated = _CORRELATED[:: 1 if length == "full" else 2]
    varied = {
        kind: [[count] for count in own[row["varied"]]]
        for kind, row in SUITES["components"].items()
        if "varied" in row
    }
    varied["experts"] = [
        *([count, 1, 0.0, 0.0] for count in own["tokens"]),
        *([batch * count, count, CORRELATION, 0.0] for batch, count in correlated),
        *([count, 1, 0.0, exponent] for count, exponent in own["popular"]),
    ]
    points = [*_crossed(COPY, "skip", [[size] for size in own["copied"]], [[]])]
    points += _crossed(LAUNCH, "skip", [[0], [1]] if device == "cuda" else [[0]], [[]])
    for component, values in varied.items():
        for role, shapes in own.get(component, {}).items():
            beside = own["beside"].get(component, [[]])
            each = [[*shape, *more] for shape, more in product(shapes, beside)]
            points += _crossed(component, role, each, values)
    points += _quantised(own["quantised"], timed)
    if device == "cpu":
        few = [_FEW if _read_bytes(point) > _LONG else 1 for point in points]
        points = [replace(p, every=n * p.every) for p, n in zip(points, few, strict=True)]
    return points


def shapes_of(target: Architecture) -> dict[str, list[list[int]]]:
    """Return the shapes of each kind in the layers of a model."""
    found = dict[str, list[list[Any]]]()
    for group in target.layers:
        parts = (part for part in (target, group.mixer, group.feed_forward) if part)
        sizes = {name: size for part in parts for name, size in asdict(part).items()}
        for kind, row in SUITES["components"].items():
            names = [name for name in row["shape"] if name not in ("batch_size", "context_length")]
            shape = [sizes.get(name) for name in names]
            if kind not in GENERAL and None not in shape and shape not in found.get(kind, []):
                found.setdefault(kind, []).append(shape)
    return found


def _quantised(own: Mapping[str, Any], timed: Timed) -> list[Point]:
    """Return the points of products of quantised weights."""
    return [
        replace(point, weight_dtype=dtype, every=operator.get("every", 1))
        for (component, dtype), operator in timed.rows.items()
        if dtype
        for role, shapes in own[component].items()
        for point in _crossed(component, role, shapes, [
            [count, *[*SUITES["components"][component]["reference"].values()][1:]]
            for count in own["tokens"]
        ])
    ]  # fmt: skip


def weight_bytes(component: str, sizes: Sizes, dtype: str) -> float:
    """Return the size of the weights or KV of a point, which must fit into the arena [B]."""
    factors = SUITES["components"][component].get("read", [0])
    return float(prod(sizes.get(name, name) for name in factors)) * BYTES_PER_ELEMENT[dtype]


def about_seconds(device: Device, point: Point) -> float:
    """Return about how long timing a point and its reference takes [s]."""
    pace = SUITES["pace"][device]
    read = 3 * point.every * _read_bytes(point)
    return float(pace["seconds"] + read / pace["bytes_per_s"])


def _read_bytes(point: Point) -> float:
    """Return about how many bytes of bf16 weights or KV a call reads: only chosen experts [B]."""
    size = weight_bytes(point.component, point.sizes, "bf16")
    if point.component != "experts":
        return size
    share = point.sizes["experts_per_token"] / point.sizes["num_experts"]
    return size * float(1 - (1 - share) ** point.sizes["num_tokens"])


def _crossed(
    component: str, role: str, shapes: Sequence[Shape], varied: Sequence[Sequence[float]]
) -> Iterator[Point]:
    """Yield a point for each shape and each set of varied values.

    Fitted shapes have the role "spread" where the routing is correlated or unequal.
    """
    row = SUITES["components"][component]
    reference: Sizes = row.get("reference", {})
    for shape, values in product(shapes, varied):
        fixed = dict(zip(row["shape"], shape, strict=True))
        own = dict(zip(reference, values, strict=True))
        is_other = own.get("routing_correlation") or own.get("popularity_exponent")
        of_point = "spread" if role == "fit" and is_other else role
        yield Point(component=component, role=of_point, fixed=fixed, varied=own,
                    reference=reference)  # fmt: skip
