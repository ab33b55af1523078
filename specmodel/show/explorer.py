"""An explorer for Jupyter: controls, two curves over the batch size, and the verdict below."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from specmodel.answers import SweetSpot, sweet_spot
from specmodel.answers.curves import sweet_spots_rows
from specmodel.base.errors import InputError, import_extra, nearest
from specmodel.base.units import check
from specmodel.drafters.names import BLOCKS, LOOKUPS, NGRAM
from specmodel.machines.engine import list_engines, load_engine
from specmodel.machines.hardware import list_hardware
from specmodel.models.architecture import list_architectures, load_architecture
from specmodel.prediction.predicting import predict
from specmodel.show import plots, sweet_spots as words
from specmodel.show.report import answer_page, why

if TYPE_CHECKING:
    import ipywidgets
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["DEFAULTS", "View", "drafters_for", "explorer", "view"]

DEGREES = (1, 2, 4, 8, 16)
HOST_SPEEDS = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0)
CONTEXTS = tuple(2**power for power in range(8, 18))
LONGEST = 10
"""Longest draft offered [token]."""

FALLBACK = "eagle3"
"""Drafter that replaces one that does not suit a new target."""

_STYLE = "line-height: 1.35; margin: 0; white-space: pre-wrap; word-break: normal"
_TEXT = f"<pre style='{_STYLE}{{}}'>{{}}</pre>"

BATCH_SIZES = range(1, 513)
"""Batch sizes of the curves [request]."""

DEFAULTS: dict[str, Any] = {
    "target": "qwen2-57b-a14b",
    "drafter": "qwen2-0.5b",
    "hardware": "a800_sxm_80gb",
    "engine": "vllm-moesd-2025",
    "host_speed": 1.0,
    "tensor_parallel": 2,
    "acceptance_rate": 0.8,
    "draft_length": 4,
    "context_length": 1024,
    "proposal_rate": 0.5,
}
"""The controls and their first values: the machine and the models of the MoESD paper."""

SMALL = 0.25
"""Most parameters of a draft model, as a share of the target's active ones [-]."""

_DOTS_PER_INCH = 200
_PAYS, _NEAR_PEAK, _LINE = "#e3f3ec", "#a9dcc6", "#0072b2"


def explorer(**start: Any) -> ipywidgets.VBox:
    """Return controls, two curves over the batch size and the verdict, redrawn on every move.

    Parameters
    ----------
    **start
        First values of controls, by their names in `DEFAULTS`. Target, drafter, hardware and
        engine may be paths, which are then offered beside what the package has.

    Returns
    -------
    ipywidgets.VBox
        Shown by Jupyter if it is the last value of a cell. Where a value cannot be used, one line
        in place of the picture says why.
    """
    for name, value in start.items():
        if name not in DEFAULTS:
            raise InputError(name, value, f"a control: {nearest(name, DEFAULTS)}")
    values = DEFAULTS | start
    if "drafter" not in start and values["drafter"] not in drafters_for(values["target"]):
        values["drafter"] = FALLBACK
    ipywidgets = import_extra("ipywidgets", "notebooks", "explorer")
    import_extra("matplotlib", "notebooks", "explorer")
    view(values)
    controls = _controls(values)
    # widgets have a margin of 2 pixels, which would make a narrow page scroll
    image = ipywidgets.Image(layout={"width": "920px", "max_width": "calc(100% - 4px)"})
    text = ipywidgets.HTML()

    def redraw(_: object = None) -> None:
        drafter = controls["drafter"]
        # a new target may change the drafter, which must not draw a second time
        drafter.unobserve(redraw, "value")
        _offer(controls, start.get("drafter"))
        drafter.observe(redraw, "value")
        _show({name: control.value for name, control in controls.items()}, image, text)

    for control in controls.values():
        control.observe(redraw, "value")
    redraw()
    # as many in a row as the page is wide
    wrapped = ipywidgets.Box(list(controls.values()), layout={"flex_flow": "row wrap"})
    return ipywidgets.VBox([wrapped, image, text], layout={"max_width": "940px"})


