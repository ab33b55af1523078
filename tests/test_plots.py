"""Figures draw the data they are given, with labels and units."""

import pandas as pd
import pytest

pytest.importorskip("matplotlib")

from matplotlib.figure import Figure

from specmodel import plots


def test_closed_loop_draws_points_with_bars_and_a_line_for_each_draft_length() -> None:
    table = pd.DataFrame({
        "batch_size": [4, 1, 1, 4], "draft_length": [1, 1, 5, 5],
        "measured": [0.8, 0.7, 0.4, 0.5], "predicted": [0.82, 0.69, 0.41, 0.52], "spread": 0.02,
    })  # fmt: skip
    ax = plots.closed_loop(table, Figure().add_subplot())
    measured = [c for c in ax.containers if c.get_label().startswith("draft length")]
    assert [c.get_label() for c in measured] == ["draft length 1", "draft length 5"]
    assert [c[0].get_xydata().tolist() for c in measured] == [
        [[1, 0.7], [4, 0.8]], [[1, 0.4], [4, 0.5]],
    ]  # fmt: skip
    lines = [line.get_xydata().tolist() for line in ax.lines if line.get_linestyle() == "-"]
    assert [[1, 0.69], [4, 0.82]] in lines
    assert [[1, 0.41], [4, 0.52]] in lines
    assert ax.get_xlabel() == "batch size (requests)"
    assert ax.get_ylabel() == "target efficiency"
