"""A simulated GPU: `torch.cuda` on the CPU, strict about order, lifetime and memory.

Tensors report the device ``cuda:0`` and contain a tensor of the CPU. Kernels are computed at once,
in the order of their launches. The clock of the device adds a microsecond for each kernel and the
time of its bytes.

Actions that a real GPU leaves undefined, or that make it crash, raise an exception here. Examples
are an event that is read before the host has waited for it, and a host that waits or copies to the
host in a capture. Others are a graph that is replayed after one of its tensors is gone, and a
stream that reads a tensor without waiting for the stream that writes it. A thread must not use the
device while another thread captures, and memory is limited.
"""

import threading
import weakref
from types import SimpleNamespace
from typing import Any

import torch
from cuda_kernels import computed
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map

DEVICE = torch.device("cuda", 0)
BYTES_PER_S = 2e12
KERNEL_SECONDS = 1e-6
LAUNCH_SECONDS = 4e-6
REPLAY_SECONDS = 5e-6
"""Bandwidth, least time of a kernel, and the host's times to launch a kernel and to launch a
graph."""

_WAITING = {"_local_scalar_dense", "item", "equal", "is_nonzero", "nonzero", "masked_select"}


def leaves_of(tree: Any, kind: type) -> list[Any]:
    """Return the values of a type anywhere in lists and dictionaries."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, kind)]


class Memory:
    """Memory of the device that lives as long as its tensors; graphs have weak references to it."""

    def __init__(self, gpu: "Gpu", size: int, pool: object) -> None:
        self.gpu, self.size, self.pool = gpu, 0, pool
        self.writer: Stream | None = None
        self.written_at = 0.0
        gpu.allocate(size, pool)
        self.size = size

    def __del__(self) -> None:
        self.gpu.free(self.size, self.pool)


class CudaTensor(torch.Tensor):
    """A tensor that reports to be on the device."""

    inner: torch.Tensor
    memory: Memory

    @staticmethod
    def __new__(cls, inner: torch.Tensor, memory: Memory) -> "CudaTensor":
        where = {"strides": inner.stride(), "storage_offset": inner.storage_offset()}
        made = torch.Tensor._make_wrapper_subclass(cls, inner.size(), dtype=inner.dtype, **where)
        made.inner, made.memory = inner, memory
        return made

    def __init__(self, *_: object) -> None:
        pass

    @property
    def device(self) -> torch.device:
        """The device that Python sees; C++ sees the CPU, as this torch has no code for CUDA."""
        return DEVICE

    @property
    def is_cuda(self) -> bool:
        return True

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return Gpu.current.launch(func, args, kwargs or {})


class Stream:
    """A queue of kernels, and the time until which it is busy."""

    def __init__(self) -> None:
        self.busy_until = 0.0
        self.waited: dict[Stream, float] = {}

    def wait_stream(self, other: "Stream") -> None:
        self.busy_until = max(self.busy_until, other.busy_until)
        self.waited[other] = other.busy_until

    def synchronize(self) -> None:
        Gpu.current.wait_until(self.busy_until)


class Event:
    """A mark in a stream; its time is unknown until the host has waited for it."""

    def __init__(self, enable_timing: bool = False) -> None:
        self.has_time, self.at, self.gpu = enable_timing, None, Gpu.current

    def record(self, stream: Stream | None = None) -> None:
        self.gpu.touch()
        if self.gpu.capture:
            raise self.gpu.spoil("an event that is recorded in a capture has no time")
        self.at = max((stream or self.gpu.stream).busy_until, self.gpu.host)

    def synchronize(self) -> None:
        assert self.at is not None, "waits for an event that was never recorded"
        self.gpu.wait_until(self.at)

    def elapsed_time(self, end: "Event") -> float:
        for event in (self, end):
            if not event.has_time or event.at is None:
                raise ValueError("Both events must be recorded, with timing enabled")
            if event.at > self.gpu.known:
                raise torch.AcceleratorError("CUDA error: device not ready")
        return 1e3 * (end.at - self.at)


class CUDAGraph:
    """Kernels that are recorded in a capture, and that run in a replay."""

    def __init__(self) -> None:
        self.gpu, self.nodes, self.is_whole, self.key = Gpu.current, [], False, object()

    def capture_begin(self, pool: object = None, **_: object) -> None:
        self.gpu.touch()
        assert self.gpu.stream is not self.gpu.default, "captures on the default stream"
        assert self.gpu.capture is None, "captures within a capture"
        assert not self.is_whole, "captures twice"
        self.key = pool or self.key
        self.gpu.pools.setdefault(self.key, weakref.WeakSet()).add(self)
        self.gpu.capture, self.gpu.capturing = self, threading.get_ident()
        self.stream, self.fault = self.gpu.stream, ""

    def capture_end(self) -> None:
        assert self.gpu.capture is self, "ends a capture that is not underway"
        assert self.gpu.stream is self.stream, "ends a capture on another stream"
        self.gpu.capture = None
        if self.fault:
            raise torch.AcceleratorError(
                "CUDA error: operation failed due to a previous error during capture\n"
                "CUDA kernel errors might be asynchronously reported at some other API call"
            )
        self.is_whole = True

    def replay(self) -> None:
        self.gpu.touch()
        assert self.is_whole, "replays what was not captured"
        assert self.gpu.capture is None, "replays in a capture"
        self.gpu.host += REPLAY_SECONDS
        with _disable_current_modes():
            for node in self.nodes:
                self.gpu.run(node)


class _Node:
    """A kernel of a graph; references to tensors from outside are weak, others are strong."""

    def __init__(self, func: Any, args: Any, kwargs: Any, outputs: list[CudaTensor]) -> None:
        own = [out.memory for out in outputs]

        def held(value: Any) -> Any:
            if not isinstance(value, CudaTensor):
                return value
            memory, is_own = value.memory, value.memory.pool is not None
            return _Held(value.inner, memory if is_own else weakref.ref(memory))

        self.func, self.own = func, own
        self.args, self.kwargs = tree_map(held, (args, kwargs))
        self.outputs = [out.inner for out in outputs]


class _Held:
    def __init__(self, inner: torch.Tensor, memory: Any) -> None:
        self.inner, self.memory = inner, memory

    def get(self) -> torch.Tensor:
        memory = self.memory() if isinstance(self.memory, weakref.ref) else self.memory
        assert memory is not None, "a graph is replayed after a tensor that it reads is gone"
        return self.inner


class Gpu:
    """The device: its clock, streams, memory [B] and faults."""

    current: "Gpu"

    def __init__(self) -> None:
        self.count, self.total, self.index = 1, 2**31, 0
        self.properties = SimpleNamespace(
            name="NVIDIA H200", major=9, minor=0, multi_processor_count=132,
            total_memory=self.total, L2_cache_size=2**20,
            uuid="01234567-89ab-cdef-0123-456789abcdef",
        )  # fmt: skip
        self.host = self.known = 0.0
        self.default = self.stream = Stream()
        self.reserved = 0.0
        self.cached: dict[object, float] = {}
        self.pools: dict[object, weakref.WeakSet[CUDAGraph]] = {}
        self.capture: CUDAGraph | None = None
        self.capturing = 0
        self.lost = ""

    # order

    def touch(self) -> None:
        """Raise if the device is lost, or if another thread captures."""
        if self.lost:
            raise torch.AcceleratorError(f"CUDA error: {self.lost}")
        if self.capture and threading.get_ident() != self.capturing:
            raise self.spoil("operation not permitted when another thread is capturing")

    def spoil(self, reason: str) -> RuntimeError:
        """End the capture; return the exception to raise."""
        assert self.capture
        self.capture.fault = reason
        return torch.AcceleratorError(f"CUDA error: {reason}")

    def lose(self, reason: str = "an illegal memory access was encountered") -> None:
        """Fail like a GPU whose context is lost."""
        self.lost = reason
        raise torch.AcceleratorError(f"CUDA error: {reason}\nCompile with `TORCH_USE_CUDA_DSA`")

    def wait_until(self, moment: float) -> None:
        self.touch()
        if self.capture:
            raise self.spoil("operation not permitted when stream is capturing")
        self.host = max(self.host, moment)
        self.known = max(self.known, moment)

    def synchronize(self, device: object = None) -> None:
        self.wait_until(max(self.default.busy_until, self.stream.busy_until, self.host))

    def current_device(self) -> int:
        self.touch()
        return self.index

    def set_device(self, device: torch.device) -> None:
        self.index = device.index

    def get_properties(self, device: object = None) -> SimpleNamespace:
        self.touch()
        return self.properties

    # memory

    def mem_get_info(self, device: object = None) -> tuple[int, int]:
        self.touch()
        return int(self.total - self.reserved), int(self.total)

    def allocate(self, size: float, pool: object) -> None:
        if self.capture is None and threading.current_thread() is not threading.main_thread():
            raise AssertionError("allocates in another thread")
        reused = min(self.cached.get(pool, 0.0), size)
        if self.reserved + size - reused > self.total and self.capture is None:
            self.empty_cache()
            reused = min(self.cached.get(pool, 0.0), size)
        if self.reserved + size - reused > self.total:
            if self.capture:
                self.spoil("out of memory")
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size:.0f} bytes.")
        self.cached[pool] = self.cached.get(pool, 0.0) - reused
        self.reserved += size - reused

    def free(self, size: float, pool: object) -> None:
        self.cached[pool] = self.cached.get(pool, 0.0) + size

    def empty_cache(self) -> None:
        self.touch()
        for pool in list(self.cached):
            if pool is None or not self.pools.get(pool):
                self.reserved -= self.cached.pop(pool)

    # kernels

    def upload(self, tensor: torch.Tensor) -> CudaTensor:
        """Copy a tensor from the host, which waits until pageable memory is read."""
        self.stream.synchronize()
        return self._wrapped(tensor.clone(), {})

    def launch(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run a kernel, or record it."""
        self.touch()
        name = func.name().removeprefix("aten::").split(".")[0]
        on_device = leaves_of((args, kwargs), CudaTensor)
        to = kwargs.get("device")
        if name in _WAITING or (to is not None and torch.device(to).type == "cpu"):
            self.stream.synchronize()
            inner = tree_map(lambda a: a.inner if isinstance(a, CudaTensor) else a, (args, kwargs))
            return func(*inner[0], **inner[1])
        if to is not None:
            kwargs = kwargs | {"device": torch.device("cpu")}
        self._check_devices(name, args, on_device)
        return self._recorded(func, args, kwargs, on_device)

    def _check_devices(self, name: str, args: Any, on_device: list[CudaTensor]) -> None:
        others = [a for a in leaves_of(args, torch.Tensor) if not isinstance(a, CudaTensor)]
        is_copy = name in ("copy_", "_to_copy", "to")
        if others and on_device and not is_copy and any(other.dim() for other in others):
            raise RuntimeError("Expected all tensors to be on the same device")
        if others and is_copy and self.capture:
            raise self.spoil("copies pageable memory in a capture")

    def _recorded(self, func: Any, args: Any, kwargs: Any, on_device: list[CudaTensor]) -> Any:
        mutated = [
            value
            for value, argument in zip(args, func._schema.arguments, strict=False)
            if isinstance(value, CudaTensor) and argument.alias_info
            if argument.alias_info.is_write
        ]
        storages = {a.inner.untyped_storage().data_ptr(): a.memory for a in on_device}

        def plain(value: Any) -> Any:
            if not isinstance(value, CudaTensor):
                return value
            is_spared = self.capture and any(value is m for m in mutated)
            return value.inner.clone() if is_spared else value.inner

        inner = tree_map(plain, (args, kwargs))
        result = computed(func, self, *inner)
        if mutated:
            outputs: list[CudaTensor] = []
            made: Any = mutated[0] if func._schema.returns else None
        else:
            made = tree_map(lambda out: self._wrapped(out, storages), result)
            known = storages.values()
            outputs = [out for out in leaves_of(made, CudaTensor) if out.memory not in known]
        if outputs or mutated:
            self._queue(func, args, kwargs, on_device, outputs, mutated)
        return made

    def _wrapped(self, out: Any, storages: dict[int, Memory]) -> Any:
        if not isinstance(out, torch.Tensor):
            return out
        storage = out.untyped_storage()
        memory = storages.get(storage.data_ptr()) if storage.nbytes() else None
        if memory is None:
            memory = Memory(self, storage.nbytes(), self.capture.key if self.capture else None)
            storages = storages | {storage.data_ptr(): memory}
        return CudaTensor(out, memory)

    def _queue(self, func, args, kwargs, read, outputs, mutated) -> None:
        for tensor in read:
            writer, at = tensor.memory.writer, tensor.memory.written_at
            known = max(self.known, self.stream.waited.get(writer, 0.0)) if writer else 0.0
            is_own = writer in (None, self.stream) or self.capture
            assert is_own or known >= at, "reads what another stream writes"
        written = [t.memory for t in (*outputs, *mutated)]
        for memory in written:
            memory.writer = self.stream
        if self.capture:
            for out in outputs:  # nothing has run: what is there is anything
                if out.dtype.is_floating_point:
                    out.inner.fill_(float("nan"))
            self.capture.nodes.append(_Node(func, args, kwargs, outputs))
            return
        self.host += LAUNCH_SECONDS
        self.occupy([t.inner for t in (*read, *outputs)])
        for memory in written:
            memory.written_at = self.stream.busy_until

    def occupy(self, tensors: list[torch.Tensor]) -> None:
        seconds = KERNEL_SECONDS + sum(t.numel() * t.element_size() for t in tensors) / BYTES_PER_S
        self.stream.busy_until = max(self.stream.busy_until, self.host) + seconds

    def run(self, node: _Node) -> None:
        """Run a kernel of a graph."""
        args, kwargs = tree_map(
            lambda value: value.get() if isinstance(value, _Held) else value,
            (node.args, node.kwargs),
        )
        result = computed(node.func, self, args, kwargs)
        if node.outputs:
            for out, made in zip(node.outputs, leaves_of(result, torch.Tensor), strict=True):
                out.copy_(made)
        self.occupy([*leaves_of((args, kwargs), torch.Tensor), *node.outputs])
