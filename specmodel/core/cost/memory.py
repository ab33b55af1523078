"""Compare a deployment's weights, KV cache and drafter with the device memory."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from specmodel.core.base.dtypes import BYTES_PER_ELEMENT
from specmodel.core.base.notes import Note
from specmodel.core.base.units import FloatArray, Numeric, check
from specmodel.core.cost.deployment import Deployment
from specmodel.core.cost.prefill import most_running, step_tokens
from specmodel.core.layers.batch import Layout
from specmodel.core.layers.forms import Form, Measure
from specmodel.core.layers.parts import TokenMixer
from specmodel.core.layers.states import NATIVE, StateKeeping
from specmodel.core.layers.stream import Stream
from specmodel.core.models.architecture import Architecture

LOGGED_TOKENS = 8192
"""Tokens in flight that the startup log of vLLM to 0.25 counts with each request [token]."""


_ALIGNED, _MUCH_MORE, _ENDLESS = 16, 1.5, 1e15


class Pages(Struct, frozen=True):
    """Pages of a cache that attention shares with recurrent states on each GPU, as vLLM cuts it.

    A page contains one state of a recurrent layer, or the least multiple of 16 tokens of an
    attention layer with as many bytes (``Platform._align_hybrid_block_size`` of 0.28 and 0.33).
    Layers of each kind form groups of as many layers as the rarest kind has. If the commonest kind
    has fewer than one and a half times as many, groups have its number
    (``_get_kv_cache_groups_uniform_page_size`` in ``v1/core/kv_cache_utils.py``). A block is a page
    for each layer of a group. Each group of a request has its own blocks: one for each reserved
    state. The state for the prefix cache counts from the first full block of a request
    (``MambaManager`` in ``v1/core/single_type_kv_cache_manager.py``).

    `layers` is the number of layers in a group, `recurrent` the number of recurrent groups [-].
    `token_bytes` is what an attention layer keeps of a token. `state_bytes` is what a recurrent
    layer keeps without drafts, and the addition for each drafted token [B]. For each kind of
    attention, `attention` contains the groups [-], bytes per token, and most bytes of a window [B].
    """

    layers: int
    recurrent: int
    token_bytes: float
    state_bytes: tuple[float, float]
    attention: tuple[tuple[int, float, float], ...]

    def request_bytes(
        self, states: StateKeeping, entries: FloatArray, tokens: FloatArray
    ) -> FloatArray:
        """Return the bytes of a request with `entries` after a step over `tokens` tokens [B]."""
        state, more = self.state_bytes
        unit = _ALIGNED * self.token_bytes
        page = unit * np.maximum(np.ceil((state + more * (tokens - 1)) / unit), 1)
        is_short = (entries * self.token_bytes < page) & (states.slots == "aligned")
        blocks = self.recurrent * (states.states(tokens) - is_short)
        for groups, each, most in self.attention:
            blocks = blocks + groups * np.ceil(np.minimum(entries * each, most) / page)
        return np.asarray(blocks * self.layers * page)


def pages_of(models: Sequence[tuple[Architecture, Layout]]) -> Pages:
    """Return the pages of the models that are loaded, each in its layout."""
    counts, own = dict[TokenMixer, int](), dict[TokenMixer, tuple[Stream, int]]()
    for model, layout in models:
        for mixer, layers in model.mixers.items():
            shared = model.stream, layout.tensor_parallel
            if mixer.sequence_bytes(1, *shared):
                counts[mixer], own[mixer] = counts.get(mixer, 0) + layers, shared
    fewest, most = min(counts.values()), max(counts.values())
    group = most if most < _MUCH_MORE * fewest else fewest
    groups = {mixer: -(-layers // group) for mixer, layers in counts.items()}
    attending = [m for m in counts if not m.is_recurrent]
    each, most_kept = (
        [float(m.sequence_bytes(n, *own[m])) for m in attending] for n in (1.0, _ENDLESS)
    )
    kept = zip((groups[m] for m in attending), each, most_kept, strict=True)
    reserved = [
        [float(m.reserved_bytes(np.float64(n), NATIVE, *own[m])) / n for n in (1, 2)]
        for m in counts
        if m.is_recurrent
    ]
    first, second = max(reserved)
    recurrent = sum(groups[m] for m in counts if m.is_recurrent)
    return Pages(group, recurrent, max(each), (first, second - first), tuple(kept))


class MemoryUse(Struct, frozen=True, eq=False, dict=True):
    """Memory of the fullest GPU, without what the engine keeps for other uses.

    Parameters
    ----------
    deployment
        What runs where. A drafter on fewer GPUs than the target fills these GPUs most.
    context_length, verify_tokens
        KV entries of each sequence before the step, and maximum tokens that a step adds [token].
    has_drafter
        Whether the drafter is loaded.
    """

    deployment: Deployment
    context_length: Numeric
    verify_tokens: Numeric
    has_drafter: bool = True

    @property
    def without_drafter(self) -> "MemoryUse":
        """Memory of plain decoding without a drafter."""
        return replace(self, verify_tokens=np.ones(()), has_drafter=False)

    @cached_property
    def weight_bytes(self) -> float:
        """Weights of the target and of the drafter [B]."""
        return self._kept[0]

    @cached_property
    def bytes_per_request(self) -> FloatArray:
        """KV cache and state of one sequence, the drafter's included [B]."""
        tokens = check("verify_tokens", self.verify_tokens, minimum=1)
        entries = check("context_length", self.context_length, minimum=0) + tokens
        if self.deployment.keeps_pages:
            shared = self.deployment.layout.decode_context_parallel
            return self._pages.request_bytes(self.deployment.states, entries / shared, tokens)
        values = _Values({_ENTRIES: entries, _TOKENS: tokens})
        return np.asarray(self._kept[1].at(values))

    @cached_property
    def _kept(self) -> tuple[float, Form]:
        """Weights, and the memory of a request as a form of its entries and tokens [B]."""
        d, key = self.deployment, ("memory", self.has_drafter)
        if key not in d.programs:
            weights, drafted = float(d.target.weight_bytes(d.layout)), Form({})
            if self.has_drafter:
                weights += _draft_weight_bytes(d)
                for model in d.drafter.architectures:
                    drafted = drafted + _kept_of_request(model, d.states, d.draft_layout)
            d.programs[key] = weights, _kept_of_request(d.target, d.states, d.layout) + drafted
        kept: tuple[float, Form] = d.programs[key]
        return kept

    @property
    def _pages(self) -> Pages:
        d, key = self.deployment, ("pages", self.has_drafter)
        if key not in d.programs:
            drafting = d.drafter.architectures if self.has_drafter else ()
            models = [(d.target, d.layout), *((model, d.draft_layout) for model in drafting)]
            d.programs[key] = pages_of(models)
        pages: Pages = d.programs[key]
        return pages

    @property
    def capacity_bytes(self) -> float:
        """Memory for weights and cache: of a GPU, or of all GPUs that share layers [B]."""
        d = self.deployment
        return d.memory_utilization * d.hardware.memory.capacity_bytes * d.layer_split

    @property
    def free_bytes(self) -> FloatArray:
        """Memory for requests, after weights and tokens in flight [B].

        With pages of states, vLLM's profile also reserves memory to sample the maximum number of
        requests: rows of logits in 16 and in 32 bits, probabilities and random numbers. To judge
        drafts, it needs two rows in 16 bits, one of them a copy, and the logits twice in 32 bits
        (``_dummy_sampler_run``, ``RejectionSampler`` and ``TopKTopPSampler`` of 0.28).
        """
        d, left = self.deployment, self.capacity_bytes - self.weight_bytes
        if not d.keeps_pages:
            return left - self.in_flight_bytes(d.code.batches_in_flight * step_tokens(d.hardware))
        copies = 5.5 if self.has_drafter and d.has_drafter else 3.5  # of 32 bits
        rows = most_running(d.hardware) * d.target.vocabulary_size
        return np.asarray(left - copies * BYTES_PER_ELEMENT["fp32"] * rows)

    @cached_property
    def max_batch_size(self) -> FloatArray:
        """Largest batch that fits, 0 if not one request does [request]."""
        replicas = self.deployment.layout.replicas
        return replicas * np.maximum(np.floor(self.free_bytes / self.bytes_per_request), 0.0)

    def total_bytes(self, batch_size: Numeric) -> FloatArray:
        """Return the memory that a batch needs [B]."""
        batch = check("batch_size", batch_size, minimum=0)
        sequences = np.ceil(batch / self.deployment.layout.replicas)
        return self.capacity_bytes - self.free_bytes + sequences * self.bytes_per_request

    def in_flight_bytes(self, tokens: int) -> FloatArray:
        """Return the bytes of a prompt's `tokens` in windows and compressors during prefill [B]."""
        each = self._kept[1].terms.get(_TOKENS, 0.0)  # as for verified tokens
        return np.asarray(each * np.minimum(tokens, self.context_length))

    def warnings(
        self, batch_size: FloatArray, draft_length: Numeric | None = None
    ) -> tuple[Note, ...]:
        """Return a note with figures if a batch does not fit.

        The note contains the largest batch that fits, and its draft length [token].
        """
        largest, logged = self.max_batch_size, self._of_log()
        if (batch_size <= largest).all():
            return logged
        gpu, fewest = self.deployment.hardware, int(np.min(largest))
        do_wait = bool(fewest and self.deployment.recurrent_model)
        own = int(np.where(batch_size <= largest, batch_size, 0).max())
        has_own = own > fewest and self._is_of_each(batch_size, draft_length)
        values = {
            "batch_size": int(batch_size.max()),
            "needed_bytes": float(self.total_bytes(batch_size).max()),
            "usable_bytes": self.capacity_bytes,
            "capacity_bytes": gpu.memory.capacity_bytes,
            "share": self.deployment.memory_utilization,
            "hardware": gpu.name,
            "largest": fewest,
            "largest_of_own": own if has_own else None,
            "longest": None if draft_length is None else int(np.max(draft_length)),
            "fewest_at": self._fewest_at(draft_length),
            "do_weights_fit": bool(self.weight_bytes <= self.capacity_bytes),
            "plain": int(np.min(self.without_drafter.max_batch_size)) if do_wait else None,
        }
        return (Note("beyond_memory", values), *logged)

    def _of_log(self) -> tuple[Note, ...]:
        """Return a note if the startup log of vLLM states room for fewer long requests, else ().

        The log counts the tokens in flight of a prompt for each request, but their number is
        bounded over all requests (``get_max_concurrency_for_kv_cache_config``). For requests of
        1,048,320 tokens of DeepSeek-V4-Flash, the log of 0.25 states 20.4, and its block manager
        runs 34 at once.
        """
        d, context = self.deployment, float(np.max(self.context_length))
        of_log = self.in_flight_bytes(LOGGED_TOKENS)
        is_long = 2 * context >= (d.target.max_context_length or np.inf)
        if not (d.code.batches_in_flight and is_long and np.any(of_log)):
            return ()
        free = self.capacity_bytes - self.weight_bytes
        rooms = d.layout.replicas * free / (self.bytes_per_request + of_log)
        values = {"room": float(np.min(rooms)), "context": context, "tokens": LOGGED_TOKENS}
        return (Note("logged_concurrency", {**values, "fits": float(self.max_batch_size.min())}),)

    def _is_of_each(self, batch_size: FloatArray, draft_length: Numeric | None) -> bool:
        """Return whether each batch size has its own draft length, at one context."""
        if draft_length is None or np.size(self.context_length) > 1:
            return False
        return np.broadcast(batch_size, draft_length).size == np.size(draft_length)

    def _fewest_at(self, draft_length: Numeric | None) -> dict[str, int]:
        """Return the draft length, and context if they differ, at which the fewest requests fit."""
        varied = {"draft length": draft_length} if draft_length is not None else {}
        if np.size(self.context_length) > 1:
            varied["context"] = self.context_length
        most, *values = np.broadcast_arrays(self.max_batch_size, *varied.values())
        place = int(most.argmin())
        return {name: int(at.flat[place]) for name, at in zip(varied, values, strict=True)}


