"""What is told of the ground of a prediction: published runs like it, and how far off they were."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmodel.core.base.facts import Fact, Facts
from specmodel.core.base.text import VERBOSE
from specmodel.show.glossary import PAGES

if TYPE_CHECKING:
    from specmodel.core.prediction.evaluate import Evaluation
    from specmodel.core.prediction.ground import Cell

_TEXTS = PAGES["ground"]


def ground_facts(evaluation: Evaluation) -> dict[str, Fact]:
    """Return which published runs are nearest, how many, of how many hosts, how far off.

    And what came true of what was said there, where that is enough to judge by. Of the longest
    context; {} where no errors are known.
    """
    from specmodel.core.prediction.ground import place_of  # and NumPy, which help does not need
    from specmodel.core.prediction.intervals import states_errors

    deployment, contexts = evaluation.deployment, evaluation.points["context_length"]
    if not states_errors(deployment, contexts):
        return {}
    place = place_of(deployment, float(contexts.max()))
    nearest, facts = place.nearest, {"ground_kind": Fact(place.kind)}
    if place.kind in ("own", "unfitted"):
        return facts
    shares = (nearest.published if evaluation.acceptance.source else nearest.given)._asdict()
    came = {name: share for name, share in shares.items() if share == share}
    return facts | {
        "ground": Fact(cell_text(nearest.cell)),
        "ground_rows": Fact(nearest.rows),
        "ground_hosts": Fact(nearest.hosts),
        "ground_error": Fact(nearest.error),
        "ground_bias": Fact(nearest.bias),
        "ground_shares": Fact(came if place.kind == "known" else None),
    }


def ground_texts(facts: Facts) -> list[str]:
    """Return the template on the ground, with its cell if `VERBOSE`; none where it is not known."""
    if "ground_kind" not in facts:
        return []
    of_kind = _TEXTS["lines"][facts["ground_kind"].value]
    return [of_kind, _TEXTS["verbose"]] if VERBOSE.get() else [of_kind]


def cell_text(cell: Cell) -> str:
    """Return a cell as text, from its context to its engine."""
    words = _TEXTS["words"]
    return ", ".join(words.get(part, part) for part in cell if part) or words["any"]
