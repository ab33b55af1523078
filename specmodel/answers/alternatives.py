"""Alternatives: whatever may be a list side by side, each resolved once and predicted."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from specmodel.base.errors import InputError
from specmodel.base.naming import counted
from specmodel.base.records import is_path
from specmodel.base.text import Viewed
from specmodel.cost.deploying import LOOKUP
from specmodel.cost.layouts import layouts_of
from specmodel.cost.usual import usually_deployed
from specmodel.drafters.names import LOOKUPS
from specmodel.machines.hardware import HardwareProfile
from specmodel.models.architecture import Architecture
from specmodel.prediction.case import DEFAULT_BATCH_SIZES, case_of
from specmodel.prediction.outcome import Prediction
from specmodel.prediction.predicting import at_all_lengths, at_given_lengths

LISTS = (
    *("target", "drafter", "hardware", "engine", "tensor_parallel", "data_parallel"),
    *("expert_parallel", "weight_dtype", "expert_dtype", "kv_dtype", "prefill", "draft_length"),
)
"""Arguments that may be lists, each value an alternative."""
_SHORT = {"tensor_parallel": "TP", "data_parallel": "DP", "expert_parallel": "EP"}
_SHORT |= {"draft_length": "length", "expert_dtype": "experts", "kv_dtype": "KV"}
_SHORT |= {"prefill": "prefill"}
"""What stands before a value in the name of an alternative."""
_WHOLE = ("tensor_parallel", "data_parallel", "expert_parallel")
_REPLICAS = ("tensor_parallel", "data_parallel")
"""Degrees whose product is the number of GPUs."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Alternatives(Viewed):
    """Predictions of alternatives by name, which says what differs between them.

    Parameters
    ----------
    predictions
        At all draft lengths considered, or at those given.
    arguments
        What each was asked with, by the same names.
    notes
        What to say of those left out, and of the number of GPUs.
    """

    room = "compared"

    predictions: dict[str, Prediction]
    arguments: dict[str, dict[str, Any]]
    notes: list[str]


def compare(
    target: Architecture | str | Path | Sequence[str],
    hardware: HardwareProfile | str | Path | Sequence[str],
    **arguments: Any,
) -> Alternatives:
    """Compare models, GPUs, layouts, dtypes, engines, drafters or lengths, as the command does.

    Parameters
    ----------
    target, hardware
        Models and GPUs, one or a list of each; ``8xh200`` is eight of one.
    **arguments
        Those of `specmodel.predict`, of which those of `LISTS` may be lists: every combination is
        an alternative. One combination alone stands for all layouts of its GPUs.

    Returns
    -------
    Alternatives
        Printed, what the command prints.

    Examples
    --------
    >>> found = compare("mixtral-8x7b", ["2xh100", "2xh200"], acceptance=0.7, batch_size=[1, 64])
    >>> [*found.predictions]
    ['2xh100', '2xh200']
    """
    sizes = {"batch_size": DEFAULT_BATCH_SIZES}
    return alternatives(sizes | arguments | {"target": target, "hardware": hardware})


def alternatives(arguments: Mapping[str, Any]) -> Alternatives:
    """Return a prediction for each combination of what is a list.

    One combination alone stands for all layouts of its GPUs.

    Parameters
    ----------
    arguments
        Those of `specmodel.predict`, of which those of `LISTS` may be lists, `changes` texts
        ``KEY=VALUE,VALUE``, and `acceptance_rate` a rate for each drafter.
    """
    cases = _cases(arguments)
    if len(cases) == 1:
        cases = _laid_out(*cases.items())
    found = {name: _predicted(case) for name, case in cases.items()}
    kept = {name: p for name, p in found.items() if p is not None} or _none_of(arguments)
    out = [f"{name} ({_gpus_of(cases[name])})" for name in found if name not in kept]
    notes = [f"Left out: {'; '.join(out)}."] if out else []
    even = _on_as_many_gpus(cases, kept)
    kept |= even
    counts = {p.deployment.layout.num_gpus for p in kept.values()}
    if len(counts) == 1:
        (num,) = counts
        why = ", as the largest alternative needs" if even else ""
        notes.insert(0, f"{'All on' if len(kept) > 1 else 'On'} {gpus_told(num)}{why}.")
        cases = {name: case | {"num_gpus": num} for name, case in cases.items()} if even else cases
    names = {name: _with_gpus(name, p, kept) for name, p in kept.items()}
    predictions = {names[name]: p for name, p in kept.items()}
    told = {names[name]: cases[name] for name in kept}
    return Alternatives(predictions=predictions, arguments=told, notes=notes)


