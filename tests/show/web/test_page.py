"""The page of explore: its numbers are those of the commands; nothing that is sent breaks it."""

import html
import io
import json
import os
import random
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from contextlib import redirect_stdout
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

import pytest
from rows import each_row, slow

for package in ("starlette", "uvicorn", "jinja2", "python_multipart", "matplotlib", "httpx2"):
    pytest.importorskip(package)
import httpx2 as httpx
from starlette.testclient import TestClient

import specmodel
from specmodel import cli
from specmodel.show.web import server
from specmodel.show.web.pages import SCENARIOS

LOCAL = "http://127.0.0.1"
QWEN = {"target": "qwen3-30b-a3b", "hardware": "h200_sxm"}
ASKED = [
    *(dict(parse_qsl(address)) for address in SCENARIOS.values()),
    {},
    QWEN | {"tpot_target": "6ms", "batch_size": "48"},
    QWEN | {"acceptance": "rate", "acceptance_rate": "0.65", "draft_length": "3"},
    {"target": "mixtral-8x7b", "hardware": "h100_sxm"},
    QWEN | {"drafter": "ngram", "prompt_length": "2000", "output_length": "500"},
]
CONFIG = {
    "model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "hidden_size": 4096,
    "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2,
    "vocab_size": 32000, "max_position_embeddings": 32768, "torch_dtype": "bfloat16",
}  # fmt: skip


@pytest.fixture(scope="module")
def client():
    with TestClient(server.app(["127.0.0.1"]), LOCAL, follow_redirects=False) as client:
        yield client


def printed(command):
    """What a command line that succeeds prints."""
    out = io.StringIO()
    with redirect_stdout(out):
        assert cli.main(shlex.split(command)[1:]) == 0
    return out.getvalue()


def typed(text):
    """What the page gives to type: the command line, and the Python."""
    shown = [html.unescape(each) for each in re.findall(r"<pre[^>]*>(.*?)</pre>", text, re.DOTALL)]
    return [each for each in shown if each.startswith(("specmodel", "import specmodel"))]


