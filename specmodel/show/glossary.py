"""Define each word of answers once, for help, pages, the README and the docs."""

from pathlib import Path
from typing import Any

from specmodel.core.base.files import toml_tables

_DATA = Path(__file__).parent / "data"
TABLES: dict[str, dict[str, str]] = toml_tables(_DATA / "words.toml")

LIMITS = TABLES["limits"]
"""Values of ``limited by`` with their meaning: the cost that lengthens a step most."""

WORDS = TABLES["words"]
"""Meaning of other words."""

PAGES: dict[str, dict[str, Any]] = toml_tables(_DATA / "pages.toml")
"""Templates of lines, by page."""


def policy_words() -> dict[str, str]:
    """Return a description of each policy of ``simulate`` and ``load``, by name."""
    from specmodel.simulate.policies.known import KNOWN

    return TABLES["policies"] | {name: kind.words for name, kind in KNOWN.items()}


def limits_text(names: set[str]) -> str:
    """Return a line that explains the limits in `names`; "" for none."""
    known = [f"{name} ({words})" for name, words in LIMITS.items() if name in names - {"none"}]
    return f"Limited by (the cost that drafts raise most): {'; '.join(known)}." if known else ""
