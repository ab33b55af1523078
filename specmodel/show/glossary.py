"""Words of answers, each told once: in help, on pages, in the README and the docs."""

from functools import partial
from pathlib import Path
from typing import Any

from specmodel.base.compiled import compiled


def _read(file: Path) -> dict[str, Any]:
    import tomllib  # which words that are compiled do not need

    return tomllib.loads(file.read_text(encoding="utf-8"))


def texts(file: Path) -> dict[str, Any]:
    """Return the tables of a TOML file that ships."""
    return compiled(file, [file], partial(_read, file))


_TABLES: dict[str, dict[str, str]] = texts(Path(__file__).parent / "data/words.toml")

LIMITS = _TABLES["limits"]
"""What ``limited by`` may say, and what it means: what lengthens a step most."""

WORDS = _TABLES["words"]
"""What other words mean."""

PAGES: dict[str, dict[str, Any]] = texts(Path(__file__).parent / "data/pages.toml")
"""What pages say: templates of lines, by page."""


def policy_words() -> dict[str, str]:
    """Return a description of each policy of ``simulate`` and ``load``, by name."""
    from specmodel.replay.policies.known import KNOWN

    return _TABLES["policies"] | {name: kind.words for name, kind in KNOWN.items()}


def limits_told(names: set[str], opening: str = "Limited by") -> str:
    """Return a sentence that explains the limits in `names`; "" if there is none."""
    known = [f"{name}: {words}" for name, words in LIMITS.items() if name in names - {"none"}]
    return f"{opening} {'; '.join(known)}." if known else ""
