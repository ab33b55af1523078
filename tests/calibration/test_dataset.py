"""The script that writes published timings as a table, and lists what there is."""

from pathlib import Path

import pytest
from rows import each_listed

import dataset
import specmodel
from specmodel.calibrate.measure import read_measurements


@each_listed
def test_one_line_names_what_is_no_table(words, fragments, refuse) -> None:
    refuse(dataset.main, words, *fragments)


def test_it_says_what_to_install(refuse, monkeypatch) -> None:
    monkeypatch.setattr("published.datasets.find_spec", lambda _name: None)
    refuse(dataset.main, "--list", "aiconfigurator_core", "pip install '.[datasets]'")


@pytest.mark.dataset
@each_listed
def test_it_names_the_tables_there_are(words, fragments, refuse, tmp_path) -> None:
    (tmp_path / "out.csv").write_bytes(b"kept as it is\n")
    refuse(dataset.main, f"{words} --output out.csv", *fragments)


@pytest.mark.dataset
def test_the_list_says_what_the_profiles_have_fitted(do) -> None:
    listed = do(dataset.main, "--list")
    assert do(dataset.main) == listed
    rows = [line.split() for line in listed.splitlines()]
    assert rows[0] == ["hardware", "stack", "version", "shipped"]
    assert ["h200_sxm", "trtllm", "1.3.0rc20", "fitted"] in rows
    assert {row[0] for row in rows[1:]} <= set(specmodel.list_hardware())


@pytest.mark.dataset
def test_it_writes_a_table_that_fit_reads(do) -> None:
    out = do(dataset.main, "a100_sxm_80gb vllm 0.14.0 --output a100.csv")
    table = read_measurements("a100.csv")
    assert out.startswith(f"Written: a100.csv\n{len(table)} points: ")
    for role, count in table["role"].value_counts().items():
        assert f"{count} {role}" in out
    assert set(table["component"]) == {"experts", "gemm", "attention", "prompt_attention"}
    assert Path("a100.csv").read_text().startswith("# aiconfigurator-core")
