"""What steps take by tokens verified, as the file of an engine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

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


def costs_text(costs: Mapping[str, Any]) -> str:
    """Return JSON with a key a line."""
    lines = [f'"{key}": {json.dumps(value, allow_nan=False)}' for key, value in costs.items()]
    return "{" + ",\n ".join(lines) + "}"
