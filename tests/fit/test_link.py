"""The link fitted to timed all-reduces gives their times back."""

import numpy as np
import pandas as pd
import pytest
from printed import refused

from specmodel.calibrate.fit.calibration import fit_link
from specmodel.calibrate.measure.kernels.collectives import SIZES

LATENCY, BANDWIDTH = 9.3e-6, 3.7e11


def planted(*num_gpus: int, latency: float = LATENCY, noise: float = 0.0) -> pd.DataFrame:
    """Times of rings that send 2 (n - 1) parts of a tensor cut in n; repeats spread evenly."""
    rows = [
        ("all_reduce", n, size, repeat, (latency + 2 * (n - 1) * (size / n) / BANDWIDTH) * (1 + x))
        for n in num_gpus
        for size in SIZES
        for repeat, x in enumerate(np.linspace(-noise, noise, 5))
    ]
    return pd.DataFrame(rows, columns=["component", "num_gpus", "bytes", "repeat", "latency"])


@pytest.mark.parametrize("num_gpus", [(2,), (8,), (2, 4, 8)])
@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_fit_recovers_what_was_planted(num_gpus: tuple[int, ...], noise: float) -> None:
    latency, bytes_per_s = fit_link(planted(*num_gpus, noise=noise))
    assert latency == pytest.approx(LATENCY, rel=1e-9)
    assert bytes_per_s == pytest.approx(BANDWIDTH, rel=1e-9)


def test_fit_has_no_negative_latency_and_weighs_relative_errors() -> None:
    latency, bytes_per_s = fit_link(planted(4, latency=-1e-9))
    assert latency == 0
    assert bytes_per_s > BANDWIDTH
    rows = planted(4)
    rows.loc[rows["bytes"] == max(SIZES), "latency"] *= 1.1
    assert fit_link(rows)[0] == pytest.approx(LATENCY, rel=0.02)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (planted(4).assign(num_gpus=1), r"num_gpus: got 1; expected a whole number of at least 2"),
        (planted(4).assign(latency=0.0), r"measurements\.latency: got 0"),
        (planted(4).assign(bytes=2048), "of two or more sizes"),
        (planted(4).assign(latency=1 / planted(4)["latency"]), "times that grow"),
    ],
)
def test_rows_that_do_not_do_are_refused(rows: pd.DataFrame, message: str) -> None:
    refused(message, fit_link, rows)
