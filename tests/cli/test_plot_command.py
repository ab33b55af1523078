"""`specmodel plot`: what other commands print becomes a figure; what cannot be is refused."""

import io
import sys
from pathlib import Path

import pandas as pd
import pytest
from printed import typed_wrong
from rows import each_listed, each_row, rows_of

STARTS = {".png": b"\x89PNG", ".pdf": b"%PDF", ".svg": b"<?xml"}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    steps = "draft_length,step_time\n" + "".join(f"{i},{1 + i / 5}\n" for i in range(8))
    Path("times.csv").write_text(steps)
    Path("table.csv").write_text("batch_size,speedup\n1,1.5\n")
    Path("folder.pdf").mkdir()
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "line"), rows_of("commands.txt", "figures"))
def test_what_a_command_prints_is_drawn_from_a_pipe(kind, line, ended, monkeypatch):
    pytest.importorskip("matplotlib")
    status, printed, _ = ended(line if line.startswith("sweep") else f"{line} --csv")
    assert status == 0
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(printed.encode())))
    assert ended(f"plot {kind} - --output a.pdf") == (0, "Wrote a.pdf.\n", "")
    assert Path("a.pdf").read_bytes().startswith(STARTS[".pdf"])


@pytest.mark.parametrize(("suffix", "start"), STARTS.items())
def test_the_suffix_tells_the_format(suffix, start, ended):
    pytest.importorskip("matplotlib")
    assert ended(f"plot speedup table.csv --output a{suffix}")[0] == 0
    assert Path(f"a{suffix}").read_bytes().startswith(start)


def test_settings_are_passed_on(ended, drawn):
    for kind in ("tornado", "waterfalls"):
        assert ended(f"plot {kind} table.csv --output a.pdf --outcome target-efficiency")[0] == 0
        assert drawn[-1][2].items() >= {"outcome": "target_efficiency", "has_title": False}.items()
    for width, inches in (("column", 3.3), ("page", 6.8), ("5", 5.0)):
        words = f"plot speedup table.csv --output a.pdf --no-marks --title --width {width}"
        assert ended(words)[0] == 0
        told = {"marks": False, "has_title": True, "width": inches}
        assert drawn[-1][2].items() >= told.items()


@each_listed
def test_rows_can_be_chosen(where, left, ended, drawn):
    rows = [(t, n, b) for t in "ab" for n in range(1, 9) for b in (1, 8)]
    table = pd.DataFrame(rows, columns=["target", "draft_length", "batch_size"])
    table.assign(speedup=table["batch_size"] + 0.5, fits=table["batch_size"] < 8).to_csv("t.csv")
    assert ended(f"plot speedup t.csv --output a.pdf {where}")[0] == 0
    for name, values in left.items():
        assert set(drawn[0][1][name]) == set(values)


GOOD = "plot speedup table.csv --output a.pdf"


@each_row(("command", "fragments"), typed_wrong("plot_command", good=GOOD))
def test_what_cannot_be_drawn_is_one_line_and_status_2(command, fragments, refuse):
    refuse(command, *fragments)
    assert not Path("a.pdf").exists()


def test_a_table_larger_than_memory_is_refused_before_it_is_read(ended, refuse, monkeypatch):
    pytest.importorskip("matplotlib")
    pytest.importorskip("pyarrow")
    pd.DataFrame({"batch_size": range(1, 101), "speedup": 1.5}).to_parquet("large.parquet")
    assert ended("plot speedup large.parquet --output a.pdf")[0] == 0
    monkeypatch.setattr("specmodel.core.base.tables.MOST_BYTES", 1000)
    monkeypatch.setattr("pandas.read_parquet", None)
    expected = "table: got 'large.parquet'; expected at most"
    refuse("plot speedup large.parquet --output a.pdf", expected, "not 100 rows of 2 columns")


def test_without_matplotlib_it_says_what_to_install(refuse, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    told = "--output: got 'matplotlib'. The package matplotlib is not installed"
    refuse("plot speedup table.csv --output a.pdf", told, "pip install '.[plots]'")
