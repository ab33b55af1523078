"""`specmodel simulate`: what people, JSON and CSV are told."""

import re

import numpy as np
import pytest
from printed import commands, in_one_line, widest
from rows import each_row, listed
from simulated import HEAD, LONG, MEASURED, MINE, NAMES, PREDICTED, typed

WORDS = {"head": HEAD, "measured": MEASURED, "predicted": PREDICTED}


@each_row("command", commands("simulate", **WORDS))
def test_the_table_holds_what_json_has(command, run, document):
    out, found = run(f"{command} --verbose"), document(command)
    words = in_one_line(out)
    assert len(widest(out)) <= 80
    assert found["warnings"] == []
    assert found["heading"].replace(" ", "") in words.replace(" ", "")
    rows = found["policies"]
    head, *lines = out.split("\npolicy ")[1].splitlines()
    for row, line in zip(rows, lines, strict=False):
        label, *cells = re.split(r"  +", line)
        note = f"{label}:{row['policy']}".replace(" ", "")
        assert row["policy"] == label or note in words.replace(" ", "")
        assert cells[0] == f"{row['speedup']:.3f}"
        if row["requests"] == 1:
            assert (row["speedup_low"], row["speedup_high"]) == (None, None)
            assert "95 %" not in head
        else:
            assert cells[1] == f"{row['speedup_low']:.2f}-{row['speedup_high']:.2f}"
        assert row["slowdown"] == max(0, 1 / row["speedup"] - 1)
        assert row["tokens_per_step"] == row["output_tokens"] / row["steps"]
        assert (row["regret"] is None) == ("oracle" not in [each["policy"] for each in rows])
        assert row["policy"] != "oracle" or row["regret"] == 0
    costs = found["step_times"]["step_time"] / np.array(found["step_times"]["forward_time"])
    assert ", ".join(f"{cost:.2f}" for cost in costs) in words
    assumed = out.rpartition("\n\n")[2]
    changes = found["assumptions"].pop("changes", None)  # which were given
    assert (changes is not None) == bool(re.search(r"--set \w+\.", command))
    assert all(re.search(rf"\b{name}\s", assumed) for name in found["assumptions"])


def test_defaults_are_those_of_the_help(run, document):
    given = " --policy " + ",".join(NAMES) + " --max-draft-length 7 --seed 0 --workers 1"
    policies = document(PREDICTED)["policies"]
    assert typed(row["policy"] for row in policies) == NAMES
    given += " --context-length 1024 --set timing_noise=0.02"
    assert document(PREDICTED + given)["policies"] == policies
    help_text = run("simulate --help", one_line=True)
    assert "[default: the prompt lengths in the trace, or 1024]" in help_text
    assert "[default: none, fixed:1 to fixed:3, best-fixed, cascade, oracle]" in help_text
    drawn = PREDICTED.replace("--requests 12 --output-tokens 60", "--policy none")
    assert "300 requests of 512 tokens" in run(drawn, one_line=True)


def test_whose_state_is_said(run, document):
    command = f"{MEASURED} --policy none,cascade,goodput,table:table.json"
    assert "\ncascade: learned per request.\ngoodput: learned per server (8 servers).\n" in run(
        command
    )
    assert "\ncascade, goodput: learned per server (8 servers).\n" in run(
        f"{command} --policy-state server"
    )
    found = [
        [row["speedup"] for row in document(f"{command} --policy-state {state}")["policies"]]
        for state in ("request", "server")
    ]
    assert [a == b for a, b in zip(*found, strict=True)] == [True, False, False, True]


