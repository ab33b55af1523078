"""What the explorer shows for one setting of its controls: curves, their sweet spot, and words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from specmodel.answers import SweetSpot, sweet_spot, sweet_spots
from specmodel.base.units import check
from specmodel.cost.deploying import resolve
from specmodel.drafters.names import BLOCKS, LOOKUPS, NGRAM
from specmodel.machines.engine import load_engine
from specmodel.models.architecture import list_architectures, load_architecture
from specmodel.prediction.predicting import predict_deployed
from specmodel.show import plots, sweet_spots as words
from specmodel.show.report import answer_page, why

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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


@dataclass(frozen=True, kw_only=True, eq=False)
class View:
    """What is shown for one setting of the controls.

    `table` has the columns of a `Prediction` with a row for each batch size, and whether it fits in
    memory; `spot` is among the sizes that fit, or among all if none does; `text` has at most 80
    columns.
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

    Raises
    ------
    InputError
        Names the control at fault.

    Examples
    --------
    >>> shown = view(DEFAULTS)
    >>> shown.spot.peak_batch_size, round(shown.spot.peak_speedup, 1)
    (17, 1.6)
    """
    is_lookup = values["drafter"] in LOOKUPS
    rate = values["proposal_rate"] if is_lookup else None
    host = None if load_engine(values["engine"]).is_ideal else values["host_speed"]
    deployment, assumed = resolve({**values, "proposal_rate": rate, "host_speed": host})
    prediction = predict_deployed(
        deployment,
        assumed,
        acceptance=values["acceptance_rate"],
        draft_length=check("draft_length", values["draft_length"], minimum=1),
        context_length=values["context_length"],
        batch_size=BATCH_SIZES,
    )
    fits = prediction.batch_size <= prediction.max_batch_size
    kept = fits if fits.any() else ~fits
    spot = sweet_spot(prediction.batch_size[kept], prediction.speedup[kept])
    at_peak = prediction.rows()[BATCH_SIZES.index(spot.peak_batch_size)]
    verdict = words.verdict(sweet_spots(prediction), prediction)
    return View(
        table=prediction.to_frame().assign(fits=fits),
        spot=spot,
        text=answer_page(prediction, f"{verdict} {why(at_peak, [at_peak], prediction)}"),
    )


def drafters_for(target: str) -> list[str]:
    """Return the drafters to choose from: look-up, heads, small models of the same vocabulary."""
    model = load_architecture(target)
    small = [
        name
        for name, other in ((name, load_architecture(name)) for name in list_architectures())
        if other.vocabulary_size == model.vocabulary_size
        and other.total_parameters <= SMALL * model.active_parameters
    ]
    return [NGRAM, "eagle", "eagle3", "mtp", *BLOCKS, *small]


def png(shown: View) -> bytes:
    """Return the picture as a PNG, 900 pixels wide on a page of a high-resolution screen."""
    from matplotlib import rc_context

    written = BytesIO()
    with rc_context({"font.size": 8}):
        # weakly compressed: the picture stays on the page, so time counts more than size
        draw(shown).savefig(written, format="png", pil_kwargs={"compress_level": 1})
    return written.getvalue()


def draw(shown: View) -> Figure:
    """Draw speedup and target efficiency over the batch size, with the sweet spot shaded."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.9, 2.6), dpi=_DOTS_PER_INCH)
    FigureCanvasAgg(figure)  # keeps its renderer, so that measuring text is cheap
    # with fixed margins: a layout that measures the text takes as long as the drawing
    figure.subplots_adjust(left=0.075, right=0.985, bottom=0.3, top=0.96, wspace=0.2)
    left, right = figure.subplots(1, 2)
    plots.speedup(shown.table, left)
    plots.target_efficiency(shown.table, right)
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
            label = "pays, and above peak/√2"
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
