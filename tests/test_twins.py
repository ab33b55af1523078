"""Python says what the command line says: equal numbers, rows and words for the same question."""

import io
import json
import shlex
from contextlib import suppress

import numpy as np
import pytest
from rows import each_row

import specmodel
from specmodel import cli

pd = pytest.importorskip("pandas")

QWEN = "qwen3-30b-a3b h200"
WORDS = ("qwen3-30b-a3b", "h200")
RATES = "--acceptance-rate 0.7"
LENGTHS = "--prompt-length 100 --output-length 40"
IN_PYTHON = {
    "compare": specmodel.compare,
    "schedule": specmodel.schedule,
    "load": specmodel.load,
    "sensitivity": specmodel.sensitivity.analyse,
    "simulate": specmodel.replay.replayed,
}
SHOWN = ("name", "tpot_target", "columns", "interval", "components")
"""Of a prediction: which view it is asked for, and what that shows."""
OTHERWISE = {"for": "config_format", "view": "name", "set": "changes", "range": "ranges"}
"""Options that have another name in Python."""

PREDICTED = {
    # of two words
    "predict qwen3.5-397b h200": {},
    "predict deepseek-v3 8xh200": {},
    "predict llama-3.1-8b l40s": {},
    # acceptance in each form
    f"predict {QWEN} --acceptance-rate 0.7 --acceptance-spread": {"acceptance_spread": 0.095},
    f"predict {QWEN} --acceptance typical": {},
    f"predict {QWEN} --acceptance-by-position 0.8,0.6,0.5": {},
    f"predict {QWEN} --acceptance-by-context 2048:3.2,32768:2.1 --measured-draft-length 3"
    " --context-length 1024,8192 --batch-size 1,8": {
        "acceptance_by_context": {2048: 3.2, 32768: 2.1}
    },
    f"predict {QWEN} --step-efficiency 0.6 --draft-length 3": {},
    f"predict {QWEN} --accepted-fraction 0.5 --draft-length 4 --batch-size 8": {},
    # where it runs
    f"predict {QWEN} --engine sglang --host-speed 2 --weight-dtype fp8 --kv-dtype fp8": {},
    "predict deepseek-v3 h200 --data-parallel 8 --expert-parallel 8": {},
    f"predict {QWEN} --routing-correlation 0 --set popularity_exponent=0.5": {
        "changes": [],
        "popularity_exponent": 0.5,
    },
    f"predict {QWEN} --set target.experts_per_token=4 --graph-limit 1024": {},
    "predict qwen3-30b-a3b l40s --drafter ngram --proposal-rate 0.4 --acceptance-rate 0.6": {},
    # at which points
    f"predict {QWEN} --draft-length 1,3 --batch-size 1:64:x4": {"batch_size": [1, 4, 16, 64]},
    f"predict {QWEN} {LENGTHS} --lockstep": {},
    f"predict {QWEN} --draft-length 3 --verify-tokens 16 --tree-width 4 --tokens-per-step 2.6": {},
    f"predict {QWEN} --max-draft-length 4": {},
    # how it is told
    f"predict {QWEN} --tpot-target 6ms": {"tpot_target": 0.006},
    f"predict {QWEN} --columns batch_size,speedup": {"columns": "batch_size,speedup"},
    f"predict {QWEN} --interval --components --batch-size 1,8": {},
    f"predict {QWEN} --gpu-hour-price 4.5": {},
    # views
    f"predict {QWEN} --view lengths --context-length 512,4096 --batch-size 1,8": {},
    f"predict {QWEN} --view peak": {"batch_size": np.arange(1, 513)},
    f"predict {QWEN} --view terms --batch-size 1,64": {},
    f"break-even {QWEN} --batch-size 1,8 --draft-length 1,3": {
        "acceptance": 0.0,
        "name": "break-even",
    },
    f"predict {QWEN} --view plain --components --batch-size 4,64": {},
}
"""Commands, with what is not the same word for word in Python."""
OTHERS = {
    "compare deepseek-v3 8xh200 --tensor-parallel 8,4 --tpot-target 30ms --gpu-hour-price 3": {},
    "compare qwen3-30b-a3b h100_sxm,h200_sxm --drafter ngram,eagle3 --acceptance-rate 0.4,0.7": {},
    f"compare {QWEN} --set target.experts_per_token=2,8 --draft-length 1,3": {},
    "compare qwen3-30b-a3b h100_sxm,h200_sxm --batch-size 4 --draft-length 1 --for-load"
    f" --tpot-target 9ms {LENGTHS}": {"batch_size": [4], "draft_length": [1]},
    f"schedule {QWEN} {LENGTHS} --tolerance 0.05": {},
    "schedule Qwen/Qwen3-30B-A3B h200 --for vllm --drafter eagle3 --max-batch-size 64": {},
    # of recurrent states
    "schedule qwen3.5-397b 8xb200 --engine sglang --acceptance typical": {},
    f"schedule gpt-oss-120b h100 --for tensorrt-llm {RATES} --context-length 1024,8192": {},
    f"schedule {QWEN} --for vllm --max-batch-size 16 --max-draft-length 1 --for-load"
    f" --tpot-target 9ms {LENGTHS}": {},
    f"load {QWEN} --users 8 --requests 100 {LENGTHS} --policy none,fixed:2": {},
    "load gpt-oss-120b 2xh100 --drafter eagle3 --acceptance typical --request-rate 1,2"
    " --requests 100 --workload code --arrivals gamma:2 --tpot-target 12ms --ttft-target 1s": {
        "tpot_target": 0.012,
        "ttft_target": 1.0,
    },
    f"load {QWEN} --tpot-target 10ms --requests 50 --replications 2 --policy none,fixed:1": {},
    f"load {QWEN} --drain 12 --samples 2 --servers 2 --finished 0.9 --prompt-length 100"
    " --output-length lognormal:100:0.5 --policy none,below:4:2": {},
    f"sensitivity {QWEN} --samples 64 --acceptance-rate 0.7 --draft-length 3": {},
    f"sensitivity {QWEN} --samples 64 --batch-size 8 --range acceptance_rate=0.6:0.8"
    " --acceptance-rate 0.7 --seed 2": {"ranges": {"acceptance_rate": (0.6, 0.8)}},
    f"simulate {QWEN} --drafter eagle3 --trace code-eagle --requests 20 --output-tokens 64": {},
    f"simulate {QWEN} --drafter eagle --trace code-eagle+chat-eagle --requests 20"
    " --output-tokens 64 --fixed-context --policy none,fixed:2,goodput --max-draft-length 3"
    " --seed 3": {},
}


