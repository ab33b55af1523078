"""The stream between layers: its width, and the dtypes that all layers of a model share."""

from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from specmodel.core.base.dtypes import BYTES_PER_ELEMENT
from specmodel.core.layers.work import wider_dtype


class Stream(Struct, frozen=True, dict=True):
    """Width of the residual stream, and dtypes, which all layers of a model share.

    `outer_dtype` is that of embedding, LM head and router; `expert_activation_dtype` that of what
    goes into the routed experts, where it differs.
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
        """Size of an element between layers, which is not quantised below 16 bits [B]."""
        return max(self.activation_bytes, 2.0)

    def arithmetic_dtype(self, stored: str) -> str:
        """Return the dtype of arithmetic between activations and weights or cache in `stored`."""
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
