"""`specmodel simulate` with policies of the user's own, and the files that it writes."""

import json
import shlex
import subprocess
import sys

import pandas as pd
import pytest
from printed import check_one_line, parse
from simulated import (
    MEASURED,
    MINE,
    NAMES,
    PREDICTED,
    listing,
    typed,
)

from specmodel import cli
from specmodel.replay import read_replay_times, simulate
from specmodel.replay.policies import Cascade
from specmodel.replay.traces import read_trace

# a policy of the user's own


def test_policies_of_the_current_folder(run):
    names = [f"{MINE}:{name}" for name in ("Fixed", "Fixed:length=3", "make", "nameless", "Given")]
    own = parse(run(f"{MEASURED} --policy {','.join(names)} --json"))["policies"]
    fixed = parse(run(f"{MEASURED} --policy fixed:2,fixed:3,fixed:1 --json"))["policies"]
    same = ("steps", "speedup", "tpot_p95", "drafted_tokens_per_step")
    for mine, length in ((0, 2), (1, 3), (2, 3), (3, 1)):
        other = next(row for row in fixed if row["policy"] == f"fixed:{length}")
        assert [own[mine][name] for name in same] == pytest.approx([other[name] for name in same])
    assert [row["policy"] for row in own] == names
    assert own[-1]["test_share"] == 1
    least = parse(run(f"{MEASURED} --policy {MINE}:Given:least=7 --json"))["policies"][0]
    long = parse(run(f"{MEASURED} --policy fixed:7 --json"))["policies"][0]
    assert least["steps"] == long["steps"]


def test_what_is_no_policy_is_not_called(capsys):
    for name in ("Bare", "Half", "NoMethods"):
        status = cli.main([*shlex.split(MEASURED), "--policy", f"{MINE}:{name}"])
        check_one_line(status, *capsys.readouterr(), (f"got 'a {name}'", "propose() and observe("))
    assert sys.modules[MINE].Bare.made == 0
    for name in ("os:abort", "sys:exit", "builtins:input"):
        status = cli.main([*shlex.split(MEASURED), "--policy", name])
        check_one_line(status, *capsys.readouterr(), (f"--policy: got '{name}'", "a class or func"))


def test_the_folder_is_on_the_path_only_while_a_policy_of_the_users_is_imported(folder):
    """A module there that is named as a standard one is not taken for it, by workers neither."""
    program = "import sys; from specmodel import cli; from specmodel.replay import blocks;"
    program += " blocks.BLOCK_REQUESTS = 30; sys.exit(cli.main())"
    for policies in ("none,cascade", f"none,{MINE}:Helped", f"./{MINE}.py:Helped"):
        typed = shlex.split(f"{MEASURED} --policy {policies} --workers 2 --trace code-ngram")
        sizes = ["--requests", "100", "--output-tokens", "2"]
        command = [sys.executable, "-P", "-c", program, *typed, *sizes]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (result.returncode, result.stderr) == (0, "")


