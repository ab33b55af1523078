"""What several tests of commands use."""

import pytest


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """No command tells its progress, however slow the machine."""
    monkeypatch.setattr("specmodel.cli.output._LINES", float("inf"))
