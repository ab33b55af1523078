"""Sweeps against predictions point by point; how they are cut; what is written and what is left."""

import itertools
import json
import resource
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st
from printed import refused
from rows import cases, each_row, faults, slow

from specmodel import Acceptance, InputError, predict
from specmodel.algebra.routing import zipf_popularity
from specmodel.answers.sweeps import SweepInterrupted, csv_chunks, plan_sweep, sweep, sweep_to_file
from specmodel.answers.sweeps.parameters import DEFAULT_COLUMNS
from specmodel.answers.sweeps.plan import blocks
from specmodel.drafters.measured_heads import acceptance_by_name
from specmodel.prediction.columns import COLUMN_UNITS

POINTS = ("context_length", "batch_size", "draft_length", "verify_tokens")
LABELS = ["target", "drafter", "hardware", "engine", "num_gpus"]
FORMS = (
    *("acceptance_rate", "tokens_per_step", "step_efficiency", "accepted_fraction"),
    *("acceptance_by_position", "acceptance_by_context"),
)
BASE = {
    "target": "mixtral-8x7b", "drafter": "eagle", "hardware": "h100_sxm",
    "context_length": [0, 3000], "batch_size": [1, 7, 300], "draft_length": [0, 4],
    "acceptance_rate": [0.3, 1.0],
}  # fmt: skip
CASES = json.loads((Path(__file__).parents[1] / "data/sweep_cases.json").read_text())
"""What is changed in the axes, by name; null takes one out."""
TREES, MEASURED = CASES["trees"], {"acceptance_rate": None, "measured_draft_length": 4}
BLOCKS = acceptance_by_name()["deepseek-v4-pro-0813-dspark"].acceptance().acceptance_by_position
CASES["blocks of each length"] = {
    "target": "kimi-k2", "hardware": "b200", "tensor_parallel": 8, "drafter": "parallel",
    "draft_length": [2, 6, 8], "acceptance_rate": None, "acceptance_by_position": BLOCKS,
}  # fmt: skip


def case(name):
    """Axes of a case; None takes one out, a key given again moves nothing."""
    return axes_of(CASES[name])


def axes_of(changes):
    return {key: value for key, value in (BASE | changes).items() if value is not None}


def expected_rows(axes, step, **options):
    """Predict each point alone, or one of so many, in the order documented."""
    form = next(name for name in FORMS if name in axes)
    fixed = {n: axes[n] for n in ("max_draft_length",) if n in axes}
    measured = axes.get("measured_draft_length")
    outer = [n for n in axes if n not in (*POINTS, *FORMS, *fixed, "measured_draft_length")]
    names = [*outer, *(name for name in POINTS if name in axes), form]
    whole = axes | {name: [axes[name]] for name in FORMS[-2:] if name in axes}
    lists = [v if isinstance(v, list) else [v] for v in (whole[name] for name in names)]
    for values in itertools.islice(itertools.product(*lists), 0, None, step):
        point = dict(zip(names, values, strict=True))
        acceptance = Acceptance(**{form: point.pop(form)}, measured_draft_length=measured)
        labels = {name: point[name] for name in outer}
        yield labels, acceptance, predicted(point, acceptance, fixed | options)


def predicted(point, acceptance, options):
    """Predict one point with what is changed in its records."""
    changes = {name: point.pop(name) for name in [*point] if "." in name}
    return predict(acceptance=acceptance, changes=changes, **point, **options)


def expected_frame(axes, step=1, **options):
    """The table, or one row of so many, a point at a time."""
    rows = []
    for labels, acceptance, p in expected_rows(axes, step, **options):
        columns = p.columns() | {"limited_by": p.limited_by.ravel()}
        row = labels | {name: column.item() for name, column in columns.items()}
        if "acceptance_by_position" not in axes:
            row["acceptance_rate"] = rate_of_drafted(row, acceptance)
        rows.append(row)
    return pd.DataFrame(rows)


