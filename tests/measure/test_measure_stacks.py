"""An engine's own kernels: called as its wheels have them, on a stand-in for a GPU and for it."""

import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest
from msgspec.structs import replace

torch = pytest.importorskip("torch")
pytest.importorskip("filelock")

from cuda_standin import CudaTensor
from rows import each_listed

from specmodel import load_hardware
from specmodel.calibrate.measure.kernels import operators
from specmodel.calibrate.measure.kernels.device import find_device
from specmodel.calibrate.measure.kernels.session import run_suite
from specmodel.cli import main

SCHEMAS = (Path(__file__).parents[1] / "data/engine_operators.txt").read_text().splitlines()[1:]
VERSIONS = {"vllm": "0.33.0", "sglang-kernel": "0.4.10", "flashinfer-python": "0.7.4"}
VERSIONS |= {"amd-aiter": "0.1.7.post2"}


def of_host(tensor):
    """What a tensor of the device that stands in holds, without waiting for it."""
    return tensor.inner if isinstance(tensor, CudaTensor) else tensor


def scaled(a, b, scales_a, scales_b, _dtype, _bias):
    """Check a product with scales of rows and columns."""
    assert a.dtype == b.dtype
    assert (a.shape[1], b.stride(0)) == (b.shape[0], 1)
    assert (scales_a.numel(), scales_b.numel()) == (len(a), b.shape[1])
    return a.new_zeros((len(a), b.shape[1]), dtype=torch.bfloat16)


def cutlass(out, a, b, scales_a, scales_b, bias):
    assert out.shape == scaled(a, b, scales_a, scales_b, out.dtype, bias).shape


