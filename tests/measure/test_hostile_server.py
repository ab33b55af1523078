"""Servers that say what no server should: one line each, no secret told, nothing lost."""

import json
import time
from pathlib import Path

import pytest

pytest.importorskip("aiohttp")
pytest.importorskip("filelock")

from standin_server import standing_in

from specmodel import cli

SMALL = "--concurrency 1,2 --prompt-length 8 --output-length 8 --repeats 1 --requests 1"
DEEP = "[" * 100_000
KEY = "sesame-open-7"


@pytest.fixture
def measure(tmp_path, monkeypatch, capsys):
    """Measure a server of these settings; return the status, and all that was said."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr("specmodel.cli.measure_engine._POLL", 0.05)
    monkeypatch.setattr("specmodel.measure.live.driver.SETTLED", 0.1)

    def done(options="", **settings):
        with standing_in(**settings) as server:
            words = f"measure-engine {server.url} --output served.csv {SMALL} {options}".split()
            status = cli.main(words)
        out, err = capsys.readouterr()
        said = out + err
        assert "nan" not in said.lower().replace("got nan", "")
        assert KEY not in said
        assert all(KEY not in path.read_text() for path in Path().iterdir())
        if status:
            assert err.splitlines()[-1].startswith("specmodel: error: ")
        return status, said

    return done


@pytest.mark.parametrize(
    "usage",
    [
        '{"prompt_tokens":1e400,"completion_tokens":MADE}',
        '{"prompt_tokens":8,"completion_tokens":1e400}',
        '{"prompt_tokens":-5,"completion_tokens":MADE}',
        '{"prompt_tokens":true,"completion_tokens":MADE}',
        f'{{"prompt_tokens":{"9" * 400},"completion_tokens":MADE}}',
        DEEP,
    ],
)
def test_usage_that_counts_nothing(usage, measure):
    status, said = measure(usage=usage)
    assert status == 2
    assert "no usage in it that says how many tokens it has" in said


@pytest.mark.parametrize("path", ["/v1/models", "/version", "/server_info"])
def test_json_that_is_nested_too_deep(path, measure):
    status, said = measure(says={path: DEEP})
    assert status == (2 if path == "/v1/models" else 0)
    assert status == 0 or f"with a list at {path}" in said


@pytest.mark.parametrize("length", [True, -1, 1e400, "x"])
def test_a_context_length_that_is_none(length, measure):
    text = json.dumps({"data": [{"id": "m", "max_model_len": length}]})
    assert measure(says={"/v1/models": text})[0] == 0


@pytest.mark.parametrize("version", ["1e400", "true", '"\\n\\u001b[0m"'])
def test_a_version_that_is_none(version, measure):
    status, said = measure(says={"/version": f'{{"version": {version}}}'})
    assert status == 0
    assert "inf" not in Path("served.csv").read_text()
    assert "\x1b" not in said


def test_a_draft_length_that_changes_is_told_in_words(measure):
    told = {"speculative_algorithm": "EAGLE3", "speculative_adaptive": True}
    status, said = measure("--wait 0", says={"/server_info": json.dumps(told)}, engine="sglang")
    assert status == 2
    assert "--draft-length: got 'one that changes'; expected 0" in said


def echo(headers):
    return 400, "", f"no {headers['authorization']}: {headers['authorization'].split()[1]}"


def echo_in_stream(headers):
    return 200, "", 'data: {"error": "' + headers["authorization"] + '"}\n\n'


def echo_in_metrics(headers):
    return 200, "", headers["authorization"] + " is no line"


@pytest.mark.parametrize(
    ("path", "said_by"),
    [
        ("/v1/completions", echo),
        ("/v1/completions", echo_in_stream),
        ("/metrics", echo_in_metrics),
    ],
)
def test_a_key_that_the_server_says_again_is_masked(path, said_by, measure, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    status, said = measure(says={path: said_by}, forms=("ids",))
    assert status == 2
    assert "Bearer ***" in said
    monkeypatch.setenv("OPENAI_API_KEY", "abc")  # too short to be looked for alone
    assert "Bearer ***" in measure(says={path: said_by}, forms=("ids",))[1]


def test_a_key_of_two_lines(measure, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sesame\nopen")
    status, said = measure()
    assert status == 2
    assert "--api-key: got 'a key of several lines'; expected one line" in said


def test_a_page_of_18_mb_is_not_read(measure):
    begun = time.monotonic()
    status, said = measure(says={"/metrics": "# HELP x y\n" * 1_700_000})
    assert status == 2
    assert "(at most 4 MB at /metrics, where it says more)" in said
    assert time.monotonic() - begun < 5.0


@pytest.mark.parametrize("streams", ["", "--no-stream"])
def test_an_answer_that_goes_on_is_left(streams, measure):
    status, said = measure(streams, says={"/v1/completions": "x" * 20_000_000}, forms=("ids",))
    assert status == 2
    assert "MB for " in said


@pytest.mark.parametrize("path", ["/v1/models", "/metrics"])
def test_redirects_in_a_circle(path, measure):
    status, said = measure(says={path: lambda _: (307, f"location: {path}\r\n", "")})
    assert status == 2
    assert "a server that answers (it redirects again and again)" in said


DRAFTING = "".join(
    f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="{i}"}} 5\n' for i in range(2)
)
DRAFTING += "vllm:spec_decode_num_drafts_total 7\n"
STILL = "vllm:generation_tokens_total 50\nvllm:request_success_total 3\n"


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "1e400"])
@pytest.mark.parametrize("name", ["generation_tokens_total 5", "per_pos_total{position=", "start"])
def test_counters_that_are_no_numbers(value, name, measure):
    page = f"process_start_time_seconds 5\n{STILL}{DRAFTING}"
    lines = [
        f"{line.rpartition(' ')[0]} {value}" if name in line else line for line in page.splitlines()
    ]
    status, said = measure("--draft-length 2", says={"/metrics": "\n".join([*lines, ""])})
    assert status == 2
    assert "expected finite numbers from 0" in said


def test_a_counter_of_400_digits(measure):
    status, said = measure(says={"/metrics": STILL.replace("50", "9" * 400)})
    assert status == 2
    assert "9999'; expected a line in Prometheus' text format" in said


def test_counters_that_stand_still(measure):
    status, said = measure("--draft-length 2", says={"/metrics": STILL + DRAFTING})
    assert status == 2
    assert "server: got 'counters that do not move'" in said
    assert "run," not in Path("served.rows.csv").read_text().replace("-up", "")
    Path("served.rows.csv").unlink()
    status, said = measure(says={"/metrics": STILL})
    assert status == 0
    assert "counters do not move: traffic of others is not seen" in said


def vanishing(after):
    """A page of counters that is there for a number of visits."""
    visits = iter(range(10**6))

    def page(_):
        number = next(visits)
        text = STILL.replace("50", str(50 + 10_000 * number)).replace("3", str(3 + 1000 * number))
        return 200, "", text + DRAFTING.replace("7", str(7 + number)) if number < after else "up 1"

    return page


@pytest.mark.parametrize("after", [1, 2, 3])
def test_counters_that_vanish(after, measure):
    status, said = measure("--draft-length 2", says={"/metrics": vanishing(after)})
    assert status == 2
    assert "counters at /metrics, as before: they are gone" in said
