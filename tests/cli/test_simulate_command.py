"""`specmodel simulate`: what it prints and writes, and what it says of whatever is typed wrong."""

import csv
import functools
import io
import json
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import specmodel
from specmodel import cli
from specmodel.replay import simulate, summarise
from specmodel.replay.suite import CHOICES, SuiteSettings, cascade_suite
from specmodel.replay.times import read_replay_times
from specmodel.replay.traces import iid_process, load_preset, read_trace, sample_trace, write_trace

MEASURED = "simulate --step-times times.csv --trace trace.jsonl"
PREDICTED = (
    "simulate --target mixtral-8x7b --weight-dtype fp8 --drafter ngram --hardware rtx_6000_ada"
    " --trace code-ngram --requests 12 --output-tokens 60"
)
HEAD = PREDICTED + " --target olmoe-1b-7b --drafter eagle --trace code-eagle"
NAMES = ["none", "fixed:1", "fixed:2", "fixed:3", "best-fixed", "cascade", "oracle"]

POLICIES = '''
from specmodel.base.errors import InputError


class Fixed:
    def __init__(self, length=2):
        self.length = length

    def propose(self):
        return self.length

    def observe(self, emitted_tokens, step_time):
        pass


class Given(Fixed):
    """Takes all that it can be given; the generator decides."""

    phase = "test"

    def __init__(self, step_time, max_draft_length, draft_lengths, generator, least=0):
        assert len(step_time) == len(draft_lengths) == max_draft_length + 1
        assert step_time == sorted(step_time)
        self.generator, self.range = generator, (least, max_draft_length + 1)

    def propose(self):
        return self.generator.integers(*self.range)


class Returns(Fixed):
    WHATS = {"None": None, "text": "three", "list": [1], "object": object(), "huge": 10**400}

    def __init__(self, what):
        self.length = self.WHATS.get(what, what)


class Raises(Fixed):
    made = 0

    def __init__(self, where, what="value"):
        super().__init__()
        Raises.made += 1
        self.where = where
        self.error = {
            "value": ValueError("two\\nlines"),
            "exit": SystemExit(3),
            "input": InputError("mine", 3, "four"),
            "interrupt": KeyboardInterrupt(),
        }[what]
        self.fail("init")
        self.fail(f"init {Raises.made}")

    def fail(self, where):
        if where == self.where:
            raise self.error

    def propose(self):
        self.fail("propose")
        return 2

    def observe(self, emitted_tokens, step_time):
        self.fail("observe")


class Late(Fixed):
    """Fails only after some other requests were replayed without fault."""

    seen = 0

    def observe(self, emitted_tokens, step_time):
        Late.seen += emitted_tokens
        if Late.seen > 200:
            Late.seen = 0
            raise RuntimeError("late")


class Odd(Fixed):
    phase, utility = ["a", "list"], "high"


class Dies(Fixed):
    def propose(self):
        import multiprocessing, os

        if multiprocessing.parent_process() is not None:
            os._exit(9)
        return 1


class Bare:
    pass


class Half:
    def propose(self):
        return 1


class NoMethods:
    propose, observe = 1, 2


class Arguments(Fixed):
    def propose(self, context):
        return 1


class Needs(Fixed):
    def __init__(self, needed):
        super().__init__()


def make():
    return Fixed(3)


nameless = lambda: Fixed(1)
constant = 3
'''

TRACE = (
    '{"schema": "specmodel-trace", "schema_version": 1, "max_draft_length": 3,'
    ' "num_requests": 2, "metadata": {}}\n'
    '{"proposed_tokens": [3, 0], "accepted_tokens": [1, 0]}\n'
    '{"proposed_tokens": [3], "accepted_tokens": [2]}\n'
)
TIMES = "draft_length,step_time\n0,0.01\n1,0.012\n2,0.014\n"
PRESET = 'schema_version = 1\nname = "mine"\nsurvival = [0.7, 0.5]\nproposal_share = 0.8\n'


def changed(text: str, old: str, new: str) -> bytes:
    assert text.count(old) == 1
    return text.replace(old, new).encode()


FILES = {
    "test_simulate_policies.py": POLICIES.encode(),
    "test_simulate_broken.py": b"raise RuntimeError('at\\nimport')\n",
    "test_simulate_syntax.py": b"class (:\n",
    "test_simulate_exit.py": b"import sys\nsys.exit(5)\n",
    "test_simulate_needy.py": b"import no_such_module_at_all\n",
    "short.jsonl": TRACE.encode(),
    "schema.jsonl": changed(TRACE, "specmodel-trace", "other"),
    "version.jsonl": changed(TRACE, '_version": 1', '_version": 2'),
    "fewer.jsonl": changed(TRACE, '"num_requests": 2', '"num_requests": 3'),
    "cut.jsonl": TRACE[:-9].encode(),
    "negative.jsonl": changed(TRACE, '[1, 0]', '[-1, 0]'),
    "beyond.jsonl": changed(TRACE, '"accepted_tokens": [2]', '"accepted_tokens": [4]'),
    "empty.jsonl": b"",
    "preset.toml": PRESET.encode(),
    "rising.toml": changed(PRESET, "0.5", "0.9"),
    "malformed.toml": b"= =",
    "short.csv": TIMES.encode(),
    "experts.csv": b"draft_length,step_time,expert_time\n0,1,0\n1,1.2,0.3\n2,1.3,0.4\n",
    "shuffled.csv": b"draft_length,step_time\n2,0.014\n0,0.01\n1,0.012\n",
    "slow.csv": b"draft_length,step_time\n0,99999\n1,999999\n2,1000000\n",
    "flat.csv": ("draft_length,step_time\n" + "".join(f"{k},1\n" for k in range(41))).encode(),
    "column.csv": changed(TIMES, "step_time", "time"),
    "lengths.csv": changed(TIMES, "draft_length", "length"),
    "gap.csv": changed(TIMES, "\n1,", "\n3,"),
    "twice.csv": changed(TIMES, "\n2,", "\n1,"),
    "only.csv": b"draft_length,step_time\n0,0.01\n",
    "zero.csv": changed(TIMES, "0.012", "0"),
    "negative.csv": changed(TIMES, "0.012", "-0.012"),
    "nan.csv": changed(TIMES, "0.012", "nan"),
    "blank.csv": changed(TIMES, "0.012", ""),
    "huge.csv": changed(TIMES, "0.012", "1e300"),
    "text.csv": changed(TIMES, "0.012", "fast"),
    "half.csv": changed(TIMES, "\n1,", "\n1.5,"),
    "below.csv": changed(TIMES, "\n1,", "\n-1,"),
    "ragged.csv": TIMES.encode() + b"3,0.016,7,8\n",
    "empty.csv": b"",
    "binary.csv": b"draft_length,step_time\n\xff,\xfe\n",
    "overdone.csv": b"draft_length,step_time,expert_time\n0,1,0\n1,1.2,1.2\n2,1.3,0.4\n",
    "table.json": b"[[17, 64, 2], [1, 16, 3]]",
    "reversed.json": b"[[16, 1, 3]]",
    "two.json": b"[[1, 16]]",
    "fraction.json": b"[[1, 16, 2.5]]",
    "long.json": b"[[1, 16, 30]]",
    "number.json": b"3",
    "null.json": b"null",
    "list.json": b"[]",
    "malformed.json": b"[[1, 16,",
    "deep.json": b"[" * 100_000,
    "binary.json": b"\xff\xfe",
    "kept.csv": b"kept",
    "kept.png": b"kept",
}  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    path = tmp_path_factory.mktemp("files")
    for name, content in FILES.items():
        (path / name).write_bytes(content)
    for name in ("folder.csv", "folder.png", "folder.jsonl"):
        (path / name).mkdir()
    lines = "".join(f"{k},{0.01 * (1 + 0.2 * k)}\n" for k in range(8))
    (path / "times.csv").write_text("draft_length,step_time\n" + lines, encoding="utf-8")
    process, generator = load_preset("code-ngram"), np.random.default_rng(0)
    write_trace(sample_trace(process, 12, 60, generator), path / "trace.jsonl")
    write_trace(sample_trace(iid_process(1.0, 40), 3, 400, generator), path / "perfect.jsonl")
    return path