def rate_of_drafted(row, acceptance):
    """Rate of a chain; tokens per step are means over all steps, also those without a draft."""
    if row["verify_tokens"] != row["draft_length"] + 1:
        return np.nan
    if acceptance.form == "tokens_per_step":
        tokens = 1 + (acceptance.tokens_per_step - 1) / row.get("proposal_rate", 1)
        acceptance = replace(acceptance, tokens_per_step=tokens)
    return float(acceptance.at_context(row["context_length"]).rate())


@pytest.mark.parametrize("step", [5, *slow(1)])  # 5 meets all values of axes of 2 and 3
@each_row("name", CASES)
def test_a_sweep_is_predict_point_by_point(name, step):
    frame, expected = sweep(case(name), columns="all")[::step], expected_frame(case(name), step)
    assert len(frame) == len(expected)
    for column in expected:
        # unequal experts are summed over in an order that depends on how many points there are
        if expected[column].dtype.kind == "f":
            np.testing.assert_allclose(frame[column], expected[column], rtol=1e-12, err_msg=column)
        else:
            np.testing.assert_array_equal(frame[column], expected[column], err_msg=column)


def test_intervals_are_those_of_predict_however_it_is_cut(monkeypatch):
    axes = axes_of({"batch_size": [1, 30], "engine": "vllm-moesd-2025"})
    frame = sweep(axes, columns="all", interval=True)
    expected = expected_frame(axes, interval=True)
    assert (frame["speedup_low"] < frame["speedup_high"]).any()
    for column in expected:
        np.testing.assert_array_equal(frame[column], expected[column], err_msg=column)
    monkeypatch.setattr("specmodel.answers.sweeps.plan.MOST_WITH_INTERVAL", 5)
    cut = sweep(axes, columns="all", interval=True)
    pd.testing.assert_frame_equal(cut, frame, check_exact=True)


def test_columns_wanted_come_with_those_that_tell_the_points_apart():
    points = ["acceptance_rate", "batch_size", "draft_length", "verify_tokens", "context_length"]
    frame = sweep(BASE, columns=["speedup", "target", "limited_by"])
    assert list(frame) == [*LABELS, *points, "speedup", "limited_by"]
    assert list(sweep(BASE, columns="all")) == [*LABELS, "acceptance_rate", *COLUMN_UNITS]
    pd.testing.assert_frame_equal(frame, sweep(BASE)[list(frame)])
    usual = [name for name in COLUMN_UNITS if name in DEFAULT_COLUMNS]
    assert list(sweep(BASE)) == [*LABELS, *points, *usual]
    load = {"context_length": None, "prompt_length": 100, "output_length": [50, 60]}
    assert list(sweep(BASE | load))[-3:] == ["prompt_length", "output_length", "prefill_time"]
    tree = sweep(case("trees"), columns=["speedup"])
    assert not tree.drop(columns="speedup").duplicated().any()


@given(
    shape=st.lists(st.integers(1, 7), min_size=1, max_size=4).map(tuple), most=st.integers(1, 60)
)
def test_blocks_hold_every_point_once_and_in_order(shape, most):
    points = np.arange(np.prod(shape)).reshape(shape)
    found = [points[block].ravel() for block in blocks(shape, most)]
    assert np.concatenate(found).tolist() == list(range(points.size))
    assert all(1 <= block.size <= most for block in found)


