"""The command measure-engine: rounds, restarts, interruptions, what it prints, one line a fault."""

import os
import random
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

pytest.importorskip("aiohttp")
pytest.importorskip("filelock")

from standin_server import standing_in

from specmodel import cli
from specmodel.fit.measured import read_benchmarks
from specmodel.measure.live import Plan
from specmodel.measure.live.log import KEY, counted_rows
from specmodel.measure.live.plan import slots_of

SMALL = "--concurrency 1,3 --prompt-length 16 --output-length 16 --repeats 2 --requests 1"
"""As the fixture `measure` has it."""
LIMIT = 60.0
"""Seconds that a process may take."""


def test_a_server_is_measured_and_read_by_fit_engine(measure, capsys):
    with standing_in(step_time=0.005) as server:
        out, err = measure(server.url)
    assert "stand-in, vllm 0.33.0, draft length 0, prompts as ids" in err
    assert "4 of 4 runs left in 1 round: 24 requests, 384 tokens in" in err
    assert "at the pace of one request" in err
    assert max(map(len, out.splitlines())) <= 80
    assert "4 of 4 runs are in served.rows.csv" in out
    first, second = read_benchmarks(["served.csv"])
    assert (first.engine, first.version, first.model) == ("vllm", "0.33.0", "stand-in")
    assert (first.batch_size, first.prompt_length, first.output_length) == (1.0, 16.0, 16.0)
    assert first.value == pytest.approx(0.005, rel=0.2)
    assert second.concurrency == 3.0
    assert 2.8 < second.batch_size <= 3.0
    assert "TPOT" in out


def restart_after(server, runs, changes):
    """Restart a server, as its owner would, once so many runs are in the table."""

    def watch():
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            path = Path("served.rows.csv")
            if path.exists() and path.read_text().count(",run,") == runs:
                server.restart(**changes)
                return
            time.sleep(0.02)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_draft_lengths_are_rounds_between_restarts(engine, measure, capsys):
    options = f"{SMALL} --draft-length 0,3 --draft-model a/head"
    with standing_in(engine=engine, step_time=0.005) as server:
        watchers = [
            restart_after(server, 4, {"draft_length": 3, "accepted": (2,)}),
            restart_after(server, 8, {"draft_length": 0, "step_time": 0.006}),
        ]
        out, err = measure(server.url, options)
        for watcher in watchers:
            watcher.join(5.0)
    text = " ".join(err.split())
    assert "The server runs with draft length 0. To go on, restart it with" in text
    assert "The server runs with draft length 3. To go on, restart it with" in text
    assert "for the closing plain round, which tells whether the machine drifted" in text
    name = {"vllm": '"num_speculative_tokens": 3', "sglang": "--speculative-num-steps 3"}
    assert name[engine] in text
    table = pd.read_csv("served.csv")
    assert table["draft_length"].tolist() == [0, 0, 3, 3, 0, 0]
    assert table["tokens_per_step"].tolist()[:3] == [1.0, 1.0, 3.0]
    first, last = table["step_ms"][0], table["step_ms"][4]
    assert last / first == pytest.approx(1.2, rel=0.08)
    drift = f"from the first plain round to the last, a step changed by {last / first - 1:+.1%}"
    assert drift in " ".join(out.split())
    speedup = (table["tpot_ms"][0] + table["tpot_ms"][4]) / 2 / table["tpot_ms"][2]
    assert speedup > 2.0
    assert float(out.splitlines()[4].split()[-1]) == pytest.approx(speedup, abs=0.006)
    where = "--target qwen3-30b-a3b --drafter eagle3 --hardware h100_sxm --force"
    assert cli.main(shlex.split(f"fit engine served.csv {where} --output mine.toml")) == 0
    fitted = capsys.readouterr().out
    assert f"the files are of {engine}" in " ".join(fitted.split())
    assert Path("mine.toml").exists()


def test_the_round_that_the_server_is_ready_for_comes_first(measure):
    options = f"{SMALL} --draft-length 0,2 --no-closing-round --wait 0"
    with standing_in(draft_length=2, accepted=(1,)) as server:
        _, err = measure(server.url, options, status=2)
        assert "--draft-length: got 2; expected 0: (no --speculative-config)" in err
        assert "4 of 8 runs are in served.rows.csv" in err
        assert pd.read_csv("served.csv")["draft_length"].tolist() == [2, 2]
        server.restart(draft_length=0)
        out, _ = measure(server.url, options)
    assert "8 of 8 runs are in served.rows.csv" in out
    assert sorted(pd.read_csv("served.csv")["draft_length"]) == [0, 0, 2, 2]


