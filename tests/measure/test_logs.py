"""Acceptance in log lines, printed results and gauges: what people paste."""

import io
import json

import numpy as np
import pytest
from printed import refused
from rows import cases

from specmodel import cli
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
SGLANG_SECTION = """\
Acceptance length (server):              2.80
Acceptance length (benchmark):           3.09
Draft tokens:                            8187
Accepted tokens:                         5709
Drafts:                                  2729
"""
OFFLINE = """\
num_drafts: 4687
num_draft_tokens: 14061
num_accepted_tokens: 7921
mean acceptance length: 2.69
acceptance at token 0: 0.74
acceptance at token 1: 0.54
acceptance at token 2: 0.41
"""
V0 = (
    "Speculative metrics: Draft acceptance rate: 0.607, System efficiency: 0.510, Number of"
    " speculative tokens: 4, Number of accepted tokens: 32594, Number of draft tokens: 53716,"
    " Number of emitted tokens: 34244."
)
META_INFO = (
    "'meta_info': {'completion_tokens': 14, 'spec_accept_rate': 0.45, 'spec_accept_length': 3.5,"
    " 'spec_verify_ct': 4, 'spec_accept_token_num': 9, 'spec_draft_token_num': 20}"
)
ANSWER = """\
{"metrics": {"speculative_decoding": {"mean_acceptance_length": 1.2326,
  "acceptance_histogram": [39, 1, 0, 3], "num_spec_steps": 43,
  "num_accepted_draft_tokens": 10, "num_draft_tokens": 129, "num_spec_tokens": 3}}}
"""
LLAMA_OLD = """\
prompt eval time =    4063.52 ms /    96 tokens (   42.33 ms per token,    23.62 tokens per second)
       eval time =   31868.65 ms /   221 tokens (  144.20 ms per token,     6.93 tokens per second)
draft acceptance rate = 0.69953 (  149 accepted /   213 generated)
"""
LLAMA_TOTAL = (
    "I statistics draft-mtp: #calls(b,g,a) = {} 9 9, #gen drafts = {}, #acc drafts = 7, #gen tokens"
    " = {}, #acc tokens = {}, dur(b,g,a) = 0.016, 54825.426, 2.174 ms\n"
)
LLAMA_TIMES = '{"predicted_n": 192, "predicted_ms": 5.1, "draft_n": 180, "draft_n_accepted": 146}'
LLAMA = (
    "slot print_timing: draft acceptance = 0.64479 (  167 accepted /   259 generated), mean"
    " acceptance length =  2.92, acceptance rate per position = (0.805, 0.632, 0.483)"
)

