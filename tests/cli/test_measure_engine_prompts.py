"""Prompts of measure-engine: ids that the model has, words where none are taken, one's own."""

import json
import re
from pathlib import Path

import pandas as pd
import pytest
from engine_modules import own_source

pytest.importorskip("aiohttp")
pytest.importorskip("filelock")

from standin_server import standing_in

from specmodel import cli

SMALL = "--concurrency 1,3 --output-length 16 --repeats 1 --requests 1"


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("drafted", [0, 2])
def test_ids_are_those_that_the_model_has(engine, drafted, measure):
    with standing_in(engine=engine, vocabulary=4096, draft_length=drafted, accepted=(1,)) as server:
        _, err = measure(server.url, f"{SMALL} --prompt-length 64 --draft-length {drafted}")
    assert "prompts as ids" in err
    ids = [token for prompt in server.prompts for token in prompt]
    assert 100 <= min(ids) < 150
    assert 4000 < max(ids) < 4096


@pytest.mark.parametrize(
    ("vocabulary", "tells", "least", "most"),
    [(151_936, True, 19_000, 20_000), (151_936, False, 19_000, 20_000), (4096, False, 900, 999),
     (50, True, 40, 49)],
)  # fmt: skip
def test_ids_of_vocabularies_that_are_large_small_or_not_told(
    vocabulary, tells, least, most, measure
):
    with standing_in(vocabulary=vocabulary, tells_vocabulary=tells) as server:
        measure(server.url, f"{SMALL} --prompt-length 64")
    measured = [prompt for prompt in server.prompts if len(prompt) == 64]
    assert least <= max(map(max, measured)) <= most


def test_ids_that_the_model_lacks_are_refused(measure):
    with standing_in(vocabulary=4096) as server:
        _, err = measure(server.url, "--token-ids 100:5000", status=2)
        assert "--token-ids: got 5000; expected ids below 4096" in err
        _, err = measure(server.url, "--prompt-form text --token-ids 100:200", status=2)
        assert "--prompt-form: got 'text'; expected ids" in err
        server.tells_vocabulary = False
        _, err = measure(server.url, "--token-ids 100:5000", status=2)
        assert "Token id 5000 is out of vocabulary" in err


@pytest.mark.engine
def test_engines_tell_their_vocabulary_as_they_refuse():
    vllm = own_source("vllm", "vllm/sampling_params.py")
    bias, drafting = "self._validate_logit_bias(", "self._validate_spec_decode("
    assert vllm.index(bias) < vllm.index(drafting)  # which refuses any bias beside drafts
    assert 'in logit_bias contain "' in vllm
    assert 'f"out-of-vocab token ids. Vocabulary size: {vocab_size}"' in vllm
    sglang = own_source("sglang", "sglang/srt/sampling/sampling_params.py")
    assert 'f"logit_bias must has keys in [0, {vocab_size - 1}], got "' in sglang


def test_a_fall_back_to_words_is_a_warning(measure):
    with standing_in(forms=("text",)) as server:
        _, err = measure(server.url)
        said = " ".join(err.split())
        assert "Warning: the server takes no token ids (status 400" in said
        assert "1.12 tokens a step, where random ids had 2.39" in said
        Path("served.csv").unlink()
        Path("served.rows.csv").unlink()
        _, err = measure(server.url, f"{SMALL} --prompt-length 16 --prompt-form text")
    assert "Warning" not in err


def test_each_summary_says_that_prompts_were_random(measure):
    options = f"{SMALL} --prompt-length 16 --draft-length 2"
    with standing_in(draft_length=2, accepted=(1,)) as server:
        out, _ = measure(server.url, options)
    assert "tokens a step are those of random prompts" in " ".join(out.split())
    table = pd.read_csv("served.csv")
    assert table["prompts"].tolist() == ["random", "random"]
    names = table.columns.tolist()
    assert names.index("prompts") == names.index("tokens_per_step") + 1
    with standing_in() as server:
        out, _ = measure(server.url, "--output other.csv " + SMALL)
    assert "random prompts" not in out  # of plain decoding, nothing is accepted


