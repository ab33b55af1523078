"""Fits recover what was planted, say what the data do not determine, and refuse bad tables."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from msgspec.structs import fields
from planted import H200, planted
from printed import refused

from published.moesd import fit_moesd, moesd_bounds, moesd_speedup
from specmodel import load_architecture, load_hardware
from specmodel.calibrate.fit.kernels import fit_kernels, normal_spreads
from specmodel.calibrate.fit.result import ROBUST_SCALE, best_of_starts, log_fit_result
from specmodel.calibrate.measure import check_measurements
from specmodel.core.algebra.moesd import MoESDParameters
from specmodel.core.algebra.speculation import step_efficiency
from specmodel.core.layers.blocks import DRAWN
from specmodel.core.machines.kernels import check_covariance

NAMES = [field.name for field in fields(MoESDParameters)]
RIDGE_POINT = 153.0
BOUNDS = moesd_bounds(
    load_architecture("qwen2-57b-a14b"),
    load_architecture("qwen2-0.5b"),
    load_hardware("a800_sxm_80gb"),
    num_gpus=2,
)


def plan() -> dict[str, np.ndarray]:
    """The 228 points of the paper, sorted: 6 values of K, 2 of γ, 19 batch sizes."""
    batch = [1, 2, *range(4, 61, 4), 80, 100]
    grid = np.meshgrid([1, 2, 4, 8, 16, 32], [2, 4], batch, indexing="ij")
    k, gamma, B = (axis.ravel().astype(float) for axis in grid)
    points = {"batch_size": B, "draft_length": gamma, "experts_per_token": k}
    points |= {"num_experts": np.full(k.size, 64.0)}
    return points | {"step_efficiency": step_efficiency(0.85, gamma)}


def plant(seed: int) -> np.ndarray:
    """Ten parameters inside their bounds."""
    rng = np.random.default_rng(seed)
    unit = BOUNDS["bias"][0]
    chosen = {
        "bias": unit * rng.uniform(1.1, 3),
        "k1": unit * rng.uniform(0.005, 0.05),
        "k2": BOUNDS["k2"][0] * rng.uniform(1.1, 3),
        "k3": unit * rng.uniform(0.005, 0.05),
        "draft_bias": BOUNDS["draft_bias"][0] * rng.uniform(1.2, 4),
        "draft_k": unit * rng.uniform(0.001, 0.01),
        "reject_bias": rng.uniform(1e-4, 1e-3),
        "reject_k": rng.uniform(1e-6, 1e-5),
        "lam": rng.uniform(0.3, 0.9),
        "s": rng.uniform(1.01, 1.04),
    }
    return np.array([chosen[name] for name in NAMES])


def measured(seed: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    points = plan()
    truth = moesd_speedup(points, plant(seed), RIDGE_POINT)
    return points | {"speedup": truth}, truth


def sampled(table: dict[str, np.ndarray], stride: int) -> dict[str, np.ndarray]:
    """What the paper fits: every so many rows of the sorted table."""
    return {name: column[::stride] for name, column in table.items()}


@pytest.mark.parametrize("seed", range(2))
def test_21_of_228_points_give_all_planted_predictions_back(seed: int) -> None:
    table, truth = measured(seed)
    fit = fit_moesd(sampled(table, 11), BOUNDS, ridge_point=RIDGE_POINT)
    assert fit.residuals.size == 21
    assert fit.mean_error < 1e-6
    values = np.array(list(fit.parameters.values()))
    predicted = moesd_speedup(table, values, RIDGE_POINT)
    np.testing.assert_allclose(predicted, truth, rtol=1e-6)


def test_bounds_are_one_to_five_reads() -> None:
    target = load_architecture("qwen2-57b-a14b")
    low, high = BOUNDS["k2"]
    expert = 28 * 3 * 3584 * 2560 * 2
    assert low == pytest.approx(expert / (2 * 2.039e12), rel=1e-12)
    assert high == 5 * low
    assert BOUNDS["bias"][0] < 2 * target.active_parameters / (2 * 2.039e12)
    assert BOUNDS["reject_bias"] == (0, 0.01)


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        (lambda t: {k: v for k, v in t.items() if k != "speedup"}, "table"),
        (lambda t: {name: column[:9] for name, column in t.items()}, "table"),
        (lambda t: t | {"speedup": -t["speedup"]}, "speedup"),
        (lambda t: {name: column[:0] for name, column in t.items()}, "batch_size"),
    ],
)
def test_bad_tables_name_what_is_wrong(change, argument: str) -> None:
    table, _ = measured(0)
    refused(rf"^{argument}: got", fit_moesd, change(table), BOUNDS, ridge_point=RIDGE_POINT)


def location(logs: np.ndarray, clusters: np.ndarray | None = None):
    """Fit one number to logarithms, each its own cluster unless told otherwise."""
    best = best_of_starts(
        lambda x: x - logs, [np.zeros(1)], loss="soft_l1", f_scale=ROBUST_SCALE, xtol=1e-12
    )
    clusters = np.arange(logs.size) if clusters is None else clusters
    return log_fit_result(["level"], best, best.x - logs, clusters)


def wild_logs(generator: np.random.Generator, size: int) -> np.ndarray:
    """Logarithms whose errors are as large as the robust scale, some ten times that."""
    return ROBUST_SCALE * generator.standard_t(2, size)


def test_the_covariance_of_a_location_is_the_closed_form() -> None:
    """Of an M-estimator: the sum of psi squared over the square of the sum of psi'."""
    logs = wild_logs(np.random.default_rng(3), 60)
    fit = location(logs)
    error = np.log(fit.parameters["level"]) - logs
    z = (error / ROBUST_SCALE) ** 2
    psi, slope = error * (1 + z) ** -0.5, (1 + z) ** -1.5
    assert abs(psi.sum()) < 1e-6 * np.abs(psi).sum()
    expected = (psi**2).sum() / slope.sum() ** 2 * 60 / 59
    assert fit.covariance.item() == pytest.approx(expected, rel=1e-5)