def _controls(values: dict[str, Any]) -> dict[str, Any]:
    """Return a control for each value, by its name."""
    import ipywidgets as widgets

    def choice(names: list[str], name: str) -> Any:
        return widgets.Dropdown(options=_with(names, values[name]))

    def steps(numbers: tuple[float, ...], name: str) -> Any:
        return widgets.SelectionSlider(options=sorted({*numbers, values[name]}))

    shares = {"min": 0.0, "max": 1.0, "step": 0.01, "readout_format": ".2f"}
    made = {
        "target": choice(list_architectures(), "target"),
        "drafter": choice(drafters_for(values["target"]), "drafter"),
        "proposal_rate": widgets.FloatSlider(**shares),
        "hardware": choice(list_hardware(), "hardware"),
        "engine": choice(list_engines(), "engine"),
        "host_speed": steps(HOST_SPEEDS, "host_speed"),
        "tensor_parallel": steps(DEGREES, "tensor_parallel"),
        "acceptance_rate": widgets.FloatSlider(**shares),
        "draft_length": widgets.IntSlider(min=1, max=max(LONGEST, values["draft_length"])),
        "context_length": steps(CONTEXTS, "context_length"),
    }
    for name, control in made.items():
        control.value = values[name]
        control.description = name.replace("_", " ")
        control.style.description_width = "110px"
        control.layout.width, control.layout.height = "300px", "30px"
    return made


def _with(choices: list[str], given: Any) -> list[Any]:
    """Return choices with a record of one's own in front."""
    return choices if given is None or given in choices else [given, *choices]


def _offer(controls: dict[str, Any], given: Any) -> None:
    """Offer the drafters that suit the target, and the rate of proposals only with n-gram."""
    target, drafter = controls["target"], controls["drafter"]
    offered = _with(drafters_for(target.value), given)
    if list(drafter.options) != offered:
        kept = drafter.value if drafter.value in offered else FALLBACK
        drafter.options, drafter.value = offered, kept
    is_lookup = drafter.value in LOOKUPS
    controls["proposal_rate"].layout.visibility = "visible" if is_lookup else "hidden"


def _show(values: dict[str, Any], image: Any, text: Any) -> None:
    """Show picture and words for the values, or the one line that says why there are none."""
    try:
        found = view(values)
    except InputError as error:
        image.layout.display = "none"
        text.value = _TEXT.format("; color: var(--jp-error-color1, #b00020)", escape(str(error)))
        return
    image.value = png(found)
    image.layout.display = ""
    heading, _, rest = escape(found.text).partition("\n")
    text.value = _TEXT.format("", f"<b>{heading}</b>\n{rest}")


@dataclass(frozen=True, kw_only=True, eq=False)
class View:
    """What is shown for one setting of the controls.

    Parameters
    ----------
    table
        Columns of a `Prediction` with a row for each batch size.
    spot
        Where speculation pays, among the batch sizes that fit, or among all if none fits.
    text
        What stands below the picture, in lines of at most 80 columns.
    """

    table: pd.DataFrame
    spot: SweetSpot
    text: str


def view(values: Mapping[str, Any]) -> View:
    """Return what the explorer shows over batch sizes from 1 to 512.

    Parameters
    ----------
    values
        Values of the controls by name, as in `DEFAULTS`. The rate of proposals counts only for
        the drafter ngram, the speed of the host only for an engine with overheads.

    Examples
    --------
    >>> shown = view(DEFAULTS)
    >>> shown.spot.peak_batch_size, round(shown.spot.peak_speedup, 1)
    (17, 1.6)
    """
    check("draft_length", values["draft_length"], minimum=1)
    asked = {**values}
    acceptance, rate = asked.pop("acceptance_rate"), asked.pop("proposal_rate")
    if asked["drafter"] in LOOKUPS:
        asked["proposal_rate"] = rate
    if load_engine(asked["engine"]).is_ideal:
        del asked["host_speed"]
    prediction = predict(**asked, acceptance=acceptance, batch_size=BATCH_SIZES)
    kept = prediction.fits if prediction.fits.any() else ~prediction.fits
    spot = sweet_spot(prediction.batch_size[kept], prediction.speedup[kept])
    at_peak = prediction.rows()[BATCH_SIZES.index(spot.peak_batch_size)]
    verdict = words.verdict(sweet_spots_rows(prediction), prediction)
    return View(
        table=prediction.to_frame(),
        spot=spot,
        text=answer_page(prediction, f"{verdict} {why(at_peak, [at_peak], prediction)}"),
    )


