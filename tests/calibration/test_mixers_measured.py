"""Latent attention and recurrences: the timed work, published times, errors on other rows."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hybrids import one_delta_layer
from rows import each_listed, listed
from strategies import pass_of

from published import datasets
from published.mixers import RECURRENCES, core_of_modules, kimi_recurrence, recurrence, recurrences
from specmodel import HardwareProfile, load_hardware
from specmodel.calibrate.fit import fit_kernels, predicted_time, work_of
from specmodel.calibrate.fit.timed_work import judge
from specmodel.calibrate.measure import check_measurements
from specmodel.core.cost import component_time
from specmodel.core.layers.kinds import KINDS
from specmodel.core.machines.fallbacks import stack_kernels

KIMI_TIMES = pd.read_csv(Path(__file__).parents[1] / "data/kda_verify_times.csv", comment="#")
HEADS = 96
KIMI, DTYPES = "kimi_recurrence", ("fp32", "bf16")


def test_the_core_is_what_a_module_takes_longer_than_without_context():
    base = {"num_heads": 8, "kv_dtype": "bf16", "quantization": "bfloat16", "batch_size": 1}
    known = {"sliding_window": np.nan}
    times = {2: 99e-6, 4: 100e-6, 16: 100e-6, 32: 101e-6, 1024: 105e-6, 65536: 150e-6}
    rows = [base | known | {"context_length": c, "latency": t} for c, t in times.items()]
    core = core_of_modules(pd.DataFrame(rows), 7e-6).set_index("context_length")["latency"]
    assert core.index.tolist() == [32, 65536]  # 5 us of 105 are lost in the noise
    assert core.tolist() == pytest.approx([7e-6, 57e-6])


def published(part: pd.DataFrame, kind: str, hardware: str, stack: str) -> pd.DataFrame:
    named = part.assign(component=kind, hardware=hardware, stack=stack, version="1")
    return check_measurements(named)


@listed
def test_latent_attention_of_heads_not_fitted(hardware, stack, limits) -> None:
    """Recorded errors, which `test_published_stacks` compares with the tables."""
    for dtype, most in limits.items():
        fit = load_hardware(hardware).fitted[stack].latent_attention[dtype]
        assert fit.is_held_out
        assert fit.median_error <= most, dtype


def verified(hardware: str) -> tuple[HardwareProfile, pd.DataFrame, pd.DataFrame]:
    """Return a device, all timings of vLLM's verify passes, and timings of a recurrence."""
    device = load_hardware(hardware)
    stack, versions = RECURRENCES
    raw = datasets.read_timings("kda", hardware, stack, versions["kda"])
    is_verify = (raw["phase"] == "verify") & ~raw["kernel_source"].str.contains("conv")
    every = raw[is_verify].assign(state_dtype="fp32", activation_dtype="bf16")
    return device, every, published(recurrences(hardware, device), "recurrence", hardware, stack)


@pytest.mark.dataset
@pytest.mark.parametrize(("hardware", "of_all"), [("h200_sxm", 0.065), ("b200", 0.095)])
def test_one_law_decodes_and_verifies(hardware, of_all):
    """Errors on rows that were not fitted; `of_all` includes rows whose states were in a cache."""
    device, every, rows = verified(hardware)
    fitting = fit_kernels(rows, device)["recurrence", "fp32"]
    parameters = fitting.fit.parameters
    assert fitting.fit.median_error <= 0.08
    judged = judge("recurrence", rows[rows["role"] == "judge"], device, parameters)
    is_verify = judged["query_tokens"] > 1
    assert is_verify.sum() > 20
    assert judged[is_verify]["error"].abs().mean() <= 0.04
    of_gdn = judged[judged["num_key_heads"] < judged["num_value_heads"]]
    assert of_gdn["error"].abs().median() <= 0.04
    is_fitted = every["num_value_heads"].isin([12, 48])
    is_fitted &= every["batch_size"].isin([1, 4, 16, 64, 256])
    assert len(every[~is_fitted]) == 78
    others = judge("recurrence", every[~is_fitted], device, parameters)
    assert others["error"].abs().mean() <= of_all


@pytest.mark.dataset
def test_verifying_over_decoding_is_as_measured():
    """Layers of 96 heads at batch 256 on H200: 1.58, 2.57 and 4.80 times a decode step."""
    device, _, rows = verified("h200_sxm")
    parameters = fit_kernels(rows, device)["recurrence", "fp32"].fit.parameters
    is_point = (rows["num_value_heads"] == 96) & (rows["batch_size"] == 256)
    points = rows[is_point & (rows["num_key_heads"] == 96)].sort_values("query_tokens")
    assert points["query_tokens"].tolist() == [1, 2, 4, 8]
    measured = (points["latency"] / points["latency"].iloc[0]).to_numpy()[1:]
    assert measured == pytest.approx([1.58, 2.57, 4.80], abs=0.01)
    times = predicted_time("recurrence", points, device, parameters)
    assert times[1:] / times[0] == pytest.approx(measured, rel=0.1)


