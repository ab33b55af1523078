"""Notebooks are short; with the wheel, in another folder, they give their stored outputs."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")
import pandas as pd
from notebook_run import cells_of, texts_of
from rows import slow

NEEDS = {"policies_recorded": "pyarrow", "capacity": "numba", "rollouts": "numba"}
SHORT = ("moesd",)
ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
LONG = [path.stem for path in NOTEBOOKS if path.stem not in SHORT]

RUN = """if True:
    import json, sys
    from pathlib import Path

    from notebook_run import shown_by, texts_of

    outputs, faults = shown_by(Path(sys.argv[1]))
    import specmodel

    assert Path(specmodel.__file__).is_relative_to(sys.argv[2]), specmodel.__file__
    assert faults == []
    print(json.dumps(texts_of(outputs)))
"""


@pytest.fixture(scope="session")
def elsewhere(tmp_path_factory):
    """Return a folder outside the checkout with the files of the wheel and the notebooks."""
    folder = tmp_path_factory.mktemp("elsewhere")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    copies = {name: name for name in wheel["packages"]} | wheel["force-include"]
    for source, target in copies.items():
        shutil.copytree(ROOT / source, folder / "site" / target)
    shutil.copytree(ROOT / "notebooks", folder / "notebooks")
    return folder


def typed_numbers(text):
    """Return the numbers in a text, except those in code, in names such as H200, in citations."""
    text = re.sub(r"`[^`]*`", "", text)
    text = re.sub(r"arXiv:\S+|#\d+|NeurIPS \d+|(Figure|Table)s? \d+((,| and) \d+)*", "", text)
    return re.findall(r"\S*\d\S*", re.sub(r"[\w.+/-]*[^\W\d][\w.+/-]*", "", text))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_short_and_goes_from_a_question_to_a_computed_answer(path):
    assert 1 < len(cells_of(path)) <= 15
    code = cells_of(path, "code")
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    texts = ["".join(cell["source"]) for cell in cells_of(path, "markdown")]
    assert texts[0].partition("\n\n**Question.** ")[2]
    assert "?" in texts[0]
    assert {text: found for text in texts if (found := typed_numbers(text))} == {}
    *_, last = cells_of(path)
    assert last["cell_type"] == "code"
    printed = "".join(each["text"][-1] for each in last["outputs"] if "text" in each)
    assert re.search(r"\d.*\.\n\Z", printed)


@pytest.mark.parametrize("stem", [*SHORT, *slow(*LONG)])
def test_a_notebook_runs_with_the_wheel_in_another_folder(stem, elsewhere):
    pytest.importorskip(NEEDS.get(stem, "matplotlib"))
    path = ROOT / "notebooks" / f"{stem}.ipynb"
    paths = os.pathsep.join([str(elsewhere / "site"), str(Path(__file__).parent)])
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", RUN, path.name, str(elsewhere)],
        cwd=elsewhere / "notebooks", env=os.environ | {"PYTHONPATH": paths, "MPLBACKEND": "agg"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout) == texts_of([cell["outputs"] for cell in cells_of(path, "code")])


def test_what_a_notebook_reads_is_what_was_measured():
    from specmodel.calibrate.measure import read_measurements

    copied, measured = ROOT / "notebooks/measured", ROOT / "calibration/results/h100_sxm_torch"
    name = "closed_loop_summary.csv"
    assert (copied / name).read_bytes() == (measured / name).read_bytes()
    medians = read_measurements(copied / "timings.csv")
    repeats = read_measurements(measured / "gpu.csv")
    pd.testing.assert_frame_equal(medians, repeats[list(medians)])


def test_the_evaluation_that_a_notebook_reads_is_the_one_of_the_results():
    """At the settings that its first lines name."""
    table = pd.read_csv(ROOT / "notebooks/data/cascade_claims.csv", comment="#", index_col="claim")
    results = pd.read_csv(ROOT / "calibration/results/cascade/claims.csv")
    at = "routing_correlation == 0.18 and output_tokens == 512 and first_draft_length == 2"
    own = results.query(at).set_index("look_up")
    shown = table.drop(columns="paper")
    found = own.loc[list(shown), list(shown.index)].T
    pd.testing.assert_frame_equal(shown, found, check_names=False)


def test_the_pairs_that_a_notebook_draws_are_those_of_the_results():
    pairs = pd.read_csv(ROOT / "notebooks/data/cascade_pairs.csv", comment="#")
    results = pd.read_csv(ROOT / "calibration/results/cascade/claims.csv")
    own = results.query("look_up == 'answers' and output_tokens == 512 and first_draft_length == 2")
    own = own.set_index("routing_correlation")
    keys = ["routing_correlation", "policy"]
    worst = (1 / pairs.groupby(keys)["speedup"].min() - 1).unstack()
    names = {"no back-off": "worst slowdown, no back-off", "cascade": "worst slowdown, cascade"}
    names |= {f"fixed:{n}": f"worst slowdown, fixed:{n}" for n in (1, 2, 3)}
    told = own.loc[worst.index, [*names.values()]].set_axis([*names], axis=1)
    pd.testing.assert_frame_equal(worst[[*names]], told, rtol=1e-4, check_names=False)
    assert len(pairs) == 2 * 5 * 7 * len(names)


def test_the_peaks_of_moesd_are_those_that_its_engine_is_fitted_to():
    """The notebook calls these peaks Table 1."""
    shown = pd.read_csv(ROOT / "notebooks/data/moesd_peaks.csv", comment="#").query("table == 1")
    fitted = pd.read_csv(ROOT / "calibration/tables/moesd_vllm_a800.csv", comment="#")
    fitted = fitted.rename(columns={"value": "speedup"})
    pd.testing.assert_frame_equal(shown.drop(columns="table"), fitted[list(shown)[1:]])


def test_what_is_said_of_moesd_is_what_its_notebook_finds():
    """Each number with decimals is the paper's or is printed by a cell."""
    page = (ROOT / "docs/accuracy.md").read_text(encoding="utf-8")
    section = page.partition("\n## MoESD: paper and ours\n")[2].partition("\n## ")[0]
    code = cells_of(ROOT / "notebooks/moesd.ipynb", "code")
    shown = str(texts_of([cell["outputs"] for cell in code]))
    said = set(re.findall(r"\d\.\d+", section))
    assert len(said) > 15
    assert {number for number in said if number not in shown} == set()
