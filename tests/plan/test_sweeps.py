"""Sweeps, compared with predictions point by point; their parts, and the files they write."""

import itertools
import json
import resource
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from printed import refused
from rows import cases, each_row, faults, slow

from specmodel import predict
from specmodel.core.algebra.routing import zipf_popularity
from specmodel.core.base.naming import counted
from specmodel.core.drafters.measured_heads import acceptance_by_name
from specmodel.core.prediction.columns import COLUMN_UNITS
from specmodel.plan.sweeps import csv_chunks, plan_sweep, sweep, sweep_to_file
from specmodel.plan.sweeps.plan import DEFAULT_COLUMNS

LAST = (
    *("context_length", "batch_size", "draft_length", "verify_tokens"),
    *("acceptance_rate", "tokens_per_step", "step_efficiency", "accepted_fraction"),
    *("acceptance_by_position", "acceptance_by_context"),
    *("measured_draft_length", "max_draft_length"),
)
"""Parameters that vary fastest; those of the last line do not vary."""
LABELS = ["target", "drafter", "hardware", "engine", "num_gpus"]
BASE = {
    "target": "mixtral-8x7b", "drafter": "eagle", "hardware": "h100_sxm",
    "context_length": [0, 3000], "batch_size": [1, 7, 300], "draft_length": [0, 4],
    "acceptance_rate": [0.3, 1.0],
}  # fmt: skip
CASES = json.loads((Path(__file__).parents[1] / "data/sweep_cases.json").read_text())
"""Changes of the axes, by name; null removes an axis."""
BLOCKS = acceptance_by_name()["deepseek-v4-pro-0813-dspark"].acceptance().acceptance_by_position
CASES["blocks of each length"] = {
    "target": "kimi-k2", "hardware": "b200", "tensor_parallel": 8, "drafter": "parallel",
    "draft_length": [2, 6, 8], "acceptance_rate": None, "acceptance_by_position": BLOCKS,
}  # fmt: skip


def axes_of(changes):
    return {key: value for key, value in (BASE | changes).items() if value is not None}


def expected_frame(axes, step=1, **options):
    """Return the table in its documented order, predicted point by point; each `step`-th row."""
    lists = {n: v if isinstance(v, list) and n not in LAST[-4:] else [v] for n, v in axes.items()}
    names, rows = sorted(lists, key=lambda n: LAST.index(n) if n in LAST else -1), []
    for values in itertools.islice(itertools.product(*map(lists.get, names)), 0, None, step):
        point = dict(zip(names, values, strict=True))
        labels = {name: point[name] for name in names if name not in LAST}
        changes = {name: point.pop(name) for name in names if "." in name}
        p = predict(changes=changes, **point, **options)
        columns = p.columns() | {"limited_by": p.limited_by.ravel()}
        if "acceptance_by_position" not in axes:
            rate = p.evaluation.acceptance.rate()
            columns["acceptance_rate"] = np.where(p.evaluation.is_chain, rate, np.nan)
        labels |= {"hardware": counted(labels["hardware"])[1]}
        labels |= {"num_gpus": p.deployment.layout.num_gpus}
        rows.append(labels | {name: column.item() for name, column in columns.items()})
    return pd.DataFrame(rows)


@pytest.mark.parametrize("step", [5, *slow(1)])  # 5 meets all values of axes of 2 and 3
@each_row("name", CASES)
def test_a_sweep_is_predict_point_by_point(name, step):
    axes = axes_of(CASES[name])
    frame = sweep(axes, columns="all")
    assert sum(part.fitting() for part in plan_sweep(axes).parts()) == frame["fits"].sum()
    # with unequal experts, the order of summation depends on the number of points
    check_equal(frame[::step], expected_frame(axes, step), rtol=1e-12, atol=0)


def check_equal(frame, expected, **how):
    """Check that a frame has the expected columns; words may be categories."""
    found = frame[list(expected)].reset_index(drop=True).astype(expected.dtypes)
    pd.testing.assert_frame_equal(found, expected, **how)


