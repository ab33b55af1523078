"""The suite: which points of each component are timed on a CPU or a CUDA device, and what for."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Literal

from specmodel.base.classes import dataclass

SUITE_VERSION = "1"  # changes with the points or their work; a file has one version

REPEATS = {
    "cpu": {"tiny": 2, "quick": 25, "full": 40},
    "cuda": {"tiny": 2, "quick": 11, "full": 25},
}
"""Repeats of each point, by device and length of the suite [-]."""

COPY, LAUNCH, ALL_REDUCE = OTHERS = ("copy", "launch", "all_reduce")
"""Components that are timed but not fitted as kernels."""

LAUNCHED_AS = {0: "eager", 1: "graph"}  # values of the column graphs of launches
DTYPES = {"bf16": 2, "fp32": 4}  # of weights, activations and KV cache, each value so large [B]
CORRELATION = 0.3  # routing correlation of the points with correlated routing [-]

Length = Literal["tiny", "quick", "full"]
Device = Literal["cpu", "cuda"]
Sizes = dict[str, float]
Shape = tuple[int, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Point:
    """One workload, and the reference that is timed right before and after each of its repeats.

    Component and role are as in `measurements.COLUMNS` and `ROLES`. The columns in `fixed` hold for
    the whole group of points with one reference, which has other values for those in `varied`.
    """

    component: str
    role: str
    fixed: Mapping[str, float]
    varied: Mapping[str, float]
    reference: Mapping[str, float]

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
        """Name that points with the same reference share."""
        return _name(self.component, self.fixed)

    @property
    def name(self) -> str:
        """Name that all repeats of the point share."""
        return _name(self.component, self.sizes)


def _name(component: str, sizes: Mapping[str, float]) -> str:
    return "-".join([component, *map(plain, sizes.values())])


def plain(value: float) -> str:
    """Return a size as text, a whole number without decimals."""
    return str(int(value)) if value == int(value) else str(value)


_SHAPES = {
    COPY: ("bytes",),
    LAUNCH: ("graphs",),
    "experts": ("hidden_size", "expert_size", "num_experts", "experts_per_token"),
    "gemm": ("input_size", "output_size"),
    "attention": ("num_heads", "num_kv_heads", "head_dim", "batch_size", "context_length"),
    "elementwise": ("hidden_size",),
}
_REFERENCES: dict[str, Sizes] = {
    "experts": {"num_tokens": 1, "tokens_per_sequence": 1, "routing_correlation": 0.0},
    "attention": {"query_tokens": 1},
    "gemm": {"num_tokens": 1},
    "elementwise": {"num_tokens": 1},
}
"""Columns that vary among the points of a group, with their values in the group's reference."""
COMPONENTS = (*_SHAPES, ALL_REDUCE)  # what is timed; all-reduces only with several GPUs

_EXPERTS = {
    "cpu": {
        "fit": [
            (512, 256, 32, 4), (512, 512, 64, 8), (1024, 256, 64, 6), (1024, 1024, 16, 2),
            (2048, 512, 32, 4),
        ],
        "judge": [(768, 768, 16, 2), (1024, 384, 32, 4), (768, 320, 64, 8), (1536, 640, 16, 4)],
    },
    "cuda": {
        "fit": [
            (2048, 768, 128, 8), (4096, 1792, 8, 2), (2048, 1408, 64, 6), (3584, 1280, 64, 8),
        ],
        "judge": [
            (4096, 1536, 128, 8), (2048, 1024, 64, 8), (2880, 2880, 32, 4), (5120, 512, 160, 6),
        ],
    },
}  # fmt: skip
_GEMM = {
    "cpu": {
        "fit": [
            (256, 1024), (512, 768), (512, 3072), (1024, 1536), (2048, 1024), (1024, 8192),
            (2048, 4096),
        ],
        "judge": [(512, 512), (1536, 512), (768, 2304), (1024, 3072), (1024, 16384)],
    },
    "cuda": {
        "fit": [
            (1024, 2048), (2048, 5120), (4096, 4096), (4096, 24576), (2048, 151936), (8192, 8192),
        ],
        "judge": [(896, 9728), (4096, 2048), (5120, 6144), (3584, 37888), (4096, 32000)],
    },
}  # fmt: skip
_ATTENTION = {
    "cpu": {"fit": [(8, 2, 64), (16, 4, 64), (16, 4, 128)], "judge": [(12, 4, 64), (32, 8, 64)]},
    "cuda": {
        "fit": [(32, 4, 128), (32, 8, 128), (64, 8, 128)],
        "judge": [(28, 4, 128), (16, 2, 64)],
    },
}
# batch_size, context_length
_CACHES = {
    "cpu": [(1, 128), (1, 1024), (1, 8192), (1, 32768), (4, 512), (8, 2048), (16, 256), (16, 1024)],
    "cuda": [
        (1, 512), (1, 4096), (1, 32768), (8, 1024), (8, 8192), (32, 512), (32, 4096), (128, 1024),
    ],
}  # fmt: skip
_HIDDEN = {
    "cpu": {"fit": [(512,), (2048,)], "judge": [(1024,)]},
    "cuda": {"fit": [(2048,), (7168,)], "judge": [(4096,)]},
}
_TOKENS = {
    "cpu": [1, 2, 4, 8, 16, 32, 64, 128, 256],
    "cuda": [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048],
}
_QUERIES = [(1,), (2,), (4,), (8,), (16,)]
# batch_size, tokens_per_sequence, of correlated routing
_CORRELATED = [(1, 4), (4, 4), (4, 8), (16, 4)]
_COPIED = {"cpu": [2**24, 2**27, 2**29], "cuda": [2**24, 2**27, 2**30, 2**31]}


