"""Acceptance in log lines, printed results and gauges: what people paste."""

import io
import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from printed import in_one_line, refused
from rows import cases

from specmodel.calibrate.measure import logged_acceptance

DATA = Path(__file__).parents[1] / "data/engine_logs.toml"
log = SimpleNamespace(**tomllib.loads(DATA.read_text(encoding="utf-8")))
"""What engines print, by name."""


@cases(
    "text engine tokens mean longest share",
    (log.suffix, "vLLM", 2.9, 2.6, 8, None),
    (log.suffix + log.suffix.replace("2600", "3000"), "vLLM", 2.9, 2.8, 8, None),
    (log.vllm_ngram.format(200), "vLLM", 2.0, 2.0, 5, 0.4),
    (2 * log.vllm_ngram.format(200), "vLLM", 2.0, 2.0, 5, 0.4),
    (log.vllm_ngram.format(143), "vLLM", 3.5, 5.0, 5, 1.0),
    (log.vllm_table.replace("2000", "1500"), "vLLM", 1.842, 1.5, 2, None),
    (log.answer.replace("129", "86"), "vLLM", 1.2326, 2.0, 3, None),
    (log.meta_info.replace("20}", "13}"), "SGLang", 3.5, 3.25, None, None),
    (log.llama_steps, "llama.cpp", 1 + 172 / 228, 200 / 228, 4, 140 / 228),
    (log.llama_turns, "llama.cpp", 1 + 1501 / 542, 2961 / 542, None, 1.0),
    (log.llama_simple, "llama.cpp", 140 / 102, 116 / 102, 8, None),
    (log.llama_half, "llama.cpp", 500 / 200, 500 / 200, None, 0.5),
    (log.llama_cut, "llama.cpp", 4.6, 4.0, 4, None),
    (log.llama_times.replace("180", "160"), "llama.cpp", 4.244, 160 / 45, None, None),
    (log.eagle_py, "vLLM", 2.69, None, 3, None),
    *(
        (log.llama_ngram.format(*words), "llama.cpp", 1 + 44 / 2873, 320 / 2873, None, 5 / 2873)
        for words in (
            (" rate = 0.25", "", " = 2873"),
            (" = 0.25", ", mean len = 17.00", "(b,g,a) = 3 2873 5"),
        )
    ),
    (log.llama_both, "llama.cpp", 1 + 171 / 15, 20, 20, 1.0),
    (log.llama_requests, "llama.cpp", 900 / 300, 1000 / 300, None, 200 / 300),
    (log.llama_tree.format(8, 129, 132, 47), "llama.cpp", 129 / 82, 132 / 82, 8, None),
    (log.llama_tree.format(16, 371, 912, 313), "llama.cpp", 1 + 313 / 57, 16, 16, None),
    (log.llama_tree.format(5, 673, 730, 526), "llama.cpp", 1 + 526 / 146, 5, 5, None),
    (log.cut, "", 1 + 63669 / 43221, 6, 6, None),
    (log.cut + log.cut, "", 1 + 63669 / 43221, 6, 6, None),
    (log.cut.replace("Mean", "\n#"), "", 2.47, 6, 6, None),
    (log.by_pos, "", 2.762, 7, 7, None),
    (log.by_pos.partition("Pos 1")[0], "", 2.76, 7, 7, None),
    (log.by_pos.partition("Pos 3")[0], "", 2.76, 7, 7, None),
    ("Accepted: 8 tokens, Drafted: 30, drafts: 10\nposition 0: 0.5", "", 1.8, 3, 3, None),
)
def test_the_mean_draft_is_of_all_steps(text, engine, tokens, mean, longest, share):
    """By the counts in the text; the last but one has the token that each step emits in front."""
    found = logged_acceptance(text, "log")
    assert (found.engine, found.draft_length) == (engine, longest)
    assert found.tokens_per_step == pytest.approx(tokens, abs=0.005)
    told = (found.mean_draft_length, found.proposal_rate)
    assert told == (mean and pytest.approx(mean, rel=0.006), share and pytest.approx(share))


