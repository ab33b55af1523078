"""Run the cells of a notebook from top to bottom, and collect their outputs as Jupyter would.

Usage: python tests/notebook_run.py NOTEBOOK ..., to store the outputs in the notebooks.
"""

import ast
import base64
import contextlib
import io
import json
import os
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from figure_faults import cut_off
from matplotlib.figure import Figure


def shown_by(path: Path) -> tuple[list[list[dict[str, Any]]], list[str]]:
    """Return the outputs of each cell of code, and what cannot be read in its figures."""
    names: dict[str, Any] = {"__name__": "__main__"}
    outputs, faults = [], []
    for number, cell in enumerate(cells_of(path, "code")):
        source = "".join(cell["source"])
        written = io.StringIO()
        with contextlib.redirect_stdout(written):
            value = run(source, f"{path.name}[{number}]", names)
        shown = []
        if written.getvalue():
            shown.append({"name": "stdout", "output_type": "stream", "text": lines(written)})
        if isinstance(value, Figure):
            faults.append(f"{path.name}[{number}] ends with a figure: Jupyter shows pyplot's alone")
        elif value is not None and not source.rstrip().endswith(";"):
            shown.append(result(value, number + 1))
        for figure in map(plt.figure, plt.get_fignums()):
            faults += cut_off(figure)
            shown.append(picture(figure))
        plt.close("all")
        outputs.append(shown)
    return outputs, faults


def cells_of(path: Path, kind: str = "") -> list[dict[str, Any]]:
    """Return the cells of a notebook: all of them, or those of code or of markdown."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"].startswith(kind)]


def run(source: str, name: str, names: dict[str, Any]) -> Any:
    """Run a cell, and return the value of its last line if that is an expression."""
    *body, last = ast.parse(source).body
    if not isinstance(last, ast.Expr):
        body, last = [*body, last], None
    exec(compile(ast.Module(body, []), name, "exec"), names)
    return last and eval(compile(ast.Expression(last.value), name, "eval"), names)


def lines(text: io.StringIO) -> list[str]:
    return text.getvalue().splitlines(keepends=True)


def result(value: Any, count: int) -> dict[str, Any]:
    is_widget = hasattr(value, "_repr_mimebundle_")  # whose choices are all that ships
    text = f"{type(value).__name__}(...)" if is_widget else repr(value)
    data = {"text/plain": lines(io.StringIO(text))}
    if hasattr(value, "_repr_html_"):
        data = {"text/html": lines(io.StringIO(value._repr_html_())), **data}
    return {"data": data, "execution_count": count, "metadata": {}, "output_type": "execute_result"}


def picture(figure: Any) -> dict[str, Any]:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=150, metadata={"Software": None})
    data = {"image/png": base64.b64encode(file.getvalue()).decode() + "\n"}
    return {"data": data, "metadata": {}, "output_type": "display_data"}


def texts_of(outputs: list[list[dict[str, Any]]]) -> list[list[str]]:
    """Return the texts of the outputs, cell by cell."""
    parts = (
        [each.get("text", each.get("data", {}).get("text/plain", [])) for each in shown]
        for shown in outputs
    )
    return [list(chain.from_iterable(each)) for each in parts]


def store(path: Path) -> None:
    """Write the outputs of a notebook into its file."""
    outputs, faults = shown_by(path)
    if faults:
        raise SystemExit("\n".join(faults))
    notebook = json.loads(path.read_text(encoding="utf-8"))
    cells = (cell for cell in notebook["cells"] if cell["cell_type"] == "code")
    for number, (cell, shown) in enumerate(zip(cells, outputs, strict=True), start=1):
        cell |= {"execution_count": number, "outputs": shown}
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    del __file__  # pandas then cuts tables as in a session, and as the test that runs notebooks
    for notebook in [Path(word).resolve() for word in sys.argv[1:]]:
        os.chdir(notebook.parent)
        store(notebook)