def suite(device: Device, length: Length) -> list[Point]:
    """Return the points of a suite in the order of a round, each name once; "tiny" is for tests."""
    if length == "tiny":
        return list(_tiny())
    tokens = [(count,) for count in _TOKENS[device]]
    correlated = _CORRELATED[:: 1 if length == "full" else 2]
    loads = [(*count, 1, 0.0) for count in tokens]
    loads += [(batch * count, count, CORRELATION) for batch, count in correlated]
    launched = ((0,), (1,)) if device == "cuda" else ((0,),)
    attention = {
        role: [shape + cache for shape, cache in product(shapes, _CACHES[device])]
        for role, shapes in _ATTENTION[device].items()
    }
    return [
        *(_point(COPY, "skip", (size,)) for size in _COPIED[device]),
        *(_point(LAUNCH, "skip", graphs) for graphs in launched),
        *_crossed("experts", _EXPERTS[device], loads),
        *_crossed("gemm", _GEMM[device], tokens),
        *_crossed("attention", attention, _QUERIES),
        *_crossed("elementwise", _HIDDEN[device], tokens),
    ]


def _crossed(
    component: str, shapes: Mapping[str, Sequence[Shape]], varied: Sequence[Sequence[float]]
) -> Iterator[Point]:
    """Yield each shape with all values of what varies; those that judge a fit are not fitted."""
    for role, some in shapes.items():
        for shape, values in product(some, varied):
            yield _point(component, role, shape, *values)


def _point(component: str, role: str, shape: Shape, *values: float) -> Point:
    """Return a point; under correlated routing, fitted shapes only tell how far errors spread."""
    reference = _REFERENCES.get(component, {})
    varied = dict(zip(reference, values, strict=True))
    if role == "fit" and varied.get("routing_correlation"):
        role = "spread"
    fixed: Sizes = dict(zip(_SHAPES[component], shape, strict=True))
    return Point(component=component, role=role, fixed=fixed, varied=varied, reference=reference)


def _tiny() -> Iterator[Point]:
    """Yield just enough points of each component for a fit, on matrices that take microseconds."""
    yield _point(COPY, "skip", (2**20,))
    yield _point(LAUNCH, "skip", (0,))
    for tokens in (1, 2, 4, 8, 16, 32):
        yield _point("experts", "fit", (64, 64, 8, 2), tokens, 1, 0.0)
        yield _point("experts", "fit", (128, 32, 8, 2), tokens, 1, 0.0)
    yield _point("experts", "judge", (64, 32, 8, 2), 4, 1, 0.0)
    yield _point("experts", "judge", (64, 32, 8, 2), 8, 4, CORRELATION)
    for tokens, size in product((1, 4, 16), (64, 256)):
        yield _point("gemm", "fit", (size, 128), tokens)
        yield _point("elementwise", "fit", (size,), tokens)
    for context, queries in product((32, 128, 512), (1, 4)):
        yield _point("attention", "fit", (4, 2, 16, 2, context), queries)
        yield _point("attention", "fit", (4, 2, 32, 1, context), queries)
