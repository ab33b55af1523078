"""Describe the work of one component of a pass on each GPU."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict, fields, replace

from specmodel.core.base.dtypes import ARITHMETIC_BITS, kernel_dtype
from specmodel.core.base.units import FloatArray
from specmodel.core.layers.forms import Form, Measure, Quantity

Kind: TypeAlias = str
"""Name of a kind of kernels, one of `kinds.KINDS`; fits are found by this name."""

CAUSES = (
    *("bandwidth", "compute", "experts", "KV", "state", "index"),
    *("communication", "overhead", "prefill", "drafting"),
)
"""Causes that can make a step longer than a decode step. Drafting is last, as no pass of the target
includes it. Prefill is the prefill of other requests in the same step."""

CAUSES_OF_SOME = ("state", "index")
"""Causes that only some kinds of layers have; other models do not name them."""


class Walk(Struct, frozen=True, kw_only=True):
    """How attention reads keys that it does not spread over blocks of threads.

    If a sequence has more than `split_tokens` tokens, one block reads all keys of a head [token].
    Otherwise the keys are spread over `segments` blocks; infinity stands for any useful number [-].
    A block reads `bytes_per_s` [B/s] or, if arithmetic limits it, `bytes_per_flop` times the GPU's
    peak [B/FLOP]. If each query head has its own block, `processors` is the number of blocks that
    run at the same time; infinity means that no block waits [-].
    """

    split_tokens: int
    bytes_per_s: float = 0.0
    bytes_per_flop: float = 0.0
    segments: float = np.inf
    processors: float = np.inf


class Work(Struct, frozen=True, kw_only=True, eq=False):
    """Work of one component of a pass on each GPU.

    Parameters
    ----------
    flop
        Arithmetic [FLOP].
    weight_bytes, activation_bytes, cache_bytes, link_bytes, network_bytes
        Traffic to device memory, and traffic sent to GPUs of the node and of other nodes, without
        the traffic of `reductions` [B].
    kernels, collectives, link_hops, network_hops
        Launched kernels, collectives without `reductions`, and messages that follow one another
        [-].
    reductions, reduced_bytes, ranks
        All-reduces, the total size of their tensors, and the participating GPUs of a node [-] [B]
        [-].
    groups, depth
        Independent groups of work (sequences times KV heads of attention, loaded experts). Terms in
        each sum of a product, added over the kernels; for routed experts, all experts of the GPU
        [-]; for attention, the bytes of heads that a processor reads one after another [B].
    walk
        How kernels go through this depth; None if the fit of the kernels gives the speed.
    rows, spread, width
        Rows that are multiplied by matrices; equal matrices over which the rows are spread, such as
        experts; and the narrow side of a matrix, which tiles pad; infinity for no padding [-].
    rows_per_token
        Rows for each token of the pass; for routed experts, the experts of a token [-].
    kind, memory_cause
        Kind of its kernels, one of `kinds.KINDS`; and the cause, one of `CAUSES`, to name if its
        traffic makes a pass longer.
    beside, beside_tokens
        Components that run in parallel, on another stream, so that only the time beyond theirs
        counts; and the maximum tokens of a pass for this [token].
    dtype, stored_dtype
        Dtype of the arithmetic, the wider of activations and weights; and dtype of weights or KV,
        without the size of groups.
    """

    flop: Quantity = 0.0
    weight_bytes: Quantity = 0.0
    activation_bytes: Quantity = 0.0
    cache_bytes: Quantity = 0.0
    link_bytes: Quantity = 0.0
    network_bytes: Quantity = 0.0
    kernels: Quantity = 0.0
    collectives: float = 0.0
    link_hops: float = 0.0
    network_hops: float = 0.0
    reductions: float = 0.0
    reduced_bytes: Quantity = 0.0
    ranks: int = 1
    groups: Quantity = 0.0
    depth: Quantity = 0.0
    walk: Walk | None = None
    rows: Quantity = np.inf
    spread: Quantity = 1.0
    rows_per_token: Quantity = 1.0
    width: Quantity = np.inf
    kind: Kind = "gemm"
    dtype: str = "bf16"
    stored_dtype: str = "bf16"
    memory_cause: str = "bandwidth"
    beside: tuple[str, ...] = ()
    beside_tokens: float = np.inf

    @property
    def has_messages(self) -> bool:
        """Whether the component sends messages to other GPUs."""
        return bool(self.collectives or self.reductions or self.network_hops)

    @property
    def depends_on_context(self) -> bool:
        """Whether any form of the work depends on the entries before the pass."""
        forms = (value for value in asdict(self).values() if isinstance(value, Form))
        return any(measure.has_context for form in forms for measure in form.terms)

    def at(self, values: Mapping[Measure, FloatArray]) -> "Work":
        """Return the work as numbers, for given values of the measures."""
        forms = {name: form for name, form in asdict(self).items() if isinstance(form, Form)}
        numbers: dict[str, Any] = {name: form.at(values) for name, form in forms.items()}
        return replace(self, **numbers)

    def __add__(self, other: "Work") -> "Work":
        """Return the sum of two works, with the kind, rows and dtypes of the first."""
        sums = {name: getattr(self, name) + getattr(other, name) for name in _ADDITIVE}
        return replace(self, **sums)


_ADDITIVE = tuple(field.name for field in fields(Work) if field.default == 0.0)


class PassWork(Struct, frozen=True, eq=False):
    """Work of one pass.

    Parameters
    ----------
    components
        Work of each component, by its name.
    active_experts
        Distinct experts that the pass loads per layer [-].
    """

    components: dict[str, Work]
    active_experts: FloatArray


def wider_dtype(activation: str, stored: str) -> str:
    """Return the wider dtype: that of activations, or that of weights or cache."""
    is_wider = ARITHMETIC_BITS[stored] > ARITHMETIC_BITS[activation]
    return kernel_dtype(stored) if is_wider else activation