def test_intervals_are_those_of_predict_however_it_is_cut(monkeypatch):
    axes = axes_of({"batch_size": [1, 30], "engine": "vllm-moesd-2025"})
    frame = sweep(axes, columns="all", interval=True)
    assert (frame["speedup_low"] < frame["speedup_high"]).any()
    check_equal(frame, expected_frame(axes, interval=True), check_exact=True)
    monkeypatch.setattr("specmodel.plan.sweeps.plan.MOST_WITH_INTERVAL", 5)
    cut = sweep(axes, columns="all", interval=True)
    pd.testing.assert_frame_equal(cut, frame, check_exact=True)


def test_columns_wanted_come_with_those_that_tell_the_points_apart():
    points = ["acceptance_rate", "batch_size", "draft_length", "verify_tokens", "context_length"]
    usual = [name for name in COLUMN_UNITS if name in DEFAULT_COLUMNS]
    wanted = {"all": ["acceptance_rate", *COLUMN_UNITS], None: [*points, *usual]}
    wanted[("speedup", "target", "limited_by")] = [*points, "speedup", "limited_by"]
    for columns, expected in wanted.items():
        assert list(sweep(BASE, columns=columns)) == [*LABELS, *expected]
    load = {"context_length": None, "prompt_length": 100, "output_length": [50, 60]}
    assert list(sweep(BASE | load))[-3:] == ["prompt_length", "output_length", "prefill_time"]
    tree = sweep(axes_of(CASES["trees"]), columns=["speedup"])
    assert not tree.drop(columns="speedup").duplicated().any()


@cases("name workers", ("look-up, mean over all steps", 1), ("trees", 5), ("best lengths", 2))
def test_how_it_is_cut_changes_no_value(name, workers, monkeypatch):
    axes = axes_of(CASES[name])
    whole = sweep(axes, workers=1)
    for most in (1, 7):
        monkeypatch.setattr("specmodel.plan.sweeps.plan.PART", most)
        plan = plan_sweep(axes)
        sizes = [part.num_points for part in plan.parts()]
        assert sum(sizes) == plan.num_points
        assert max(sizes) <= most
        pd.testing.assert_frame_equal(sweep(axes, workers=workers), whole, rtol=1e-12)


WRONG = faults("sweeps")
WRONG += [({"hardware.memory.peak_bytes_per_s": [3e12, 10**400]}, r"changes \S+per_s: got 1000")]


@each_row(("changes", "message"), WRONG)
def test_bad_values_are_refused_before_anything_is_computed(changes, message):
    told = refused(f"^{message}", plan_sweep, axes_of(changes))
    assert told.count("; expected ") <= 1
    assert "array(" not in told


def test_popularity_may_be_files_which_tell_sweeps_apart(tmp_path, monkeypatch):
    path = tmp_path / "zipf.txt"
    path.write_text(" ".join(map(repr, zipf_popularity(8, 2, 0.7).tolist())), encoding="utf-8")
    axes = BASE | {"popularity": [path, str(path)]}
    frame, alike = sweep(axes), sweep(BASE | {"popularity_exponent": [0.7, 0.7]})
    assert set(frame["popularity"]) == {str(path)}
    np.testing.assert_allclose(frame["speedup"], alike["speedup"], rtol=1e-12)
    known = {plan_sweep(axes).identity, plan_sweep(axes).identity}
    known |= {plan_sweep(axes, columns=["speedup"]).identity}
    path.write_text("0.25 " * 8, encoding="utf-8")
    known |= {plan_sweep(axes).identity}
    monkeypatch.setattr("specmodel.plan.sweeps.plan.__version__", "0.0")
    assert len(known | {plan_sweep(axes).identity}) == 4


