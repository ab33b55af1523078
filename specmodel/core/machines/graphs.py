"""Find the largest pass that an engine runs from a captured CUDA graph."""

from collections.abc import Mapping
from typing import Literal

import numpy as np
from msgspec import Struct

from specmodel.core.base.notes import Note
from specmodel.core.base.units import FloatArray
from specmodel.core.machines.engine import EngineProfile
from specmodel.core.machines.hardware import HardwareProfile

Unit = Literal["token", "request"]

_OPTIONS: dict[str, tuple[Unit, str]] = {
    "vllm": ("token", "--max-cudagraph-capture-size"),
    "vllm-512": ("token", "--max-cudagraph-capture-size"),
    "sglang": ("request", "--cuda-graph-max-bs-decode"),
}
"""The unit in which engines count, and their options for larger graphs."""

_DATA_CENTER_BLACKWELL = 10  # its major compute capability

_REQUESTS_BY_MEMORY = (
    (20 * 2**30, 8, 8),
    (35 * 2**30, 48, 160),
    (60 * 2**30, 32, 160),
    (160 * 2**30, 256, 512),
)
"""SGLang's requests below so much memory [B], on fewer than four GPUs and on four or more."""
_MOST_REQUESTS = 512


class GraphLimit(Struct, frozen=True, kw_only=True):
    """Tokens or requests of the largest pass with a graph, on one replica.

    `option` is the engine's option for `count`. `default_of` names the engine if `count` is its
    default, and is empty if `count` was given. `earlier` is the default of earlier versions, if it
    differs. `sizes` are sizes that were given one by one. It is empty for the engine's own sizes,
    which are dense.
    """

    count: int
    unit: Unit
    option: str
    default_of: str
    earlier: int | None = None
    sizes: tuple[int, ...] = ()

    def is_beyond(self, requests: FloatArray, tokens: FloatArray, replicas: int) -> np.ndarray:
        """Return which passes exceed the largest graph; counts are over all replicas."""
        if self.sizes:
            return np.isinf(self.padded(requests, tokens, replicas))
        return np.asarray((tokens if self.unit == "token" else requests) / replicas > self.count)

    def padded(self, requests: FloatArray, tokens: FloatArray, replicas: int) -> FloatArray:
        """Return the requests of the graphs that passes run from, inf if no graph is large enough.

        A pass is padded to the next of the given sizes. vLLM rounds sizes up to multiples of the
        tokens of a request, K + 1, and drops sizes that exceed the last
        (``CompilationConfig.adjust_cudagraph_sizes_for_spec_decode``, 0.20 to 0.33). SGLang counts
        requests. Counts are over all replicas.
        """
        with np.errstate(invalid="ignore"):  # no request, or an infinite number
            of_each = np.nan_to_num(tokens / requests, nan=1.0)
        each = of_each if self.unit == "token" else np.ones(())
        of_size = np.vectorize(self._next, otypes=[float])
        return np.asarray(of_size(requests * each / replicas, each) * replicas / each)

    def _next(self, size: float, each: float) -> float:
        """Return the smallest captured size for a pass, with `each` tokens per request."""
        captured = self._captured(each)
        return min((own for own in captured if size <= own <= self.count), default=np.inf)

    def _captured(self, each: float) -> list[float]:
        """Return the given sizes that are captured, with `each` tokens per request."""
        rounded = [-(-own // each) * each for own in self.sizes]
        return [own for own in rounded if own <= self.count] or [each]

    def most_requests(self, verify_tokens: FloatArray, replicas: int) -> FloatArray:
        """Return the most requests of all replicas in a pass that runs from a graph [request].

        `verify_tokens` are the tokens of each request [token].
        """
        each = verify_tokens if self.unit == "token" else np.ones_like(verify_tokens)
        counts = np.full_like(each, self.count)
        if self.sizes:
            counts = np.vectorize(lambda own: max(self._captured(own)), otypes=[float])(each)
        return np.asarray(counts // each * replicas * (counts <= self.count))

    @property
    def typed(self) -> str:
        """Option of the engine with its value."""
        if not self.sizes:
            return f"{self.option} {self.count}"
        listed = " ".join(map(str, self.sizes))
        if self.unit == "request":
            return f"--cuda-graph-bs-decode {listed}"
        return f"--cudagraph-capture-sizes {listed}"

    def warnings(
        self, batch_size: FloatArray, verify_tokens: FloatArray, replicas: int, seconds: float
    ) -> tuple[Note, ...]:
        """Return a note if some steps exceed the largest graph.

        `batch_size` are requests of all replicas [request], `verify_tokens` of each request
        [token], `seconds` the assumed host time to launch a kernel [s].
        """
        requests, of_each = np.broadcast_arrays(batch_size, verify_tokens)
        tokens = requests * of_each
        is_beyond = self.is_beyond(requests, tokens, replicas)
        if not (self.count and is_beyond.any()):  # without graphs, no note is due
            return self._told_of_earlier(requests, of_each, replicas)
        size = tokens if self.unit == "token" else requests
        most = int(np.ceil(size.max() / replicas))
        told = {
            "drafts": self._drafts(requests, of_each, is_beyond, self.count * replicas),
            "needed": most,
            "unit": self.unit,
            "default_of": self.default_of,
        }
        return (self._note("beyond_graphs", requests[is_beyond], seconds, told),)

    def _told_of_earlier(
        self, requests: FloatArray, of_each: FloatArray, replicas: int
    ) -> tuple[Note, ...]:
        """Return a note if some steps exceed the largest graph of earlier versions, else ()."""
        is_new = requests * of_each / replicas > (self.earlier or np.inf)
        if not is_new.any():
            return ()
        sizes = int(requests[is_new].min()), int(requests[is_new].max())
        told = {"engine": self.default_of, "count": self.earlier}
        drafts = self._drafts(requests, of_each, is_new, (self.earlier or 0) * replicas)
        return (Note("earlier_graphs", {"batch_sizes": sizes, "drafts": drafts, **told}),)

    def held(
        self, batch_size: FloatArray, verify_tokens: FloatArray, replicas: int, seconds: float
    ) -> Note | None:
        """Return a note if steps fill the largest graph: one token more per request exceeds it.

        Arguments are as in `warnings`.
        """
        sizes, tokens = np.broadcast_arrays(batch_size, verify_tokens)
        room = self.count * replicas / sizes
        is_held = (tokens <= room) & (tokens + 1 > room)
        if self.unit == "request" or not is_held.any():
            return None
        needed = int(np.ceil(sizes[is_held].max() * tokens.max() / replicas))
        return self._note("graphs_end_drafts", sizes[is_held], seconds, {"needed": needed})

    def _note(
        self, kind: str, requests: FloatArray, seconds: float, told: Mapping[str, object]
    ) -> Note:
        """Return a note on the steps with these numbers of requests."""
        sizes = int(requests.min()), int(requests.max())
        own = {"count": self.count, "option": self.option, "kernel_time": seconds}
        return Note(kind, {"batch_sizes": sizes, **own, **told})

    def _drafts(
        self, requests: FloatArray, tokens: FloatArray, is_beyond: np.ndarray, most: int
    ) -> tuple[float, float] | None:
        """Return the shortest drafts beyond the graph at the smallest and largest batch [token].

        None if, at each batch size, all steps exceed the graph or none does. `most` are the tokens
        of the largest graphs of all replicas [token].
        """
        sizes = requests[is_beyond]
        if not np.isin(requests[~is_beyond], sizes).any():
            return None
        if not self.sizes:  # also drafts that were not asked for
            return most // float(sizes.min()), most // float(sizes.max())
        ends = (is_beyond & (requests == end) for end in (sizes.min(), sizes.max()))
        first, last = (float(tokens[end].min()) - 1 for end in ends)
        return first, last


def graph_limit(
    engine: EngineProfile, hardware: HardwareProfile, tensor_parallel: int
) -> GraphLimit | None:
    """Return the largest pass that an engine runs from a graph; None if unknown.

    Parameters
    ----------
    engine, hardware, tensor_parallel
        An engine, whose own `graph_limit` replaces its default; the GPU; and the number of GPUs
        that share its matrices [-].

    Notes
    -----
    vLLM captures passes of up to 512 tokens, from 0.28 on 1,024 on data-center
    Blackwell (``VllmConfig._set_cudagraph_sizes``), and fewer only if limited to few requests.
    SGLang 0.5.23 captures by requests, and memory and tensor parallelism decide how many
    (``arg_groups/memory_hook.py``).

    Examples
    --------
    >>> from specmodel.core.machines import load_engine, load_hardware
    >>> graph_limit(load_engine("vllm"), load_hardware("b200"), 8).count
    1024
    """
    if engine.graphs is None:
        return None
    unit, option = _OPTIONS[engine.graphs]
    count, default_of, earlier = engine.graph_limit, "", None
    if count is None:
        default_of = engine.name.partition(" (")[0]  # engines of own runs have the same default
        major = int(hardware.compute_capability or 0)
        is_wide = engine.graphs == "vllm" and major == _DATA_CENTER_BLACKWELL
        tokens = 1024 if is_wide else 512
        count = tokens if unit == "token" else _requests(hardware, tensor_parallel)
        earlier = 512 if is_wide else None
    return GraphLimit(
        count=count,
        unit=unit,
        option=option,
        default_of=default_of,
        earlier=earlier,
        sizes=engine.graph_sizes,
    )


def _requests(hardware: HardwareProfile, tensor_parallel: int) -> int:
    """Return the most requests that SGLang captures by default [request]."""
    for below, few, many in _REQUESTS_BY_MEMORY:
        if hardware.memory.capacity_bytes < below:
            return few if tensor_parallel < 4 else many
    return _MOST_REQUESTS
