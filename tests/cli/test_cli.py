"""The command line used right: what it prints, in each form, for each command."""

import csv
import io
import json
import re
from importlib.metadata import version

import click
import pytest
from configs import HEADS
from msgspec.structs import replace
from printed import commands, widest
from rows import each_listed, each_row, listed, one_case, rows_of
from shapes import CONFIG

import specmodel
from specmodel import cli, load_engine
from specmodel.cli.commands import main_group
from specmodel.cli.helping import GROUPS
from specmodel.cli.settings import OPTIONS
from specmodel.core.algebra.acceptance import FORMS
from specmodel.core.base.naming import SETTABLE
from specmodel.core.cost.deploying import NAMES
from specmodel.show.glossary import WORDS, policy_words
from specmodel.simulate.traces import list_presets

PREDICT = "predict --target qwen3-30b-a3b --drafter eagle --hardware h200_sxm"
PREDICT += " --batch-size 1 --draft-length 3 --acceptance-rate 0.7"


def test_the_table_shows_what_users_and_servers_see_with_and_without(run, rows):
    (row,) = rows(PREDICT + " --batch-size 8")
    out = run(PREDICT + " --batch-size 8")
    plain = specmodel.decode(target="qwen3-30b-a3b", hardware="h200_sxm", batch_size=8)
    assert f" {1e3 * plain.tpot:.3g} -> {1e3 * row['tpot']:.3g}ms " in out
    assert f" {plain.throughput:.0f} -> {row['throughput']:.0f} " in out


def test_batch_that_does_not_fit_warns(run, document):
    command = PREDICT + " --context-length 100000 --batch-size"
    found = document(f"{command} 1,100")
    most = min(row["max_batch_size"] for row in found["rows"])
    assert most < 100
    assert f"largest batch that fits is {most}" in " ".join(found["warnings"])
    assert "Points that fit in memory: 1 of 2." in run(f"{command} 1,100")
    assert "Warning: batch size 100 needs" in run(f"{command} 1,100", one_line=True)
    for size in (most, most + 1):
        told = " ".join(document(f"{command} {size}")["warnings"])
        assert ("largest batch that fits" in told) == (size > most)


@pytest.mark.parametrize("command", commands("80 columns"))
def test_people_see_80_columns_json_is_strict_and_csv_holds_its_rows(command, run, document):
    for extra in ("", " --components"):
        out = run(command + extra)
        assert len(widest(out)) <= 80, widest(out)
        assert "peedup" in out or "pays" in out
        assert "Assumed:" in out
        assert ("attention_core" in out) == bool(extra)
    found = document(command)
    assert (found["schema_version"], found["version"]) == (1, specmodel.__version__)
    assert found["assumptions"]
    for row in found["rows"]:
        assert row.keys() == found["units"].keys()
        parts = row["draft_time"] + row["verify_time"] + row["reject_time"]
        assert row["step_time"] == pytest.approx(parts, rel=1e-12)
    table = list(csv.DictReader(io.StringIO(run(command + " --csv"))))
    assert all(" on " in row.pop("case") for row in table)
    as_text = [{k: "" if v is None else str(v) for k, v in row.items()} for row in found["rows"]]
    assert table == as_text


def test_grid_goes_by_context_then_draft_length_then_batch_size(rows):
    command = PREDICT + " --batch-size '1, 2:8:x2' --draft-length 1:5:2 --context-length 512,0"
    names = ("context_length", "draft_length", "batch_size")
    points = [tuple(row[name] for name in names) for row in rows(command)]
    assert points == [(c, g, b) for c in (512, 0) for g in (1, 3, 5) for b in (1, 2, 4, 8)]


def test_times_are_typed_with_their_unit_or_in_seconds(run):
    """A list of them in a sweep too."""
    where = "mixtral-8x7b 2xh100 --drafter ngram --acceptance-rate 0.6 --batch-size 4"
    where += " --draft-length 3 --set lookup_time="
    found = [run(f"predict {where}{time} --csv") for time in ("5e-5", "50us", "0.05ms", "0")]
    assert found[0] == found[1] == found[2] != found[3]
    swept = f"sweep --columns speedup {where}"
    assert run(f"{swept}0,5e-5,1e-4:3e-4:1e-4") == run(f"{swept}0,50us,0.1ms:300us:1e-4s")


def test_model_configuration_by_path(tmp_path, run, rows):
    path, saved = tmp_path / "config.json", tmp_path / "mine.toml"
    path.write_text(json.dumps(CONFIG), encoding="utf-8")
    saved.write_text(run(f"list {path}"), encoding="utf-8")
    command = f"{PREDICT} --drafter ngram --target"
    assert rows(f"{command} {path}") == rows(f"{command} {tmp_path}/") == rows(f"{command} {saved}")


