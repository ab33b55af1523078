"""Notebooks: few cells, stored without output, and every cell runs, top to bottom."""

import json
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

NEEDS = {"explorer": "ipywidgets"}
NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_is_stored_without_output(path: Path, monkeypatch) -> None:
    pytest.importorskip(NEEDS.get(path.stem, "matplotlib"))
    monkeypatch.setenv("MPLBACKEND", "agg")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    assert 1 < len(cells) <= 15
    names: dict[str, object] = {"__name__": "__main__"}
    for number, cell in enumerate(cells):
        if cell["cell_type"] != "code":
            continue
        assert cell["outputs"] == []
        assert cell["execution_count"] is None
        exec(compile("".join(cell["source"]), f"{path.name}[{number}]", "exec"), names)
    import matplotlib.pyplot as plt

    plt.close("all")