SUFFIX = (
    "SpecDecoding metrics: Mean acceptance length: 2.90, Accepted throughput: 190.00 tokens/s,"
    " Drafted throughput: 260.00 tokens/s, Accepted: 1900 tokens, Drafted: 2600 tokens,"
    " Per-position acceptance rate: 0.700, 0.450, 0.300, 0.180, 0.110, 0.070, 0.050, 0.040, Avg"
    " Draft acceptance rate: 73.1%\n"
)
LLAMA_STEPS = (
    "statistics draft-mtp: #calls(b,g,a) = 1 228 228, #gen drafts = 140, #acc drafts = 116, #gen"
    " tokens = 200, #acc tokens = 172, #mean acc len = 1.75, #acc rate/pos = (0.510, 0.160, 0.060,"
    " 0.020), dur(b,g,a) = 0.005, 325.5, 0.1 ms\n"
)
LLAMA_TURNS = """\
I spec: statistics  ngram-mod: #calls(b,g,a) =  4  542  31, #gen drafts =  31, #acc drafts =  28,\
 #gen tokens = 920, #acc tokens = 527, #mean acc len = 18.00, #acc rate/pos = (0.903, 0.806)
I spec: statistics  draft-dflash: #calls(b,g,a) =  4  511  511, #gen drafts = 511, #acc drafts =\
 390, #gen tokens = 2041, #acc tokens = 974, #mean acc len = 2.91, #acc rate/pos = (0.763, 0.526)
"""
LLAMA_SIMPLE = "n_draft   = 8\nn_predict = 140\nn_drafted = 116\nn_accept  = 38\n"
LLAMA_HALF = """\
slot print_timing: id 0 |  eval time =  3210.86 ms /  501 tokens (  9.76 ms per token)
slot print_timing: id 0 | draft acceptance = 0.6 ( 300 accepted /  500 generated), mean len = 4.00
"""
LLAMA_CUT = (
    "draft acceptance = 0.90 (   90 accepted /   100 generated), mean acceptance length =  4.60,"
    " acceptance rate per position = (1.000, 0.960)\n"
)
LLAMA_NGRAM = (  # of a request, then of all requests, of which few had a draft
    "draft acceptance{} ( 32 accepted / 128 generated){}\nstatistics ngram_mod: #calls{}, #gen"
    " drafts = 5, #acc drafts = 5, #gen tokens = 320, #acc tokens = 44, dur = 2.443 ms\n"
)
LLAMA_BOTH = """\
draft acceptance rate = 0.57576 (  171 accepted /   297 generated)
statistics ngram_simple: #calls = 15, #gen drafts = 5, #acc drafts = 5, #gen tokens = 187,\
 #acc tokens = 73
statistics draft: #calls = 10, #gen drafts = 10, #acc drafts = 10, #gen tokens = 110,\
 #acc tokens = 98
"""
LLAMA_REQUESTS = """\
 eval time =  3210.86 ms /  501 tokens (  9.76 ms per token)
draft acceptance = 0.6 ( 300 accepted /  500 generated), mean len = 4.00
 eval time =  3210.86 ms /  401 tokens (  9.76 ms per token)
draft acceptance = 0.6 ( 300 accepted /  500 generated), mean len = 4.00
"""
LLAMA_TREE = "n_draft   = {}\nn_predict = {}\nn_drafted = {}\nn_accept  = {}\n"
CUT = """\
Number of draft proposals: 43,221
Number of draft tokens generated: 259,326
Number of accepted tokens: 63,669
Mean acceptance length: 2.47
Acceptance rate at token 0: 0.58
Acceptance rate at token 1: 0.34
"""
BY_POS = """\
Mean acceptance length: 2.76
Avg Draft Acceptance Rate: 25.19%
Pos 1: 0.576
Pos 2: 0.378
Pos 3: 0.266
Pos 4: 20.0%
Pos 5: 0.150
Pos 6: 0.111
Pos 7: 0.081
"""
EAGLE_PY = """\
mean acceptance length:         2.69
acceptance at token 0:1.00
acceptance at token 1:0.74
acceptance at token 2:0.54
acceptance at token 3:0.41
"""


@cases(
    "text engine tokens mean longest share",
    (SUFFIX, "vLLM", 2.9, 2.6, 8, None),
    (SUFFIX + SUFFIX.replace("2600", "3000"), "vLLM", 2.9, 2.8, 8, None),
    (VLLM_TABLE.replace("2000", "1500"), "vLLM", 1.842, 1.5, 2, None),
    (ANSWER.replace("129", "86"), "vLLM", 1.2326, 2.0, 3, None),
    (META_INFO.replace("20}", "13}"), "SGLang", 3.5, 3.25, None, None),
    (LLAMA_STEPS, "llama.cpp", 1 + 172 / 228, 200 / 228, 4, 140 / 228),
    (LLAMA_TURNS, "llama.cpp", 1 + 1501 / 542, 2961 / 542, None, 1.0),
    (LLAMA_SIMPLE, "llama.cpp", 140 / 102, 116 / 102, 8, None),
    (LLAMA_HALF, "llama.cpp", 500 / 200, 500 / 200, None, 0.5),
    (LLAMA_CUT, "llama.cpp", 4.6, 4.0, 4, None),
    (LLAMA_TIMES.replace("180", "160"), "llama.cpp", 4.244, 160 / 45, None, None),
    (EAGLE_PY, "vLLM", 2.69, None, 3, None),
    ("| Mean acceptance length | 1.99 |\n", "", 1.99, None, None, None),
    *(
        (LLAMA_NGRAM.format(*words), "llama.cpp", 1 + 44 / 2873, 320 / 2873, None, 5 / 2873)
        for words in (
            (" rate = 0.25", "", " = 2873"),
            (" = 0.25", ", mean len = 17.00", "(b,g,a) = 3 2873 5"),
        )
    ),
    (LLAMA_BOTH, "llama.cpp", 1 + 171 / 15, 20, 20, 1.0),
    (LLAMA_REQUESTS, "llama.cpp", 900 / 300, 1000 / 300, None, 200 / 300),
    (LLAMA_TREE.format(8, 129, 132, 47), "llama.cpp", 129 / 82, 132 / 82, 8, None),
    (LLAMA_TREE.format(16, 371, 912, 313), "llama.cpp", 1 + 313 / 57, 16, 16, None),
    (LLAMA_TREE.format(5, 673, 730, 526), "llama.cpp", 1 + 526 / 146, 5, 5, None),
    (CUT, "", 1 + 63669 / 43221, 6, 6, None),
    (CUT + CUT, "", 1 + 63669 / 43221, 6, 6, None),
    (CUT.replace("Mean", "\n#"), "", 2.47, 6, 6, None),
    (BY_POS, "", 2.762, 7, 7, None),
    (BY_POS.partition("Pos 1")[0], "", 2.76, 7, 7, None),
    (BY_POS.partition("Pos 3")[0], "", 2.76, 7, 7, None),
    ("Accepted: 8 tokens, Drafted: 30, drafts: 10\nposition 0: 0.5", "", 1.8, 3, 3, None),
)
def test_the_mean_draft_is_what_was_drafted_over_all_steps(
    text, engine, tokens, mean, longest, share
):
    """By the counts in the text; the last but one has the token that each step emits in front."""
    found = logged_acceptance(text, "log")
    assert (found.engine, found.draft_length) == (engine, longest)
    assert found.tokens_per_step == pytest.approx(tokens, abs=0.005)
    told = (found.mean_draft_length, found.proposal_rate)
    assert told == (mean and pytest.approx(mean, rel=0.006), share and pytest.approx(share))


