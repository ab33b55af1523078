"""Traces as files, and from token ids: exact against the definition, and what is refused."""

import json
import os
import re

import numpy as np
import pytest
from made_traces import make_trace
from msgspec.structs import replace
from printed import refused
from rows import cases, each_row, faults, listed

from specmodel import InputError
from specmodel.simulate.traces import ngram_trace, read_tokens, read_trace, write_trace

# n-gram look-up

SIZES = [(low, high) for low in range(1, 7) for high in range(low, 7)]
CASES = 20  # for each of 21 sizes, 2 matches and 12 lengths: 10,080 in all


def look_up(context, low, high, match, most):
    """What is proposed after a context, word by word from the definition."""
    for n in range(high, low - 1, -1):
        tail = context[len(context) - n :] if n < len(context) else None
        places = [i for i in range(len(context) - n) if context[i : i + n] == tail]
        if places:
            i = places[0] if match == "first" else places[-1]
            return context[i + n : i + n + most]
    return []


def reference(prompts, outputs, look_up, *options):
    """Lengths of the proposals and of what holds of them."""
    pairs = []
    for prompt, output in zip(prompts, outputs, strict=True):
        for p in range(len(output)):
            proposal, coming = look_up(prompt + output[:p], *options), output[p:]
            held = 0
            while held < min(len(proposal), len(coming)) and proposal[held] == coming[held]:
                held += 1
            pairs.append((len(proposal), held))
    return pairs


def random_requests(rng, count):
    """Prompts and outputs of few distinct tokens, so that much of them repeats."""
    requests = []
    for _ in range(count):
        ids = rng.integers(0, rng.integers(2, 6), rng.integers(1, 24)).tolist()
        cut = int(rng.integers(0, min(len(ids), 12)))
        requests.append((ids[:cut], ids[cut:]))
    return [prompt for prompt, _ in requests], [output for _, output in requests]


def pairs_of(trace):
    columns = trace.proposed_tokens.tolist(), trace.accepted_tokens.tolist()
    return list(zip(*columns, strict=True))


@each_row("match", ["first", "last"])
@each_row("most", range(1, 13))
def test_ngram_traces_equal_the_definition(most, match):
    rng = np.random.default_rng([most, match == "last"])
    for low, high in SIZES:
        prompts, outputs = random_requests(rng, CASES)
        options = {"min_ngram": low, "max_ngram": high, "match": match, "max_proposal": most}
        trace = ngram_trace(prompts, outputs, **options)
        expected = reference(prompts, outputs, look_up, low, high, match, most)
        assert pairs_of(trace) == expected, (low, high, prompts, outputs)
        assert trace.output_tokens.tolist() == [len(output) for output in outputs]
        assert trace.max_draft_length == most


AS_VLLM_0_6_6 = {"min_ngram": 1, "max_ngram": 3, "match": "first", "is_filled": True}
PROPOSED = 7


def sampler_output(ids, length):
    """What vLLM 0.6.6 proposes after a context, as vllm/spec_decode/ngram_worker.py has it."""
    for n in range(min(3, len(ids) - 1), 0, -1):
        windows = [ids[i : i + n] for i in range(len(ids) - n + 1)]
        matches = [window == ids[-n:] for window in windows[:-1]]
        if any(matches):
            start = matches.index(True) + n
            return [ids[min(start + j, len(ids) - 1)] for j in range(length)]
    return []


def test_filled_look_ups_are_those_of_vllm_0_6_6():
    prompts, outputs = random_requests(np.random.default_rng(66), 400)
    trace = ngram_trace(prompts, outputs, **AS_VLLM_0_6_6, max_proposal=PROPOSED)
    assert pairs_of(trace) == reference(prompts, outputs, sampler_output, PROPOSED)


@each_row(("changes", "culprit"), faults("look-up"))
def test_look_up_refuses(changes, culprit):
    arguments = {"prompts": [[1]], "outputs": [[1]]} | changes
    with pytest.raises(InputError, match=f"^{culprit}"):
        ngram_trace(arguments.pop("prompts"), arguments.pop("outputs"), **arguments)


# files


def some_trace(count=30):
    rng = np.random.default_rng(4)
    proposed = [rng.integers(0, 256, rng.integers(1, 9)).tolist() for _ in range(count)]
    accepted = [[int(rng.integers(0, n + 1)) for n in row] for row in proposed]
    return make_trace(proposed, accepted, 255, {"source": 'ü "quoted"\n', "note": ""})


