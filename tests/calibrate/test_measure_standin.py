"""The path of a CUDA GPU, every line of it, on a stand-in for one (skipped without torch)."""

import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("filelock")

import cuda_standin
from cuda_standin import CUDAGraph, Event, Gpu, Group, Stream, standing_in

from specmodel.calibrate.measure import bench as benches
from specmodel.calibrate.measure import collectives
from specmodel.calibrate.measure.bench import Bench, captured
from specmodel.calibrate.measure.device import find_device
from specmodel.calibrate.measure.suite import Point, suite
from specmodel.cli import main
from specmodel.records.architecture import Architecture
from specmodel.records.hardware import load_hardware

CUDA = torch.device("cuda")
POINTS = suite("cuda", "tiny")
SHAPE = {
    "schema_version": 1, "source": "test", "hidden_size": 64, "num_layers": 2, "num_heads": 4,
    "num_kv_heads": 2, "head_dim": 16, "vocabulary_size": 64,
}  # fmt: skip
MOE = Architecture(name="moe", num_experts=8, experts_per_token=2, expert_size=32, **SHAPE)
DENSE = Architecture(name="dense", num_dense_layers=2, dense_ffn_size=64, **SHAPE)


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """Threads that wait for each other on a busy machine take a thousand times as long."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def lent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Gpu, Group]]:
    """A GPU that stands in, the host's clock beside its own, and few calls of each timing."""
    (tmp_path / "bin").mkdir()
    with standing_in(tmp_path / "bin") as (gpu, group):
        clock = SimpleNamespace(perf_counter=lambda: gpu.host, monotonic=lambda: gpu.host)
        monkeypatch.setattr(benches, "time", clock)
        monkeypatch.setattr(collectives, "time", clock)
        monkeypatch.setattr(benches, "MOST_CALLS", 3)
        yield gpu, group


@pytest.fixture
def gpu(lent: tuple[Gpu, Group]) -> Gpu:
    return lent[0]


def of(component: str, index: int = -1) -> Point:
    return [point for point in POINTS if point.component == component][index]


def calibrate(path: Path, *words: str) -> int:
    return main(["calibrate", "--device", "cuda", "--tiny", "--output", str(path), *words])


# the stand-in itself


def test_an_event_is_read_only_once_the_host_has_waited_for_it(gpu: Gpu) -> None:
    start, stop = Event(enable_timing=True), Event(enable_timing=True)
    with pytest.raises(AssertionError, match="never recorded"):
        start.synchronize()
    start.record()
    torch.ones(4, device=CUDA).neg_()
    stop.record()
    with pytest.raises(RuntimeError, match="not ready"):
        start.elapsed_time(stop)
    stop.synchronize()
    assert start.elapsed_time(stop) > 0
    untimed = Event()
    untimed.record()
    with pytest.raises(ValueError, match="timing"):
        untimed.elapsed_time(stop)


@pytest.mark.parametrize(
    ("work", "reason"),
    [
        (lambda x: torch.cuda.synchronize(), "stream is capturing"),
        (lambda x: x.sum().item(), "stream is capturing"),
        (lambda x: x.tolist(), "stream is capturing"),
        (lambda x: torch.tensor([1.0], device=CUDA), "stream is capturing"),
        (lambda x: Event(enable_timing=True).record(), "has no time"),
        (lambda x: torch.empty(2**31, device=CUDA), "out of memory"),
    ],
)
def test_what_waits_or_does_not_fit_spoils_a_capture(gpu: Gpu, work, reason: str) -> None:
    x = torch.ones(4, device=CUDA)
    graph = torch.cuda.CUDAGraph()
    with (
        pytest.raises(torch.AcceleratorError, match="previous error during capture") as caught,
        torch.cuda.graph(graph),
    ):
        work(x)
    assert reason in str(caught.value.__context__)
    with pytest.raises(AssertionError, match="not captured"):
        graph.replay()


def test_a_thread_beside_a_capture_spoils_it(gpu: Gpu) -> None:
    thread = threading.Thread(target=lambda: _refused(torch.cuda.current_device))
    with pytest.raises(torch.AcceleratorError), torch.cuda.graph(CUDAGraph()):
        thread.start()
        thread.join()


def _refused(call) -> None:
    with pytest.raises(torch.AcceleratorError, match="another thread"):
        call()


def test_a_graph_runs_when_it_is_replayed_on_what_is_still_there(gpu: Gpu) -> None:
    x = torch.ones(4, device=CUDA)
    graph, doubled = captured(lambda: x + x)
    assert torch.isnan(doubled.cpu()).all()
    graph.replay()
    assert doubled.tolist() == [2.0] * 4
    x.fill_(3.0)
    graph.replay()
    assert doubled.tolist() == [6.0] * 4
    del x
    with pytest.raises(AssertionError, match="is gone"):
        graph.replay()


def test_streams_do_not_wait_for_each_other(gpu: Gpu) -> None:
    x, other = torch.ones(4, device=CUDA), Stream()
    torch.cuda.synchronize()
    x.neg_()
    with torch.cuda.stream(other), pytest.raises(AssertionError, match="another stream"):
        x.neg_()
    other.wait_stream(gpu.default)
    with torch.cuda.stream(other):
        x.neg_()


def test_memory_is_given_back_when_the_cache_is_emptied(gpu: Gpu) -> None:
    def free() -> int:
        return torch.cuda.mem_get_info()[0]

    before = free()
    x = torch.empty(2**20, device=CUDA)
    assert free() == before - 2**22
    del x
    assert free() == before - 2**22
    torch.cuda.empty_cache()
    assert free() == before
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(2**30, device=CUDA)


# what is timed on it


def test_a_tiny_suite_makes_a_profile(
    gpu: Gpu, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.toml"
    assert calibrate(path) == 0
    rows = pd.read_csv(path.with_suffix(".csv"))
    assert len(rows) == 2 * len(POINTS)
    assert rows["note"].isna().all()
    stack = load_hardware(path).fitted["torch"]
    for kind in ("experts", "gemm", "attention", "elementwise"):
        assert getattr(stack, kind)["bf16"].num_points > 5
    assert gpu.stream is gpu.default


def test_times_are_those_of_the_device(gpu: Gpu) -> None:
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
