"""`specmodel simulate` with policies of the user's own, and the files that it writes."""

import json
import shlex
import subprocess
import sys

import pandas as pd
import pytest
from rows import cases, each_listed
from simulated import MEASURED, MINE, NAMES, PREDICTED, listing, typed

from specmodel.simulate import read_replay_times, simulate
from specmodel.simulate.policies import Cascade
from specmodel.simulate.traces import read_trace

# a policy of the user's own


@pytest.fixture
def policies(document):
    """What is told of policies on the measured times."""
    return lambda names: document(f"{MEASURED} --policy {names}")["policies"]


def test_policies_of_the_current_folder(policies):
    """In each form that may be typed, beside those that they do the same as."""
    names = [f"{MINE}:{name}" for name in ("Fixed", "Fixed:length=3", "make", "nameless", "Given")]
    own, fixed = policies(",".join(names)), policies("fixed:1,fixed:2,fixed:3,fixed:7")
    assert [row["policy"] for row in own] == names
    same = ("steps", "speedup", "tpot_p95", "drafted_tokens_per_step")
    for row, length in zip(own, (2, 3, 3, 1), strict=False):
        other = fixed[length - 1]
        assert [row[name] for name in same] == pytest.approx([other[name] for name in same])
    assert own[-1]["test_share"] == 1
    assert policies(f"{MINE}:Given:least=7")[0]["steps"] == fixed[3]["steps"]


def test_what_is_no_policy_is_not_called(refuse):
    refuse(f"{MEASURED} --policy {MINE}:Half", "got 'a Half'", "propose() and observe(")
    refuse(f"{MEASURED} --policy {MINE}:Bare", "got 'a Bare'", "propose() and observe(")
    assert sys.modules[MINE].Bare.made == 0
    for name in ("sys:exit", "builtins:input"):
        refuse(f"{MEASURED} --policy {name}", f"--policy: got '{name}'", "a class or func")


@pytest.mark.slow
def test_the_folder_is_on_the_path_only_while_a_policy_of_the_users_is_imported(folder):
    """A module there that is named as a standard one is not taken for it, by workers neither."""
    program = "import sys; from specmodel import cli; from specmodel.simulate import sources;"
    program += " sources.BLOCK_REQUESTS = 30; sys.exit(cli.main())"
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


def test_policies_of_the_package_are_not_asked_as_objects(policies, monkeypatch):
    monkeypatch.setattr("specmodel.simulate.blocks.PolicyAdapter", None)  # the form for any policy
    path = "specmodel.simulate.policies:Cascade"
    found = policies(f"{path},{path}:max_trials=2,cascade:max_trials=2")
    usual, few, same = (row["speedup"] for row in found)
    assert usual != few == same
    trace, times = read_trace("trace.jsonl"), read_replay_times("times.csv")
    records = simulate(trace, times, [Cascade], seed=0)
    assert records["plain_time"].sum() / records["time"].sum() == pytest.approx(usual)
    assert policies("goodput,sglang,fixed:3,oracle")


# files that are written


def test_records_are_a_row_for_each_policy_and_request(document, tmp_path):
    path = tmp_path / "records.csv"
    path.write_text("to be replaced", encoding="utf-8")
    found = document(f"{MEASURED} --records {path}")
    records = pd.read_csv(path)
    assert typed(records["policy"]) == [name for name in NAMES for _ in range(12)]
    assert records["request"].tolist() == [*range(12)] * len(NAMES)
    sums = records.groupby("policy").sum()
    for row in found["policies"]:
        own = sums.loc[row["policy"]]
        assert own["steps"] == row["steps"]
        assert own["plain_time"] / own["time"] == pytest.approx(row["speedup"], rel=1e-12)
    assert [*tmp_path.iterdir()] == [path]


@cases(
    "policies chosen",
    ("none,cascade,oracle", "cascade"),
    ("fixed:2,cascade:climb=false", "cascade:climb=false"),
    (f"none,{MINE}:Fixed", "fixed:2"),
)
def test_the_policy_drawn_is_cascade_or_the_last(policies, chosen, run, drawn):
    run(f"{MEASURED} --policy {policies} --timeline a.png")
    run(f"{MEASURED} --policy {chosen} --timeline a.png")
    one, other = (table["draft_length"].tolist() for _, table, _ in drawn)
    assert one == other


def test_the_request_drawn_is_as_it_was_replayed(run, drawn, tmp_path):
    command = f"{MEASURED} --policy none,cascade --timeline a.png --records {tmp_path}/a.csv"
    for request in (0, 5, 11):
        run(f"{command} --request {request}")
        records = pd.read_csv(tmp_path / "a.csv")
        row = records[(records["policy"] == "cascade") & (records["request"] == request)].iloc[0]
        table = drawn[-1][1]
        assert len(table) == row["steps"]
        assert table["step_time"].sum() == pytest.approx(row["time"], rel=1e-5)
    run(command)
    assert drawn[-1][1].equals(drawn[0][1])


# what ends a replay


@pytest.mark.parametrize("option", ["--timeline kept.png", "--workers 2"])
def test_nothing_is_written_if_a_policy_fails_on_the_way(option, folder, refuse):
    if "timeline" in option:
        pytest.importorskip("matplotlib")
    before = listing(folder)
    command = f"{MEASURED} --records kept.csv --policy none,cascade,{MINE}:Late {option}"
    refuse(command, "--policy Late: got 'RuntimeError: late'", f"({MINE}.py:")
    assert listing(folder) == before


@each_listed
def test_what_workers_cannot_do(policy, told, refuse, monkeypatch):
    monkeypatch.setattr("specmodel.simulate.sources.BLOCK_REQUESTS", 500)
    sizes = "--trace code-ngram --requests 1200 --output-tokens 1"
    refuse(f"{MEASURED} {sizes} --policy {MINE}:{policy} --workers 2", told)


@pytest.mark.parametrize("where", ["init", "observe"])
def test_interrupt_in_a_policy_is_one(where, folder, ended):
    policy = f"{MINE}:Raises:where={where}:what=interrupt"
    path = list(sys.path)
    status, out, err = ended(f"{MEASURED} --policy {policy} --records kept.csv")
    assert (status, (out + err).strip()) == (130, "")
    assert (folder / "kept.csv").read_bytes() == b"kept"
    assert sys.path == path