_MEAN = "Tokens per step: 2.9. Mean draft length: 2.6. Longest draft length: 8."


@cases(
    "text form drafter length expected words",
    (log.suffix, 0, "suffix", 3, 2.9, _MEAN),
    (log.suffix, 0, "eagle3", 3, 2.9, _MEAN),
    (log.llama_simple, 0, "llama-3.2-1b", 1, 1.3725, "Mean draft length: 1.14."),
    (log.llama_steps, 0, "eagle3", 1, 1.75, "Share of steps with a draft: 61.40%."),
    (log.llama_ngram.format("", "", " = 2873"), 0, "ngram", 1, 1 + 44 / 2873, "draft: 0.17%."),
    (log.llama_ngram.format("", "", " = 2873"), 1, "ngram", 64, 1 + 44 / 2873, "draft: 0.17%."),
    (log.vllm_ngram.format(200), 1, "ngram", 5, 2.0, "Share of steps with a draft: 40"),
    (log.old, 0, "eagle3 --draft-length 3", 3, 2.83, "Tokens per step: 2.8"),
    (
        log.cut,
        0,
        "eagle3 --draft-length 2",
        2,
        1.92,
        "the 2 logged positions give 1.92 tokens per step",
    ),
    (log.cut, 1, "eagle3 --draft-length 6", 6, 2.47, "2.47: the log lacks later positions"),
)
def test_printed_options_predict_the_mean(
    text, form, drafter, length, expected, words, tmp_path, run, rows, document
):
    path = tmp_path / "server.log"
    path.write_text(text)
    page = run(f"acceptance {path}")
    assert words in in_one_line(page)
    options = document(f"acceptance {path}")["predict"][form]
    assert options in page
    assert ("--engine llama.cpp" in options) == ("n_draft" in text or "#calls" in text)
    (row,) = rows(f"predict llama-3.1-8b h200 --drafter {drafter} --batch-size 64 {options}")
    assert row["draft_length"] == length
    assert row["tokens_per_step"] == pytest.approx(expected, abs=0.002)


