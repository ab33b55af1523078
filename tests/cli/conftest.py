"""What several tests of commands use."""

import shlex

import pytest
from printed import check_one_line, in_one_line, parse

from specmodel import cli


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """No command tells its progress, however slow the machine."""
    monkeypatch.setattr("specmodel.cli.output._LINES", float("inf"))


@pytest.fixture
def ended(capsys):
    """Run a command line; return its status, what it prints, and what it says on stderr."""
    return lambda command: (cli.main(shlex.split(command)), *capsys.readouterr())


@pytest.fixture
def run(ended):
    """Run a command line that must succeed; return what it prints, in one line if asked for."""

    def run(command, one_line=False):
        status, out, err = ended(command)
        assert status == 0, err
        assert all(line.startswith("specmodel: ") for line in err.splitlines())
        return in_one_line(out) if one_line else out

    return run


@pytest.fixture
def document(run):
    """Run a command line that must succeed; return its JSON, read strictly."""
    return lambda command: parse(run(f"{command} --json"))


@pytest.fixture
def rows(document):
    """The rows of that."""
    return lambda command: document(command)["rows"]


@pytest.fixture
def refuse(ended):
    """Run a command line that must fail; return its one line, which has these fragments."""

    def refuse(command, *fragments):
        status, out, err = ended(command)
        check_one_line(status, out, err, fragments)
        return err

    return refuse
