"""Acceptance in log lines, printed results and gauges: what people paste."""

import io
import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from printed import in_one_line, refused
from rows import each_listed

from specmodel.calibrate.measure import logged_acceptance

DATA = Path(__file__).parents[1] / "data/engine_logs.toml"
log = SimpleNamespace(**tomllib.loads(DATA.read_text(encoding="utf-8")))
"""What engines print, by name."""


def text_of(told):
    """Return a text by its name, if it has one: filled in, changed, cut off, or several joined."""
    if isinstance(told, list):
        return "".join(map(text_of, told))
    if isinstance(told, str):
        return vars(log).get(told, told)
    text = vars(log)[told["of"]]
    text = text.format(*told["fill"]) if "fill" in told else text
    return text.replace(*told.get("replace", ("", ""))).partition(told.get("until", "\0"))[0]


@each_listed
def test_the_mean_draft_is_of_all_steps(text, engine, tokens, mean, longest, share):
    """By the counts in the text; the last but one has the token that each step emits in front."""
    found = logged_acceptance(text_of(text), "log")
    assert (found.engine, found.draft_length) == (engine, longest)
    assert found.tokens_per_step == pytest.approx(tokens, abs=0.005)
    told = (found.mean_draft_length, found.proposal_rate)
    assert told == (mean and pytest.approx(mean, rel=0.006), share and pytest.approx(share))


@each_listed
def test_printed_options_predict_the_mean(
    text, form, drafter, length, expected, words, tmp_path, run, rows, document
):
    path = tmp_path / "server.log"
    path.write_text(text := text_of(text))
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


@each_listed
def test_each_kind_of_line_is_read(text, tokens, drafted, running):
    """Lines weigh as many requests as ran."""
    found = logged_acceptance(text_of(text), "log")
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


@each_listed
def test_what_no_engine_says_is_refused(text, expected):
    refused(expected, logged_acceptance, text_of(text), "server.log")


@each_listed
def test_what_tells_the_share_of_drafts_is_asked_for(text, is_missing, monkeypatch, document):
    monkeypatch.setattr("sys.stdin", io.StringIO(text_of(text)))
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
