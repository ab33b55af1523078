"""What several tests of commands use."""

import pytest


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """No command tells its progress, however slow the machine."""
    monkeypatch.setattr("specmodel.cli.output._LINES", float("inf"))


@pytest.fixture
def drawn(monkeypatch):
    """Figures that would be drawn: kind, table and settings of each."""
    pytest.importorskip("matplotlib")
    figures = []
    monkeypatch.setattr(
        "specmodel.show.plots.figures.save_figure",
        lambda kind, table, *_, **settings: figures.append((kind, table, settings)),
    )
    return figures
