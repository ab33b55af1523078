"""The texts in a figure, and the unreadable ones among them."""

from itertools import combinations

from matplotlib.text import Text


def written(figure):
    """Return every text that the renderer draws."""
    texts = {}
    draw = Text.draw

    def record(self, renderer, *rest):
        if self.get_visible() and self.get_text().strip():
            texts[id(self)] = self
        return draw(self, renderer, *rest)

    Text.draw = record
    try:
        figure.draw_without_rendering()
    finally:
        Text.draw = draw
    return list(texts.values())


def unreadable(figure):
    """Return texts that are cut off, or that overlap."""
    page, found = figure.bbox, []
    boxes = {text: text.get_window_extent().extents.tolist() for text in written(figure)}
    for text, (x0, y0, x1, y1) in boxes.items():
        if not (page.x0 <= x0 and x1 <= page.x1 and page.y0 <= y0 and y1 <= page.y1):
            found.append(f"{text.get_text()!r} is cut off")
    for (one, a), (other, b) in combinations(boxes.items(), 2):
        across = min(a[2], b[2]) - max(a[0], b[0])
        down = min(a[3], b[3]) - max(a[1], b[1])
        if min(across, down) >= 0.5:
            found.append(f"{one.get_text()!r} lies over {other.get_text()!r}")
    return found
