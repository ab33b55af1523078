"""Turn options that a user typed into cases, deployments, predictions and axes of a sweep.

In this module, `options` are the values of shared options by name, None if not typed. An invalid
option raises an `InputError` with its name.
"""

import re
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from specmodel.cli.settings import SHARED, flag
from specmodel.core.algebra.acceptance import typed_contexts, typed_rates
from specmodel.core.base.errors import InputError, given
from specmodel.core.base.ranges import check_points, parse_numbers, parse_values
from specmodel.core.base.units import parse_seconds
from specmodel.core.cost.where import ARGUMENTS, Manner, literal, what_ifs
from specmodel.core.prediction.accepted import OF_ACCEPTANCE
from specmodel.core.prediction.case import LONGEST_SEARCHED, Case, case_of

_AXES = ("prompt_length", "output_length", "context_length", "draft_length", "batch_size")
_MOST_CORRELATED = 0.5
_OF_POINTS = ("lockstep", "verify_tokens", "max_draft_length")


_PARSERS: dict[str, Callable[[str, str], Any]] = {
    **dict.fromkeys(("int", "sizes", "VALUES"), parse_values),
    **dict.fromkeys(("float", "share"), parse_numbers),
    "RATES": lambda _argument, text: typed_rates(text),
    "PAIRS": lambda _argument, text: typed_contexts(text),
}
"""Readers of a list of values, by the kind of the option; other kinds are lists of words."""


def case_from(options: dict[str, Any], *, is_drafting: bool = True) -> Case:
    """Return the case that options ask about."""
    return case_of(arguments_from(options), manner_from(options, is_drafting=is_drafting))


def arguments_from(options: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a case from options, by name."""
    told = given(options, (*OF_ACCEPTANCE, *_OF_POINTS))
    texts = {name: str(text) for name, text in given(options, _AXES).items()}
    if texts.get("draft_length", "").startswith(("below:", "table:")):  # of each batch size
        told["draft_length"] = texts.pop("draft_length")
    axes = {name: parse_values(name, text) for name, text in texts.items()}
    counts = {flag(name): len(values) for name, values in axes.items()}
    lengths = counts.get("--draft-length", told.get("max_draft_length", 0))
    largest = max(axes, key=lambda name: len(axes[name]), default="batch_size")
    check_points(largest, counts | {"--draft-length": max(lengths, LONGEST_SEARCHED)})
    grid = np.meshgrid(*axes.values(), indexing="ij", sparse=True)  # each along its own axis
    return where_from(options) | told | dict(zip(axes, cast(Any, grid), strict=True))


def where_from(options: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of the deployment from options, by name."""
    named = given(options, ARGUMENTS)
    if named.get("routing_correlation", 0.0) > _MOST_CORRELATED and not options.get("force"):
        expected = f"at most {_MOST_CORRELATED:g} (published models: 0.3); --force allows more"
        raise InputError("routing_correlation", named["routing_correlation"], expected)
    return named


def manner_from(options: dict[str, Any], *, is_drafting: bool = True) -> Manner:
    """Return settings of a question that are not arguments of it."""
    words = {"head": options.get("draft_model"), "lacking": options.get("unnamed")}
    said: dict[str, Any] = {name: word for name, word in words.items() if word}
    return Manner(is_drafting=is_drafting, names=tuple(options.get("taken") or ()), **said)


def axes_from(options: dict[str, Any]) -> dict[str, Any]:
    """Return the axes of a sweep by parameter, with dotted names for fields of records."""
    typed = {name: text for name, text in options.items() if name != "changes"}
    axes = {name: None if text is None else parsed(name, text) for name, text in typed.items()}
    for key, value in what_ifs(options["changes"]).items():
        if key == "lookup_time":
            axes[key] = _times(key, str(value))
        else:
            axes[key] = _listed(f"set {key}", value) if isinstance(value, str) else value
    return axes


def parsed(name: str, text: str) -> Any:
    """Return the values of a list that a user typed for an option."""
    kind, *_ = SHARED.get(name, ["words"])
    return _PARSERS.get(kind, words)(name, text)


def _times(argument: str, text: str) -> list[float]:
    """Return the times in a list or range, whose values may have units [s]."""
    one = r"[\d.]+(?:e[-+]?\d+)? *[um]?s\b"
    bare = re.sub(one, lambda found: f"{parse_seconds(argument, found[0])}", text)
    return parse_numbers(argument, bare)


def words(_argument: str, text: str) -> list[str]:
    """Return the words of a list."""
    return [word.strip() for word in text.split(",")]


def _listed(argument: str, text: str) -> list[Any]:
    """Return the values of a list or range: whole numbers, numbers or words."""
    if ":" in text:
        try:
            return list(parse_values(argument, text))
        except InputError:
            return list(parse_numbers(argument, text))
    return [literal(word) for word in words(argument, text)]
