"""How large a pass may be that an engine runs from a captured CUDA graph."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from specmodel.base.ranges import ranges_text
from specmodel.base.units import FloatArray
from specmodel.machines.engine import EngineProfile
from specmodel.machines.hardware import HardwareProfile

Unit = Literal["token", "request"]

_OPTIONS: dict[str, tuple[Unit, str]] = {
    "vllm": ("token", "--max-cudagraph-capture-size"),
    "sglang": ("request", "--cuda-graph-max-bs-decode"),
}
"""What engines count, and their options that capture larger passes."""

_DATA_CENTER_BLACKWELL = 10  # major number of its compute capability

_REQUESTS_BY_MEMORY = (
    (20 * 2**30, 8, 8),
    (35 * 2**30, 48, 160),
    (60 * 2**30, 32, 160),
    (160 * 2**30, 256, 512),
)
"""SGLang's requests below so much memory [B], on fewer than four GPUs and on four or more."""
_MOST_REQUESTS = 512


@dataclass(frozen=True, kw_only=True)
class GraphLimit:
    """Tokens or requests of the largest pass with a graph, on one replica.

    `option` is that of the engine which sets them, `default_of` the engine whose default they are,
    empty if they were given.
    """

    count: int
    unit: Unit
    option: str
    default_of: str

    def is_beyond(self, requests: FloatArray, tokens: FloatArray, replicas: int) -> np.ndarray:
        """Return which passes of so many requests and tokens of all replicas are larger."""
        return np.asarray((tokens if self.unit == "token" else requests) / replicas > self.count)

    def warnings(
        self, batch_size: FloatArray, verify_tokens: FloatArray, replicas: int, seconds: float
    ) -> tuple[str, ...]:
        """Return a sentence if some steps are larger.

        `batch_size` are requests of all replicas [request], `verify_tokens` of each request
        [token], `seconds` what the host is taken to need for a kernel [s].
        """
        requests, of_each = np.broadcast_arrays(batch_size, verify_tokens)
        tokens = requests * of_each
        is_beyond = self.is_beyond(requests, tokens, replicas)
        if not is_beyond.any():
            return ()
        size = tokens if self.unit == "token" else requests
        most = int(np.ceil(size.max() / replicas))
        drafts = _drafts(requests, of_each, is_beyond)
        return (
            f"at batch size {_span(requests[is_beyond])} steps{drafts} are larger than"
            f" {self._largest}, so that the host launches each kernel, here taken as"
            f" {1e3 * seconds:.2g} ms each: {self.option} {most} avoids that,"
            f" here --graph-limit {most}",
        )

    def held(
        self, batch_size: FloatArray, verify_tokens: FloatArray, replicas: int, seconds: float
    ) -> str:
        """Return a sentence if a graph holds all tokens of some steps, and none more of a request.

        Arguments are as in `warnings`.
        """
        sizes, tokens = np.broadcast_arrays(batch_size, verify_tokens)
        room = self.count * replicas / sizes
        is_held = (tokens <= room) & (tokens + 1 > room)
        if self.unit == "request" or not is_held.any():
            return ""
        return (
            f"At batch size {_span(sizes[is_held])} longer drafts lose: CUDA graphs end at"
            f" {self.count} tokens, and the host then takes {1e3 * seconds:.2g} ms a kernel:"
            f" {self.option} raises that."
        )

    @property
    def _largest(self) -> str:
        default = f", {self.default_of}'s default" if self.default_of else ""
        return f"any CUDA graph ({self.count} {self.unit}s{default})"


def _drafts(requests: FloatArray, tokens: FloatArray, is_beyond: np.ndarray) -> str:
    """Say from which drafts on steps are larger, if shorter ones of these batches are not."""
    sizes = requests[is_beyond]
    if not np.isin(requests[~is_beyond], sizes).any():
        return ""
    first, last = (
        tokens[is_beyond & (requests == end)].min() for end in (sizes.min(), sizes.max())
    )
    told = f" with drafts of {first - 1:.0f} or more tokens"
    return told if first == last else f"{told}, {last - 1:.0f} at {sizes.max():.0f},"


def _span(requests: FloatArray) -> str:
    return ranges_text([(int(requests.min()), int(requests.max()))])


def graph_limit(
    engine: EngineProfile, hardware: HardwareProfile, tensor_parallel: int
) -> GraphLimit | None:
    """Return the largest pass that an engine runs from a graph; None if none is known.

    Parameters
    ----------
    engine, hardware, tensor_parallel
        An engine, whose own `graph_limit` comes before its default, and on which and over how many
        GPUs its matrices are cut [-].

    Notes
    -----
    vLLM 0.33 captures passes of up to 512 tokens, 1,024 on data-center Blackwell
    (``VllmConfig._set_cudagraph_sizes``), and fewer only where it is told to run few requests.
    SGLang 0.5.23 captures by requests, as many as memory and tensor parallelism say
    (``arg_groups/memory_hook.py``).

    Examples
    --------
    >>> from specmodel.machines import load_engine, load_hardware
    >>> graph_limit(load_engine("vllm"), load_hardware("b200"), 8).count
    1024
    """
    if engine.graphs is None:
        return None
    unit, option = _OPTIONS[engine.graphs]
    default = _tokens(hardware) if unit == "token" else _requests(hardware, tensor_parallel)
    default_of = "" if engine.graph_limit else engine.name.partition(" (")[0]  # own runs keep it
    count = engine.graph_limit or default
    return GraphLimit(count=count, unit=unit, option=option, default_of=default_of)


def _tokens(hardware: HardwareProfile) -> int:
    """Return the most tokens that vLLM captures by default [token]."""
    major = int(hardware.compute_capability or 0)
    return 1024 if major == _DATA_CENTER_BLACKWELL else 512


def _requests(hardware: HardwareProfile, tensor_parallel: int) -> int:
    """Return the most requests that SGLang captures by default [request]."""
    for below, few, many in _REQUESTS_BY_MEMORY:
        if hardware.memory.capacity_bytes < below:
            return few if tensor_parallel < 4 else many
    return _MOST_REQUESTS