def value(word):
    """A number or a list of values, where a word is one, or else the word."""
    values = word.split(",")
    with suppress(ValueError):
        values = [float(each) if "." in each else int(each) for each in values]
    return values if "," in word else values[0]


def asked(command, other):
    """The answer to the same question in Python."""
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


@each_row(("command", "other"), PREDICTED.items())
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
    """Commands, those that search for the largest rate marked so."""
    return [
        pytest.param(command, other, marks=[pytest.mark.search] if is_search else [])
        for command, other in commands.items()
        for is_search in ["--for-load" in command or "--replications" in command]
    ]


@pytest.mark.parametrize(("command", "other"), with_searches(OTHERS))
def test_python_says_what_the_command_line_says(command, other, capsys, monkeypatch):
    monkeypatch.setattr("specmodel.serving.asked.RUNS", dict.fromkeys((True, False), (1, 500)))
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


REFUSED = [
    ("config_format", specmodel.schedule, {"config_format": "llama.cpp"}),
    ("batch_size", specmodel.schedule, {"batch_size": 8}),
    ("draft_length", specmodel.schedule, {"draft_length": 2}),
    ("max_batch_size", specmodel.schedule, {"max_batch_size": 0}),
    ("prompt_length", specmodel.schedule, {"prompt_length": [1000, 2000], "output_length": 100}),
    ("prompt_length", specmodel.schedule, {"prompt_length": 9.5, "output_length": 9}),
    ("request_rate", specmodel.load, {}),
    ("request_rate", specmodel.load, {"request_rate": [1, -1]}),
    ("tpot_target", specmodel.load, {"tpot_target": -0.01}),
    ("ttft_target", specmodel.load, {"ttft_target": "soon", "request_rate": 1}),
    ("attainment", specmodel.load, {"attainment": 0.5, "users": 2}),
    ("requets", specmodel.load, {"requets": 5, "users": 2}),
    ("steps", specmodel.load, {"steps": True, "users": [1, 2], "policy": ["none"]}),
    ("batch_size", specmodel.sensitivity.analyse, {"batch_size": [1, 8]}),
    ("batch_size", specmodel.sensitivity.analyse, {"batch_size": 2.5}),
    ("trace", specmodel.replay.replayed, {}),
    ("max_draft_length", specmodel.replay.replayed, {"max_draft_length": 99}),
    ("policy", specmodel.replay.replayed, {"policies": ["fixd:1"]}),
    ("policy", specmodel.replay.replayed, {"policy": ["none"]}),
    ("requests", specmodel.replay.replayed, {"requests": 0}),
]


@each_row(("argument", "function", "told"), REFUSED)
def test_what_cannot_be_is_refused_in_python_too(argument, function, told):
    if function is specmodel.replay.replayed and told:
        told = told | {"trace": "code-eagle"}
    with pytest.raises(specmodel.InputError, match=f"^{argument}: got "):
        function(*WORDS, **told)


def test_a_replay_needs_a_target():
    with pytest.raises(specmodel.InputError, match=r"^target: got "):
        specmodel.replay.replayed(trace="code-eagle")


def test_python_tabulates_steps_as_the_command_line(capsys):
    pytest.importorskip("scipy")
    told = {"drafter": "dspark", "max_draft_length": 3, "batch_size": [1, 8]}
    found = specmodel.answers.step_costs(*WORDS, "sglang", **told)
    words = "--drafter dspark --max-draft-length 3 --batch-size 1,8"
    command = f"schedule --for sglang --format cost-table {QWEN} {words}"
    document = json.loads(json.dumps(found.view().to_dict()))
    assert document["rows"] == json.loads(run(capsys, f"{command} --json"))["rows"]
    assert found.fragment == run(capsys, f"{command} --fragment-only")
    assert str(found) == run(capsys, command)


def test_a_notebook_shows_an_answer_word_for_word():
    for found in (specmodel.predict(*WORDS), specmodel.load(*WORDS, users=2, requests=20)):
        assert found._repr_mimebundle_()["text/plain"] == str(found)


def test_what_does_not_fit_is_told_first():
    p = specmodel.predict("deepseek-v3", "h100", tensor_parallel=1, batch_size=[1, 4])
    assert str(p).startswith("Nothing fits in memory. If it did: ")
