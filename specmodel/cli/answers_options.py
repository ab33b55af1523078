"""Options of the commands that answer as predictions over all draft lengths."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

from specmodel.base.errors import InputError
from specmodel.base.ranges import parse_numbers
from specmodel.base.records import is_path
from specmodel.cli.options import acceptance_from, longest_draft, predict_from
from specmodel.cost.deploy import LOOKUP
from specmodel.prediction.outcome import Prediction

_COMPARED = ("target", "drafter", "hardware", "engine")


def lengths_from(options: dict[str, Any]) -> Prediction:
    """Return the prediction that the options ask for, at every draft length considered.

    Parameters
    ----------
    options
        Values by name of the option.

    Returns
    -------
    Prediction
        Draft lengths run along an axis, from 1 to the longest.

    Raises
    ------
    InputError
        Names the option at fault.
    """
    asked = options["max_draft_length"]
    longest = longest_draft(acceptance_from(options), asked)
    lengths = {"draft_length": f"1:{longest}", "max_draft_length": longest}
    prediction = predict_from(options | lengths)
    if asked is not None:
        return prediction
    assumed = prediction.assumptions | {"max_draft_length": longest}
    return replace(prediction, assumptions=assumed)


def alternatives_from(options: dict[str, Any]) -> dict[str, Prediction]:
    """Return a prediction for each combination of targets, drafters, hardware and engines.

    Parameters
    ----------
    options
        Values by name of the option; the four are lists, with an acceptance rate for all drafters
        or one for each.

    Returns
    -------
    dict
        By what tells them apart, over all draft lengths.

    Raises
    ------
    InputError
        Names the option at fault.
    """
    lists = {name: _alternatives(name, options[name]) for name in _COMPARED}
    for name in LOOKUP:
        if options[name] is not None and "ngram" not in lists["drafter"]:
            raise InputError(name, options[name], "the drafter ngram with it")
    rates = parse_numbers("acceptance_rate", options["acceptance_rate"])
    if len(rates) not in (1, len(lists["drafter"])):
        expected = f"one rate, or one for each of {len(lists['drafter'])} drafters"
        raise InputError("acceptance_rate", rates, expected)
    rate_of = dict(zip(lists["drafter"], itertools.cycle(rates), strict=False))
    labels = {name: _labels(values) for name, values in lists.items()}
    found = {}
    for chosen in itertools.product(*lists.values()):
        named = dict(zip(lists, chosen, strict=True))
        label = [labels[name][named[name]] for name, values in lists.items() if len(values) > 1]
        case = named | {"acceptance_rate": rate_of[named["drafter"]]}
        if named["drafter"] != "ngram":
            case |= dict.fromkeys(LOOKUP)
        found[", ".join(label) or labels["target"][named["target"]]] = lengths_from(options | case)
    return found


def _alternatives(name: str, text: str | None) -> list[Any]:
    if text is None:
        return [None]
    values = [word.strip() for word in text.split(",")]
    if len(set(values)) < len(values):
        raise InputError(name, text, "alternatives, each once")
    return values


def _labels(values: list[Any]) -> dict[Any, str]:
    """Return what to call each: a name, or what is left of a path without its folders."""
    short = {value: Path(value).stem if value and is_path(value) else value for value in values}
    return short if len(set(short.values())) == len(values) else {v: v for v in values}
