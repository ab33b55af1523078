"""The path of a CUDA GPU, every line of it, on a stand-in for one (skipped without torch)."""

import json
import threading
import time
from functools import partial
from types import SimpleNamespace

import pandas as pd
import pytest
from msgspec.structs import replace

torch = pytest.importorskip("torch")
pytest.importorskip("filelock")

import cuda_install
import cuda_standin
from cuda_standin import CUDAGraph, Gpu
from printed import refused
from rows import cases, each_listed

from specmodel import load_hardware
from specmodel.calibrate.fit.calibration import calibrate_rows
from specmodel.calibrate.measure import check_measurements
from specmodel.calibrate.measure.kernels import bench as benches, collectives, device, layers
from specmodel.calibrate.measure.kernels.bench import NO_KERNEL, OUT_OF_MEMORY, Bench, Stopwatch
from specmodel.calibrate.measure.kernels.device import find_device
from specmodel.calibrate.measure.kernels.operators import timed_on
from specmodel.calibrate.measure.kernels.session import run_suite
from specmodel.calibrate.measure.kernels.suite import Point, suite
from specmodel.cli import main
from specmodel.cli.calibrate import calibration_text

CUDA = torch.device("cuda")
POINTS = suite("cuda", "tiny")


def of(component, index=-1):
    return [point for point in POINTS if point.component == component][index]


def calibrate(path, *words):
    return main(["calibrate", "--device", "cuda", "--tiny", "--output", str(path), *words])


# what is timed on it


def test_a_tiny_suite_makes_a_profile(gpu, tmp_path, capsys):
    path = tmp_path / "mine.toml"
    assert calibrate(path) == 0
    rows = pd.read_csv(path.with_suffix(".csv"))
    assert len(rows) == 2 * len(POINTS)
    assert rows["note"].isna().all()
    stack = load_hardware(path).fitted["torch"]
    for kind in ("experts", "gemm", "attention", "elementwise"):
        assert getattr(stack, kind)["bf16"].num_points > 5
    assert gpu.stream is gpu.default


def test_times_are_those_of_the_device(gpu):
    bench = Bench(find_device("cuda"), POINTS)
    copied = float(bench.measure(of("copy"))["latency"])
    law = 2 * 2**20 / cuda_standin.BYTES_PER_S + cuda_standin.KERNEL_SECONDS
    assert copied == pytest.approx(law, rel=1e-3)
    launched = float(bench.measure(of("launch"))["latency"])
    assert launched == pytest.approx(cuda_standin.LAUNCH_SECONDS, rel=0.01)
    in_a_graph = Point(
        component="launch", role="skip", fixed={"graphs": 1}, varied={}, reference={}
    )
    launched = float(bench.measure(in_a_graph)["latency"])
    assert launched == pytest.approx(cuda_standin.KERNEL_SECONDS, rel=0.01)


@cases(
    "capability dtypes", ((9, 0), "fp8 fp8_block int8 int4"), ((10, 0), "fp8 mxfp8 int8 fp4 int4")
)
def test_products_of_quantised_weights_are_called_as_torch_has_them(
    gpu, tmp_path, capability, dtypes
):
    gpu.properties.major, gpu.properties.minor = capability
    timed = timed_on("cuda", capability[0] + capability[1] / 10)
    assert [dtype for kind, dtype in timed.rows if kind == "gemm"] == dtypes.split()
    rows = timed_rows(tmp_path / "a.csv", timed=timed)
    assert rows["note"].isna().all()
    assert {*rows["weight_dtype"].dropna()} == {"bf16", *dtypes.split()}
    check_measurements(rows)


def test_every_kind_of_the_whole_suite_runs(gpu, tmp_path):
    gpu.total = 2**33
    falling = sorted(suite("cuda", "quick"), key=lambda p: -sum(p.sizes.values()))
    few = [*{point.component: point for point in falling}.values()]  # the smallest of each
    bench = Bench(find_device("cuda"), few)
    for point in few:
        assert "latency" in bench.measure(point), point.name


# what fails


@pytest.fixture
def failing(monkeypatch):
    """Let the calls of one point do something else first."""
    prepare = benches.prepare

    def fail(point, fault):
        def prepared(component, sizes, arena, name, row=None):
            made = prepare(component, sizes, arena, name, row)
            if name != point.name:
                return made
            return replace(made, call=lambda index: (fault(), made.call(index)))

        monkeypatch.setattr(benches, "prepare", prepared)

    return fail


