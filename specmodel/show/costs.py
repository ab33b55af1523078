"""What steps take by tokens verified, as the file of an engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specmodel.answers.cost_tables import costs_text
from specmodel.base.text import wrap
from specmodel.show.forms import Answer
from specmodel.show.glossary import PAGES

_TEXTS = PAGES["costs"]


def answer(costs: Mapping[str, Any]) -> Answer:
    """Return the times of steps in all forms."""
    fragment, place, caveat = costs_text(costs), _TEXTS["place"], _TEXTS["caveat"]
    parts = {"batch_size": ("bs_probes", "alpha_seconds"), "tokens": ("m_probes", "theta_seconds")}
    rows = [
        {"of": of, "probe": probe, "seconds": seconds}
        for of, names in parts.items()
        for probe, seconds in zip(*(costs[name] for name in names), strict=True)
    ]
    return Answer(
        page=lambda: f"{fragment}\n\n{wrap(f'For SGLang, {place}. {caveat}')}",
        fields={"fragment": fragment, "place": place, "caveats": [caveat], "costs": costs},
        rows=rows,
        fragment=fragment,
        caveats=[caveat],
    )