def test_rates_by_position_go_into_predict_as_they_are_printed(measure, capsys):
    options = f"{SMALL} --prompt-length 16 --draft-length 3"
    with standing_in(draft_length=3, accepted=(2, 1, 3, 0)) as server:
        measure(server.url, options)
    row = pd.read_csv("served.csv").iloc[0]
    ask = "predict --target qwen3-30b-a3b --hardware h200_sxm --batch-size 1 --json --drafter eagle"
    ask += f" --draft-length 3 --acceptance-by-position {row['acceptance_by_position']}"
    assert cli.main(ask.split()) == 0
    predicted = json.loads(capsys.readouterr().out)["rows"][0]["tokens_per_step"]
    # the last draft of an answer is accepted beyond its end
    assert predicted == pytest.approx(row["tokens_per_step"], rel=0.15)


OWN = {
    "ids.jsonl": ['{"prompt": [5, 6, 7]}', '{"prompt": [8, 9, 10, 11, 12], "more": 1}'],
    "text.jsonl": ['{"prompt": "Why is the sky blue?"}', '{"prompt": "Two\\nlines"}'],
    "text.txt": ["Why is the sky blue?", "", "Not at night."],
}


@pytest.mark.parametrize("name", OWN)
def test_prompts_are_one_s_own(name, measure):
    Path(name).write_text("\n".join([*OWN[name], ""]))
    lines = [line for line in OWN[name] if line]
    given = [json.loads(line)["prompt"] if "jsonl" in name else line for line in lines]
    options = f"{SMALL} --draft-length 0,2 --no-closing-round --prompts {name}"
    asked = []
    for length in (0, 2):
        with standing_in(draft_length=length, accepted=(1,)) as server:
            out, err = measure(server.url, f"{options} --wait 0", status=0 if length else 2)
        asked.append(server.prompts)
        sent = [prompt for prompt in server.prompts if prompt not in ([1], given[0])]
        assert sent
        assert all(prompt in given for prompt in sent)
    assert sorted(asked[0]) == sorted(asked[1])  # draft lengths meet the same ones
    assert "Warning: 2 prompts for" in " ".join(err.split())
    assert "Tokens a step are those of the prompts given" in out
    table = pd.read_csv("served.csv")
    assert set(table["prompts"]) == {name}
    sizes = [len(prompt.split()) if isinstance(prompt, str) else len(prompt) for prompt in given]
    assert table["prompt_length"].between(min(sizes), max(sizes)).all()
    Path(name).write_text("\n".join([*OWN[name], *OWN[name], ""]))
    with standing_in() as server:
        _, err = measure(server.url, options, status=2)
    assert "expected rows of prompts" in err


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("none.txt", None, "--prompts: got 'none.txt'"),
        ("a.txt", " \n", "got 'a.txt'; expected prompts of one form; this has no prompt"),
        ("a.jsonl", "", "this has no prompt"),
        ("a.jsonl", "{", "line 1: got '{'; expected well-formed JSON"),
        ("a.jsonl", '{"text": "x"}', "line 1 prompt: none given; expected this key"),
        ("a.jsonl", '{"prompt": ""}', "line 1 prompt: got ''; expected a text, or a list of"),
        ("a.jsonl", '{"prompt": [1, true]}', "line 1 prompt: got [1, True]; expected a text"),
        ("a.jsonl", '{"prompt": [1, -2]}', "expected a text, or a list of token ids"),
        ("a.jsonl", '{"prompt": 1e400}', "expected a text, or a list of token ids"),
        ("a.jsonl", '{"prompt": [9]}\n{"prompt": "x"}', "this has text and token ids"),
        ("a.jsonl", "[" * 100_000, "expected well-formed JSON"),
        ("a.jsonl", '{"prompt": [1, 151936]}', "--prompts: got 151936; expected ids below 151936"),
    ],
)  # fmt: skip
def test_bad_files_of_prompts_are_one_line(name, text, said, measure):
    if text is not None:
        Path(name).write_text(text)
    with standing_in() as server:
        _, err = measure(server.url, f"{SMALL} --prompts {name}", status=2)
    assert re.fullmatch(r"specmodel: error: .*\n", err)
    assert said in err


def test_own_prompts_have_their_own_length(measure):
    Path("a.txt").write_text("hello\n")
    _, err = measure("http://localhost:1", "--prompts a.txt --prompt-length 16", status=2)
    assert "--prompt-length: got '16'; expected none with --prompts" in err
