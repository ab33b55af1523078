"""What is carried within a target, in words: the largest batch, of alternatives too."""

from __future__ import annotations

from specmodel.show.facts import Facts, lines
from specmodel.show.glossary import PAGES


def told_within(facts: Facts) -> list[str]:
    """Return the headline on a target and the lines below it; [] where nothing fits."""
    return lines(PAGES["within"]["lines"], facts) if len(facts) > 1 else []


def most_within(facts: Facts) -> list[str]:
    """Return what the alternative that carries most within a target carries."""
    texts = PAGES["within"]
    return lines(texts["alternatives"], facts) or [texts["no_alternative"]]
