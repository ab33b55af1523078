"""Typed options turned into records, deployments, predictions and axes of a sweep.

`options` are always the values of the shared options by name, None for those not typed. An option
that cannot be used raises an `InputError` with its name.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from specmodel.algebra.acceptance import FORMS, Acceptance
from specmodel.algebra.speculation import MAX_DRAFT_LENGTH
from specmodel.answers.layouts import HELD_REQUESTS
from specmodel.base.errors import InputError
from specmodel.base.ranges import parse_numbers, parse_values
from specmodel.base.units import check, parse_seconds
from specmodel.cli.settings import OPTIONS, TIME, flag, given, refuse_given
from specmodel.cli.taken import (
    TYPICAL,
    laid_out,
    measured_or_none,
    typical_acceptance,
    typical_or_none,
)
from specmodel.cost.deploying import DEGREES, RECORDS, resolve
from specmodel.cost.deployment import Deployment, state_slots_of
from specmodel.prediction.at_best import warnings_at_best
from specmodel.prediction.outcome import Prediction
from specmodel.prediction.predicting import (
    DEFAULT_MAX_DRAFT_LENGTH,
    predict_deployed,
)

MAX_POINTS = 200_000
"""Most operating points that one call prints [-]."""

_LOAD = ("prompt_length", "output_length")
_AXES = (*_LOAD, "context_length", "draft_length", "batch_size")
_FORMS = ("acceptance", *FORMS)
_PASSED = ("verify_tokens", "max_draft_length", "interval")
_PARSERS = {
    **dict.fromkeys((int, "VALUES"), parse_values),
    **dict.fromkeys((float, "RATES"), parse_numbers),
}
"""How a list of values is read, by the kind of its option; times by `_times`, others as words."""


def predict_from(options: dict[str, Any]) -> Prediction:
    """Return the prediction asked for; axes are context, then draft length, then batch size."""
    grid = grid_from(options)
    deployment, assumed = deployment_from(options)
    return predict_deployed(
        deployment,
        assumed,
        acceptance=acceptance_from(options),
        **{name: options[name] for name in _PASSED if name in options},
        **grid,
    )


def decode_from(options: dict[str, Any]) -> Prediction:
    """Return the prediction of plain decoding asked for, with axes as in `predict_from`."""
    grid = grid_from(options)
    from specmodel.prediction.decoding import decode_deployed

    return decode_deployed(*deployment_from(options), interval=options["interval"], **grid)


def drafted_from(options: dict[str, Any]) -> Prediction:
    """Return the prediction asked for, at the best lengths if none are typed; refuse one of 0."""
    if options["draft_length"] is None:
        return best_from(options)
    # the best draft length is not printed, so that no longer drafts need be evaluated
    prediction = predict_from(options | {"max_draft_length": 1})
    if not prediction.draft_length.all():
        raise InputError("draft_length", options["draft_length"], "at least 1")
    return prediction


def best_from(options: dict[str, Any]) -> Prediction:
    """Return the prediction at the best draft length of each point that is asked for."""
    from specmodel.answers.outlook import at_best_lengths

    options = {"max_draft_length": None} | options
    deployment, assumed = alone_from(options)
    longest, acceptance = longest_draft(options), acceptance_from(options)
    told = {} if options["max_draft_length"] else longest_told(options, longest)
    return at_best_lengths(deployment, assumed | told, acceptance, longest, grid_from(options))


def alone_from(options: dict[str, Any]) -> tuple[Deployment, dict[str, Any]]:
    """Return the deployment and what was assumed of it, that no prefill is carried included."""
    deployment, assumed = deployment_from(options)
    return deployment, ({} if given(options, _LOAD) else {"prefill": "none carried"}) | assumed


def lengths_from(options: dict[str, Any], shortest: int = 1) -> Prediction:
    """Return the prediction asked for at all draft lengths up to the longest considered."""
    longest = longest_draft(options)
    used = {"max_draft_length": longest}
    prediction = predict_from(options | used | {"draft_length": f"{shortest}:{longest}"})
    assumed = longest_told(options, longest) if options["max_draft_length"] is None else {}
    assumed = prediction.assumptions | assumed
    return replace(prediction, assumptions=assumed, warn=warnings_at_best)


def grid_from(options: dict[str, Any]) -> dict[str, Any]:
    """Return the coordinates that were typed, each along its own axis."""
    axes = {
        name: parse_values(name, str(options[name]))
        for name in _AXES
        if options.get(name) is not None
    }
    check_points("batch_size", {flag(name): len(values) for name, values in axes.items()})
    grid = np.meshgrid(*axes.values(), indexing="ij", sparse=True)
    return dict(zip(axes, cast(Any, grid), strict=True))


def check_points(argument: str, counts: dict[str, int], of: str = " in all") -> None:
    """Refuse more points than one call prints, by the number of values along each axis."""
    points = math.prod(counts.values())
    if points > MAX_POINTS:
        raise InputError(argument, counts, f"at most {MAX_POINTS} points{of}, not {points}")


def deployment_from(
    options: dict[str, Any], requests: int = HELD_REQUESTS
) -> tuple[Deployment, dict[str, Any]]:
    """Return the deployment, and by argument what was assumed of it.

    GPUs are the fewest that hold it and some requests where no layout is typed.
    """
    values = options | settings_from(options["changes"]) | options.get("implied", {})
    deployment, assumed = resolve(values, prefix="set ")
    degrees, told = laid_out(deployment, options, requests)
    if degrees:
        deployment, assumed = resolve(values | degrees, prefix="set ")
    for name in DEGREES[:3] if told else ():
        assumed.pop(name, None)
    told |= {"changes": ", ".join(options["changes"])} if options["changes"] else {}
    told |= {"names": "; ".join(options["taken"])} if options.get("taken") else {}
    told |= {"drafter": options["taken_drafter"]} if options.get("taken_drafter") else {}
    return deployment, told | assumed


def with_its_engine(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return options with the engine of --for unless --engine is typed, and what was assumed."""
    name = options["dialect"]
    if options["engine"] is not None:
        return options, {}
    return options | {"engine": name}, {"engine": f"{name} (fit engine takes your own runs)"}


