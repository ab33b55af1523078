"""Fits of an engine's overheads: planted values are found, and invalid input is an error."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from printed import refused
from rows import each_listed, each_row, one_case, rows_of

import specmodel
from overheads import COLUMNS, QUANTITIES, fit_engine, main
from specmodel import load_engine

TARGET = {"target": "qwen2-57b-a14b", "drafter": "qwen2-0.5b", "hardware": "a800_sxm_80gb"}
TARGET |= {"tensor_parallel": 2, "context_length": 512}
OVERHEADS = [
    {"pass_time": 2e-3, "draft_pass_time": 5e-4, "reject_time": 1e-3},
    {"kernel_time": 3e-6, "draft_kernel_time": 5e-6, "reject_time_per_request": 1e-4},
    {"reject_time": 1e-3, "reject_time_per_request": 1e-4, "reject_time_per_token": 2e-5},
]
PASSES = OVERHEADS[0]
VARY = "".join(f" --vary {name}" for name in PASSES)


def ideal(**overheads):
    return load_engine("ideal").with_changes("engine", {"fuses_all": False, **overheads})


def served(engine, quantities=("relative_step_time", "forward_time", "speedup"), lengths=(1, 4)):
    """Return the measurements of an engine at three batch sizes, and at all three together."""
    rows = []
    for length in lengths:
        point = {"batch_size": [1, 8, 64], "draft_length": length, "acceptance": 0.8}
        p = specmodel.predict(**TARGET, **point, engine=engine)
        common = TARGET | {"draft_length": length, "step_efficiency": np.max(p.step_efficiency)}
        for quantity in quantities:
            values = np.broadcast_to(getattr(p, quantity), 3)
            found = dict(zip(("1", "8", "64"), values.tolist(), strict=True))
            found |= {"1 8 64": float(values.max())} if quantity == "speedup" else {}
            common |= {"quantity": quantity}
            rows += [common | {"batch_size": size, "value": own} for size, own in found.items()]
    return pd.DataFrame(rows)


def fit(table, overheads, **options):
    base = options.pop("base", ideal())
    return fit_engine(table, base, list(overheads), date="2026-01-01", **options)


@pytest.mark.slow
@pytest.mark.parametrize("overheads", OVERHEADS, ids=lambda o: "+".join(o))
def test_planted_overheads_come_back(overheads):
    table = served(ideal(**overheads))
    fitting = fit(table, overheads, leave_out=["batch_size"])
    np.testing.assert_allclose(fitting.left_out["batch_size"], table["value"], rtol=1e-5)
    assert fitting.result.parameters == pytest.approx(overheads, rel=1e-4)
    assert fitting.result.warnings == ()


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_every_quantity_is_predicted(quantity):
    table = served(ideal(pass_time=2e-3), (quantity,))
    np.testing.assert_allclose(fit(table, ["pass_time"]).predicted, table["value"], rtol=1e-6)


@each_listed
def test_overheads_that_the_rows_do_not_determine_are_named(quantity, unknown):
    fitting = fit(served(ideal(**PASSES), (quantity,)), PASSES)
    named = {warning.split()[0] for warning in fitting.result.warnings}
    assert named == {*unknown}
    for name in {*PASSES} - {*unknown}:
        assert fitting.result.parameters[name] == pytest.approx(PASSES[name], rel=1e-4)


def test_an_overhead_at_a_bound_is_warned_of():
    fitting = fit(served(ideal(pass_time=0.1)), ["pass_time"])
    assert fitting.result.warnings == ("pass_time is at its upper bound, 0.05",)


@each_row("name", COLUMNS)
def test_fit_engine_names_a_missing_column(name):
    table = served(ideal()).drop(columns=name)
    refused(rf"^measurements: got .*columns {name} as well", fit, table, ["pass_time"])


@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_times_that_are_not_linear_in_overheads_are_refused(name):
    asked = served(ideal()), ["reject_time"]
    refused("engine: got .*; expected one that hides none", fit, *asked, base=load_engine(name))


# the program

ENGINE = f"engine.csv --output out.toml --name mine{VARY}"


@pytest.fixture
def write(tmp_path):
    """Write the rows of an engine; on request, change a cell of the first row."""

    def write(column="", value=None, table=None):
        table = served(ideal(**PASSES)) if table is None else table
        if column:
            cells = [value, *table[column].iloc[1:]]
            table[column] = pd.Series(cells, table.index, dtype=object)
        table.to_csv(tmp_path / "engine.csv", index=False)

    return write


@each_row("row", rows_of("bad_cells.txt", "engine"))
def test_one_line_names_a_cell_that_cannot_be(row, write, refuse):
    column, value, *fragments = row
    write(column, json.loads(value), served(ideal(pass_time=2e-3), ("speedup",)))
    refuse(main, ENGINE, f"measurements.{column}", *fragments)


@one_case(
    "words fragments",
    (ENGINE.replace("engine.csv", "none.csv"), ["measurements", "none.csv", "No such file"]),
    (f"{ENGINE} --vary pass_tim", ["--vary", "'pass_tim'", "pass_time"]),
    (f"{ENGINE} --vary pass_time", ["--vary", "'pass_time', ", "each overhead once"]),
    (f"{ENGINE} --leave-out nope", ["--leave-out", "'nope'", "a column", "batch_size"]),
    (f"{ENGINE} --leave-out target", ["--leave-out", "'target'", "several values"]),
    (f"{ENGINE} --engine idael", ["--engine", "'idael'", "ideal"]),
    (ENGINE.replace(VARY, ""), ["Missing option", "--vary"]),
)
def test_one_line_names_an_option_that_cannot_be(words, fragments, write, refuse):
    write()
    refuse(main, words, *fragments)


def test_few_rows_and_another_unit_are_refused(write, refuse):
    times = served(ideal(**PASSES), ("forward_time", "step_time"))
    write(table=times.head(3))
    assert "got '3 rows'; expected more than 3" in refuse(main, ENGINE)
    write(table=times.assign(value=1e3 * times["value"]))
    assert re.search(r"measurements\.value: got .* 218 times .* seconds", refuse(main, ENGINE))


def test_fit_engine_writes_an_engine_that_predicts_what_was_planted(do, write):
    write()
    out = do(main, f"{ENGINE} --leave-out batch_size --source 'a test'")
    engine = load_engine("out.toml")
    assert (engine.name, engine.source, engine.fit.varied) == ("mine", "a test", list(PASSES))
    assert set(engine.fit.left_out_error) == {"batch_size"}
    table = served(ideal(**PASSES))
    np.testing.assert_allclose(served(engine)["value"], table["value"], rtol=1e-4)
    for name, value in PASSES.items():
        assert f"{name} = {value:.4g} s" in out
    assert "with each batch_size left out in turn" in out
    assert "Written: out.toml" in out
    assert len(re.findall(r"[+-]0\.0%\n", out)) == len(table)  # each row, measured and predicted
    assert max(map(len, out.splitlines())) <= 80