def test_bad_columns_workers_and_sizes(monkeypatch):
    refused(r"^columns: got 'speedup_low'", plan_sweep, BASE, columns=["tpot", "speedup_low"])
    refused(r"^workers: got 0; expected at least 1", sweep, BASE, workers=0)
    with_client = {"workers": 1, "client": "tcp://127.0.0.1:1"}
    refused(r"^workers: got 1\. A Dask scheduler has its own workers", sweep, BASE, **with_client)
    many = BASE | {"lookup_time": range(500), "proposal_rate": range(500)}
    refused(r"^deployments: got 250000; expected at most 100000", plan_sweep, many)
    huge = BASE | {"batch_size": range(1, 20_001), "context_length": range(10_000)}
    refused(r"^num_points: got 800000000; .*20,000,000 in memory", sweep, huge)
    monkeypatch.setitem(sys.modules, "distributed", None)
    refused(r"^scheduler: got 'tcp://.*'\.\[dask\]'", sweep, BASE, client="tcp://127.0.0.1:8786")


def test_impossible_combinations_are_left_out_only_if_asked():
    axes = BASE | {"hardware": "rtx_pro_6000", "stack": ["trtllm", "sglang", "datasheet"]}
    refused(r"^stack: got 'sglang'", plan_sweep, axes)
    frame = sweep(axes, skip_impossible=True)
    (reason,) = frame.attrs["skipped"]
    assert reason.startswith("mixtral-8x7b, eagle, rtx_pro_6000, sglang: stack: got 'sglang'")
    pd.testing.assert_frame_equal(frame, sweep(axes | {"stack": ["trtllm", "datasheet"]}))
    none, told = (
        axes | {"stack": "sglang"},
        r"^stack: got 'sglang'; .*no combination of values works",
    )
    refused(told, plan_sweep, none, skip_impossible=True)


OUTPUTS = ["one.csv", *(["one.parquet", "parts/"] if find_spec("pyarrow") else [])]


@pytest.fixture(params=OUTPUTS)
def output(request):
    return request.param


def text_of(path):
    return (pd.read_csv if path.suffix == ".csv" else pd.read_parquet)(path)


def check_written(path, frame):
    """Check that a file contains the frame, with columns of predictions in float32."""
    computed = frame.columns.intersection(["acceptance_rate", *COLUMN_UNITS])
    short = frame[computed].select_dtypes(float).astype(np.float32)
    frame, found = frame.assign(**short), text_of(path)
    assert found["batch_size"].dtype.kind == "i"
    pd.testing.assert_frame_equal(found.astype(frame.dtypes), frame, check_exact=True)


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr("specmodel.plan.sweeps.plan.PART", 10)


@pytest.mark.parametrize("name", ["records and what-ifs", "by position", "trees"])
def test_every_form_holds_the_same(name, output, tmp_path, small_parts):
    axes = axes_of(CASES[name])
    plan = plan_sweep(axes)
    sweep_to_file(plan, f"{tmp_path}/{output}", workers=2)
    check_written(tmp_path / output, sweep(axes))
    if output == "one.csv":
        assert "".join(csv_chunks(plan)) == (tmp_path / output).read_text(encoding="utf-8")
    if output == "parts/":
        names = [path.stem for path in (tmp_path / output).iterdir()]
        assert sorted(names) == [part.name for part in plan.parts()]


