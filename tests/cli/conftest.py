"""What several tests of commands use."""

import shlex

import pytest

from specmodel import cli

SMALL = "--concurrency 1,3 --prompt-length 16 --output-length 16 --repeats 2 --requests 1"


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """No command tells its progress, however slow the machine."""
    monkeypatch.setattr("specmodel.cli.answering._LINES", float("inf"))


@pytest.fixture
def measure(tmp_path, monkeypatch, capsys):
    """Run the command and return what it prints and what it says beside."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr("specmodel.cli.measure_engine._POLL", 0.05)

    def done(url, options=SMALL, status=0):
        words = shlex.split(f"measure-engine {url} --output served.csv {options}")
        found = cli.main(words)
        out, err = capsys.readouterr()
        assert found == status, err
        if status == 2:
            assert err.splitlines()[-1].startswith("specmodel: error: ")
        return out, err

    return done