@pytest.mark.parametrize("most", [2**18, 40])
@cases(
    "target changes",
    ("mixtral-8x7b", {}),
    ("mixtral-8x7b", MEASURED | {"step_efficiency": [0.3, 0.5]}),
    ("qwen3.5-397b-a17b", {"drafter": "mtp", "tensor_parallel": 8}),
)
def test_without_a_draft_length_each_point_has_the_best(target, changes, most, monkeypatch):
    """That of all lengths, in parts of any size; without a draft nothing is gained or lost."""
    monkeypatch.setattr("specmodel.answers.sweeps.plan.PART", most)
    base = BASE | {"target": target, "draft_length": None, "max_draft_length": 5}
    base |= {"batch_size": [1, 7, 60, 300], "tensor_parallel": 2} | changes
    plan = plan_sweep(base, columns=["speedup", "fits"])
    assert plan.num_parts == (1 if most > 40 else 8)
    best = sweep(base, columns=["speedup", "fits"])
    assert plan.num_fitting == best["fits"].sum()
    each = sweep(base | {"draft_length": range(6)}, columns=["speedup", "fits"])
    points = ["context_length", "batch_size", "acceptance_rate"]
    each = each[each["fits"] | ~each.groupby(points)["fits"].transform("any")]
    largest = each.loc[each.groupby(points)["speedup"].idxmax()].sort_values(points)
    best = best.sort_values(points)
    np.testing.assert_allclose(best["speedup"], largest["speedup"], rtol=1e-12)
    assert best["draft_length"].tolist() == largest["draft_length"].tolist()
    assert best["draft_length"].nunique() > 1


@pytest.mark.parametrize("workers", [1, 5])
@pytest.mark.parametrize("name", ["look-up, mean over all steps", "trees"])
def test_how_it_is_cut_changes_no_value(name, workers, monkeypatch):
    whole = sweep(case(name), workers=1)
    for most in (1, 7):
        monkeypatch.setattr("specmodel.answers.sweeps.plan.PART", most)
        plan = plan_sweep(case(name))
        sizes = [part.num_points for part in plan.parts()]
        assert (len(sizes), sum(sizes)) == (plan.num_parts, plan.num_points)
        assert max(sizes) <= most
        pd.testing.assert_frame_equal(sweep(case(name), workers=workers), whole, rtol=1e-12)


WRONG = faults("sweeps")
WRONG += [({"hardware.memory.peak_bytes_per_s": [3e12, 10**400]}, r"\S+per_s: got 1000")]


@each_row(("changes", "message"), WRONG)
def test_bad_values_are_refused_before_anything_is_computed(changes, message):
    told = refused(f"^{message}", plan_sweep, axes_of(changes))
    assert told.count("; expected ") == 1
    assert "array(" not in told


def test_popularity_may_be_files(tmp_path):
    path = tmp_path / "zipf.txt"
    path.write_text(" ".join(map(repr, zipf_popularity(8, 2, 0.7).tolist())), encoding="utf-8")
    frame = sweep(BASE | {"popularity": [path, str(path)]})
    assert set(frame["popularity"]) == {str(path)}
    alike = sweep(BASE | {"popularity_exponent": [0.7, 0.7]})
    np.testing.assert_allclose(frame["speedup"], alike["speedup"], rtol=1e-12)


def test_bad_columns_workers_and_sizes():
    refused(r"^target: got None", plan_sweep, BASE | {"target": None})
    long = axes_of(TREES | {"draft_length": [8, 3, 1]})
    refused("^tokens_per_step: .* 1 to draft_length . 1 = 2", plan_sweep, long)
    refused(r"^columns: got 'speedup_low'", plan_sweep, BASE, columns=["tpot", "speedup_low"])
    refused(r"^workers: got 0; expected at least 1", sweep, BASE, workers=0)
    with_client = {"workers": 1, "client": "tcp://127.0.0.1:1"}
    refused(r"^workers: got 1; expected none with a scheduler", sweep, BASE, **with_client)
    many = BASE | {"lookup_time": range(500), "proposal_rate": range(500)}
    refused(r"^deployments: got 250000; expected at most 100000", plan_sweep, many)
    huge = BASE | {"batch_size": range(1, 20_001), "context_length": range(10_000)}
    refused(r"^num_points: got 800000000; .*20,000,000 in a table", sweep, huge)
    assert plan_sweep(huge).num_parts >= 800_000_000 / 2**18