@pytest.fixture(autouse=True)
def folder(files, monkeypatch):
    """The current folder, in which nothing appears but what a test names itself."""
    monkeypatch.chdir(files)
    return files


@pytest.fixture
def run(capsys):
    """Run a command line that must succeed; return what it prints."""

    def run(command, warns=False):
        path = list(sys.path)
        status = cli.main(shlex.split(command))
        out, err = capsys.readouterr()
        assert status == 0, err
        assert err.startswith("specmodel: warning: ") if warns else err == ""
        assert sys.path == path
        return out

    return run


def refuse(constant):
    raise AssertionError(f"{constant} is not JSON")


def parse(text):
    return json.loads(text, parse_constant=refuse)


def widest(text):
    return max(text.splitlines(), key=len)


def typed(names):
    """Names of policies as typed: the best fixed one is shown with its draft length."""
    return [re.sub(r"^best-fixed:\d+$", "best-fixed", name) for name in names]


def shown(command):
    """A short name for a case."""
    for text, short in ((MEASURED, "MEASURED"), (PREDICTED, "PREDICTED"), (SUITE, "SUITE")):
        command = command.replace(text, short)
    return repr(command)[:90]


# used right: people, JSON, CSV

MINE = "test_simulate_policies"
LONG = (
    "cascade:first_draft_length=1:backoff_factor=1,cascade:first_draft_length=1:climb=false,"
    f"{MINE}:Fixed:length=3,{MINE}:Given,specmodel.replay.policies:Goodput:memory=20"
)
VARIETY = [
    PREDICTED,
    MEASURED,
    HEAD,
    PREDICTED + " --policy none,fixed:0,greedy,goodput,sglang,bandit,bandit:method=thompson,oracle",
    PREDICTED + f" --policy none,oracle,{LONG}",
    PREDICTED + f" --policy {LONG}",
    PREDICTED + " --policy oracle,best-fixed",
    PREDICTED + " --policy cascade:first_draft_length=1:backoff_factor=1:baseline_interval=50"
    ":tolerance=0.2:set_iterations=8:max_trials=3:trial_iterations=5",
    PREDICTED + " --policy none",
    PREDICTED + " --max-draft-length 20 --seed 3 --engine vllm",
    PREDICTED + " --max-draft-length 1 --policy none,best-fixed,cascade,oracle,greedy,goodput",
    PREDICTED + " --requests 1 --output-tokens 1",
    PREDICTED + " --context-length 0 --timing-noise 0 --step-expert-spread 0.1",
    PREDICTED + " --context-length 131072 --tensor-parallel 2 --routing-correlation 0 --json=",
    PREDICTED + " --trace code-ngram+math-ngram+chat-ngram --requests 10",
    PREDICTED + " --trace ./preset.toml --lookup-time 0.01",
    PREDICTED + " --target llama-3.1-8b --stack datasheet --set hardware.memory.l2_bytes=1e6",
    HEAD + " --drafter-upkeep 0 --request-expert-spread 0.2 --target qwen1.5-moe-a2.7b",
    HEAD + " --drafter llama-3.2-1b --target llama-3.1-70b"
    " --hardware h200_sxm --policy none,cascade",
    MEASURED + " --step-times experts.csv --policy none,fixed:2,cascade:max_trials=3,oracle,greedy",
    MEASURED + " --step-times slow.csv --policy none,fixed:2,cascade,oracle",
    MEASURED + " --step-times flat.csv --trace ./perfect.jsonl --max-draft-length 40"
    " --policy none,fixed:40,best-fixed,cascade:max_draft_length=40,oracle,sglang",
    MEASURED + " --policy table:table.json,table:1-16=4:17-64=2,fixed:4",
]  # fmt: skip
VARIETY = [command.removesuffix(" --json=") for command in VARIETY]


