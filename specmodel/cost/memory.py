"""Device memory of a deployment: weights, KV cache and drafter against capacity."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from specmodel.base.units import FloatArray, Numeric, check, format_si
from specmodel.cost.deployment import Deployment
from specmodel.layers.batch import Layout
from specmodel.layers.forms import Form, Measure
from specmodel.layers.states import StateKeeping
from specmodel.models.architecture import Architecture


@dataclass(frozen=True, eq=False, repr=False)
class MemoryUse:
    """Memory of the fullest GPU; what the engine keeps for other uses comes on top.

    Parameters
    ----------
    deployment
        What runs where; a drafter cut over fewer GPUs than the target fills those GPUs most.
    context_length, verify_tokens
        KV entries of each sequence before the step, and most tokens that a step adds [token].
    """

    deployment: Deployment
    context_length: Numeric
    verify_tokens: Numeric

    @cached_property
    def weight_bytes(self) -> float:
        """Weights of the target and of the drafter [B]."""
        return self._kept[0] + self._kept[1]

    @property
    def draft_weight_bytes(self) -> float:
        """Weights of the drafter; a head shares embedding and output matrix of the target [B]."""
        return self._kept[1]

    @cached_property
    def bytes_per_request(self) -> FloatArray:
        """KV cache and state of one sequence, the drafter's included [B]."""
        tokens = check("verify_tokens", self.verify_tokens, minimum=1)
        entries = check("context_length", self.context_length, minimum=0) + tokens
        values = _Values({_ENTRIES: entries, _TOKENS: tokens})
        kept = np.asarray(self._kept[2].constant)
        for measure, size in self._kept[2].terms.items():
            kept = kept + values[measure] * size
        return kept

    @cached_property
    def _kept(self) -> tuple[float, float, Form]:
        """Weights of target and drafter [B], and what is kept of a request as a form [B]."""
        programs = self.deployment.programs
        if "memory" not in programs:
            programs["memory"] = _kept_by(self.deployment)
        kept: tuple[float, float, Form] = programs["memory"]
        return kept

    @property
    def capacity_bytes(self) -> float:
        """Memory of the GPU that weights and cache may fill [B]."""
        d = self.deployment
        return d.memory_utilization * d.hardware.memory.capacity_bytes

    @cached_property
    def max_batch_size(self) -> FloatArray:
        """Largest batch that fits, 0 if not one request does [request]."""
        free = self.capacity_bytes - self.weight_bytes
        replicas = self.deployment.layout.replicas
        return replicas * np.maximum(np.floor(free / self.bytes_per_request), 0.0)

    def total_bytes(self, batch_size: Numeric) -> FloatArray:
        """Return the memory that a batch needs [B]."""
        batch = check("batch_size", batch_size, minimum=0)
        sequences = np.ceil(batch / self.deployment.layout.replicas)
        return self.weight_bytes + sequences * self.bytes_per_request

    def warnings(
        self, batch_size: FloatArray, draft_length: Numeric | None = None
    ) -> tuple[str, ...]:
        """Return a sentence with figures if some batch does not fit, else nothing.

        The largest batch that fits is told with the draft length that it holds for [token].
        """
        if (batch_size <= self.max_batch_size).all():
            return ()
        needed = format_si(float(self.total_bytes(batch_size).max()), "B")
        fits = int(np.min(self.max_batch_size))
        own = int(np.where(batch_size <= self.max_batch_size, batch_size, 0).max())
        if own > fits and self._is_of_each(batch_size, draft_length):
            longest = int(np.max(np.asarray(draft_length)))
            throughout = f"with drafts of {longest} throughout, {fits} fit"
            largest = f"the largest of these that fits with its own draft is {own}; {throughout}"
        elif fits:
            largest = f"the largest batch that fits is {fits}{self._of_least(draft_length)}"
        elif self.weight_bytes > self.capacity_bytes:
            largest = "not even the weights fit"
        else:
            largest = f"the weights fit, but not one request{self._of_least(draft_length)}"
        gpu, share = self.deployment.hardware, self.deployment.memory_utilization
        usable = format_si(self.capacity_bytes, "B")
        whole = format_si(gpu.memory.capacity_bytes, "B")
        return (
            f"batch size {int(batch_size.max())} needs {needed} of the {usable} ({100 * share:g} %"
            f" of {whole}) that an engine uses of a GPU ({gpu.name}); {largest}",
        )

    def _is_of_each(self, batch_size: FloatArray, draft_length: Numeric | None) -> bool:
        """Tell whether each batch size has a draft length of its own, at one context."""
        if draft_length is None or np.size(self.context_length) > 1:
            return False
        return np.broadcast(batch_size, draft_length).size == np.size(draft_length)

    def _of_least(self, draft_length: Numeric | None) -> str:
        """Say at which draft length, and context if they differ, the fewest requests fit."""
        told = {"draft length": draft_length} if draft_length is not None else {}
        if np.size(self.context_length) > 1:
            told["context"] = self.context_length
        most, *values = np.broadcast_arrays(self.max_batch_size, *told.values())
        place = int(most.argmin())
        found = (f"{name} {int(at.flat[place])}" for name, at in zip(told, values, strict=True))
        return f" at {' and '.join(found)}" if told else ""


def _of_request(_: object, name: str) -> FloatArray:
    """Refuse to compute a number of a request, which is always given."""
    raise KeyError(name)


_ENTRIES, _TOKENS = Measure(_of_request, ("entries",)), Measure(_of_request, ("tokens",))
"""Entries of a request after a step, and tokens of the step [token]."""


class _Values(dict[Measure, FloatArray]):
    """Values of measures of a request, computed from those given."""

    def __missing__(self, measure: Measure) -> FloatArray:
        return measure.rule(self, *measure.told)


def _kept_by(deployment: Deployment) -> tuple[float, float, Form]:
    """Return weights of target and drafter [B], and what is kept of a request as a form [B]."""
    d = deployment
    request = _kept_of_request(d.target, d.states, d.layout)
    for model in d.drafter.architectures:
        request = request + _kept_of_request(model, d.states, d.draft_layout)
    return d.target.weight_bytes(d.layout), _draft_weight_bytes(d), request


def _kept_of_request(model: Architecture, states: StateKeeping, layout: Layout) -> Form:
    """Return the cache of a request, and the states reserved for what it verifies [B]."""
    n, stream, kept = layout.tensor_parallel, model.stream, Form({})
    entries, tokens = Form({_ENTRIES: 1.0}), Form({_TOKENS: 1.0})
    for mixer, layers in model.mixers.items():
        reserved = mixer.reserved_bytes(tokens, states, stream, n)
        more = reserved - mixer.sequence_bytes(tokens, stream, n)
        kept = kept + layers * (mixer.sequence_bytes(entries, stream, n) + more)
    return kept


def _draft_weight_bytes(deployment: Deployment) -> float:
    """Return the weights of the drafter beside what a head shares with the target [B]."""
    target, drafter, layout = deployment.target, deployment.drafter, deployment.draft_layout
    size = sum(model.weight_bytes(layout) for model in drafter.architectures)
    for head in drafter.architectures if drafter.is_head else ():
        is_same = drafter.shares_lm_head and head.vocabulary_size == target.vocabulary_size
        shared = head.outer_bytes if is_same else head.embedding_bytes
        if head.hidden_size != target.hidden_size:  # it embeds all tokens by itself
            shared = 0.0
        size -= shared / layout.tensor_parallel
    return float(size)