def test_without_a_closing_round_it_is_asked_for(measure):
    with standing_in() as server:
        out, _ = measure(server.url, f"{SMALL} --draft-length 0")
        assert "drift" not in out.lower()
        server.restart(draft_length=2, accepted=(1,))
        out, _ = measure(server.url, f"{SMALL} --draft-length 2")
        text = " ".join(out.split())
        assert "Whether the machine drifted is not known: restart the server without" in text
        assert "go on with --draft-length 2,0 for a closing plain round." in text
        server.restart(draft_length=0, step_time=0.008)
        out, _ = measure(server.url, f"{SMALL} --draft-length 2,0 --wait 0", status=0)
    assert "Drift: from the first plain round to the last, a step changed by -" in out


def test_a_length_that_comes_again_waits_for_those_before_it(measure):
    with standing_in() as server:
        _, err = measure(server.url, f"{SMALL} --draft-length 0,2 --wait 0", status=2)
        assert "--draft-length: got 0; expected 2" in err
        assert "4 of 12 runs are in served.rows.csv" in err
        _, err = measure(server.url, f"{SMALL} --draft-length 0,2,0 --wait 0", status=2)
    assert "4 of 12 runs are in served.rows.csv" in err


def test_what_is_done_is_not_done_again(measure):
    with standing_in() as server:
        measure(server.url)
        began = len(server.began)
        before = Path("served.csv").read_text()
        out, err = measure(server.url)
        assert len(server.began) == began
        assert Path("served.csv").read_text() == before
        assert "requests" not in err
        measure(server.url, SMALL.replace("--repeats 2", "--repeats 3"))
        _, said = measure(server.url, f"{SMALL} --no-stream", status=2)
        assert "expected rows of streams False, or another output; they are kept" in said
    assert "4 of 4 runs" in out
    assert pd.read_csv("served.csv")["repeats"].tolist() == [3, 3]


def test_a_limit_of_minutes_stops_between_runs(measure):
    with standing_in() as server:
        out, _ = measure(server.url, f"{SMALL} --repeats 9 --most-minutes 0.02")
        assert "runs are left: the same command goes on with them." in out
        assert 0 < len(pd.read_csv("served.csv")) <= 2
        out, _ = measure(server.url)
    assert "4 of 4 runs" in out


def test_a_dry_run_asks_nothing(measure):
    out, _ = measure("http://localhost:1", f"{SMALL} --draft-length 0,3 --dry-run")
    assert "12 of 12 runs left in 3 rounds: 72 requests" in out
    assert "--speculative-config" in out
    assert "--speculative-algorithm EAGLE3" in out
    assert not list(Path().iterdir())


@pytest.mark.parametrize("forms", [("text",), ("chat",)])
def test_a_server_that_takes_no_ids(forms, measure):
    with standing_in(forms=forms) as server:
        _, err = measure(server.url, SMALL.replace("16", "24"))
    assert f"prompts as {forms[0]}" in err
    assert pd.read_csv("served.csv")["prompt_length"].tolist() == pytest.approx([24, 24], abs=1)


def test_a_key_comes_from_the_environment_and_is_written_nowhere(measure, monkeypatch):
    with standing_in(key="sesame-7") as server:
        _, err = measure(server.url, status=2)
        assert (
            "--api-key: got 'no key'; expected a key that the server takes, in OPENAI_API_KEY"
            in err
        )
        monkeypatch.setenv("OPENAI_API_KEY", "another")
        measure(server.url, status=2)
        monkeypatch.setenv("OPENAI_API_KEY", "sesame-7")
        out, err = measure(server.url)
    assert "sesame" not in out + err
    assert all("sesame" not in path.read_text() for path in Path().glob("*.*"))


@pytest.mark.parametrize(
    ("settings", "options", "said"),
    [
        ({}, "--model other", "--model: got 'other'; expected what is served: stand-in"),
        ({}, "--concurrency 0", "--concurrency: got 0"),
        ({}, "--output-length 1", "--output-length: got 1"),
        ({}, "--prompt-length 5000", "--prompt-length: got 5016; expected at most 4096"),
        ({}, "--most-tokens 100", "--most-tokens: got 100; expected at least"),
        ({}, "--method medusa", "--method: got 'medusa'"),
        ({}, "--timeout 0", "--timeout: got 0"),
        ({}, "--wait nan", "--wait: got nan"),
        ({}, "--most-minutes -1", "--most-minutes: got -1"),
        ({}, "--temperature inf", "--temperature: got inf"),
        ({}, "--token-ids 7", "--token-ids: got '7'; expected LOW:HIGH"),
        ({}, "--draft-length 3 --wait 0", "--draft-length: got 0; expected 3"),
        ({"has_models": False}, "", "expected an OpenAI-compatible server"),
        ({"forms": ()}, "", "expected a server of completions or chats"),
        ({"heeds_ignore_eos": False}, "", "does the server heed ignore_eos?"),
        ({"cut_after": 6}, "", "cut short after"),
        ({"dies_after": 6}, "", "connection was lost"),
    ],
)
def test_bad_input_is_one_line(settings, options, said, measure):
    with standing_in(**settings) as server:
        _, err = measure(server.url, f"{SMALL} {options}", status=2)
    line = err.splitlines()[-1]
    assert said in line
    if "cut short" in said or "lost" in said:
        assert "served.rows.csv" in line
        assert Path("served.rows.csv").read_text().count("\n") > 2


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://localhost:1", "expected a server that answers (Connection refused)"),
        ("localhost:8000", "expected http://HOST:PORT"),
        ("http://me:secret@localhost:1", "no password in it"),
        ("http://no.such.host.invalid", "expected a server that answers"),
    ],
)
def test_no_server(url, said, measure):
    _, err = measure(url, status=2)
    assert said in err.splitlines()[-1]
    assert "secret" not in err


