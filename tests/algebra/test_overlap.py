"""A host beside a GPU: closed forms, limits, and a step that never gets shorter with more work."""

import numpy as np
import pytest

from specmodel.algebra.overlap import exposed_share


def step(gpu: float, host: float) -> float:
    return float(gpu + host * exposed_share(np.array(gpu), np.array(host)))


@pytest.mark.parametrize(("gpu", "host", "both"), [(4.0, 3.0, 5.0), (3.0, 4.0, 5.0), (12, 5, 13)])
def test_sides_of_right_triangles(gpu: float, host: float, both: float) -> None:
    assert step(gpu, host) == pytest.approx(both, rel=1e-15)


def test_a_short_host_is_hidden_and_a_long_one_decides() -> None:
    assert step(1.0, 0.0) == 1.0
    assert step(1.0, 1e-3) == pytest.approx(1 + 5e-7, rel=1e-9)
    assert step(1e-3, 1.0) == pytest.approx(1 + 5e-7, rel=1e-9)


def test_more_work_on_either_side_never_takes_less() -> None:
    times = np.geomspace(1e-6, 1.0, 200)
    gpu, host = times[:, None], times[None, :]
    steps = gpu + host * exposed_share(gpu, host)
    assert (np.diff(steps, axis=0) > 0).all()
    assert (np.diff(steps, axis=1) >= 0).all()
    assert (steps <= gpu + host).all()
    assert (steps >= np.maximum(gpu, host)).all()
