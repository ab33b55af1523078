"""Describe the sequences of a forward pass, the layout over GPUs, and how tokens are routed."""

from collections.abc import Callable, Sequence
from functools import cached_property, reduce
from operator import attrgetter
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from specmodel.core.algebra.ranks import busiest_share
from specmodel.core.base.errors import InputError
from specmodel.core.base.units import FloatArray, Numeric, check
from specmodel.core.layers.forms import Measure

ONE, ZERO = np.ones(()), np.zeros(())
NO_SEQUENCE = 1e-300
"""Batch size that stands for no sequences, so that means over no sequences exist [request]."""

LONGEST_DECODE = 128
"""Maximum tokens of a sequence that decode kernels process in a pass. More tokens are a prompt,
which prompt kernels process. vLLM 0.33 decides by the length of the query: up to 128 with FlashMLA
(``v1/attention/backends/mla/flashmla.py``, ``reorder_batch_threshold``), up to 512 with
FlashAttention's MLA kernels. SGLang 0.5.23 and TensorRT-LLM decide by the phase of the request
[token]."""

SHORTEST_PROMPT = 256
"""Minimum tokens of a sequence that only prompt kernels process. Between both limits, each kind of
kernel processes a share, so that times have no jump [token]."""


class Layout(Struct, frozen=True):
    """Layout of one model over GPUs.

    Parameters
    ----------
    tensor_parallel, expert_parallel
        GPUs that split every matrix except those of routed experts. Number of groups of GPUs over
        which the routed experts are distributed; the GPUs of a group split each of its experts [-].
    gpus_per_node
        GPUs that the fast link connects; messages to other GPUs use the network [-].
    data_parallel
        Replicas of all matrices except routed experts; replicas share the batch. None for the
        minimum that `expert_parallel` needs: ``expert_parallel / tensor_parallel``, or 1 [-].
    mxfp4_multiples
        Multiples to which the engine pads the model's width and the width of a slice, in mxfp4
        experts [-].
    decode_context_parallel
        Number of tensor-parallel GPUs that share the cached tokens of each sequence [-].
    host_share
        Share of the layers whose routed experts are kept on the host [-].
    layer_split
        GPUs that each keep some of the layers; one at a time works [-].
    """

    tensor_parallel: int = 1
    expert_parallel: int = 1
    gpus_per_node: int = 8
    data_parallel: int | None = None
    mxfp4_multiples: tuple[int, int] = (1, 1)
    decode_context_parallel: int = 1
    host_share: float = 0.0
    layer_split: int = 1

    @property
    def replicas(self) -> int:
        """Copies of the attention; each processes a share of the batch [-]."""
        if self.data_parallel is not None:
            return self.data_parallel
        return max(self.expert_parallel // self.tensor_parallel, 1)

    @property
    def num_gpus(self) -> int:
        """Number of all GPUs [-]."""
        return self.tensor_parallel * self.replicas * self.layer_split

    @property
    def expert_tensor_parallel(self) -> int:
        """GPUs of a group, which split each of the group's routed experts [-]."""
        return self.tensor_parallel * self.replicas // self.expert_parallel

    @property
    def gathers_tokens(self) -> bool:
        """Whether each GPU needs the tokens of all replicas, as it has a part of each expert."""
        return self.replicas > 1 and self.expert_tensor_parallel > 1

    def requests_of_replica(self, batch_size: FloatArray) -> FloatArray:
        """Return the requests of the fullest replica: at least one if there is any [request]."""
        return np.maximum(batch_size / self.replicas, np.minimum(batch_size, 1.0))

    def check_groups(self, argument: str) -> None:
        """Check that the number of expert groups divides the number of GPUs."""
        if self.num_gpus % self.expert_parallel == 0:
            return
        expected = f"a divisor or multiple of tensor_parallel = {self.tensor_parallel}"
        if self.data_parallel is not None:
            degrees = f"tensor_parallel {self.tensor_parallel} times data_parallel {self.replicas}"
            expected = f"a divisor of the {self.num_gpus} GPUs, {degrees}"
        raise InputError(argument, self.expert_parallel, expected)


SINGLE_GPU = Layout()
"""Layout on one GPU."""


class SequenceGroup(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """Sequences of a pass that do not differ; all numbers broadcast and may be real-valued.

    In decoding, a sequence has one token; in verification, several; in a chunk of a prompt, many,
    of which only the last needs logits. `context_length` counts the KV entries of a sequence before
    the pass [token]. `logits_per_sequence` is the number of tokens whose logits are computed, None
    for all [token]. A share of the sequences, `speculating_share`, has `tokens_per_sequence`
    tokens; other sequences have one token [-]. `speculating_chance` is the probability that any
    sequence speculates; the share is a mean over the passes in which one does [-]. If not
    `is_causal`, a token attends to all tokens of its sequence in the pass.
    """

    batch_size: FloatArray
    tokens_per_sequence: FloatArray = field(default_factory=ONE.copy)
    context_length: FloatArray
    logits_per_sequence: FloatArray | None = None
    speculating_share: FloatArray = field(default_factory=ONE.copy)
    speculating_chance: FloatArray = field(default_factory=ONE.copy)
    is_causal: bool = True

    @cached_property
    def all_speculate(self) -> bool:
        """Whether every sequence has `tokens_per_sequence` tokens."""
        return self.speculating_share.ndim == 0 and self.speculating_share == 1

    @cached_property
    def prompt_share(self) -> FloatArray:
        """Share of prompt kernels: 0 to `LONGEST_DECODE` tokens, 1 from `SHORTEST_PROMPT` [-]."""
        longer = np.log(np.maximum(self.tokens_per_sequence, 1.0) / LONGEST_DECODE)
        return np.asarray(np.clip(longer / np.log(SHORTEST_PROMPT / LONGEST_DECODE), 0.0, 1.0))

    @property
    def always_speculates(self) -> bool:
        """Whether some sequence has `tokens_per_sequence` tokens in every pass."""
        return self.speculating_chance.ndim == 0 and self.speculating_chance == 1

    @cached_property
    def mean_tokens(self) -> FloatArray:
        """Mean tokens per sequence [token]."""
        if self.all_speculate:
            return self.tokens_per_sequence
        return 1.0 + self.speculating_share * (self.tokens_per_sequence - 1.0)

    @property
    def num_logits(self) -> FloatArray:
        """Mean tokens per sequence whose logits are computed [token]."""
        return self.mean_tokens if self.logits_per_sequence is None else self.logits_per_sequence

    def mean(self, of: Callable[[FloatArray], FloatArray]) -> FloatArray:
        """Return the mean, over the sequences, of a function of a sequence's tokens."""
        speculating = of(self.tokens_per_sequence)
        if self.all_speculate:
            return speculating
        plain = of(ONE)
        return plain + self.speculating_share * (speculating - plain)

    def mean_of_verified(self, of: Callable[[FloatArray], FloatArray]) -> FloatArray:
        """Return the mean of a function of the tokens that may be a sequence's last accepted."""
        # Any token with logits may be the last accepted one. In a chunk of a prompt without
        # logits, it is the last token.
        if self.logits_per_sequence is None:
            return self.mean(of)
        return of(np.maximum(self.logits_per_sequence, 1.0))


def sequence_group(
    *,
    batch_size: Numeric,
    tokens_per_sequence: Numeric = 1.0,
    context_length: Numeric = 0.0,
    logits_per_sequence: Numeric | None = None,
    speculating_share: Numeric = 1.0,
    speculating_chance: Numeric = 1.0,
) -> SequenceGroup:
    """Check numbers, and return them as a group of sequences.

    Parameters
    ----------
    batch_size, tokens_per_sequence, context_length
        Sequences on all replicas [request]; tokens of each sequence in the pass, and its entries in
        the cache before the pass [token].
    logits_per_sequence
        Tokens of each sequence whose logits are needed, by default all [token].
    speculating_share, speculating_chance
        Share of the sequences that have more than one token, in passes in which any has; and the
        probability that any has [-].
    """
    logits = None
    if logits_per_sequence is not None:
        logits = check("logits_per_sequence", logits_per_sequence, minimum=0)
    return SequenceGroup(
        batch_size=check("batch_size", batch_size, above=0),
        tokens_per_sequence=check("tokens_per_sequence", tokens_per_sequence, minimum=1),
        context_length=check("context_length", context_length, minimum=0),
        logits_per_sequence=logits,
        speculating_share=check("speculating_share", speculating_share, minimum=0, maximum=1),
        speculating_chance=check("speculating_chance", speculating_chance, minimum=0, maximum=1),
    )


class Batch(Struct, frozen=True, eq=False, dict=True):
    """Groups of sequences that a pass, or one kind of its kernels, processes.

    `share` is the share of a kernel that processes them: below 1 if decode and prompt kernels each
    process a part, 0 if there are no sequences of this kind.
    """

    groups: tuple[SequenceGroup, ...]
    share: FloatArray = field(default_factory=ONE.copy)

    @cached_property
    def num_sequences(self) -> FloatArray:
        """Sequences of all groups [request]."""
        return self.total(lambda group: ONE) if len(self.groups) > 1 else self.groups[0].batch_size

    @cached_property
    def num_tokens(self) -> FloatArray:
        """Tokens of all sequences [token]."""
        return self.total(attrgetter("mean_tokens"))

    @property
    def context(self) -> FloatArray:
        """Entries of all sequences before the pass [token]."""
        return self.total(attrgetter("context_length"))

    @property
    def has_context(self) -> FloatArray:
        """1 if any sequence has KV entries before the pass, or 0 [-]."""
        return np.minimum(self.context, 1.0)

    @property
    def tokens_of_whole(self) -> FloatArray:
        """Tokens of all sequences, including the share that the other kind processes [token]."""
        return self.num_tokens / np.maximum(self.share, NO_SEQUENCE)

    @cached_property
    def num_logits(self) -> FloatArray:
        """Tokens whose logits are computed [token]."""
        return self.total(attrgetter("num_logits"))

    def total(self, of: Callable[..., FloatArray], *further: Any) -> FloatArray:
        """Return the sum, over all sequences, of a function of their group and of `further`."""
        first, *others = self.groups
        total = first.batch_size * of(first, *further)
        for group in others:
            total = total + group.batch_size * of(group, *further)
        return np.asarray(total)

    def mean(self, of: Callable[[SequenceGroup], FloatArray]) -> FloatArray:
        """Return the mean, over all sequences, of a function of their group."""
        if len(self.groups) == 1:
            return of(self.groups[0])
        return self.total(of) / self.num_sequences

    def of_kind(self, *, prompts: bool) -> "Batch":
        """Return the share of the sequences that prompt kernels, or decode kernels, process."""
        # Where a kind of kernel processes none of a group, the group has `NO_SEQUENCE`.
        kept, shares = [], list[FloatArray]()
        for group in self.groups:
            share = group.prompt_share if prompts else 1 - group.prompt_share
            if share.any():
                size = np.maximum(group.batch_size * share, NO_SEQUENCE)
                kept.append(group if (share == 1).all() else replace(group, batch_size=size))
                shares.append(share)
        return Batch(tuple(kept), reduce(np.maximum, shares))

    def of_replica(self, replicas: int) -> "Batch":
        """Return the batch of the replica with most speculating sequences; others wait for it."""
        if replicas == 1:
            return self
        fewest = np.minimum(self.num_sequences, 1.0) / self.num_sequences
        share = np.maximum(1 / replicas, fewest)
        return Batch(tuple(_of_busiest(group, share, replicas) for group in self.groups))


def _of_busiest(group: SequenceGroup, share: FloatArray, replicas: int) -> SequenceGroup:
    """Return `share` of a group, with the speculating share of the busiest replica."""
    size = group.batch_size * share
    if group.all_speculate:
        return replace(group, batch_size=size)
    speculating = group.speculating_share, group.speculating_chance
    most = busiest_share(np.maximum(size, 1.0), *speculating, replicas)
    return replace(group, batch_size=size, speculating_share=most)


class Routing(Struct, frozen=True, eq=False):
    """How the tokens of a pass choose experts.

    `correlation` is the correlation between two tokens of a sequence in the use of one expert, from
    0 to 1 [-]. `popularity` is the probability that a token uses each expert, shape (num_experts,),
    or (layers, num_experts) if layers differ [-]. Without `popularity`, `spread` is the inequality
    of these probabilities, None for the model's `popularity_spread` [-].
    """

    correlation: FloatArray
    popularity: FloatArray | None = None
    spread: FloatArray | float | None = None

    @property
    def layers(self) -> "list[Routing]":
        """Return the routing of each layer; an empty list if `popularity` is the same for all."""
        if self.popularity is None or np.ndim(self.popularity) < 2:
            return []
        return [replace(self, popularity=layer) for layer in np.asarray(self.popularity)]


class Carried(dict[Measure, FloatArray]):
    """The sequences of a pass, their replicas and routing, and the values of measures.

    A value is computed at its first look-up.
    """

    def __init__(
        self, everything: Batch, replicas: int = 1, routing: Routing | None = None
    ) -> None:
        super().__init__()
        self.everything, self.replicas = everything, replicas
        self.routing = routing or Routing(ZERO)

    def __missing__(self, measure: Measure) -> FloatArray:
        value = self[measure] = measure.rule(self, *measure.arguments)
        return value

    @cached_property
    def replica(self) -> Batch:
        """The sequences whose attention one GPU computes."""
        return self.everything.of_replica(self.replicas)

    @cached_property
    def decoding(self) -> Batch:
        """Sequences of `replica` that decode kernels process; `taken_by` must have "decoding"."""
        return self.replica.of_kind(prompts=False) if "prompts" in self.taken_by else self.replica

    @cached_property
    def prompts(self) -> Batch:
        """Sequences of `replica` that prompt kernels process; `taken_by` must have "prompts"."""
        return self.replica.of_kind(prompts=True) if "decoding" in self.taken_by else self.replica

    @cached_property
    def taken_by(self) -> tuple[str, ...]:
        """Kinds of kernels that process any of the sequences: "decoding", "prompts" or both."""
        kinds = set[str]()
        for group in self.everything.groups:
            if group.tokens_per_sequence.min() < SHORTEST_PROMPT:
                kinds.add("decoding")
            if group.tokens_per_sequence.max() > LONGEST_DECODE:
                kinds.add("prompts")
        return tuple(sorted(kinds))


def carried_by(
    sequences: SequenceGroup | Sequence[SequenceGroup],
    layout: Layout,
    routing: Routing | None = None,
) -> Carried:
    """Return the pass, as measures read it, that has a group or groups of sequences."""
    groups = (sequences,) if isinstance(sequences, SequenceGroup) else tuple(sequences)
    if not groups:
        raise InputError("sequences", groups, "at least one group of sequences")
    return Carried(Batch(groups), layout.replicas, routing)