def with_its_states(options: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return options with recurrent states kept as by the engine of --for; and if they changed.

    --engine may name another one for the times. Nothing changes if nothing is recurrent, if both
    keep states alike, or if the engine's record says how.
    """
    deployment, _ = deployment_from(options)
    slots = state_slots_of(options["dialect"])
    is_as_told = deployment.engine.state_slots or deployment.states.slots == slots
    if deployment.recurrent_model is None or is_as_told:
        return options, False
    return options | {"implied": {"engine.state_slots": slots}}, True


def acceptance_from(options: dict[str, Any]) -> Acceptance:
    """Return the acceptance asked for, with its spread between tasks where that is asked for."""
    found, spread = _acceptance_from(options), options.get("acceptance_spread")
    if spread is None:
        return found
    check("acceptance_spread", spread, minimum=0, maximum=0.5)
    return replace(found, spread=spread)


def _acceptance_from(options: dict[str, Any]) -> Acceptance:
    """Return the acceptance typed in one form, else what is published of target and drafter."""
    if not typed_acceptance(options):
        return _of_unchanged(_measured(options), options)
    form = _given_acceptance(options)
    if form.get("acceptance") in TYPICAL:
        return typical_acceptance(options)
    if "acceptance" in form:
        return _of_unchanged(published_from(options), options)
    if "acceptance_by_position" in form:
        text = form["acceptance_by_position"]
        try:
            form["acceptance_by_position"] = [float(rate) for rate in text.split(",")]
        except ValueError:
            raise InputError("acceptance_by_position", text, "rates such as 0.8,0.7") from None
    return Acceptance(**form, measured_draft_length=options.get("measured_draft_length"))


def _of_unchanged(acceptance: Acceptance, options: dict[str, Any]) -> Acceptance:
    """Return published acceptance that says so where it is not that of what is changed."""
    records = {setting.partition(".")[0].strip() for setting in options["changes"]}
    changed = [name for name in ("target", "drafter") if name in records]
    if not changed:
        return acceptance
    return replace(acceptance, source=f"{acceptance.source}, of the unchanged {changed[0]}")


def typed_acceptance(options: dict[str, Any]) -> bool:
    """Tell whether any form of acceptance was typed."""
    return bool(given(options, _FORMS))


def _measured(options: dict[str, Any]) -> Acceptance:
    """Return the acceptance that is published of this very target and drafter."""
    refuse_given(options, ["measured_draft_length"], "a form of acceptance with it")
    found = measured_or_none(options)
    lengths = options.get("draft_length")
    if found and lengths is not None:
        longest, most = max(parse_values("draft_length", str(lengths))), int(found.max_draft_length)
        if longest > most:
            further = "; ".join(filter(None, ["the longest measured", _further(options, most)]))
            raise InputError("draft_length", longest, f"at most {most} ({further}): {found.source}")
    if found is None:
        typical = (
            "--acceptance typical (the median head published), or "
            if typical_or_none(options)
            else ""
        )
        told = f"{typical}a rate of yours, such as --acceptance-rate 0.7"
        both = f"{options['target']} with {options['drafter']}"
        raise InputError("acceptance", None, f"{told}, as none is published of {both}")
    return found


def _given_acceptance(options: dict[str, Any]) -> dict[str, Any]:
    """Return the one form of acceptance that was typed, by name."""
    typed = given(options, _FORMS)
    if len(typed) != 1:
        flags = [flag(name) for name in typed] or None
        raise InputError("acceptance", flags, "exactly one of " + ", ".join(map(flag, _FORMS)))
    return typed


def published_from(options: dict[str, Any]) -> Acceptance:
    """Return a published acceptance: of the target with the drafter, or by its name."""
    from specmodel.drafters.acceptance import load_acceptance

    for name in ("target", "drafter"):
        if "," in options[name]:
            raise InputError(name, options[name], "one, with the acceptance that is published")
    expected = "none, as what is published says its draft lengths"
    refuse_given(options, ["measured_draft_length"], expected)
    return load_acceptance(options["target"], options["drafter"], options["acceptance"])


def longest_draft(options: dict[str, Any]) -> int:
    """Return the longest draft to consider, typed or default [token].

    It is at most what acceptance is known for and what the drafter drafts at once.
    """
    from specmodel.drafters.by_name import longest_block

    block = longest_block(options["drafter"], options["target"])
    asked: int | None = options["max_draft_length"]
    acceptance = acceptance_from(options)
    acceptance.measured_at([1, 2])  # with two lengths: refuses an unknown measured length
    known = int(acceptance.max_draft_length)
    if asked is None:
        return min(DEFAULT_MAX_DRAFT_LENGTH, known, block or known)
    check("max_draft_length", asked, minimum=1, maximum=MAX_DRAFT_LENGTH, whole=True)
    if block is not None and asked > block:
        raise InputError("max_draft_length", asked, f"at most {block}, which is drafted at once")
    if asked > known:
        expected = f"at most {known}, the positions that acceptance_by_position covers"
        raise InputError("max_draft_length", asked, expected)
    return asked


def longest_told(options: dict[str, Any], longest: int) -> dict[str, int | str]:
    """Return what to say of the longest draft considered, where it was not typed."""
    is_measured = not typed_acceptance(options) and longest < DEFAULT_MAX_DRAFT_LENGTH
    further = _further(options, longest) if is_measured else ""
    told = f"{longest} (the longest measured; {further})" if further else longest
    return {"max_draft_length": told}


def _further(options: dict[str, Any], longest: int) -> str:
    """Name what reaches beyond the longest draft measured of a target; "" if nothing does."""
    heads = typical_or_none(options)
    has_longer = heads is not None and heads.max_draft_length > longest
    return "--acceptance typical goes further" if has_longer else ""


def published_or_none(options: dict[str, Any]) -> Acceptance | None:
    """Return the acceptance that is published, None where numbers are typed in its place."""
    is_typed = typed_acceptance(options) and "acceptance" not in _given_acceptance(options)
    return None if is_typed else acceptance_from(options)


def axes_from(options: dict[str, Any], published: Acceptance | None) -> dict[str, Any]:
    """Return the axes of a sweep by parameter, with dotted names for fields of records."""
    axes: dict[str, Any] = {}
    if published:
        axes["acceptance_by_position"] = published.acceptance_by_position
    for name, text in options.items():
        if name != "changes" and name not in ("acceptance", *axes):
            kind = OPTIONS[name][0]
            parse = _times if kind is TIME else _PARSERS.get(kind, _words)
            axes[name] = None if text is None else parse(name, text)
    for key, value in settings_from(options["changes"]).items():
        axes[key] = _listed(f"set {key}", value) if isinstance(value, str) else value
    return axes


def _times(argument: str, text: str) -> list[float]:
    """Return the times of a list or range, with units or without [s]."""
    one = r"[\d.]+(?:e[-+]?\d+)? *[um]?s\b"
    bare = re.sub(one, lambda found: f"{parse_seconds(argument, found[0])}", text)
    return parse_numbers(argument, bare)


def _words(_argument: str, text: str) -> list[str]:
    return [word.strip() for word in text.split(",")]


def _listed(argument: str, text: str) -> list[Any]:
    """Return the values of a list or range: whole numbers, numbers or words."""
    if ":" in text:
        try:
            return list(parse_values(argument, text))
        except InputError:
            return list(parse_numbers(argument, text))
    return [literal(word) for word in _words(argument, text)]


def settings_from(settings: Sequence[str]) -> dict[str, object]:
    """Return the values of ``--set KEY=VALUE`` by dotted field."""
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
    """Return a typed value as bool, int or float if it reads as one, else as text."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