def test_a_recorded_trace_needs_nothing_that_an_earlier_command_imported(folder):
    words = PREDICTED.partition(" --trace")[0] + " --trace trace.jsonl --policy none,fixed:1 --json"
    command = [sys.executable, "-m", "specmodel", *shlex.split(words)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert len(json.loads(result.stdout)["policies"]) == 2


def test_policies_of_the_package_are_not_asked_as_objects(run, monkeypatch):
    def slow(*_, **__):
        raise AssertionError("the form for any policy")

    monkeypatch.setattr("specmodel.replay.blocks.PolicyAdapter", slow)
    path = "specmodel.replay.policies:Cascade"
    rows = parse(run(f"{MEASURED} --policy {path},{path}:max_trials=2,cascade:max_trials=2 --json"))
    speedups = [row["speedup"] for row in rows["policies"]]
    assert speedups[0] != speedups[1] == speedups[2]
    records = simulate(read_trace("trace.jsonl"), read_replay_times("times.csv"), [Cascade], seed=0)
    assert records["plain_time"].sum() / records["time"].sum() == pytest.approx(speedups[0])
    run(f"{MEASURED} --policy goodput,sglang,bandit,fixed:3,oracle")


def test_workers_change_nothing(run, tmp_path, monkeypatch):
    monkeypatch.setattr("specmodel.replay.blocks.BLOCK_REQUESTS", 50)
    command = (
        f"{MEASURED} --trace code-ngram --requests 120 --output-tokens 4"
        f" --policy none,cascade,{MINE}:Given,{MINE}:Fixed:length=1 --csv --records {tmp_path}"
    )
    outs = [run(f"{command}/{workers}.csv --workers {workers}") for workers in (1, 2)]
    assert outs[0] == outs[1]
    assert (tmp_path / "1.csv").read_bytes() == (tmp_path / "2.csv").read_bytes()


# files that are written


def test_records_are_a_row_for_each_policy_and_request(run, tmp_path):
    path = tmp_path / "records.csv"
    path.write_text("to be replaced", encoding="utf-8")
    document = parse(run(f"{MEASURED} --records {path} --json"))
    records = pd.read_csv(path)
    assert typed(records["policy"]) == [name for name in NAMES for _ in range(12)]
    assert records["request"].tolist() == [*range(12)] * len(NAMES)
    sums = records.groupby("policy").sum()
    for row in document["policies"]:
        own = sums.loc[row["policy"]]
        assert own["steps"] == row["steps"]
        assert own["plain_time"] / own["time"] == pytest.approx(row["speedup"], rel=1e-12)
    assert [path.name for path in tmp_path.iterdir()] == ["records.csv"]


MAGIC = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "suffix"),
    [
        *(("cascade", suffix) for suffix in MAGIC),
        *((policy, "png") for policy in ("none", "fixed:3", "oracle", "goodput", f"{MINE}:Given")),
    ],
)
def test_timeline_of_one_request(policy, suffix, run, tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / f"request.{suffix}"
    assert "peedup" in run(f"{MEASURED} --timeline {path} --policy {policy} --request 11")
    assert path.read_bytes().startswith(MAGIC[suffix])
    assert path.stat().st_size > 3000


@pytest.mark.parametrize(
    ("policies", "chosen"),
    [
        ("none,cascade,oracle", "cascade"),
        ("none,fixed:3", "fixed:3"),
        ("fixed:2,cascade:climb=false", "cascade:climb=false"),
        ("fixed:2,best-fixed", "fixed:2"),
        (f"none,{MINE}:Fixed", "fixed:2"),
    ],
)
def test_the_policy_drawn_is_cascade_or_the_last(policies, chosen, run, drawn):
    run(f"{MEASURED} --policy {policies} --timeline a.png")
    run(f"{MEASURED} --policy {chosen} --timeline a.png")
    assert drawn[0]["draft_length"].tolist() == drawn[1]["draft_length"].tolist()


def test_the_request_drawn_is_as_it_was_replayed(run, drawn, tmp_path):
    command = f"{MEASURED} --policy none,cascade --timeline a.png --records {tmp_path}/a.csv"
    for request in (0, 5, 11):
        run(f"{command} --request {request}")
        records = pd.read_csv(tmp_path / "a.csv")
        row = records[(records["policy"] == "cascade") & (records["request"] == request)].iloc[0]
        assert len(drawn[-1]) == row["steps"]
        assert drawn[-1]["step_time"].sum() == pytest.approx(row["time"], rel=1e-5)
    run(command)
    assert drawn[-1].equals(drawn[0])


# what ends a replay


@pytest.mark.parametrize("option", ["", " --timeline kept.png", " --workers 2"])
def test_nothing_is_written_if_a_policy_fails_on_the_way(option, folder, capsys):
    if "timeline" in option:
        pytest.importorskip("matplotlib")
    before = listing(folder)
    command = f"{MEASURED} --records kept.csv --policy none,cascade,{MINE}:Late" + option
    status = cli.main(shlex.split(command))
    fragments = ("--policy Late: got 'RuntimeError: late'", f"({MINE}.py:")
    check_one_line(status, *capsys.readouterr(), fragments)
    assert listing(folder) == before


@pytest.mark.parametrize(
    ("policy", "fragments"),
    [
        (f"{MINE}:Dies", ("expected fewer workers, or more memory",)),
        (f"{MINE}:Returns:what=object", ("--policy Returns: got 'object'",)),
    ],
)
def test_what_workers_cannot_do(policy, fragments, capsys, monkeypatch):
    monkeypatch.setattr("specmodel.replay.blocks.BLOCK_REQUESTS", 500)
    sizes = "--trace code-ngram --requests 1200 --output-tokens 1"
    status = cli.main(shlex.split(f"{MEASURED} {sizes} --policy {policy} --workers 2"))
    check_one_line(status, *capsys.readouterr(), fragments)


@pytest.mark.parametrize("command", [f"{MEASURED} --records kept.csv", PREDICTED])
def test_interrupt_is_silent(command, folder, monkeypatch, capsys):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("specmodel.replay.run.replay_blocks", interrupt)
    before = listing(folder)
    assert cli.main(shlex.split(command)) == 130
    assert "".join(capsys.readouterr()).strip() == ""
    assert listing(folder) == before


@pytest.mark.parametrize("where", ["init", "propose", "observe"])
def test_interrupt_in_a_policy_is_one(where, folder, capsys):
    policy = f"{MINE}:Raises:where={where}:what=interrupt"
    path = list(sys.path)
    assert cli.main(shlex.split(f"{MEASURED} --policy {policy} --records kept.csv")) == 130
    assert "".join(capsys.readouterr()).strip() == ""
    assert (folder / "kept.csv").read_bytes() == b"kept"
    assert sys.path == path