def _of_request(_: object, name: str) -> FloatArray:
    """Refuse to compute a number of a request that must be given."""
    raise KeyError(name)


_ENTRIES, _TOKENS = Measure(_of_request, ("entries",)), Measure(_of_request, ("tokens",))
"""Entries of a request after a step, and tokens of the step [token]."""


class _Values(dict[Measure, FloatArray]):
    """Values of measures of a request; others are computed from the given ones."""

    def __missing__(self, measure: Measure) -> FloatArray:
        return measure.rule(self, *measure.arguments)


def _kept_of_request(model: Architecture, states: StateKeeping, layout: Layout) -> Form:
    """Return the memory of a request on each GPU: its cache, and what verification reserves [B].

    The `Form` depends on the entries of the request and on the tokens that it verifies.
    """
    n, stream, kept = layout.tensor_parallel, model.stream, Form({})
    entries, tokens = Form({_ENTRIES: 1.0}), Form({_TOKENS: 1.0})
    for mixer, layers in model.mixers.items():
        reserved = mixer.reserved_bytes(tokens, states, stream, n)
        more = reserved - mixer.sequence_bytes(tokens, stream, n)
        holders = 1 if mixer.is_recurrent else layout.decode_context_parallel
        kept = kept + layers * (mixer.sequence_bytes(entries, stream, n) / holders + more)
    return kept


def _draft_weight_bytes(deployment: Deployment) -> float:
    """Return the weights of the drafter without the weights that a head shares [B]."""
    target, drafter, layout = deployment.target, deployment.drafter, deployment.draft_layout
    size = sum(model.weight_bytes(layout) for model in drafter.architectures)
    for head in drafter.architectures if drafter.is_head else ():
        is_same = drafter.shares_lm_head and head.vocabulary_size == target.vocabulary_size
        shared = head.outer_bytes if is_same else head.embedding_bytes
        if head.hidden_size != target.hidden_size:  # it embeds all tokens by itself
            shared = 0.0
        size -= shared / layout.tensor_parallel
    return float(size)