@pytest.mark.parametrize("name", ["h200_sxm", "gb10"])
def test_the_template_of_a_gpu_loads_without_what_was_fitted(name, run, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(run(f"list {name} --template"), encoding="utf-8")
    own, shipped = specmodel.load_hardware(path), specmodel.load_hardware(name)
    assert (own.name, own.fitted) == ("My GPU", {})
    assert own.link is None or {*own.link.all_reduce} <= {"typical"}  # of all such links
    assert own.memory.peak_bytes_per_s == shipped.memory.peak_bytes_per_s
    assert len(path.read_text(encoding="utf-8").splitlines()) < 65
    assert "typical of other GPUs are assumed" in " ".join(run(f"predict qwen3-8b {path}").split())


@pytest.mark.parametrize("stack", ['a"b', "two\\nlines", "", "é]"])
def test_a_stack_of_any_name_is_shown_so_that_it_loads_again(stack, run, tmp_path):
    profile, shown = tmp_path / "odd.toml", tmp_path / "shown.toml"
    name = stack.replace('"', '\\"')
    profile.write_text(run("list l40s").replace("[fitted.vllm", f'[fitted."{name}"'))
    shown.write_text(run(f"list {profile}"), encoding="utf-8")
    first, again = specmodel.load_hardware(profile), specmodel.load_hardware(shown)
    assert (again, [*again.fitted]) == (first, [stack.replace("\\n", "\n")])


@one_case(
    "kind names",
    ("hardware", specmodel.list_hardware()), ("architectures", specmodel.list_architectures()),
    ("engines", specmodel.list_engines()), ("drafters", specmodel.list_drafters()),
    ("acceptance", specmodel.list_acceptance()), ("policies", policy_words()),
    ("words", [*WORDS, "limited by state"]), ("presets", list_presets()),
)  # fmt: skip
def test_list_names_all(kind, names, run):
    out = run(f"list {kind}")
    assert {*names} <= {line.split("  ")[0] for line in out.splitlines()}
    assert len(widest(out)) <= 80, widest(out)


@each_row(("load", "name"), [
    *((specmodel.load_architecture, name) for name in specmodel.list_architectures()),
    *((specmodel.load_hardware, name) for name in specmodel.list_hardware()),
    *((specmodel.load_engine, name) for name in specmodel.list_engines()),
])  # fmt: skip
def test_every_record_is_shown_so_that_it_loads_again(load, name, run, tmp_path):
    path, shown = tmp_path / "mine.toml", run(f"list {name}")
    path.write_text(shown, encoding="utf-8")
    again, first = load(path), load(name)
    hidden = {"reported_names": []} if load is specmodel.load_hardware else {}
    assert again == replace(first, **hidden)
    assert not {"ignored_config_keys", "reported_names"} & {*re.findall(r"^\w+", shown, re.M)}


COMMANDS = main_group.list_commands(click.Context(main_group))


def test_there_is_an_option_for_whatever_says_what_runs_where():
    assert {*NAMES, *FORMS} <= {*OPTIONS, *SETTABLE}


@each_row("command", ["", *COMMANDS, "fit kernels", "fit engine", "trace ngram"])
@each_row("flag", ["--help", "-h"])
def test_help_fits_80_columns_and_stands_in_groups(command, flag, run):
    out = run(f"{command} {flag}")
    assert out.startswith("Usage: specmodel")
    assert len(widest(out)) <= 80, widest(out)
    assert not re.search(r"[a-z]\.\.\.", out), "nothing is cut off"
    known = {*GROUPS, f"For {command.rpartition(' ')[2]}", "Commands", "Options", "Examples"}
    titles = {*re.findall(r"^([A-Z][\w ,-]+):$", out, re.MULTILINE)} - {"Example"}
    assert not command or titles <= known


def test_version(run):
    assert specmodel.__version__ in run("--version")
    told = run("--version --verbose")
    assert f"\nnumpy {version('numpy')}\n" in told
    assert re.search(r"\ndata [0-9a-f]{12} \(\d{3} files\)\n", told)


@each_listed
def test_shell_completes_names(words, expected, monkeypatch, capsys):
    monkeypatch.setenv("_SPECMODEL_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", "3")
    with pytest.raises(SystemExit) as exit_:
        cli.main([])
    assert exit_.value.code == 0
    assert expected in capsys.readouterr().out


WITH_ENGINE = commands("engine")


def test_every_command_with_an_engine_is_here():
    context = click.Context(main_group)
    for name in main_group.list_commands(context):
        names = {each.name for each in main_group.get_command(context, name).params}
        is_here = name in {command.split()[0] for command in WITH_ENGINE}
        assert ({"engine", "target"} <= names) == is_here, name


@each_row("command", WITH_ENGINE)
def test_the_host_decides(run, command):
    out = run(f"{command} --host-speed 0.25")
    assert out != run(command)
    assert len(widest(out)) <= 80 or command.startswith("sweep")


@pytest.mark.parametrize(("engine", "of"), [("vllm", "host"), ("vllm-moesd-2025", "target")])
def test_how_wrong_an_engine_is_is_said(run, engine, of):
    command = WITH_ENGINE[0].replace("--engine vllm", f"--engine {engine} --verbose")
    record = load_engine(engine)
    own, left_out = record.fit.mean_error, record.fit.left_out_error[of]
    told = f"mean prediction error {own:.0%} on these runs, {left_out:.0%} on a {of} left out"
    said = f"Engine overheads: fitted to runs of {record.fit.fitted_on.version}; {told} of the fit."
    assert said in run(command, one_line=True)
    assert told in run("list engines", one_line=True)


SILENT = {"sweep", "schedule"}
"""Their output is data that an engine or a program reads."""


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(CONFIG | {"zeta_dense_every": 4}), encoding="utf-8")
    return file


@each_row(("command",), rows_of("commands.txt", "config key"))
def test_a_key_is_ignored_and_said(run, refuse, path, command):
    words, name = command.format(path=path), command.split()[0]
    refuse(words, "shapes, add --ignore-config-key zeta_dense_every")
    told = "" if name in (*SILENT, "list") else " --verbose"
    out = run(f"{words} --ignore-config-key zeta_dense_every{told}")
    assert "zeta_dense_every" in out or name in SILENT


@listed
def test_a_head_says_the_same_and_is_then_read(run, refuse, tmp_path, key, value):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(HEADS["specforge"] | {key: value}), encoding="utf-8")
    words = f"predict qwen3-30b-a3b h100 --drafter {path} --acceptance-rate 0.7"
    told = f"config.json has a key specmodel does not know for llama: {key}. If it does not change"
    refuse(words, f"{told} tensor shapes, add --ignore-config-key {key}")
    assert key in run(f"{words} --ignore-config-key {key} --verbose")
