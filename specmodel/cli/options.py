"""Options of the command line as records, deployments and axes."""

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from specmodel.algebra.acceptance import FORMS, Acceptance
from specmodel.algebra.speculation import MAX_DRAFT_LENGTH
from specmodel.base.errors import InputError
from specmodel.base.ranges import parse_numbers, parse_values
from specmodel.base.units import check
from specmodel.cost.assembly import DEGREES, LOOKUP, NAMES, RECORDS, assemble
from specmodel.cost.deploy import deploy
from specmodel.cost.deployment import Deployment
from specmodel.prediction.outcome import Prediction
from specmodel.prediction.predict import DEFAULT_MAX_DRAFT_LENGTH, predict

MAX_POINTS = 200_000
"""Most operating points that one call prints [-]."""

_PASSED = ("verify_tokens", "max_draft_length", "interval")
_WHOLE = (
    *("batch_size", "draft_length", "context_length", "verify_tokens", "measured_draft_length"),
    *("max_draft_length", *DEGREES),
)
_REAL = (*FORMS, *LOOKUP, "routing_correlation", "popularity_exponent")


def flag(name: str) -> str:
    """Return an option as typed.

    Parameters
    ----------
    name
        Its name as an argument.

    Returns
    -------
    str
        With dashes in front and inside.
    """
    return "--" + name.replace("_", "-")


def predict_from(options: dict[str, Any]) -> Prediction:
    """Return the prediction that the options of the command line ask for.

    Parameters
    ----------
    options
        Values by name of the option; axes run over context, then draft length, then batch size.

    Returns
    -------
    Prediction
        Ready to be reported.

    Raises
    ------
    InputError
        Names the option at fault.
    """
    axes = values_from(options)
    points = math.prod(map(len, axes.values()))
    if points > MAX_POINTS:
        given = {flag(name): len(values) for name, values in axes.items()}
        raise InputError("batch_size", given, f"at most {MAX_POINTS} points in all, not {points}")
    grid = np.meshgrid(*axes.values(), indexing="ij", sparse=True)
    return predict(
        acceptance=acceptance_from(options),
        **{name: options[name] for name in _PASSED if name in options},
        **_records(options),
        **dict(zip(axes, cast(Any, grid), strict=True)),
    )


def values_from(options: dict[str, Any]) -> dict[str, list[int]]:
    """Return the operating points that the options of the command line ask for.

    Parameters
    ----------
    options
        Lists and ranges as typed, by name of the option.

    Returns
    -------
    dict
        Values of context_length, draft_length and batch_size, of those that are given.
    """
    return {
        name: parse_values(name, options[name])
        for name in ("context_length", "draft_length", "batch_size")
        if options.get(name) is not None
    }


def longest_draft(acceptance: Acceptance, asked: int | None) -> int:
    """Return the longest draft to consider.

    Parameters
    ----------
    acceptance
        Of the drafted tokens.
    asked
        What was typed, None if nothing was [token].

    Returns
    -------
    int
        At most as long as acceptance is known for [token].

    Raises
    ------
    InputError
        If more was asked for, or acceptance was measured at no stated length.
    """
    acceptance.measured_at([1, 2])  # lengths differ, so that a measured one must have been given
    known = int(acceptance.max_draft_length)
    if asked is None:
        return min(DEFAULT_MAX_DRAFT_LENGTH, known)
    if known < asked <= MAX_DRAFT_LENGTH:
        expected = f"at most {known}, the positions that acceptance_by_position covers"
        raise InputError("max_draft_length", asked, expected)
    check("max_draft_length", asked, minimum=1, maximum=MAX_DRAFT_LENGTH, whole=True)
    return asked


def deployment_from(options: dict[str, Any]) -> tuple[Deployment, dict[str, Any]]:
    """Return what the options of the command line deploy, and what was assumed.

    Parameters
    ----------
    options
        Values by name of the option.

    Returns
    -------
    tuple
        As `deploy` gives them.

    Raises
    ------
    InputError
        Names the option at fault.
    """
    return deploy(**_records(options))


def acceptance_from(options: dict[str, Any]) -> Acceptance:
    """Return the acceptance that the options of the command line give.

    Parameters
    ----------
    options
        Values by name of the option.

    Returns
    -------
    Acceptance
        In the form that was given.

    Raises
    ------
    InputError
        If it is not exactly one, or not a number.
    """
    given = _given_acceptance(options)
    if "acceptance_by_position" in given:
        text = given["acceptance_by_position"]
        try:
            given["acceptance_by_position"] = [float(rate) for rate in text.split(",")]
        except ValueError:
            raise InputError("acceptance_by_position", text, "rates such as 0.8,0.7") from None
    return Acceptance(**given, measured_draft_length=options.get("measured_draft_length"))


def _given_acceptance(options: dict[str, Any]) -> dict[str, Any]:
    """Return the one form of acceptance that was given."""
    given = {n: options[n] for n in FORMS if options.get(n) is not None}
    if len(given) != 1:
        flags = [flag(name) for name in given] or None
        raise InputError("acceptance", flags, "exactly one of " + ", ".join(map(flag, FORMS)))
    return given


def axes_from(options: dict[str, Any]) -> dict[str, Any]:
    """Return the axes of a sweep from lists and ranges as typed.

    Parameters
    ----------
    options
        Texts by name of the option, and settings as `settings_from` takes them.

    Returns
    -------
    dict
        Values by parameter.

    Raises
    ------
    InputError
        Names the option at fault.
    """
    _given_acceptance(options)
    axes: dict[str, Any] = {}
    for name, text in options.items():
        if name in _WHOLE:
            axes[name] = None if text is None else parse_values(name, text)
        elif name in _REAL:
            axes[name] = None if text is None else parse_numbers(name, text)
        elif name != "changes":
            axes[name] = None if text is None else [word.strip() for word in text.split(",")]
    for setting in options["changes"]:
        key, values = next(iter(settings_from([setting]).items()))
        axes[key] = values if not isinstance(values, str) else _listed(f"set {key}", values)
    return axes


def _listed(argument: str, text: str) -> list[Any]:
    if ":" in text:
        try:
            return list(parse_values(argument, text))
        except InputError:
            return list(parse_numbers(argument, text))
    return [literal(word.strip()) for word in text.split(",")]


def _records(options: dict[str, Any]) -> dict[str, Any]:
    """Load target, drafter, hardware and engine, with dtypes and what-ifs applied."""
    given = {name: options[name] for name in NAMES if name in options}
    return assemble(given | settings_from(options["changes"]), prefix="set ")


def settings_from(settings: Sequence[str]) -> dict[str, object]:
    """Return what ``--set`` replaces, by the dotted name of the field.

    Parameters
    ----------
    settings
        Each KEY=VALUE.

    Returns
    -------
    dict
        Numbers, truth values and texts.

    Raises
    ------
    InputError
        If one is not of that form.
    """
    changes: dict[str, object] = {}
    for setting in settings:
        key, has_value, value = (part.strip() for part in setting.partition("="))
        record, has_field, _ = key.partition(".")
        if not has_value or not has_field or record not in RECORDS:
            expected = "KEY=VALUE with a key that starts with " + "., ".join(RECORDS) + "."
            raise InputError("set", setting, expected)
        changes[key] = literal(value)
    return changes


def literal(text: str) -> object:
    """Return a typed value as a truth value, a number or as it stands."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
