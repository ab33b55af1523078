"""What figures share: colours, ticks that fit, legends above. Touches no global style."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.legend import Legend

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
"""Okabe and Ito's, which the colour-blind can tell apart, but for yellow."""

MARKERS = ("o", "^", "s", "D", "v", "P")
DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)), (0, (9, 2)))
HATCHES = ("", "/////", "\\\\\\\\\\", "xxxxx", ".....", "+++++", "-----", "ooo")
"""What tells lines and bars apart in grey."""

MOST_LINES = len(COLOURS)
KIND_COLOURS = {
    "experts": "#0072b2",
    "gemm": "#e69f00",
    "attention": "#009e73",
    "elementwise": "#cc79a7",
}
KIND_MARKERS = {"experts": "o", "gemm": "^", "attention": "s", "elementwise": "D"}
GREY = "0.35"
SMALL = "small"
"""Smallest size of text: 6.7 points where the font has 8."""

Style: TypeAlias = dict[str, Any]
"""Keywords of what is drawn."""

_GAP = 0.06
_HANDLE = 3.3
_MOST_TITLE = 44
_MOST_WRITTEN = 1e6


def text_width(text: str, size: float | None = None) -> float:
    """Return how wide the widest line of a text is drawn [in].

    Parameters
    ----------
    text
        What is written.
    size
        In points; None for that of small text [-].
    """
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextToPath

    font = FontProperties(size=SMALL if size is None else size)
    measure = TextToPath().get_text_width_height_descent
    points = max(measure(line or " ", font, ismath=False)[0] for line in text.split("\n"))
    return float(points) / 72


def shortened(text: str, width: int) -> str:
    r"""Return a text of at most so many characters, cut in the middle, that is no formula.

    Parameters
    ----------
    text
        A label.
    width
        Most characters [-].

    Returns
    -------
    str
        The same if it is short; dollars escaped, and a blank before a first _, which would hide
        a label from its legend.

    Examples
    --------
    >>> shortened("a-very-long-name", 9), shortened("_$x$", 9)
    ('a-ve…name', ' _\\$x\\$')
    """
    text = " ".join(text.split())
    if len(text) > width:
        head = width // 2
        text = f"{text[:head]}…{text[len(text) - (width - head - 1) :]}"
    return (" " if text.startswith("_") else "") + text.replace("$", r"\$")


def folded(text: str, width: int) -> str:
    r"""Return a label on at most two lines, broken after a mark or blank, cut if it is too long.

    Parameters
    ----------
    text
        A label.
    width
        Most characters of a line [-].

    Returns
    -------
    str
        Its lines.

    Examples
    --------
    >>> folded("kernels.gemm.bf16.launch_time", 18)
    'kernels.gemm.\nbf16.launch_time'
    """
    if len(text) <= width:
        return shortened(text, width)

    def cost(cut: int) -> tuple[bool, bool, int]:
        longest = max(len(text[:cut].rstrip()), len(text) - cut)
        return longest > width, text[cut - 1] not in ".: ", longest

    cut = min((m.end() for m in re.finditer(r"[\s.:_-]+(?=.)", text)), key=cost, default=width)
    return "\n".join(shortened(line, width) for line in (text[:cut].rstrip(), text[cut:]))


def count_label(value: float) -> str:
    """Return a count as a tick shows it: 512, 16384, 2M.

    Parameters
    ----------
    value
        A number [-].

    Returns
    -------
    str
        Its text.
    """
    for factor, prefix in ((1e9, "G"), (1e6, "M")):
        if value >= factor:
            return f"{value / factor:.4g}{prefix}"
    return f"{value:.6g}"


def counts_axis(ax: Axes, values: Iterable[float], label: str) -> None:
    """Give an axes a horizontal axis of counts, by powers of two, with as many ticks as fit.

    Parameters
    ----------
    ax
        The axes.
    values
        Counts that are drawn, above 0 [-].
    label
        What they are.
    """
    sizes = sorted({float(value) for value in values})
    low, high = sizes[0], sizes[-1]
    margin = (high / low) ** 0.04 if high > low else 2.0
    ax.set_xscale("log", base=2)
    ax.set_xlim(low / margin, high * margin)
    ticks = _fitting(ax, _candidates(sizes))
    ax.set_xticks(ticks, [count_label(tick) for tick in ticks])
    ax.xaxis.set_minor_locator(_no_ticks())
    ax.set_xlabel(label)


