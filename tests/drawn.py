"""Axes for tests, and functions that return the data, bars and texts of a figure."""

from matplotlib.container import BarContainer
from matplotlib.figure import Figure


def ax():
    return Figure().add_subplot()


def data(lines):
    return [line.get_xydata().tolist() for line in lines]


def legend(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def bars(axes):
    """Return left, bottom, width and height of each bar."""
    found = [c for c in axes.containers if isinstance(c, BarContainer)]
    patches = [patch for container in found for patch in container.patches]
    return [(*patch.get_xy(), patch.get_width(), patch.get_height()) for patch in patches]


def written(drawn):
    return {text.get_position(): text.get_text() for text in drawn.texts}