@pytest.mark.parametrize("command", VARIETY, ids=lambda command: shown(command))
def test_table_json_and_csv_hold_the_same(command, run):
    out, document = run(command), parse(run(command + " --json"))
    assert len(widest(out)) <= 80, widest(out)
    assert document["schema_version"] == 1
    assert document["version"] == specmodel.__version__
    assert document["warnings"] == []
    assert "".join(out.split()).startswith("".join(document["heading"].split()))
    rows = document["policies"]
    head, *lines = out.split("\npolicy ")[1].splitlines()
    assert "speedup" in head
    for row, line in zip(rows, lines, strict=False):
        label, *cells = re.split(r"  +", line)
        note = "".join(f"{label}:{row['policy']}".split())
        assert row["policy"] == label or note in "".join(out.split())
        assert cells[0] == f"{row['speedup']:.3f}"
        if row["requests"] == 1:
            assert (cells[1], row["speedup_low"], row["speedup_high"]) == ("-", None, None)
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
    assert all(re.search(rf"\b{name}\s", assumed) for name in document["assumptions"])
    table = list(csv.DictReader(io.StringIO(run(command + " --csv"))))
    as_text = [{k: "" if v is None else str(v) for k, v in row.items()} for row in rows]
    assert table == as_text


def test_defaults_are_those_of_the_help(run):
    given = " --policy " + ",".join(NAMES) + " --max-draft-length 7 --seed 0 --workers 1"
    document = parse(run(f"{PREDICTED} --json"))
    assert typed(row["policy"] for row in document["policies"]) == NAMES
    again = parse(run(f"{PREDICTED} {given} --context-length 1024 --timing-noise 0.02 --json"))
    assert again["policies"] == document["policies"]
    help_text = " ".join(run("simulate --help").split())
    assert "[default: 1024]" in help_text
    assert "[default: none, fixed:1 to fixed:3, best- fixed, cascade, oracle]" in help_text
    drawn = PREDICTED.replace("--requests 12 --output-tokens 60", "--policy none")
    assert "300 requests of 512 tokens" in " ".join(run(drawn).split())


def test_answer_comes_first_then_the_policies_then_what_was_assumed(run):
    out = run(MEASURED)
    assert out.startswith("Times of times.csv; trace.jsonl, 12 requests\nA plain pass takes 10 ms;")
    verdict, table, assumed = (out.index(text) for text in ("Best: ", "\npolicy ", "Assumed: "))
    assert verdict < table < assumed
    lines = out.split("\npolicy ")[1].splitlines()[1:8]
    assert typed(line.split()[0] for line in lines) == NAMES
    rows = dict(zip(NAMES, (float(line.split()[1]) for line in lines), strict=True))
    best = max((name for name in NAMES if name not in ("best-fixed", "oracle")), key=rows.get)
    assert f"Best: {best}, {rows[best]:.2f}x" in out
    assert rows[best] < rows["oracle"]
    assert re.search(r"Cascade: \d\.\d\dx, \d+% of its\s+steps in tests", out)


def test_long_names_are_numbered_and_explained(run):
    lines = run(f"{MEASURED} --policy none,{LONG},oracle").splitlines()
    first = lines.index("cascade [1]: cascade:first_draft_length=1:backoff_factor=1")
    assert lines[first + 1] == "cascade [2]: cascade:first_draft_length=1:climb=false"
    assert lines[first + 2] == f"test_simulate_po [3]: {MINE}:Fixed:length=3"
    labels = ["none", "cascade [1]", "cascade [2]", "test_simulate_po [3]"]
    assert [re.split("  +", line)[0] for line in lines[first - 7 : first - 3]] == labels
    assert re.match(r"policy +speedup +95 % +down +a step +tests +median +regret", lines[first - 8])


def test_what_does_not_pay_or_cannot_be_deployed_is_said(run):
    assert "Speculation does not pay" in run(MEASURED + " --step-times slow.csv")
    assert "bounds, nothing to deploy" in run(MEASURED + " --policy best-fixed,greedy,oracle")


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("engine", "--engine vllm"),
        ("context_length", "--context-length 0"),
        ("routing_correlation", "--routing-correlation 0"),
        ("drafter_upkeep", "--drafter-upkeep 0"),
        ("max_draft_length", "--max-draft-length 7"),
        ("timing_noise", "--timing-noise 0"),
        ("request_expert_spread", "--request-expert-spread 0"),
        ("step_expert_spread", "--step-expert-spread 0"),
    ],
)
def test_assumed_unless_given(name, option, run):
    def assumed(command):
        return re.search(rf"\b{name}\s", run(command).partition("Assumed:")[2]) is not None

    assert assumed(HEAD)
    assert not assumed(f"{HEAD} {option}")
    assert name in parse(run(f"{HEAD} --json"))["assumptions"]
    assert name not in parse(run(f"{HEAD} {option} --json"))["assumptions"]


def test_only_what_matters_is_assumed(run):
    assert "drafter_upkeep" not in run(PREDICTED)
    assert "expert_spread" not in run(MEASURED)
    assert "expert_spread" in run(MEASURED + " --step-times experts.csv")
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
    for form in ("", " --csv"):
        assert cli.main(shlex.split(command + form)) == 0
        assert capsys.readouterr().err == f"specmodel: warning: {warning}\n"
    assert parse(run(f"{HEAD} --trace ./preset.toml --json"))["warnings"] == []


def test_the_command_is_the_function(run):
    """Times and trace by their readers, policies by name: the same numbers from Python."""
    trace, times = read_trace("trace.jsonl"), read_replay_times("times.csv")
    for seed in (0, 7):
        records = simulate(trace, times, NAMES, seed=seed)
        expected = summarise(records, np.random.default_rng(seed)).to_dict("records")
        assert parse(run(f"{MEASURED} --seed {seed} --json"))["policies"] == expected


@pytest.mark.parametrize("command", [MEASURED, PREDICTED])
def test_the_seed_decides(command, run):
    outs = [run(f"{command} --seed {seed} --policy {LONG}") for seed in (0, 0, 1)]
    assert outs[0] == outs[1] != outs[2]


def test_order_of_measured_rows_does_not_matter(run):
    short, shuffled = (
        run(f"{MEASURED} --step-times {name}.csv --csv") for name in ("short", "shuffled")
    )
    assert short == shuffled


