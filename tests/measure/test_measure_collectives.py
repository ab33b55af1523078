"""All-reduces are timed on every rank, each size and repeat once."""

import pandas as pd
import pytest

torch = pytest.importorskip("torch")

from specmodel import InputError
from specmodel.calibrate.measure.kernels.collectives import time_all_reduces


def test_two_processes_time_every_size_and_repeat_once() -> None:
    rows = pd.DataFrame(time_all_reduces("cpu", 2, sizes=(2048, 2**18), repeats=2))
    timed = [("all_reduce", 2, size, repeat) for repeat in (0, 1) for size in (2048, 2**18)]
    assert [*rows.drop(columns="latency").itertuples(index=False, name=None)] == timed
    assert rows["latency"].between(0, 1, inclusive="neither").all()


def test_a_rank_that_fails_ends_in_one_line() -> None:
    with pytest.raises(InputError, match=r"2 processes can all-reduce \(\w*Error: ") as caught:
        time_all_reduces("cpu", 2, sizes=(2**60,), repeats=1)
    assert caught.value.argument == "device"
    assert "\n" not in str(caught.value)
