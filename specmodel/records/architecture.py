"""Architectures: the shape of a decoder, target or drafter, dense or Mixture-of-Experts."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from specmodel.base import records
from specmodel.base.errors import InputError
from specmodel.base.records import Record
from specmodel.base.units import BYTES_PER_ELEMENT
from specmodel.records.hardware import Dtype
from specmodel.records.kernels import StorageDtype

FOLDER = Path(__file__).parent / "data/architectures"

Size = Annotated[int, Field(ge=1, le=10**7)]
Count = Annotated[int, Field(ge=0, le=10**7)]


class LatentAttention(Record):
    """Multi-head latent attention (MLA), run in its absorbed form: the cache holds one latent.

    Parameters
    ----------
    kv_lora_rank, q_lora_rank
        Widths of the latents of keys and values, and of queries, 0 if queries have none [-].
    qk_nope_head_dim, qk_rope_head_dim, v_head_dim
        Widths of a head: position-free and rotary part of keys, and values [-].
    """

    kv_lora_rank: Size
    q_lora_rank: Count
    qk_nope_head_dim: Size
    qk_rope_head_dim: Size
    v_head_dim: Size

    @property
    def cache_size(self) -> int:
        """Elements cached for a token in one layer, whatever the number of heads [-]."""
        return self.kv_lora_rank + self.qk_rope_head_dim


class Architecture(Record):
    """Shape of one decoder-only transformer; a dense model has one expert or only dense layers.

    Parameter counts leave out biases and rotary tables (below 0.1 % in every model that ships).

    Parameters
    ----------
    schema_version
        Version of this schema, 1.
    name, source
        Name for people; where the shape comes from.
    hidden_size, num_layers
        Width of the residual stream and number of layers [-].
    num_heads, num_kv_heads, head_dim
        Query heads, key-value heads and their width; with `latent`, the last two are not used [-].
    latent
        Latent attention, if the model has it.
    vocabulary_size, has_tied_embeddings
        Entries of the vocabulary [token]; whether the LM head is the embedding transposed.
    has_gated_ffn
        Whether a feed-forward block has three matrices (gate, up, down) instead of two.
    num_dense_layers, dense_ffn_size
        Layers with a dense feed-forward block, and its width [-].
    num_experts, experts_per_token, expert_size
        Routed experts of the other layers, how many a token uses, and the width of one [-].
    num_shared_experts, shared_expert_size
        Experts every token uses, and the width of one [-].
    sliding_window, num_sliding_layers
        Window of the layers that have one [token], and how many do [-]. Attention in chunks
        counts as a window of a chunk: exact in the first, above the mean beyond it.
    embedding_size
        Width of the embedding where it differs from `hidden_size` [-].
    max_positions
        Entries of a learned position embedding, 0 for rotary [token].
    input_projection_size
        Width that a draft head projects down to `hidden_size` before its layers, 0 for none [-].
    weight_dtype, expert_dtype, embedding_dtype
        Dtypes of the weights: of linear layers; of routed experts, by default the same; of
        embedding, LM head and router, by default the same but not below 16 bits.
    activation_dtype, kv_dtype
        Dtypes of activations, which arithmetic follows, and of the KV cache.
    """

    schema_version: Literal[1]
    name: str
    source: str
    hidden_size: Size
    num_layers: Size
    num_heads: Size
    num_kv_heads: Size
    head_dim: Size
    vocabulary_size: Size
    has_tied_embeddings: bool = False
    has_gated_ffn: bool = True
    num_dense_layers: Count = 0
    dense_ffn_size: Count = 0
    num_experts: Size = 1
    experts_per_token: Size = 1
    expert_size: Count = 0
    num_shared_experts: Count = 0
    shared_expert_size: Count = 0
    sliding_window: Size | None = None
    num_sliding_layers: Count = 0
    embedding_size: Size | None = None
    max_positions: Count = 0
    input_projection_size: Count = 0
    latent: LatentAttention | None = None
    weight_dtype: StorageDtype = "bf16"
    expert_dtype: StorageDtype | None = None
    embedding_dtype: StorageDtype | None = None
    activation_dtype: Dtype = "bf16"
    kv_dtype: StorageDtype = "bf16"

    @model_validator(mode="after")
    def _check_shape(self) -> Self:
        if self.num_heads % self.num_kv_heads:
            expected = f"a divisor of num_heads = {self.num_heads}"
            raise InputError("num_kv_heads", self.num_kv_heads, expected)
        if self.experts_per_token > self.num_experts:
            expected = f"at most num_experts = {self.num_experts}"
            raise InputError("experts_per_token", self.experts_per_token, expected)
        for layers in ("num_dense_layers", "num_sliding_layers"):
            if getattr(self, layers) > self.num_layers:
                expected = f"at most num_layers = {self.num_layers}"
                raise InputError(layers, getattr(self, layers), expected)
        for count, size in (
            ("num_dense_layers", "dense_ffn_size"),
            ("num_moe_layers", "expert_size"),
            ("num_shared_experts", "shared_expert_size"),
        ):
            if getattr(self, count) and not getattr(self, size):
                origin = " = num_layers - num_dense_layers" if count == "num_moe_layers" else ""
                expected = f"a width above 0, as {count}{origin} = {getattr(self, count)}"
                raise InputError(size, getattr(self, size), expected)
        if bool(self.num_sliding_layers) != bool(self.sliding_window):
            expected = "both or neither of sliding_window and num_sliding_layers"
            raise InputError("sliding_window", self.sliding_window, expected)
        return self

    @classmethod
    def from_hf_config(cls, path: str | Path) -> Self:
        """Return the architecture that a model's public ``config.json`` describes.

        Parameters
        ----------
        path
            The file, or the folder that holds it.

        Returns
        -------
        Architecture
            The shape, with the dtype of the weights.

        Raises
        ------
        InputError
            If the family, or a key that could change the shape, is not understood.

        Examples
        --------
        >>> Architecture.from_hf_config("no/such/config.json")
        Traceback (most recent call last):
        ...
        specmodel.base.errors.InputError: target: got 'no/such/config.json'; expected ...
        """
        return cls._from_hf_config(Path(path), "target")

    @classmethod
    def _from_hf_config(cls, path: Path, argument: str) -> Self:
        from specmodel.records.hf import config as hf_config  # its tables are for this path only

        file = path / "config.json" if path.is_dir() else path
        config = records.read_mapping(file, argument)
        shape = hf_config.architecture_fields(config, f"{argument} {file.name}")
        name = file.resolve().parent.name if file.name == "config.json" else file.stem
        data = {"schema_version": 1, "name": name, "source": str(file), **shape}
        return records.build(cls, data, f"{argument} {file.name}")

    @property
    def num_moe_layers(self) -> int:
        """Layers with routed experts [-]."""
        return self.num_layers - self.num_dense_layers

    @property
    def is_moe(self) -> bool:
        """Whether any layer routes tokens to one of several experts."""
        return self.num_experts > 1 and self.num_moe_layers > 0

    @property
    def activation_ratio(self) -> float:
        """Share of the routed experts that a token uses, MoESD's ρ [-]."""
        return self.experts_per_token / self.num_experts

    @property
    def outer_dtype(self) -> StorageDtype:
        """Dtype of embedding, LM head and router."""
        if self.embedding_dtype:
            return self.embedding_dtype
        return self.weight_dtype if BYTES_PER_ELEMENT[self.weight_dtype] >= 2 else "bf16"

    @property
    def query_size(self) -> int:
        """Width of all query heads together [-]."""
        return self.num_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Width of all key heads together, the same for values [-]."""
        return self.num_kv_heads * self.head_dim

    def ffn_parameters(self, ffn_size: int) -> int:
        """Return the weights of a feed-forward block of a width [-]."""
        return (3 if self.has_gated_ffn else 2) * self.hidden_size * ffn_size

    @property
    def router_parameters(self) -> int:
        """Weights of the router of one MoE layer; a single expert needs none [-]."""
        return self.hidden_size * self.num_experts if self.num_experts > 1 else 0

    @property
    def shared_parameters(self) -> int:
        """Weights of the shared experts of one MoE layer [-]."""
        return self.ffn_parameters(self.num_shared_experts * self.shared_expert_size)

    @property
    def embedding_parameters(self) -> int:
        """Weights of the input embedding, its positions and its projection [-]."""
        width = self.embedding_size or self.hidden_size
        table = self.vocabulary_size * width + self.max_positions * self.hidden_size
        return table + self._embedding_projection

    @property
    def head_parameters(self) -> int:
        """Weights that the LM head multiplies by, tied or not [-]."""
        width = self.embedding_size or self.hidden_size
        return self.vocabulary_size * width + self._embedding_projection

    @property
    def outer_parameters(self) -> int:
        """Weights of input embedding and LM head, tied ones counted once [-]."""
        tied = self.vocabulary_size * (self.embedding_size or self.hidden_size)
        both = self.embedding_parameters + self.head_parameters
        return both - tied if self.has_tied_embeddings else both

    @property
    def total_parameters(self) -> int:
        """All weights, tied ones counted once [-]."""
        experts = self.num_experts * self.ffn_parameters(self.expert_size)
        return self.outer_parameters + self._parameters_with(experts)

    @property
    def active_parameters(self) -> int:
        """Weights that one token is multiplied by: LM head in, input embedding out [-]."""
        experts = self.experts_per_token * self.ffn_parameters(self.expert_size)
        return self.head_parameters + self._parameters_with(experts)

    @property
    def attention_parameters(self) -> int:
        """Weights of the query, key, value and output projections of one layer [-]."""
        return sum(self.attention_matrices)

    @property
    def attention_matrices(self) -> tuple[int, int, int]:
        """Attention weights of a layer: cut by query heads, by key heads, and not at all [-]."""
        h = self.hidden_size
        if self.latent is None:
            return 2 * h * self.query_size, 2 * h * self.kv_size, 0
        m = self.latent
        query_heads = self.num_heads * (m.qk_nope_head_dim + m.qk_rope_head_dim)
        value_heads = self.num_heads * (m.qk_nope_head_dim + m.v_head_dim)
        by_head = (
            (m.q_lora_rank or h) * query_heads
            + m.kv_lora_rank * value_heads
            + self.num_heads * m.v_head_dim * h
        )
        return by_head, 0, h * (m.q_lora_rank + m.cache_size)

    @property
    def _embedding_projection(self) -> int:
        width = self.embedding_size or self.hidden_size
        return self.hidden_size * width if width != self.hidden_size else 0

    def _parameters_with(self, routed_experts: int) -> int:
        moe_layer = self.router_parameters + self.shared_parameters + routed_experts
        norms = (2 * self.num_layers + 1) * self.hidden_size
        return (
            self.num_layers * self.attention_parameters
            + self.num_moe_layers * moe_layer
            + self.num_dense_layers * self.ffn_parameters(self.dense_ffn_size)
            + self.input_projection_size * self.hidden_size
            + norms
        )


def load_architecture(name: str | Path, argument: str = "target") -> Architecture:
    """Return an architecture by name or path.

    Parameters
    ----------
    name
        A name that `list_architectures` gives, a TOML file, or a model's ``config.json`` (or
        the folder that holds it): paths have a slash or a suffix.
    argument
        Name that an error should carry.

    Returns
    -------
    Architecture
        The architecture.

    Raises
    ------
    InputError
        If there is no such architecture, or the file does not fit.

    Examples
    --------
    >>> load_architecture("mixtral-8x7b").num_experts
    8
    """
    is_path = isinstance(name, Path) or records.is_path(str(name))
    if is_path and Path(name).suffix != ".toml":
        return Architecture._from_hf_config(Path(name), argument)
    return records.load(Architecture, name, FOLDER, argument)


def list_architectures() -> list[str]:
    """Return the names of the architectures that ship with the package.

    Examples
    --------
    >>> "qwen2-57b-a14b" in list_architectures()
    True
    """
    return list(records.list_names(FOLDER))
