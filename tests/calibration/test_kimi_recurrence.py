"""Kimi's recurrence: the work that rows timed, published times, errors on what was not fitted."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hybrids import one_delta_layer
from rows import each_listed
from strategies import pass_of

from published import datasets
from published.mixers import kimi_recurrence, recurrence
from specmodel import load_hardware
from specmodel.calibrate.fit import work_of
from specmodel.calibrate.fit.timed_work import judge
from specmodel.calibrate.measure import check_measurements
from specmodel.core.cost import component_time
from specmodel.core.machines.fallbacks import stack_kernels

TIMES = pd.read_csv(Path(__file__).parents[1] / "data/kda_verify_times.csv", comment="#")
HEADS = 96
KIND, DTYPES = "kimi_recurrence", ("fp32", "bf16")


def rows_of(table):
    """Timings of one layer as a table of measurements."""
    return pd.DataFrame(
        {
            "batch_size": table["batch_size"], "query_tokens": table["verify_tokens"],
            "num_key_heads": HEADS, "num_value_heads": HEADS,
            "key_head_dim": 128, "value_head_dim": 128,
            "state_dtype": "fp32", "activation_dtype": "bf16", "latency": table["latency"],
        }
    )  # fmt: skip


def test_a_chunk_of_a_prompt_is_no_walk():
    """Kernels for prompts compute many tokens at once: one step, as one state is written."""
    chunk = {"batch_size": 1, "tokens_per_sequence": 512, "logits_per_sequence": 1}
    work = pass_of(one_delta_layer(HEADS), **chunk)
    assert work.components["recurrence"].depth == 1


@pytest.mark.parametrize("hardware", ["h200_sxm", "b200"])
def test_vllm_takes_as_long_as_published(hardware):
    """By what ships, fitted to 12 and 48 heads beside gated delta nets."""
    table = TIMES[TIMES.hardware == hardware].reset_index(drop=True)
    device = load_hardware(hardware)
    kernels = stack_kernels("vllm", device.fitted["vllm"])
    assert kernels.place(KIND, *DTYPES) == ("recurrence", "fp32")
    work = work_of(KIND, rows_of(table))
    times = component_time(work, device, kernels.parameters(KIND, *DTYPES)).total_time
    error = np.abs(times / table.latency - 1)
    is_cold = table.batch_size * HEADS * 128 * 128 * 4 > 1.5 * device.memory.l2_bytes
    assert is_cold.sum() == 12
    assert error[is_cold].median() <= 0.04
    assert error[is_cold].max() <= 0.10


def judged(hardware, stack, kind):
    """Errors of decoding and of verifying on rows that were not fitted."""
    device = load_hardware(hardware)
    rows = kimi_recurrence(hardware, stack, device)
    if rows.empty:
        rows = recurrence(datasets.read_timings("kda", hardware, stack, "0.1.dev19262"), device)
    named = {"component": kind, "hardware": hardware, "stack": stack, "version": "1"}
    table = check_measurements(rows.assign(**named))
    fit = getattr(device.fitted[stack], kind)["fp32"]
    errors = judge(kind, table[table["role"] == "judge"], device, fit.parameters)
    is_verify = errors["query_tokens"] > 1
    return [float(errors[mask]["error"].abs().median()) for mask in (~is_verify, is_verify)]


@pytest.mark.dataset
@each_listed
def test_published_rows_that_were_not_fitted(hardware, stack, decoding, verifying):
    """Largest median errors: SGLang's by a fit of its own, vLLM's by the recurrences of all."""
    kind = KIND if stack == "sglang" else "recurrence"
    errors = judged(hardware, stack, kind)
    assert errors[0] <= decoding
    assert errors[1] <= verifying
    if stack == "sglang":
        others = judged(hardware, stack, "recurrence")
        assert others[1] > 2 * errors[1], "what stands for all stacks would have done"
