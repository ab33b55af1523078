"""DeepSeek-V4 on the command line: the curve of a verify pass, causes, and what does not fit."""

import csv
import io

import numpy as np
import pytest

from specmodel import predict

ON_B300 = "--target deepseek-v4-flash --hardware b300 --stack vllm --tensor-parallel 4"
BATCHES = [2**i for i in range(11)]


def test_curve_of_passes_of_1_to_1024_tokens_with_intervals(run):
    """As printed and as Python has it: longer with each token, a fifth within the interval."""
    given = "--drafter mtp --draft-length 1 --acceptance-rate 0.7 --context-length 8192"
    given += " --engine ideal"
    text = run(f"predict {ON_B300} {given} --batch-size 1:1024:x2 --interval --csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [int(row["batch_size"]) for row in rows] == BATCHES
    p = predict(
        target="deepseek-v4-flash", hardware="b300", stack="vllm", tensor_parallel=4, drafter="mtp",
        draft_length=1, acceptance=0.7, context_length=8192, batch_size=BATCHES, interval=True,
        engine="ideal",
    )  # fmt: skip
    for name, times in (("forward_time", p.forward_time), ("verify_time", p.verify_time)):
        low, high = p.intervals[name].low, p.intervals[name].high
        ends = {"": times, "_low": low, "_high": high}
        for end, values in ends.items():
            printed = [float(row[f"{name}{end}"]) for row in rows]
            assert printed == pytest.approx(values.tolist())
        assert (np.diff(times) > 0).all()
        assert (low < times).all()
        assert (times < high).all()
        assert (high / low < 1.4).all()
    assert (p.verify_time > p.forward_time).all()


def test_index_keys_are_a_cause_where_there_are_many(run):
    given = "--drafter mtp --draft-length 3 --acceptance-rate 0.7 --batch-size 32"
    text = run(f"predict --view terms {ON_B300} {given} --context-length 131072 --verbose")
    assert "\nindex " in text
    assert "compressed attention" in text


def test_what_does_not_fit_is_said(run):
    given = "--drafter mtp --draft-length 3 --acceptance-rate 0.7 --batch-size 1"
    text = run(f"predict --target deepseek-v4-pro --hardware h100_sxm --tensor-parallel 8 {given}")
    assert "not even the weights fit" in text.replace("\n", " ")


def test_degrees_that_do_not_cut_output_groups_are_refused(refuse):
    given = "--tensor-parallel 16 --drafter ngram --draft-length 3 --acceptance-rate 0.7"
    refuse(
        f"predict --target deepseek-v4-flash --hardware b300 --batch-size 1 {given}",
        "tensor-parallel: got 16; expected a degree that cuts the compressed attention",
    )


def test_trees_are_refused(refuse):
    given = "--drafter eagle3 --draft-length 3 --tokens-per-step 2 --batch-size 1"
    told = "verify-tokens: got 24; expected draft_length + 1, a chain: entries of DeepSeek"
    refuse(f"predict {ON_B300} {given} --verify-tokens 24", told)
