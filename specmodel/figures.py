"""Figures of `plots` as files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from specmodel.errors import InputError
from specmodel.profiles import check_writable, write_bytes

if TYPE_CHECKING:
    import pandas as pd

SUFFIXES = (".png", ".pdf", ".svg")


def check_figure(argument: str, path: str) -> None:
    """Refuse what cannot be drawn, before anything is computed.

    Parameters
    ----------
    argument
        Name that an error should carry.
    path
        File of the figure; its suffix tells the format.

    Raises
    ------
    InputError
        If the suffix is unknown, matplotlib is not installed, or the file cannot be written.
    """
    if Path(path).suffix not in SUFFIXES:
        raise InputError(argument, path, "a .png, .pdf or .svg file")
    check_writable(path, argument)
    try:
        import matplotlib  # noqa: F401 - is it there?
    except ImportError:
        expected = "it to be installed: pip install 'specmodel[plots]'"
        raise InputError(argument, "no package matplotlib", expected) from None


def save_figure(
    kind: str, table: pd.DataFrame, path: str, argument: str = "figure", *, rows: int = 1
) -> None:
    """Draw a figure of `plots` and write it.

    Parameters
    ----------
    kind
        Name of a function of `plots`.
    table
        What it draws.
    path
        Where; the suffix tells the format.
    argument
        Name that an error should carry.
    rows
        Axes that the figure wants, one above the other; with several it is two columns wide [-].

    Raises
    ------
    InputError
        If matplotlib is not installed or the file cannot be written.
    """
    check_figure(argument, path)
    from io import BytesIO

    from matplotlib import rc_context
    from matplotlib.figure import Figure

    from specmodel import plots

    figure = Figure(figsize=(3.3 if rows == 1 else 6.8, 3.3), dpi=300, layout="constrained")
    with rc_context({"font.size": 8}):
        getattr(plots, kind)(table, figure.subplots(rows, sharex=True))
        drawn = BytesIO()
        figure.savefig(drawn, format=Path(path).suffix[1:])
    write_bytes(path, drawn.getvalue(), argument)
