"""What was assumed, in words: what is a user's to give, the checkpoint's, and ours."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from specmodel.base.text import wrap

FIRST = ("routing_correlation", "host_speed")
"""Assumptions that move answers most, told first."""
_MATTERING = {
    "context_length": "context {}",
    "prefill": "no prefill",
    "carried": "{}",
    "host_speed": "mean host",
    "routing_correlation": "routing {}",
    "proposal_rate": "proposals in {} of steps",
    "names": "{}",
    "ignored_config_key": "config key {} ignored",
}
"""What moves answers most, and what is taken for something else, in short."""
YOURS = (
    *("names", "gpus", "tensor_parallel", "data_parallel", "expert_parallel"),
    *("draft_tensor_parallel", "drafter", "acceptance", "context_length", "prefill"),
    *("carried", "batch_size", "draft_length", "engine", "stack", "max_draft_length"),
    *("memory_utilization", "proposal_rate", "lookup_time", "weight_dtype"),
    "decode_context_parallel",
)
"""What a user would know and give."""
CHANGES = "changes"
"""What --set changed, which was given."""
FOR_PROGRAMS = (CHANGES, "fits_at_bound")
"""What stands among what was assumed for programs alone."""
_CHECKPOINT = ("_dtype", "arithmetic")


def assumed_text(assumed: Mapping[str, Any]) -> str:
    """Return what was assumed in groups, each wrapped to 80 columns; what was set stands apart."""
    assumed = {name: value for name, value in assumed.items() if name not in FOR_PROGRAMS}
    if not assumed:
        return "Assumed: nothing."
    first = [name for name in FIRST if name in assumed]
    yours = [name for name in YOURS if name in assumed]
    stored = [name for name in assumed if name.endswith(_CHECKPOINT) and name not in yours]
    ours = [name for name in assumed if name not in (*first, *yours, *stored)]
    groups = {"": first, "Yours to give": yours, "The checkpoint's": stored, "Ours": ours}
    told = [(title, _said(names, assumed)) for title, names in groups.items() if names]
    (title, words), *others = told
    opening = f"Assumed: {title.lower()}{': ' if title else ''}{words}."
    lines = map(wrap, (opening, *(f"{t}: {w}." for t, w in others)))
    return "\n".join(lines).replace("\xa0", " ")


def briefly(assumed: Mapping[str, Any]) -> str:
    """Return what was assumed that moves answers most, and how to see all of it."""
    told = [words.format(assumed[name]) for name, words in _MATTERING.items() if name in assumed]
    return wrap(f"Assumed: {', '.join([*told, 'more'])} (--verbose).") if assumed else ""


def what_if_text(assumed: Mapping[str, Any]) -> list[str]:
    """Return what --set changed, as a sentence; nothing if nothing was set."""
    return [f"What if: {assumed[CHANGES]}."] if CHANGES in assumed else []


def _said(names: Collection[str], assumed: Mapping[str, Any]) -> str:
    """Return names and values, each pair without a break at its blank."""
    from specmodel.algebra.acceptance import PLAUSIBLE_PROPOSAL_RATES
    from specmodel.algebra.experts import PLAUSIBLE_ROUTING_CORRELATIONS

    plausible = {
        "routing_correlation": PLAUSIBLE_ROUTING_CORRELATIONS,
        "proposal_rate": PLAUSIBLE_PROPOSAL_RATES,
    }
    words = []
    for name in names:
        ends = " (plausible: {:g} to {:g})".format(*plausible[name]) if name in plausible else ""
        words.append(f"{name}\xa0{assumed[name]}{ends}")
    return ", ".join(words)
