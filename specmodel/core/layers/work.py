"""What one component of a pass does on each GPU."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict, fields, replace

from specmodel.core.base.dtypes import ARITHMETIC_BITS, kernel_dtype
from specmodel.core.base.units import FloatArray
from specmodel.core.layers.forms import Form, Measure, Quantity

Kind: TypeAlias = str
"""Name of a kind of kernels: one of `kinds.KINDS`, which its parameters are looked up by."""

CAUSES = (
    *("bandwidth", "compute", "experts", "KV", "state", "index"),
    *("communication", "overhead", "prefill", "drafting"),
)
"""What can make a step longer than a decode step. Drafting is last, as no pass of the target has
it; prefill is that of other requests, in steps that carry it."""

CAUSES_OF_SOME = ("state", "index")
"""Causes that only some kinds of layers have: models without such layers do not name them."""


class Walk(Struct, frozen=True, kw_only=True):
    """How attention reads keys that it does not spread over blocks of threads.

    One block walks all keys of a head if its sequence carries more than `split_tokens` [token];
    keys of fewer are spread over `segments` blocks, or as many as help if infinite [-]. It reads
    `bytes_per_s` [B/s] or, where arithmetic holds it up, `bytes_per_flop` of the GPU's peak
    [B/FLOP]. Where each query head has a block of its own, so many `processors` take one each;
    infinite ones never wait [-].
    """

    split_tokens: int
    bytes_per_s: float = 0.0
    bytes_per_flop: float = 0.0
    segments: float = np.inf
    processors: float = np.inf


class Work(Struct, frozen=True, kw_only=True, eq=False):
    """What one component of a pass does on each GPU.

    Parameters
    ----------
    flop
        Arithmetic [FLOP].
    weight_bytes, activation_bytes, cache_bytes, link_bytes, network_bytes
        Traffic to device memory, and traffic sent to GPUs of the node and of other nodes, that of
        `reductions` left out [B].
    kernels, collectives, link_hops, network_hops
        Kernels launched, collectives other than `reductions` started, and messages waited for [-].
    reductions, reduced_bytes, ranks
        All-reduces, the size of all their tensors together, and the GPUs of a node that take
        part [-] [B] [-].
    groups, depth
        Independent groups of work (sequences times KV heads of attention, experts loaded), and what
        each result of a product sums over, the sum of it over the kernels, or experts loaded or not
        [-]; of attention, what a processor reads of heads in turn [B].
    walk
        How it reads that depth; None if the fit of its kernels tells how fast a depth is walked.
    rows, spread, width
        Rows that matrices are multiplied with, equal matrices that these are spread over, such as
        experts, and the narrow side of one, which tiles pad; infinite ones pad nothing [-].
    rows_per_token
        Rows that a token of the pass makes, of routed experts as many as it uses [-].
    kind, memory_cause
        Kernels that do it, one of `kinds.KINDS`, and which of `CAUSES` to name when its traffic
        makes a pass longer.
    beside, beside_tokens
        Components that it runs beside, on a second stream, so that it takes time only as far as it
        takes longer than they do; and in passes of up to how many tokens [token].
    dtype, stored_dtype
        Dtype of the arithmetic, the wider of activations and weights, and of weights or KV, the
        size of groups aside.
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
        """Whether the component sends anything to other GPUs."""
        return bool(self.collectives or self.reductions or self.network_hops)

    @property
    def depends_on_context(self) -> bool:
        """Whether any form of the work depends on the context, the entries before the pass."""
        forms = (value for value in asdict(self).values() if isinstance(value, Form))
        return any(measure.has_context for form in forms for measure in form.terms)

    def at(self, values: Mapping[Measure, FloatArray]) -> "Work":
        """Return the work in numbers, for given values of measures."""
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
    """Return the wider of the dtype of activations and the one that weights or cache have."""
    is_wider = ARITHMETIC_BITS[stored] > ARITHMETIC_BITS[activation]
    return kernel_dtype(stored) if is_wider else activation
