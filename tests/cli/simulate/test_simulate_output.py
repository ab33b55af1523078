"""`specmodel simulate`: what people, JSON and CSV are told."""

import csv
import io
import re
import shlex

import numpy as np
import pytest
from printed import parse, widest
from rows import each_row
from simulated import HEAD, LONG, MEASURED, MINE, NAMES, PREDICTED, typed

import specmodel
from specmodel import cli
from specmodel.replay import assumed, read_replay_times, simulate, summarise
from specmodel.replay.traces import read_trace
from specmodel.show.forms import records as with_none

VARIETY = [
    PREDICTED,
    MEASURED,
    HEAD,
    PREDICTED + " --policy none,fixed:0,goodput,bandit,bandit:width=0.1,oracle",
    HEAD + " --policy sglang,sglang:config=slots.json,goodput --policy-state request",
    PREDICTED + " --set runaway_share=0.1 --fixed-context --policy none,fixed:3",
    PREDICTED + f" --policy none,oracle,{LONG}",
    PREDICTED + " --policy cascade:first_draft_length=1:backoff_factor=1:baseline_interval=50"
    ":tolerance=0.2:set_iterations=8:max_trials=3:trial_iterations=5",
    PREDICTED + " --requests 1 --output-tokens 1",
    PREDICTED + " --context-length 0 --set timing_noise=0 --set step_expert_spread=0.1",
    PREDICTED + " --trace code-ngram+math-ngram+chat-ngram --requests 10",
    PREDICTED + " --trace ./preset.toml --set lookup_time=0.01",
    HEAD + " --set drafter_upkeep=0 --set request_expert_spread=0.2 --target qwen1.5-moe-a2.7b",
    HEAD + " --drafter llama-3.2-1b --target llama-3.1-70b"
    " --hardware h200_sxm --policy none,cascade",
    MEASURED + " --step-times experts.csv --policy none,fixed:2,cascade:max_trials=3,oracle",
    MEASURED + " --step-times flat.csv --trace ./perfect.jsonl --max-draft-length 40"
    " --policy none,fixed:40,best-fixed,cascade:max_draft_length=40,oracle,sglang",
    MEASURED + " --policy table:table.json,table:1-16=4:17-64=2,fixed:4",
]  # fmt: skip


@each_row("command", VARIETY)
def test_table_json_and_csv_hold_the_same(command, run):
    out, document = run(f"{command} --verbose"), parse(run(f"{command} --json"))
    assert len(widest(out)) <= 80, widest(out)
    assert document["schema_version"] == 1
    assert document["version"] == specmodel.__version__
    assert document["warnings"] == []
    assert "".join(document["heading"].split()) in "".join(out.split())
    rows = document["policies"]
    head, *lines = out.split("\npolicy ")[1].splitlines()
    assert "speedup" in head
    for row, line in zip(rows, lines, strict=False):
        label, *cells = re.split(r"  +", line)
        note = "".join(f"{label}:{row['policy']}".split())
        assert row["policy"] == label or note in "".join(out.split())
        assert cells[0] == f"{row['speedup']:.3f}"
        if row["requests"] == 1:
            assert (row["speedup_low"], row["speedup_high"]) == (None, None)
            assert "95 %" not in head
        else:
            assert cells[1] == f"{row['speedup_low']:.2f}-{row['speedup_high']:.2f}"
            assert row["speedup_low"] <= row["speedup"] * (1 + 1e-12)
        assert row["slowdown"] == max(0, 1 / row["speedup"] - 1)
        assert row["tokens_per_step"] == row["output_tokens"] / row["steps"]
        assert (row["regret"] is None) == ("oracle" not in [each["policy"] for each in rows])
        if row["policy"] == "oracle":
            assert row["regret"] == 0
    costs = document["step_times"]["step_time"] / np.array(document["step_times"]["forward_time"])
    assert ", ".join(f"{cost:.2f}" for cost in costs) in " ".join(out.split())
    assumed = out.partition("Assumed:")[2]
    changes = document["assumptions"].pop("changes", None)  # which were given
    assert (changes is not None) == bool(re.search(r"--set \w+\.", command))
    assert changes is None or f"What if: {changes}." in out.partition("\n\n")[0]
    assert all(re.search(rf"\b{name}\s", assumed) for name in document["assumptions"])
    table = list(csv.DictReader(io.StringIO(run(command + " --csv"))))
    as_text = [{k: "" if v is None else str(v) for k, v in row.items()} for row in rows]
    assert all(row.pop("case") for row in table)
    assert table == as_text


