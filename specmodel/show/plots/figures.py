"""Save figures of `plots` as files: their kinds by name, and their sizes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from specmodel.core.base.errors import InputError, import_extra
from specmodel.core.base.files import check_writable, write_bytes
from specmodel.show import labels
from specmodel.show.plots import batches, curves, frames, maps, passes, rows
from specmodel.show.plots.style import SMALL

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_METADATA = {".png": None, ".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
"""Metadata without dates, so that the same figure gives the same file, by suffix."""
COLUMN_WIDTH = 3.3
"""Width of a column of a paper, in inches."""
TWO_COLUMNS = 6.8
"""Width of two columns and the gap between them, in inches."""
WIDTHS = {"column": COLUMN_WIDTH, "page": TWO_COLUMNS}
FONT_SIZE = 8
"""Size of labels in points; the smallest text, in ticks and legends, has 6.7."""

_DPI = 300
_CHARACTERS_AN_INCH = 19
_SHARED = ("timeline", "load")
"""Kinds of figures whose panels share the horizontal axis."""
_LEAST_HEIGHT, _LEAST_WIDTH = 1.7, 0.62
"""Smallest height of a figure and smallest width of a panel, in inches."""


class Kind(Struct, frozen=True):
    """A kind of figure, and its height without the legends above it, in inches.

    If the vertical axis numbers rows, each row adds `row_height`, up to `most_height` in total.
    `panels` returns the number of panels, which are side by side if `is_across`.
    """

    draw: Callable[..., Any]
    height: float
    row_height: float = 0.0
    most_height: float = 8.0
    panels: Callable[[pd.DataFrame], int] | None = None
    is_across: bool = False


_ALL = (
    Kind(batches.speedup, 2.4),
    Kind(batches.target_efficiency, 2.4),
    Kind(curves.active_experts, 2.1),
    Kind(maps.best_draft_length, 0.8, 0.2, most_height=3.5),
    Kind(maps.break_even, 0.8, 0.2, most_height=3.5),
    Kind(maps.speedup_map, 0.8, 0.2, most_height=3.5),
    Kind(passes.roofline, 2.4),
    Kind(passes.components, 2.3),
    Kind(rows.waterfalls, 1.0, 0.24, panels=rows.num_points, is_across=True),
    Kind(rows.tornado, 0.85, 0.31),
    Kind(rows.sobol, 1.0, 0.3),
    Kind(curves.predicted_against_measured, 3.2),
    Kind(curves.closed_loop, 2.2),
    Kind(curves.timeline, 2.8, panels=lambda _: 2),
    Kind(rows.policies, 0.6, 0.25),
    Kind(curves.pareto, 2.4),
    Kind(rows.policy_bars, 2.3),
    Kind(curves.load, 4.2, panels=curves.load_panels),
    Kind(rows.capacity, 0.8, 0.3),
    Kind(curves.drain, 3.8, panels=lambda _: 2),
)
KINDS = {kind.draw.__name__: kind for kind in _ALL}
"""Kinds of figures by the names of the functions that draw them."""


def kind_of(name: str) -> Kind | None:
    """Return one of `KINDS`, or a kind that draws the column `name` over the batch size."""
    if name in KINDS or labels.unit(name) == "-":
        return KINDS.get(name)
    return Kind(partial(batches.over_batch_size, quantity=name), 2.4)


def check_figure(argument: str, path: str) -> None:
    """Refuse a figure that cannot be drawn or written before anything is computed."""
    if Path(path).suffix not in _METADATA:
        raise InputError(argument, path, "a .png, .pdf or .svg file")
    check_writable(path, argument)
    import_extra("matplotlib", "plots", argument)


def save_figure(
    kind: str, table: pd.DataFrame, path: str, argument: str = "figure", **settings: Any
) -> None:
    """Draw a kind as `draw_figure` does, and write the file in the format of its suffix."""
    check_figure(argument, path)
    from io import BytesIO

    from matplotlib import rc_context

    # TrueType fonts in PDF, as some venues refuse Type 3, and text in SVG
    look: Any = {"font.size": FONT_SIZE, "pdf.fonttype": 42, "svg.fonttype": "none"}
    suffix = Path(path).suffix
    form: Any = {"format": suffix[1:], "metadata": _METADATA[suffix]}
    with rc_context(look | {"svg.hashsalt": kind}):  # the same table gives the same bytes
        drawn = BytesIO()
        draw_figure(kind, table, **settings).savefig(drawn, **form)
    write_bytes(path, drawn.getvalue(), argument)


def draw_figure(
    kind: str,
    table: pd.DataFrame,
    *,
    width: float = COLUMN_WIDTH,
    has_title: bool = False,
    **settings: Any,
) -> Figure:
    """Draw a kind that `kind_of` knows on a figure of a suitable height, without pyplot."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    chosen = kind_of(kind) or KINDS[kind]
    draft = chosen.most_height if chosen.row_height else chosen.height
    near: Any = {"w_pad": 0.03, "wspace": 0} if chosen.is_across else {}
    figure = Figure(figsize=(width, draft), dpi=_DPI, layout=ConstrainedLayoutEngine(**near))
    FigureCanvasAgg(figure)  # keeps its renderer, so that measuring text is cheap
    count = chosen.panels(table) if chosen.panels else 1
    across = min(count, max(1, int((width - 1.2) / _LEAST_WIDTH))) if chosen.is_across else 1
    shared: Any = {"sharex": kind in _SHARED, "sharey": chosen.is_across}
    down = -(-count // across)
    across = -(-count // down)
    axes = figure.subplots(down, across, squeeze=False, **shared).ravel()
    for spare in axes[count:]:
        spare.remove()
    axes = axes[:count]
    chosen.draw(table, axes if chosen.panels else axes[0], **settings)
    figure.align_ylabels()
    above = _title(figure, table) if has_title else 0.0
    num_rows = sum(abs(ax.viewLim.height) for ax in axes[::across])
    wanted = max(chosen.height + chosen.row_height * num_rows, _LEAST_HEIGHT)
    above += sum(legend.get_window_extent().height for ax in axes if (legend := ax.get_legend()))
    figure.set_figheight(min(wanted, chosen.most_height) + above / _DPI)
    return figure


def _swept(table: pd.DataFrame) -> list[str]:
    """Return a list with the target, drafter and GPU of a sweep; [] if the sweep has several."""
    told = {"target": "{}", "drafter": " + {}", "num_gpus": " on {} x", "hardware": " {}"}
    told["engine"] = ", {}"
    found = table.filter([*told])
    if len(found.columns) < len(told) - ("engine" not in table) or len(found.drop_duplicates()) > 1:
        return []
    return ["".join(told[str(name)].format(found[name].iloc[0]) for name in found)]


def _title(figure: Figure, table: pd.DataFrame) -> float:
    """Write the title of a figure: model, drafter and GPU if all rows share them, shared inputs.

    Return the height of the title, 0 without a title [dot].
    """
    cases = list(table["case"].dropna().unique()) if "case" in table else _swept(table)
    width = int(figure.get_figwidth() * _CHARACTERS_AN_INCH)
    told = [labels.folded(str(cases[0]), width)] if len(cases) == 1 else []
    held = [name for name in frames.POINT if name in table and table[name].nunique() == 1]
    values = (f"{labels.words(name)} {labels.plain(table[name].iloc[0])}" for name in held)
    told += [", ".join(values)] if held else []
    if not told:
        return 0.0
    title = figure.suptitle("\n".join(told), x=0.01, ha="left", size=SMALL)
    return float(title.get_window_extent().height)