def unsupported():
    raise RuntimeError("CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `cublas`\nmore")


def waits():
    if Gpu.current.capture:
        torch.cuda.synchronize()


def fills():
    if Gpu.current.capture:
        torch.empty(2**31, device=CUDA)


def ran_out():
    raise RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")


@cases(
    "fault note",
    (unsupported, "CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `cublas`"),
    (waits, "CUDA error: operation not permitted when stream is capturing"),
    (fills, OUT_OF_MEMORY),
    (ran_out, OUT_OF_MEMORY),
)
def test_a_fault_costs_its_point_only(gpu, failing, fault, note):
    failed = of("gemm", 2)
    failing(failed, fault)
    bench = Bench(find_device("cuda"), POINTS)
    for _ in range(2):
        timed = {point.name: bench.measure(point) for point in POINTS[14:22]}
        assert timed.pop(failed.name)["note"] == note
        assert all("latency" in columns for columns in timed.values())
    assert gpu.stream is gpu.default
    assert not bench.fault


def test_after_a_gpu_is_lost_the_next_run_goes_on_after_the_point(gpu, failing, tmp_path, capsys):
    path, point = tmp_path / "mine.toml", of("gemm", 2)
    failing(point, gpu.lose)
    assert calibrate(path) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert "an illegal memory access was encountered" in error
    assert point.name in error
    rows = pd.read_csv(path.with_suffix(".csv"))
    assert rows["point"].iloc[-1] == point.name
    assert "illegal memory access" in rows["note"].iloc[-1]
    gpu.lost = ""
    rows = timed_rows(path.with_suffix(".csv"))
    assert rows.loc[rows["note"].notna(), "point"].tolist() == [point.name]


def timed_rows(path, **changes):
    for _ in run_suite(path, replace(find_device("cuda"), **changes), "tiny"):
        pass
    return pd.read_csv(path)


@cases(
    "kind capability error note",
    ("attention", (9, 0), float("nan"), "torch's flash attention is wrong by nan"),
    ("experts", (8, 9), 0.0, NO_KERNEL),  # before Hopper
)
def test_a_kernel_that_torch_lacks_is_noted_and_the_rest_is_timed(
    gpu, tmp_path, monkeypatch, kind, capability, error, note
):
    gpu.properties.major, gpu.properties.minor = capability
    monkeypatch.setattr(layers, "flash_error", lambda *_: error)
    rows = timed_rows(tmp_path / "mine.csv")
    is_lacking = rows["component"] == kind
    assert {*rows.loc[is_lacking, "note"]} == {note}
    assert rows.loc[~is_lacking, "note"].isna().all()


def test_points_and_arenas_larger_than_memory(gpu):
    large = Point(
        component="gemm", role="fit", fixed={"input_size": 10**6, "output_size": 10**6},
        varied={"num_tokens": 2}, reference={"num_tokens": 1},
    )  # fmt: skip
    bench = Bench(find_device("cuda"), [*POINTS, large])
    assert bench.measure(large)["note"] == OUT_OF_MEMORY
    assert "latency" in bench.measure(of("gemm"))
    bench.close()
    gpu.total = 2**24
    told = r"device: .*GB of free memory"
    refused(told, Bench, find_device("cuda"), [*POINTS, large])


# what is asked of the device


def test_the_watcher_does_not_touch_the_device(gpu):
    find_device("cuda")
    found: list[object] = []
    thread = threading.Thread(
        target=lambda: found.append(device.disturbances("cuda", is_idle=False))
    )
    graph = CUDAGraph()
    with torch.cuda.graph(graph):
        thread.start()
        thread.join()
    assert found == [[]]


@each_listed
def test_what_nvidia_smi_says_speaks_against_timings(gpu, tmp_path, monkeypatch, answer, expected):
    cuda_install.smi(monkeypatch, tmp_path, answer)
    assert device.disturbances("cuda", is_idle=True) == expected
    assert device.clocks("cuda").endswith("MHz")