def drafters_for(target: str) -> list[str]:
    """Return the drafters to choose from: look-up, heads, small models of the same vocabulary.

    Parameters
    ----------
    target
        Name or path of an architecture.
    """
    model = load_architecture(target)
    small = [
        name
        for name, other in ((name, load_architecture(name)) for name in list_architectures())
        if other.vocabulary_size == model.vocabulary_size
        and other.total_parameters <= SMALL * model.active_parameters
    ]
    return [NGRAM, "eagle", "eagle3", "mtp", *BLOCKS, *small]


def png(shown: View) -> bytes:
    """Return the picture as a PNG, 900 pixels wide on a page of a high-resolution screen.

    Parameters
    ----------
    shown
        As `view` returns it.
    """
    from matplotlib import rc_context

    written = BytesIO()
    with rc_context({"font.size": 8}):
        # weakly compressed: the picture stays on the page, so time counts more than size
        draw(shown).savefig(written, format="png", pil_kwargs={"compress_level": 1})
    return written.getvalue()


def draw(shown: View) -> Figure:
    """Draw speedup and target efficiency over the batch size, with the sweet spot shaded.

    Parameters
    ----------
    shown
        As `view` returns it.

    Returns
    -------
    Figure
        With two axes; it belongs to no window.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.9, 2.6), dpi=_DOTS_PER_INCH)
    FigureCanvasAgg(figure)  # keeps its renderer, so that measuring text is cheap
    # with fixed margins: a layout that measures the text takes as long as the drawing
    figure.subplots_adjust(left=0.075, right=0.985, bottom=0.3, top=0.96, wspace=0.2)
    left, right = figure.subplots(1, 2)
    plots.speedup(shown.table, left, marks=False)
    plots.target_efficiency(shown.table, right, marks=False)
    for ax in (left, right):
        _shade(shown.table, shown.spot, ax)
        if legend := ax.get_legend():
            legend.remove()
    _mark_peak(shown.spot, left)
    # limits that seldom change, so that the eye sees the curve move
    left.set_ylim(0, max(2.0, np.ceil(2.4 * shown.table["speedup"].max()) / 2))
    right.set_ylim(0, 1.05)
    handles, labels = left.get_legend_handles_labels()
    entries = dict(zip(labels, handles, strict=True))
    del entries["predicted"]  # the only line
    figure.legend(entries.values(), entries.keys(), loc="lower center", ncols=3, frameon=False)
    return figure


def _shade(table: pd.DataFrame, spot: SweetSpot, ax: Axes) -> None:
    """Shade where speculation pays, darker near the peak, and hatch what does not fit."""
    fits, sizes = table["fits"], table["batch_size"]
    for low, high in spot.paying if fits.any() else ():
        # with an edge, so that a single batch size can be seen
        ax.axvspan(low, high, color=_PAYS, linewidth=1, zorder=0, label="pays")
        near = max(low, spot.near_peak[0]), min(high, spot.near_peak[1])
        if near[0] <= near[1]:
            label = "pays, and above 0.71 of the peak"
            ax.axvspan(*near, color=_NEAR_PEAK, linewidth=1, zorder=0.1, label=label)
    if not fits.all():
        hatched = ax.axvspan(sizes[~fits].min(), sizes.max(), zorder=0, linewidth=0)
        hatched.set(facecolor="none", edgecolor="0.8", hatch="////", label="does not fit in memory")


def _mark_peak(spot: SweetSpot, ax: Axes) -> None:
    """Mark the peak with its value, inside the axes."""
    at, peak = spot.peak_batch_size, spot.peak_speedup
    side = "left" if at < 4 else "right" if at > 128 else "center"
    ax.plot(at, peak, marker="o", markersize=4, color=_LINE, zorder=3)
    backed = {"boxstyle": "square,pad=0.1", "facecolor": "white", "alpha": 0.7, "linewidth": 0}
    text = f"{peak:.2f}x at {at}"
    ax.annotate(text, (at, peak), (0, 7), textcoords="offset points", ha=side, bbox=backed)
