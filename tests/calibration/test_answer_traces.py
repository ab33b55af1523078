"""Look-ups in published answers: forms of files, turns, and the traces that are kept."""

import gzip
import json

import numpy as np
import pandas as pd
import pytest
from rows import each_listed

pytest.importorskip("pyarrow")

import answer_traces
from answer_traces import BEGINNING, END, FOLDER, conversations, main, sources, tokenised
from specmodel.simulate.traces import read_trace


@each_listed
def test_each_form_of_file_is_read(form, values, expected):
    content = b"\n".join(json.dumps(value).encode() for value in values)
    files = [gzip.compress(content) if form.startswith("human_eval") else content]
    assert json.loads(json.dumps(conversations(form, files))) == expected


def test_turns_of_mt_bench_are_those_on_extraction():
    asked = [{"question_id": 1, "category": "extraction", "turns": ["a", "b"]}]
    asked += [{"question_id": 2, "category": "math", "turns": ["c", "d"]}]
    said = [{"question_id": i, "choices": [{"turns": [f"{i}", f"{i}."]}]} for i in (2, 1)]
    files = [b"\n".join(json.dumps(row).encode() for row in rows) for rows in (asked, said)]
    assert conversations("mt_bench", files) == [[("a", "1"), ("b", "1.")]]


def test_a_turn_is_looked_up_in_all_that_came_before():
    def encode(text):
        return [ord(letter) for letter in text]

    prompts, answers = tokenised([[("a", "xy"), ("b", "xyz")]], encode, is_chat=False)
    first = [BEGINNING, ord("a")]
    assert prompts == [first, [*first, ord("x"), ord("y"), END, ord("b")]]
    assert answers == [[ord("x"), ord("y"), END], [ord("x"), ord("y"), ord("z"), END]]
    trace = answer_traces.looked_up((prompts, answers))
    # the second answer repeats the first up to z; b stands nowhere before
    assert trace.proposed_tokens.tolist() == [0, 0, 0, 0, 20, 20, 0]
    assert trace.accepted_tokens.tolist() == [0, 0, 0, 0, 1, 0, 0]
    (chat,), _ = tokenised([[("a", "x")]], encode, is_chat=True)
    assert chat == [BEGINNING, *encode("[INST] a [/INST]")]


@pytest.mark.parametrize("name", sources())
def test_what_is_kept_are_facts_with_their_source_and_licence(name):
    path, source = FOLDER / f"{name}.parquet", sources()[name]
    table = pd.read_parquet(path)
    assert [*table] == ["request", "prompt_tokens", "proposed_tokens", "accepted_tokens"]
    for key in ("task", "model", "repository", "commit", "licence"):
        assert table.attrs[key] == source[key]
    assert {table.attrs[key] for key in ("min_ngram", "max_ngram", "match")} == {"1", "3", "first"}
    trace = read_trace(path)
    assert set(trace.proposed_tokens.tolist()) == {0, 20}  # filled up, whatever is found
    ends = np.repeat(trace.starts + trace.output_tokens, trace.output_tokens)
    assert (trace.accepted_tokens <= ends - np.arange(len(ends))).all()
    turns = 2 if source["format"] == "mt_bench" else 1
    assert trace.num_requests == source["most"] * turns


def test_all_that_is_kept_is_small():
    files = [*FOLDER.iterdir()]
    assert {path.stem for path in files} == {*sources()}
    assert sum(path.stat().st_size for path in files) < 200_000


def test_requests_are_taken_over_and_over_and_cut():
    kept = read_trace(FOLDER / "mt_bench_extraction.parquet")
    trace = answer_traces.answers_trace("mt_bench_extraction", 45, 50)
    assert trace.num_requests == 45
    taken = kept.output_tokens[np.arange(45) % kept.num_requests]
    assert trace.output_tokens.tolist() == np.minimum(taken, 50).tolist()
    first, again = trace.part(0, 1), trace.part(20, 21)
    assert (first.accepted_tokens == again.accepted_tokens).all()
    length = int(first.output_tokens[0])
    left = np.arange(length, 0, -1)
    assert (first.accepted_tokens == np.minimum(kept.accepted_tokens[:length], left)).all()


def test_a_folder_without_the_clones_is_named(refuse, monkeypatch):
    monkeypatch.setattr("answer_traces._encoder", lambda: None)
    refuse(main, "nowhere", "a clone of the repository, with commit")