def test_gpus_that_do_not_do(gpu, monkeypatch):
    gpu.properties.major, gpu.properties.minor, gpu.properties.name = 7, 5, "Tesla T4"
    refused(r"Tesla T4.*compute capability 8\.0", find_device, "cuda")
    gpu.lost = "all CUDA-capable devices are busy or unavailable"
    refused(r"device: got 'cuda'; expected .*busy or unavailable", find_device, "cuda")
    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "is_available", lambda: False)
        refused(r"a GPU of CUDA or ROCm that torch can use", find_device, "cuda")
    refused(r"a GPU of Intel that torch can use", find_device, "xpu")


def test_rocm_has_no_flash_attention_with_lengths_and_is_timed_without(gpu, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.version, "hip", "7.1")
    info = find_device("cuda")
    assert (info.driver, info.compute_capability) == ("7.1", None)
    rows = timed_rows(tmp_path / "mine.csv")
    assert {*rows["note"].dropna()} == set()


GPUS = {
    "xpu": ("xpu", {
        "is_available": lambda: True, "mem_get_info": lambda: (5e9, 8e9),
        "get_device_properties": lambda: SimpleNamespace(
            name="Arc B580", driver_version="1.6", max_compute_units=160, total_memory=8e9),
    }),
    "mps": ("backends.mps", {
        "is_available": lambda: True, "get_name": lambda: "Apple M4", "get_core_count": lambda: 10,
    }),
}  # fmt: skip


@pytest.mark.parametrize("kind", GPUS)
def test_other_gpus_are_timed_by_a_clock_once_they_are_done(kind, monkeypatch):
    where, names = GPUS[kind]
    for name, value in names.items():
        monkeypatch.setattr(f"torch.{where}.{name}", value)
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: 8e9)
    monkeypatch.setattr(torch.mps, "driver_allocated_memory", lambda: 3e9)
    assert device.found_kind() == kind
    info = find_device(kind)
    assert (info.capacity_bytes, device.free_bytes(kind)) == (8e9, 5e9)
    assert info.hardware in ("arc_b580", "apple_m4")
    order: list[str] = []
    monkeypatch.setattr(f"torch.{kind}.synchronize", lambda: order.append("waits"))
    call = benches.Workload(lambda index: order.append("calls") or time.sleep(2e-3))
    watch = Stopwatch(call, SimpleNamespace(type=kind))
    order.clear()
    assert 2e-3 <= watch.time()[0] < 2e-2
    assert order == ["calls"] * watch.calls + ["waits"]
    points = suite(kind, "quick", timed_on(kind))
    assert {p.component for p in points} >= {"attention", "experts", "gemm", "sampling"}


# all-reduces


def test_all_reduces_of_a_group(lent, tmp_path, monkeypatch):
    gpu, group = lent
    gpu.count, gpu.total = 2, 2**32
    held: list[float] = []

    def spawn(work, arguments, nprocs, daemon):
        assert (nprocs, daemon) == (2, True)
        held.append(gpu.reserved)
        work(0, *arguments)

    some = partial(collectives.time_all_reduces, sizes=(2048, 2**20), repeats=3)
    for name, value in (("SIZES", (2048, 2**20)), ("REPEATS", 3), ("time_all_reduces", some)):
        monkeypatch.setattr(collectives, name, value)

    def run():
        timed_rows(tmp_path / "mine.csv")
        return json.loads((tmp_path / "mine.json").read_text())["sessions"][-1]["flags"]

    monkeypatch.setattr(torch.multiprocessing, "spawn", spawn)
    monkeypatch.setattr(collectives.faulthandler, "dump_traceback_later", lambda *_, **__: None)
    for _ in range(2):  # the second time nothing is missing
        assert run() == []
    rows = pd.read_csv(tmp_path / "mine.csv")
    reduced = rows[rows["component"] == "all_reduce"]
    assert len(reduced) == 6
    made = calibrate_rows(tmp_path / "mine.csv", find_device("cuda"), date="2026-11-21")
    link = made.link
    assert (link.kind, link.num_gpus) == ("nvlink", 2)
    assert link.collective_latency == pytest.approx(cuda_standin.KERNEL_SECONDS, rel=0.05)
    assert link.peak_bytes_per_s == pytest.approx(cuda_standin.BYTES_PER_S, rel=0.05)
    assert "All-reduce over 2 GPUs: latency 1us, bandwidth 2000 GB/s." in calibration_text(
        made, 0, 1
    )
    assert not group.is_there
    assert group.calls > len(reduced)
    assert held == pytest.approx([0], abs=2**20)  # ranks find the memory free


# the decoder
