"""Times to the first token: what they are made of, the constant of an engine, what is judged."""

import numpy as np
import pandas as pd
import pytest
from printed import refused
from rows import each_listed
from test_serving import ROW

from first_token import (
    constants_of_other_models,
    first_token_time,
    fit_constant,
    judge_first_tokens,
)
from specmodel import deploy
from specmodel.calibrate.fit.measured import read_serving
from specmodel.core.cost import prefill_pass
from specmodel.core.machines.engine import first_token_constants

LONG = ROW | {
    "isl": 8192, "osl": 1024, "mean_context": 7834, "concurrency": 4, "measured_ttft_ms": 300.0,
}  # fmt: skip


def test_alone_a_request_waits_for_its_prefill_and_the_engine():
    assert first_token_time(0.3, 0.01, 1.0, 1000.0, 0.05) == pytest.approx(0.35)


def test_others_delay_it_by_a_step_and_half_of_the_prefills_it_meets():
    prefill, step, length = 0.3, 0.01, 970.0
    cycle = prefill + length * step  # 10 s, 3 % of them in prefill
    for requests in (2.0, 4.0):
        expected = prefill + step + (requests - 1) * (prefill / cycle) * prefill / 2
        assert first_token_time(prefill, step, requests, length) == pytest.approx(expected)


def test_the_constant_is_the_one_of_least_log_error():
    base = np.array([0.1, 0.2, 0.4, 0.8])
    assert fit_constant(base, base + 0.15) == pytest.approx(0.15)
    assert fit_constant(base, base * 0.5) == 0.0
    wild = base + np.array([0.15, 0.15, 0.15, 5.0])
    assert fit_constant(base, wild) == pytest.approx(0.15)


def test_a_model_left_out_has_no_say_in_its_constant():
    rows = pd.DataFrame({
        "model": ["a", "b", "b", "b", "c"], "base_time": [0.1, 0.2, 0.3, 0.1, 0.2],
        "engine": ["vllm", "vllm", "vllm", "sglang", "trtllm"],
        "measured": [0.9, 0.3, 0.4, 9.0, 0.25],
    })  # fmt: skip
    constants = constants_of_other_models(rows)
    assert constants[0] == pytest.approx(0.1)  # of b on vllm
    assert constants[1] == constants[2] == pytest.approx(0.8)  # of a on vllm
    assert round(constants[3], 9) in (0.8, 0.05)  # of others on other engines
    rows.loc[0, "measured"] = 90.0
    assert constants_of_other_models(rows)[0] == constants[0]
    assert constants_of_other_models(rows[rows["model"] == "b"]).isna().all()


def test_a_row_is_prefill_waiting_and_constant(table):
    short, many = {"isl": 1024, "mean_context": 1382}, {"concurrency": 16}
    others = (short, many, {"measured_ttft_ms": None}, {"mtp": "on"})
    read = read_serving(table(LONG, *(LONG | other for other in others)))
    judged, refused = judge_first_tokens(read)
    assert judged["row"].tolist() == ["0"]
    assert list(refused) == ["1", "2", "3"]
    row = judged.iloc[0]
    deployment, _ = deploy(
        target="llama-3.1-70b", hardware="h100_sxm", stack="trtllm", tensor_parallel=8,
        weight_dtype="bf16", activation_dtype="bf16", kv_dtype="bf16",
    )  # fmt: skip
    assert row["prompt_length"] == 7373  # 0.9 of the nominal length, as the mean context says
    prefill = float(prefill_pass(deployment, 7373.0).total_time)
    assert row["prefill_time"] == pytest.approx(prefill)
    assert prefill < row["base_time"] < 1.3 * prefill
    constant = first_token_constants()["trtllm"]
    assert row["predicted"] == pytest.approx(row["base_time"] + constant)
    assert row["error"] == pytest.approx(row["predicted"] / 0.3 - 1)


@each_listed
def test_a_table_without_first_tokens_is_refused(table, changes, words):
    path = table(LONG | changes if changes else ROW)
    refused(words, lambda: judge_first_tokens(read_serving(path)))
