"""Find the faults of a figure in the objects that the renderer draws, not in pixels."""

import re
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np
from colours import LEAST, distance
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import Collection, PathCollection, PolyCollection
from matplotlib.colors import to_rgb, to_rgba
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import ConnectionPatch, Patch
from texts import unreadable, written

from specmodel.core.prediction.columns import COLUMN_UNITS

MOST_BANDS = 3
_GUIDE = 0.85
"""Largest width of a line that counts as a guide for the eye [point]."""
_RATIOS = ("target efficiency", "acceptance rate", "share of the variance of the speedup")
"""Labels of numbers that have no unit in papers."""
_UNIT = re.compile(r"\(([^\d\s(][^()]*|of 1)\)|\b(tokens|requests|experts|iterations)\b")
_NAMES = "|".join(name for name in COLUMN_UNITS if "_" in name)
_RAW = re.compile(rf"\b[a-z][a-z0-9]*(?:\.[a-z0-9_]+)+\b|\b(?:{_NAMES})\b")


def faults(figure: Figure) -> list[str]:
    """Return what is unreadable, cannot be distinguished, or is drawn beyond its axes."""
    figure.draw_without_rendering()
    texts = [text.get_text() for text in written(figure)]
    raw = (f"{text!r} is a raw name" for text in texts if _RAW.search(text))
    found = [*unreadable(figure), *raw]
    for ax in figure.axes:
        if ax.get_label() != "<colorbar>":
            found += [*_beyond(ax), *_unnamed_axes(ax), *_unnamed(ax), *_alike(ax), *_bands(ax)]
    return found


def cut_off(figure: Figure) -> list[str]:
    """Return texts that are unreadable, and data beyond their axes."""
    return [*unreadable(figure), *(told for ax in figure.axes for told in _beyond(ax))]


def _beyond(ax: Axes) -> Iterator[str]:
    """Yield the artists that lie outside the limits of the axes."""
    low, high = ax.viewLim.min, ax.viewLim.max
    for artist, places in _data(ax):
        places = places[np.isfinite(places).all(axis=1)]
        room = 1e-6 * np.abs(high - low)
        if places.size and ((places < low - room) | (places > high + room)).any():
            yield f"{artist} reaches from {places.min(axis=0)} to {places.max(axis=0)}"


def _data(ax: Axes) -> Iterator[tuple[Artist, np.ndarray]]:
    """Yield artists that are placed by data, and the places that they reach."""
    for line in ax.lines:
        if line.get_transform() == ax.transData and len(line.get_xdata()):
            yield line, np.asarray(line.get_xydata(), dtype=float)
    for patch in ax.patches:
        is_leader = isinstance(patch, ConnectionPatch)  # to a name beside the axes
        if patch.get_data_transform() == ax.transData and not is_leader:
            path = patch.get_patch_transform().transform_path(patch.get_path())
            yield patch, path.vertices
    for collection in ax.collections:
        if isinstance(collection, PathCollection):
            yield collection, np.asarray(collection.get_offsets(), dtype=float)
        elif collection.get_transform() == ax.transData:
            for path in collection.get_paths():
                yield collection, path.vertices


def _unnamed_axes(ax: Axes) -> Iterator[str]:
    """Yield axes without a label or unit, except axes with names at their ticks."""
    shared = ax.get_shared_x_axes().get_siblings(ax)
    for axis in (ax.xaxis, ax.yaxis):
        has_names = any(re.search("[a-z]{2}", tick.get_text()) for tick in axis.get_ticklabels())
        is_told_below = axis is ax.xaxis and any(
            other.get_xlabel() for other in shared if other is not ax
        )
        is_told_below |= axis is ax.xaxis and bool(ax.figure.get_supxlabel())
        has_ticks = any(tick.get_text() for tick in axis.get_ticklabels())
        label = axis.get_label().get_text()
        is_told = re.search("[A-Za-z]{3}", label) and _UNIT.search(label)
        is_told = is_told or label in _RATIOS
        if has_ticks and not (has_names or is_told or (is_told_below and not label)):
            yield f"{label!r} names no {axis.axis_name}-axis with its unit"


