"""Plain decoding as a view of predict, and lengths of prompts and outputs in predict."""

import csv
import io
import json

import pytest

import specmodel
from specmodel.cli.commands import carry_out

WHERE = ["--target", "qwen3-30b-a3b", "--hardware", "h200_sxm", "--tensor-parallel", "2"]
LOAD = ["--prompt-length", "2048", "--output-length", "256"]


def said(capsys, *words):
    status = carry_out(words)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_decode_prints_what_the_function_returns(capsys):
    status, text, _ = said(
        capsys, "predict", "--view", "plain", *WHERE, "--batch-size", "1:64:x4", *LOAD, "--json"
    )
    assert status == 0
    document = json.loads(text)
    own = specmodel.decode(
        target="qwen3-30b-a3b",
        hardware="h200_sxm",
        tensor_parallel=2,
        batch_size=[1, 4, 16, 64],
        prompt_length=2048,
        output_length=256,
    )
    assert document["rows"] == own.rows()
    assert document["units"]["prefill_time"] == "s"
    assert document["deployment"]["drafter"] is None
    assert document["assumptions"]["context_length"] == 2048 + 128


def test_decode_prints_a_table_csv_and_components(capsys):
    status, text, _ = said(
        capsys, "predict", "--view", "plain", *WHERE, "--batch-size", "8,16", "--components"
    )
    assert status == 0
    assert "TPOT" in text
    assert "all requests, mostly overhead;" in text
    assert "attention_core" in text
    assert "verify" not in text
    assert "acceptance" not in text
    assert max(map(len, text.splitlines())) <= 80
    _, text, _ = said(
        capsys, "predict", "--view", "plain", *WHERE, "--batch-size", "8,16", "--csv", "--interval"
    )
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["batch_size"] for row in rows] == ["8", "16"]
    assert float(rows[0]["tpot_low"]) < float(rows[0]["tpot"]) < float(rows[0]["tpot_high"])
    _, text, _ = said(
        capsys,
        "predict",
        "--view",
        "plain",
        *WHERE,
        "--batch-size",
        "8",
        *LOAD,
        "--csv",
        "--components",
    )
    assert {row["pass"] for row in csv.DictReader(io.StringIO(text))} == {"forward", "prefill"}


def test_predict_takes_lengths_of_prompts_and_outputs(capsys):
    words = [*WHERE, "--drafter", "eagle3", "--acceptance-rate", "0.7", "--draft-length", "3"]
    words = ["predict", *words, "--batch-size", "64", "--context-length", "2176", "--json"]
    _, idle, _ = said(capsys, *words)
    status, loaded, _ = said(capsys, *words, *LOAD)
    assert status == 0
    (idle,), (loaded,) = (json.loads(text)["rows"] for text in (idle, loaded))
    assert not {"prompt_length", "output_length", "prefill_time"} & idle.keys()
    grown = loaded["forward_time"] - idle["forward_time"]
    assert 0.8 < grown / (63 / 256 * loaded["prefill_time"]) <= 1  # launches go on beside both
    assert loaded["speedup"] < idle["speedup"]


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        ("--batch-size 1 --prompt-length 0 --output-length 9", "--prompt-length"),
        ("--batch-size 1 --prompt-length 9", "--output-length"),
        ("--batch-size 1 --drafter eagle3", "--drafter"),
        ("--batch-size 1 --json --csv", "--csv"),
    ],
)
def test_decode_says_in_one_line_what_it_cannot_use(refuse, words, flag):
    refuse(f"predict --view plain {' '.join(WHERE)} {words}", flag)


def test_the_drafter_of_plain_decoding_may_be_none(capsys):
    plain = ("predict", "--view", "plain", *WHERE, "--batch-size", "8", "--csv")
    assert said(capsys, *plain, "--drafter", "none") == said(capsys, *plain)
