"""The stored results are complete, agree with their fits, and have the stated errors."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
from rows import cases, each_listed, slow, values_of

import real_judge
import specmodel
from specmodel import load_hardware
from specmodel.calibrate.fit import fit_kernels
from specmodel.calibrate.measure import read_measurements
from specmodel.plan.explaining import pass_components

RESULTS = Path(__file__).parents[2] / "calibration" / "results"
CPU = RESULTS / "intel_xeon_2_threads"
EPYC = RESULTS / "amd_epyc_2_threads"
GPUS = ("h100_sxm", "h200_sxm")
LOOPS = (CPU.name, EPYC.name, *(f"{gpu}_torch" for gpu in GPUS))
FIGURES = {(d, q): own for d, q, *own in values_of("cases/calibration.txt", "figures of loops")}


@cases(
    "profile rows most",
    (CPU / "cpu.toml", CPU / "cpu.csv", 0.12),
    (EPYC / "cpu.toml", EPYC / "cpu.csv", 0.08),
    (EPYC / "cpu_fp32.toml", EPYC / "cpu_fp32.csv", 0.11),
    *slow(*((gpu, RESULTS / f"{gpu}_torch" / "gpu.csv", 0.14) for gpu in GPUS)),
)
def test_the_profile_is_what_its_rows_give(profile, rows, most):
    hardware = load_hardware(profile)
    fits = fit_kernels(read_measurements(rows), hardware)
    assert {kind for kind, _ in fits} == {"experts", "gemm", "attention", "elementwise"}
    for (kind, dtype), fitting in fits.items():
        recorded, fitted = getattr(hardware.fitted["torch"], kind)[dtype], fitting.fit
        assert recorded.is_held_out
        assert fitted.mean_error == pytest.approx(recorded.mean_error, rel=0.02)
        assert recorded.mean_error < most


def test_attention_on_a_cpu_without_bf16_is_faster_than_products_and_below_its_roof():
    """Attention computes in fp32 with 80 GFLOP/s; products in bf16 reach 19."""
    hardware = load_hardware(EPYC / "cpu.toml")
    fit, peak = hardware.fitted["torch"].attention["bf16"], hardware.peak_flops_per_s("bf16")
    assert 7.5e10 < fit.compute_efficiency * peak < 8.5e10
    assert fit.sharpness == 1  # reading and arithmetic add up
    given = {"target": "qwen2-0.5b", "drafter": "ngram", "batch_size": 64, "draft_length": 7}
    p = specmodel.predict(hardware=hardware, acceptance=0.5, context_length=8192, **given)
    table = pass_components(p).query("kind == 'attention'")
    assert (table["flops_per_s"] > peak).any()
    assert (table["peak_share"] <= 1).all()


@pytest.mark.parametrize("folder", LOOPS)
def test_the_loop_closed_within_the_figures(folder):
    table = pd.read_csv(RESULTS / folder / "closed_loop_summary.csv")
    for quantity in ("target_efficiency", "speedup"):
        part = table[table["quantity"] == quantity]
        mean, worst, floor = FIGURES["cpu" if "threads" in folder else "gpu", quantity]
        assert len(part) >= 18
        assert part["error"].abs().mean() <= mean
        assert part["error"].abs().max() <= worst
        assert part["split_half"].mean() <= floor
        error = part["predicted"] / part["measured"] - 1
        assert error.to_numpy() == pytest.approx(part["error"].to_numpy(), abs=1e-4)


def test_a_schedule_is_read_as_vllm_reads_it():
    drafts = {"num_speculative_tokens": 5}
    assert real_judge.scheduled_length(drafts, 7) == 5
    drafts |= {"num_speculative_tokens_per_batch_size": [[1, 2, 5], [3, 6, 2], [9, 12, 1]]}
    lengths = [real_judge.scheduled_length(drafts, batch) for batch in (1, 2, 3, 6, 8, 9, 12, 40)]
    assert lengths == [5, 5, 2, 2, 2, 1, 1, 1]


@each_listed
def test_real_engines_are_predicted_as_is_stated(tmp_path, name, number, ratio, worst, said):
    """On a CPU, vLLM verifies the states of hybrids one after another; the fit finds this time."""
    folder = tmp_path / "loop"
    shutil.copytree(RESULTS / name, folder)
    lines = real_judge.judge(folder, "vllm")
    assert all(text in lines for text in said)
    assert "nothing known explains" not in lines
    judged, recorded = (pd.read_csv(path / "judged.csv") for path in (folder, RESULTS / name))
    assert judged["ratio_error"].to_numpy() == pytest.approx(recorded["ratio_error"], abs=2e-4)
    unseen = judged[~judged["is_fitted"]]
    assert len(unseen) == number
    assert unseen["ratio_error"].abs().mean() == pytest.approx(ratio, abs=0.003)
    assert unseen["ratio_error"].abs().max() == pytest.approx(worst, abs=0.003)
    assert unseen["speedup_error"].abs().mean() <= 0.065


VLLM = RESULTS / "vllm_cpu_1_thread"


HYBRID = RESULTS / "vllm_cpu_hybrid"


def test_the_schedule_was_drafted_by():
    drafts = json.loads((VLLM / "schedule.json").read_text())
    served = pd.read_csv(VLLM / "served.schedule.csv")
    for row in served.to_dict("records"):
        length = real_judge.scheduled_length(drafts, row["concurrency"])
        shares = [float(share) for share in str(row["accepted_by_position"]).split()]
        assert max(shares[length:], default=0.0) < 0.05
        assert min(shares[:length]) > 0.5


def test_a_user_with_that_hybrid_is_told(tmp_path, run):
    where = f"--target {HYBRID}/target/config.json --drafter mtp --hardware {HYBRID}/cpu.toml"
    where += f" --engine vllm --stack torch --output {tmp_path}/mine.toml"
    served = " ".join(f"{HYBRID}/served.{length}.csv" for length in (0, 1))
    out = run(f"fit engine {served} {where}", one_line=True)
    assert "Note: these runs are explained better by 4.2ms of host time for each request" in out
    assert "Warning" not in out
