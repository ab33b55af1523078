"""Describe a decoder, target or drafter: its parameters, its bytes, and how to load it."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np

from specmodel.core.base import records
from specmodel.core.base.dtypes import BYTES_PER_ELEMENT, check_dtype, is_of_gguf, kernel_dtype
from specmodel.core.base.errors import InputError, nearest
from specmodel.core.base.naming import found_path, is_local
from specmodel.core.base.records import as_table, field_names
from specmodel.core.base.units import FloatArray, check
from specmodel.core.layers.batch import Layout
from specmodel.core.models.checkpoints import checkpoint, keeps_cache_in_fp8, meets_16_bits
from specmodel.core.models.gguf import gguf_fields, gguf_name
from specmodel.core.models.shape import Shape

FOLDER = Path(__file__).parent / "data/architectures"

_MOST_CUTS = 1025
"""Limit below which errors list valid degrees of parallelism [-]."""


class Architecture(Shape, frozen=True):
    """Shape of one decoder: its groups of layers in order, the parts around them, and dtypes.

    Parameter counts leave out biases and rotary tables (below 0.1 % in every shipped model).

    Parameters
    ----------
    schema_version
        Version of this schema, 2.
    name, source
        Name for people; source of the shape.
    hidden_size
        Width of the residual stream [-].
    layers
        Groups of layers. Their order does not matter, because costs are summed.
    vocabulary_size, has_tied_embeddings
        Entries of the vocabulary [token]; whether the LM head is the transposed embedding.
    input_vocabulary_size
        Entries of the embedding if the LM head has fewer, as in some draft heads [token].
    embedding_size
        Width of the embedding if it differs from `hidden_size` [-].
    max_positions
        Entries of a learned position embedding, 0 for rotary [token].
    max_context_length
        Longest context that the model supports, None if unknown. A shipped shape has the longest of
        its checkpoints [token].
    input_projection_size
        Width that a draft head projects to `hidden_size` before its layers, 0 for none. Each GPU
        has a copy of this projection, in 16 bits or more [-].
    weight_dtype, attention_dtype, expert_dtype
        Dtypes of the weights of linear layers, of mixers and of routed experts; the first is the
        default for all. A group of layers may have its own dtypes.
    embedding_dtype, head_dtype
        Dtype of embedding and router, by default the dtype of linear layers but at least 16 bits.
        Dtype of the LM head, by default the dtype of the embedding.
    mtp_dtype
        Dtype of all weights of MTP modules, None if their parts have the target's dtypes.
    activation_dtype, attention_activation_dtype, expert_activation_dtype, kv_dtype
        Dtype of activations, which decides the arithmetic; dtypes of activations inside mixers and
        inside routed experts, by default the same; and dtype of the KV cache.
    other_kv_dtype
        Dtype of the KV cache in a second record of the checkpoint, which some engines ignore.
    num_mtp_modules
        Modules for multi-token prediction. Each drafts one position with its own weights; a single
        module drafts all positions. With 0, the checkpoint has no modules, and an MTP drafter is a
        module that could be trained [-].
    mtp_layer
        Layer of a module. By default, it has the target's attention to all entries, and experts if
        the target has experts.
    shares_mtp_index
        Whether all draft passes of a step use the first pass's selection for sparse attention.
    layer_inputs
        Embeddings of a token for each layer.
    ngram_inputs
        Embeddings of the last tokens, in addition to the current token's.
    ngram_memory
        Tables in which layers look up n-grams.
    reads_target_cache
        Whether it is a draft head that attends to its target's caches and has no cache.
    residuals
        Several residual streams, or attention to earlier sums, in place of one stream.
    markov
        The head of a block drafter that makes its tokens depend on each other.
    head_clusters
        Clusters of the vocabulary, if the LM head scores only the best of them for each token.
    ignored_config_keys
        Keys of the ``config.json`` that were ignored on request; None if all were read.
    """

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
            The file, or the folder that contains it, or a GGUF file, whose header is read.
        argument
            Name that an error should carry.
        weight_dtype
            Dtype of the weights of linear layers, which replaces the checkpoint's. The file
            ``hf_quant_config.json`` is then not read, and an unknown quantisation in
            ``config.json`` is ignored.
        ignore_keys
            Keys to ignore, at any depth of the file.

        Examples
        --------
        >>> Architecture.from_hf_config("no/such/config.json")
        Traceback (most recent call last):
        ...
        specmodel.core.base.errors.InputError: target: got 'no/such/config.json'; expected ...
        """
        from specmodel.core.models.hf.config import architecture_fields  # tables for this path only
        from specmodel.core.models.hf.files import read_config

        weight_dtype = weight_dtype and check_dtype("weight_dtype", weight_dtype)
        if Path(path).suffix == ".gguf":
            own = records.build(cls, gguf_fields(Path(path), argument), argument)
            return own.with_changes(argument, _stored(own, weight_dtype) if weight_dtype else {})
        file = read_config(path, argument, ignore_keys)
        beside = file.quantisation() if weight_dtype is None else None
        fields = architecture_fields(file.content, file.argument, beside, weight_dtype=weight_dtype)
        own = records.build(cls, file.with_origin(fields), file.argument)
        return own.with_changes(argument, _stored(own, weight_dtype) if weight_dtype else {})

    def with_changes(self, argument: str, changes: Mapping[str, object]) -> Self:
        """Return a validated copy with fields replaced, a layer's field in all layers that have it.

        A field of a mixer or feed-forward block, such as `experts_per_token`, is replaced
        everywhere. `num_layers` is replaced if all layers are alike.
        """
        changes = {str(key): value for key, value in changes.items()}
        own = {key: value for key, value in changes.items() if key in field_names(type(self))}
        inner = {key: value for key, value in changes.items() if key not in own}
        if inner and "layers" in own:
            raise InputError(
                f"{argument}.layers", own["layers"], f"`layers` or {next(iter(inner))}"
            )
        if inner:
            own["layers"] = self._changed_layers(argument, inner)
        try:
            return super().with_changes(argument, own)
        except InputError as error:  # name the changed field, not the first layer with an error
            leaf = error.argument.rpartition(".")[2].replace("count", "num_layers")
            name = f"{argument}.{leaf}" if leaf in inner else error.argument
            raise InputError(name, error.value, error.expected) from None

    def _changed_layers(self, argument: str, changes: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the layers, with fields replaced in each mixer and block that has them."""
        groups = [as_table(group) for group in self.layers]
        parts = [group[name] or {} for group in groups for name in ("mixer", "feed_forward")]
        known = set(field_names(type(self))).union(*parts) - {"kind"}
        for key, value in changes.items():
            if key == "num_layers":
                if len(groups) > 1:
                    expected = f"no change, as the layers of {self.name} differ"
                    raise InputError(f"{argument}.num_layers", value, expected)
                groups[0]["count"] = value
            elif key not in known:
                raise InputError(f"{argument}.{key}", value, f"a field like {nearest(key, known)}")
            for part in parts:
                part.update({key: value} if key in part else {})
        return groups

    @property
    def embedding_parameters(self) -> int:
        """Number of weights of the input embeddings, their positions and their projection [-]."""
        table = (self.input_vocabulary_size or self.vocabulary_size) * self._embedding_width
        table += self._tables(is_embedding=True)
        return table + self.max_positions * self.hidden_size + self._embedding_projection

    @property
    def head_parameters(self) -> int:
        """Number of weights that the LM head multiplies by, tied or not [-]."""
        return self.vocabulary_size * self._embedding_width + self._embedding_projection

    @property
    def embedding_bytes(self) -> float:
        """Bytes of the input embedding, its positions and its projection [B]."""
        return self.embedding_parameters * BYTES_PER_ELEMENT[self.outer_dtype]

    @property
    def outer_bytes(self) -> float:
        """Bytes of input embedding and LM head; tied weights count once [B]."""
        head = BYTES_PER_ELEMENT[self.head_dtype or self.outer_dtype]
        return self.embedding_bytes + (self.head_parameters - self._tied_parameters) * head

    @property
    def outer_parameters(self) -> int:
        """Number of weights of input embedding and LM head; tied weights count once [-]."""
        return self.embedding_parameters + self.head_parameters - self._tied_parameters

    @property
    def total_parameters(self) -> int:
        """Number of all weights; tied weights count once [-]."""
        h = self.hidden_size
        blocks = sum(part.parameters(h) * count for part, count in self.feed_forwards.items())
        looked_up = self._tables(is_embedding=False)
        return self.outer_parameters + self._inner_parameters + blocks + looked_up

    @property
    def active_parameters(self) -> int:
        """Weights that multiply one token, including the LM head, not the input embedding [-]."""
        h = self.hidden_size
        blocks = sum(part.active_parameters(h) * n for part, n in self.feed_forwards.items())
        return self.head_parameters + self._inner_parameters + blocks

    def weight_bytes(self, layout: Layout) -> float:
        """Return the bytes of weights on each GPU, with the dtype of each group of layers [B]."""
        h, n, stream = self.hidden_size, layout.tensor_parallel, self.stream
        return (
            sum(part.weight_bytes(layout) * count for part, count in self.parts.items())
            + self.input_projection_size * h * BYTES_PER_ELEMENT[self.input_projection_dtype]
            + self.outer_bytes / n
            + self.num_norms * h * stream.residual_bytes
            + sum(extra.weight_bytes(self.around, layout) for extra in self.extras)
        )

    def sequence_bytes(self, entries: FloatArray, tensor_parallel: int = 1) -> FloatArray:
        """Return the bytes of a sequence's cache and state in all layers, on each GPU [B]."""
        kept = check("entries", entries, minimum=0)
        parts = self.mixers.items()
        each = (n * part.sequence_bytes(kept, self.stream, tensor_parallel) for part, n in parts)
        return sum(each, np.zeros(()))

    def check_layout(self, layout: Layout, prefix: str = "") -> None:
        """Check that the layout can split the model over its GPUs."""
        n = int(check(f"{prefix}tensor_parallel", layout.tensor_parallel, minimum=1, whole=True))
        for mixer in self.mixers:
            if not mixer.cuts(n):
                fitting = ", ".join(str(i) for i in range(1, _MOST_CUTS) if mixer.cuts(i))
                kind = mixer.kind.replace("_", " ")
                expected = f"a degree that divides the {kind} of {self.name} evenly: {fitting}"
                raise InputError(f"{prefix}tensor_parallel", n, expected)
        c, token_cuts = layout.decode_context_parallel, self.token_cuts(n)
        if c not in token_cuts:
            fitting = " or ".join(map(str, token_cuts))
            expected = f"{fitting} for {self.name} with tensor_parallel {n}"
            raise InputError(f"{prefix}decode_context_parallel", c, expected)
        e = int(check(f"{prefix}expert_parallel", layout.expert_parallel, minimum=1, whole=True))
        if e == 1 or not self.experts:
            return
        for own in self.kinds_of_experts:
            if e > own.num_experts or own.num_experts % e:
                expected = f"a divisor of the {own.num_experts} experts of {self.name}"
                raise InputError(f"{prefix}expert_parallel", e, expected)
        layout.check_groups(f"{prefix}expert_parallel")

    def token_cuts(self, tensor_parallel: int) -> list[int]:
        """Return the valid degrees of decode context parallelism for a tensor parallelism [-]."""
        n, mixers = tensor_parallel, self.mixers
        divisors = (i for i in range(2, n + 1) if not n % i)
        return [1, *(i for i in divisors if all(mixer.cuts_tokens(i, n) for mixer in mixers))]

    @property
    def _tied_parameters(self) -> int:
        """Weights that embedding and LM head share [-]."""
        return self.vocabulary_size * self._embedding_width * self.has_tied_embeddings

    @property
    def _embedding_width(self) -> int:
        return self.embedding_size or self.hidden_size

    @property
    def _embedding_projection(self) -> int:
        width = self._embedding_width
        return self.hidden_size * width if width != self.hidden_size else 0

    def _tables(self, *, is_embedding: bool) -> int:
        """Return the weights of extras' tables: tables stored like the embedding, or others [-]."""
        found = (extra for extra in self.extras if extra.is_embedding == is_embedding)
        return sum(extra.table_parameters(self.around) for extra in found)

    @property
    def _inner_parameters(self) -> int:
        """Weights that multiply every token, without feed-forward blocks and LM head [-]."""
        h = self.hidden_size
        mixers = sum(int(part.weights(h)) * count for part, count in self.mixers.items())
        extras = sum(extra.parameters(self.around) for extra in self.extras)
        return mixers + extras + (self.input_projection_size + self.num_norms) * h


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
        A name from `list_architectures`, or the path of a TOML file, a model's ``config.json``, its
        folder, or a GGUF file. A path has a slash or a suffix.
    argument
        Name that an error should carry.
    weight_dtype
        Dtype of the weights; the stored one if None.
    ignore_keys
        Keys of a ``config.json`` to ignore.

    Examples
    --------
    >>> load_architecture("mixtral-8x7b").num_experts
    8
    """
    weight_dtype = weight_dtype and check_dtype("weight_dtype", weight_dtype)
    known = records.list_names(FOLDER)
    if isinstance(name, str) and name not in known and not is_local(name):
        typed, (name, dtype) = name, checkpoint(name, known) or (name, "")
        if dtype and weight_dtype is None:
            own = load_architecture(name, argument)
            return own.with_changes(argument, _published(own, dtype, typed))
    if records.is_path(name, argument) and Path(name).suffix != ".toml":
        path = found_path(str(name), known, argument)
        return Architecture.from_hf_config(
            path, argument, weight_dtype=weight_dtype, ignore_keys=ignore_keys
        )
    if ignore_keys:
        expected = f"Keys can be ignored only in a config.json, and {name} is none."
        raise InputError("ignore_keys", ignore_keys, expected)
    own = records.load(Architecture, name, FOLDER, argument)
    return own.with_changes(argument, _stored(own, weight_dtype) if weight_dtype else {})


def _stored(own: Architecture, dtype: str) -> dict[str, object]:
    """Return the fields to change if linear layers are stored in another dtype.

    In NVFP4, mixers of MoE models keep 16 bits, as in NVIDIA's checkpoints of MiniMax, Kimi-K2,
    GLM-5, Qwen3.5 and Gemma-4 (``exclude_modules``). With any dtype of four bits, MTP modules keep
    16 bits, as in these checkpoints and in GPTQ's of Qwen3.6.
    """
    if is_of_gguf(dtype, by_size=False):
        return _in_gguf(own, dtype)
    changes: dict[str, object] = {"weight_dtype": dtype}
    if dtype == "fp4" and own.is_moe:
        changes["attention_dtype"] = "bf16"
    if BYTES_PER_ELEMENT.get(dtype, 2.0) < 1 and own.num_mtp_modules:
        changes["mtp_dtype"] = "bf16"
    return changes


def _in_gguf(own: Architecture, dtype: str) -> dict[str, object]:
    """Return the fields to change if all matrices are stored in one dtype, as in a GGUF.

    Only experts have MXFP4, and experts published in MXFP4 keep it. Other weights then have 8 bits.
    """
    kept = own.is_moe and "mxfp4" in (dtype, own.expert_dtype)
    stored = "q8_0" if kept and dtype == "mxfp4" else dtype
    unset = ("attention_dtype", "mtp_dtype", "head_dtype", "expert_activation_dtype")
    changes: dict[str, object] = {**dict.fromkeys(unset), "expert_dtype": "mxfp4" if kept else None}
    changes |= {"weight_dtype": stored, "embedding_dtype": stored}
    return changes | {"activation_dtype": "bf16", "kv_dtype": "bf16"}


def _published(own: Architecture, dtype: str, checkpoint: str) -> dict[str, object]:
    """Return the fields to change if a checkpoint's name contains another dtype than `own` has.

    If experts have their own dtype and other weights have less than 16 bits, the name gives only
    the dtype of experts.
    """
    if gguf_name(checkpoint):
        return _in_gguf(own, dtype)
    if dtype == (own.expert_dtype or own.weight_dtype):
        return {}
    met = "fp8" if kernel_dtype(dtype) == "fp8" else dtype
    if met not in ("fp8", "int8", "fp4") or meets_16_bits(checkpoint):
        met = "bf16"
    changes: dict[str, object] = {"expert_dtype": dtype if own.expert_dtype else None}
    if own.expert_dtype is None or BYTES_PER_ELEMENT[own.weight_dtype] >= 2:
        changes |= _stored(own, dtype) | {"activation_dtype": met}
    if "mlx" in checkpoint.lower():  # including the embedding and the LM head
        changes |= {"embedding_dtype": dtype, "head_dtype": None}
    if dtype in ("fp8", "fp4") and keeps_cache_in_fp8(checkpoint):
        changes["kv_dtype"] = "fp8"
    return changes


def list_architectures() -> list[str]:
    """Return the names of the architectures that ship with the package.

    Examples
    --------
    >>> "qwen2-57b-a14b" in list_architectures()
    True
    """
    return list(records.list_names(FOLDER))
