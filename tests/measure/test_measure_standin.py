"""The stand-in for a GPU is as strict as one (skipped without torch)."""

import threading

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("filelock")

from cuda_standin import CUDAGraph, Event, Gpu, Stream

from specmodel.measure.kernels.bench import captured

CUDA = torch.device("cuda")


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
    def beside() -> None:
        thread = threading.Thread(target=lambda: _refused(torch.cuda.current_device))
        thread.start()
        thread.join()

    with pytest.raises(torch.AcceleratorError), torch.cuda.graph(CUDAGraph()):
        beside()


def _refused(call) -> None:
    with pytest.raises(torch.AcceleratorError, match="another thread"):
        call()


def test_a_graph_runs_when_it_is_replayed_on_what_is_still_there(gpu: Gpu) -> None:
    held = [torch.ones(4, device=CUDA)]
    graph, doubled = captured(lambda: held[0] + held[0])
    assert torch.isnan(doubled.cpu()).all()
    graph.replay()
    assert doubled.tolist() == [2.0] * 4
    held[0].fill_(3.0)
    graph.replay()
    assert doubled.tolist() == [6.0] * 4
    held.clear()
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
