"""Settings of property tests, and fixtures that run commands or simulate a GPU.

Long studies, which are marked as slow, run with ``--slow`` or if SPECMODEL_SLOW=1 is set.
"""

import os
import shlex
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import settings
from printed import check_one_line, in_one_line, parse

from specmodel.core.base.text import VERBOSE

os.environ["XDG_DATA_HOME"] = "/nowhere"  # profiles of this machine are not those of tests

settings.register_profile("specmodel", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("specmodel")


def pytest_addoption(parser: pytest.Parser) -> None:
    given = os.environ.get("SPECMODEL_SLOW") == "1"
    parser.addoption("--slow", action="store_true", default=given, help="run the long studies too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("slow"):
        has_numba = find_spec("numba") is not None
        for item in items:
            is_search = item.get_closest_marker("search") and not has_numba
            if item.get_closest_marker("slow") or is_search:
                item.add_marker(pytest.mark.skip(reason="a long study, run with --slow"))


@pytest.fixture
def verbose() -> Iterator[None]:
    """Print answers with all their assumptions, as with ``--verbose``."""
    token = VERBOSE.set(True)
    yield
    VERBOSE.reset(token)


@pytest.fixture
def lent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[object, object]]:
    """A simulated GPU and its process group, with the clocks of both and few calls per timing."""
    torch = pytest.importorskip("torch")
    from cuda_install import standing_in

    from specmodel.calibrate.measure.kernels import bench, device

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # threads that wait for each other on a busy machine take long
    (tmp_path / "bin").mkdir()
    with standing_in(tmp_path / "bin") as (gpu, group):
        clock = SimpleNamespace(perf_counter=lambda: gpu.host, monotonic=lambda: gpu.host)
        monkeypatch.setattr(bench, "time", clock)
        monkeypatch.setattr(device, "time", clock)
        monkeypatch.setattr(bench, "MOST_CALLS", 3)
        yield gpu, group
    torch.set_num_threads(threads)


@pytest.fixture
def gpu(lent: tuple[object, object]) -> object:
    """A simulated GPU."""
    return lent[0]


@pytest.fixture
def ended(capsys):
    """Run a command line; return its status, its output and its text on stderr."""
    from specmodel import cli  # which the core's tests run without

    return lambda command: (cli.main(shlex.split(command)), *capsys.readouterr())


@pytest.fixture
def run(ended):
    """Run a command line that must succeed; return its output, on request in one line."""

    def run(command, one_line=False):
        status, out, err = ended(command)
        assert status == 0, err
        assert all(line.startswith("specmodel: ") for line in err.splitlines())
        return in_one_line(out) if one_line else out

    return run


@pytest.fixture
def document(run):
    """Run a command line that must succeed with ``--json``; return its document, read strictly."""
    return lambda command: parse(run(f"{command} --json"))


@pytest.fixture
def rows(document):
    """Run a command line that must succeed with ``--json``; return the rows of its document."""
    return lambda command: document(command)["rows"]


@pytest.fixture
def refuse(ended):
    """Run a command line that must fail; return its one line, which contains these fragments."""

    def refuse(command, *fragments):
        status, out, err = ended(command)
        check_one_line(status, out, err, fragments)
        return err

    return refuse
