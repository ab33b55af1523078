"""Settings of the site, which `python docs/build.py` builds into docs/_build."""

import sys
from pathlib import Path

import pandas

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "parts"), str(HERE.parent)]

from specmodel import __version__  # noqa: E402 - below the path that it needs
from specmodel.plan import config_formats, schedule  # noqa: E402 - below the path
from specmodel.plan.sensitivity import analyses  # noqa: E402 - below the path

# Sphinx needs the types of these records' fields, which the modules import only for type checks
config_formats.Schedule, analyses.pd = schedule.Schedule, pandas  # type: ignore[attr-defined]

project = "specmodel"
release = version = __version__
copyright = "the specmodel developers, Apache-2.0"
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "numpydoc",
    "mathematics",
    "examples",
    "public",
    "house",
]
exclude_patterns = ["_build", "_made", "gallery"]
nitpicky = False
default_role = "code"

myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3

autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # docstrings name types and units
autodoc_preserve_defaults = True
numpydoc_show_class_members = False

html_theme = "furo"
html_title = f"specmodel {release}"
html_math_renderer = "mathml"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_extra_path = [path for path in ("gallery/pages",) if (HERE / path).exists()]
html_copy_source = False
html_show_sourcelink = False
