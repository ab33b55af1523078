"""An explorer for Jupyter: controls, two curves over the batch size, and the verdict below."""

from specmodel.explorer.view import DEFAULTS, View, drafters_for, view
from specmodel.explorer.widget import explorer

__all__ = ["DEFAULTS", "View", "drafters_for", "explorer", "view"]