def test_impossible_combinations_are_left_out_only_if_asked():
    axes = BASE | {"hardware": "rtx_pro_6000", "stack": ["trtllm", "sglang", "datasheet"]}
    refused(r"^stack: got 'sglang'", plan_sweep, axes)
    plan = plan_sweep(axes, skip_impossible=True)
    frame = sweep(axes, skip_impossible=True)
    assert list(plan.skipped) == frame.attrs["skipped"]
    (reason,) = plan.skipped
    assert "mixtral-8x7b, eagle, rtx_pro_6000, sglang" in reason
    assert "stack: got 'sglang'" in reason
    possible = sweep(axes | {"stack": ["trtllm", "datasheet"]})
    pd.testing.assert_frame_equal(frame, possible)
    with pytest.raises(InputError, match=r"^stack: got 'sglang'; .*no combination works"):
        plan_sweep(axes | {"stack": "sglang"}, skip_impossible=True)


def text_of(path):
    """A written sweep, whatever its form, in the types of its values."""
    return pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path)


OUTPUTS = ("one.csv", "one.parquet", "parts/")


def needs_extra_of(output):
    """Skip where the extra that writes this form is not installed."""
    if not output.endswith(".csv"):
        pytest.importorskip("pyarrow.parquet")


@pytest.fixture(params=OUTPUTS)
def output(request):
    """A form to write; Parquet takes an extra, without which its tests say so and pass on."""
    needs_extra_of(request.param)
    return request.param


def check_written(path, frame):
    """What is read is the frame in float32; words are words, whole numbers whole."""
    found = text_of(path)
    assert list(found) == list(frame)
    assert len(found) == len(frame)
    for name in frame:
        expected = frame[name]
        if isinstance(expected.dtype, pd.CategoricalDtype):
            assert found[name].astype(object).tolist() == expected.astype(object).tolist()
        elif expected.dtype.kind == "f" and name in (*COLUMN_UNITS, "acceptance_rate"):
            np.testing.assert_array_equal(found[name].astype(np.float32), np.float32(expected))
        else:
            np.testing.assert_array_equal(found[name], expected)
            assert found[name].dtype.kind == expected.dtype.kind


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr("specmodel.answers.sweeps.plan.PART", 10)


@pytest.mark.parametrize("name", ["records and what-ifs", "by position", "trees"])
def test_every_form_holds_the_same(name, output, tmp_path, small_parts):
    plan = plan_sweep(case(name))
    sweep_to_file(plan, f"{tmp_path}/{output}", workers=2)
    check_written(tmp_path / output, sweep(case(name)))
    if output == "one.csv":
        assert "".join(csv_chunks(plan)) == (tmp_path / output).read_text(encoding="utf-8")
    if output == "parts/":
        assert len(list((tmp_path / output).iterdir())) == plan.num_parts


