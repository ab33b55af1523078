"""Tables of measured engines: spellings, what is taken, what is predicted of it, errors."""

import json
from pathlib import Path

import numpy as np
import pytest
from printed import refused
from rows import cases, each_listed, listed, values_of

import specmodel
from specmodel import load_architecture
from specmodel.calibrate.fit.measured import aliases, judge_serving, read_serving
from specmodel.calibrate.fit.measured.judge import serving_errors
from specmodel.cli.commands import carry_out
from specmodel.core.cost import resolve

ROW, PAIR = json.loads((Path(__file__).parents[1] / "data/serving.json").read_text()).values()


@listed
def test_models_and_gpus_are_found_in_any_spelling(kind, typed, name):
    assert getattr(aliases, f"shipped_{kind}")(typed) == name


def test_a_model_or_gpu_that_does_not_ship_is_not_another():
    for typed in ("glm-ocr (0.9B dense)", "Qwen3-31B", "", "Instruct"):
        refused("model", aliases.shipped_model, typed)
    refused("system", aliases.shipped_gpu, "gb7")


def test_equal_lengths_go_in_lockstep_where_prompts_are_read_first(table):
    rows = [("sglang", 1280), ("sglang", 1152), ("vllm", 1280)]
    read = read_serving(table(*(ROW | {"backend": b, "mean_context": c} for b, c in rows)))
    assert [one.points["lockstep"] for one in read.rows] == [True, False, False]
    without = {name: value for name, value in ROW.items() if name != "mean_context"}
    (one,) = read_serving(table(without | {"backend": "sglang"})).rows
    assert not one.points["lockstep"]


def test_dtypes_are_those_that_checkpoints_run_in():
    moe, dense = (load_architecture(name) for name in ("deepseek-r1", "llama-3.1-70b"))
    fp4 = {"weight_dtype": "fp4", "activation_dtype": "fp4", "kv_dtype": "fp8"}
    assert aliases.dtypes_of("nvfp4", dense, "vllm") == fp4
    assert aliases.dtypes_of("nvfp4 experts, bf16 attention", moe, "trtllm") == fp4
    assert aliases.dtypes_of("fp8", moe, "vllm")["kv_dtype"] == "bf16"
    assert aliases.dtypes_of("fp8", moe, "trtllm")["kv_dtype"] == "fp8"
    assert aliases.dtypes_of("fp8", moe, "vllm", "fp8")["kv_dtype"] == "fp8"
    assert aliases.dtypes_of("", moe, "vllm") == {}
    refused("dtype", aliases.dtypes_of, "fp6", dense, "vllm")


def test_a_plain_row_is_decoding_under_load_at_mean_lengths(table):
    judged, refused = judge_serving(read_serving(table(ROW)))
    assert not refused
    where = {"target": "llama-3.1-70b", "hardware": "h100_sxm", "stack": "trtllm"}
    where |= {"tensor_parallel": 8, "batch_size": 16, "context_length": 1152}
    # 0.9 of the nominal lengths, as the mean context says
    own = specmodel.decode(**where, prompt_length=922, output_length=461)
    row = judged.iloc[0]
    assert row["predicted"] == pytest.approx(float(own.tpot), rel=1e-12)
    assert row["measured"] == pytest.approx(0.020)
    assert row["low"] < row["predicted"] < row["high"]
    without = specmodel.decode(**where)
    assert float(without.tpot) < row["predicted"]


def test_rows_that_are_not_taken_are_counted_and_named(table):
    odd = [
        *({"mtp": "on"}, {"queued_share": 0.5}, {"model": "no-such-model"}, {"system": "gb7"}),
        *({"backend": "mlx"}, {"measured_tpot_ms": None}, {"gpus": 3}),
    ]
    read = read_serving(table(ROW, *(ROW | change for change in odd), ROW))
    judged, refused = judge_serving(read)
    assert len(judged) == 2
    assert [*read.not_taken, *refused] == [str(place) for place in range(1, 1 + len(odd))]


@cases("is_parallel degrees spread", (True, [1, 8], 8), (False, [8, 1], 2))
def test_experts_are_cut_and_spread_as_a_row_says(table, is_parallel, degrees, spread):
    change = {"model": "DeepSeek-R1", "dtype": "fp8", "attention_data_parallel": is_parallel}
    judged, refused = judge_serving(read_serving(table(ROW | change | {"expert_parallel": spread})))
    assert not refused
    row = judged.iloc[0]
    names = ["tensor_parallel", "data_parallel", "expert_parallel"]
    assert row[names].tolist() == [*degrees, spread]
    with_degrees = specmodel.decode(  # whose fp8 is in blocks
        target="deepseek-r1", hardware="h100_sxm", stack="trtllm", weight_dtype="fp8_block",
        kv_dtype="fp8", batch_size=16, context_length=1152, prompt_length=922, output_length=461,
        tensor_parallel=degrees[0], data_parallel=degrees[1], expert_parallel=spread,
    )  # fmt: skip
    assert row["predicted"] == pytest.approx(float(with_degrees.tpot), rel=1e-12)


