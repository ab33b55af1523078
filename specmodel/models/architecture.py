"""Architectures: a decoder, target or drafter, as a list of groups of layers."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

import numpy as np
from pydantic import Field, model_validator
from pydantic.functional_validators import ModelWrapValidatorHandler

from specmodel.base import records
from specmodel.base.dtypes import BYTES_PER_ELEMENT, Dtype, StorageDtype
from specmodel.base.errors import InputError, nearest
from specmodel.base.records import Record
from specmodel.base.units import FloatArray, check
from specmodel.layers.attention import Count, Size
from specmodel.layers.batch import Layout, Stream
from specmodel.layers.embeddings import LayerInputs, NgramInputs, NgramMemory
from specmodel.layers.feed_forward import RoutedExperts
from specmodel.layers.group import (
    FeedForward,
    LayerGroup,
    Mixer,
    MixerPart,
    Stored,
    stored_parts,
)
from specmodel.layers.grouped import GroupedAttention
from specmodel.layers.markov import MarkovHead
from specmodel.layers.residuals import Residuals
from specmodel.layers.sparse import SparseAttention

FOLDER = Path(__file__).parent / "data/architectures"

_Part = TypeVar("_Part")
_MOST_CUTS = 1025
"""Degrees of parallelism below this are offered where one does not do [-]."""


class Architecture(Record):
    """Shape of one decoder: its groups of layers in order, what is around them, and dtypes.

    Parameter counts leave out biases and rotary tables (below 0.1 % in every model that ships).

    Parameters
    ----------
    schema_version
        Version of this schema, 2; files of version 1 are read as well.
    name, source
        Name for people; where the shape comes from.
    hidden_size
        Width of the residual stream [-].
    layers
        Groups of layers; the order of those that alternate does not matter, as costs add up.
    vocabulary_size, has_tied_embeddings
        Entries of the vocabulary [token]; whether the LM head is the embedding transposed.
    embedding_size
        Width of the embedding where it differs from `hidden_size` [-].
    max_positions
        Entries of a learned position embedding, 0 for rotary [token].
    input_projection_size
        Width that a draft head projects down to `hidden_size` before its layers, 0 for none; in 16
        bits or more, and copied to each GPU, as engines have it [-].
    weight_dtype, attention_dtype, expert_dtype
        Dtypes of the weights: of linear layers; of mixers, and of routed experts, by default the
        same. A group of layers may have others of its own.
    embedding_dtype, head_dtype
        Dtypes of embedding and router, by default that of linear layers but not below 16 bits;
        of the LM head, by default that of the embedding.
    mtp_dtype
        Dtype of all weights of the block for multi-token prediction that the checkpoint has,
        where its parts do not have those of the target.
    activation_dtype, attention_activation_dtype, kv_dtype
        Dtypes of activations, which arithmetic follows; of those inside mixers, by default the
        same; and of the KV cache.
    other_kv_dtype
        Dtype of the KV cache by a second record of the checkpoint, which some engines pass over.
    num_mtp_modules
        Modules for multi-token prediction, each with weights of its own for the position that it
        drafts; one alone drafts them all. 0 says that the checkpoint has none: a drafter of that
        kind is then one that could be trained, as if there was one [-].
    mtp_layer
        Layer of a module, where it is not one with the target's attention, over all entries, and
        with experts if the target has them.
    shares_mtp_index
        Whether all draft passes of a step use the selection of the first, in sparse attention.
    layer_inputs
        Embeddings of a token for each layer.
    ngram_inputs
        Embeddings of the last tokens, beside that of a token.
    ngram_memory
        Tables in which n-grams are looked up.
    reads_target_cache
        Whether it is a draft head that attends to caches of its target, and has none.
    residuals
        What stands in place of one residual stream.
    markov
        Of a block drafter, what makes its tokens depend on each other.
    ignored_config_keys
        Keys of the ``config.json`` that were not read, as asked for.
    """

    schema_version: Literal[2]
    name: str
    source: str
    hidden_size: Size
    vocabulary_size: Size
    has_tied_embeddings: bool = False
    embedding_size: Size | None = None
    max_positions: Count = 0
    input_projection_size: Count = 0
    weight_dtype: StorageDtype = "bf16"
    attention_dtype: StorageDtype | None = None
    expert_dtype: StorageDtype | None = None
    embedding_dtype: StorageDtype | None = None
    head_dtype: StorageDtype | None = None
    mtp_dtype: StorageDtype | None = None
    activation_dtype: Dtype = "bf16"
    attention_activation_dtype: Dtype | None = None
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
    ignored_config_keys: Annotated[tuple[str, ...], Field(strict=False)] = ()
    layers: Annotated[tuple[LayerGroup, ...], Field(min_length=1, strict=False)]

    @model_validator(mode="wrap")
    @classmethod
    def _read(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if isinstance(data, Mapping) and data.get("schema_version") == 1:
            from specmodel.models.version_1 import upgraded  # only old files need it

            return handler(upgraded(data, cls.model_fields))
        return handler(data)

    @model_validator(mode="after")
    def _check_experts(self) -> Self:
        kinds = {part for part in self.feed_forwards if isinstance(part, RoutedExperts)}
        if len(kinds) > 1:
            expected = "the same experts in all layers that route, so that a union is one number"
            raise InputError("layers", f"{len(kinds)} kinds of experts", expected)
        return self

    @model_validator(mode="after")
    def _check_indexer(self) -> Self:
        sparse = [mixer for mixer in self.mixers if isinstance(mixer, SparseAttention)]
        if sparse and not any(mixer.has_indexer for mixer in sparse):
            expected = "true in one layer at least, as nothing else selects what the others read"
            raise InputError("has_indexer", False, expected)
        return self

    @model_validator(mode="after")
    def _check_caches(self) -> Self:
        if self.reads_target_cache:
            return self
        if not self.caches_read <= self.caches_kept:
            expected = "true in a layer of the same heads and window, for the others to read"
            raise InputError("has_own_cache", False, expected)
        return self

    @model_validator(mode="after")
    def _check_head(self) -> Self:
        if self.has_tied_embeddings and self.head_dtype not in (None, self.outer_dtype):
            expected = f"{self.outer_dtype}, as the LM head is the embedding transposed"
            raise InputError("head_dtype", self.head_dtype, expected)
        return self

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy as pydantic does, which forgets what was computed from its fields."""
        copied = super().model_copy(update=update, deep=deep)
        for name in copied.__dict__.keys() - type(self).model_fields.keys():
            del copied.__dict__[name]
        return copied

    @classmethod
    def from_hf_config(
        cls,
        path: str | Path,
        argument: str = "target",
        *,
        weight_dtype: str | None = None,
        ignore_keys: Collection[str] = (),
    ) -> Self:
        """Return the architecture that a model's public ``config.json`` describes.

        Parameters
        ----------
        path
            The file, or the folder that holds it.
        argument
            Name that an error should carry.
        weight_dtype
            Dtype of the weights of linear layers, which overrides what the checkpoint says of
            them; a record of quantisation beside ``config.json`` is not read then, and one in it
            is passed over if it is not understood.
        ignore_keys
            Keys that are read as if they were not in the file, at whatever depth they stand.

        Returns
        -------
        Architecture
            The shape, with the dtype of the weights.

        Raises
        ------
        InputError
            If the family, a key or a quantisation is not understood, or a key to be ignored is not
            in the file.

        Examples
        --------
        >>> Architecture.from_hf_config("no/such/config.json")
        Traceback (most recent call last):
        ...
        specmodel.base.errors.InputError: target: got 'no/such/config.json'; expected ...
        """
        from specmodel.models.hf.config import architecture_fields  # tables for this path only
        from specmodel.models.hf.files import read_config

        file, is_given = read_config(path, argument, ignore_keys), weight_dtype is not None
        beside = None if is_given else file.quantisation()
        fields = architecture_fields(file.content, file.argument, beside, is_dtype_given=is_given)
        own = records.build(cls, file.with_origin(fields), file.argument)
        return own.with_changes(argument, {"weight_dtype": weight_dtype} if weight_dtype else {})

    def with_changes(self, argument: str, changes: Mapping[str, object]) -> Self:
        """Return a validated copy with fields replaced, those of layers in all that have them.

        A field of a mixer or feed-forward block, such as `experts_per_token`, is replaced wherever
        it stands, and `num_layers` where all layers are alike.
        """
        own = {key: value for key, value in changes.items() if key in type(self).model_fields}
        inner = {key: value for key, value in changes.items() if key not in own}
        if inner:
            own["layers"] = self._changed_layers(argument, inner)
        try:
            return super().with_changes(argument, own)
        except InputError as error:  # named as the change was, not by the first layer at fault
            leaf = error.argument.rpartition(".")[2].replace("count", "num_layers")
            name = f"{argument}.{leaf}" if leaf in inner else error.argument
            raise InputError(name, error.value, error.expected) from None

    def _changed_layers(self, argument: str, changes: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the layers with fields replaced in all mixers and blocks that have them."""
        groups = [group.model_dump() for group in self.layers]
        parts = [group[name] or {} for group in groups for name in ("mixer", "feed_forward")]
        known = set(type(self).model_fields).union(*parts) - {"kind"}
        for key, value in changes.items():
            if key == "num_layers":
                if len(groups) > 1:
                    expected = f"no change, as the layers of {self.name} are not all alike"
                    raise InputError(f"{argument}.num_layers", value, expected)
                groups[0]["count"] = value
            elif key not in known:
                raise InputError(f"{argument}.{key}", value, f"a field: {nearest(key, known)}")
            for part in parts:
                part.update({key: value} if key in part else {})
        return groups

    @property
    def num_layers(self) -> int:
        """Layers of all groups [-]."""
        return sum(group.count for group in self.layers)

    @cached_property
    def mixers(self) -> dict[Mixer, int]:
        """How many layers have each mixer, in order of appearance [-]."""
        return _counted((group.mixer, group.count) for group in self.layers)

    @property
    def caches_kept(self) -> set[tuple[int, int, int, int | None]]:
        """What caches of keys and values are like that its layers keep."""
        grouped = (mixer for mixer in self.mixers if isinstance(mixer, GroupedAttention))
        return {mixer.cached for mixer in grouped if mixer.has_own_cache}

    @property
    def caches_read(self) -> set[tuple[int, int, int, int | None]]:
        """What caches are like that layers read which keep none."""
        grouped = (mixer for mixer in self.mixers if isinstance(mixer, GroupedAttention))
        return {mixer.cached for mixer in grouped if not mixer.has_own_cache}

    @cached_property
    def feed_forwards(self) -> dict[FeedForward, int]:
        """How many layers have each feed-forward block, in order of appearance [-]."""
        return _counted((group.feed_forward, group.count) for group in self.layers)

    @cached_property
    def parts(self) -> dict[Stored, int]:
        """How many layers have each mixer, then each feed-forward block, in its dtypes [-]."""
        mixers = replace(
            self.stream,
            weight_dtype=self.attention_dtype or self.weight_dtype,
            activation_dtype=self.attention_activation_dtype or self.activation_dtype,
        )
        return stored_parts(self.layers, self.stream, mixers)

    @cached_property
    def experts(self) -> RoutedExperts | None:
        """Routed experts of its MoE layers, where there is a choice of them."""
        parts = (part for part in self.feed_forwards if isinstance(part, RoutedExperts))
        return next((part for part in parts if part.is_routed), None)

    @property
    def is_moe(self) -> bool:
        """Whether any layer routes tokens to one of several experts."""
        return self.experts is not None

    @property
    def num_experts(self) -> int:
        """Routed experts of each MoE layer; 1 where there are none [-]."""
        return self.experts.num_experts if self.experts else 1

    @property
    def experts_per_token(self) -> int:
        """Routed experts that a token uses; 1 where there are none [-]."""
        return self.experts.experts_per_token if self.experts else 1

    @property
    def mean_experts_per_token(self) -> float:
        """Likewise, less those without weights, a mean [-]."""
        return self.experts.mean_experts_per_token if self.experts else 1

    @property
    def activation_ratio(self) -> float:
        """Share of the routed experts that a token uses, MoESD's ρ [-]."""
        return self.experts.activation_ratio if self.experts else 1.0

    @property
    def outer_dtype(self) -> StorageDtype:
        """Dtype of embedding and router, and of the LM head where it has none of its own."""
        return self.embedding_dtype or self._unquantised_dtype

    @property
    def input_projection_dtype(self) -> StorageDtype:
        """Dtype of the projection of a draft head, which no checkpoint or engine quantises."""
        return self._unquantised_dtype

    @cached_property
    def stream(self) -> Stream:
        """What all layers share."""
        return Stream(
            hidden_size=self.hidden_size,
            weight_dtype=self.weight_dtype,
            expert_dtype=self.expert_dtype or self.weight_dtype,
            outer_dtype=self.outer_dtype,
            activation_dtype=self.activation_dtype,
            kv_dtype=self.kv_dtype,
        )

    @cached_property
    def arithmetic_dtypes(self) -> tuple[tuple[str, str, str], ...]:
        """Dtypes of activations and of what they meet: field, dtype, and that of the arithmetic."""
        stream, told = self.stream, dict(self.own_dtypes)
        met = [(field, dtype, stream) for field, dtype in (*stream.dtypes.items(), *told.items())]
        met += [
            ("attention_dtype", dtype, stored.stream)
            for stored in self.parts
            for dtype in (stored.stream.weight_dtype, stored.output_dtype)
            if dtype and isinstance(stored.part, MixerPart)
        ]
        return tuple((field, dtype, of.arithmetic_dtype(dtype)) for field, dtype, of in met)

    @cached_property
    def own_dtypes(self) -> tuple[tuple[str, str], ...]:
        """Dtypes of parts that differ from those of `stream`, each with its field."""
        found = []
        for stored in self.parts:
            dtype, is_mixer = stored.stream.weight_dtype, isinstance(stored.part, MixerPart)
            if dtype != self.weight_dtype:
                found.append(("attention_dtype" if is_mixer else "ffn_dtype", dtype))
            if stored.output_dtype:
                found.append(("output_dtype", stored.output_dtype))
        for field in ("head_dtype", "attention_activation_dtype"):
            if getattr(self, field):
                found.append((field, getattr(self, field)))
        return tuple(dict.fromkeys(found))

    @cached_property
    def num_norms(self) -> int:
        """Norms of all layers and before the LM head [-]."""
        return sum(group.norms for group in self.layers) + 1

    @cached_property
    def num_blocks(self) -> int:
        """Mixers and feed-forward blocks of all layers [-]."""
        return sum(self.mixers.values()) + sum(self.feed_forwards.values())

    @property
    def embedding_parameters(self) -> int:
        """Weights of the input embeddings, their positions and their projection [-]."""
        table = self.vocabulary_size * self._embedding_width
        if self.layer_inputs:
            table += self.layer_inputs.table_parameters(self.num_layers)
        if self.ngram_inputs:
            table += self.ngram_inputs.table_parameters(self.hidden_size)
        return table + self.max_positions * self.hidden_size + self._embedding_projection

    @property
    def head_parameters(self) -> int:
        """Weights that the LM head multiplies by, tied or not [-]."""
        return self.vocabulary_size * self._embedding_width + self._embedding_projection

    @property
    def embedding_bytes(self) -> float:
        """Weights of the input embedding, its positions and its projection [B]."""
        return self.embedding_parameters * BYTES_PER_ELEMENT[self.outer_dtype]

    @property
    def outer_bytes(self) -> float:
        """Weights of input embedding and LM head, tied ones counted once [B]."""
        tied = self.embedding_parameters + self.head_parameters - self.outer_parameters
        head = BYTES_PER_ELEMENT[self.head_dtype or self.outer_dtype]
        return self.embedding_bytes + (self.head_parameters - tied) * head

    @property
    def outer_parameters(self) -> int:
        """Weights of input embedding and LM head, tied ones counted once [-]."""
        both = self.embedding_parameters + self.head_parameters
        tied = self.vocabulary_size * self._embedding_width
        return both - tied if self.has_tied_embeddings else both

    @property
    def total_parameters(self) -> int:
        """All weights, tied ones counted once [-]."""
        h = self.hidden_size
        blocks = sum(part.parameters(h) * count for part, count in self.feed_forwards.items())
        looked_up = self.markov.table_parameters if self.markov else 0
        looked_up += self.ngram_memory.table_parameters if self.ngram_memory else 0
        return self.outer_parameters + self._inner_parameters + blocks + looked_up

    @property
    def active_parameters(self) -> int:
        """Weights that one token is multiplied by: LM head in, input embedding out [-]."""
        h = self.hidden_size
        blocks = sum(part.active_parameters(h) * n for part, n in self.feed_forwards.items())
        return self.head_parameters + self._inner_parameters + blocks

    def weight_bytes(self, layout: Layout) -> float:
        """Return the weights that each GPU holds, each group in its dtype [B].

        Parameters
        ----------
        layout
            How the model is spread over GPUs.

        Returns
        -------
        float
            Bytes [B].
        """
        h, n, stream = self.hidden_size, layout.tensor_parallel, self.stream
        own, plan = self.residuals, (self.num_layers, self.num_blocks)
        inputs, ngrams, memory = self.layer_inputs, self.ngram_inputs, self.ngram_memory
        return (
            sum(part.weight_bytes(layout) * count for part, count in self.parts.items())
            + self.input_projection_size * h * stream.bytes_of(self.input_projection_dtype)
            + self.outer_bytes / n
            + self.num_norms * h * stream.residual_bytes
            + (inputs.weight_bytes(stream, self.num_layers, layout) if inputs else 0)
            + (ngrams.weight_bytes(stream) if ngrams else 0)
            + (own.weight_bytes(stream, *plan) if own else 0)
            + self._markov_parameters * stream.bytes_of(self.outer_dtype)
            + (memory.weight_bytes(stream, layout) if memory else 0)
        )

    def sequence_bytes(self, entries: FloatArray, tensor_parallel: int = 1) -> FloatArray:
        """Return what all layers keep of one sequence on each GPU: KV cache and state.

        Parameters
        ----------
        entries
            Tokens in the cache, any shape [token].
        tensor_parallel
            GPUs that the heads are spread over [-].

        Returns
        -------
        FloatArray
            Bytes of a sequence [B].
        """
        kept = check("entries", entries, minimum=0)
        parts = self.mixers.items()
        each = (n * part.sequence_bytes(kept, self.stream, tensor_parallel) for part, n in parts)
        return sum(each, np.zeros(()))

    def check_layout(self, layout: Layout, prefix: str = "") -> None:
        """Say in one line if the model cannot be spread so.

        Parameters
        ----------
        layout
            The degrees.
        prefix
            Put before the names of arguments in errors.

        Raises
        ------
        InputError
            If a degree does not divide what it cuts.
        """
        n = int(check(f"{prefix}tensor_parallel", layout.tensor_parallel, minimum=1, whole=True))
        for mixer in self.mixers:
            if not mixer.cuts(n):
                fitting = ", ".join(str(i) for i in range(1, _MOST_CUTS) if mixer.cuts(i))
                kind = mixer.kind.replace("_", " ")
                expected = f"a degree that cuts the {kind} of {self.name} evenly: {fitting}"
                raise InputError(f"{prefix}tensor_parallel", n, expected)
        e = int(check(f"{prefix}expert_parallel", layout.expert_parallel, minimum=1, whole=True))
        if e == 1 or not self.experts:
            return
        if e > self.num_experts or self.num_experts % e:
            expected = f"a divisor of the {self.num_experts} experts of {self.name}"
            raise InputError(f"{prefix}expert_parallel", e, expected)
        layout.check_groups(f"{prefix}expert_parallel")

    @property
    def _unquantised_dtype(self) -> StorageDtype:
        """Dtype of linear layers, but not below 16 bits."""
        return self.weight_dtype if BYTES_PER_ELEMENT[self.weight_dtype] >= 2 else "bf16"

    @property
    def _embedding_width(self) -> int:
        return self.embedding_size or self.hidden_size

    @property
    def _embedding_projection(self) -> int:
        width = self._embedding_width
        return self.hidden_size * width if width != self.hidden_size else 0

    @property
    def _markov_parameters(self) -> int:
        """Weights of a Markov head, its table too [-]."""
        own, size = self.markov, self.vocabulary_size
        return own.table_parameters + own.parameters(self.hidden_size, size) if own else 0

    @property
    def _inner_parameters(self) -> int:
        """Weights that every token is multiplied by, feed-forward blocks and LM head aside."""
        h = self.hidden_size
        mixers = sum(int(part.weights(h)) * count for part, count in self.mixers.items())
        inputs = self.layer_inputs.parameters(h, self.num_layers) if self.layer_inputs else 0
        inputs += self.ngram_inputs.parameters(h) if self.ngram_inputs else 0
        own, plan = self.residuals, (self.num_layers, self.num_blocks)
        mixed = own.parameters(h, *plan) if own else 0
        inputs += self.ngram_memory.parameters(h) if self.ngram_memory else 0
        chained = self.markov.parameters(h, self.vocabulary_size) if self.markov else 0
        return mixers + inputs + mixed + chained + (self.input_projection_size + self.num_norms) * h


def _counted(parts: Iterable[tuple[_Part | None, int]]) -> dict[_Part, int]:
    """Return how many layers have each part, in order of appearance; None is no part."""
    counts: dict[_Part, int] = {}
    for part, count in parts:
        if part is not None:
            counts[part] = counts.get(part, 0) + count
    return counts


def load_architecture(
    name: str | Path,
    argument: str = "target",
    *,
    weight_dtype: str | None = None,
    ignore_keys: Collection[str] = (),
) -> Architecture:
    """Return an architecture by name or path.

    Parameters
    ----------
    name
        A name that `list_architectures` gives, a TOML file, or a model's ``config.json`` (or
        the folder that holds it): paths have a slash or a suffix.
    argument
        Name that an error should carry.
    weight_dtype
        Dtype of the weights; what is stored if None.
    ignore_keys
        Keys of a ``config.json`` that are read as if they were not in it.

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
    if records.is_path(name, argument) and Path(name).suffix != ".toml":
        records.check_no_id(str(name), FOLDER, argument)
        return Architecture.from_hf_config(
            name, argument, weight_dtype=weight_dtype, ignore_keys=ignore_keys
        )
    if ignore_keys:
        raise InputError("ignore_keys", ignore_keys, f"none, as {name} is no config.json")
    own = records.load(Architecture, name, FOLDER, argument)
    return own.with_changes(argument, {"weight_dtype": weight_dtype} if weight_dtype else {})


def list_architectures() -> list[str]:
    """Return the names of the architectures that ship with the package.

    Examples
    --------
    >>> "qwen2-57b-a14b" in list_architectures()
    True
    """
    return list(records.list_names(FOLDER))