@pytest.mark.dataset
def test_how_far_a_law_of_recurrences_misses_those_of_other_engines():
    """The assumed errors of untimed kernels are those on all tables of SGLang and TensorRT-LLM."""
    common, errors, apart = [], [], []
    for name, hardware, engine, version in datasets.known_tables():
        device = load_hardware(hardware)
        law = device.fitted.get("vllm")
        if name not in ("gdn", "kda") or engine == "vllm" or not (law and law.recurrence):
            continue
        rows = recurrence(datasets.read_timings(name, hardware, engine, version), device)
        rows = rows[rows["role"] != "skip"]
        for _, part in rows.groupby(rows["query_tokens"] > 1):
            points = part.reset_index(drop=True)
            parameters = law.recurrence["fp32"].parameters
            times = predicted_time("recurrence", points, device, parameters)
            common.append(np.log(points["latency"] / times).mean())
            errors.append((times / points["latency"] - 1).abs().mean())
        if rows["query_tokens"].max() > 1:
            apart.append(common[-1] - common[-2])
    assert (len(common), len(apart)) == (28, 7)
    error, of_shape, of_row = KINDS["state_space"].untimed
    assert np.mean(errors) == pytest.approx(error, abs=0.005)
    for found, spread in ((common, of_shape), (apart, of_row)):
        assert np.sqrt(np.mean(np.square(found))) == pytest.approx(spread, abs=0.005)


# Kimi's recurrence


def rows_of(table):
    """Return timings of one layer as a table of measurements."""
    sizes = {"num_key_heads": HEADS, "num_value_heads": HEADS}
    sizes |= {"key_head_dim": 128, "value_head_dim": 128}
    rows = table.rename(columns={"verify_tokens": "query_tokens"}).drop(columns="hardware")
    return rows.assign(**sizes, state_dtype="fp32", activation_dtype="bf16")


def test_a_chunk_of_a_prompt_is_no_walk():
    """Kernels for prompts compute many tokens at once: one step, because one state is written."""
    chunk = {"batch_size": 1, "tokens_per_sequence": 512, "logits_per_sequence": 1}
    work = pass_of(one_delta_layer(HEADS), **chunk)
    assert work.components["recurrence"].depth == 1


@pytest.mark.parametrize("hardware", ["h200_sxm", "b200"])
def test_vllm_takes_as_long_as_published(hardware):
    """With the fit of the package, to layers of 12 and 48 heads and to gated delta nets."""
    table = KIMI_TIMES[KIMI_TIMES.hardware == hardware].reset_index(drop=True)
    device = load_hardware(hardware)
    kernels = stack_kernels("vllm", device.fitted["vllm"])
    assert kernels.place(KIMI, *DTYPES) == ("recurrence", "fp32")
    work = work_of(KIMI, rows_of(table))
    times = component_time(work, device, kernels.parameters(KIMI, *DTYPES)).total_time
    error = np.abs(times / table.latency - 1)
    is_cold = table.batch_size * HEADS * 128 * 128 * 4 > 1.5 * device.memory.l2_bytes
    assert is_cold.sum() == 12
    assert error[is_cold].median() <= 0.04
    assert error[is_cold].max() <= 0.10


def kimi_errors(hardware, stack, kind):
    """Return the errors of decoding and of verifying on rows that were not fitted."""
    device = load_hardware(hardware)
    rows = kimi_recurrence(hardware, stack, device)
    if rows.empty:
        rows = recurrence(datasets.read_timings("kda", hardware, stack, "0.1.dev19262"), device)
    table = published(rows, kind, hardware, stack)
    fit = getattr(device.fitted[stack], kind)["fp32"]
    errors = judge(kind, table[table["role"] == "judge"], device, fit.parameters)
    is_verify = errors["query_tokens"] > 1
    return [float(errors[mask]["error"].abs().median()) for mask in (~is_verify, is_verify)]


@pytest.mark.dataset
@each_listed
def test_published_rows_that_were_not_fitted(hardware, stack, decoding, verifying):
    """Largest median errors: SGLang has its own fit, vLLM uses the fit of all recurrences."""
    kind = KIMI if stack == "sglang" else "recurrence"
    errors = kimi_errors(hardware, stack, kind)
    assert errors[0] <= decoding
    assert errors[1] <= verifying
    if stack == "sglang":
        others = kimi_errors(hardware, stack, "recurrence")
        assert others[1] > 2 * errors[1], "what stands for all stacks would have done"
