"""Python says what the command line says: equal numbers, rows and words for the same question."""

import io
import json
import shlex

import numpy as np
import pytest
from rows import each_row

import specmodel
from specmodel import cli

pd = pytest.importorskip("pandas")

QWEN = "qwen3-30b-a3b h200"
WORDS = ("qwen3-30b-a3b", "h200")


def lengths(*values):
    """Draft lengths down, batch sizes across, as the command line lays them out."""
    return np.array(values)[:, None]


CASES = {
    # of two words
    "predict qwen3.5-397b h200": (("qwen3.5-397b", "h200"), {}, {}),
    "predict deepseek-v3 8xh200": (("deepseek-v3", "8xh200"), {}, {}),
    "predict gpt-oss-120b h100": (("gpt-oss-120b", "h100"), {}, {}),
    "predict mixtral-8x7b h100": (("mixtral-8x7b", "h100"), {}, {}),
    "predict llama-3.1-8b l40s": (("llama-3.1-8b", "l40s"), {}, {}),
    # acceptance in each form
    f"predict {QWEN} --acceptance-rate 0.7": (WORDS, {"acceptance_rate": 0.7}, {}),
    f"predict {QWEN} --acceptance-rate 0.65": (WORDS, {"acceptance": 0.65}, {}),
    f"predict {QWEN} --acceptance typical": (WORDS, {"acceptance": "typical"}, {}),
    f"predict {QWEN} --acceptance-by-position 0.8,0.6,0.5": (
        *(WORDS, {"acceptance_by_position": [0.8, 0.6, 0.5]}, {}),
    ),
    f"predict {QWEN} --tokens-per-step 2.5 --measured-draft-length 3": (
        *(WORDS, {"tokens_per_step": 2.5, "measured_draft_length": 3}, {}),
    ),
    f"predict {QWEN} --acceptance-by-context 2048:3.2,32768:2.1 --measured-draft-length 3"
    " --context-length 1024,8192 --batch-size 1,8": (
        WORDS,
        {"acceptance_by_context": {2048: 3.2, 32768: 2.1}, "measured_draft_length": 3}
        | {"context_length": lengths(1024, 8192), "batch_size": [1, 8]},
        {},
    ),
    f"predict {QWEN} --step-efficiency 0.6 --draft-length 3": (
        *(WORDS, {"step_efficiency": 0.6, "draft_length": lengths(3)}, {}),
    ),
    f"predict {QWEN} --accepted-fraction 0.5 --draft-length 4 --batch-size 8": (
        *(WORDS, {"accepted_fraction": 0.5, "draft_length": lengths(4), "batch_size": [8]}, {}),
    ),
    f"predict {QWEN} --acceptance-rate 0.7 --acceptance-spread": (
        *(WORDS, {"acceptance_rate": 0.7, "acceptance_spread": 0.095}, {}),
    ),
    # where it runs
    "predict qwen3-30b-a3b 2xh100 --drafter eagle3": (
        *(("qwen3-30b-a3b", "2xh100"), {"drafter": "eagle3"}, {}),
    ),
    f"predict {QWEN} --engine sglang --host-speed 2": (
        *(WORDS, {"engine": "sglang", "host_speed": 2.0}, {}),
    ),
    f"predict {QWEN} --weight-dtype fp8 --kv-dtype fp8": (
        *(WORDS, {"weight_dtype": "fp8", "kv_dtype": "fp8"}, {}),
    ),
    "predict deepseek-v3 h200 --data-parallel 8 --expert-parallel 8": (
        *(("deepseek-v3", "h200"), {"data_parallel": 8, "expert_parallel": 8}, {}),
    ),
    f"predict {QWEN} --routing-correlation 0 --set popularity_exponent=0.5": (
        *(WORDS, {"routing_correlation": 0.0, "popularity_exponent": 0.5}, {}),
    ),
    f"predict {QWEN} --graph-limit 1024 --memory-utilization 0.8": (
        *(WORDS, {"graph_limit": 1024, "memory_utilization": 0.8}, {}),
    ),
    f"predict {QWEN} --set target.experts_per_token=4": (
        *(WORDS, {"changes": ["target.experts_per_token=4"]}, {}),
    ),
    "predict qwen3-30b-a3b l40s --drafter ngram --proposal-rate 0.4 --acceptance-rate 0.6": (
        ("qwen3-30b-a3b", "l40s"),
        {"drafter": "ngram", "proposal_rate": 0.4, "acceptance_rate": 0.6},
        {},
    ),
    # at which points
    f"predict {QWEN} --draft-length 1,3,5 --batch-size 1:64:x4": (
        *(WORDS, {"draft_length": lengths(1, 3, 5), "batch_size": [1, 4, 16, 64]}, {}),
    ),
    f"predict {QWEN} --context-length 512,8192 --batch-size 1,16": (
        *(WORDS, {"context_length": lengths(512, 8192), "batch_size": [1, 16]}, {}),
    ),
    f"predict {QWEN} --prompt-length 2000 --output-length 500": (
        *(WORDS, {"prompt_length": 2000, "output_length": 500}, {}),
    ),
    f"predict {QWEN} --prompt-length 2000 --output-length 500 --lockstep": (
        *(WORDS, {"prompt_length": 2000, "output_length": 500, "lockstep": True}, {}),
    ),
    f"predict {QWEN} --draft-length 3 --verify-tokens 16 --tree-width 4 --tokens-per-step 2.6": (
        WORDS,
        {"draft_length": lengths(3), "verify_tokens": 16, "tree_width": 4, "tokens_per_step": 2.6},
        {},
    ),
    f"predict {QWEN} --max-draft-length 4": (WORDS, {"max_draft_length": 4}, {}),
    # how it is told
    f"predict {QWEN} --tpot-target 6ms": (WORDS, {}, {"tpot_target": 0.006}),
    f"predict {QWEN} --columns batch_size,speedup": (WORDS, {}, {"columns": "batch_size,speedup"}),
    f"predict {QWEN} --no-interval": (WORDS, {}, {"interval": False}),
    f"predict {QWEN} --interval --batch-size 1,8": (
        *(WORDS, {"batch_size": [1, 8]}, {"interval": True}),
    ),
    f"predict {QWEN} --components --batch-size 1": (
        *(WORDS, {"batch_size": [1]}, {"components": True}),
    ),
    f"predict {QWEN} --gpu-hour-price 4.5": (WORDS, {"gpu_hour_price": 4.5}, {}),
    # views
    f"predict {QWEN} --view lengths": (
        *(WORDS, {"batch_size": 2 ** np.arange(10)}, {"name": "lengths"}),
    ),
    f"predict {QWEN} --view lengths --context-length 512,4096 --batch-size 1,8": (
        WORDS,
        {"context_length": lengths(512, 4096), "batch_size": [1, 8]},
        {"name": "lengths"},
    ),
    f"predict {QWEN} --view peak": (*(WORDS, {"batch_size": np.arange(1, 513)}, {"name": "peak"}),),
    f"predict {QWEN} --view peak --draft-length 1,3 --batch-size 1:64": (
        WORDS,
        {"draft_length": lengths(1, 3), "batch_size": np.arange(1, 65)},
        {"name": "peak"},
    ),
    f"predict {QWEN} --view terms --batch-size 1,64": (
        *(WORDS, {"batch_size": [1, 64]}, {"name": "terms"}),
    ),
    f"break-even {QWEN}": (
        WORDS,
        {
            "batch_size": 2 ** np.arange(10),
            "draft_length": lengths(*range(1, 9)),
            "acceptance": 0.0,
        },
        {"name": "break-even"},
    ),
    f"predict {QWEN} --view plain": (WORDS, None, {}),
    f"predict {QWEN} --view plain --components --batch-size 4,64": (
        *(WORDS, None, {"components": True, "batch_size": [4, 64]}),
    ),
}
"""Commands, and the same in Python: words, keywords of `predict` (None: `decode`), and its view."""