def test_a_step_longer_by_experts_varies_with_them(run):
    command = f"{MEASURED} --step-times experts.csv --policy fixed:2 --timing-noise 0 --csv"
    still = " --request-expert-spread 0 --step-expert-spread 0"
    assert len({run(command + option) for option in ("", still, " --step-expert-spread 0.1")}) == 3


def test_spaces_in_lists_are_left_out(run):
    assert run(f"{MEASURED} --policy 'none, fixed:1 ,cascade'") == run(
        f"{MEASURED} --policy none,fixed:1,cascade"
    )
    spaced = run(f"{PREDICTED} --trace 'code-ngram + math-ngram' --csv")
    assert spaced == run(f"{PREDICTED} --trace code-ngram+math-ngram --csv")


def test_a_table_is_its_draft_length_at_batch_size_1(run):
    rows = parse(run(MEASURED + " --policy table:table.json,fixed:3,fixed:03 --json".replace(
        ",fixed:03", "")))["policies"]  # fmt: skip
    assert rows[0] | {"policy": ""} == rows[1] | {
        "policy": "", "speedup_low": rows[0]["speedup_low"], "speedup_high": rows[0]["speedup_high"]
    }  # fmt: skip


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


def test_policies_of_the_package_by_their_class(run):
    names = (
        "specmodel.replay.policies:Cascade",
        "cascade",
        "specmodel.replay.policies:Goodput",
        "goodput",
    )
    rows = parse(run(f"{MEASURED} --policy {','.join(names)} --json"))["policies"]
    for own, known in ((0, 1), (2, 3)):
        assert rows[own]["speedup"] == pytest.approx(rows[known]["speedup"], rel=1e-12)


