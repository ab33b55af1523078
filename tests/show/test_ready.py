"""A ready answer is rendered without an evaluation, a fit or a draw; its numbers are data."""

import json
import re
import sys
from collections import Counter

import numpy as np
import pytest

import specmodel
from specmodel.fit import fit_kernels, update_engine
from specmodel.prediction.evaluate import evaluate
from specmodel.prediction.intervals import central_intervals, peak_interval

_COUNTED = {
    function.__code__: function.__name__
    for function in (evaluate, central_intervals, peak_interval, fit_kernels, update_engine)
}
MOE = {"target": "qwen3-30b-a3b", "hardware": "2xh100", "drafter": "eagle3"}
MTP = {"target": "qwen3.5-397b", "hardware": "h200"}
DRAWN = {"acceptance": 0.7, "batch_size": [1, 8], "draft_length": 3}
PLACE = {"target": "qwen3-30b-a3b", "hardware": "h100"}
LENGTHS = {"prompt_length": 100, "output_length": 40}
SHORT = LENGTHS | {"requests": 50}
SEARCHED = SHORT | {"tpot_target": 9e-3, "replications": 1}


def counted(render):
    """How often functions that compute were called while something was rendered."""
    calls = Counter()

    def hook(frame, event, called):
        if event == "call" and frame.f_code in _COUNTED:
            calls[_COUNTED[frame.f_code]] += 1
        elif event == "c_call" and isinstance(
            getattr(called, "__self__", None), np.random.Generator
        ):
            calls["draw"] += 1

    sys.setprofile(hook)
    try:
        render()
    finally:
        sys.setprofile(None)
    return calls


ANSWERS = {
    "predict": lambda: specmodel.predict(**MTP).view(),
    "predict, given lengths": lambda: specmodel.predict(**MOE, **DRAWN).view(),
    "predict, requests": lambda: specmodel.predict(
        "deepseek-v3", "8xh200", prompt_length=1024, output_length=1024
    ).view(),
    "predict, a target": lambda: specmodel.predict(**MOE).view(tpot_target=6e-3),
    "predict, turned": lambda: specmodel.predict("mixtral-8x7b", "h100").view(),
    "plain": lambda: specmodel.decode("qwen3-30b-a3b", "h100").view(),
    **{
        view: lambda view=view: specmodel.predict(**MOE, acceptance=0.7, batch_size=[1, 8]).view(
            view
        )
        for view in ("lengths", "peak", "terms")
    },
    "tasks": lambda: specmodel.predict("gemma-4-26b", "h100", batch_size=[1, 8]).view("tasks"),
    "break-even": lambda: specmodel.predict(**MOE, **DRAWN).view("break-even"),
    "compare": lambda: specmodel.compare("deepseek-v3", "8xh200", batch_size=[1, 64]).view(),
    "compare, a target": lambda: specmodel.compare(
        "qwen3-30b-a3b", ["h100", "h200"], batch_size=[1, 64], tpot_target=9e-3
    ).view(),
    "compare, a load": lambda: specmodel.compare(
        "qwen3-30b-a3b", ["h100", "h200"], batch_size=[4], for_load=True, **SEARCHED
    ).view(),
    "schedule": lambda: specmodel.schedule("qwen3-30b-a3b", "h200").view(),
    "schedule, contexts": lambda: specmodel.schedule(
        "qwen3.5-397b", "h200", context_length=[1024, 65536]
    ).view(),
    "schedule, a load": lambda: specmodel.schedule(
        "qwen3-30b-a3b", "h200", for_load=True, max_batch_size=16, max_draft_length=1, **SEARCHED
    ).view(),
    "schedule, off": lambda: specmodel.schedule(
        **MOE, acceptance=0.02, config_format="sglang", max_batch_size=16
    ).view(),
    "load, rates": lambda: specmodel.load(
        "qwen3-30b-a3b", "h100", request_rate=[1], **SHORT
    ).view(),
    "load, users": lambda: specmodel.load(**PLACE, users=[4], **SHORT).view(),
    "load, a target": lambda: specmodel.load(**PLACE, **SEARCHED).view(),
    "drain": lambda: specmodel.load(**PLACE, drain=16, **LENGTHS).view(),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_ready_answer_computes_nothing(name):
    answer = ANSWERS[name]()

    def render():
        assert answer.report()
        assert answer.report(verbose=True)
        assert json.dumps(answer.to_dict(), allow_nan=False)
        assert answer.table()

    assert counted(render) == {}


def numbers(value):
    """All numbers of JSON, those in its texts too."""
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from numbers(each)
    elif isinstance(value, str):
        yield from map(float, re.findall(r"\d+(?:\.\d+)?", value))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield float(value)


@pytest.mark.parametrize("name", ["predict", "predict, requests", "predict, given lengths"])
def test_numbers_of_the_first_screen_are_facts(name):
    answer = ANSWERS[name]()
    prose = re.sub(r"\n\nbatch .*?\n\n", "\n\n", answer.report(), flags=re.DOTALL)
    told = answer.to_dict()
    known = np.array([*numbers({"facts": told["facts"], "rest": told})])
    for text, share in re.findall(r"(?<![\w.])(\d+(?:\.\d+)?)(?![\w.]*\d)( ?%)?", prose):
        digits = len(text.partition(".")[2])
        ways = (known, 100 * known) if share else (known,)
        near = [np.abs(each - float(text)).min() <= 0.5001 * 10.0**-digits for each in ways]
        assert any(near) or text == "80", f"{text} of {prose}"


PLANNED = (
    *("break-even", "peak", "compare", "compare, a target", "compare, a load", "schedule"),
    *("schedule, contexts", "schedule, a load", "load, rates", "load, a target", "drain"),
)


@pytest.mark.parametrize("name", PLANNED)
def test_numbers_of_the_lines_above_a_table_are_facts(name):
    """Those of times and shares by their unit; the 0.1 of a template is none."""
    answer = ANSWERS[name]()
    words = answer.report().partition("\n\n")[0]
    known = np.array([*numbers(json.loads(json.dumps(answer.to_dict())))])
    for text in re.findall(r"(?<![\w.])(\d+(?:\.\d+)?)(?![\w.]*\d)", words):
        digits = len(text.partition(".")[2])
        near = [np.abs(unit * known - float(text)).min() for unit in (1, 100, 1e3)]
        assert min(near) <= 0.5001 * 10.0**-digits or text in ("80", "0.1"), f"{text} of {words}"