def asked(words, keywords, how):
    """The same question in Python."""
    if keywords is not None:
        return specmodel.predict(*words, **keywords).view(**how)
    points = {"batch_size": how.pop("batch_size")} if "batch_size" in how else {}
    return specmodel.decode(*words, **points).view(**how)


def run(capsys, command):
    assert cli.main(shlex.split(command)) == 0
    return capsys.readouterr().out.rstrip("\n")


@each_row("command", CASES)
def test_python_says_what_the_command_line_says(command, capsys):
    words, keywords, how = CASES[command]
    found = asked(words, keywords, dict(how))
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
        pytest.param(command, marks=[pytest.mark.search] if is_search else [])
        for command in commands
        for is_search in ["--for-load" in command or "--replications" in command]
    ]


COMPARED = {
    "compare deepseek-v3 8xh200": ("deepseek-v3", "8xh200", {}),
    "compare qwen3-30b-a3b h100,h200 --drafter ngram,eagle3 --acceptance-rate 0.4,0.7": (
        "qwen3-30b-a3b",
        ["h100_sxm", "h200_sxm"],
        {"drafter": ["ngram", "eagle3"], "acceptance_rate": [0.4, 0.7]},
    ),
    "compare qwen3-30b-a3b h200 --set target.experts_per_token=2,8 --batch-size 1,64": (
        "qwen3-30b-a3b",
        "h200",
        {"changes": ["target.experts_per_token=2,8"], "batch_size": [1, 64]},
    ),
    "compare qwen3-30b-a3b h200 --draft-length 1,3": (
        *("qwen3-30b-a3b", "h200", {"draft_length": [1, 3]}),
    ),
    "compare deepseek-v3 8xh200 --tensor-parallel 8,4 --tpot-target 30ms --gpu-hour-price 3": (
        *("deepseek-v3", "8xh200"),
        {"tensor_parallel": [8, 4], "tpot_target": 0.03, "gpu_hour_price": 3},
    ),
    "compare qwen3-30b-a3b h100,h200 --batch-size 4 --tpot-target 5ms --gpu-hour-price 2,3": (
        "qwen3-30b-a3b",
        ["h100_sxm", "h200_sxm"],
        {"batch_size": [4], "tpot_target": 0.005, "gpu_hour_price": [2, 3]},
    ),
    "compare qwen3-30b-a3b h100,h200 --batch-size 4 --draft-length 1 --for-load --tpot-target 9ms"
    " --prompt-length 100 --output-length 40": (
        "qwen3-30b-a3b",
        ["h100_sxm", "h200_sxm"],
        {
            "batch_size": [4],
            "draft_length": [1],
            "for_load": True,
            "tpot_target": "9ms",
            "prompt_length": 100,
            "output_length": 40,
        },
    ),
}