def test_defaults_are_those_of_the_help(run):
    given = " --policy " + ",".join(NAMES) + " --max-draft-length 7 --seed 0 --workers 1"
    document = parse(run(f"{PREDICTED} --json"))
    assert typed(row["policy"] for row in document["policies"]) == NAMES
    again = parse(run(f"{PREDICTED} {given} --context-length 1024 --set timing_noise=0.02 --json"))
    assert again["policies"] == document["policies"]
    help_text = " ".join(run("simulate --help").split())
    assert "[default: prompts that the trace has, or 1024]" in help_text
    assert "[default: none, fixed:1 to fixed:3, best-fixed, cascade, oracle]" in help_text
    drawn = PREDICTED.replace("--requests 12 --output-tokens 60", "--policy none")
    assert "300 requests of 512 tokens" in " ".join(run(drawn).split())


def test_whose_state_is_said(run):
    command = f"{MEASURED} --policy none,cascade,goodput,table:table.json"
    out = run(command)
    assert "\ncascade: learned anew in each request.\ngoodput: kept by 8 servers.\n" in out
    assert "\ncascade, goodput: kept by 8 servers.\n" in run(f"{command} --policy-state server")
    rows = [parse(run(f"{command} --policy-state {state} --json"))["policies"]
            for state in ("request", "server")]  # fmt: skip
    assert [a["speedup"] == b["speedup"] for a, b in zip(*rows, strict=True)] == [
        True, False, False, True,
    ]  # fmt: skip


def test_what_an_engine_would_refuse_is_a_warning(run):
    assert parse(run(f"{HEAD} --policy sglang --json"))["warnings"] == []
    (warning,) = parse(run(f"{PREDICTED} --policy none,sglang --json"))["warnings"]
    assert warning == (
        "SGLang would keep a static draft length: it adapts eagle, eagle3, mtp only, not ngram"
    )


def test_context_grows_from_where_prompts_end(run):
    fixed, grown = (parse(run(f"{PREDICTED}{typed} --policy none,fixed:2 --json"))
                    for typed in (" --fixed-context", ""))  # fmt: skip
    assert (fixed["assumptions"]["context_length"], "later" in fixed["step_times"]) == (1024, False)
    assert grown["assumptions"]["growth_of_context"] == 60
    assert len(grown["step_times"]["later"]) >= 1
    assert grown["policies"][0]["tpot_p50"] > fixed["policies"][0]["tpot_p50"]
    recorded = PREDICTED.replace(" --requests 12 --output-tokens 60", "").replace(
        "code-ngram", "prompts.jsonl"
    )
    document = parse(run(recorded + " --policy none --json"))
    assert document["assumptions"]["context_length"] == 900
    assert document["step_times"]["context_length"] == 900
    typed = parse(run(recorded + " --policy none --context-length 5000 --json"))
    assert typed["step_times"]["context_length"] == 5000


def test_answer_comes_first_then_the_policies_then_what_was_assumed(run):
    out = run(MEASURED)
    assert out.startswith("Best at batch size 1: ")
    heading = "\nTimes of times.csv; trace.jsonl, 12 requests\nA decode step takes 10 ms;"
    case, table, assumed = (out.index(text) for text in (heading, "\npolicy ", "Assumed: "))
    assert case < table < assumed
    lines = out.split("\npolicy ")[1].splitlines()[1:8]
    assert typed(line.split()[0] for line in lines) == NAMES
    rows = dict(zip(NAMES, (float(line.split()[1]) for line in lines), strict=True))
    best = max((name for name in NAMES if name not in ("best-fixed", "oracle")), key=rows.get)
    assert out.startswith(f"Best at batch size 1: {best}, {rows[best]:.2f}x")
    (bounds,) = (line for line in out.splitlines() if "beforehand" in line)
    assert re.fullmatch(r"best-fixed:\d, oracle: told the requests beforehand, .*", bounds)
    assert rows[best] < rows["oracle"]
    told = " ".join(out.split())
    assert len(re.findall(r"cascade, \d\.\d\dx, \d+% of its steps testing lengths", told)) == 1


@pytest.mark.parametrize(
    "policies", ["none,fixed:1,fixed:2,fixed:3,cascade", "none,fixed:2", "fixed:2,goodput,oracle"]
)
def test_the_best_is_compared_over_the_same_requests(policies, run):
    """By the next where that is surely slower, else by all that are not told apart."""
    rows = parse(run(f"{MEASURED} --policy {policies} --json"))["policies"]
    others = sorted((row for row in rows if row["time_over_best"]), key=lambda r: -r["speedup"])
    best = others.pop(0)
    assert best["time_over_best"] == 1
    close = [row for row in others if row["time_over_best_low"] <= 1]
    text = " ".join(run(f"{MEASURED} --policy {policies}").split())
    told = re.findall(r"([\d.]+)x of (\S+)'s \(95 % ([\d.]+) to ([\d.]+)\)", text)
    ends = ("time_over_best", "time_over_best_low", "time_over_best_high")
    shown = {(row["policy"], *(f"{row[end]:.3f}" for end in ends)) for row in close or others[:1]}
    assert {(name, ratio, low, high) for ratio, name, low, high in told} == shown
    assert ("not told apart over the same requests" in text) == bool(close)


