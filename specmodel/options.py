"""Options of the command line as records, deployments and axes."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from specmodel.acceptance import Acceptance
from specmodel.architecture import Architecture, load_architecture
from specmodel.deployment import Deployment, deploy
from specmodel.drafters import Drafter, load_drafter
from specmodel.engine import load_engine
from specmodel.errors import InputError
from specmodel.hardware import load_hardware
from specmodel.outcome import Prediction
from specmodel.popularity import zipf_popularity
from specmodel.prediction import predict
from specmodel.ranges import parse_values
from specmodel.records import read_numbers
from specmodel.units import FloatArray, check_dtype

MAX_POINTS = 200_000
"""Most operating points that one call prints [-]."""

_DEPLOYED = (
    "stack",
    "tensor_parallel",
    "expert_parallel",
    "draft_tensor_parallel",
    "routing_correlation",
)
_PASSED = ("verify_tokens", "max_draft_length", "interval")
_DTYPES = ("weight_dtype", "expert_dtype", "embedding_dtype", "activation_dtype", "kv_dtype")
_ACCEPTANCE = (
    "acceptance_rate",
    "tokens_per_step",
    "step_efficiency",
    "accepted_fraction",
    "acceptance_by_position",
)


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
    axes = {
        name: parse_values(name, options[name])
        for name in ("context_length", "draft_length", "batch_size")
        if options[name] is not None
    }
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
    given: dict[str, Any] = {n: options[n] for n in _ACCEPTANCE if options[n] is not None}
    if len(given) != 1:
        flags = [flag(name) for name in given] or None
        raise InputError("acceptance", flags, "exactly one of " + ", ".join(map(flag, _ACCEPTANCE)))
    if "acceptance_by_position" in given:
        text = given["acceptance_by_position"]
        try:
            given["acceptance_by_position"] = [float(rate) for rate in text.split(",")]
        except ValueError:
            raise InputError("acceptance_by_position", text, "rates such as 0.8,0.7") from None
    return Acceptance(**given, measured_draft_length=options["measured_draft_length"])


def _records(options: dict[str, Any]) -> dict[str, Any]:
    """Load target, drafter, hardware and engine, with dtypes and what-ifs applied."""
    changes = _changes(options["changes"])
    given = {
        name: check_dtype(name, options[name]) for name in _DTYPES if options[name] is not None
    }
    target = load_architecture(options["target"]).with_changes(
        "set target", changes["target"] | given
    )
    drafter = load_drafter(options["drafter"], target)
    drafter = _change_drafter(drafter, options, changes["drafter"])
    engine = options["engine"]
    if engine is not None or changes["engine"]:
        engine = load_engine(engine or "ideal").with_changes("set engine", changes["engine"])
    hardware = load_hardware(options["hardware"])
    return {
        "target": target,
        "drafter": drafter,
        "engine": engine,
        "hardware": hardware.with_changes("set hardware", changes["hardware"]),
        "popularity": _popularity(options, target),
        **{name: options[name] for name in _DEPLOYED},
        **given,
    }


def _popularity(options: dict[str, Any], target: Architecture) -> FloatArray | None:
    exponent, file = options["popularity_exponent"], options["popularity"]
    if exponent is None and file is None:
        return None
    if exponent is not None and file is not None:
        raise InputError("popularity", file, "one of --popularity and --popularity-exponent")
    if not target.is_moe:
        name = "popularity" if file else "popularity_exponent"
        raise InputError(name, file or exponent, f"none, as {target.name} has no routed experts")
    if file is not None:
        return read_numbers(Path(file), "popularity")
    return zipf_popularity(target.num_experts, target.experts_per_token, exponent)


def _change_drafter(
    drafter: Drafter, options: dict[str, Any], changes: dict[str, object]
) -> Drafter:
    names = ("lookup_time", "proposal_rate")
    lookup = {name: options[name] for name in names if options.get(name) is not None}
    if lookup and drafter.architecture is not None:
        name, value = next(iter(lookup.items()))
        raise InputError(name, value, "--drafter ngram with it")
    if changes:
        if drafter.architecture is None:
            key, value = next(iter(changes.items()))
            raise InputError(f"set drafter.{key}", value, "a drafter with an architecture")
        lookup["architecture"] = drafter.architecture.with_changes("set drafter", changes)
    return replace(drafter, **lookup)


def _changes(settings: Sequence[str]) -> dict[str, dict[str, object]]:
    changes: dict[str, dict[str, object]] = {
        record: {} for record in ("hardware", "engine", "target", "drafter")
    }
    for setting in settings:
        key, has_value, value = setting.partition("=")
        record, has_field, field = key.strip().partition(".")
        if not has_value or not has_field or record not in changes:
            expected = "KEY=VALUE with a key that starts with " + "., ".join(changes) + "."
            raise InputError("set", setting, expected)
        changes[record][field] = _literal(value.strip())
    return changes


def _literal(text: str) -> object:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