def told(text):
    """The words of a page."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", text)).split())


@each_row("fields", ASKED)
def test_the_page_has_the_numbers_of_the_command_and_the_python_that_it_shows(client, fields):
    query = urlencode(fields)
    page = client.get(f"/?{query}")
    assert page.status_code == 200
    command, python = typed(page.text)
    fields_of_json = json.loads(printed(f"{command} --json"))
    assert client.get(f"/answer.json?{query}").json() == fields_of_json
    assert client.get(f"/answer.csv?{query}").text.strip() == printed(f"{command} --csv").strip()
    in_words = printed(command)
    out = io.StringIO()
    with redirect_stdout(out):
        exec(python, {})
    assert out.getvalue() == in_words
    verdict = " ".join(re.split(r"\.\s", in_words)[0].split())
    assert verdict in told(page.text)
    speedups = [f"{row['speedup']:.2f}" for row in fields_of_json["rows"] if "speedup" in row]
    cells = re.findall(r"<td>(?:<strong>)?([0-9.]+)", page.text)
    fitting = [s for s, row in zip(speedups, fields_of_json["rows"], strict=False) if row["fits"]]
    assert {*fitting} <= {*cells}


def test_what_was_measured_is_shown_with_its_source(client):
    text = client.get(f"/answer?{urlencode(QWEN)}").text
    links = re.findall(r'<a href="(https://[^"]*)"', text)
    assert "<svg" in client.get(f"/waterfall?{urlencode(QWEN)}").text
    assert "https://github.com/sgl-project/SpecForge/issues/339" in links
    table = Path(specmodel.__file__).parent / "show/data/published_pairs.csv"
    assert {*links} <= {line.rpartition(",")[2] for line in table.read_text().splitlines()}


def test_what_an_engine_is_told_stands_alone_to_be_pasted(client):
    page = client.get(f"/answer?{urlencode(QWEN | {'engine': 'sglang'})}").text
    blocks = re.findall(r"<pre[^>]*>(.*?)</pre>", page, re.DOTALL)
    pasted = "--speculative-algorithm EAGLE3 --speculative-draft-model-path DRAFTER"
    assert any(html.unescape(block).startswith(pasted) for block in blocks)


@each_row(
    ("query", "words"),
    [
        ("target=/etc/passwd", "Model: got"),
        ("target=upload-nothing", "your config.json again"),
        ("target=qwen3", "a full name, one of"),
        ("engine=/etc/vllm.toml", "Engine: got"),
        ("num_gpus=many", "whole number"),
        ("batch_size=0", "Requests at once: got"),
        ("acceptance=rate&acceptance_rate=2", "Rate at which"),
        ("acceptance=sure", "typical-low"),
        ("tpot_target=20", "20ms"),
        ("prompt_length=10", "Output [tokens]"),
        ("tagret=qwen3-30b-a3b", "target"),
        ("target=deepseek-v3&hardware=t4&num_gpus=1&drafter=%00", "Drafter: got"),
        ("target=<script>alert(1)</script>", "&lt;script&gt;"),
    ],
)
def test_what_cannot_be_answered_is_a_message_on_the_page(client, query, words):
    for path in ("/", "/answer", "/answer.json", "/speedup.svg"):
        got = client.get(f"{path}?{query}")
        assert got.status_code == 400, path
        assert words in got.text or path[-5:] in (".json", "p.svg"), path
        assert "Traceback" not in got.text
        assert "<script>alert" not in got.text or "html" not in got.headers["content-type"]


def test_nothing_is_fetched_from_elsewhere(client):
    linked = re.findall(r'(?:src|href|action)="([^"]*)"', client.get("/?").text)
    assert linked
    assert not [each for each in linked if each[:1] not in "/#" and each != "data:,"]


@each_row(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 400),
        ({"host": "127.0.0.1.evil.example"}, 400),
        ({"host": "127.0.0.1:8000"}, 200),
    ],
)
def test_other_names_of_this_machine_are_turned_away(client, headers, status):
    assert client.get("/static/explore.css", headers=headers).status_code == status


def test_other_sites_may_send_nothing(client):
    for origin in ("https://evil.example", "null", "http://127.0.0.1:1", "http://["):
        for path in ("/upload", "/load", "/load/x/cancel"):
            sent = client.post(path, content=b"", headers={"origin": origin})
            assert sent.status_code == 403


def uploaded(client, content):
    return client.post("/upload", files={"config": ("config.json", content)})


def test_an_uploaded_model_is_answered_and_the_page_says_that_it_is_not_in_the_address(
    client, tmp_path, monkeypatch
):
    sent = uploaded(client, json.dumps(CONFIG).encode())
    assert sent.status_code == 303
    address = sent.headers["location"] + "&hardware=h100_sxm&num_gpus=2&acceptance=typical"
    page = client.get(address)
    assert page.status_code == 200
    assert "the address does not carry it" in page.text
    monkeypatch.chdir(tmp_path)
    Path("config.json").write_text(json.dumps(CONFIG))
    command, _ = typed(page.text)
    found = client.get(address.replace("/?", "/answer.json?", 1)).json()
    expected = json.loads(printed(f"{command} --json"))
    assert found["rows"] == expected["rows"]
    Path("model.toml").write_text(client.get(address.replace("/?", "/model.toml?", 1)).text)
    as_toml = json.loads(printed(command.replace("config.json", "model.toml") + " --json"))
    assert as_toml["rows"] == expected["rows"]


@each_row(
    "content",
    [
        *(b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000, b'{"a": "' + b"y" * 10_000_000 + b'"}'),
        *(b'{"model_type": "bert"}', json.dumps(CONFIG | {"hidden_size": "many"}).encode()),
    ],
)
def test_an_upload_that_is_no_model_is_told_without_a_path(client, content):
    sent = uploaded(client, content)
    assert sent.status_code == 400
    assert "This cannot be answered" in sent.text
    assert "/tmp" not in sent.text


def test_uploads_are_forgotten_in_turn(client):
    first = uploaded(client, json.dumps(CONFIG).encode()).headers["location"]
    for _ in range(16):
        uploaded(client, json.dumps(CONFIG).encode())
    assert client.get(first).status_code == 400


def fuzzed(rng):
    """An address of fields and values that are likely, and likely wrong."""
    names = [*server.OF_LOAD, "target", "hardware", "num_gpus", "drafter", "acceptance", "engine"]
    names += ["acceptance_rate", "draft_length", "context_length", "prompt_length", "batch_size"]
    names += ["output_length", "graph_limit", "tpot_target", "view", "other_hardware"]
    names += ["other_target", "other_drafter", "other_num_gpus", "x", ""]
    likely = ["qwen3-30b-a3b", "gpt-oss-120b", "h200_sxm", "b200", "t4", "eagle3", "ngram", "mtp"]
    likely += ["rate", "typical", "0.7", "1", "3", "8", "64", "4096", "20ms", "schedule", "ideal"]
    wrong = ["", "-1", "0", "1e9", "nan", "inf", "1" * 18, "1" * 400, "../../x", "/dev/zero", "\0"]
    wrong += ["٣", "1_0", "%", "é" * 50, "<b>", "upload-", "upload-../x", "qwen3", "512,8", "NaN"]
    fields = rng.sample(names, rng.randint(0, 6))
    return urlencode([(n, rng.choice(rng.choice((likely, likely, wrong)))) for n in fields])


@pytest.mark.parametrize(
    "count", [60, pytest.param(2000, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])]
)
def test_no_address_or_upload_is_answered_with_a_fault(client, count):
    rng = random.Random(63)
    told = set()
    for i in range(count):
        if i % 4:
            got = client.get(f"/answer?{fuzzed(rng)}")
        else:
            text = bytearray(json.dumps(CONFIG).encode())
            for _ in range(rng.randint(1, 20)):
                text[rng.randrange(len(text))] = rng.randrange(256)
            got = uploaded(client, bytes(text))
        assert got.status_code in (200, 303, 400), got.text
        assert "Traceback" not in got.text
        told.add(got.status_code)
    assert {200, 400} <= told


def test_too_many_at_once_are_turned_away(client, monkeypatch):
    monkeypatch.setattr(server, "MOST_WAITING", 0)
    got = client.get("/?batch_size=77")
    assert (got.status_code, got.headers["retry-after"]) == (503, "5")


def loaded(client, address):
    """The page of a load that is done."""
    for _ in range(3000):
        text = client.get(address).text
        if 'id="running"' not in text:
            return text
        time.sleep(0.1)
    raise AssertionError(text)


LOADED = [
    ({"request_rate": "1,2"}, "--request-rate 1,2"),
    ({"drain": "64"}, "--prompt-length 200 --output-length 500 --drain 64 --by-formula"),
]


@each_row(("fields", "options"), LOADED)
def test_a_load_is_that_of_the_command(client, fields, options):
    lengths = {"prompt_length": "200", "output_length": "500"} if "drain" in fields else {}
    started = client.post(f"/load?{urlencode(QWEN | lengths)}", data=fields)
    assert started.status_code == 303
    address = started.headers["location"]
    page = loaded(client, address)
    (command,) = typed(page)
    assert command == f"specmodel load qwen3-30b-a3b h200_sxm {options}"
    assert "of this model and drafter" in page
    assert " ".join(re.split(r"\.\s", printed(command))[0].split()) in told(page)
    path = address.partition("?")[0]
    assert client.get(f"{path}/load.json").json() == json.loads(printed(f"{command} --json"))
    assert client.get(f"{path}/load.csv").text.strip() == printed(f"{command} --csv").strip()


def test_a_load_is_cancelled_and_no_more_than_two_run(client):
    data = {"tpot_target": "20ms"}
    started = [client.post(f"/load?{urlencode(QWEN)}", data=data) for _ in range(3)]
    assert [each.status_code for each in started] == [303, 303, 503]
    for each in started[:2]:
        path, _, query = each.headers["location"].partition("?")
        assert client.post(f"{path}/cancel?{query}").status_code == 303
        assert "cancelled" in client.get(f"{path}?{query}").text
    for sent in ("self=1", "request=1", "%00=%ff", "drain=100001", "drain=many"):
        assert client.post("/load", content=sent).status_code == 400
    assert client.get("/load/nothing").status_code == 400


def test_without_a_server_the_scenarios_are_pages(tmp_path, capsys):
    assert cli.main(["explore", "--output", str(tmp_path)]) == 0
    pages = {path.stem: path.read_text("utf-8") for path in tmp_path.iterdir()}
    assert len(pages) == len(SCENARIOS) == 4
    for text in pages.values():
        assert "<svg" in text
        assert "<form" not in text
        assert 'href="/' not in text
    assert "Under load" in pages["rollouts-drain"]
    assert "limited by overhead" in pages["235b-at-0-4x-graphs-not-experts"]
    (tmp_path / "rollouts-drain.html").write_text("mine")
    (tmp_path / "mtp-at-64-users.html").unlink()
    assert cli.main(["explore", "--output", str(tmp_path)]) == 2
    assert "or --overwrite" in capsys.readouterr().err
    assert not (tmp_path / "mtp-at-64-users.html").exists()
    assert cli.main(["explore", "--output", str(tmp_path), "--overwrite"]) == 0
    assert "<svg" in (tmp_path / "rollouts-drain.html").read_text("utf-8")


@pytest.mark.parametrize("name", ["SIGINT", *slow("SIGTERM")])
def test_a_signal_ends_the_server_whose_port_no_other_gets(name, capsys):
    heed = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    program = f"{heed}; from specmodel.cli import run; raise SystemExit(run())"
    words = [sys.executable, "-c", program, "explore", "--no-browser"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    pipes["start_new_session"] = True
    with subprocess.Popen(words, **pipes) as served:
        port = re.search(r"http://127\.0\.0\.1:(\d+)/", served.stdout.readline())[1]
        try:
            headers = httpx.get(f"http://127.0.0.1:{port}/", timeout=60).headers
            assert "default-src 'none'" in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"
            assert cli.main(["explore", "--no-browser", "--port", port]) == 2
            (line,) = capsys.readouterr().err.splitlines()
            assert f"--port: got '127.0.0.1:{port}'" in line
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as asking:
                load = asking.post("/load", data={"users": "1,2,3,4"}).headers["location"]
                while " 0 runs done" in asking.get(load).text:
                    time.sleep(0.1)
            os.killpg(served.pid, getattr(signal, name))  # as a terminal does
            assert served.wait(20) in (0, 130)
        finally:
            served.kill()
        assert served.stderr.read().strip() == ""
    with socket.socket() as free:
        free.bind(("127.0.0.1", int(port)))


@each_row(
    ("words", "told"),
    [
        (["--host", "0.0.0.0"], "--public"),
        (["--host", "192.0.2.1", "--public"], "assign requested address"),
        (["--port", "70000"], "0-65535"),
    ],
)
def test_where_the_page_cannot_be_served_one_line_says_why(capsys, words, told):
    assert cli.main(["explore", "--no-browser", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line