def snapshot(folder):
    """Content of every file under a folder."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_is_not_a_sweep_is_never_replaced(tmp_path):
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "part-00000.parquet").write_text("a part")
    (foreign / "notes.txt").write_text("mine")
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "file").write_text("mine")
    for link in ("link", "x.csv.parts", "x.parquet.parts"):
        (tmp_path / link).symlink_to(foreign)
    before = snapshot(tmp_path)
    for output in ("folder.csv", "foreign/", "file/", "link/", "x.csv", "x.parquet"):
        needs_extra_of(output)
        for overwrite in (False, True):
            with pytest.raises(InputError, match=r"^output: got .*name"):
                sweep_to_file(plan_sweep(BASE), f"{tmp_path}/{output}", overwrite=overwrite)
    assert snapshot(tmp_path) == before


def test_a_taken_name_is_refused_unless_it_may_be_replaced(output, tmp_path):
    path, other = tmp_path / output, plan_sweep(BASE | {"batch_size": 5})
    sweep_to_file(plan_sweep(BASE), f"{tmp_path}/{output}")
    before = snapshot(tmp_path)
    refused(
        "^output: got .*another name, or overwrite", sweep_to_file, other, f"{tmp_path}/{output}"
    )
    assert snapshot(tmp_path) == before
    sweep_to_file(other, f"{tmp_path}/{output}", overwrite=True)
    assert set(text_of(path)["batch_size"]) == {5}
    assert list(tmp_path.iterdir()) == [path]


def test_two_sweeps_never_write_one_file(output, tmp_path, small_parts):
    """Not even if both may replace it; what the first has written stays as it was."""
    path, other = f"{tmp_path}/{output}", plan_sweep(BASE | {"batch_size": [2, 3, 4]})

    def intrude(_num_points):
        with pytest.raises(InputError, match=r"^output: got .*another sweep is being written"):
            sweep_to_file(other, path, overwrite=True)

    sweep_to_file(plan_sweep(BASE), path, overwrite=True, progress=intrude)
    check_written(tmp_path / output, sweep(BASE))
    sweep_to_file(other, path, overwrite=True)
    assert set(text_of(tmp_path / output)["batch_size"]) == {2, 3, 4}
    assert len(list(tmp_path.iterdir())) == 1


def test_a_disk_that_gets_full_keeps_the_parts(output, tmp_path, small_parts):
    limits, plan = resource.getrlimit(resource.RLIMIT_FSIZE), plan_sweep(BASE)

    def fill(num_points):
        """Let no file grow any more."""
        resource.setrlimit(resource.RLIMIT_FSIZE, (50, limits[1]))

    kept = "" if output == "one.parquet" else "; 1 of 4 parts are kept in .*"
    try:
        refused(
            rf"^output: .* written \(File too large\){kept}$",
            *(sweep_to_file, plan, f"{tmp_path}/{output}"),
            progress=fill,
        )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(snapshot(tmp_path)) == bool(kept)
    sweep_to_file(plan, f"{tmp_path}/{output}")
    check_written(tmp_path / output, sweep(BASE))


@pytest.mark.parametrize("output", ["x.txt", ".csv", "", "../", "none/x/", "x" * 300 + ".csv"])
def test_names_that_do_not_do(output, tmp_path, monkeypatch):
    if output.startswith("none/x/"):
        pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"^output: got ") as caught:
        sweep_to_file(plan_sweep(BASE), output, overwrite=True)
    assert caught.value.value == output
    assert not list(tmp_path.iterdir())


@cases(
    "fault said",
    (KeyboardInterrupt(), "interrupted: nothing is kept"),
    (MemoryError("no room"), "no room"),
)
def test_nothing_is_left_where_nothing_was_written(output, fault, said, tmp_path, monkeypatch):

    def fail(*_arguments):
        raise fault

    monkeypatch.setattr("specmodel.answers.sweeps.files.results", fail)
    with pytest.raises(type(fault)) as caught:
        sweep_to_file(plan_sweep(BASE), f"{tmp_path}/{output}")
    assert str(caught.value) == said
    assert not list(tmp_path.iterdir())


def left_of(output, folder, axes, parts):
    """Where an interruption after some parts leaves them, and how many points they have."""
    done = []

    def interrupt(num_points):
        done.append(num_points)
        if len(done) == parts:
            raise KeyboardInterrupt

    with pytest.raises(SweepInterrupted, match=f"{parts} of .* parts are kept in "):
        sweep_to_file(plan_sweep(axes), f"{folder}/{output}", progress=interrupt)
    (left,) = folder.iterdir()
    return left, sum(done)


RESUMED = pytest.mark.parametrize("output", ["one.csv", "parts/"])


@RESUMED
def test_the_same_sweep_goes_on_with_the_parts_that_lack(output, tmp_path, small_parts):
    """Also if a kill left one that is not whole; it computes none that is there."""
    needs_extra_of(output)
    axes, done = case("records and what-ifs"), []
    left, kept = left_of(output, tmp_path, axes, 5)
    (left / ".specmodel-1f").write_text("cut off")
    plan = plan_sweep(axes)
    assert sweep_to_file(plan, f"{tmp_path}/{output}", progress=done.append) == kept
    assert sum(done) == plan.num_points
    check_written(tmp_path / output, sweep(axes))
    assert list(tmp_path.iterdir()) == [tmp_path / output]


@RESUMED
@pytest.mark.parametrize("change", [{"acceptance_rate": [0.3, 0.5, 0.71]}, {"batch_size": 5}])
def test_parts_of_another_sweep_are_not_gone_on_from(output, change, tmp_path, small_parts):
    needs_extra_of(output)
    axes = BASE | {"acceptance_rate": [0.3, 0.5, 0.7]}
    left_of(output, tmp_path, axes, 2)
    before, plan = snapshot(tmp_path), plan_sweep(axes | change)
    refused(
        "expected a folder for parts of this sweep.* overwrite",
        sweep_to_file,
        plan,
        f"{tmp_path}/{output}",
    )
    assert snapshot(tmp_path) == before
    assert sweep_to_file(plan, f"{tmp_path}/{output}", overwrite=True) == 0
    check_written(tmp_path / output, sweep(axes | change))


def test_a_sweep_is_told_by_its_values_files_and_version(tmp_path, monkeypatch):
    path = tmp_path / "popularity.txt"
    path.write_text("0.25 " * 8, encoding="utf-8")
    axes = BASE | {"popularity": path}
    assert (identity := plan_sweep(axes).identity) == plan_sweep(axes).identity
    assert identity != plan_sweep(axes, columns=["speedup"]).identity
    path.write_text("0.2 0.3 " + "0.25 " * 6, encoding="utf-8")
    assert identity != plan_sweep(axes).identity
    path.write_text("0.25 " * 8, encoding="utf-8")
    monkeypatch.setattr("specmodel.answers.sweeps.parameters.__version__", "0.0")
    assert identity != plan_sweep(axes).identity


@pytest.mark.parametrize("output", OUTPUTS[:2])
def test_a_link_is_followed_and_stays(output, tmp_path):
    needs_extra_of(output)
    plan, real, link = plan_sweep(BASE), tmp_path / f"real_{output}", tmp_path / output
    link.symlink_to(real)
    sweep_to_file(plan, link)  # a link to nothing yet
    refused("another name, or overwrite", sweep_to_file, plan, link)
    real.write_text("old")
    sweep_to_file(plan, link, overwrite=True)
    assert link.is_symlink()
    check_written(real, sweep(BASE))
    assert {*tmp_path.iterdir()} == {real, link}


def test_without_pyarrow_there_is_csv(tmp_path, monkeypatch):
    for name in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)
    plan = plan_sweep(BASE)
    for output in OUTPUTS[1:]:
        with pytest.raises(InputError, match=r"^output: got .*pip install '\.\[sweeps\]'"):
            sweep_to_file(plan, f"{tmp_path}/{output}")
    assert not list(tmp_path.iterdir())


def test_without_dask_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    refused(r"^scheduler: got 'tcp://.*'\.\[dask\]'", sweep, BASE, client="tcp://127.0.0.1:8786")


def test_sweeps_refuse_trees_before_they_compute():
    point = {"target": "mixtral-8x7b", "hardware": "h200_sxm", "engine": "vllm"}
    point |= {"drafter": "eagle3", "draft_length": 3, "batch_size": [1, 16]}
    axes = point | {"tree_width": [1, 4]}
    with pytest.raises(InputError, match=r"^tree_width: got 4; expected 1, .* tokens_per_step"):
        plan_sweep(axes | {"acceptance_rate": 0.7})
    plan = plan_sweep(axes | {"tokens_per_step": 2.0}, columns=["speedup"])
    assert "tokens_per_step" in plan.columns
    parts = [part.predict().speedup.ravel() for part in plan.parts()]
    point |= {"tokens_per_step": 2.0}
    expected = [predict(**point, tree_width=width).speedup for width in (1, 4)]
    np.testing.assert_allclose(parts, expected, rtol=1e-12)