def test_a_pair_is_judged_by_its_speedup_or_else_by_the_step(table):
    step = PAIR | {"id": "b", "speedup": None, "spec_step_ms": 9.0}
    judged, _ = judge_serving(read_serving(table(PAIR, step)))
    p = specmodel.predict(
        target="qwen3-30b-a3b", hardware="h200_sxm", drafter="eagle3", engine="sglang",
        tensor_parallel=4, draft_length=3, batch_size=8, context_length=1000,
        acceptance=specmodel.Acceptance(tokens_per_step=2.6),
    )  # fmt: skip
    assert judged["quantity"].tolist() == ["speedup", "step_time"]
    expected = [float(p.speedup), float(p.step_time)]
    np.testing.assert_allclose(judged["predicted"], expected, rtol=1e-9)
    assert judged["measured"].tolist() == [1.6, 0.009]


@each_listed
def test_the_profile_of_an_engine_follows_from_its_version(
    engine, version, notes, profile, waits_for, tokens
):
    """Of SGLang, the first and second speculation; of vLLM, V1 is the name of an API."""
    found, changes = aliases.profile_of(engine, version, notes)
    assert found == profile
    assert changes.get("engine.waits_for") == waits_for
    assert changes.get("engine.split_tokens") == tokens


NAMED = ("backend", "layout", "prompt_length", "model")  # names of columns in reasons


def test_rows_that_cannot_be_predicted_are_named_and_end_nothing(table, capsys):
    odd = [change for (change,) in values_of("cases/fit.txt", "pairs that cannot be predicted")]
    rows = [PAIR | change | {"id": f"odd-{i}", "host": "h"} for i, change in enumerate(odd)]
    path = table(PAIR | {"host": "h"}, *rows, PAIR | {"id": "c", "host": "h"})
    assert carry_out(["fit", "check", "--serving", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["row"] for row in found["rows"]] == ["a", "c"]
    reasons = {row: part["reason"] for part in found["not_taken"] for row in part["rows"]}
    for i, change in enumerate(odd):
        reason = reasons.pop(f"odd-{i}")
        named = (name.partition("_or_")[0] for name in (*change, *NAMED))
        assert any(name in reason for name in named), (change, reason)
    assert not reasons


@each_listed
def test_drafters_are_known_by_the_words_of_published_tables(table, words, kind):
    target = "deepseek-r1" if "MTP" in kind else PAIR["target"]
    row = PAIR | {"drafter": words, "target": target, "tensor_parallel": "8", "num_gpus": 8}
    row |= {"proposal_rate": 0.9} if "look-up" in kind else {}
    read = read_serving(table(row))
    assert not read.not_taken
    _, refused = judge_serving(read)
    assert not refused
    assert resolve(read.rows[0].deployment)[0].drafter.name == kind


@each_listed
def test_the_context_of_a_pair_is_that_of_the_table(table, lengths, points):
    (row,) = read_serving(table(PAIR | lengths)).rows
    assert {name: row.points.get(name) for name in points} == points
    assert ("prompt_length" in row.points) == ("prompt_length" in points)


def test_dp_attention_of_pairs_counts_requests_of_all_ranks(table):
    change = {"tensor_parallel": "DP attention", "num_gpus": 16, "expert_parallel": 16}
    change |= {"target": "deepseek-v3", "weight_dtype": "fp8", "drafter": "mtp", "isl": 65536}
    change |= {"osl": 4096, "which": "batch per rank", "batch_size_or_concurrency": 2}
    judged, refused = judge_serving(read_serving(table(PAIR | change)))
    assert not refused
    row = judged.iloc[0]
    assert (row["tensor_parallel"], row["expert_parallel"], row["batch_size"]) == (1, 16, 32)
    assert row["context_length"] == 65536 + 4096 // 2
    assert "prompt_length" not in row  # other nodes prefill


def test_errors_and_coverage_are_those_of_the_rows(table):
    judged, _ = judge_serving(read_serving(table(ROW, ROW | {"concurrency": 64})))
    planted = judged.assign(measured=judged["predicted"] * [1.25, 0.8])
    planted = planted.assign(error=planted["predicted"] / planted["measured"] - 1)
    errors = serving_errors(planted.assign(low=0.0, high=planted["measured"] * [1.1, 0.9]))
    first = errors.iloc[0]
    told = first[["rows", "mean_error", "median_error", "bias"]].tolist()
    assert told == pytest.approx([2, 0.225, 0.225, 0.025])
    assert first["coverage"] == 0.5
    assert set(errors["group"]) == {"all", "model", "engine", "hardware", "dtype", "batch_size"}
    by_size = errors[errors["group"] == "batch_size"]
    assert by_size["mean_error"].tolist() == pytest.approx([0.2, 0.25])


def test_rows_are_told_measured_beside_predicted_where_they_are_few(table, capsys):
    named = {"row": "slow", "model": "llama-3.1-70", "system": "h100", "measured_tpot_ms": 200.0}
    assert carry_out(["fit", "check", "--serving", str(table(ROW, ROW | named))]) == 0
    page = capsys.readouterr().out
    rows = {line.split()[0]: line.split() for line in page.splitlines() if " to " in line}
    assert rows["0"][2:4] == ["TPOT", "20ms"]
    assert rows["slow"][2:5] == ["TPOT", "200ms", rows["0"][4]]  # a beginning is the same model
    assert "Rows compared: 2." in page


@each_listed
def test_a_table_that_cannot_be_judged_is_refused_in_one_line(table, typed, change, words, capsys):
    path = str(table(ROW | change))
    assert carry_out(["fit", "check", *typed.replace("TABLE", path).split()]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