def test_without_the_extra_it_says_what_to_install(measure, monkeypatch):
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    _, err = measure("http://localhost:1", status=2)
    assert err.endswith(
        "expected it to be installed: pip install '.[engine]' in the folder of specmodel's source\n"
    )


def test_a_summary_that_is_there_is_not_lost(measure):
    Path("served.csv").write_text("mine\n")
    _, err = measure("http://localhost:1", status=2)
    assert "this one is kept" in err
    assert Path("served.csv").read_text() == "mine\n"


def started(server, folder, options):
    """The command as a process of its own.

    A shell's background has Ctrl-C ignored, and its children inherit that.
    """
    heed = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    program = f"{heed}\nfrom specmodel.cli import run; raise SystemExit(run())"
    command = [sys.executable, "-c", program, "measure-engine", server.url]
    command += ["--output", "served.csv", *shlex.split(options)]
    environment = os.environ | {"PYTHONPATH": str(Path(cli.__file__).parents[2])}
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def wait_for(what):
    """Wait until something is so."""
    end = time.monotonic() + LIMIT
    while not what() and time.monotonic() < end:
        time.sleep(0.01)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_an_interruption_says_what_is_kept(name, tmp_path):
    path = tmp_path / "served.rows.csv"
    with standing_in() as server, started(server, tmp_path, f"{SMALL} --repeats 99") as process:
        try:
            wait_for(lambda: path.exists() and ",run," in path.read_text())
            process.send_signal(getattr(signal, name))
            out, _ = process.communicate(timeout=LIMIT)
        finally:
            process.kill()
    text = out.decode()
    assert process.returncode == 130
    assert "of 198 runs are in served.rows.csv; the same command goes on from there." in text
    assert "Traceback" not in text
    assert "exception" not in text


def test_killed_five_times_no_request_is_lost_or_counted_twice(tmp_path):
    options = "--concurrency 2,4 --prompt-length 16 --output-length 24 --repeats 3 --requests 2"
    plan = Plan(draft_lengths=[0], concurrencies=[2, 4], prompt_lengths=[16], output_lengths=[24])
    chance, kills = random.Random(21), 0
    with standing_in(step_time=0.006) as server:
        while True:
            began = len(server.began)
            with started(server, tmp_path, options) as process:
                try:
                    if kills == 5:
                        out, _ = process.communicate(timeout=LIMIT)
                        break
                    wait_for(lambda: len(server.began) > began)  # noqa: B023 - done within
                    time.sleep(chance.uniform(0.3, 0.9))
                finally:
                    process.kill()
            kills += 1
        assert process.returncode == 0, out
    assert b"6 of 6 runs are in served.rows.csv" in out
    path = tmp_path / "served.rows.csv"
    rows = pd.read_csv(path, dtype=str, na_filter=False).to_dict("records")
    # of each run, one attempt is counted, with each request once, as it was asked for
    counted = counted_rows(rows)
    keys = [tuple(int(run[name]) for name in KEY) for run, _ in counted]
    assert sorted(keys) == sorted(run.key for run in plan.runs(0))
    for (_, requests), key in zip(counted, keys, strict=True):
        (run,) = (run for run in plan.runs(0) if run.key == key)
        asked = [request for slot in slots_of(run, 2) for request in slot]
        found = [
            (int(r["slot"]), int(r["number"]), r["role"], int(r["output_tokens"])) for r in requests
        ]
        assert sorted(found) == sorted(tuple(request) for request in asked)
    # every answer that was given is in the table once, but for those on their way as it was killed
    names = Counter(
        "-".join(str(r[n]) for n in (*KEY, "attempt", "slot", "number", "role"))
        for r in rows if r["role"] != "run"
    )  # fmt: skip
    assert max(names.values()) == 1
    told = Counter(name.removeprefix("specmodel-") for name in server.ended if name)
    assert max(told.values()) <= 1 + kills
    assert not set(names) - set(told)
    assert sum((told - names).values()) <= 4 * kills
    table = pd.read_csv(tmp_path / "served.csv")
    assert table["requests"].tolist() == [2 * 2 * 3, 4 * 2 * 3]
    assert table["tpot_ms"].tolist() == pytest.approx([6.0, 6.0], rel=0.1)