def _on_as_many_gpus(
    cases: Mapping[str, dict[str, Any]], kept: Mapping[str, Prediction]
) -> dict[str, Prediction]:
    """Return predictions on as many GPUs as the largest alternative needs, where none are typed.

    Nothing if all need as many, or if one cannot be cut that way.
    """
    counts = {p.deployment.layout.num_gpus for p in kept.values()}
    if len(counts) == 1 or not all("gpus" in p.assumptions for p in kept.values()):
        return {}
    most = max(counts)
    try:
        even = {name: _predicted(cases[name] | {"num_gpus": most}) for name in kept}
    except InputError:
        return {}
    told = {"gpus": f"{most} (the fewest that hold the largest alternative)"}
    return {name: replace(p, assumptions=told | {**p.assumptions}) for name, p in even.items() if p}


def _cases(arguments: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the arguments of each combination by its name."""
    given = {name: value for name, value in arguments.items() if value is not None}
    lists = {name: _listed(name, given.get(name)) for name in LISTS}
    if not {*LOOKUPS} & {each for each in lists["drafter"] if isinstance(each, str)}:
        for name in LOOKUP:
            if name in given:
                raise InputError(name, given[name], "the drafter ngram or suffix with it")
    rates = _rates(given, len(lists["drafter"]))
    labels = {name: _labels(name, values) for name, values in lists.items()}
    has_ideal = "ideal" in lists["engine"] and lists["engine"] != ["ideal"]
    changes, found = list(given.get("changes", ())), {}
    places = itertools.product(*(range(len(values)) for values in lists.values()))
    what_ifs = [*itertools.product(*map(_changes, changes))]
    for chosen, changed in itertools.product(places, what_ifs):
        place = dict(zip(LISTS, chosen, strict=True))
        named = {name: lists[name][i] for name, i in place.items()}
        varied = {name: labels[name][i] for name, i in place.items() if len(lists[name]) > 1}
        varied |= {
            each: each.partition(".")[2] or each
            for each, typed in zip(changed, changes, strict=True)
            if each != typed
        }
        case = given | {name: value for name, value in named.items() if value is not None}
        case |= {"may_not_fit": True, "changes": changed}
        if isinstance(named["hardware"], str) and (counts := counted(named["hardware"]))[0]:
            case |= {"num_gpus": counts[0], "hardware": counts[1]}
        if rates:
            case["acceptance_rate"] = rates[place["drafter"]]
        dropped = [] if named["drafter"] in LOOKUPS else [*LOOKUP]
        dropped += ["host_speed"] if has_ideal and named["engine"] == "ideal" else []
        case = {name: value for name, value in case.items() if name not in dropped}
        found[_name(varied) or labels["target"][place["target"]]] = case
    return found


def _changes(setting: str) -> list[str]:
    """Return the settings of KEY=VALUE,VALUE: one for each value."""
    key, has_value, values = setting.partition("=")
    listed = [value.strip() for value in values.split(",")]
    if len({*listed}) < len(listed):
        raise InputError(f"changes {key}", values, "alternatives, each once")
    return [f"{key}{has_value}{value}" for value in listed]


def _laid_out(case: tuple[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the layouts of the GPUs of a case that keep the degrees given; itself if one does."""
    name, arguments = case
    one = usually_deployed({**arguments, "is_drafting": True})[0]
    found = {
        _name({key: f"{_SHORT[key]}{n}" for key, n in degrees.items() if n > 1}): {
            **arguments,
            **degrees,
        }
        for degrees in layouts_of(one)
        if all(arguments.get(key) in (None, degree) for key, degree in degrees.items())
    }
    return found if len(found) > 1 else {name: arguments}


def _name(varied: Mapping[str, str]) -> str:
    """Return the labels of what varies as a name, degrees in one word each."""
    groups = itertools.groupby(varied, key=lambda name: name in _WHOLE)
    return ", ".join(
        (" " if are_degrees else ", ").join(varied[name] for name in names)
        for are_degrees, names in groups
    )


def _with_gpus(name: str, prediction: Prediction, others: Mapping[str, Prediction]) -> str:
    """Return a name with how many GPUs were taken, if alternatives differ in that."""
    num = prediction.deployment.layout.num_gpus
    is_alike = all(other.deployment.layout.num_gpus == num for other in others.values())
    return name if is_alike or f"{num}x" in name else f"{name} on {gpus_told(num)}"


def gpus_told(num: int) -> str:
    """Return a number of GPUs in words."""
    return f"{num} GPU{'s' if num > 1 else ''}"


def _listed(name: str, values: Any) -> list[Any]:
    """Return the values of what may be a list."""
    listed = list(values) if isinstance(values, list | tuple | range) else [values]
    if isinstance(values, np.ndarray):
        listed = np.ravel(values).astype(int).tolist()
    if len({map(str, listed)}) < 1 or len({*map(str, listed)}) < len(listed):
        raise InputError(name, values, "alternatives, each once")
    return listed


def _predicted(arguments: dict[str, Any]) -> Prediction | None:
    """Return the prediction of one alternative; None for degrees that are not the count of GPUs."""
    degrees = [arguments.get(name) for name in _REPLICAS]
    count = arguments.get("num_gpus")
    if count and all(degrees) and math.prod(map(int, filter(None, degrees))) != count:
        return None
    case = case_of({name: each for name, each in arguments.items() if name != "prefill"})
    return at_all_lengths(case) if case.draft_length is None else at_given_lengths(case)


def _gpus_of(arguments: Mapping[str, Any]) -> str:
    """Say how many GPUs degrees make, which are not those that were named."""
    num = math.prod(arguments[name] for name in _REPLICAS)
    return f"{gpus_told(num)}, not {arguments['num_gpus']}"


def _none_of(arguments: Mapping[str, Any]) -> dict[str, Prediction]:
    tensor, data = (arguments[name] for name in _REPLICAS)
    expected = f"degrees with the product of {arguments['hardware']}"
    raise InputError("tensor_parallel", f"{tensor} and --data-parallel {data}", expected)


def _rates(given: Mapping[str, Any], drafters: int) -> list[float]:
    """Return the acceptance rate of each drafter; nothing where the published one is taken."""
    rates = given.get("acceptance_rate")
    if rates is None:
        return []
    if given.get("acceptance") is not None:
        both = ["--acceptance", "--acceptance-rate"]
        raise InputError("acceptance", both, "at most one of --acceptance, --acceptance-rate")
    listed: list[float] = np.atleast_1d(np.asarray(rates, dtype=float)).tolist()
    if len(listed) not in (1, drafters):
        expected = f"one rate, or one for each of {drafters} drafters"
        raise InputError("acceptance_rate", listed, expected)
    return listed * (drafters // len(listed))


def _labels(name: str, values: list[Any]) -> list[str]:
    """Return the labels of alternatives: names, or the stems of paths if these differ."""
    if name in _SHORT:
        space = "" if name in _WHOLE else " "
        return [f"{_SHORT[name]}{space}{value}" for value in values]
    texts = [str(getattr(value, "name", value)) for value in values]
    short = [Path(each).stem if is_path(each) else each for each in texts]
    return short if len({*short}) == len(short) else texts