def _candidates(sizes: Sequence[float]) -> Iterable[list[float]]:
    """Yield ticks that would do, the best first."""
    low, high = sizes[0], sizes[-1]
    if len(sizes) <= 16:
        yield list(sizes)
    bases = (2, 4, 8, 16) if high < _MOST_WRITTEN else ()
    for base in (*bases, 10, 100, 1000):
        first = math.ceil(math.log(low, base) - 1e-9)
        last = math.floor(math.log(high, base) + 1e-9)
        powers = [float(base**power) for power in range(first, last + 1)]
        if len(powers) > 1:
            yield powers
    yield [low, high]
    yield [low]


def _fitting(ax: Axes, candidates: Iterable[list[float]]) -> list[float]:
    """Return the first ticks whose labels have room on a logarithmic axis."""
    left, right = (math.log(end) for end in ax.get_xlim())
    figure = ax.get_figure()
    room = 0.85 * ax.bbox.width / (figure.dpi if figure else 100)
    for ticks in candidates:
        widths = [text_width(count_label(tick), _tick_size()) for tick in ticks]
        at = [room * (math.log(tick) - left) / (right - left) for tick in ticks]
        pairs = itertools.pairwise(zip(at, widths, strict=True))
        if all(b - a >= (wa + wb) / 2 + _GAP for (a, wa), (b, wb) in pairs):
            break
    return ticks


def si_axis(axis: Any) -> None:
    """Give a logarithmic axis ticks with metric prefixes, which have no small exponents."""
    from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator

    low, high = axis.get_view_interval()
    decades = math.log10(high / low)
    subs = (1.0, 2.0, 5.0) if decades < 2 else (1.0,)
    locator = LogLocator(base=10, subs=subs, numticks=6) if decades > 1 else MaxNLocator(4)
    axis.set_major_locator(locator)
    axis.set_major_formatter(EngFormatter(sep=""))
    axis.set_minor_locator(_no_ticks())


def legend_above(
    ax: Axes,
    title: str = "",
    handles: Sequence[Any] | None = None,
    *,
    side: Literal["left", "right"] = "left",
) -> Legend | None:
    """Put a legend above the axes, where nothing is drawn, in as many columns as fit.

    Parameters
    ----------
    ax
        The axes.
    title
        What the entries tell.
    handles
        Entries; those with labels by default.
    side
        Where it starts: "left", or "right", from where it may reach over the labels of the
        vertical axis.

    Returns
    -------
    Legend or None
        None where there is nothing to tell.
    """
    found = list(handles) if handles is not None else ax.get_legend_handles_labels()[0]
    if not found:
        return None
    figure = ax.get_figure()
    reach = ax.bbox.width if side == "left" or figure is None else figure.bbox.width
    room = 0.95 * reach / (figure.dpi if figure else 100)
    widths = [text_width(str(handle.get_label())) for handle in found]
    columns = next(n for n in range(len(found), 0, -1) if n == 1 or _width(widths, n) <= room)
    return ax.legend(
        handles=found,
        title=shortened(title, _MOST_TITLE) or None,
        title_fontsize=SMALL,
        fontsize=SMALL,
        ncols=columns,
        frameon=False,
        loc="lower left" if side == "left" else "lower right",
        bbox_to_anchor=(0 if side == "left" else 1, 1),
        borderpad=0,
        borderaxespad=0.3,
        labelspacing=0.25,
        columnspacing=1.0,
        handlelength=_HANDLE - 0.9,
        handletextpad=0.5,
        alignment="left",
    )


def _width(widths: Sequence[float], columns: int) -> float:
    """Return how wide a legend is whose entries fill columns, as even as can be."""
    em = text_width("m" * 10) / 10
    each, extra = divmod(len(widths), columns)
    ends = list(itertools.accumulate(each + (i < extra) for i in range(columns)))
    starts = [0, *ends[:-1]]
    widest = [max(widths[a:b]) for a, b in zip(starts, ends, strict=True)]
    return sum(widest) + (_HANDLE + 1) * em * columns


def unity(ax: Axes, *, vertical: bool = False) -> None:
    """Draw the line at 1, where speculation changes nothing."""
    draw: Callable[..., Any] = ax.axvline if vertical else ax.axhline
    draw(1, color=GREY, linewidth=0.6, zorder=1)


def _tick_size() -> float:
    from matplotlib import rcParams
    from matplotlib.font_manager import FontProperties

    return float(FontProperties(size=rcParams["xtick.labelsize"]).get_size_in_points())


def _no_ticks() -> Any:
    from matplotlib.ticker import NullLocator

    return NullLocator()
