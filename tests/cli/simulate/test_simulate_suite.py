"""`specmodel simulate --suite`: the evaluation of a paper, for people and programs."""

import csv
import io
import re

import pytest
from simulated import QUICK, SUITE, check_refused, parse, shown, widest

from cascade_suite import CHOICES, SuiteSettings
from specmodel.cli.simulate import simulate


def test_suite_for_people_and_programs(small, pairs, run, monkeypatch):
    asked = []

    def known(settings, *, workers, progress):
        asked.append((settings, workers))
        return pairs

    monkeypatch.setattr("cascade_suite.cascade_suite", known)
    out = run(SUITE + " --seed 1")
    assert asked == [(SuiteSettings(**QUICK, num_requests=3, seed=1), 1)]  # those of `pairs`
    assert len(widest(out)) <= 80, widest(out)
    assert "3 requests a task, engine vllm-moesd-2025, context 512" in " ".join(out.split())
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
    monkeypatch.setattr("cascade_suite.cascade_suite", lambda *_, **__: free)
    assert re.search(r"back-off cuts it, times +2\.8( +-)+\n", run(SUITE))
    assert {row["back-off cuts it, times"] for row in parse(run(SUITE + " --json"))["claims"]} == {
        None
    }


@pytest.mark.parametrize("scale", [0.02, 2.0])
def test_suite_of_other_figures_fits_80_columns(scale, small, pairs, run, monkeypatch):
    wild = pairs.assign(speedup=pairs["speedup"] ** scale / (1 + scale / 4))
    monkeypatch.setattr("cascade_suite.cascade_suite", lambda *_, **__: wild)
    assert len(widest(run(SUITE))) <= 80


TAKEN = (
    "suite",
    "requests",
    "engine",
    "host_speed",
    "context_length",
    "seed",
    "workers",
    "as_json",
    "as_csv",
)
SETTLED = [p.opts[0] for p in simulate.params if p.name not in (*TAKEN, "help")]
OF_SUITE = [
    *((f"{SUITE} {option} 1", f"{option}: got ", "none with --suite") for option in SETTLED),
    (f"{SUITE} --json --csv", "csv: got True"),
    (f"{SUITE} --requests 0", "--requests: got 0;"),
    (f"{SUITE} --requests -1", "--requests: got -1;"),
    (f"{SUITE} --engine nope", "--engine: got 'nope'"),
    (f"{SUITE} --context-length -1", "--context-length: got -1;"),
    (f"{SUITE} --seed -1", "--seed: got -1;"),
    (f"{SUITE} --workers 0", "--workers: got 0;"),
    ("simulate --suite nope", "'--suite'", "'nope'"),
]


@pytest.mark.parametrize(
    ("command", "fragments"),
    [pytest.param(case[0], case[1:], id=shown(case[0])) for case in OF_SUITE],
)
def test_one_line_names_the_argument_of_a_suite(
    command, fragments, folder, small, capsys, monkeypatch
):
    check_refused(command, fragments, folder, capsys, monkeypatch)
