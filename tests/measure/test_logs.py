"""Acceptance in log lines, printed results and gauges: what people paste."""

import io
import json

import numpy as np
import pytest

from specmodel import cli
from specmodel.base.errors import InputError
from specmodel.measure import logged_acceptance

NEW = (
    "(APIServer pid=1) INFO 05-05 10:12:01 [metrics.py:100] SpecDecoding metrics: Mean acceptance"
    " length: 2.51, Accepted throughput: 535.50 tokens/s, Drafted throughput: 708.79 tokens/s,"
    " Accepted: 5355 tokens, Drafted: 7088 tokens, Per-position acceptance rate: 0.843, 0.668, Avg"
    " Draft acceptance rate: 75.6%"
)
OLD = (
    "INFO 06-06 10:00:00 [metrics.py:61] SpecDecoding metrics: Draft acceptance rate: 61.0%, Mean"
    " acceptance length: 2.83, Accepted: 5306 tokens, Drafted: 8703 tokens, Per-position acceptance"
    " rate: 0.730, 0.591, 0.508"
)
SGLANG = (
    "[2026-05-01 10:00:00 TP0] Decode batch. #running-req: {}, #token: 4000, token usage: 0.01,"
    " accept len: {}, accept rate: 0.51, cuda graph: True, gen throughput (token/s): 160.10"
)
VLLM_TABLE = """\
============ Serving Benchmark Result ============
Successful requests:                     80
Mean TPOT (ms):                          37.18
-----------------------------------------Speculative Decoding--------
Acceptance rate (%):                     42.10
Acceptance length:                       1.84
Drafts:                                  1000
Draft tokens:                            2000
Accepted tokens:                         842
Per-position acceptance (%):
  Position 0:                            55.00
  Position 1:                            29.20
==================================================
"""
SGLANG_TABLE = """\
============ Serving Benchmark Result ============
Backend:                                 sglang
Accept length:                           2.94
==================================================
"""
GAUGE = """\
# TYPE sglang:spec_accept_length gauge
sglang:spec_accept_length{engine_type="unified",model_name="a"} 2.53
sglang:num_running_reqs{engine_type="unified",model_name="a"} 4.0
"""
LLAMA = (
    "slot print_timing: draft acceptance = 0.64479 (  167 accepted /   259 generated), mean"
    " acceptance length =  2.92, acceptance rate per position = (0.805, 0.632, 0.483)"
)


@pytest.mark.parametrize(
    ("text", "tokens", "drafted", "running"),
    [
        (NEW, 2.51, 2, None),
        (OLD, 2.83, 3, None),
        (SGLANG.format(1, "2.53"), 2.53, None, 1),
        (VLLM_TABLE, 1.84, 2, None),
        (SGLANG_TABLE, 2.94, None, None),
        (GAUGE, 2.53, None, 4),
        (LLAMA, 2.92, 3, None),
        ("Mean acceptance length: 2\n", None, None, None),
        ("", None, None, None),
    ],
)
def test_each_kind_of_line_is_read(text, tokens, drafted, running):
    found = logged_acceptance(text, "log")
    if tokens is None:
        assert found is None
        return
    assert found is not None
    assert found.tokens_per_step == pytest.approx(tokens, abs=0.005)
    assert (found.draft_length, found.running_requests) == (drafted, running)


def test_lines_weigh_as_many_drafts_as_they_tell():
    """The mean of all is what one counter over both intervals would have said."""
    counts = [(3000, (0.8, 0.5)), (1000, (0.6, 0.1))]
    lines = [
        f"SpecDecoding metrics: Mean acceptance length: {1 + sum(at):.2f}, Accepted:"
        f" {round(drafts * sum(at))} tokens, Drafted: {2 * drafts} tokens, Per-position acceptance"
        f" rate: {', '.join(f'{share:.3f}' for share in at)}, Avg Draft acceptance rate: 1.0%"
        for drafts, at in counts
    ]
    found = logged_acceptance("\n".join(["starting", *lines, "done"]), "log")
    accepted = sum(drafts * np.array(at) for drafts, at in counts)
    assert found.accepted_by_position == pytest.approx(accepted / 4000)
    assert found.tokens_per_step == pytest.approx(1 + accepted.sum() / 4000)
    assert found.num_lines == 2


def test_lines_of_sglang_weigh_as_many_requests_as_ran():
    text = "\n".join([SGLANG.format(30, "2.00"), SGLANG.format(10, "3.00")])
    found = logged_acceptance(text, "log")
    assert (found.tokens_per_step, found.running_requests) == (2.25, 20)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{NEW}\n{OLD}", "lines of one draft length"),
        (SGLANG.format(1, "0.31"), "tokens a step from 1"),
        (NEW.replace("0.843", "8.43"), "shares of at most 1"),
        (SGLANG.format(0, "2.0"), "lines of steps that drafted"),
    ],
)
def test_what_no_engine_says_is_refused(text, expected):
    with pytest.raises(InputError, match=expected):
        logged_acceptance(text, "server.log")


def test_the_command_reads_standard_input_and_predicts_what_it_read(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO(OLD))
    assert cli.main(["acceptance", "-"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("vLLM: 2.83 tokens a step of 3 drafted.")
    monkeypatch.setattr("sys.stdin", io.StringIO(OLD))
    assert cli.main(["acceptance", "-", "--json"]) == 0
    (by_position, _) = json.loads(capsys.readouterr().out)["predict"]
    words = "predict qwen3-30b-a3b h100 --drafter eagle3 --draft-length 3 --batch-size 1 --json"
    assert cli.main([*words.split(), *by_position.split()]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["tokens_per_step"] == pytest.approx(2.83, abs=0.002)


@pytest.mark.parametrize("text", [NEW, OLD, SGLANG.format(1, "2.53"), VLLM_TABLE, GAUGE])
def test_the_command_reads_each_of_them_from_a_file(text, tmp_path, capsys):
    path = tmp_path / "server.log"
    path.write_text(text)
    assert cli.main(["acceptance", str(path)]) == 0
    assert "tokens a step" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "hello\n", "\x00\x01"])
def test_a_file_without_any_of_them_says_what_would_do(text, tmp_path, capsys):
    path = tmp_path / "some.log"
    path.write_text(text)
    assert cli.main(["acceptance", str(path)]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "SpecDecoding metrics (vLLM) or accept len (SGLang)" in err
