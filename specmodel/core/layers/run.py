"""Describe a forward pass for its layers: sizes, dtypes, GPUs, and measures of sequences."""

from functools import partial, reduce
from typing import Any, Literal, TypeAlias

import numpy as np
from msgspec import Struct

from specmodel.core.base.units import FloatArray
from specmodel.core.layers.batch import Batch, Carried, Layout, SequenceGroup
from specmodel.core.layers.engines import NO_ENGINE, EngineCode
from specmodel.core.layers.forms import Form, Quantity, Rule, measured
from specmodel.core.layers.states import NATIVE, StateKeeping
from specmodel.core.layers.stream import Stream
from specmodel.core.layers.work import Walk

Among: TypeAlias = Literal["everything", "replica", "decoding", "prompts"]
"""Sequences that a measure counts: all, those of one replica, or the share of a replica that decode
or prompt kernels process. These are names of attributes of `batch.Carried`."""


class Attended(Struct, frozen=True, kw_only=True):
    """Pairs and entries to which queries attend in a layer, over all sequences [-].

    `share` is the share of a kernel, as in `batch.Batch`; `whole_tokens` includes the tokens of the
    other kind of kernel. `walked` is the number of keys that a processor reads one after another,
    according to `walk`; None if kernels spread keys over processors.
    """

    num_sequences: Quantity
    num_tokens: Quantity
    pairs: Quantity
    entries: Quantity
    share: Quantity = 1
    whole_tokens: Quantity = 0.0
    walk: Walk | None = None
    walked: Quantity = 0.0


class Sequences(Struct, frozen=True):
    """Some of the sequences of a pass, as measures; `share` is that of `batch.Batch`."""

    among: Among
    share: Quantity = 1.0

    def counted(self, name: str) -> Form:
        """Return the property `name` of `batch.Batch` for these sequences, as a form."""
        return measured(_counted, self.among, name, has_context="context" in name)

    @property
    def num_sequences(self) -> Form:
        """Sequences [request]."""
        return self.counted("num_sequences")

    @property
    def num_tokens(self) -> Form:
        """Tokens of all sequences [token]."""
        return self.counted("num_tokens")

    @property
    def num_logits(self) -> Form:
        """Tokens whose logits are computed [token]."""
        return self.counted("num_logits")

    def pairs(self, window: int | None) -> Form:
        """Return the query-key pairs; a causal query attends to at most a window [-]."""
        return self.summed(query_key_pairs, window)

    def entries(self, window: int | None) -> Form:
        """Return the distinct keys that the queries of a sequence read, over all sequences [-]."""
        return self.summed(distinct_entries, window)

    def attended(
        self, window: int | None, walk: Walk | None = None, query_heads: float = 0.0
    ) -> Attended:
        """Return what queries attend to, at most a window per query; `walk` needs `query_heads`."""
        walked: Quantity = 0.0
        if walk:
            walked = measured(_walked, self.among, window, walk, query_heads, has_context=True)
        return Attended(
            num_sequences=self.num_sequences,
            num_tokens=self.num_tokens,
            pairs=self.pairs(window),
            entries=self.entries(window),
            share=self.share,
            whole_tokens=self.counted("tokens_of_whole"),
            walk=walk,
            walked=walked,
        )

    def summed(self, of: Rule, *arguments: Any) -> Form:
        """Return the sum over sequences of a function of their group that depends on contexts."""
        return measured(_summed, self.among, of, *arguments, has_context=True)


class Pass(Struct, frozen=True):
    """One forward pass as its layers see it.

    `taken_by` names the kinds of kernels that process any of its sequences
    (`batch.Carried.taken_by`). The GPU's `compute_capability` (None if it has none) and the
    engine's `code` decide which reads kernels share and which components run in parallel [-].
    `walk` is `Deployment.walk`.
    """

    stream: Stream
    layout: Layout
    states: StateKeeping = NATIVE
    compute_capability: float | None = None
    taken_by: tuple[str, ...] = ("decoding",)
    walk: Walk | None = None
    code: EngineCode = NO_ENGINE

    everything = Sequences("everything")
    """All sequences of the pass."""

    replica = Sequences("replica")
    """The sequences whose attention one GPU computes."""

    @property
    def num_tokens(self) -> Form:
        """Tokens of the sequences whose attention one GPU computes [token]."""
        return self.replica.num_tokens

    def taken(self, among: Literal["decoding", "prompts"]) -> Sequences | None:
        """Return the sequences that decode or prompt kernels process, None if there are none."""
        if among not in self.taken_by:
            return None
        is_all = len(self.taken_by) == 1
        return Sequences(among, 1.0 if is_all else measured(_counted, among, "share"))


def _counted(carried: Carried, among: Among, name: str) -> FloatArray:
    value: FloatArray = getattr(getattr(carried, among), name)
    return value


def _summed(carried: Carried, among: Among, of: Rule, *arguments: Any) -> FloatArray:
    batch: Batch = getattr(carried, among)
    return batch.total(of, *arguments)


def _walked(
    carried: Carried, among: Among, window: int | None, walk: Walk, query_heads: float
) -> FloatArray:
    def of(group: SequenceGroup) -> FloatArray:
        is_whole = group.tokens_per_sequence > walk.split_tokens
        share = np.where(is_whole, 1.0, 1 / walk.segments)
        return distinct_entries(group, window) * share if share.any() else share

    batch: Batch = getattr(carried, among)
    each = [(group.batch_size, of(group)) for group in batch.groups]
    longest = reduce(np.maximum, (entries for _, entries in each))
    total = reduce(np.add, (size * entries for size, entries in each))
    return np.maximum(longest, total * (query_heads / walk.processors))


def causal_pairs(query_tokens: FloatArray, context: FloatArray) -> FloatArray:
    """Return query-key pairs of a sequence; queries attend to context and earlier queries [-]."""
    return query_tokens * (context + (query_tokens + 1) / 2)


def query_key_pairs(group: SequenceGroup, window: int | None) -> FloatArray:
    """Return query-key pairs of a mean sequence; causal queries attend to at most a window [-]."""
    context = group.context_length
    if not group.is_causal:  # all queries of a block attend to the same keys
        reach = np.inf if window is None else float(window)
        return group.mean(lambda q: q * np.minimum(context + q, reach))
    if window is None:
        return group.mean(partial(causal_pairs, context=context))

    def of(q: FloatArray) -> FloatArray:
        growing = np.clip(window - context, 0, q)  # queries that attend to all earlier tokens
        return causal_pairs(growing, context) + (q - growing) * window

    return group.mean(of)


def distinct_entries(group: SequenceGroup, window: int | None) -> FloatArray:
    """Return the distinct keys that the queries of a mean sequence read [-]."""
    context = group.context_length
    if window is None:
        return group.mean(lambda q: context + q)
    return group.mean(lambda q: np.minimum(context + q, window + q - 1))
