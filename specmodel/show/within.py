"""What is carried within a target, in words: the largest batch, of alternatives too."""

from __future__ import annotations

from specmodel.answers.within import LargestBatches
from specmodel.show.facts import Facts, lines
from specmodel.show.glossary import PAGES


class Within(LargestBatches):
    """The largest batches within a target, and what is told of them."""

    def told(self) -> list[str]:
        """Return the headline and the lines below it; [] where nothing fits."""
        facts = self.facts()
        return lines(PAGES["within"]["lines"], facts) if len(facts) > 1 else []


def most_within(facts: Facts) -> list[str]:
    """Return what the alternative that carries most within a target carries."""
    texts = PAGES["within"]
    return lines(texts["alternatives"], facts) or [texts["no_alternative"]]


within_target = Within.searched
