"""Fixtures that run the scripts of calibration/, and skip tests without their tables."""

import shlex

import pytest

from program import carry_out


@pytest.fixture(autouse=True)
def _tables(request):
    """Skip tests that need the published tables if these are not installed."""
    if request.node.get_closest_marker("dataset"):
        pytest.importorskip("aiconfigurator_core")
        pytest.importorskip("pyarrow")


@pytest.fixture
def run_script(tmp_path, monkeypatch, capsys):
    """Run a script's command in an empty folder; return status, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def run(command, words):
        status = carry_out(command, shlex.split(words))
        return status, *capsys.readouterr()

    return run


@pytest.fixture
def do(run_script):
    """Run a script that must succeed; return its output."""

    def do(command, words=""):
        status, out, err = run_script(command, words)
        assert (status, err) == (0, "")
        assert max(map(len, out.splitlines())) <= 80 or "--csv" in words or "--json" in words
        return out

    return do


@pytest.fixture
def refuse(run_script, tmp_path):
    """Run a script that must fail and write nothing; check and return its one line."""

    def refuse(command, words, *fragments):
        before = {path: path.read_bytes() for path in tmp_path.iterdir()}
        status, out, err = run_script(command, words)
        assert (status, out) == (2, "")
        assert err.startswith(f"{command.name}: error: ")
        assert err.endswith("\n")
        assert len(err.splitlines()) == 1
        assert [text for text in fragments if text not in err] == [], err
        assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
        return err

    return refuse
