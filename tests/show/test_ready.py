"""A ready answer is rendered without an evaluation, a fit or a draw; its numbers are data."""

import json
import re
import sys
from collections import Counter
from functools import partial
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from planted import H200, planted
from rows import values_of

import specmodel
from specmodel import measure, simulate
from specmodel.calibrate.fit import fit_kernels, measured, update_engine
from specmodel.calibrate.fit.measured import judge_serving
from specmodel.calibrate.fit.steps import measured_steps
from specmodel.calibrate.fit.timed_work import predict_measured
from specmodel.core.prediction.evaluate import evaluate
from specmodel.core.prediction.intervals import central_intervals, peak_interval
from specmodel.show import calibrated, catalog

_COUNTED = {
    function.__code__: function.__name__
    for function in (
        *(evaluate, central_intervals, peak_interval, fit_kernels, update_engine),
        *(measured_steps, judge_serving, predict_measured, simulate.simulate),
    )
}


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


FILES = Path(__file__).parents[1] / "data" / "benchmarks"
PAIRS = Path(__file__).parents[2] / "calibration" / "tables" / "engine_pairs.csv"
LOG = "Mean acceptance length: 3.00\nPer-position acceptance rate: 1.0, 1.0"


def moved_engine(hardware):
    """An engine moved by a plain run and one that drafts."""
    runs = measured.read_benchmarks([FILES / f"vllm_{kind}.json" for kind in ("plain", "eagle3")])
    where = {"target": "gpt-oss-120b", "drafter": "eagle3", "hardware": hardware}
    rows = measured.served_runs(runs, {**where, "engine": "vllm"})
    return update_engine(rows, specmodel.load_engine("vllm"), date="2026-11-29")


def judged_pairs():
    """Every eighth row of the table of measured engines, judged."""
    head, *rows = PAIRS.read_text(encoding="utf-8").splitlines(keepends=True)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "pairs.csv"
        path.write_text("".join([head, *rows[::8]]), encoding="utf-8")
        return measured.judged_engines(path)


def viewed(function, asked, shown):
    """Return the answer of a function of the package, seen in some view."""
    return attrgetter(function)(specmodel)(**asked).view(**shown)


ANSWERS = {name: partial(viewed, *row) for name, *row in values_of("shown.txt", "ready answers")}
ANSWERS |= {
    "fit kernels": lambda: calibrated.kernels(
        fit_kernels(measure.check_measurements(planted("attention")), H200)
    ),
    "fit engine": lambda: moved_engine("h200").view(),
    "fit engine, doubted": lambda: moved_engine("l4").view(),
    "fit check": lambda: judged_pairs().view(),
    "acceptance, results": lambda: calibrated.of_benchmarks(
        measured.read_benchmarks([FILES / "vllm_eagle3.json"])
    ),
    "acceptance, a log": lambda: calibrated.of_counts(measure.logged_acceptance(LOG, "log")),
    "acceptance, lengths": lambda: calibrated.of_lengths({"qwen3-8b on": {1: 1.7, 3: 2.4}}),
}

WITH_FACTS = ("fit engine", "fit engine, doubted", "fit check", "acceptance, a log", "sensitivity")
FIRST_SCREENS = ("predict", "predict, requests", "predict, given lengths")
ABOVE_TABLES = (
    *("break-even", "peak", "compare", "compare, a target", "compare, a load", "schedule"),
    *("schedule, contexts", "schedule, a load", "load, rates", "load, a target", "drain"),
)


@pytest.mark.parametrize("name", ANSWERS)
def test_a_ready_answer_computes_nothing_and_its_numbers_are_facts(name):
    answer = ANSWERS[name]()

    def render():
        assert answer.report()
        assert answer.report(verbose=True)
        assert json.dumps(answer.to_dict(), allow_nan=False)
        assert answer.table()

    assert counted(render) == {}
    told = json.loads(json.dumps(answer.to_dict()))
    if name in WITH_FACTS:
        facts = {each: fact.to_dict() for each, fact in answer.facts.items()}
        assert told["facts"] == json.loads(json.dumps(facts)) != {}
    if name in FIRST_SCREENS:
        prose = re.sub(r"\n\nbatch .*?\n\n", "\n\n", answer.report(), flags=re.DOTALL)
        numbers_are_known(prose, told, (1,))
    if name in ABOVE_TABLES:  # times by their unit; the 0.1 of a template is none
        numbers_are_known(answer.report().partition("\n\n")[0], told, (1, 100, 1e3), "0.1")


def test_listings_compute_nothing():
    assert counted(lambda: all(map(catalog.listing, catalog.ROWS))) == {}


def numbers(value):
    """All numbers of JSON, those in its texts too."""
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from numbers(each)
    elif isinstance(value, str):
        yield from map(float, re.findall(r"\d+(?:\.\d+)?", value))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield float(value)


def numbers_are_known(prose, told, units, *left_out):
    """Each number of a text is one of JSON in some unit, as far as it has digits."""
    known = np.array([*numbers(told)])
    for text, share in re.findall(r"(?<![\w.])(\d+(?:\.\d+)?)(?![\w.]*\d)( ?%)?", prose):
        most = 0.5001 * 10.0 ** -len(text.partition(".")[2])
        ways = {*units, 100} if share else units
        near = [np.abs(unit * known - float(text)).min() for unit in ways]
        assert min(near) <= most or text in ("80", *left_out), f"{text} of {prose}"
