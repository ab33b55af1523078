"""Commands that calibrate, on tables made from planted parameters: what they recover and refuse."""

import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from planted import DTYPES, H200, KINDS, PLANTED, planted, points
from printed import in_one_line, output_of, typed_wrong, widest
from rows import cases, each_listed, each_row

from specmodel import load_hardware
from specmodel.calibrate.fit import fit_kernels, predicted_time
from specmodel.calibrate.fit.kernels import KIND_FITS, SHARPNESSES
from specmodel.calibrate.measure import check_measurements
from specmodel.core.algebra.roofline import KernelParameters
from specmodel.core.machines.hardware import FOLDER

# kernels: what is planted comes back


def truth(kind, sharpness):
    """Time of every point with the planted parameters [s]."""
    parameters = KernelParameters(**PLANTED[kind], sharpness=sharpness)
    return predicted_time(kind, points(kind), H200, parameters)


def fitted(kind, table):
    return fit_kernels(check_measurements(table), H200)[kind, DTYPES[kind]]


@pytest.mark.parametrize(("kind", "sharpness"), [*zip(KINDS, SHARPNESSES, strict=True)])
def test_planted_kernels_are_predicted_on_unseen_shapes(kind, sharpness):
    fitting = fitted(kind, planted(kind, sharpness))
    if kind != "recurrence":  # which computes next to nothing
        assert fitting.fit.sharpness == sharpness
    assert fitting.fit.is_held_out
    assert fitting.fit.percentile_90_error < fitting.fit.mean_error * 10 < 1e-5
    assert np.abs(fitting.result.residuals).max() < 1e-6
    assert fitting.fit.num_points + fitting.fit.num_judged == len(points(kind))
    for name, value in fitting.result.parameters.items():
        assert value == pytest.approx(PLANTED[kind][name], rel=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_noise_of_2_percent_leaves_errors_below_3(kind):
    fitting = fitted(kind, planted(kind, 4.0, noise=0.02))
    assert 0.005 < fitting.fit.mean_error < 0.03
    parameters = KernelParameters(**fitting.result.parameters, sharpness=fitting.fit.sharpness)
    predicted = predicted_time(kind, points(kind), H200, parameters)
    np.testing.assert_allclose(predicted, truth(kind, 4.0), rtol=0.04)
    assert 0.005 < np.hypot(fitting.fit.shape_spread, fitting.fit.row_spread) < 0.04


@pytest.mark.parametrize("kind", ["gemm", "experts"])
def test_a_few_wild_points_move_the_fit_little(kind):
    table = planted(kind)
    table.loc[[3, 9], "latency"] *= 2
    assert fitted(kind, table).fit.mean_error < 0.02


@pytest.mark.slow
@each_listed
def test_a_parameter_at_a_bound_is_warned_of(kind, changes, warning, tmp_path, run):
    table = planted(kind, **changes)
    assert warning in fitted(kind, table).result.warnings
    table.to_csv(tmp_path / "a.csv", index=False)
    command = f"fit kernels {tmp_path}/a.csv --output {tmp_path}/a.toml"
    assert f"Warning: {kind} bf16: {warning}." in run(command, one_line=True)


def test_what_the_points_do_not_determine_is_named():
    """One matrix at ever more tokens, all of them short: arithmetic does not show."""
    table = planted("gemm").query("num_tokens <= 16")
    warnings = fitted("gemm", table).result.warnings
    assert any(w.startswith("compute_efficiency is not determined") for w in warnings), warnings


@cases("shapes", "input_size in (4096, 8192)", "output_size > 4096")
def test_a_few_products_give_a_fit_that_walks_no_depth(shapes):
    """Nor is a depth walked on shapes that were not timed: its time would be any value."""
    table = planted("gemm", depth_time=0.0).query(shapes)
    fit = fitted("gemm", table).fit
    assert not {"depth_time", "depth_limit"} & set(fit.varied)
    assert fit.parameters.depth_time == 0.0
    alone = points("gemm").query("input_size == 16384 and output_size == 256")
    parameters = KernelParameters(**PLANTED["gemm"] | {"depth_time": 0.0}, sharpness=4.0)
    expected = predicted_time("gemm", alone, H200, parameters)
    found = predicted_time("gemm", alone, H200, fit.parameters)
    np.testing.assert_allclose(found, expected, rtol=0.01)


# the command line

SHIPPED = (FOLDER / "h200_sxm.toml").read_text(encoding="utf-8")
PLAIN = SHIPPED.partition("[fitted.")[0]
"""The data sheet, with comments."""


def together():
    """Every component; attention computes as GEMMs do, which is how it is fitted along them."""
    held = {"attention": {"compute_efficiency": PLANTED["gemm"]["compute_efficiency"]}}
    return pd.concat([planted(kind, **held.get(kind, {})) for kind in KINDS])


def written():
    """Tables by the name of their file."""
    gemm = planted("gemm")
    wild = np.where(np.arange(len(gemm)) % 5, 1.0, 1e-3)
    return {
        "all": together(), "gemm": gemm, "trtllm": gemm.assign(stack="trtllm"),
        "wild": gemm.assign(latency=gemm["latency"] * wild),
        "newer": gemm.assign(version="1.3.0", latency=1.1 * gemm["latency"]),
        "other": gemm.assign(stack="other"), "few": gemm.head(3),
        "skipped": gemm.assign(role="skip"),
        "milliseconds": gemm.assign(latency=1e3 * gemm["latency"]),
        "twice": pd.concat([gemm, gemm]), "stack": gemm.assign(stack="My Stack"),
        "device": gemm.assign(hardware="h201"),
    }  # fmt: skip


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    path = tmp_path_factory.mktemp("tables")
    for name, table in written().items():
        table.to_csv(path / f"{name}.csv", index=False)
    (path / "folder.toml").mkdir()
    second = PLAIN.replace("schema_version = 1", "schema_version = 2")
    for folder, profile in (("second", second), ("plain", "# of mine\n" + PLAIN)):
        (path / folder).mkdir()
        (path / folder / "h200_sxm.toml").write_text(profile)
    words = f"{path}/all.csv --output {path}/mine.toml --source 'a test'"
    (path / "said.txt").write_text(output_of(f"fit kernels {words}"))
    return path


@pytest.fixture
def folder(tables, tmp_path, monkeypatch):
    """The current folder, with the tables."""
    shutil.copytree(tables, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def do(folder, run):
    """Run a command that must succeed, return what it prints."""

    def do(command):
        out = run(command)
        assert len(widest(out)) <= 80
        return out

    return do


def files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


KERNELS = "fit kernels gemm.csv --output out.toml"
OWN = KERNELS.replace("out.toml", "h200_sxm.toml")
VALIDATE = "fit check plain/h200_sxm.toml gemm.csv"


@each_row(("command", "fragments"), typed_wrong("commands", kernels=KERNELS, validate=VALIDATE))
def test_one_line_names_what_is_wrong_and_no_file_is_changed(command, fragments, folder, refuse):
    (folder / "out.toml").write_bytes(b"kept as it is\n")
    before = files(folder)
    more = " --overwrite" if "--output out.toml" in command else ""
    line = refuse(command + more, *fragments)
    assert "np." not in line
    assert files(folder) == before


# fit kernels


def test_fit_writes_a_profile_that_predicts_what_was_planted(folder):
    out = Path("said.txt").read_text()
    assert re.search(r"Written: \S*\s*mine.toml, \[fitted.mine\]", out)
    stack = load_hardware("mine.toml").fitted["mine"]
    assert (stack.version, stack.source) == ("1.2.3", "a test")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", stack.date)
    for kind in KINDS:
        assert f"{kind} {DTYPES[kind]}: " in out
        fit = stack.of_kind(kind)[DTYPES[kind]]
        predicted = predicted_time(kind, points(kind), H200, fit.parameters)
        table = together().query("component == @kind")
        np.testing.assert_allclose(predicted, table["latency"], rtol=1e-4)
        is_walked = kind != "experts"  # theirs are taken to walk only where they do
        assert fit.varied == [n for n in KIND_FITS[kind].bounds if is_walked or n != "depth_time"]
        assert np.shape(fit.covariance) == (len(fit.varied),) * 2
        for name, value in PLANTED[kind].items():
            assert f"{name} = {value:.4g}" in in_one_line(out)


def test_a_fit_adds_to_the_data_sheet_and_takes_no_name_that_devices_report(do):
    assert 'reported_names = ["H200"]\n' in PLAIN
    do(KERNELS)
    text = Path("out.toml").read_text(encoding="utf-8")
    assert text.startswith(PLAIN.replace('reported_names = ["H200"]\n', ""))  # with its comments
    assert "gemm.csv" in load_hardware("./out.toml").fitted["mine"].source


def test_the_first_stack_is_the_default_and_stays(do):
    again = "fit kernels {}.csv --output h200_sxm.toml --hardware h200_sxm.toml".format
    do(f"{OWN} --hardware plain/h200_sxm.toml")
    once = Path("h200_sxm.toml").read_bytes()
    do(again("gemm"))
    assert Path("h200_sxm.toml").read_bytes() == once
    do(again("other"))
    both = load_hardware("h200_sxm.toml")
    defaults = {name: stack.is_default for name, stack in both.fitted.items()}
    assert [*defaults.items()] == [("mine", True), ("other", False)]
    do(again("newer"))
    after = load_hardware("h200_sxm.toml")
    assert Path("h200_sxm.toml").read_text().count("[fitted.mine]") == 1
    assert after.fitted["other"] == both.fitted["other"]
    assert after.default_stack == both.default_stack == "mine"
    assert (both.fitted["mine"].version, after.fitted["mine"].version) == ("1.2.3", "1.3.0")


def test_another_profile_of_the_chip_is_taken_if_said_so(do):
    do(f"{KERNELS} --hardware h100_sxm --measured-on h200_sxm")
    profile = load_hardware("out.toml")
    assert profile.name == load_hardware("h100_sxm").name
    assert "measured on h200_sxm" in profile.fitted["mine"].source


@pytest.mark.parametrize("header", ["[ fitted.trtllm", '[fitted."trtllm"'])
def test_a_stack_whose_header_is_not_found_is_not_replaced(header, folder, refuse):
    Path("h200_sxm.toml").write_text(SHIPPED.replace("[fitted.trtllm", header))
    assert load_hardware("./h200_sxm.toml").fitted == H200.fitted
    line = "fit kernels trtllm.csv --hardware h200_sxm.toml --output out.toml"
    refuse(line, "--hardware: got 'fitted.trtllm'; expected a header ")


def test_the_comment_of_the_next_stack_stays(do):
    Path("h200_sxm.toml").write_text(SHIPPED.replace("[fitted.vllm]", "# of vllm\n[fitted.vllm]"))
    do("fit kernels trtllm.csv --hardware h200_sxm.toml --output out.toml")
    assert "# of vllm\n[fitted.vllm]" in Path("out.toml").read_text(encoding="utf-8")


# fit check


@each_listed
def test_validate_tells_by_its_status(options, status, folder, ended):
    found, out, err = ended(f"fit check mine.toml all.csv {options}")
    assert (found, len(err.splitlines())) == (status, status > 0)
    assert err.startswith("specmodel: " if status else "")
    if status < 2:
        whole = [line.split()[:3] for line in out.splitlines() if " all " in line]
        assert whole == [[kind, DTYPES[kind], "all"] for kind in sorted(KINDS)]
        assert len(widest(out)) <= 80


def test_validate_draws_and_fit_alone_shows_its_help(do, ended):
    status, out, err = ended("fit")
    assert (status, "Usage: specmodel fit" in out + err) == (2, True)
    do(f"{VALIDATE} --figure a.png")
    assert Path("a.png").read_bytes().startswith(b"\x89PNG")