def plain(value):
    """Arrays, or those of a dictionary, as lists."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return value if value is None else value.tolist()


def kept_traces():
    """With text and none in their metadata, with prompts, and with drafts of some lengths."""
    trace = some_trace()
    at = {n: np.minimum(trace.accepted_tokens, n - 1) for n in (3, 200)}
    prompts = ngram_trace([[1, 2, 3], [4]], [[1, 2], [4, 5]])
    assert (prompts.prompt_tokens.tolist(), prompts.part(1, 2).prompt_tokens) == ([3, 1], [1])
    bare = (make_trace([[2, 0]], [[1, 0]], 7, metadata) for metadata in ({}, {"source": "s"}))
    return [trace, *bare, prompts, replace(trace, accepted_at=at)]


@each_row("trace", kept_traces())
def test_a_written_trace_reads_the_same(trace, tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text("replaced")
    for target in (path, str(path)):
        write_trace(trace, target)
        assert_same(read_trace(target), trace)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def assert_same(trace, other):
    assert pairs_of(trace) == pairs_of(other)
    assert trace.output_tokens.tolist() == other.output_tokens.tolist()
    assert trace.max_draft_length == other.max_draft_length
    assert trace.metadata == other.metadata
    for name in ("prompt_tokens", "accepted_at"):
        assert plain(getattr(trace, name)) == plain(getattr(other, name))
    assert trace.proposed_tokens.dtype == trace.accepted_tokens.dtype == np.uint8
    assert trace.output_tokens.dtype == np.int64


HEADER = {
    "schema": "specmodel-trace", "schema_version": 1, "max_draft_length": 4, "num_requests": 2,
    "metadata": {},
}  # fmt: skip
ROWS = [
    {"proposed_tokens": [4, 0, 2], "accepted_tokens": [1, 0, 2]},
    {"proposed_tokens": [3], "accepted_tokens": [3]},
]


def json_text(header=HEADER, rows=ROWS):
    return "".join(json.dumps(value) + "\n" for value in (header, *rows))


def test_json_lines_are_as_documented(tmp_path):
    path = tmp_path / "mine.jsonl"
    trace = make_trace([[4, 0, 2], [3]], [[1, 0, 2], [3]], 4)
    write_trace(trace, path)
    assert path.read_text(encoding="utf-8") == json_text()
    for text in (json_text().rstrip(), json_text() + "\n \n", "\ufeff" + json_text()):
        path.write_text(text, encoding="utf-8")
        assert_same(read_trace(path), trace)
    path.write_text(json_text().replace("\n", "\r\n"), encoding="utf-8", newline="")
    assert_same(read_trace(path), trace)


PLAIN = "request,accepted_tokens\n" + "a,3\na,2\nb,0\na,1\n"


@cases(
    "name text proposed accepted",
    ("a.jsonl", json_text().partition("\n")[2], [[4, 0, 2], [3]], [[1, 0, 2], [3]]),
    ("a.jsonl", '{"accepted_tokens": [2, 0]}\n[1]\n', [[2, 2], [2]], [[2, 0], [1]]),
    ("a.jsonl", "[0]", [[1]], [[0]]),
    ("a.csv", PLAIN, [[3, 3, 3], [3]], [[3, 2, 1], [0]]),
    ("a.csv", "accepted_tokens\n2\n0\n", [[2, 2]], [[2, 0]]),
    ("a.csv", "proposed_tokens,accepted_tokens\n4,2\n0,0\n", [[4, 0]], [[2, 0]]),
)
def test_a_trace_needs_no_header(name, text, proposed, accepted, tmp_path, run):
    """The longest draft is the largest count, and as long as that are drafts that are not told."""
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    found, longest = read_trace(path), max(1, *map(max, proposed))
    assert_same(replace(found, metadata={}), make_trace(proposed, accepted, longest))
    is_told = [*found.metadata.values()] == [f"drafts of {longest} tokens at each position"]
    assert is_told == ("proposed" not in text)
    assert name in run(f"trace describe {path}")


def test_tables_have_prompts(tmp_path):
    """One of each request, told at each of its positions."""
    path = tmp_path / "mine.csv"
    rows = "0,5,1,2\n0,5,0,0\n1,7,0,1\n"
    path.write_text(f"request,prompt_tokens,accepted_tokens,proposed_tokens\n{rows}")
    found = read_trace(path)
    assert_same(replace(found, prompt_tokens=None), make_trace([[2, 0], [1]], [[1, 0], [0]], 2))
    assert found.prompt_tokens.tolist() == [5, 7]
    path.write_text("prompt_tokens,accepted_tokens\n5,1\n6,0\n")
    refused(r"prompt_tokens: got \[5, 6\]; expected a whole number", read_trace, path)


def edited(header=(), first=(), second=()):
    """A file with changes of its lines; None leaves a key out."""
    rows = [row | dict(changes) for row, changes in zip(ROWS, (first, second), strict=True)]
    kept = ({key: each for key, each in row.items() if each is not None} for row in rows)
    return json_text(HEADER | dict(header), kept)


@listed
def test_files_that_are_no_trace_are_refused(suffix, text, message, tmp_path):
    path = tmp_path / f"output.{suffix}"
    path.write_text(edited(**text) if isinstance(text, dict) else text, encoding="utf-8")
    start, _, rest = refused(message, read_trace, path).partition(str(path))
    assert start == "trace "
    assert len(rest) < 250


@cases(
    "limit value more message",
    ("MAX_POSITIONS", 3, "", r"trace .*mine.jsonl.*at most 3 output tokens"),
    ("MAX_LINE", 200, "[" * 1000, r"line 4: .*a line of at most 0\.0002 MB"),
    ("MAX_LINE", 4_000_000, "[" * 200_000, "line 4: .*expected well-formed JSON"),
)
def test_memory_is_bounded(limit, value, more, message, tmp_path, monkeypatch):
    path = tmp_path / "mine.jsonl"
    path.write_text(json_text() + more)
    monkeypatch.setattr(f"specmodel.simulate.traces.files.{limit}", value)
    refused(message, read_trace, path)


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_what_might_never_end_is_not_opened(suffix, tmp_path):
    path = tmp_path / f"endless.{suffix}"
    os.mkfifo(path)
    refused(f"endless.{suffix}.*it is no ordinary file", read_trace, path)
    refused(f"endless.{suffix}.*it is no ordinary file", read_tokens, path)


@pytest.mark.parametrize("name", ["mine.csv", "mine", "absent/mine.jsonl", "folder.jsonl"])
def test_writing_is_refused(name, tmp_path):
    (tmp_path / "folder.jsonl").mkdir()
    refused(f"^output: got .*{name}", write_trace, some_trace(), tmp_path / name)
    assert [file.name for file in tmp_path.iterdir()] == ["folder.jsonl"]


def test_metadata_that_would_not_read_is_not_written(tmp_path):
    trace = make_trace([[1]], [[1]], 1, {"seed": 1})  # no text
    with pytest.raises(InputError, match=r"^trace.metadata.seed: got 1; expected a text"):
        write_trace(trace, tmp_path / "mine.jsonl")
    assert not list(tmp_path.iterdir())


# token ids

REQUESTS = [
    {"prompt_token_ids": [1, 2, 3, 4, 5], "output_token_ids": [1, 2, 3, 4, 5, 1], "id": "a"},
    {"prompt_token_ids": [], "output_token_ids": [7]},
]


def lines_of(values):
    return "".join(json.dumps(value) + "\n" for value in values)


def token_file(path, text=None):
    path.write_text(lines_of(REQUESTS) if text is None else text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("end", ["", "\n", "\n  \n"])
def test_token_ids_read(end, tmp_path):
    path = token_file(tmp_path / "in.jsonl", lines_of(REQUESTS) + end)
    prompts, outputs = read_tokens(path)
    assert [ids.tolist() for ids in prompts] == [[1, 2, 3, 4, 5], []]
    assert [ids.tolist() for ids in outputs] == [[1, 2, 3, 4, 5, 1], [7]]
    assert {ids.dtype for ids in prompts + outputs} == {np.dtype(np.int64)}


def with_second(**changes):
    row = {k: v for k, v in (REQUESTS[1] | changes).items() if v != "left out"}
    return lines_of([REQUESTS[0], row])


BAD_TOKENS = [
    ("", "input: got '.*'; expected at least one request"),
    (with_second(output_token_ids=[]), "line 2 output_token_ids: got 'no tokens'; .*at least one"),
    (with_second(output_token_ids="left out"), "line 2 output_token_ids: got None; .*this key"),
    (with_second(prompt_token_ids=[1, -1]), "line 2 prompt_token_ids: got -1.0; .*from 0"),
    (with_second(prompt_token_ids=[1, 2.5]), "line 2 prompt_token_ids: got 2.5; .*whole"),
    (lines_of(REQUESTS)[:-5], "line 2: got .*; expected well-formed JSON"),
]


@pytest.mark.parametrize(("text", "message"), BAD_TOKENS, ids=lambda text: text[:40])
def test_token_files_that_are_refused(text, message, tmp_path):
    path = token_file(tmp_path / "in.jsonl", text)
    refused(message, read_tokens, path)


# the command


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with in.jsonl."""
    token_file(tmp_path / "in.jsonl")
    monkeypatch.chdir(tmp_path)


def test_command_writes_the_trace_and_says_what_it_is(run, folder):
    out = run("trace ngram in.jsonl --output out.jsonl")
    (statistics,) = re.findall(r"^out\.jsonl +(.*)", out, re.MULTILINE)
    assert statistics.split()[:8] == ["1.17", *["1.40"] * 6, "20.0%"]
    assert out.splitlines()[-3:] == [
        "Look-up of the last 5 to 3 tokens, first match, at most 20 proposed",
        "2 requests, 7 output tokens",
        "Written: out.jsonl",
    ]
    trace = read_trace("out.jsonl")
    assert pairs_of(trace) == [(0, 0), (0, 0), (0, 0), (5, 3), (5, 2), (5, 1), (0, 0)]
    assert trace.metadata["source"] == "in.jsonl"


def test_a_link_to_the_input_is_not_written(refuse, folder, tmp_path):
    (tmp_path / "hard.jsonl").hardlink_to(tmp_path / "in.jsonl")
    (tmp_path / "soft.jsonl").symlink_to(tmp_path / "in.jsonl")
    for name in ("hard.jsonl", "soft.jsonl"):
        told = f"--output: got '{name}'; expected a file other than the input, in.jsonl"
        refuse(f"trace ngram in.jsonl --output {name}", told)
