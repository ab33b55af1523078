"""Tables of measured kernels: what is refused and how, medians of repeats, the work timed."""

import json

import numpy as np
import pandas as pd
import pytest
from planted import H200, KINDS, planted, points
from printed import refused
from rows import cases, each_row, rows_of

from specmodel import load_hardware
from specmodel.calibrate.fit import fit_kernels, predicted_time
from specmodel.calibrate.fit.kernels import KIND_FITS
from specmodel.calibrate.fit.timed_work import check_plausible
from specmodel.calibrate.measure import check_measurements, read_measurements
from specmodel.calibrate.measure.measurements import COLUMNS, COMMON, groups
from specmodel.core.algebra.roofline import KernelParameters


def with_cell(table: pd.DataFrame, column: str, value: object) -> pd.DataFrame:
    """A copy with one cell changed."""
    cells = [value, *table[column].iloc[1:]]
    return table.assign(**{column: pd.Series(cells, table.index, dtype=object)})


def refusal(function, *arguments) -> str:
    """The one line with which an argument is refused."""
    return refused("^measurements.*: got .*; expected ", function, *arguments)


GEMM = planted("gemm")
CSV = GEMM.to_csv(index=False).encode()
FILES = {
    "empty.csv": (b"", "empty.csv", "well-formed"),
    "header.csv": (CSV.splitlines()[0] + b"\n", "0 rows", "at least one"),
    "cut.csv": (CSV[: CSV.rindex(b",mine")], "stack", "'nan'"),
    "long.csv": (CSV + b"1,2,3,4,5,6,7,8,9,10,11,12,13,14\n", "long.csv", "line 98"),
    "quote.csv": (CSV + b'"abc', "quote.csv", "well-formed"),
    "binary.csv": (bytes(range(256)) * 20, "measurements", "expected"),
    "utf16.csv": (CSV.decode().encode("utf-16"), "utf16.csv", "utf-8"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_bad_file_is_refused_in_one_line(name: str, tmp_path) -> None:
    content, *fragments = FILES[name]
    (tmp_path / name).write_bytes(content)
    message = refusal(read_measurements, tmp_path / name)
    assert all(fragment in message for fragment in fragments), message


@pytest.mark.parametrize("name", ["none", "a.csv.gz"])
def test_the_suffix_must_be_that_of_a_table(name: str, tmp_path) -> None:
    (tmp_path / name).write_bytes(b"xxx")
    assert "a .csv or .parquet file" in refusal(read_measurements, tmp_path / name)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_all_components_come_back_from_one_file(suffix: str, tmp_path) -> None:
    path = tmp_path / f"all{suffix}"
    table = pd.concat([planted(kind) for kind in KINDS], ignore_index=True)
    table = table.assign(version="1.10")  # which is no number
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
        table.to_parquet(path)
    else:
        path.write_text("# a comment\n" + table.to_csv(index=False), encoding="utf-8")
    read = {kind: rows for kind, _, rows in groups(read_measurements(path))}
    assert {*read["gemm"]["version"]} == {"1.10"}
    assert set(read) == set(KINDS)
    for kind in KINDS:
        expected = check_measurements(planted(kind))
        columns = [*COLUMNS[kind], "latency", "role", "shape"]
        pd.testing.assert_frame_equal(
            read[kind][columns].reset_index(drop=True), expected[columns], check_dtype=False
        )


def test_a_missing_column_is_named() -> None:
    for name in COMMON:
        assert f"columns {name} as well" in refusal(check_measurements, GEMM.drop(columns=name))
    for kind in KINDS:
        for name in COLUMNS[kind]:
            message = refusal(check_measurements, planted(kind).drop(columns=name))
            assert f"rows of {kind}" in message
            assert f"columns {name} as well" in message
    mixed = planted("experts").assign(includes_router=[0, 1] * 20)
    assert "the same value in all rows" in refusal(check_measurements, mixed)
    referred = GEMM.assign(reference_latency=1.0)
    assert "columns point, group as well" in refusal(check_measurements, referred)


@each_row(("column", "value", "expected"), rows_of("bad_cells.txt", "kernels"))
def test_a_bad_cell_names_column_value_and_what_would_do(column, value, expected: str) -> None:
    value = json.loads(value)
    message = refusal(check_measurements, with_cell(GEMM, column, value))
    assert message.startswith(f"measurements.{column}: got ")
    assert str(value) in message
    assert expected in message
    assert "np." not in message


@each_row(("kind", "column", "value", "expected"), rows_of("bad_cells.txt", "points"))
def test_an_impossible_point_is_refused(kind, column, value, expected: str) -> None:
    table = planted(kind)
    others = {"model_expert_size": "expert_size", "query_tokens": "batch_size"}
    filled = table[others[column]] if column in others else 0
    table = table if column in table else table.assign(**{column: filled})
    message = refusal(check_measurements, with_cell(table, column, json.loads(value)))
    assert message.startswith(f"measurements.{column}: got {json.loads(value)}")
    assert expected in message


def test_cells_of_other_components_are_not_read() -> None:
    """A damaged row may have text in a column that its component does not have."""
    table = pd.concat([planted("gemm"), planted("attention")], ignore_index=True)
    table = table.assign(num_heads=table["num_heads"].astype(object).fillna("x"))
    assert len(check_measurements(table)) == len(table)


def test_a_dtype_of_weights_goes_with_one_of_activations() -> None:
    mixed = np.where(np.arange(len(GEMM)) % 2, "fp8", "bf16")
    table = GEMM.assign(weight_dtype="fp8", activation_dtype=mixed)
    message = refusal(check_measurements, table)
    assert message.startswith("measurements.activation_dtype: got ['bf16', 'fp8'];")
    assert "one dtype of activations for each weight_dtype, but fp8" in message


@cases("column value", ("hardware", "b200"), ("stack", ""), ("version", "1.2.4"))
def test_one_device_and_stack_a_table(column: str, value: object) -> None:
    message = refusal(check_measurements, with_cell(GEMM, column, value))
    assert message.startswith(f"measurements.{column}: got ")
    assert str(value) in message
    assert str(GEMM[column].iloc[0]) in message


def test_the_same_row_twice_is_no_repeat() -> None:
    message = refusal(check_measurements, pd.concat([GEMM, GEMM.head(3)]))
    assert "3 rows twice" in message


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("drift", [1.0, 4.0])
def test_repeats_of_a_point_become_their_median(kind: str, drift: float) -> None:
    """With references, the median of ratios: a machine that slows down changes nothing."""
    once, repeats = planted(kind), []
    for place, factor in enumerate((1.5, 1.0, 0.9)):
        slower = drift ** (place - 1)
        repeat = once.assign(latency=once["latency"] * factor * slower)
        references = {"point": once.index, "group": "g", "reference_latency": slower}
        repeats.append(repeat.assign(**references) if drift > 1 else repeat)
    shuffled = pd.concat(repeats).sample(frac=1, random_state=0)
    expected, found = check_measurements(once), check_measurements(shuffled)
    key = [*COLUMNS[kind], "role", "shape"]
    pd.testing.assert_frame_equal(
        *(t.sort_values(key, ignore_index=True)[[*key, "latency"]] for t in (expected, found))
    )


def test_every_row_is_fitted_where_no_role_is_given() -> None:
    table = check_measurements(GEMM.drop(columns="role"))
    assert set(table["role"]) == {"fit"}


@pytest.mark.parametrize("kind", KINDS)
def test_another_unit_is_suspected(kind: str) -> None:
    for factor, unit in ((1e3, "milliseconds"), (1e9, "microseconds"), (1 / 60, "minutes")):
        table = check_measurements(planted(kind).assign(latency=factor * planted(kind)["latency"]))
        message = refusal(fit_kernels, table, H200)
        assert message.startswith("measurements.latency: got ")
        assert kind in message
        assert unit in message
        assert "0.3 to 100" in message


@pytest.mark.parametrize("kind", KINDS)
def test_times_of_the_data_sheet_that_are_taken(kind: str) -> None:
    sheet = predicted_time(kind, points(kind), H200, KernelParameters(sharpness=np.inf))
    for times, is_taken in ((0.29, False), (0.31, True), (99, True), (101, False)):
        table = check_measurements(planted(kind).assign(latency=times * sheet))
        if is_taken:
            check_plausible(kind, "bf16", table, H200)
        else:
            assert "times the data" in refusal(check_plausible, kind, "bf16", table, H200)


@pytest.mark.parametrize(("kind", "depths"), [*((kind, None) for kind in KINDS), ("gemm", 1)])
def test_more_points_than_parameters_are_needed(kind: str, depths: int | None) -> None:
    """Products of one depth, as the first of the table are, do not tell how it is walked."""
    table = check_measurements(planted(kind).assign(role="fit"))
    parameters = len(KIND_FITS[kind].bounds)
    if kind == "gemm" and not depths:
        table = table.sort_values("num_tokens", kind="stable")
    elif depths:
        parameters -= len(("depth_time", "depth_limit"))
    message = refusal(fit_kernels, table.head(parameters), H200)
    assert f"{parameters} points of {kind}" in message
    assert f"than the {parameters} parameters" in message
    assert fit_kernels(table.head(parameters + 1), H200)


def test_a_dtype_without_a_peak_names_those_there_are() -> None:
    t4 = load_hardware("t4")
    table = check_measurements(GEMM.assign(activation_dtype="fp32"))
    refused(r"^activation_dtype: got 'fp32'; .*fp16", check_plausible, "gemm", "bf16", table, t4)
