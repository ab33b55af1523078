"""Replace `torch.cuda` by the simulated GPU, with a group of one process and an nvidia-smi."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from cuda_standin import CUDAGraph, CudaTensor, Event, Gpu, Stream
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_SMI = '#!/bin/sh\ncase "$1" in *reasons*) ;; *) exit 2 ;; esac\necho "{}"\n'


class _Factories(TorchDispatchMode):
    """Create tensors on the simulated device if a call asks for it."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        is_there = [isinstance(a, CudaTensor) for a in tree_leaves(args)]
        if any(is_there) or "cuda" in str(kwargs.get("device")):
            return Gpu.current.launch(func, args, kwargs)
        return func(*args, **kwargs)


class Group:
    """A process group of one process with the backend "nccl"."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu, self.is_there, self.bound, self.calls = gpu, False, None, 0

    def init_process_group(self, backend: str, *, device_id: object = None, **options: Any) -> None:
        assert not self.is_there, "begins a group twice"
        assert backend == "nccl"
        assert device_id is not None, "does not say which device is its own"
        assert options["init_method"].startswith("file://")
        assert options["timeout"].total_seconds() > 0
        self.is_there, self.bound = True, device_id

    def all_reduce(self, tensor: torch.Tensor, op: object = None) -> None:
        assert self.is_there, "reduces without a group"
        assert isinstance(tensor, CudaTensor), "NCCL reduces tensors of a GPU only"
        assert tensor.is_contiguous()
        assert self.gpu.current_device() == self.bound.index
        self.gpu.occupy([tensor.inner])
        self.calls += 1

    def barrier(self) -> None:
        assert self.is_there
        self.gpu.synchronize()

    def destroy_process_group(self) -> None:
        assert self.is_there, "ends a group that is not there"
        self.is_there = False


def install(gpu: Gpu, patch: pytest.MonkeyPatch, folder: Path) -> Group:
    """Replace `torch.cuda` by a simulated GPU, and put an nvidia-smi on the path."""
    Gpu.current, group = gpu, Group(gpu)
    _forget()
    names = {
        "_lazy_init": lambda: None, "is_initialized": lambda: True, "is_available": lambda: True,
        "device_count": lambda: gpu.count, "current_device": gpu.current_device,
        "set_device": gpu.set_device, "get_device_properties": gpu.get_properties,
        "get_device_capability": lambda device=None: (gpu.properties.major, gpu.properties.minor),
        "mem_get_info": gpu.mem_get_info, "empty_cache": gpu.empty_cache,
        "synchronize": gpu.synchronize, "graph_pool_handle": object,
        "current_stream": lambda device=None: gpu.stream, "stream": _on, "Stream": Stream,
        "Event": Event, "CUDAGraph": CUDAGraph,
    }  # fmt: skip
    for name, value in names.items():
        patch.setattr(torch.cuda, name, value)
    patch.setattr(torch.cuda.graph, "default_capture_stream", None)
    patch.setattr(torch._C, "_host_emptyCache", lambda: None, raising=False)
    patch.setattr(torch, "Generator", _Generator)
    patch.setattr(torch, "tensor", _tensor)
    patch.setattr(torch, "compile", lambda function, **options: function)
    patch.setattr(torch.Tensor, "to", _to)
    for name in ("init_process_group", "all_reduce", "barrier", "destroy_process_group"):
        patch.setattr(torch.distributed, name, getattr(group, name))
    smi(patch, folder, "570.86.15, 1980, 1980, 0, 0x0000000000000000")
    return group


@contextmanager
def _on(stream: Stream) -> Iterator[None]:
    before, Gpu.current.stream = Gpu.current.stream, stream
    try:
        yield
    finally:
        Gpu.current.stream = before


_made_by_torch = torch.Generator, torch.tensor, torch.Tensor.to


class _Generator:
    # a class as torch.Generator is one; what it makes are torch's own, which mypy expects of none
    def __new__(cls, device: object = "cpu") -> torch.Generator:  # type: ignore[misc]
        return _made_by_torch[0]()


def _tensor(data: object, *, device: object = None, **options: Any) -> torch.Tensor:
    made = _made_by_torch[1](data, **options)
    is_here = device is None or torch.device(device).type == "cpu"
    return made if is_here else Gpu.current.upload(made)


def _to(self: torch.Tensor, place: object, *more: Any, **options: Any) -> torch.Tensor:
    if not isinstance(place, torch.device | str) or torch.device(place).type != "cuda":
        return _made_by_torch[2](self, place, *more, **options)
    made = self if isinstance(self, CudaTensor) else Gpu.current.upload(self)
    return _made_by_torch[2](made, *more, **options) if more or options else made


def smi(patch: pytest.MonkeyPatch, folder: Path, answer: str) -> None:
    """Put an nvidia-smi with this answer on the path."""
    program = folder / "nvidia-smi"
    program.write_text(_SMI.format(answer))
    program.chmod(0o755)
    patch.setenv("PATH", str(folder), prepend=":")


@contextmanager
def standing_in(folder: Path) -> Iterator[tuple[Gpu, Group]]:
    """Yield a simulated GPU and its group; remove its tensors at the end."""
    gpu = Gpu()
    with pytest.MonkeyPatch.context() as patch, _Factories():
        yield gpu, install(gpu, patch, folder)
        _forget()


def _forget() -> None:
    """Clear what the package caches about a device."""
    from specmodel.calibrate.measure.kernels import device, layers

    layers._numbers.cache_clear()
    device._identity.cache_clear()