@pytest.mark.parametrize("command", with_searches(COMPARED))
def test_python_compares_as_the_command_line(command, capsys, monkeypatch):
    monkeypatch.setattr("specmodel.serving.trial.RUNS", dict.fromkeys((True, False), (1, 500)))
    target, hardware, told = COMPARED[command]
    found = specmodel.compare(target, hardware, **told).view()
    document = json.loads(run(capsys, f"{command} --json"))
    assert json.loads(json.dumps(found.to_dict()))["rows"] == document["rows"]
    numbers = str(found).partition("Kernels:")[0], run(capsys, command).partition("Kernels:")[0]
    assert numbers[0] == numbers[1]


SCHEDULED = {
    "qwen3-30b-a3b h200 --acceptance-rate 0.7": (*WORDS, "vllm", {"acceptance_rate": 0.7}),
    "Qwen/Qwen3-30B-A3B h200 --drafter eagle3 --max-batch-size 64": (
        *("Qwen/Qwen3-30B-A3B", "h200", "vllm", {"drafter": "eagle3", "max_batch_size": 64}),
    ),
    "qwen3.5-397b 8xb200 --acceptance typical": (
        *("qwen3.5-397b", "8xb200", "sglang", {"acceptance": "typical"}),  # of recurrent states
    ),
    "gpt-oss-120b h100 --drafter eagle3 --acceptance-rate 0.6 --context-length 1024,8192": (
        "gpt-oss-120b",
        "h100",
        "tensorrt-llm",
        {"drafter": "eagle3", "acceptance_rate": 0.6, "context_length": [1024, 8192]},
    ),
    "qwen3-30b-a3b h200 --prompt-length 2000 --output-length 500 --tolerance 0.05": (
        *(*WORDS, "vllm", {"prompt_length": 2000, "output_length": 500, "tolerance": 0.05}),
    ),
}


@pytest.mark.parametrize("words", SCHEDULED)
def test_python_schedules_as_the_command_line(words, capsys):
    target, hardware, engine, told = SCHEDULED[words]
    plan = specmodel.schedule(target, hardware, engine, **told)
    command = f"schedule --for {engine} {words}"
    found = json.loads(json.dumps(plan.view().to_dict()))
    assert found["rows"] == json.loads(run(capsys, f"{command} --json"))["rows"]
    assert str(plan) == run(capsys, command)
    assert plan._repr_mimebundle_()["text/plain"] == str(plan)


