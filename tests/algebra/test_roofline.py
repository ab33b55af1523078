"""What bends the roofline, by hand: ramps of kernels, walks through depths, tiles, groups."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from rows import cases

from specmodel.core.algebra.roofline import KernelParameters, smooth_maximum

SECONDS = st.floats(1e-9, 1e-1)


# ramps


@cases(
    "seconds kernels expected",
    (4e-6, 1.0, 4e-6 + 4e-6 * 2e-6 / 6e-6),  # 4 us of reads, one ramp of 2 us
    (4e-6, 3.0, 4e-6 + 4e-6 * 6e-6 / 10e-6),  # the same by three kernels
    (2e-6, 1.0, 3e-6),  # as long as the ramp: half of it
    (0.0, 1.0, 0.0),
    (4e-6, 0.0, 4e-6),
)
def test_a_ramp_by_hand(seconds, kernels, expected):
    k = KernelParameters(ramp_time=2e-6)
    assert k.ramped(seconds, kernels) == pytest.approx(expected, rel=1e-12, abs=0)


@given(SECONDS, st.floats(1, 100), st.floats(1e-8, 1e-4))
def test_one_ramp_more_takes_longer_but_no_more_than_a_ramp(seconds, kernels, ramp):
    k = KernelParameters(ramp_time=ramp)
    here, more = (float(np.asarray(k.ramped(seconds, n))) for n in (kernels, kernels + 1))
    assert here <= more <= (here + ramp) * (1 + 1e-12)


# depths


@pytest.mark.parametrize("kernels", [1.0, 7.0])
def test_no_kernel_walks_more_than_the_limit(kernels):
    k = KernelParameters(depth_time=1e-9, depth_limit=1000.0)
    for each, steps in [(1000.0, 500.0), (3000.0, 750.0), (250.0, 200.0), (1e9, 1000.0)]:
        walk = k.walked(np.zeros(()), kernels * each, kernels)
        assert walk == pytest.approx(kernels * steps * 1e-9, rel=2e-6)


def test_walking_overlaps_with_streaming():
    """At an exponent of 2 as the sides of a right triangle; infinite, the longer one is taken."""
    for sharpness, expected in [(2.0, 5e-6), (math.inf, 4e-6), (4.0, (3**4 + 4**4) ** 0.25 * 1e-6)]:
        k = KernelParameters(depth_time=1e-9, depth_limit=1e12, sharpness=sharpness)
        for stream, steps in [(4e-6, 3000.0), (3e-6, 4000.0)]:
            time = k.walked(np.asarray(stream), steps, 1.0)
            assert time == pytest.approx(expected, rel=1e-8)


# tiles


@cases(
    "rows matrices factor",
    (8.0, 1.0, 5.0 / 4.0),  # 8 rows and tiles of 6: as on 10, the third side of 6, 8, 10
    (16.0, 2.0, 5.0 / 4.0),  # eight rows each
    (6.0, 1.0, math.sqrt(2)),
    (6e6, 1.0, 1.0),
)
def test_padded_rows_by_hand(rows, matrices, factor):
    k = KernelParameters(tile_rows=6.0)
    assert k.tiled_arithmetic(3e-6, rows, matrices) == pytest.approx(factor * 3e-6, rel=1e-11)


def test_tiles_that_grow_with_the_rows():
    """Tiles of 3 r^(1/2): sixteen rows are padded by 12, as on 20; a hundred by 30."""
    k = KernelParameters(tile_rows=3.0, tile_growth=0.5)
    for rows, as_on in [(16.0, 20.0), (100.0, math.hypot(100, 30))]:
        for matrices in (1.0, 5.0):
            time = k.tiled_arithmetic(1e-9 * rows * matrices, rows * matrices, matrices)
            assert time == pytest.approx(1e-9 * as_on * matrices, rel=1e-12)


def test_padding_is_that_of_whole_tiles_in_expectation():
    """Rows that are as likely to end anywhere in a tile are padded by half a tile in the mean.

    The smooth law lies between no padding and a whole tile; over all sizes
    up to four tiles its mean must be near that of whole tiles.
    """
    tile = 32
    rows = np.arange(1, 4 * tile + 1, dtype=float)
    whole = np.ceil(rows / tile) * tile
    smooth = np.asarray(KernelParameters(tile_rows=float(tile)).tiled_arithmetic(rows, rows, 1.0))
    assert smooth.mean() == pytest.approx(whole.mean(), rel=0.1)
    assert (np.abs(smooth - rows - tile / 2) <= tile / 2).all()


def test_narrow_matrices_are_padded_by_hand():
    k = KernelParameters(tile_width=30.0)
    for width, padded in [(40.0, 50.0), (30.0, 30 * math.sqrt(2)), (16.0, 34.0), (1e9, 1e9)]:
        assert k.tiled_weights(2.0 * width, width) == pytest.approx(2.0 * padded, rel=1e-12)
    assert k.tiled_weights(7.0, np.inf) == 7.0


# products on a CPU


@cases(
    "rows matrices reads",
    (1.0, 1.0, 1.0),
    (2.0, 1.0, 2.0),  # the second row reads it again
    (8.0, 4.0, 2.0),
    (1e6, 1.0, 9.0),  # eight further rows do, then all are multiplied together
    (9.0, 1.0, 1 + 8 * 2 ** (-1 / 8)),  # where both are equal
)
def test_few_rows_read_a_matrix_each(rows, matrices, reads):
    k = KernelParameters(reread_rows=8.0)
    assert k.reread(1e6, rows, matrices) == pytest.approx(reads * 1e6, rel=1e-7)


@given(st.floats(1, 1e4), st.floats(0, 64))
def test_more_rows_never_read_less_nor_more_than_their_share(rows, most):
    k, both = KernelParameters(reread_rows=most), rows * np.array([1, 1.01])
    few, many = k.reread(np.ones(2), both, 1.0)
    assert few * (1 - 1e-12) <= many <= 1.01 * few * (1 + 1e-12)


def test_each_result_costs_further_terms_of_its_sum():
    """A hundred beside 400 terms; of two products the mean depth; what sums nothing at most one."""
    k = KernelParameters(result_terms=100.0)
    for depth, kernels, factor in [(400.0, 1.0, 1.25), (1000.0, 2.0, 1.2), (0.0, 0.0, 101.0)]:
        assert k.with_results(8.0, depth, kernels) == pytest.approx(8 * factor, rel=1e-12)


# all together


def test_the_data_sheet_adds_nothing():
    k, time = KernelParameters(), 1e-6
    assert (k.ramped(time, 3.0), k.walked(time, 1e4, 3.0)) == (time, time)
    assert k.tiled_arithmetic(time, 1.0, 1.0) == time
    assert k.tiled_weights(1e6, 1.0) == k.reread(1e6, 9.0, 1.0) == k.with_results(1e6, 1, 1) == 1e6


@pytest.mark.parametrize("sharpness", [1.0, 1.5, 2.0, 3.0, 8.0, 10.0])
def test_the_smooth_maximum_at_the_ridge_point_and_beside_it(sharpness):
    for a, b in [(1.0, 1.0), (1.0, 0.5), (0.25, 2.0), (0.0, 3.0)]:
        expected = (a**sharpness + b**sharpness) ** (1 / sharpness)
        for pair in ((a, b), (b, a)):
            time = smooth_maximum(*map(np.float64, pair), sharpness)
            assert time == pytest.approx(expected, rel=1e-12)