def snapshot(folder):
    """Return the content of every file under a folder."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_is_not_a_sweep_is_never_replaced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "part-00000.parquet").write_text("a part")
    (foreign / "notes.txt").write_text("mine")
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "file").write_text("mine")
    for link in ("link", "x.csv.parts", "x.parquet.parts"):
        (tmp_path / link).symlink_to(foreign)
    before = snapshot(tmp_path)
    taken = ("folder.csv", "foreign/", "file/", "link/", "x.csv", "x.parquet")
    for output in (*taken, "x.txt", ".csv", "", "../", "none/x/", "x" * 300 + ".csv"):
        for overwrite in (False, True):
            told = "^output: got .*(?i:name)" if output in taken else "^output: got"
            refused(told, sweep_to_file, plan_sweep(BASE), output, overwrite=overwrite)
    assert snapshot(tmp_path) == before


def test_a_taken_name_is_refused_unless_it_may_be_replaced(output, tmp_path, small_parts):
    path, other = f"{tmp_path}/{output}", plan_sweep(BASE | {"batch_size": 5})
    sweep_to_file(plan_sweep(BASE), path, overwrite=True)
    refused("^output: got .*another name, or add overwrite", sweep_to_file, other, path)
    check_written(tmp_path / output, sweep(BASE))
    sweep_to_file(other, path, overwrite=True)
    assert set(text_of(tmp_path / output)["batch_size"]) == {5}
    assert list(tmp_path.iterdir()) == [tmp_path / output]


def test_a_disk_that_gets_full_keeps_the_parts(output, tmp_path, small_parts):
    limits, plan = resource.getrlimit(resource.RLIMIT_FSIZE), plan_sweep(BASE)

    def fill(num_points):
        """Let no file grow any more."""
        if num_points:
            resource.setrlimit(resource.RLIMIT_FSIZE, (50, limits[1]))

    try:
        told = r"^output: .* \(File too large\)$"
        refused(told, sweep_to_file, plan, f"{tmp_path}/{output}", progress=fill)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(snapshot(tmp_path)) == (output != "one.parquet")
    sweep_to_file(plan, f"{tmp_path}/{output}")
    check_written(tmp_path / output, sweep(BASE))


def test_nothing_is_left_where_nothing_was_written(output, tmp_path, monkeypatch):
    def fail(*_arguments):
        raise MemoryError

    monkeypatch.setattr("specmodel.plan.sweeps.files.results", fail)
    with pytest.raises(MemoryError):
        sweep_to_file(plan_sweep(BASE), f"{tmp_path}/{output}")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("output", OUTPUTS[::2])
def test_the_same_sweep_alone_goes_on_with_the_parts_that_lack(output, tmp_path, small_parts):
    """Also if a kill left an incomplete part; existing parts are not computed again."""
    path, axes, done = f"{tmp_path}/{output}", axes_of(CASES["records and what-ifs"]), []
    plan, other = plan_sweep(axes), plan_sweep(axes | {"acceptance_rate": [0.3, 0.71]})

    def interrupt(num_points):
        done.append(num_points)
        if len(done) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep_to_file(plan, path, progress=interrupt)
    (left,), kept = tmp_path.iterdir(), sum(done)
    before = snapshot(tmp_path)
    refused("files that are no parts of this sweep.* overwrite", sweep_to_file, other, path)
    assert snapshot(tmp_path) == before
    (left / ".specmodel-1f").write_text("cut off")
    done.clear()
    assert sweep_to_file(plan, path, progress=done.append) == kept
    assert (done[0], sum(done)) == (kept, plan.num_points)
    check_written(tmp_path / output, sweep(axes))
    assert list(tmp_path.iterdir()) == [tmp_path / output]


@pytest.mark.parametrize("output", OUTPUTS[:2])
def test_a_link_is_followed_and_stays(output, tmp_path):
    plan, real, link = plan_sweep(BASE), tmp_path / f"real_{output}", tmp_path / output
    link.symlink_to(real)
    sweep_to_file(plan, link)  # a link to nothing yet
    real.write_text("old")
    sweep_to_file(plan, link, overwrite=True)
    assert link.is_symlink()
    check_written(real, sweep(BASE))
    assert {*tmp_path.iterdir()} == {real, link}


def test_without_pyarrow_there_is_csv(tmp_path, monkeypatch):
    for name in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)
    for path in (f"{tmp_path}/one.parquet", f"{tmp_path}/parts/"):
        told = r"^output: got .*pip install '\.\[sweeps\]'"
        refused(told, sweep_to_file, plan_sweep(BASE), path)
    sweep_to_file(plan_sweep(BASE), tmp_path / "one.csv")
    assert list(tmp_path.iterdir()) == [tmp_path / "one.csv"]