@cases(
    "text drafter length told",
    (SUFFIX, "suffix", 3, "2.90 tokens a step of 2.6 drafted on average, at most 8."),
    (SUFFIX, "eagle3", 3, "2.90 tokens a step of 2.6 drafted on average, at most 8."),
    (LLAMA_SIMPLE, "llama-3.2-1b", 1, "1.37 tokens a step of 1.14 drafted on average"),
    (LLAMA_STEPS, "eagle3", 1, "of 0.88 drafted on average (61% of steps have a draft, of 1.4"),
    (LLAMA_NGRAM.format("", "", " = 2873"), "ngram", 1, "(0.17% of steps have a draft, of 64"),
)
def test_the_printed_options_predict_a_draft_of_the_mean_length(
    text, drafter, length, told, monkeypatch, capsys
):
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert cli.main(["acceptance", "-"]) == 0
    page = capsys.readouterr().out
    joined = " ".join(page.split())
    assert told in joined
    assert ("predict answers for vLLM" in joined) == ("n_draft" in text or "#calls" in text)
    options = page.partition("--drafter DRAFTER \\\n")[2].splitlines()[0].split()
    words = f"predict llama-3.1-8b h200 --drafter {drafter} --batch-size 64 --json"
    assert cli.main([*words.split(), *options]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    expected = logged_acceptance(text, "log").tokens_per_step
    assert row["draft_length"] == length
    assert row["tokens_per_step"] == pytest.approx(expected, abs=1e-3)


class Endless:
    """Standard input that never ends."""

    def __init__(self, text):
        self.text = text

    def read(self, size):
        return (self.text * (size // len(self.text) + 1))[:size]


def test_long_logs_are_read_in_blocks_and_endless_ones_refused(monkeypatch, capsys, tmp_path):
    many = SUFFIX * 10_500  # more than one block
    path = tmp_path / "server.log"
    path.write_text(many)
    for name in ("-", str(path)):
        monkeypatch.setattr("sys.stdin", io.StringIO(many))
        assert cli.main(["acceptance", name, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["num_lines"] == 10_500
        assert found["mean_draft_length"] == pytest.approx(2.6)
    monkeypatch.setattr("specmodel.cli.acceptance._MOST", 8_000_000)
    for text in ("\0", "no figure\n"):
        monkeypatch.setattr("sys.stdin", Endless(text))
        assert cli.main(["acceptance", "-"]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert "at most 210 MB, in lines of at most 4 MB" in error


@cases(
    "text tokens drafted running",
    (NEW, 2.51, 2, None),
    (OLD, 2.83, 3, None),
    (SGLANG.format(1, "2.53"), 2.53, None, 1),
    (VLLM_TABLE, 1.84, 2, None),
    (SGLANG_TABLE, 2.94, None, None),
    (GAUGE, 2.53, None, 4),
    (LLAMA, 2.92, 3, None),
    (f"INFO Engine 000: Running: 9 reqs, Waiting: 56 reqs\n{NEW}", 2.51, 2, 9),
    (SGLANG_SECTION, 3.09, 3, None),
    (OFFLINE, 2.69, 3, None),
    (V0, 2.55, 4, None),
    (META_INFO, 3.5, 5, None),
    (ANSWER, 1.23, 3, None),
    ("Average Accept length: 1.037\n", 1.04, None, None),
    ("│ Acceptance Length (tokens/step) │  2.53 │  1.00 │  4.00 │\n", 2.53, None, None),
    ("| Mean acceptance length | 1.99 |\n", 1.99, None, None),
    ("Mean acceptance length: 3.00\nPer-position acceptance rate: 1.0, 1.0", 3, 2, None),
    ('{"avg_decoded_tokens_per_iter": 2.5, "total_draft_tokens": 60}', 2.5, None, None),
    (LLAMA_OLD, 3.10, 3, None),
    ("draft acceptance = 0.98 (  886 accepted /   900 generated), mean len =  4.94", 4.94, 4, None),
    (LLAMA_TOTAL.format(1, 9, 18, 2) + LLAMA_TOTAL.format(2, 1308, 2602, 2031), 2.55, 2, None),
    (LLAMA_TOTAL.format(1, 9, 18, 2) + LLAMA, 2.92, 3, None),
    (LLAMA_TIMES, 4.24, 4, None),
    ("code_python pred= 192 draft= 180 acc= 146 rate=0.811 tok/s=31.3", 4.24, 4, None),
    ("n_draft = 4\nn_predict = 1025\nn_drafted = 712\nn_accept = 410\n", 1.67, 4, None),
    ("", None, None, None),
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


@cases(
    "text expected",
    (f"{NEW}\n{OLD}", "lines of one draft length"),
    (SGLANG.format(1, "0.31"), "tokens per step from 1"),
    (NEW.replace("0.843", "8.43"), "make 10.1 tokens, but a mean of 2.51"),
    (SGLANG.format(0, "2.0"), "lines of steps that drafted"),
    ("draft acceptance rate = 0.75 ( 3 accepted / 4 generated)", "--accepted-fraction 0.75"),
    ("draft acceptance rate = 0.40909\n", "--accepted-fraction 0.4091 --measured-draft"),
    ("Avg Draft acceptance rate: 61.0%, Accepted throughput: 5.1", "--accepted-fraction 0.61 "),
    ("Draft acceptance rate: 0.84%\n", "--accepted-fraction 0.0084 "),
    (NEW.replace("2.51", "1.51"), "2.511 tokens, but a mean of 1.51"),
    (BY_POS.partition("Pos 4")[0][29:], "3 positions, but 4.84.? drafted a step"),
    (BY_POS.replace("Pos 3", "Pos 9"), "rates at 1, 2, 9, 4, 5, 6, 7"),
    ("num_spec_tokens: 5\npos0: 0.5\npos1: 0.2", "make 1.7 tokens, but drafts of 5"),
    (OFFLINE.replace("2.69", "1.69"), "counts that make 2.69 tokens, but a mean of 1.69"),
)
def test_what_no_engine_says_is_refused(text, expected):
    refused(expected, logged_acceptance, text, "server.log")


@cases(
    "text form told expected",
    (OLD, 0, "--drafter eagle3 --draft-length 3", 2.83),
    (CUT, 0, "--drafter eagle3 --draft-length 2", 1.92),
    (CUT, 1, "--drafter eagle3 --draft-length 6", 2.47),
    (LLAMA_NGRAM.format("", "", " = 2873"), 1, "--drafter ngram", 1 + 44 / 2873),
)
def test_the_command_reads_standard_input_and_predicts_what_it_read(
    text, form, told, expected, monkeypatch, capsys
):
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert cli.main(["acceptance", "-", "--json"]) == 0
    read = json.loads(capsys.readouterr().out)
    cut = ["2 rates make 1.92 tokens a step, the mean is 2.47: later positions are missing"]
    assert text != CUT or read["warnings"] == cut
    words = f"predict qwen3-30b-a3b h100 --batch-size 1 --json {told} {read['predict'][form]}"
    assert cli.main(words.split()) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["tokens_per_step"] == pytest.approx(expected, abs=0.002)


@pytest.mark.parametrize("text", ["", "\x00\x01"])
def test_a_file_without_any_of_them_says_what_would_do(text, tmp_path, capsys):
    path = tmp_path / "some.log"
    path.write_text(text)
    assert cli.main(["acceptance", str(path)]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "accept len (SGLang) or draft acceptance (llama.cpp)" in err


def test_a_file_with_the_answer_of_a_server_is_read_and_other_json_is_refused(tmp_path, capsys):
    path = tmp_path / "answer.json"
    for text, status in ((ANSWER, 0), ('{"a": 1}', 2)):
        path.write_text(text)
        assert cli.main(["acceptance", str(path)]) == status
    assert capsys.readouterr().out.startswith("vLLM: 1.23 tokens a step of 3 drafted.")