def test_phases_and_utilities_that_are_none_are_drawn_as_none(run, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    path = tmp_path / "odd.svg"
    command = f"{MEASURED} --policy {MINE}:Odd --timeline {path}"
    run(command)
    assert b"<svg" in path.read_bytes()
    tables = []
    monkeypatch.setattr(
        "specmodel.plots.figures.save_figure", lambda kind, table, *_, **__: tables.append(table)
    )
    run(command)
    assert tables[0]["utility"].isna().all()
    assert set(tables[0]["phase"]) == {"['a', 'list']"}


def test_workers_change_nothing(run, tmp_path):
    command = (
        f"{MEASURED} --trace code-ngram --requests 20000 --output-tokens 4"
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
    assert "peedup" in run(f"{MEASURED} --timeline {path} --timeline-policy {policy} --request 11")
    assert path.read_bytes().startswith(MAGIC[suffix])
    assert path.stat().st_size > 3000


@pytest.fixture
def drawn(monkeypatch):
    """Tables that would be drawn."""
    pytest.importorskip("matplotlib")
    tables = []
    monkeypatch.setattr(
        "specmodel.plots.figures.save_figure", lambda kind, table, *_, **__: tables.append(table)
    )
    return tables


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
    run(f"{MEASURED} --policy none --timeline a.png --timeline-policy {chosen}")
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


# the suite

SUITE = "simulate --suite cascade --requests 3"


@pytest.fixture
def small(monkeypatch):
    """The suite in seconds."""
    settings = functools.partial(
        SuiteSettings,
        routing_correlations=(0.18,),
        output_tokens=(64,),
        first_draft_lengths=(2,),
    )
    monkeypatch.setattr("specmodel.replay.suite.SuiteSettings", settings)


@pytest.fixture(scope="module")
def pairs():
    return cascade_suite(
        SuiteSettings(
            routing_correlations=(0.18,),
            output_tokens=(64,),
            first_draft_lengths=(2,),
            num_requests=3,
            seed=1,
        )
    )


def test_suite_for_people_and_programs(small, pairs, run, monkeypatch):
    out = run(SUITE + " --seed 1")
    asked = []

    def known(settings, *, workers, progress):
        asked.append((settings, workers))
        return pairs

    monkeypatch.setattr("specmodel.replay.suite.cascade_suite", known)
    assert run(SUITE + " --seed 1") == out
    assert len(widest(out)) <= 80, widest(out)
    assert "3 requests a task, engine vllm, context 512" in " ".join(out.split())
    document = parse(run(SUITE + " --seed 1 --json"))
    look_ups = SuiteSettings().look_ups
    assert [len(document[name]) for name in ("pairs", "claims", "choices")] == [
        len(pairs), len(look_ups), len(look_ups) * len(CHOICES),
    ]  # fmt: skip
    claims = {row["look_up"]: row for row in document["claims"]}
    for claim, paper in document["paper"].items():
        (line,) = (line for line in out.splitlines() if line.startswith(f"{claim}  "))
        cells = re.split(r"  +", line)
        assert cells[1] == paper
        for look_up, cell in zip(look_ups, cells[2:], strict=True):
            value = claims[look_up][claim]
            if value is None:
                assert cell == "-"
                continue
            scale = 1 if claim.startswith("pairs") or "times" in claim else 100
            assert float(cell.split()[0]) == pytest.approx(scale * value, abs=0.51)
    table = list(csv.DictReader(io.StringIO(run(SUITE + " --seed 1 --csv"))))
    assert table == [
        {name: "" if value is None else str(value) for name, value in row.items()}
        for row in document["claims"]
    ]
    run(SUITE + " --seed 5 --context-length 0 --engine sglang --workers 2")
    settings, workers = asked[-1]
    assert (settings.seed, settings.context_length, settings.engine) == (5, 0, "sglang")
    assert (settings.num_requests, workers) == (3, 2)
    assert "300 requests a task" in run("simulate --suite cascade")


def test_suite_without_a_slowdown_has_no_cut_of_it(small, pairs, run, monkeypatch):
    free = pairs.assign(speedup=1.5, slowdown=0.0)
    monkeypatch.setattr("specmodel.replay.suite.cascade_suite", lambda *_, **__: free)
    assert re.search(r"back-off cuts it, times +2\.8( +-)+\n", run(SUITE))
    assert {row["back-off cuts it, times"] for row in parse(run(SUITE + " --json"))["claims"]} == {
        None
    }


@pytest.mark.parametrize("scale", [0.02, 2.0])
def test_suite_of_other_figures_fits_80_columns(scale, small, pairs, run, monkeypatch):
    wild = pairs.assign(speedup=pairs["speedup"] ** scale / (1 + scale / 4))
    monkeypatch.setattr("specmodel.replay.suite.cascade_suite", lambda *_, **__: wild)
    assert len(widest(run(SUITE))) <= 80


# used wrong


def trace_case(name, *fragments):
    return f"{MEASURED} --trace ./{name}", "--trace", f"./{name}", *fragments


def times_case(name, *fragments):
    return f"{MEASURED} --step-times {name}", *fragments


def policy_case(policy, *fragments):
    return f"{MEASURED} --policy none,{shlex.quote(policy)}", *(fragments or ("--policy:", policy))


TRACES = [
    ("simulate", "--trace: got None", "specmodel list presets"),
    (PREDICTED.replace("--trace code-ngram", ""), "--trace: got None"),
    (MEASURED.replace("--trace trace.jsonl", ""), "--trace: got None"),
    *(
        (f"{PREDICTED} --trace {shlex.quote(text)}", f"--trace: got '{culprit}'", ".jsonl", near)
        for text, culprit, near in (
            ("code-ngrm", "code-ngrm", "code-ngram"),
            ("code", "code", "code-eagle, code-ngram"),
            ("code-ngram+mth-ngram", "mth-ngram", "math-ngram"),
            ("code-ngram,math-ngram", "code-ngram,math-ngram", "code-ngram"),
            ("", "", "code-ngram"),
            ("+", "", "code-ngram"),
            ("code-ngram+", "", "code-ngram"),
            ("trace.txt", "trace.txt", "code-ngram"),
        )
    ),
    trace_case("absent.jsonl", "No such file"),
    trace_case("folder.jsonl", "Is a directory"),
    (f"{MEASURED} --trace absent.jsonl", "--trace: got 'absent.jsonl'", "No such file"),
    (f"{PREDICTED} --trace ./absent.toml", "--trace: got 'absent.toml'", "No such file"),
    (f"{PREDICTED} --trace ./absent", "--trace: got 'absent'", "No such file"),
    (f"{PREDICTED} --trace ./malformed.toml", "--trace: got 'malformed.toml'", "TOML"),
    (f"{PREDICTED} --trace ./rising.toml", "--trace ./rising.toml", "[0.7, 0.9]", "never rise"),
    trace_case("schema.jsonl", "line 1", "specmodel-trace"),
    trace_case("version.jsonl", "schema_version: got 2"),
    trace_case("fewer.jsonl", "got '2 requests'", "num_requests = 3"),
    trace_case("cut.jsonl", "line 3", "well-formed JSON"),
    trace_case("negative.jsonl", "line 2 accepted_tokens[0]: got -1"),
    trace_case("beyond.jsonl", "line 3 accepted_tokens[0]: got 4"),
    trace_case("empty.jsonl", "got None", "header"),
]

RETURNED = [
    *(("-1", "-1"), ("8", "8"), ("2.5", "2.5"), ("2.0", "2.0"), ("true", "True")),
    *(("false", "False"), ("null", "None"), ("None", "None"), ("text", "'three'")),
    *(("NaN", "nan"), ("list", "'list'"), ("object", "'object'"), ("huge", "10000")),
]
OWN = [
    *(
        policy_case(
            f"{MINE}:Returns:what={what}",
            f"--policy Returns: got {given}",
            "a whole draft length from 0 to 7",
        )
        for what, given in RETURNED
    ),
    *(
        policy_case(
            f"{MINE}:Raises:where={where}:what={what}",
            *("--policy", shown, expected),
        )
        for where, expected in (
            ("init", "expected one that can be made"),
            ("propose", f"replays the whole trace ({MINE}.py:"),
            ("observe", f"replays the whole trace ({MINE}.py:"),
        )
        for what, shown in (("value", r"ValueError: two\nlines"), ("exit", "SystemExit: 3"))
    ),
    policy_case(f"{MINE}:Raises:where=init:what=input", "--policy mine: got 3; expected four"),
    policy_case(f"{MINE}:Bare", f"--policy {MINE}:Bare: got 'a Bare'", "propose() and observe("),
    policy_case(f"{MINE}:Half", f"--policy {MINE}:Half: got 'a Half'", "propose() and observe("),
    policy_case(f"{MINE}:NoMethods", "a NoMethods", "propose() and observe("),
    policy_case("collections:Counter", "--policy collections:Counter: got 'a Counter'"),
    policy_case(f"{MINE}:Arguments", "--policy Arguments", "TypeError", "replays the whole trace"),
    policy_case(f"{MINE}:Needs", f"--policy {MINE}:Needs", "TypeError", "needed"),
    policy_case(f"{MINE}:Fixed:no=3", f"--policy {MINE}:Fixed:no=3", "TypeError", "can be made"),
    policy_case(f"{MINE}:Fixed:length=two", "--policy Fixed: got 'two'"),
    policy_case(f"{MINE}:Fixed:length=1:length=2", "--policy:", "expected length once"),
    policy_case(f"{MINE}:Fixed:length", "--policy:", "name=value"),
    policy_case(f"{MINE}:Fixed:a b=2", "--policy:", "name=value"),
    policy_case(f"{MINE}:Absent", "--policy:", "has Absent"),
    policy_case(f"{MINE}:constant", "--policy:", "a class or function"),
    policy_case(f"{MINE}:", "--policy:", "module:Class"),
    policy_case(":Fixed", "--policy:", "module:Class"),
    policy_case(MINE, "--policy:", "module:Class"),
    policy_case(f"{MINE}.sub:Fixed", "--policy:", "is not a package"),
    policy_case(f".{MINE}:Fixed", "--policy:", "imported"),
    policy_case(f"{MINE}/a:Fixed", "--policy:", "imported"),
    policy_case("test_simulate_broken:A", "--policy:", "has A (RuntimeError: at import)"),
    policy_case("test_simulate_syntax:A", "--policy:", "SyntaxError", "line 1"),
    policy_case("test_simulate_exit:A", "--policy:", "SystemExit: 5"),
    policy_case("test_simulate_needy:A", "--policy:", "has A (", "named 'no_such_module_at_all'"),
    policy_case("no_such_module:A", "--policy:", "No module named 'no_such_module'"),
    policy_case("casade:tolerance=0.1", "--policy:", "a known name such as cascade"),
    policy_case("Fixed:3", "--policy:", "a known name such as", "fixed"),
]  # fmt: skip

SETTING = [
    *(
        policy_case(f"cascade:{name}={value}", f"--policy cascade {name}: got {given}", expected)
        for name, value, given, expected in (
            ("max_draft_length", "30", "30", "at most 7, the longest"),
            ("max_draft_length", "0", "0", "at least 1"),
            ("max_draft_length", "x", "'x'", "a whole number"),
            ("max_draft_length", "null", "None", "a whole number"),
            ("first_draft_length", "9", "9", "at most max_draft_length = 7"),
            ("max_trials", "3.5", "3.5", "a whole number"),
            ("max_trials", "true", "True", "a whole number"),
            ("set_iterations", "1e9", "1000000000.0", "a whole number"),
            ("set_iterations", "1000000001", "1000000001", "at most 1000000000"),
            ("trial_iterations", "1" + "0" * 30, "1000", "at most 1000000000"),
            ("backoff_factor", "0", "0", "at least 1"),
            *(
                ("tolerance", value, given, "a number of at least 0")
                for value, given in (
                    *(("x", "'x'"), ("-1", "-1"), ("NaN", "nan"), ("Infinity", "inf")),
                    *(("true", "True"), ("null", "None"), ("[0.1]", "[0.1]")),
                )
            ),
            ("climb", "1", "1", "true or false"),
            ("early_exit", "yes", "'yes'", "true or false"),
            ("first_direction", "left", "'left'", "by utility, up or down"),
        )
    ),
    *(
        policy_case(f"{name}:{setting}={value}", f"--policy {name} {setting}: got {given}", "expec")
        for name, setting, value, given in (
            ("goodput", "memory", "0", "0"),
            ("goodput", "memory", "x", "'x'"),
            ("goodput", "memory", "[50]", "[50]"),
            ("goodput", "first_acceptance_rate", "1", "1"),
            ("goodput", "first_acceptance_rate", "NaN", "nan"),
            ("goodput", "first_acceptance_rate", "x", "'x'"),
            ("goodput", "probe_interval", "1.5", "1.5"),
            ("goodput", "probe_interval", "x", "'x'"),
            ("sglang", "weight", "0", "0"),
            ("sglang", "weight", "x", "'x'"),
            ("sglang", "first_draft_length", "1.5", "1.5"),
            ("sglang", "warm_up", "x", "'x'"),
            ("sglang", "warm_up", "-1", "-1"),
            ("sglang", "update_interval", "1.5", "1.5"),
            ("bandit", "method", "greedy", "'greedy'"),
            ("bandit", "method", "[1]", "[1]"),
            ("bandit", "discount", "0", "0"),
            ("bandit", "discount", "x", "'x'"),
            ("bandit", "width", "Infinity", "inf"),
            ("bandit", "width", "true", "True"),
        )
    ),
    *(
        policy_case(policy, f"--policy: got '{policy}'", expected)
        for policy, expected in (
            ("nope", "module:Class, or a known name"),
            ("best_fixed", "best-fixed"),
            ("cascade:max_trial=3", "a setting it has: max_trials"),
            ("goodput:step_time=3", "memory"),
            ("bandit:generator=3", "method"),
            ("cascade:max_trials", "name=value"),
            ("cascade:", "name=value"),
            ("cascade:=3", "name=value"),
            ("cascade:max_trials=3:max_trials=4", "max_trials once"),
            ("oracle:1", "no settings"),
            ("none:", "no settings"),
            ("best-fixed:3", "no settings"),
            *((f"fixed{rest}", "such as fixed:3") for rest in ("", ":", ":x", ":-1", ":1.5")),
            ("fixed:3:4", "such as fixed:3"),
            ("fixed:٣", "such as fixed:3"),
            ("fixed:²", "such as fixed:3"),
            ("fixed:99", "at most 7, the longest"),
            ("fixed:1" + "0" * 30, "at most 7, the longest"),
            ("table:1-16=99", "at most 7, the longest"),
            ("table:long.json", "at most 7, the longest"),
            ("table:", "a JSON file"),
            ("table:absent.json", "No such file"),
            ("table:folder.csv", "Is a directory"),
            ("table:malformed.json", "a JSON file"),
            ("table:binary.json", "a JSON file"),
            ("table:deep.json", "a JSON file"),
            ("table:1-16", "entries such as"),
            ("table:1-16=x", "entries such as"),
            ("table:1-16=-1", "entries such as"),
            ("table:1-16=3:", "entries such as"),
        )
    ),
    *(
        policy_case(f"table{rest}", f"--policy table: got {given}")
        for rest, given in (
            ("", "[]"),
            (":list.json", "[]"),
            (":number.json", "3"),
            (":null.json", "None"),
            (":reversed.json", "[16, 1, 3]"),
            (":two.json", "[1, 16]"),
            (":fraction.json", "[1, 16, 2.5]"),
            (":16-1=3", "[16, 1, 3]"),
            (":0-16=3", "[0, 16, 3]"),
            (":1=3", "[1, 3]"),
        )
    ),
    *(
        (f"{MEASURED} --policy {shlex.quote(text)}", f"--policy: got '{culprit}'")
        for text, culprit in (
            *(("", ""), (",", ""), ("none,", ""), ("none,,cascade", ""), ("none, ,oracle", "")),
            *(("none,none", "none"), ("none, none", "none"), ("fixed:1,fixed:01", "fixed:1")),
            ("best-fixed,cascade,best-fixed", "best-fixed"),
        )
    ),
]  # fmt: skip

STEP_TIMES = [
    times_case("absent.csv", "--step-times: got 'absent.csv'", "no such file"),
    times_case("folder.csv", "--step-times: got 'folder.csv'", "directory"),
    times_case("trace.jsonl", "--step-times: got 'trace.jsonl'", ".csv or .parquet"),
    times_case("''", "--step-times:", ".csv or .parquet"),
    times_case("column.csv", "--step-times:", "columns step_time as well"),
    times_case("lengths.csv", "--step-times:", "columns draft_length as well"),
    times_case("gap.csv", "--step-times draft_length:", "1 is missing"),
    times_case("twice.csv", "--step-times draft_length:", "once", "2 is missing"),
    times_case("only.csv", "--step-times draft_length:", "1 is missing"),
    times_case("half.csv", "--step-times draft_length: got 1.5", "whole number of at least 0"),
    times_case("below.csv", "--step-times draft_length: got -1", "whole number of at least 0"),
    *(
        times_case(f"{name}.csv", f"--step-times step_time: got {given}", "at least 1e-09")
        for name, given in (
            *(("zero", "0.0"), ("negative", "-0.012"), ("nan", "nan"), ("blank", "nan")),
            *(("huge", "1e+300"), ("text", "'fast'")),
        )
    ),
    times_case("ragged.csv", "--step-times: got 'ragged.csv'", "well-formed"),
    times_case("empty.csv", "--step-times: got 'empty.csv'", "well-formed"),
    times_case("binary.csv", "--step-times: got 'binary.csv'", "well-formed"),
    times_case("overdone.csv", "--step-times expert_time: got 1.2", "less than step_time = 1.2"),
    *(
        (f"{MEASURED} {option}", "--step-times: got 'times.csv'", f"no {option.split()[0]} with it")
        for option in (
            *("--target mixtral-8x7b", "--drafter ngram", "--hardware l4", "--engine vllm"),
            *("--stack typical", "--tensor-parallel 1", "--expert-parallel 1"),
            *("--draft-tensor-parallel 1", "--weight-dtype fp8", "--expert-dtype fp8"),
            *("--embedding-dtype fp8", "--activation-dtype bf16", "--kv-dtype fp8"),
            *("--routing-correlation 0", "--popularity-exponent 0", "--popularity a.txt"),
            *("--lookup-time 0", "--set engine.pass_time=0", "--context-length 0"),
            "--drafter-upkeep 0",
        )
    ),
]

NUMBERS = [
    *(
        (f"{PREDICTED} {option} {value}", f"{option}: got {value};", "whole numbers from 1 to")
        for option in ("--requests", "--output-tokens")
        for value in (0, -1, 10**10, 10**30)
    ),
    (
        f"{PREDICTED} --requests 1000000 --output-tokens 1000000",
        "--requests: got 1000000;",
        "at most 100000 of 1000000 tokens",
    ),
    *(
        (f"{MEASURED} {option} 5", f"{option}: got 5;", "none, as the trace has its own")
        for option in ("--requests", "--output-tokens")
    ),
    *(
        (f"{PREDICTED} --max-draft-length {value}", f"--max-draft-length: got {value};", "1 to 20")
        for value in (0, -1, 21, 1000)
    ),
    (f"{MEASURED} --max-draft-length 8", "--max-draft-length: got 8;", "from 1 to 7"),
    (f"{MEASURED} --trace ./short.jsonl --max-draft-length 4", "--max-draft-length", "1 to 3"),
    *(
        (f"{PREDICTED} --context-length {value}", f"--context-length: got {value};", "from 0 to")
        for value in (-5, 10**12, 10**30)
    ),
    (f"{PREDICTED} --seed -1", "--seed: got -1;"),
    (f"{MEASURED} --seed -1 --timeline a.png", "--seed: got -1;"),
    *((f"{MEASURED} --workers {value}", f"--workers: got {value};") for value in (0, -1)),
    *(
        (f"{PREDICTED} {option} {value}", f"{option}: got {shown}", "finite numbers from 0 to")
        for option in ("--timing-noise", "--request-expert-spread", "--step-expert-spread")
        for value, shown in (("-1", "-1.0"), ("nan", "nan"), ("2", "2.0"), ("inf", "inf"))
    ),
    *(
        (f"{command} {option} 0.1", f"{option}: got 0.1;", "no step time depends on experts")
        for option in ("--request-expert-spread", "--step-expert-spread")
        for command in (MEASURED, PREDICTED + " --target llama-3.1-8b")
    ),
    *(
        (f"{HEAD} --drafter-upkeep {value}", f"--drafter-upkeep: got {shown};", "at least 0")
        for value, shown in (("-1", "-1.0"), ("nan", "nan"), ("inf", "inf"))
    ),
    (f"{PREDICTED} --drafter-upkeep 0.1", "--drafter-upkeep: got 0.1;", "a model or head"),
    (f"{HEAD} --lookup-time 0.1", "--lookup-time: got 0.1;", "ngram"),
    *(
        (f"{PREDICTED} {option} few", f"'{option}'", "'few'")
        for option in ("--requests", "--max-draft-length", "--seed", "--workers", "--timing-noise")
    ),
    *(
        (f"{PREDICTED} {option} nope", f"{option}: got 'nope'")
        for option in ("--target", "--drafter", "--hardware", "--engine", "--stack", "--kv-dtype")
    ),
    (f"{PREDICTED} --tensor-parallel 3", "--tensor-parallel: got 3;"),
    (f"{PREDICTED} --set engine.pass_times=3", "--set engine.pass_times: got 3;"),
    *(
        (re.sub(rf"{option} \S+", "", PREDICTED), f"{option}: got None;", "or --step-times")
        for option in ("--target", "--drafter", "--hardware")
    ),
]

OUTPUTS = [
    *(
        (f"{MEASURED} --timeline '{name}'", f"--timeline: got '{name}'", ".png, .pdf or .svg")
        for name in ("x.gif", "x", ".png", "x.PNG", "x.csv", "")
    ),
    *(
        (f"{MEASURED} --timeline {name}", f"--timeline: got '{name}'", "can be written", fault)
        for name, fault in (("absent/x.png", "No such file"), ("folder.png", "Is a directory"))
    ),
    *(
        (f"{MEASURED} --records '{name}'", f"--records: got '{name}'", "a .csv file")
        for name in ("x.txt", "x.parquet", "x", "")
    ),
    *(
        (f"{MEASURED} --records {name}", f"--records: got '{name}'", "can be written", fault)
        for name, fault in (("absent/x.csv", "No such file"), ("folder.csv", "Is a directory"))
    ),
    *(
        (f"{MEASURED} --timeline x.png --request {value}", f"--request: got {value};", "0 to 11")
        for value in (12, -1, 10**20)
    ),
    *(
        (
            f"{MEASURED} --timeline x.png --timeline-policy {shlex.quote(policy)}",
            f"--timeline-policy{setting}: got {given}",
        )
        for policy, setting, given in (
            ("nope", "", "'nope'"),
            ("", "", "''"),
            ("fixed:99", "", "'fixed:99'"),
            ("best-fixed", "", "'best-fixed'"),
            ("cascade:max_trials=0", " cascade max_trials", "0"),
            (f"{MINE}:Returns:what=9", " Returns", "9"),
        )
    ),
    (f"{MEASURED} --timeline x.png --policy best-fixed", "--timeline-policy:", "such as fixed:3"),
    (f"{MEASURED} --timeline x.png --policy fixed:99", "--policy: got 'fixed:99'"),
    (f"{MEASURED} --timeline x.png --policy nope,cascade", "--policy: got 'nope'"),
    (f"{MEASURED} --request 3", "--request: got 3;", "--timeline FILE with it"),
    (f"{MEASURED} --timeline-policy none", "--timeline-policy: got 'none';", "--timeline FILE"),
    (f"{MEASURED} --json --csv", "csv: got True", "--json", "--csv"),
    (f"{MEASURED} extra", "extra"),
]  # fmt: skip

OF_SUITE = [
    *(
        (f"{SUITE} {option} {value}", f"{option}: got ", "none with --suite")
        for option, value in (
            *(("--target", "mixtral-8x7b"), ("--drafter", "ngram"), ("--hardware", "l4")),
            *(("--trace", "code-ngram"), ("--step-times", "times.csv"), ("--policy", "none")),
            *(("--output-tokens", "0"), ("--max-draft-length", "3"), ("--drafter-upkeep", "0")),
            *(("--timing-noise", "0"), ("--stack", "typical"), ("--weight-dtype", "fp8")),
            *(("--set", "engine.pass_time=0"), ("--routing-correlation", "0")),
            *(("--timeline", "x.png"), ("--request", "0"), ("--timeline-policy", "none")),
            *(("--records", "x.csv"), ("--lookup-time", "0"), ("--popularity", "x.txt")),
        )
    ),
    (f"{SUITE} --json --csv", "csv: got True"),
    (f"{SUITE} --requests 0", "--requests: got 0;"),
    (f"{SUITE} --requests -1", "--requests: got -1;"),
    (f"{SUITE} --engine nope", "--engine: got 'nope'"),
    (f"{SUITE} --context-length -1", "--context-length: got -1;"),
    (f"{SUITE} --seed -1", "--seed: got -1;"),
    (f"{SUITE} --workers 0", "--workers: got 0;"),
    ("simulate --suite nope", "'--suite'", "'nope'"),
]

CASES = [*TRACES, *OWN, *SETTING, *STEP_TIMES, *NUMBERS, *OUTPUTS, *OF_SUITE]
REPLAYED = ("propose", "observe", "Returns", "Fixed:length=two", "Arguments")
"""What only a replay can show."""


def listing(folder):
    names = (path for path in folder.rglob("*") if "__pycache__" not in path.parts)
    return {str(path): path.read_bytes() if path.is_file() else None for path in names}


def check_one_line(status, out, err, fragments):
    assert status == 2
    assert out == ""
    assert err.endswith("\n")
    assert len(err.splitlines()) == 1
    assert err.startswith("specmodel: error: ")
    assert "; expected " in err or "Invalid value" in err or "unexpected extra" in err
    assert err.count("; expected ") <= 1, "one message inside another"
    assert "array(" not in err
    for fragment in fragments:
        assert fragment in err, err


@pytest.mark.parametrize(
    ("command", "fragments"),
    [pytest.param(case[0], case[1:], id=shown(case[0])) for case in CASES],
)
def test_one_line_names_the_argument_before_any_work(
    command, fragments, folder, small, capsys, monkeypatch
):
    if "--timeline" in command:
        pytest.importorskip("matplotlib")

    def too_late(*_):
        raise AssertionError("a replay was begun")

    if not any(word in command for word in REPLAYED):
        monkeypatch.setattr("specmodel.replay.run.replay_block", too_late)
    before = listing(folder)
    status = cli.main(shlex.split(command))
    check_one_line(status, *capsys.readouterr(), fragments)
    assert listing(folder) == before


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


def test_a_policy_that_can_be_made_only_some_times(capsys, monkeypatch):
    cli.main(shlex.split(f"{MEASURED} --policy {MINE}:Fixed"))
    capsys.readouterr()
    monkeypatch.setattr(sys.modules[MINE].Raises, "made", 0)
    status = cli.main([*shlex.split(MEASURED), "--policy", f"{MINE}:Raises:where=init 7"])
    check_one_line(status, *capsys.readouterr(), ("Raises:where=init 7", "one that can be made"))


@pytest.mark.parametrize(
    ("policy", "fragments"),
    [
        (f"{MINE}:nameless", ("expected 1, as not all policies can be handed to other processes",)),
        (f"{MINE}:Dies", ("expected fewer, or more memory",)),
        (f"{MINE}:Returns:what=object", ("--policy Returns: got 'object'",)),
    ],
)
def test_what_workers_cannot_do(policy, fragments, capsys):
    sizes = "--trace code-ngram --requests 20000 --output-tokens 1"
    status = cli.main(shlex.split(f"{MEASURED} {sizes} --policy {policy} --workers 2"))
    check_one_line(status, *capsys.readouterr(), fragments)


@pytest.mark.parametrize(
    "command", [f"{MEASURED} --records kept.csv", PREDICTED, SUITE, f"{SUITE} --json"]
)
def test_interrupt_is_silent(command, folder, small, monkeypatch, capsys):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("specmodel.replay.run.replay_block", interrupt)
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


def test_without_matplotlib_it_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    status = cli.main(shlex.split(f"{MEASURED} --timeline x.png"))
    fragments = ("--timeline: got 'no package matplotlib'", "pip install 'specmodel[plots]'")
    check_one_line(status, *capsys.readouterr(), fragments)
    assert not Path("x.png").exists()