def test_answer_comes_first_then_the_policies_then_what_was_assumed(run):
    out = run(MEASURED)
    heading = "\nTimes of times.csv; trace.jsonl, 12 requests\nA decode step takes 10ms."
    case, table, assumed = (out.index(text) for text in (heading, "\npolicy ", "Assumed: "))
    assert case < table < assumed
    lines = [line.split() for line in out.split("\npolicy ")[1].splitlines()[1:8]]
    assert typed(line[0] for line in lines) == NAMES
    gains = {name: float(line[1]) for name, line in zip(NAMES, lines, strict=True)}
    best = max((name for name in NAMES if name not in ("best-fixed", "oracle")), key=gains.get)
    assert out.startswith(
        f"Best policy at batch size 1: {best}, with a speedup of {gains[best]:.2f}x"
    )
    told = r"^best-fixed:\d, oracle: not ranked; an upper bound, as the policy knows the"
    assert re.search(told, out, re.M)
    told = r"\nShare of steps in which a policy tests a draft length: cascade \d+%\."
    assert len(re.findall(told, out)) == 1


@pytest.mark.parametrize("policies", ["none,fixed:1,fixed:2,fixed:3,cascade", "none,fixed:2"])
def test_the_best_is_compared_over_the_same_requests(policies, run, document):
    """By its intervals, which hold 1 where a policy is not told apart from the best."""
    rows = document(f"{MEASURED} --policy {policies}")["policies"]
    best = max(rows, key=lambda row: row["speedup"])
    assert best["time_over_best"] == 1
    lines = run(f"{MEASURED} --policy {policies}").split("\npolicy ")[1].splitlines()
    told = {line.split()[0]: line.split()[-1] for line in lines[1 : len(rows) + 1]}
    for row in rows:
        low, high = (row[f"time_over_best_{end}"] for end in ("low", "high"))
        assert told[row["policy"]] == f"{low:.3f}-{high:.3f}"


def test_long_names_are_numbered_and_explained(run):
    out = run(f"{MEASURED} --policy none,{LONG},oracle")
    for note in (
        "cascade [2]: cascade:first_draft_length=1:backoff_factor=1",
        "cascade [3]: cascade:first_draft_length=1:climb=false",
        f"{MINE[:14]} [4]: {MINE}:Fixed:length=3",
    ):
        assert f"\n{note}\n" in out
        assert f"\n{note.partition(':')[0]}  " in out
    assert "\nColumns that do not fit here: 95th, mean of requests" in out


def test_what_does_not_pay_or_cannot_be_deployed_is_said(run):
    assert "Speculation does not pay" in run(MEASURED + " --step-times slow.csv")
    told = run(MEASURED + " --policy best-fixed,oracle", one_line=True)
    assert "so their speedups are only upper bounds" in told


@listed
def test_assumed_unless_given(name, option, document):
    assert name in document(HEAD)["assumptions"]
    assert name not in document(f"{HEAD} {option}")["assumptions"]
    assert name not in document(MEASURED)["assumptions"] or name == "timing_noise"


@listed
def test_acceptance_of_another_kind_of_drafter_warns(drafter, trace, named, document, ended):
    command = f"{PREDICTED} --drafter {drafter} --trace {trace} --policy none,fixed:1"
    (warning,) = document(command)["warnings"]
    assert warning.endswith(f"but the acceptance is that of {named}")
    assert ended(f"{command} --csv")[2] == f"specmodel: warning: {warning}\n"


def test_a_table_is_its_draft_length_at_batch_size_1(document):
    table, fixed = document(f"{MEASURED} --policy table:table.json,fixed:3")["policies"]
    for name in ("steps", "speedup", "tpot_p95", "drafted_tokens_per_step"):
        assert table[name] == fixed[name]
    assert table["assumed"] == "the replay uses only the entry for batch size 1"


def test_what_does_not_fit_is_said_first_and_marked(run, document):
    command = f"{PREDICTED} --memory-utilization 0.5 --tensor-parallel 1"
    assert "No requested batch size fits in memory. With enough memory: " in in_one_line(
        run(command).split("\n\n")[0]
    )
    found = document(command)
    assert "Not even the weights fit" in found["warnings"][0]
    assert [row["fits"] for row in found["policies"]] == [False] * len(NAMES)


def test_context_grows_from_where_prompts_end(document):
    recorded = f"{PREDICTED.partition(' --trace')[0]} --trace prompts.jsonl --policy none"
    for given, length in (("", 900), (" --context-length 5000", 5000)):
        assert document(recorded + given)["step_times"]["context_length"] == length
