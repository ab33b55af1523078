"""A host beside a GPU, two streams on one: closed forms, limits, Monte Carlo, bounds."""

import numpy as np
import pytest
from rows import each_listed

from specmodel.core.algebra.overlap import Demand, exposed_share, two_streams_time


def step(gpu, host):
    return float(gpu + host * exposed_share(np.array(gpu), np.array(host)))


@pytest.mark.parametrize(("gpu", "host", "both"), [(4.0, 3.0, 5.0), (3.0, 4.0, 5.0), (12, 5, 13)])
def test_sides_of_right_triangles(gpu, host, both):
    assert step(gpu, host) == pytest.approx(both, rel=1e-15)


def test_more_work_on_either_side_never_takes_less():
    times = np.geomspace(1e-6, 1.0, 200)
    gpu, host = times[:, None], times[None, :]
    steps = gpu + host * exposed_share(gpu, host)
    assert (np.diff(steps, axis=0) > 0).all()
    assert (np.diff(steps, axis=1) >= 0).all()
    assert (steps <= gpu + host).all()
    assert (steps >= np.maximum(gpu, host)).all()


@each_listed
def test_two_streams_in_the_limits(first, second, together):
    pair = Demand(*map(np.array, first)), Demand(*map(np.array, second))
    assert two_streams_time(*pair) == pytest.approx(together, rel=1e-15)
    assert two_streams_time(*pair[::-1]) == pytest.approx(together, rel=1e-15)


def random_demands(rng, count=20_000):
    times = np.exp(rng.uniform(-8, 2, (2, count)))
    reading, computing = times * rng.random((2, 2, count)) ** 0.3
    return Demand(times[0], reading[0], computing[0]), Demand(times[1], reading[1], computing[1])


def test_two_streams_take_their_bytes_their_arithmetic_and_no_more_than_in_turn():
    first, second = random_demands(np.random.default_rng(1))
    together = two_streams_time(first, second) * (1 + 1e-14)
    assert (together >= np.maximum(first.time, second.time)).all()
    assert (together >= first.reading + second.reading).all()
    assert (together >= first.computing + second.computing).all()
    assert (together <= (first.time + second.time) * (1 + 1e-13)).all()


def test_two_streams_with_more_to_do_never_take_less():
    rng = np.random.default_rng(2)
    first, second = random_demands(rng)
    before = two_streams_time(first, second)
    more = rng.random((3, before.size)) * first.time
    for name in Demand._fields:
        grown = {"time": first.time + more[0]} | {name: getattr(first, name) + more[0]}
        after = two_streams_time(first._replace(**grown), second)
        assert (after >= before * (1 - 1e-14)).all(), name


def fair_share(rng, mean_idle, mean_reading, until):
    """Return the progress by some time of two like streams that share a memory equally [s].

    Each idles and reads in turn, for times drawn from exponentials; while both read, each takes
    twice as long.
    """
    left = rng.exponential(mean_idle, 2)
    reads, now, done = np.array([False, False]), 0.0, np.zeros(2)
    while now < until:
        pace = np.where(reads, 1 / max(reads.sum(), 1), 1.0)
        passed = (left / pace).min()
        first = int((left / pace).argmin())
        now, done, left = now + passed, done + pace * passed, left - pace * passed
        reads[first] = not reads[first]
        left[first] = rng.exponential(mean_reading if reads[first] else mean_idle)
    return done / now


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_two_streams_against_a_simulated_memory(share):
    """Of two long streams each is done as late as the formula says: Monte Carlo of fair sharing."""
    rng = np.random.default_rng(3)
    paces = [fair_share(rng, 1 - share, share, 500.0).mean() for _ in range(40)]
    alone = Demand(np.array(1.0), np.array(share), np.array(0.0))
    error = np.std(paces) / np.sqrt(len(paces))
    assert abs(np.mean(paces) - 1 / two_streams_time(alone, alone)) < 4 * error
    assert error < 0.01