def cutlass_fp4(out, a, b, scales_a, scales_b, alpha):
    padded = [-(-len(x) // 128) * 128 for x in (a, b)]
    assert out.shape == (len(a), len(b))
    assert a.dtype == b.dtype == torch.uint8
    assert [len(scales) for scales in (scales_a, scales_b)] == padded
    assert scales_a.shape[1] == scales_b.shape[1] == -(-a.shape[1] // 32) * 4
    assert alpha.numel() == 1


def marlin(a, c, w, bias, scales, _a, _g, _z, locks, number, m, n, k, atomic, reduce, zeros):
    assert (a.shape, w.shape, scales.shape) == ((m, k), (k // 16, 2 * n), (k // 128, n))
    assert not locks.any()
    assert number == 4 << 8 | 8 << 17 | 1 << 50  # 4 bits, 8 taken off, nothing infinite
    return a.new_zeros(m, n)


def moe(x, w1, w2, share, chosen, **more):
    assert (w1.shape[0], w1.shape[2], w2.shape[1]) == (len(w2), x.shape[1], x.shape[1])
    assert w1.shape[1] == 2 * w2.shape[2]
    assert share.shape == chosen.shape
    assert (share.dtype, chosen.dtype) == (torch.float32, torch.int32)
    assert int(of_host(chosen).max()) < len(w1)
    return torch.zeros_like(x)


def vllm_moe(
    x, w1, w2, share, chosen, activation="silu", late=False, fp8=False, s1=None, s2=None, block=None
):
    assert fp8 == (w1.dtype == torch.float8_e4m3fn)
    if fp8:
        assert (*block,) == (128, 128)
        assert [*s1.shape[1:]] == [-(-size // 128) for size in w1.shape[1:]]
        assert [*s2.shape[1:]] == [-(-size // 128) for size in w2.shape[1:]]
    return moe(x, w1, w2, share, chosen)


def flashinfer_moe(x, chosen, share, w1, w2, output_dtype, quant_scales):
    assert (output_dtype, *quant_scales) == (torch.bfloat16,)
    return moe(x, w1, w2, share, chosen)


def deep_gemm(x, w, out, *, is_deep_gemm_e8m0_used):
    (a, scales_a), (b, scales_b) = x, w
    m, k = a.shape
    assert scales_a.shape == (m, k // 128)
    assert scales_a.stride() == (1, -(-m // 4) * 4)
    assert scales_b.shape == (-(-len(b) // 128), k // 128)
    assert out.shape == (m, len(b))


def paged(q, k, v, starts, used, pages, most):
    assert k.shape == v.shape
    assert q.shape[2] == k.shape[3]
    starts, used, pages = map(of_host, (starts, used, pages))
    assert starts.tolist() == [most * i for i in range(len(used) + 1)]
    assert len(q) == starts[-1]
    assert pages.shape[1] * k.shape[1] == used[0]
    assert pages.flatten().tolist() == [*range(len(k))]
    return torch.zeros_like(q)


def vllm_attention(q, k, v, most, starts, longest, *, seqused_k, block_table, causal, fa_version):
    assert causal
    assert longest == of_host(seqused_k)[0]
    return paged(q, k, v, starts, seqused_k, block_table, most)


def sglang_attention(q, k, v, *, cache_seqlens, page_table, cu_seqlens_q, max_seqlen_q, causal):
    assert causal
    return paged(q, k, v, cu_seqlens_q, cache_seqlens, page_table, max_seqlen_q), None


def groupwise(a, b, scales_a, scales_b, major):
    assert (len(a) % 4, major) == (0, "K")
    assert scales_a.shape == (len(a), a.shape[1] // 128)
    assert scales_b.shape == (-(-len(b) // 128), a.shape[1] // 128)
    return a.new_zeros(len(a), len(b), dtype=torch.bfloat16)


def mm_fp4(a, b, scales_a, scales_b, alpha):
    out = a.new_zeros(len(a), b.shape[1], dtype=torch.bfloat16)
    cutlass_fp4(out, a, b.mT, scales_a, scales_b.mT, alpha)
    return out


MADE = {
    "_C::cutlass_scaled_mm": cutlass, "_C::cutlass_scaled_fp4_mm": cutlass_fp4,
    "_C::marlin_gemm": marlin, "vllm::fused_experts": vllm_moe,
    "sgl_kernel::fp8_scaled_mm": scaled, "sgl_kernel::int8_scaled_mm": scaled,
    "vllm._custom_ops.": None, "vllm.model_executor.layers.fused_moe.fused_moe.": None,
    "vllm.utils.deep_gemm.fp8_gemm_nt": deep_gemm,
    "vllm.vllm_flash_attn.flash_attn_interface.flash_attn_varlen_func": vllm_attention,
    "sgl_kernel.flash_attn.flash_attn_with_kvcache": sglang_attention,
    "flashinfer.gemm.gemm_fp8_nt_groupwise": groupwise, "flashinfer.gemm.mm_fp4": mm_fp4,
    "flashinfer.fused_moe.cutlass_fused_moe": flashinfer_moe, "aiter.fused_moe.fused_moe": moe,
}  # fmt: skip


@pytest.fixture
def engines(monkeypatch):
    """All engines, as if they were installed."""

    def version(package):
        if package not in VERSIONS:
            raise PackageNotFoundError
        return VERSIONS[package]

    monkeypatch.setattr(operators, "version", version)
    libraries = []
    for schema in SCHEMAS:
        name = schema.partition("(")[0]
        space, _, op = name.partition("::")
        libraries.append(torch.library.Library(space, "FRAGMENT"))
        libraries[-1].define(schema.removeprefix(f"{space}::"))
        libraries[-1].impl(op, MADE[name], "CPU")
    for name in MADE.keys() - {schema.partition("(")[0] for schema in SCHEMAS}:
        parts = name.split(".")
        for i in range(1, len(parts)):
            module = sys.modules.get(".".join(parts[:i])) or ModuleType(".".join(parts[:i]))
            monkeypatch.setitem(sys.modules, module.__name__, module)
        setattr(module, parts[-1], MADE[name])
    yield
    for library in libraries:
        library._destroy()


@each_listed
def test_kernels_of_an_engine_are_called_as_it_has_them(
    gpu, engines, tmp_path, stack, capability, own
):
    gpu.properties.major, gpu.properties.minor = capability
    number = capability[0] + capability[1] / 10
    timed = operators.timed_on("cuda", number, stack=operators.find_stack(stack))
    found = {place for place, row in timed.rows.items() if "stack" in row}
    assert {":".join(filter(None, place)) for place in found} == {*own.split()}
    info = replace(find_device("cuda"), timed=timed)
    for _ in run_suite(tmp_path / "a.csv", info, "tiny"):
        pass
    rows = pd.read_csv(tmp_path / "a.csv")
    assert {*rows["stack"]} == {f"{stack}-here"}
    assert not dict(rows[["point", "note"]].dropna().to_numpy())


def calibrate(*words):
    return main(["calibrate", "--device", "cuda", "--tiny", *words])


def test_a_profile_of_an_engine_is_taken_by_itself(gpu, engines, tmp_path, capsys):
    path = str(tmp_path / "mine.toml")
    assert calibrate("--stack", "vllm", "--output", path) == 0
    told = " ".join(capsys.readouterr().out.split())
    own = "attention in bf16, experts in bf16, experts in fp8_block, gemm in fp8, gemm in fp8_block"
    assert f"Kernels of vllm 0.33.0, called as 0.33.0: {own}" in told
    hardware = load_hardware(path)
    assert hardware.measured_stack == "vllm-here"
    assert hardware.fitted["vllm-here"].version == "0.33.0"
    assert hardware.fitted["vllm"] == load_hardware("h200_sxm").fitted["vllm"]
    assert calibrate("--output", path) == 2  # torch's go into another file
    assert f"rows of another torch than '{torch.__version__}'" in capsys.readouterr().err


def test_what_is_not_there_is_told_before_anything_is_imported(
    gpu, engines, tmp_path, capsys, monkeypatch
):
    monkeypatch.setitem(sys.modules, "vllm._custom_ops", None)
    dry = ["--stack", "vllm", "--dry-run", "--output", str(tmp_path / "a.toml")]
    monkeypatch.setitem(VERSIONS, "vllm", "0.28.1")
    assert calibrate(*dry) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "marlin_gemm (needs vllm 0.33; 0.28.1 is installed)" in told
    monkeypatch.delitem(VERSIONS, "vllm")
    assert calibrate(*dry) == 2
    told = "--stack: got 'vllm'; expected an installed engine (pip install vllm), or"
    assert told in capsys.readouterr().err


def test_what_cannot_be_imported_or_is_not_there(gpu, engines, tmp_path, capsys, monkeypatch):
    attention = sys.modules["vllm.vllm_flash_attn.flash_attn_interface"]
    monkeypatch.delattr(attention, "flash_attn_varlen_func")
    lacking = operators.timed_on("cuda", 9.0, stack=operators.find_stack("vllm")).reasons
    assert lacking["flash_attn_varlen_func"] == "not in vllm 0.33.0 here"
    monkeypatch.setitem(sys.modules, "vllm._custom_ops", None)
    assert calibrate("--stack", "vllm", "--output", str(tmp_path / "a.toml")) == 2
    assert "--stack: got 'vllm'. Its kernels cannot be imported" in capsys.readouterr().err
