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
from contextlib import redirect_stdout
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

import pytest
from printed import output_of
from programs import start
from rows import each_row, faults, listed, slow
from shapes import CONFIG

for package in ("starlette", "uvicorn", "jinja2", "matplotlib", "httpx2"):
    pytest.importorskip(package)
import httpx2 as httpx
from starlette.testclient import TestClient

import specmodel
from specmodel import cli
from specmodel.show.web import server
from specmodel.show.web.address import FIELDS
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


@pytest.fixture(scope="module")
def client():
    with TestClient(server.app(["127.0.0.1"], ()), LOCAL, follow_redirects=False) as client:
        yield client


def printed(command):
    """What a command line that succeeds prints."""
    return output_of(command.removeprefix("specmodel "))


def typed(text):
    """What the page gives to type: the command line, and the Python."""
    shown = [html.unescape(each) for each in re.findall(r"<pre[^>]*>(.*?)</pre>", text, re.DOTALL)]
    return [each for each in shown if each.startswith(("specmodel", "import specmodel"))]


def pasted(text):
    """What stands to be pasted into an engine."""
    return [html.unescape(each) for each in re.findall(r'class="paste">(.*?)</pre>', text)]


def told(text):
    """The words of a page."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", text)).split())


@pytest.mark.parametrize("fields", ASKED)
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
    cells = re.findall(r'data-title="speedup">([0-9.]+)', page.text)
    rows = fields_of_json["rows"]
    speedups = {f"{row['speedup']:.2f}" for row in rows if "speedup" in row and row["fits"]}
    assert speedups <= {*cells}


ALONE = {"advice", "paste_into", "engine_option", "tpot_target"}
"""Facts that stand in the headline, or beside what is pasted."""


@each_row("fields", ASKED)
def test_the_page_has_each_fact_and_its_notes_are_folded(client, fields):
    query = urlencode(fields)
    page, answer = client.get(f"/?{query}").text, client.get(f"/answer.json?{query}").json()
    if "batch_size" in fields:
        command = f"{typed(page)[0]} --batch-size {fields['batch_size']} --json"
        answer = json.loads(
            printed(command.replace(" --batch-size 1,2,4,8,16,32,48,64,128,256", ""))
        )
    facts, (before, folded) = answer["facts"], page.split('<details class="notes">')
    folded = told(folded.partition("</details>")[0])
    for note in answer["warnings"]:
        assert f"{note}." in folded
        assert note not in before
    for name, fact in facts.items():
        value = fact["value"]
        if isinstance(value, dict):
            assert all(f"{own:.2f}" in folded for own in value.values()), name
        elif name not in ALONE and name.rpartition("_")[2] != "at" and not isinstance(value, list):
            forms = (
                ("{}",)
                if isinstance(value, str)
                else ("{:.2f}", "{:.0%}", "{:+.0%}", "{:.1%}", "{:,.0f}")
            )
            assert any(form.format(value) in folded for form in forms), name
    headline = told(re.search(r"<h2>(.*?)</h2>", page)[1])
    assert f"{facts.get('most', facts.get('pays_from'))['value']:.2f}" in headline
    assert pasted(page) == [facts[n]["value"] for n in facts if n == "engine_option"]


@listed
def test_names_are_looked_up_as_on_the_command_line(client, target, hardware, drafter):
    fields = {"target": target, "hardware": hardware, "drafter": drafter}
    rate = {"acceptance": "rate", "acceptance_rate": "0.7"}
    command = f"specmodel predict {shlex.join([target, hardware])} --acceptance-rate 0.7"
    expected = json.loads(printed(f"{command} --drafter {drafter} --json"))
    got = client.get(f"/answer.json?{urlencode(fields | rate)}").json()
    assert got["deployment"] == expected["deployment"]
    assert got["rows"] == expected["rows"]


def test_a_name_that_is_not_known_gets_the_line_of_the_command(client, capsys):
    for target, hardware in (("qwen9", "h200"), ("qwen3-30b-a3b", "h999"), ("a/b", "h200")):
        assert cli.main(["predict", target, hardware]) == 2
        line = capsys.readouterr().err.removeprefix("specmodel: error: --").strip()
        query = urlencode({"target": target, "hardware": hardware})
        assert client.get(f"/answer.json?{query}").text.strip() == line


@listed
def test_settings_of_which_different_things_are_known_stand_side_by_side(client, query):
    page = client.get(f"/?{query}")
    assert page.status_code == 200
    assert page.text.count('class="verdict"') == 2


def test_what_was_measured_is_shown_with_its_source(client):
    text = client.get(f"/?{urlencode(QWEN)}").text
    links = re.findall(r'<a href="(https://[^"]*)"', text)
    assert "https://github.com/sgl-project/SpecForge/issues/339" in links
    table = Path(specmodel.__file__).parent / "show/data/published_pairs.csv"
    assert {*links} <= {line.rpartition(",")[2] for line in table.read_text().splitlines()}


def test_what_sglang_reads_stands_alone_to_be_pasted(client):
    (option,) = pasted(client.get(f"/?{urlencode(QWEN | {'engine': 'sglang'})}").text)
    assert option.startswith(
        "--speculative-algorithm EAGLE3 --speculative-draft-model-path DRAFTER"
    )


def test_a_second_setting_stands_beside_the_first_and_the_schedule_below(client):
    second = QWEN | {"hardware": "b200"}
    fields = QWEN | {"other_hardware": "b200", "view": "schedule"}
    text = client.get(f"/?{urlencode(fields)}").text
    alone = [client.get(f"/?{urlencode(each)}").text for each in (QWEN, second)]
    assert re.findall("<h2>(.*?)</h2>", text) == [re.search("<h2>(.*?)</h2>", a)[1] for a in alone]
    assert typed(text)[:2] == [typed(each)[0] for each in alone]
    fragment = printed(
        f"{typed(text)[0]} --for vllm --fragment-only".replace("predict", "schedule")
    )
    assert fragment.strip() in html.unescape(text)


@each_row(("query", "words"), faults("explore"))
def test_what_cannot_be_answered_is_a_message_on_the_page(client, query, words):
    for path in ("/", "/answer.json", "/speedup.svg"):
        got = client.get(f"{path}?{query}")
        assert got.status_code == 400, path
        assert words in got.text or path[-5:] in (".json", "p.svg"), path
        assert "Traceback" not in got.text
        assert "<script>alert" not in got.text or "html" not in got.headers["content-type"]


def test_nothing_is_fetched_from_elsewhere(client):
    linked = re.findall(r'(?:src|href|action)="([^"]*)"', client.get("/?").text)
    assert linked
    assert not [each for each in linked if each[:1] not in "/#" and each != "data:,"]


@listed
def test_other_names_of_this_machine_are_turned_away(client, headers, status):
    assert client.get("/static/explore.css", headers=headers).status_code == status


def test_a_file_of_ones_own_is_named_on_the_command_line_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("config.json").write_text(json.dumps(CONFIG))
    gpu = specmodel.core.machines.hardware.load_hardware("h100_sxm")
    Path("gpu.toml").write_text(specmodel.core.base.records.toml_text(gpu))
    files = {"target": "./config.json", "hardware": "./gpu.toml"}
    address = urlencode(files | {"num_gpus": 2, "acceptance": "typical"})
    with TestClient(server.app(["127.0.0.1"], files.values()), LOCAL) as client:
        page = client.get(f"/?{address}")
        command, _ = typed(page.text)
        assert command.startswith("specmodel predict ./config.json 2x./gpu.toml --acceptance")
        found = client.get(f"/answer.json?{address}").json()
        assert found["rows"] == json.loads(printed(f"{command} --json"))["rows"]
        assert client.get("/answer.json?target=./other.json").status_code == 400
        assert client.get(f"/model.toml?{address}").text.startswith("schema_version")


WORDS = json.loads((Path(__file__).parents[2] / "data/explored.json").read_text("utf-8"))
LIKELY, WRONG = WORDS["likely"], [*WORDS["wrong"], "1" * 400, "x" * 5000, "a" + " " * 3000]


def fuzzed(rng):
    """An address of fields that are likely, one of ten values wrong."""
    fields = {name: LIKELY.get(name, ["1", "3", "64", "4096"]) for name in (*FIELDS, "x", "")}
    names = rng.sample([*fields], rng.randint(0, 6))
    likely = {name: LIKELY.get(name.removeprefix("other_"), fields[name]) for name in names}
    return urlencode([(n, rng.choice(likely[n] if rng.random() < 0.9 else WRONG)) for n in names])


@pytest.mark.parametrize(
    "count", [30, pytest.param(1000, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])]
)
def test_no_address_is_answered_with_a_fault(client, count):
    rng = random.Random(63)
    told = set()
    for _ in range(count):
        got = client.get(f"/?{fuzzed(rng)}")
        assert got.status_code in (200, 400), got.text
        assert "Traceback" not in got.text
        told.add(got.status_code)
    assert {200, 400} <= told


def test_without_a_server_the_scenarios_are_pages(tmp_path, capsys):
    assert cli.main(["explore", "--output", str(tmp_path)]) == 0
    pages = {path.stem: path.read_text("utf-8") for path in tmp_path.iterdir()}
    assert len(pages) == len(SCENARIOS) == 3
    for text in pages.values():
        assert "<svg" in text
        assert "<form" not in text
        assert 'href="/' not in text
    assert "Leave speculation off: 0.37x, draft length 3" in pages["why-did-235b-slow-down-to-0-4x"]
    (tmp_path / "long-context-on-a-workstation.html").write_text("mine")
    (tmp_path / "mtp-at-64-users.html").unlink()
    assert cli.main(["explore", "--output", str(tmp_path)]) == 2
    assert "add --overwrite" in capsys.readouterr().err
    assert not (tmp_path / "mtp-at-64-users.html").exists()
    assert cli.main(["explore", "--output", str(tmp_path), "--overwrite"]) == 0
    assert "<svg" in (tmp_path / "long-context-on-a-workstation.html").read_text("utf-8")
    named = ["explore", "qwen3-30b", "h200", "--output", str(tmp_path / "own")]
    assert cli.main(named) == 0
    assert [page.name for page in (tmp_path / "own").iterdir()] == ["qwen3-30b-a3b-h200_sxm.html"]


@pytest.mark.parametrize("name", ["SIGINT", *slow("SIGTERM")])
def test_a_signal_ends_the_server_whose_port_no_other_gets(name, capsys):
    with start("explore --no-browser", text=True, start_new_session=True) as served:
        port = re.search(r"http://127\.0\.0\.1:(\d+)/", served.stdout.readline())[1]
        try:
            headers = httpx.get(f"http://127.0.0.1:{port}/", timeout=60).headers
            assert "default-src 'none'" in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"
            assert cli.main(["explore", "--no-browser", "--port", port]) == 2
            (line,) = capsys.readouterr().err.splitlines()
            assert f"--port: got '127.0.0.1:{port}'" in line
            os.killpg(served.pid, getattr(signal, name))  # as a terminal does
            assert served.wait(20) in (0, 130)
        finally:
            served.kill()
        assert served.stderr.read().strip() == ""
    with socket.socket() as free:
        free.bind(("127.0.0.1", int(port)))


@listed
def test_where_the_page_cannot_be_served_one_line_says_why(capsys, words, told):
    assert cli.main(["explore", "--no-browser", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line
