"""Fits recover what was planted, say what the data do not determine, and refuse bad tables."""

from dataclasses import fields

import numpy as np
import pytest

from specmodel.algebra.moesd import MoESDParameters
from specmodel.algebra.speculation import step_efficiency
from specmodel.base.errors import InputError
from specmodel.calibrate import fitting
from specmodel.records.architecture import load_architecture
from specmodel.records.hardware import load_hardware

NAMES = [field.name for field in fields(MoESDParameters)]
RIDGE_POINT = 153.0
BOUNDS = fitting.moesd_bounds(
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
    return {
        "batch_size": B,
        "draft_length": gamma,
        "step_efficiency": step_efficiency(0.85, gamma),
        "num_experts": np.full(k.size, 64.0),
        "experts_per_token": k,
    }


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


def measured(seed: int, noise: float = 0.0) -> tuple[dict[str, np.ndarray], np.ndarray]:
    points = plan()
    truth = fitting.moesd_speedup(points, plant(seed), RIDGE_POINT)
    factor = 1 + noise * np.random.default_rng(seed + 100).standard_normal(truth.size)
    return points | {"speedup": truth * factor}, truth


def sampled(table: dict[str, np.ndarray], stride: int) -> dict[str, np.ndarray]:
    """What the paper fits: every so many rows of the sorted table."""
    return {name: column[::stride] for name, column in table.items()}


@pytest.mark.parametrize("seed", range(4))
def test_21_of_228_points_give_all_planted_predictions_back(seed: int) -> None:
    table, truth = measured(seed)
    fit = fitting.fit_moesd(sampled(table, 11), BOUNDS, ridge_point=RIDGE_POINT)
    assert fit.num_points == 21
    assert fit.mean_error < 1e-6
    values = np.array(list(fit.parameters.values()))
    predicted = fitting.moesd_speedup(table, values, RIDGE_POINT)
    np.testing.assert_allclose(predicted, truth, rtol=1e-6)


def test_what_a_ratio_cannot_determine_is_named() -> None:
    table, _ = measured(0)
    fit = fitting.fit_moesd(table, BOUNDS, ridge_point=RIDGE_POINT)
    assert any("not determined" in warning for warning in fit.warnings)


def test_noisy_points_are_predicted_within_their_standard_error() -> None:
    table, truth = measured(1, noise=0.01)
    fit = fitting.fit_moesd(table, BOUNDS, ridge_point=RIDGE_POINT)
    values = np.array(list(fit.parameters.values()))
    predicted = fitting.moesd_speedup(table, values, RIDGE_POINT)
    step = 1e-6 * values
    moved = np.stack([
        fitting.moesd_speedup(table, values + np.diag(step)[i], RIDGE_POINT)
        for i in range(values.size)
    ])  # fmt: skip
    jacobian = (moved - predicted) / step[:, None]
    error = np.sqrt(np.einsum("ip,ij,jp->p", jacobian, fit.covariance, jacobian))
    assert (np.abs(predicted - truth) < 3 * error + 1e-4).mean() > 0.97
    assert 0.005 < np.median(np.abs(fit.residuals)) < 0.01


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
        (lambda t: t | {"speedup": t["speedup"][:5]}, "table"),
        (lambda t: {name: column[:9] for name, column in t.items()}, "table"),
        (lambda t: t | {"speedup": -t["speedup"]}, "speedup"),
        (lambda t: t | {"batch_size": t["batch_size"] * np.nan}, "batch_size"),
        (lambda t: {name: column[:0] for name, column in t.items()}, "batch_size"),
    ],
)
def test_bad_tables_name_what_is_wrong(change, argument: str) -> None:
    table, _ = measured(0)
    with pytest.raises(InputError, match=rf"^{argument}: got"):
        fitting.fit_moesd(change(table), BOUNDS, ridge_point=RIDGE_POINT)
