"""Show answers: words, tables, JSON and CSV, figures, and a page in a browser."""

from typing import TYPE_CHECKING

from specmodel.core.base.fronts import front

if TYPE_CHECKING:
    from specmodel.show import plots as plots
    from specmodel.show.facts import html as html
    from specmodel.show.notes import words as words
    from specmodel.show.views import answer as answer, view as view

__getattr__, __dir__ = front(__name__)