@pytest.mark.parametrize(
    ("argument", "told"),
    [
        ("config_format", {"config_format": "llama.cpp"}),
        ("batch_size", {"batch_size": 8}),
        ("draft_length", {"draft_length": 2}),
        ("prompt_length", {"prompt_length": [1000, 2000], "output_length": 100}),
        ("max_batch_size", {"max_batch_size": 0}),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(argument, told):
    with pytest.raises(specmodel.InputError, match=f"^{argument}: got "):
        specmodel.schedule(*WORDS, **told)


@pytest.mark.search
def test_python_schedules_for_a_load_as_the_command_line(capsys, monkeypatch):
    monkeypatch.setattr("specmodel.serving.trial.RUNS", dict.fromkeys((True, False), (1, 500)))
    told = {"max_batch_size": 16, "max_draft_length": 1, "prompt_length": 100, "output_length": 40}
    plan = specmodel.schedule(*WORDS, "vllm", for_load=True, tpot_target=0.009, **told)
    words = "--max-batch-size 16 --max-draft-length 1 --prompt-length 100 --output-length 40"
    command = f"schedule --for vllm {QWEN} --for-load --tpot-target 9ms {words}"
    assert str(plan) == run(capsys, command)
    assert (
        plan.view().to_dict()["carried"] == json.loads(run(capsys, f"{command} --json"))["carried"]
    )


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


LOADED = {
    "qwen3-30b-a3b h200 --request-rate 1,4 --requests 100": (
        *(*WORDS, {"request_rate": [1, 4], "requests": 100}),
    ),
    "qwen3-30b-a3b h200 --users 8 --requests 100 --acceptance-rate 0.6 --prompt-length 1000"
    " --output-length 100 --policy none,fixed:2": (
        *WORDS,
        {
            "users": 8,
            "requests": 100,
            "acceptance_rate": 0.6,
            "prompt_length": 1000,
            "output_length": 100,
            "policy": ["none", "fixed:2"],
        },
    ),
    "gpt-oss-120b 2xh100 --drafter eagle3 --acceptance typical --request-rate 2 --requests 100"
    " --workload code --arrivals gamma:2 --tpot-target 12ms --ttft-target 1s": (
        "gpt-oss-120b",
        "2xh100",
        {
            "drafter": "eagle3",
            "acceptance": "typical",
            "request_rate": 2,
            "requests": 100,
            "workload": "code",
            "arrivals": "gamma:2",
            "tpot_target": 0.012,
            "ttft_target": 1.0,
        },
    ),
    "qwen3-30b-a3b h200 --tpot-target 10ms --requests 50 --replications 2 --policy none,fixed:1": (
        *WORDS,
        {"tpot_target": 0.01, "requests": 50, "replications": 2, "policy": "none,fixed:1"},
    ),
    "qwen3-30b-a3b h200 --drain 12 --samples 2 --servers 2 --finished 0.9 --prompt-length 100"
    " --output-length lognormal:100:0.5 --policy none,below:4:2": (
        *WORDS,
        {"drain": 12, "samples": 2, "servers": 2, "finished": 0.9, "policy": "none,below:4:2"}
        | {"prompt_length": 100, "output_length": "lognormal:100:0.5"},
    ),
}


@pytest.mark.parametrize("words", with_searches(LOADED))
def test_python_loads_as_the_command_line(words, capsys):
    target, hardware, told = LOADED[words]
    found = specmodel.load(target, hardware, **told)
    document = json.loads(json.dumps(found.view().to_dict()))
    assert document["rows"] == json.loads(run(capsys, f"load {words} --json"))["rows"]
    assert str(found) == run(capsys, f"load {words}")
    assert found._repr_mimebundle_()["text/plain"] == str(found)


@pytest.mark.parametrize(
    ("argument", "told"),
    [
        ("request_rate", {}),
        ("request_rate", {"request_rate": [1, -1]}),
        ("tpot_target", {"tpot_target": -0.01}),
        ("ttft_target", {"ttft_target": "soon", "request_rate": 1}),
        ("attainment", {"attainment": 0.5, "users": 2}),
        ("requets", {"requets": 5, "users": 2}),
        ("steps", {"steps": True, "users": [1, 2], "policy": ["none"]}),
    ],
)
def test_a_load_that_cannot_be_is_refused(argument, told):
    with pytest.raises(specmodel.InputError, match=f"^{argument}: got "):
        specmodel.load(*WORDS, **told)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--acceptance-rate 0.7 --draft-length 3", {"acceptance": 0.7, "draft_length": 3}),
        (
            "--batch-size 8 --range acceptance_rate=0.6:0.8 --acceptance-rate 0.7 --seed 2",
            {
                "batch_size": 8,
                "ranges": {"acceptance_rate": (0.6, 0.8)},
                "seed": 2,
                "acceptance_rate": 0.7,
            },
        ),
    ],
)
def test_python_tells_what_it_depends_on_as_the_command_line(words, told, capsys):
    pytest.importorskip("scipy")
    found = specmodel.sensitivity.analyse(*WORDS, samples=64, **told)
    command = f"sensitivity {QWEN} --samples 64 {words}"
    rows = json.loads(json.dumps(found.view().to_dict()))
    assert rows == json.loads(run(capsys, f"{command} --json"))
    assert str(found) == run(capsys, command)