def _unnamed(ax: Axes) -> Iterator[str]:
    """Yield colours of lines, points and bars that no legend names, if there are several."""
    named = {_colour(handle) for each in ax.figure.axes for handle in _handles(each)}
    beside = (to_rgb(text.get_color()) for text in ax.texts)  # names of lines and points
    named |= {tuple(np.round(colour, 4).tolist()) for colour in beside}
    drawn = {_colour(artist): artist for artist in _drawn(ax)}
    if len(drawn) > 1 or named:
        yield from (f"no legend names {a}" for colour, a in drawn.items() if colour not in named)


def _drawn(ax: Axes) -> Iterator[Artist]:
    for line in ax.lines:
        is_guide = line.get_linewidth() < _GUIDE and not line.get_marker().strip("None ")
        if line.get_transform() == ax.transData and len(line.get_xdata()) and not is_guide:
            yield line
    rows = ax.get_shared_y_axes().get_siblings(ax)
    names = [tick.get_text() for each in rows for tick in each.get_yticklabels()]
    are_rows = any(re.search("[a-z]{2}", name) for name in names) and not ax.get_legend()
    for patch in () if are_rows else ax.patches:
        is_grey = len({round(part, 3) for part in patch.get_facecolor()[:3]}) == 1
        if patch.get_data_transform() == ax.transData and not is_grey:
            yield patch


def _bands(ax: Axes) -> Iterator[str]:
    bands = [
        each
        for each in ax.collections
        if isinstance(each, PolyCollection) and (each.get_alpha() or 1) < 1
    ]
    if len({tuple(each.get_facecolor()[0]) for each in bands}) > MOST_BANDS:
        yield f"{len(bands)} bands lie over one another"


def _alike(ax: Axes) -> Iterator[str]:
    """Yield pairs of legend entries that differ neither in colour nor in form."""
    for one, other in _pairs(ax):
        least, seen = distance(one[1], other[1])
        if least < LEAST:
            yield f"{one[0]} and {other[0]} are alike {seen}: {least}"


def _pairs(ax: Axes) -> Iterator[tuple[Any, Any]]:
    """Yield pairs of legend entries, except pairs with one colour and two forms."""
    entries = [(h.get_label(), _colour(h), _form(h)) for h in _handles(ax)]
    for one, other in combinations(entries, 2):
        if one[1] != other[1] or one[2] == other[2]:
            yield one, other


def _handles(ax: Axes) -> list[Artist]:
    legends = [legend for legend in (ax.get_legend(), *ax.figure.legends) if legend]
    return [_part(handle) for legend in legends for handle in legend.legend_handles]


def _part(handle: Any) -> Artist:
    """Return the artist that has the colour of a handle of error bars or bars."""
    return handle[0] if isinstance(handle, BarContainer | ErrorbarContainer) else handle


def _colour(artist: Any) -> tuple[float, ...]:
    """Return red, green and blue as they look on white."""
    if isinstance(artist, Line2D):
        is_line = artist.get_linestyle() != "None"
        own = artist.get_color() if is_line else artist.get_markeredgecolor()
        colour = to_rgba(own, artist.get_alpha())
    elif isinstance(artist, Collection):
        own = (
            artist.get_facecolor() if isinstance(artist, PolyCollection) else artist.get_edgecolor()
        )
        colour = to_rgba(own[0])
    else:
        colour = to_rgba(artist.get_facecolor() if artist.get_fill() else artist.get_edgecolor())
        if to_rgb(colour) == (1, 1, 1) and artist.get_linewidth():
            colour = to_rgba(artist.get_edgecolor()) if not artist.get_hatch() else colour
    red_green_blue, alpha = np.array(colour[:3]), colour[3]
    return tuple(np.round(1 - alpha + alpha * red_green_blue, 4).tolist())


def _form(artist: Any) -> tuple[object, ...]:
    """Return what distinguishes artists of one colour: kind, dashes, marker, hatch, filling."""
    if isinstance(artist, Line2D):
        face = to_rgba(artist.get_markerfacecolor()) if artist.get_marker() else ()
        return "line", artist.get_linestyle(), str(artist.get_marker()), face
    if isinstance(artist, Patch):
        return "patch", artist.get_hatch(), artist.get_fill()
    return (type(artist).__name__, artist.get_linewidth()[0])
