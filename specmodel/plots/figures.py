"""Figures of `plots` as files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from specmodel.base.errors import InputError
from specmodel.base.files import check_writable, write_bytes

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".pdf", ".svg")
COLUMN_WIDTH = 3.3
"""Inches of a column of a paper."""
TWO_COLUMNS = 6.8
"""Inches of two, with the gap between them."""
FONT_SIZE = 8
"""Points of labels; ticks and legends have no text below 6.7."""

_DPI = 300
_DRAFT_HEIGHT, _LEAST_HEIGHT = 3.5, 1.7


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
    kind: str,
    table: pd.DataFrame,
    path: str,
    argument: str = "figure",
    *,
    width: float = COLUMN_WIDTH,
    **settings: Any,
) -> None:
    """Draw a figure of `plots` and write it.

    Parameters
    ----------
    kind
        One of `plots.KINDS`.
    table
        What it draws.
    path
        Where; the suffix tells the format.
    argument
        Name that an error should carry.
    width
        In inches; the height follows from the kind and the table [-].
    settings
        What the function of `plots` takes beside table and axes.

    Raises
    ------
    InputError
        If the table cannot be drawn, matplotlib is not installed or the file cannot be written.
    """
    check_figure(argument, path)
    from io import BytesIO

    from matplotlib import rc_context

    with rc_context({"font.size": FONT_SIZE}):
        drawn = BytesIO()
        draw_figure(kind, table, width=width, **settings).savefig(
            drawn, format=Path(path).suffix[1:]
        )
    write_bytes(path, drawn.getvalue(), argument)


def draw_figure(
    kind: str, table: pd.DataFrame, *, width: float = COLUMN_WIDTH, **settings: Any
) -> Figure:
    """Draw a figure of `plots`, as high as it needs to be.

    Parameters
    ----------
    kind
        One of `plots.KINDS`.
    table
        What it draws.
    width
        In inches [-].
    settings
        What the function of `plots` takes beside table and axes.

    Returns
    -------
    matplotlib.figure.Figure
        Of its own, no figure of pyplot's.

    Raises
    ------
    InputError
        If the table cannot be drawn.
    """
    from matplotlib.figure import Figure

    from specmodel.plots import KINDS

    chosen = KINDS[kind]
    figure = Figure(figsize=(width, _DRAFT_HEIGHT), dpi=_DPI, layout="constrained")
    axes = figure.subplots(chosen.panels, squeeze=False, sharex=kind == "timeline")[:, 0]
    chosen.draw(table, axes if chosen.panels > 1 else axes[0], **settings)
    rows = sum(abs(ax.get_ylim()[1] - ax.get_ylim()[0]) for ax in axes)
    wanted = chosen.height + chosen.row_height * rows if chosen.row_height else chosen.height
    height = min(max(wanted, _LEAST_HEIGHT), chosen.most_height)
    legends = [ax.get_legend() for ax in figure.axes]
    figure.draw_without_rendering()
    above = [legend.get_window_extent().height for legend in legends if legend is not None]
    figure.set_figheight(height + sum(above) / _DPI)
    return figure