def test_one_point_is_analysed():
    with pytest.raises(specmodel.InputError, match=r"^batch_size: got .*one value"):
        specmodel.sensitivity.analyse(*WORDS, batch_size=[1, 8])


REPLAYED = {
    f"{QWEN} --drafter eagle3 --trace code-eagle --requests 20 --output-tokens 64": (
        *(WORDS, {"drafter": "eagle3", "trace": "code-eagle"}),
    ),
    f"{QWEN} --drafter eagle --trace code-eagle+chat-eagle --requests 20 --output-tokens 64"
    " --fixed-context --policy none,fixed:2,goodput --max-draft-length 3 --seed 3": (
        WORDS,
        {
            "drafter": "eagle",
            "trace": "code-eagle+chat-eagle",
            "fixed_context": True,
            "policies": ["none", "fixed:2", "goodput"],
            "max_draft_length": 3,
            "seed": 3,
        },
    ),
}


@pytest.mark.parametrize("words", REPLAYED)
def test_python_replays_as_the_command_line(words, capsys):
    named, told = REPLAYED[words]
    found = specmodel.replay.replayed(*named, requests=20, output_tokens=64, **told)
    document = json.loads(run(capsys, f"simulate {words} --json"))
    assert json.loads(json.dumps(found.view().to_dict())) == document
    assert str(found) == run(capsys, f"simulate {words}")


@pytest.mark.parametrize(
    ("argument", "told"),
    [
        ("trace", {}),
        ("target", {"trace": "code-eagle"}),
        ("max_draft_length", {"trace": "code-eagle", "max_draft_length": 99, "named": WORDS}),
        ("policy", {"trace": "code-eagle", "policies": ["fixd:1"], "named": WORDS}),
        ("requests", {"trace": "code-eagle", "requests": 0, "named": WORDS}),
    ],
)
def test_a_replay_that_cannot_be_is_refused(argument, told):
    named = told.get("named", ())
    with pytest.raises(specmodel.InputError, match=f"^{argument}: got "):
        specmodel.replay.replayed(*named, **{n: v for n, v in told.items() if n != "named"})


def test_the_first_answer_is_word_for_word_that_of_the_command(capsys):
    p = specmodel.predict("qwen3.5-397b", "h200")
    assert str(p) == run(capsys, "predict qwen3.5-397b h200")
    assert p._repr_mimebundle_()["text/plain"] == str(p)


def test_what_does_not_fit_is_told_first():
    p = specmodel.predict("deepseek-v3", "h100", tensor_parallel=1, batch_size=[1, 4])
    assert str(p).startswith("Nothing fits.")


@pytest.mark.parametrize(
    ("argument", "asked"),
    [
        ("batch_size", lambda: specmodel.sensitivity.analyse(*WORDS, batch_size=2.5)),
        ("prompt_length", lambda: specmodel.schedule(*WORDS, prompt_length=9.5, output_length=9)),
        ("config_format", lambda: specmodel.answers.config_format("llama.cpp")),
    ],
)
def test_nothing_is_rounded_or_ends_as_another_error(argument, asked):
    with pytest.raises(specmodel.InputError, match=f"^{argument}: got "):
        asked()
