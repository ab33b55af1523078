"""The shipped calibration against what it was not fitted to, and its intervals."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from printed import refused
from published_tables import read_table
from rows import each_listed

from overheads import fit_engine, read_served
from published.tables import STACKS
from specmodel import Acceptance, list_hardware, load_engine, load_hardware, predict
from specmodel.calibrate.fit.calibration import measured_profile
from specmodel.calibrate.measure.kernels.device import DeviceInfo
from specmodel.core.machines import load_typical
from specmodel.core.machines.kernels import fitted_dtype

TABLES = Path(__file__).parents[2] / "calibration" / "tables"


def test_every_fitted_profile_has_all_kinds_and_one_default() -> None:
    fitted = {name: load_hardware(name).fitted for name in list_hardware()}
    fitted = {name: stacks for name, stacks in fitted.items() if stacks}
    assert {hardware for hardware, _, _ in STACKS} | {"a800_sxm_80gb", "rtx_5090"} == set(fitted)
    for stacks in fitted.values():
        assert sum(stack.is_default for stack in stacks.values()) == 1
        for stack in stacks.values():
            assert {"experts", "gemm", "attention"} <= {kind for kind, _, _ in stack.fits()}


@each_listed
def test_an_impossible_covariance_is_refused(covariance, expected: str) -> None:
    gemm = load_typical().gemm["bf16"]
    changes = {"varied": ["launch_time", "memory_efficiency"], "covariance": covariance}
    refused(rf"^stack\.covariance: got .*{expected}", gemm.with_changes, "stack", changes)
    twice = {"varied": ["launch_time", "launch_time"], "covariance": np.eye(2).tolist()}
    refused(r"^stack\.varied: got .*names from .*each once", gemm.with_changes, "stack", twice)
    overheads = {"fit.varied": ["draft_kernel_time", "reject_time"], "fit.covariance": covariance}
    engine = load_engine("vllm-moesd-2025")
    message = rf"^engine\.fit\.covariance: got .*{expected}"
    refused(message, engine.with_changes, "engine", overheads)


def test_what_no_measurement_decides_is_said() -> None:
    def said(hardware="h200_sxm", target="deepseek-v3", tensor_parallel=8, **more):
        return predict(
            target=target, hardware=hardware, drafter="eagle", batch_size=1, draft_length=3,
            acceptance=0.7, engine="ideal", tensor_parallel=tensor_parallel, **more,
        ).assumptions  # fmt: skip

    guessed, fitted = {"latent_attention", "link_efficiency", "all_reduce"}, said()
    assert not guessed & set(fitted)
    h200 = load_hardware("h200_sxm")
    at_peak = said(h200.with_changes("hardware", {"link.efficiency": 1.0}))
    assert at_peak["link_efficiency"] == 1.0
    untimed = said("a100_sxm_80gb")
    assert str(untimed["latent_attention"]) == "as fast as grouped attention"
    others = said("a800_sxm_80gb", "llama-3.1-70b")
    assert str(others["all_reduce"]).startswith("typical of other engines or GPUs")
    experts = h200.fitted["trtllm"].experts["fp8_block"]  # blocks are the model's own
    assert experts.at_bound
    for name in experts.at_bound:
        told = f"experts {name} {getattr(experts, name):.3g}"
        assert told in str(fitted["fits_at_bound"])
    for plain in (said("a100_sxm_80gb", "llama-3.1-8b", 1), said(stack="datasheet")):
        assert not {*guessed, "fits_at_bound"} & set(plain)


@pytest.mark.slow
def test_the_engine_of_2025_is_what_the_fit_gives() -> None:
    measured = read_served(TABLES / "moesd_vllm_a800.csv")
    shipped, left_out = load_engine("vllm-moesd-2025"), ["target", "draft_length"]
    varied = shipped.fit.varied
    fitting = fit_engine(measured, shipped, varied, date="2026-11-21", leave_out=left_out)
    own = {name: getattr(shipped, name) for name in varied}
    assert fitting.result.parameters == pytest.approx(own, rel=0.05)
    assert fitting.result.mean_error <= 0.05
    assert fitting.profile.fit.left_out_error["target"] <= 0.12


@pytest.mark.slow
def test_intervals_hold_for_cells_of_table_1_left_out() -> None:
    """Each cell by an engine fitted without it, and without five others.

    The spread that the engine states is of whole targets and lengths left out, which a cell left
    out is not. With kernels whose products are walked it is 0.065, where it was 0.058, and the
    intervals hold 22 or 23 cells of 24 by which draws are taken, where they held 21: as 80 % of 24
    would in 17 to 22 (88 %).
    """
    table, shipped = (read_served(TABLES / "moesd_vllm_a800.csv"), load_engine("vllm-moesd-2025"))
    assert shipped.fit is not None
    held, num_fits, engines = [], 4, []
    for fold in range(num_fits):
        others = table.drop(index=range(fold, len(table), num_fits)).reset_index(drop=True)
        fitting = fit_engine(others, shipped, shipped.fit.varied, date="2026-11-21")
        engines.append(fitting.profile.with_changes("engine", {"fit.spread": shipped.fit.spread}))
    for i, row in enumerate(table.to_dict("records")):
        p = predict(
            target=row["target"], drafter=row["drafter"], hardware=row["hardware"],
            tensor_parallel=2, engine=engines[i % num_fits], draft_length=row["draft_length"],
            batch_size=[int(size) for size in row["batch_size"].split()],
            acceptance=Acceptance(step_efficiency=row["step_efficiency"]),
            context_length=row["context_length"], interval=True,
        )  # fmt: skip
        peak, interval = p.speedup.argmax(), p.intervals["speedup"]
        held.append(interval.low[peak] <= row["value"] <= interval.high[peak])
    assert 0.70 <= np.mean(held) <= 23 / 24


def test_decode_times_of_a_model_and_engine_that_nothing_was_fitted_to() -> None:
    apart, errors = load_engine("ideal").with_changes("engine", {"fuses_all": False}), []
    for row in read_table("decode_times.csv"):
        p = predict(
            target=row["target"], hardware=row["hardware"], drafter="ngram", draft_length=0,
            batch_size=int(row["batch_size"]), context_length=int(row["context_length"]),
            tensor_parallel=int(row["tensor_parallel"]), acceptance=0.5, engine=apart,
        )  # fmt: skip
        errors.append(p.forward_time[()] / float(row["forward_time"]) - 1)
    assert np.mean(np.abs(errors)) <= 0.09
    assert np.max(np.abs(errors)) <= 0.20
    assert abs(np.mean(errors)) <= 0.03


@pytest.mark.parametrize("layouts", [[(8, 1), (8, 4), (8, 8)], [(8, 8), (16, 16), (4, 4)]])
def test_an_engine_is_fitted_to_layouts_as_they_ran(layouts: list[tuple[int, int]]) -> None:
    """Planted pass times of attention in replicas: those that follow need not be given."""
    engine = load_engine("ideal").with_changes("engine", {"pass_time": 2e-3})
    given = {"target": "deepseek-v3", "drafter": "mtp", "hardware": "h200_sxm"}
    given |= {"draft_length": 1, "context_length": 1000}
    rows = []
    for replicas, spread in layouts:
        split = {"data_parallel": replicas, "expert_parallel": spread}
        p = predict(**given, **split, engine=engine, batch_size=16, acceptance=0.7)
        row = {"batch_size": "16", "quantity": "forward_time", "value": float(p.forward_time)}
        follows = all(a == b for a, b in layouts)
        rows.append(given | row | ({"expert_parallel": spread} if follows else split))
    fitting = fit_engine(pd.DataFrame(rows), load_engine("ideal"), ["pass_time"], date="2026-11-21")
    assert fitting.result.parameters["pass_time"] == pytest.approx(2e-3, rel=1e-6)


TOLD = {"kind": "cpu", "name": "x", "hardware": "x", "driver": "", "torch": "2.13"}
INFO = DeviceInfo(**TOLD, num_multiprocessors=1, capacity_bytes=1e9, l2_bytes=1)
SIZES = {"num_tokens": 8, "input_size": 1000, "output_size": 1000, "bytes": None, "note": None}
PRODUCT = {"component": "gemm", "point": "gemm-1", "latency": 1e-3, **SIZES}


def test_a_size_that_is_no_number_is_named_before_rates_are_taken() -> None:
    rows = pd.DataFrame([PRODUCT, PRODUCT | {"point": "gemm-2", "output_size": "6 4"}])
    refused("output_size", measured_profile, rows, INFO)


def test_each_dtype_of_arithmetic_has_the_peak_of_its_fastest_product() -> None:
    """Weights of 8 bits at 16-bit activations compute in 16; the fastest reading is of 16 bits."""
    names = ["activation_dtype", "weight_dtype", "num_tokens", "latency"]
    timed = [("bf16", "bf16", 8, 4e-3), ("bf16", "int8", 8, 2e-3), ("int8", "int8", 8, 1e-3)]
    rows = pd.DataFrame([*timed, ("bf16", "bf16", 1, 1.6e-3)], columns=names)
    told = {name: PRODUCT[name] for name in PRODUCT if name not in names}
    profile = measured_profile(rows.assign(**told | {"point": range(4)}), INFO)
    peaks = {dtype: peak.peak_flops_per_s for dtype, peak in profile.dtype.items()}
    assert peaks == {"bf16": pytest.approx(8e9), "int8": pytest.approx(1.6e10)}
    assert profile.memory.peak_bytes_per_s == pytest.approx(2 * 1e6 / 1.6e-3)


def test_a_parameter_at_a_bound_has_no_variance_and_is_named() -> None:
    for name in list_hardware():
        for stack in load_hardware(name).fitted.values():
            for _, _, fit in stack.fits():
                assert set(fit.at_bound) <= set(fit.varied)
                for place, parameter in enumerate(fit.varied):
                    variance = fit.covariance[place][place]
                    assert variance < 1e-12 or parameter not in fit.at_bound


def test_typical_kernels_state_the_error_on_a_device_left_out() -> None:
    typical = load_typical()
    limits = {"experts": 0.16, "gemm": 0.12, "attention": 0.25, "elementwise": 0.6}
    limits |= {"latent_attention": 0.2, "recurrence": 0.06, "sparse_attention": 0.4}
    for kind, limit in limits.items():
        fit = getattr(typical, kind)[fitted_dtype(kind)]
        assert 0.04 < fit.mean_error < limit
