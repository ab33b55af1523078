"""Write the labels of figures: names of columns with units, numbers, and short names."""

import re
from collections.abc import Sequence

from specmodel.core.base.errors import in_one_line
from specmodel.core.base.units import format_si
from specmodel.show.columns import by_name
from specmodel.show.glossary import TABLES

MOST_WRITTEN = 1e6
"""Smallest count that is written with a metric prefix [-]."""

AXES = TABLES["axes"]
_UNITS = {"token": "tokens", "request": "requests", "s": "ms", "token/s": "tokens/s", "B": "B"}
RATIOS = {"speedup": "×", "utility": "×", "target_efficiency": ""}


def titled(names: Sequence[str]) -> str:
    """Return the title of an axis or a legend: names of columns with their units."""
    units = {name: RATIOS.get(name, _UNITS.get(unit(name), "")) for name in names}
    ends = {name: f" ({unit})" if unit and unit not in name else "" for name, unit in units.items()}
    return ", ".join(f"{words(name)}{end}" for name, end in ends.items())


def unit(name: str) -> str:
    """Return the unit of a column; "-" for an unknown column."""
    known = by_name()
    return known[name].unit if name in known else "-"


def words(name: str) -> str:
    """Return the usual name of a column, else its own with blanks for "_" and ": " for "."."""
    return AXES.get(name) or in_one_line(name.replace("_", " ").replace(".", ": "))


def plain(value: object) -> str:
    """Return a number or text as a label."""
    return f"{value:.6g}" if isinstance(value, float) else in_one_line(str(value))


def count_label(value: float, _place: float = 0) -> str:
    """Return a count as the label of a tick: 512, 16384, 16k, 2M."""
    from matplotlib.ticker import EngFormatter

    is_short = value >= MOST_WRITTEN or (value >= 1e4 and value % 1000 == 0)
    return EngFormatter(sep="")(value) if is_short else f"{value:.6g}"


def span(low: float, high: float, unit: str, source: str) -> str:
    """Return a range as text, after its kind ("80 %: "); a unit of both ends is written once."""
    kind = {"calibration": "80 %: ", "tasks": "80 %: ", "": ""}.get(source, f"{source}: ")
    if unit in ("", "-", "×", "token", "request"):
        times, of = "×" if unit == "×" else "", f" {unit}s" if unit[1:] else ""
        return f"{kind}{times}{low:.2g} to {times}{high:.2g}{of}"
    ends = (format_si(float(f"{end:.2g}"), unit).replace(" u", " µ") for end in (low, high))
    (first, of_first), (last, of_last) = (end.split(" ") for end in ends)
    return f"{kind}{first if of_first == of_last else f'{first} {of_first}'} to {last} {of_last}"


def shortened(text: str, width: int) -> str:
    """Return a text, cut in the middle to at most `width` characters, without formulas."""
    # matplotlib reads a dollar as a formula, and hides labels that start with _
    text = " ".join(text.split())
    if len(text) > width:
        head = width // 2
        text = f"{text[:head]}…{text[len(text) - (width - head - 1) :]}"
    return (" " if text.startswith("_") else "") + text.replace("$", r"\$")


def folded(text: str, width: int) -> str:
    """Return a label in at most two lines, broken after a mark or blank, and cut if too long."""
    if len(text) <= width:
        return shortened(text, width)

    def cost(cut: int) -> tuple[bool, bool, int]:
        longest = max(len(text[:cut].rstrip()), len(text) - cut)
        return longest > width, text[cut - 1] not in ".: ", longest

    cut = min((m.end() for m in re.finditer(r"[\s.:_-]+(?=.)", text)), key=cost, default=width)
    return "\n".join(shortened(line, width) for line in (text[:cut].rstrip(), text[cut:]))