def test_rows_that_hardly_name_a_parameter_make_a_record_that_is_read() -> None:
    """Errors of a factor of 7 to both sides, and a parameter that moves rows by half a per cent."""
    slopes = np.column_stack([np.ones(60), np.tile([-5e-3, -5e-3, 5e-3, 5e-3], 15)])
    best = SimpleNamespace(x=np.zeros(2), jac=slopes, active_mask=np.zeros(2))
    names, errors = ["level", "slope"], np.tile([-2.0, 2.0], 30)
    fit = log_fit_result(names, best, errors, np.arange(60))
    check_covariance("", names, fit.record["covariance"], names)
    np.testing.assert_allclose(fit.covariance.max(), 1e4, rtol=2e-3)


def test_the_covariance_is_how_far_fits_to_new_points_scatter() -> None:
    """Clusters of three points that err alike: as if there were a third as many."""
    generator, clusters = np.random.default_rng(4), np.repeat(np.arange(60), 3)
    draws = [np.repeat(wild_logs(generator, 60), 3) for _ in range(400)]
    fits = [location(logs, clusters) for logs in draws]
    levels = np.log([fit.parameters["level"] for fit in fits])
    variances = np.array([fit.covariance.item() for fit in fits])
    scattered = levels.var(ddof=1)
    error = np.hypot(scattered * np.sqrt(2 / 399), variances.std() / 20)
    assert abs(variances.mean() - scattered) < 4 * error
    assert error < 0.1 * scattered


def test_spreads_of_series_and_of_their_points_are_told_apart() -> None:
    generator = np.random.default_rng(5)
    num_series, num_points = 2000, 40
    common = 0.2 * generator.standard_normal(num_series)
    own = 0.1 * generator.standard_normal((num_series, num_points))
    errors = pd.Series((common[:, None] + own).ravel())
    series = pd.Series(np.repeat(np.arange(num_series), num_points))
    found_common, found_own = normal_spreads(errors, series)
    # half the distance of two quantiles of n normal numbers, over 1.28, errs by 0.95 / n^(1/2)
    assert abs(found_own / (0.1 * np.sqrt(39 / 40)) - 1) < 4 * 0.95 / errors.size**0.5
    assert abs(found_common / 0.2 - 1) < 4 * 0.95 / num_series**0.5
    alone = normal_spreads(errors, pd.Series(np.zeros(errors.size)))
    assert alone[0] < 0.02
    assert alone[1] == pytest.approx(np.hypot(0.2, 0.1), rel=4 * 0.95 / num_series**0.5)


@pytest.mark.parametrize(("depth_time", "expected"), [(2e-8, 0.0), (3e-7, 3e-7)])
def test_experts_walk_a_list_where_a_fit_without_errs_by_half_as_much_again(depth_time, expected):
    """Under noise of 5 %: 2 to 5 us of a walk hide in it, 38 to 77 us do not."""
    table = check_measurements(planted("experts", noise=0.05, depth_time=depth_time))
    fitting = fit_kernels(table, H200)["experts", "bf16"]
    assert ("depth_time" in fitting.result.parameters) == bool(expected)
    assert fitting.fit.depth_time == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize("kind", ["sampling", "rejection"])
def test_drawing_tokens_follows_rows_and_vocabulary(kind):
    """A vocabulary that was left out is met, far larger than those fitted."""
    rows, words = (x.ravel() for x in np.meshgrid([1, 4, 32, 256], [32e3, 64e3, 128e3, 256e3]))
    table = pd.DataFrame({
        "component": kind, "hardware": "h200_sxm", "stack": "mine", "version": "1",
        "activation_dtype": "bf16", "num_tokens": rows, "vocabulary_size": words,
        "role": np.where(words == 256e3, "judge", "fit"),
        "latency": 4e-5 + 2e-11 * rows * words,
    })  # fmt: skip
    fit = fit_kernels(check_measurements(table), H200)[kind, "bf16"].fit
    assert fit.is_held_out
    assert fit.mean_error < 1e-4
    kernels, bytes_per_word = DRAWN[kind]
    assert fit.launch_time * kernels == pytest.approx(4e-5, rel=1e-3)
    bytes_per_s = fit.activation_efficiency * H200.memory.peak_bytes_per_s
    assert bytes_per_s == pytest.approx(bytes_per_word / 2e-11, rel=1e-3)
