"""What a pass carries and what a component of it does: the vocabulary of `forward`."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from specmodel.base.units import ARITHMETIC_BITS, BYTES_PER_ELEMENT, FloatArray
from specmodel.records.architecture import Architecture

ROUTED_EXPERTS = "routed_experts"
ATTENTION_CORE = "attention_core"
"""Components with a cause of their own."""

Kind = Literal["gemm", "experts", "attention", "elementwise", "message"]
"""Kinds of kernels: they use a GPU in different ways."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Work:
    """What one component of a pass does on each GPU.

    Parameters
    ----------
    flop
        Arithmetic [FLOP].
    weight_bytes, activation_bytes, kv_bytes
        Traffic to device memory [B].
    link_bytes, network_bytes
        Traffic sent to GPUs of the node and of other nodes [B].
    kernels, collectives, link_hops, network_hops
        Kernels launched, collectives started, and messages waited for [-].
    rows, spread, width
        Rows that matrices are multiplied with, equal matrices that these are spread over, and
        the narrow side of one; infinite where it means nothing [-].
    groups
        Independent groups of work: sequences times KV heads of attention, experts loaded [-].
    kind
        Kernels that do it: "gemm", "experts", "attention", "elementwise" or "message".
    dtype, stored_dtype
        Dtype of the arithmetic, the wider of activations and weights, and of weights or KV.
    """

    flop: FloatArray | float = 0.0
    weight_bytes: FloatArray | float = 0.0
    activation_bytes: FloatArray | float = 0.0
    kv_bytes: FloatArray | float = 0.0
    link_bytes: FloatArray | float = 0.0
    network_bytes: FloatArray | float = 0.0
    kernels: float = 0.0
    collectives: float = 0.0
    link_hops: float = 0.0
    network_hops: float = 0.0
    rows: FloatArray | float = np.inf
    spread: FloatArray | float = 1.0
    width: FloatArray | float = np.inf
    groups: FloatArray | float = 0.0
    kind: Kind = "gemm"
    dtype: str = "bf16"
    stored_dtype: str = "bf16"


@dataclass(frozen=True, eq=False, repr=False)
class PassWork:
    """Work of one pass by component, and the distinct experts it loads per layer [-]."""

    components: dict[str, Work]
    active_experts: FloatArray


@dataclass(frozen=True, eq=False, repr=False)
class Tokens:
    """What the pass carries: all of it in expectation over which sequences speculate."""

    batch_size: FloatArray
    per_sequence: FloatArray
    context_length: FloatArray
    speculating_share: FloatArray
    speculating_chance: FloatArray

    @cached_property
    def all_speculate(self) -> bool:
        """Whether every sequence carries as many tokens."""
        return self.speculating_share.ndim == 0 and self.speculating_share == 1

    @property
    def always_speculates(self) -> bool:
        """Whether some sequence is sure to carry as many tokens."""
        return self.speculating_chance.ndim == 0 and self.speculating_chance == 1

    @cached_property
    def total(self) -> FloatArray:
        """Tokens of all sequences [token]."""
        return self.batch_size * self.mix(self.per_sequence, np.ones(()))

    def mix(self, speculating: FloatArray, plain: FloatArray) -> FloatArray:
        """Return the mean over sequences of a quantity of speculating and of plain ones."""
        if self.all_speculate:
            return speculating
        return plain + self.speculating_share * (speculating - plain)

    def of_replica(self, replicas: int) -> "Tokens":
        """Share of one of several copies of the attention; none has less than one sequence."""
        if replicas == 1:
            return self
        share = np.maximum(self.batch_size / replicas, np.minimum(self.batch_size, 1.0))
        return replace(self, batch_size=share)


def wider_dtype(activation: str, stored: str) -> str:
    """Return the wider of the dtype of activations and the one that weights or cache have."""
    return stored if ARITHMETIC_BITS[stored] > ARITHMETIC_BITS[activation] else activation


def arithmetic_dtype(architecture: Architecture, stored: str) -> str:
    """Return the dtype in which activations of a model meet weights or a cache."""
    return wider_dtype(architecture.activation_dtype, stored)


def stored_dtype(architecture: Architecture, kind: str) -> str:
    """Return the dtype of the weights, or of the cache, that kernels of a kind read."""
    if kind == "attention":
        return architecture.kv_dtype
    own = architecture.expert_dtype if kind == "experts" else None
    return own or architecture.weight_dtype


def activation_bytes(architecture: Architecture) -> float:
    """Return the size of an activation inside a layer [B]."""
    return BYTES_PER_ELEMENT[architecture.activation_dtype]


def residual_bytes(architecture: Architecture) -> float:
    """Return the size of an element between layers, which is not quantised below 16 bits [B]."""
    return max(BYTES_PER_ELEMENT[architecture.activation_dtype], 2.0)