class Endless:
    """Standard input that never ends."""

    def __init__(self, text):
        self.text = text

    def read(self, size):
        return (self.text * (size // len(self.text) + 1))[:size]


def test_long_logs_are_read_and_endless_ones_refused(monkeypatch, document, refuse, tmp_path):
    many = log.suffix * 10_500  # more than one block
    path = tmp_path / "server.log"
    path.write_text(many)
    for name in ("-", str(path)):
        monkeypatch.setattr("sys.stdin", io.StringIO(many))
        found = document(f"acceptance {name}")
        assert found["num_lines"] == 10_500
        assert found["mean_draft_length"] == pytest.approx(2.6)
    monkeypatch.setattr("specmodel.cli.acceptance._MOST", 8_000_000)
    for text in ("\0", "no figure\n"):
        monkeypatch.setattr("sys.stdin", Endless(text))
        refuse("acceptance -", "at most 210 MB, in lines of at most 4 MB")


@cases(
    "text tokens drafted running",
    (log.new, 2.51, 2, None),
    (log.old, 2.83, 3, None),
    (log.sglang.format(30, "2.00") + "\n" + log.sglang.format(10, "3.00"), 2.25, None, 20),
    (log.sglang_table, 2.94, None, None),
    (log.gauge, 2.53, None, 4),
    (log.llama, 2.92, 3, None),
    (f"INFO Engine 000: Running: 9 reqs, Waiting: 56 reqs\n{log.new}", 2.51, 2, 9),
    (log.sglang_section, 3.09, 3, None),
    (log.offline, 2.69, 3, None),
    (log.v0, 2.55, 4, None),
    ("Average Accept length: 1.037\n", 1.04, None, None),
    ("│ Acceptance Length (tokens/step) │  2.53 │  1.00 │  4.00 │\n", 2.53, None, None),
    ("| Mean acceptance length | 1.99 |\n", 1.99, None, None),
    ("Mean acceptance length: 3.00\nPer-position acceptance rate: 1.0, 1.0", 3, 2, None),
    ('{"avg_decoded_tokens_per_iter": 2.5, "total_draft_tokens": 60}', 2.5, None, None),
    (log.llama_old, 3.10, 3, None),
    ("draft acceptance = 0.98 (  886 accepted /   900 generated), mean len =  4.94", 4.94, 4, None),
    (
        log.llama_total.format(1, 9, 18, 2) + log.llama_total.format(2, 1308, 2602, 2031),
        2.55,
        2,
        None,
    ),
    (log.llama_total.format(1, 9, 18, 2) + log.llama, 2.92, 3, None),
    ("code_python pred= 192 draft= 180 acc= 146 rate=0.811 tok/s=31.3", 4.24, 4, None),
    ("n_draft = 4\nn_predict = 1025\nn_drafted = 712\nn_accept = 410\n", 1.67, 4, None),
    (log.atom, 2.6, 3, None),
    (log.atom.partition("08:00:09")[0], 2.0, 3, None),
    (log.trtllm, 1 + 105 / 60, 3, None),
    (log.sglang_columns, 2.5, None, None),
    (log.box, 2.62, None, None),
)
def test_each_kind_of_line_is_read(text, tokens, drafted, running):
    """Lines weigh as many requests as ran."""
    found = logged_acceptance(text, "log")
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


@cases(
    "text expected",
    (f"{log.new}\n{log.old}", "lines that all have the same draft length"),
    (log.sglang.format(1, "0.31"), "tokens per step from 1"),
    (log.new.replace("0.843", "8.43"), "make 10.1 tokens, but a mean of 2.51"),
    (log.sglang.format(0, "2.0"), "lines of steps that drafted"),
    ("draft acceptance rate = 0.75 ( 3 accepted / 4 generated)", "accepted_fraction=0.75 and"),
    ("draft acceptance rate = 0.40909\n", "accepted_fraction=0.4091 and"),
    ("Avg Draft acceptance rate: 61.0%, Accepted throughput: 5.1", "accepted_fraction=0.61 and"),
    ("Draft acceptance rate: 0.84%\n", "accepted_fraction=0.0084 and"),
    (log.new.replace("2.51", "1.51"), "2.511 tokens, but a mean of 1.51"),
    (log.by_pos.partition("Pos 4")[0][29:], "3 positions, but 4.84.? drafted a step"),
    (log.by_pos.replace("Pos 3", "Pos 9"), "rates at 1, 2, 9, 4, 5, 6, 7"),
    (log.by_pos.replace("2.76", "0"), "make 2.76. tokens, but a mean of 0"),
    ("num_spec_tokens: 5\npos0: 0.5\npos1: 0.2", "make 1.7 tokens, but drafts of 5"),
    (log.offline.replace("2.69", "1.69"), "counts that make 2.69 tokens, but a mean of 1.69"),
)
def test_what_no_engine_says_is_refused(text, expected):
    refused(expected, logged_acceptance, text, "server.log")


@cases(
    "text is_missing",
    (log.suffix, True),
    (log.vllm_ngram.format(200), False),
    (log.sglang.format(1, "2.53"), False),
)
def test_what_tells_the_share_of_drafts_is_asked_for(text, is_missing, monkeypatch, document):
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    told = " ".join(document("acceptance -")["warnings"])
    assert ("the true tokens per step are fewer" in told) == is_missing


def test_a_file_without_any_of_them_says_what_would_do(tmp_path, refuse):
    path = tmp_path / "some.log"
    for text in ("", "\x00\x01", log.sglang_columns.replace("| acc", "| acc. ")):
        path.write_text(text)
        told = "accept len (SGLang) or draft acceptance (llama.cpp)"
        refuse(f"acceptance {path}", told)


def test_the_answer_of_a_server_is_read_and_other_json_is_refused(tmp_path, run, refuse):
    path = tmp_path / "answer.json"
    path.write_text(log.answer)
    assert run(f"acceptance {path}").startswith(
        "Engine that printed the log: vLLM.\nLog lines read: 1.\nTokens per step: 1.2"
    )
    path.write_text('{"a": 1}')
    refuse(f"acceptance {path}")
