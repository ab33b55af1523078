"""Fits of kernels that `measure` times beyond the published tables."""

import pandas as pd
import pytest
from planted import H200, PLANTED, planted, points
from rows import each_listed

from specmodel.calibrate.fit import fit_kernels, predicted_time
from specmodel.calibrate.fit.kernels import KIND_FITS
from specmodel.calibrate.measure import check_measurements
from specmodel.core.algebra.roofline import KernelParameters

CPU = H200.with_changes(
    "hardware",
    {
        "name": "a CPU", "kind": "cpu", "fitted": {},
        "memory": {
            "capacity_bytes": 2e10, "peak_bytes_per_s": 2.4e10, "l2_bytes": 1e6, "source": "test",
        },
        "dtype": {"bf16": {"peak_flops_per_s": 1.3e12, "source": "test"}},
    },
)  # fmt: skip
COMMON = {"hardware": "cpu", "stack": "torch", "version": "2.13", "role": "fit"}


def on_cpu(kind: str, **more: float) -> tuple[pd.DataFrame, KernelParameters]:
    """Return a table of the times of planted parameters on a CPU, and these parameters."""
    if kind == "elementwise":
        rows = pd.DataFrame([
            {"num_tokens": t, "hidden_size": h, "activation_dtype": "bf16"}
            for h in (512, 1024, 4096) for t in (1, 8, 64, 512)
        ])  # fmt: skip
    else:
        rows = points(kind)
        tokens = "batch_size" if kind == "attention" else "num_tokens"
        rows = rows[rows[tokens] <= 256].reset_index(drop=True)
    if kind == "attention":
        rows = pd.concat([rows.assign(query_tokens=q) for q in (1, 4, 16)], ignore_index=True)
    base = PLANTED.get(kind, {"memory_efficiency": 0.3}) | {"launch_time": 3e-5} | more
    base = {name: value for name, value in base.items() if name not in KIND_FITS[kind].not_on_cpu}
    parameters = KernelParameters(**base, sharpness=2.0)
    latency = predicted_time(kind, rows, CPU, parameters)
    return rows.assign(component=kind, latency=latency, **COMMON), parameters


@each_listed
def test_a_fit_on_a_cpu_recovers_what_was_planted(kind: str, more: dict[str, float]) -> None:
    table, planted_parameters = on_cpu(kind, **more)
    fitting = fit_kernels(check_measurements(table), CPU)[kind, "bf16"]
    assert fitting.fit.mean_error < 1e-3
    assert fitting.fit.sharpness == planted_parameters.sharpness
    assert set(KIND_FITS[kind].on_cpu) <= set(fitting.fit.varied)
    assert "tile_width" not in fitting.fit.varied
    for name in more:
        expected = float(getattr(planted_parameters, name))
        assert fitting.result.parameters[name] == pytest.approx(expected, rel=0.02)


def test_experts_compute_no_faster_than_dense_products() -> None:
    """With 0.7 planted and products at 0.5, the fit ends at the bound and reports it."""
    table = pd.concat([planted("gemm", compute_efficiency=0.5), planted("experts")])
    fits = fit_kernels(check_measurements(table), H200)
    experts, gemm = fits["experts", "bf16"], fits["gemm", "bf16"]
    assert gemm.fit.compute_efficiency == pytest.approx(0.5, rel=1e-3)
    assert experts.fit.compute_efficiency == pytest.approx(gemm.fit.compute_efficiency, rel=1e-4)
    assert "compute_efficiency" in experts.fit.at_bound
    place = experts.fit.varied.index("compute_efficiency")
    assert experts.fit.covariance[place][place] < 1e-12
    assert gemm.fit.at_bound == []
    alone = fit_kernels(check_measurements(planted("experts")), H200)["experts", "bf16"]
    assert (alone.fit.compute_efficiency, alone.fit.at_bound) == (pytest.approx(0.7, rel=1e-3), [])
