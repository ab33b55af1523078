"""Python and the command line give equal numbers, rows and words for the same question."""

import io
import json
import shlex
from contextlib import suppress

import numpy as np
import pytest
from printed import refused
from rows import cases, each_row, faults, values_of

import specmodel
from specmodel import cli

pd = pytest.importorskip("pandas")

QWEN = "qwen3-30b-a3b h200"
WORDS = ("qwen3-30b-a3b", "h200")
IN_PYTHON = {name: getattr(specmodel, name) for name in ("compare", "schedule", "load")}
IN_PYTHON |= {"sensitivity": specmodel.sensitivity.analyse}
IN_PYTHON |= {"simulate": specmodel.simulate.replayed}
SHOWN = ("name", "tpot_target", "columns", "interval", "components")
"""Options of a prediction that choose its view and the contents of the view."""
OTHERWISE = {"for": "config_format", "view": "name", "set": "changes", "range": "ranges"}
"""Options that have another name in Python."""

BY_CONTEXT = f"predict {QWEN} --acceptance-by-context 2048:3.2,32768:2.1"
BY_CONTEXT += " --measured-draft-length 3 --context-length 1024,8192 --batch-size 1,8"
PREDICTED = [
    *values_of("commands.txt", "python predicts"),
    (BY_CONTEXT, {"acceptance_by_context": {2048: 3.2, 32768: 2.1}}),
    (f"predict {QWEN} --view peak", {"batch_size": np.arange(1, 513)}),
]
"""Commands, with the arguments that differ in Python."""


def value(word):
    """Return a word as a number or a list of values if it is one, or else as it is."""
    values = word.split(",")
    with suppress(ValueError):
        values = [float(each) if "." in each else int(each) for each in values]
    return values if "," in word else values[0]


def asked(command, other):
    """Return the answer in Python to the question of a command."""
    name, target, hardware, *options = shlex.split(command)
    words, told = (target, value(hardware)), {}
    for option, after in zip(options, [*options[1:], "--"], strict=False):
        if option.startswith("--"):
            key = option.removeprefix("--").replace("-", "_")
            told[OTHERWISE.get(key, key)] = after.startswith("--") or value(after)
    if name == "simulate" and "policy" in told:
        told["policies"] = told.pop("policy")
    if "changes" in told:
        told["changes"] = [shlex.split(command.partition("--set ")[2])[0]]
    told |= other
    if name in IN_PYTHON:
        return IN_PYTHON[name](*words, **told)
    shown = {key: told.pop(key) for key in SHOWN if key in told}
    for axis in {"draft_length", "context_length"} & told.keys():
        told[axis] = np.reshape(told[axis], (-1, 1))  # down, batch sizes across
    if shown.get("name") == "plain":
        del shown["name"]
        return specmodel.decode(*words, **told).view(**shown)
    return specmodel.predict(*words, **told).view(**shown)


def run(capsys, command):
    assert cli.main(shlex.split(command)) == 0
    return capsys.readouterr().out.rstrip("\n")


@each_row(("command", "other"), PREDICTED)
def test_python_predicts_what_the_command_line_does(command, other, capsys):
    found = asked(command, other)
    told = json.loads(run(capsys, f"{command} --json"))
    same = json.loads(json.dumps(found.to_dict()))
    assert same["rows"] == told["rows"]  # to the last digit
    assert same["units"] == told["units"]
    table = pd.read_csv(io.StringIO(run(capsys, f"{command} --csv")))
    own = pd.read_csv(io.StringIO(found.to_frame().to_csv(index=False)))
    pd.testing.assert_frame_equal(own, table, check_exact=True)
    assert str(found) == run(capsys, command)


def with_searches(commands):
    """Return commands as cases; those that search for the largest rate are marked."""
    searches = [("--for-load" in row[0] or "--replications" in row[0], row) for row in commands]
    return [pytest.param(*row, marks=[pytest.mark.search] * own) for own, row in searches]


@cases("command other", *with_searches(values_of("commands.txt", "python says")))
def test_python_says_what_the_command_line_says(command, other, capsys, monkeypatch):
    runs = dict.fromkeys((True, False), (1, 150))
    monkeypatch.setattr("specmodel.simulate.load_question.RUNS", runs)
    if command.startswith(("sensitivity", "schedule")):
        pytest.importorskip("scipy")
    found = asked(command, other)
    same = json.loads(json.dumps(found.view().to_dict()))
    told = json.loads(run(capsys, f"{command} --json"))
    if "rows" not in same:
        assert same == told
    else:
        assert (same["rows"], same.get("carried")) == (told["rows"], told.get("carried"))
    pages = [str(found.view()), run(capsys, command)]
    if command.startswith("compare"):  # where the names of GPUs are not those that are typed
        pages = [page.partition("Kernels:")[0] for page in pages]
    assert pages[0] == pages[1]


@each_row(("command", "told", "argument"), faults("twins"))
def test_what_cannot_be_is_refused_in_python_too(command, told, argument):
    if command == "simulate" and told:
        told = told | {"trace": "code-eagle"}
    refused(f"^{argument}: got ", IN_PYTHON[command], *WORDS, **told)


def test_a_replay_needs_a_target():
    refused(r"^target: got ", specmodel.simulate.replayed, trace="code-eagle")


def test_a_notebook_shows_an_answer_word_for_word():
    for found in (specmodel.predict(*WORDS), specmodel.load(*WORDS, users=2, requests=20)):
        assert found._repr_mimebundle_()["text/plain"] == str(found)
