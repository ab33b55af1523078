"""Define the record of a decoder: its fields, their checks, and views of its layers."""

from collections.abc import Iterable
from functools import cached_property
from typing import Annotated, Literal, TypeVar

from msgspec import Meta
from msgspec.structs import replace

from specmodel.core.base.bounds import Count, Size
from specmodel.core.base.dtypes import BYTES_PER_ELEMENT, Dtype, StorageDtype
from specmodel.core.base.errors import InputError
from specmodel.core.base.records import Record
from specmodel.core.layers.embeddings import HeadClusters, LayerInputs, NgramInputs, NgramMemory
from specmodel.core.layers.extras import Around, Extra
from specmodel.core.layers.feed_forward import RoutedExperts
from specmodel.core.layers.group import FeedForward, LayerGroup, Mixer, Stored, stored_parts
from specmodel.core.layers.markov import MarkovHead
from specmodel.core.layers.parts import Cached
from specmodel.core.layers.residuals import Residuals
from specmodel.core.layers.stream import Stream

_Part = TypeVar("_Part")

EXTRAS = ("residuals", "layer_inputs", "ngram_inputs", "ngram_memory", "markov", "head_clusters")
"""Fields of optional parts: those beyond layers, embedding and LM head."""


class Shape(Record, frozen=True, kw_only=True):
    """The fields of an `Architecture`, which documents them, and views of its layers."""

    schema_version: Literal[2]
    name: str
    source: str
    hidden_size: Size
    vocabulary_size: Size
    input_vocabulary_size: Size | None = None
    has_tied_embeddings: bool = False
    embedding_size: Size | None = None
    max_positions: Count = 0
    max_context_length: Annotated[int, Meta(ge=1, le=10**9)] | None = None
    input_projection_size: Count = 0
    weight_dtype: StorageDtype = "bf16"
    attention_dtype: StorageDtype | None = None
    expert_dtype: StorageDtype | None = None
    embedding_dtype: StorageDtype | None = None
    head_dtype: StorageDtype | None = None
    mtp_dtype: StorageDtype | None = None
    activation_dtype: Dtype = "bf16"
    attention_activation_dtype: Dtype | None = None
    expert_activation_dtype: Dtype | None = None
    kv_dtype: StorageDtype = "bf16"
    other_kv_dtype: StorageDtype | None = None
    num_mtp_modules: Count = 1
    mtp_layer: LayerGroup | None = None
    shares_mtp_index: bool = False
    layer_inputs: LayerInputs | None = None
    ngram_inputs: NgramInputs | None = None
    ngram_memory: NgramMemory | None = None
    reads_target_cache: bool = False
    residuals: Residuals | None = None
    markov: MarkovHead | None = None
    head_clusters: HeadClusters | None = None
    ignored_config_keys: tuple[str, ...] | None = None
    layers: Annotated[tuple[LayerGroup, ...], Meta(min_length=1)]

    def __post_init__(self) -> None:
        selecting = {mixer.selects for mixer in self.mixers}
        if False in selecting and True not in selecting:
            expected = "true in at least one layer, which selects entries for the others"
            raise InputError("has_indexer", False, expected)
        if not self.reads_target_cache and not self.caches_read <= self.caches_kept:
            expected = "true in one layer with the same heads and window, for others to read"
            raise InputError("has_own_cache", False, expected)
        is_same = not self.has_tied_embeddings or self.head_dtype in (None, self.outer_dtype)
        expected = f"{self.outer_dtype}, as the LM head shares the embedding's weights"
        self.need(is_same, "head_dtype", expected)

    @property
    def num_layers(self) -> int:
        """Layers of all groups [-]."""
        return sum(group.count for group in self.layers)

    @cached_property
    def mixers(self) -> dict[Mixer, int]:
        """Number of layers with each mixer, in order of appearance [-]."""
        return _counted((group.mixer, group.count) for group in self.layers)

    @property
    def caches_kept(self) -> set[Cached]:
        """Shapes of the key-value caches that layers keep."""
        return {mixer.cached for mixer in self.mixers if mixer.cached and mixer.has_own_cache}

    @property
    def caches_read(self) -> set[Cached]:
        """Shapes of the caches that layers without their own cache read from other layers."""
        return {mixer.cached for mixer in self.mixers if mixer.cached and not mixer.has_own_cache}

    @cached_property
    def feed_forwards(self) -> dict[FeedForward, int]:
        """Number of layers with each feed-forward block, in order of appearance [-]."""
        return _counted((group.feed_forward, group.count) for group in self.layers)

    @cached_property
    def parts(self) -> dict[Stored, int]:
        """Number of layers with each mixer and feed-forward block, stored in its dtypes [-]."""
        mixers = replace(
            self.stream,
            weight_dtype=self.attention_dtype or self.weight_dtype,
            activation_dtype=self.attention_activation_dtype or self.activation_dtype,
        )
        return stored_parts(self.layers, self.stream, mixers)

    @cached_property
    def kinds_of_experts(self) -> dict[RoutedExperts, int]:
        """Number of layers with each kind of routed experts [-]."""
        return {part.experts: n for part, n in self.feed_forwards.items() if part.experts}

    @cached_property
    def experts(self) -> RoutedExperts | None:
        """Most frequent kind of routed experts, None if all layers are dense."""
        return max(self.kinds_of_experts, key=self.kinds_of_experts.__getitem__, default=None)

    @property
    def is_moe(self) -> bool:
        """Whether any layer routes tokens to experts."""
        return self.experts is not None

    @property
    def expert_layers(self) -> int:
        """Layers with routed experts [-]."""
        return sum(n for part, n in self.feed_forwards.items() if part.experts)

    def routes_as(self, other: "Shape") -> bool:
        """Return whether another model has the same number of experts, for similar routing."""
        return other.is_moe and other.num_experts == self.num_experts

    @property
    def num_experts(self) -> int:
        """Routed experts of an MoE layer; 1 in dense models [-]."""
        return self.experts.num_experts if self.experts else 1

    @property
    def experts_per_token(self) -> int:
        """Routed experts that a token uses; 1 in dense models [-]."""
        return self.experts.experts_per_token if self.experts else 1

    @property
    def mean_experts_per_token(self) -> float:
        """Mean number of experts that a token uses, without zero experts [-]."""
        return self.experts.mean_experts_per_token if self.experts else 1

    @property
    def activation_ratio(self) -> float:
        """Share of the routed experts that a token uses, MoESD's ρ [-]."""
        return self.experts.activation_ratio if self.experts else 1.0

    @property
    def outer_dtype(self) -> StorageDtype:
        """Dtype of embedding and router, and of the LM head unless `head_dtype` is given."""
        return self.embedding_dtype or self.input_projection_dtype

    @property
    def input_projection_dtype(self) -> StorageDtype:
        """Dtype of a draft head's input projection, which no checkpoint or engine quantises."""
        return self.weight_dtype if BYTES_PER_ELEMENT[self.weight_dtype] >= 2 else "bf16"

    @cached_property
    def stream(self) -> Stream:
        """Width and dtypes that all layers share."""
        return Stream(
            hidden_size=self.hidden_size,
            weight_dtype=self.weight_dtype,
            expert_dtype=self.expert_dtype or self.weight_dtype,
            outer_dtype=self.outer_dtype,
            activation_dtype=self.activation_dtype,
            kv_dtype=self.kv_dtype,
            expert_activation_dtype=self.expert_activation_dtype,
        )

    @cached_property
    def arithmetic_dtypes(self) -> tuple[tuple[str, str, str], ...]:
        """Field, dtype and dtype of arithmetic, for each dtype of activations or weights."""
        stream = self.stream
        alike = (*stream.dtypes.items(), *self.own_dtypes)
        met = [(field, dtype, stream) for field, dtype in alike if field != "expert_dtype"]
        met += [("expert_dtype", stream.expert_dtype, stream.expert_stream)] if self.is_moe else []
        met += [
            ("attention_dtype", dtype, stored.stream)
            for stored in self.parts
            for dtype in (stored.stream.weight_dtype, stored.output_dtype)
            if dtype and stored.part.is_mixer
        ]
        return tuple((field, dtype, of.arithmetic_dtype(dtype)) for field, dtype, of in met)

    @cached_property
    def own_dtypes(self) -> tuple[tuple[str, str], ...]:
        """Fields and dtypes of parts whose dtypes differ from those of `stream`."""
        found = []
        for stored in self.parts:
            dtype = stored.stream.weight_dtype
            if dtype != self.weight_dtype:
                found.append(("attention_dtype" if stored.part.is_mixer else "ffn_dtype", dtype))
            if stored.output_dtype:
                found.append(("output_dtype", stored.output_dtype))
        for field in ("head_dtype", "attention_activation_dtype", "expert_activation_dtype"):
            if getattr(self, field):
                found.append((field, getattr(self, field)))
        return tuple(dict.fromkeys(found))

    @cached_property
    def num_norms(self) -> int:
        """Norms of all layers, and the norm before the LM head [-]."""
        return sum(group.norms for group in self.layers) + 1

    @cached_property
    def extras(self) -> tuple[Extra, ...]:
        """Optional parts of the model: those beyond layers, embedding and LM head."""
        return tuple(extra for name in EXTRAS if (extra := getattr(self, name)))

    @cached_property
    def around(self) -> Around:
        """Properties of the model that its `extras` depend on."""
        # parts without a norm run in parallel to others and use their input
        own = [group for group in self.layers if group.num_norms != 0]
        blocks = (group.count * (bool(group.mixer) + bool(group.feed_forward)) for group in own)
        return Around(
            stream=self.stream,
            vocabulary_size=self.vocabulary_size,
            num_layers=self.num_layers,
            mixed_layers=sum(group.count for group in own),
            mixed_blocks=sum(blocks),
        )


def _counted(parts: Iterable[tuple[_Part | None, int]]) -> dict[_Part, int]:
    """Return the number of layers with each part, in order of appearance, without None."""
    counts: dict[_Part, int] = {}
    for part, count in parts:
        if part is not None:
            counts[part] = counts.get(part, 0) + count
    return counts
