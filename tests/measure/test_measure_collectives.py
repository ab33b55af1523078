"""All-reduces are timed on every rank, each size and repeat once."""

import pytest

torch = pytest.importorskip("torch")

from specmodel import InputError
from specmodel.calibrate.measure.kernels.collectives import time_all_reduces


def test_two_processes_time_every_size_and_repeat_once() -> None:
    rows = time_all_reduces("cpu", 2, sizes=(2048, 2**18), repeats=2)
    assert list(rows) == ["component", "num_gpus", "bytes", "repeat", "latency"]
    assert len(rows) == 4
    assert set(zip(rows["bytes"], rows["repeat"], strict=True)) == {
        (size, repeat) for size in (2048, 2**18) for repeat in (0, 1)
    }
    assert set(rows["component"]) == {"all_reduce"}
    assert set(rows["num_gpus"]) == {2}
    assert (rows["latency"] > 0).all()
    assert (rows["latency"] < 1).all()


def test_a_rank_that_fails_ends_in_one_line() -> None:
    with pytest.raises(InputError, match=r"2 processes that all-reduce \(\w*Error: ") as caught:
        time_all_reduces("cpu", 2, sizes=(2**60,), repeats=1)
    assert caught.value.argument == "device"
    assert "\n" not in str(caught.value)