def test_long_names_are_numbered_and_explained(run):
    lines = run(f"{MEASURED} --policy none,{LONG},oracle").splitlines()
    first = lines.index("cascade [1]: cascade:first_draft_length=1:backoff_factor=1")
    assert lines[first + 1] == "cascade [2]: cascade:first_draft_length=1:climb=false"
    assert lines[first + 2] == f"test_simulate_po [3]: {MINE}:Fixed:length=3"
    labels = ["none", "cascade [1]", "cascade [2]", "test_simulate_po [3]"]
    top = next(i for i, line in enumerate(lines) if line.startswith("policy"))
    assert [re.split("  +", line)[0] for line in lines[top + 1 : top + 5]] == labels
    assert lines[first - 2].startswith("Columns without room here: 95th, mean of requests")
    heading = r"policy +speedup +95 % +% +worst +a step +testing +oracle"
    assert re.match(heading, lines[top])


def test_what_does_not_pay_or_cannot_be_deployed_is_said(run):
    assert "Speculation does not pay" in run(MEASURED + " --step-times slow.csv")
    assert "bounds, nothing to deploy" in run(MEASURED + " --policy best-fixed,oracle")


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("routing_correlation", "--routing-correlation 0"),
        ("drafter_upkeep", "--set drafter_upkeep=0"),
        ("timing_noise", "--set timing_noise=0"),
        ("step_expert_spread", "--set step_expert_spread=0"),
    ],
)
def test_assumed_unless_given(name, option, run):
    def assumed(command):
        told = run(f"{command} --verbose").partition("Assumed:")[2]
        return re.search(rf"\b{name}\s", told) is not None

    assert assumed(HEAD)
    assert not assumed(f"{HEAD} {option}")
    assert name in parse(run(f"{HEAD} --json"))["assumptions"]
    assert name not in parse(run(f"{HEAD} {option} --json"))["assumptions"]


def test_only_what_matters_is_assumed(run):
    assert "drafter_upkeep" not in run(f"{PREDICTED} --verbose")
    assert "expert_spread" not in run(f"{MEASURED} --verbose")
    assert "expert_spread" in run(f"{MEASURED} --step-times experts.csv --verbose")
    assumptions = parse(run(MEASURED + " --trace ./short.jsonl --json"))["assumptions"]
    assert assumptions["max_draft_length"] == 3
    assumptions = parse(run(PREDICTED + " --trace ./preset.toml --json"))["assumptions"]
    assert assumptions["max_draft_length"] == 2


@pytest.mark.parametrize(
    ("drafter", "trace", "named"),
    [
        ("eagle", "code-ngram", "code-ngram"),
        ("ngram", "code-eagle+code-ngram+math-eagle", "code-eagle, math-eagle"),
    ],
)
def test_acceptance_of_another_kind_of_drafter_warns(drafter, trace, named, run, capsys):
    command = f"{PREDICTED} --drafter {drafter} --trace {trace} --policy none,fixed:1"
    (warning,) = parse(run(command + " --json"))["warnings"]
    assert warning.endswith(f"but the acceptance that of {named}")
    assert f"Warning: {warning}." in " ".join(run(command).split())
    assert cli.main(shlex.split(f"{command} --csv")) == 0
    assert capsys.readouterr().err == f"specmodel: warning: {warning}\n"
    assert parse(run(f"{HEAD} --trace ./preset.toml --json"))["warnings"] == []


def test_the_command_is_the_function(run):
    """Times and trace by their readers, policies by name: the same numbers from Python."""
    trace, times = read_trace("trace.jsonl"), read_replay_times("times.csv")
    for seed in (0, 7):
        records = simulate(trace, times, NAMES, seed=seed)
        expected = with_none(summarise(records, np.random.default_rng(seed)))
        for row, name in zip(expected, NAMES, strict=True):
            row["assumed"] = assumed(name)
        assert parse(run(f"{MEASURED} --seed {seed} --json"))["policies"] == expected


def test_a_table_is_its_draft_length_at_batch_size_1(run):
    rows = parse(run(MEASURED + " --policy table:table.json,fixed:3,fixed:03 --json".replace(
        ",fixed:03", "")))["policies"]  # fmt: skip
    assert rows[0] | {"policy": ""} == rows[1] | {
        name: rows[0][name] for name in ("policy", "speedup_low", "speedup_high", "assumed")
    } | {"policy": ""}  # fmt: skip
    assert rows[0]["assumed"] == "entries above batch size 1 belong to serving and are not replayed"


def test_what_does_not_fit_is_said_first_and_marked(run):
    command = f"{PREDICTED} --memory-utilization 0.5 --tensor-parallel 1"
    out, document = run(command), parse(run(f"{command} --json"))
    assert " ".join(out.split("\n\n")[0].split()).count("Nothing fits in memory. If it did: ") == 1
    assert "not even the weights fit" in document["warnings"][0]
    assert [row["fits"] for row in document["policies"]] == [False] * len(NAMES)
    assert "fits" not in parse(run(f"{MEASURED} --json"))["policies"][0]
