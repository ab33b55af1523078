"""Kernels of the simulated GPU that the CPU lacks, or that check less on the CPU."""

from typing import Any

import torch
from torch._meta_registrations import _meta_grouped_mm_common
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map

OF_QUANTISED = ("_scaled_mm", "_scaled_grouped_mm", "_int_mm", "_weight_int4pack_mm")


def _as_on_a_gpu(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="cuda")


def computed(func: Any, gpu: Any, args: Any, kwargs: Any) -> Any:
    """Compute the result of a kernel, with the checks of torch's kernel on a GPU."""
    name = func.name().removeprefix("aten::").split(".")[0]
    if name == "_flash_attention_forward":
        return _flash(*args, **kwargs)
    if name in OF_QUANTISED:
        with FakeTensorMode():  # with the checks of torch's kernels of a GPU, which the CPU has not
            fake = tree_map(_as_on_a_gpu, (args, kwargs))
            made = func(*fake[0], **fake[1])
        return torch.zeros(made.shape, dtype=made.dtype)
    if name in ("_grouped_mm", "grouped_mm"):
        if gpu.properties.major not in (9, 10) and gpu.capture:
            raise gpu.spoil("operation not permitted when stream is capturing")
        offs = kwargs.get("offs", args[2] if len(args) > 2 else None)
        meta = [torch.empty_strided(a.shape, a.stride(), dtype=a.dtype, device="meta")
                for a in (*args[:2], offs)]  # fmt: skip
        _meta_grouped_mm_common(*meta[:2], None, None, offs=meta[2])
        for matrix in args[:2]:
            assert matrix.storage_offset() * matrix.element_size() % 16 == 0, "not aligned"
    return func(*args, **kwargs)


def _flash(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, cum_q: torch.Tensor,
    cum_k: torch.Tensor, max_q: int, max_k: int, dropout: float, is_causal: bool,
    return_debug_mask: bool, *, seqused_k: torch.Tensor,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """Compute attention over caches of unequal length, with the checks of torch's kernel."""
    sequences = len(cum_q) - 1
    for bounds in (cum_q, cum_k, seqused_k):
        assert bounds.dtype == torch.int32
        assert bounds.is_contiguous()
    assert len(cum_k) == sequences + 1
    assert seqused_k.shape == (sequences,)
    assert query.dtype == key.dtype == value.dtype == torch.bfloat16
    assert query.stride(-1) == key.stride(-1) == value.stride(-1) == 1
    assert query.shape[-1] % 8 == 0
    assert query.shape[-1] <= 256
    assert query.shape[1] % key.shape[1] == 0
    assert int(cum_q.diff().max()) <= max_q
    assert int(seqused_k.max()) <= max_k
    assert int((cum_k[:-1] + seqused_k).max()) <= len(key)
    assert not dropout
    assert not is_causal
    assert not return_debug_mask
    out = torch.empty_like(query)
    share = query.shape[1] // key.shape[1]
    for i in range(sequences):
        rows = slice(int(cum_q[i]), int(cum_q[i + 1]))
        keys = slice(int(cum_k[i]), int(cum_k[i]) + int(seqused_k[i]))
        k, v = (t[keys].float().repeat_interleave(share, dim=1) for t in (key, value))
        scores = torch.einsum("qhd,khd->hqk", query[rows].float(), k) * query.shape[-1] ** -0.5
        out[rows] = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).to(out.dtype)
    return (
        out, torch.empty(query.shape[1], len(query)), torch.empty(2, dtype=torch.uint64),
        torch.empty((), dtype=torch.uint64), torch.empty(0),
    )  # fmt: skip
