"""Files, and ways to run ``specmodel simulate``, for all tests of this folder."""

import sys

import numpy as np
import pytest
from made_traces import iid_process
from printed import in_one_line
from simulated import FILES

from specmodel.simulate.traces import load_preset, sample_trace, write_trace


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    path = tmp_path_factory.mktemp("files")
    for name, content in FILES.items():
        (path / name).write_bytes(content)
    for name in ("folder.csv", "folder.png", "folder.jsonl"):
        (path / name).mkdir()
    lines = "".join(f"{k},{0.01 * (1 + 0.2 * k)}\n" for k in range(8))
    (path / "times.csv").write_text("draft_length,step_time\n" + lines, encoding="utf-8")
    (path / "hard.csv").hardlink_to(path / "times.csv")
    (path / "soft.csv").symlink_to(path / "times.csv")
    process, generator = load_preset("code-ngram"), np.random.default_rng(0)
    write_trace(sample_trace(process, 12, 60, generator), path / "trace.jsonl")
    write_trace(sample_trace(iid_process(1.0, 40), 3, 400, generator), path / "perfect.jsonl")
    return path


@pytest.fixture(autouse=True)
def folder(files, monkeypatch):
    """The current folder, in which nothing appears but what a test names itself."""
    monkeypatch.chdir(files)
    return files


@pytest.fixture
def run(ended):
    """Run a command line that must succeed and warn of nothing; return what it prints."""

    def run(command, one_line=False):
        path = list(sys.path)
        status, out, err = ended(command)
        assert (status, err) == (0, "")
        assert sys.path == path
        return in_one_line(out) if one_line else out

    return run
