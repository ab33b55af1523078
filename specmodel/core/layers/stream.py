"""Describe the stream between layers: its width, and dtypes that all layers share."""

from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from specmodel.core.base.dtypes import BYTES_PER_ELEMENT
from specmodel.core.layers.work import wider_dtype


class Stream(Struct, frozen=True, dict=True):
    """Width of the residual stream, and dtypes that all layers of a model share.

    `outer_dtype` is the dtype of embedding, LM head and router. `expert_activation_dtype` is the
    dtype of the routed experts' inputs, None if it is that of other activations.
    """

    hidden_size: int
    weight_dtype: str
    expert_dtype: str
    outer_dtype: str
    activation_dtype: str
    kv_dtype: str
    expert_activation_dtype: str | None = None

    @cached_property
    def expert_stream(self) -> "Stream":
        """The same stream, inside the routed experts."""
        dtype = self.expert_activation_dtype or self.activation_dtype
        return replace(self, activation_dtype=dtype)

    @cached_property
    def activation_bytes(self) -> float:
        """Size of an activation inside a layer [B]."""
        return BYTES_PER_ELEMENT[self.activation_dtype]

    @cached_property
    def residual_bytes(self) -> float:
        """Size of an element between layers, which has at least 16 bits [B]."""
        return max(self.activation_bytes, 2.0)

    def arithmetic_dtype(self, stored: str) -> str:
        """Return the dtype of arithmetic between activations and weights or a cache of `stored`."""
        return wider_dtype(self.activation_dtype, stored)

    @cached_property
    def dtypes(self) -> dict[str, str]:
        """Dtypes of activations, weights and caches, by the model's field."""
        return {
            "activation_dtype": self.activation_dtype,
            "weight_dtype": self.weight_dtype,
            "embedding_dtype": self.outer_dtype,
            "kv_dtype": self.kv_dtype,
            "expert_dtype": self.expert_dtype,
        }
