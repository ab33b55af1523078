"""What is taken where nothing is named: the usual drafter, and as many GPUs as hold it all.

Whatever is taken stands among what was assumed, by the name of what was not given, with the reason.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from operator import attrgetter
from pathlib import Path
from typing import Any

from specmodel.base.dtypes import check_dtype
from specmodel.base.errors import InputError
from specmodel.base.naming import SETTABLE, counted
from specmodel.base.notes import Note
from specmodel.base.records import is_path
from specmodel.base.units import parse_seconds
from specmodel.cost.deploying import GPU_DEGREES, RECORDS, resolve
from specmodel.cost.deployment import Deployment
from specmodel.cost.layouts import HELD, Degrees, holds, layout_of, num_gpus, smallest_layout
from specmodel.drafters.published import rows_of, taken_drafter
from specmodel.models.architecture import Architecture, load_architecture

TOLD = ("changes", "names", "checkpoint", "drafter", "own_drafter", "acceptance_by_position")
"""What is said of the question before what was assumed of the deployment."""
NO_DRAFTER = "none"
"""The name of a drafter that stands for none."""
_ONE_NODE = 8
"""GPUs above which a checkpoint with smaller weights is taken, where one is published [-]."""
_DATA = Path(__file__).parent / "data"


def deployed(
    arguments: Mapping[str, Any], held: tuple[int, int] = HELD
) -> tuple[Deployment, dict[str, Any]]:
    """Return `usually_deployed` of the arguments, cached if they are names and numbers.

    A deployment is kept with the programs of its passes.
    """
    types = tuple(map(type, arguments.values()))
    if {str, int, float, bool, type(None)}.issuperset(types):
        kept = _kept(tuple(arguments.items()), types, held)
        if kept:
            return kept[0], dict(kept[1])
    return usually_deployed(arguments, held)


@lru_cache(maxsize=1024)
def _kept(
    arguments: tuple[tuple[str, Any], ...], _types: tuple[type, ...], held: tuple[int, int]
) -> tuple[Deployment, dict[str, Any]] | None:
    """Return what is deployed, None if a file says what; types tell 1 from 1.0 and True."""
    if any(isinstance(value, str) and is_path(value) for _, value in arguments):
        return None
    return usually_deployed(dict(arguments), held)


def usually_deployed(
    values: Mapping[str, Any], held: tuple[int, int] = HELD
) -> tuple[Deployment, dict[str, Any]]:
    """Return the deployment of what was named, with the usual for the rest, and what was assumed.

    Parameters
    ----------
    values
        By name, as `deploying.resolve` takes them, or `changes` by field; None where nothing was
        named. The GPU may be counted, as in ``8xh200``, or by `num_gpus`. Without degrees, GPUs are
        the fewest that hold weights, drafter and some requests; with `may_not_fit`, one where none
        do. The usual drafter is taken if `is_drafting`. Where 16-bit weights do not fit, or take
        several nodes, those of a smaller checkpoint are taken, if one is published that fits and no
        dtype was named. What is not plausible needs `force`.
    held
        Requests that must fit, and the tokens of each [request] [token].
    """
    try:
        found = _deployed(values, held)
        if _is_usual(*found):
            return found
    except InputError as error:
        if error.argument != "hardware":
            raise
    for smaller in _smaller(values):
        with suppress(InputError):
            other = _deployed(smaller, held)
            if _is_usual(*other):
                return other
    return _deployed(values, held)  # which refuses if it did


def _is_usual(deployment: Deployment, assumed: Mapping[str, Any]) -> bool:
    """Return whether the weights fit, and, where GPUs were not counted, one node does."""
    is_few = "gpus" not in assumed or deployment.layout.num_gpus <= _ONE_NODE
    return is_few and holds(deployment)


def _smaller(values: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the arguments with each published checkpoint of smaller weights, if none are named."""
    target = values.get("target")
    if values.get("weight_dtype") is not None or not isinstance(target, str) or is_path(target):
        return
    name = load_architecture(target).name.lower()
    for row in rows_of("quantised.csv", _DATA):
        if name == row["target"]:
            told = f"{row['checkpoint']}, as 16-bit weights do not fit"
            yield {**values, "weight_dtype": row["weight_dtype"], "told_checkpoint": told}


def _deployed(
    values: Mapping[str, Any], held: tuple[int, int]
) -> tuple[Deployment, dict[str, Any]]:
    """Return the deployment in the dtypes named, or in the target's own, and what was assumed."""
    values = {**values, **(changed(values["changes"]) if values.get("changes") else {})}
    values |= counted_gpus(values.get("hardware"))
    if values.get("drafter") == NO_DRAFTER:
        values["drafter"] = None
    elif values.get("drafter") is None and values.get("is_drafting") and "target" in values:
        values |= usual_drafter(values["target"], values.get("weight_dtype"))
    lay_out = partial(_laid_out, values=values, held=held)
    prefix = "changes " if values.get("changes") else ""
    deployment, assumed = resolve(values, prefix, lay_out)
    if not values.get("force"):
        _check_plausible(deployment)
    link, count = deployment.hardware.link, deployment.layout.num_gpus
    if "gpus" in assumed and link and link.kind == "pcie" and count > 1:
        assumed["link"] = f"{count} GPUs over PCIe"
    notes = {name: values.get(f"told_{name}") for name in TOLD}
    return deployment, {name: note for name, note in notes.items() if note} | assumed


def _check_plausible(deployment: Deployment) -> None:
    """Refuse values above any known machine's or model's; not called with ``force``."""
    for row in rows_of("plausible.csv", _DATA):
        place, most = row["field"], float(row["largest"])
        value = attrgetter(place)(deployment)
        if value > most:
            expected = f"at most {most:g}, the largest known; `force` allows more"
            raise InputError(place, value, expected)


def changed(changes: Mapping[str, object] | Sequence[str]) -> dict[str, object]:
    """Return the values that `changes` say, and a text of the changes by dotted field."""
    values = what_ifs(changes)
    time = values.get("lookup_time")
    if time is not None and not (isinstance(time, int | float) and not time >= 1):
        values["lookup_time"] = parse_seconds("lookup_time", str(time))
    texts = [f"{k}={v}" for k, v in changes.items()] if isinstance(changes, Mapping) else changes
    texts = [text for text in texts if "." in text.partition("=")[0]]  # others are plain arguments
    return values | {"told_changes": ", ".join(texts)}


def counted_gpus(hardware: object) -> dict[str, object]:
    """Return the GPU of a name such as ``8xh200`` as `hardware`, and the count as `num_gpus`."""
    if not isinstance(hardware, str):
        return {}
    count, name = counted(hardware)
    return {"hardware": name} | ({"num_gpus": count} if count else {})


def what_ifs(changes: Mapping[str, object] | Sequence[str]) -> dict[str, object]:
    """Return changes by dotted field of the records, from a mapping or ``KEY=VALUE`` texts."""
    if isinstance(changes, Mapping):
        values, texts = dict(changes), dict(zip(changes, changes, strict=True))
    else:
        parts = {text: [part.strip() for part in text.partition("=")] for text in changes}
        values = {key: literal(value) for key, _, value in parts.values()}
        texts = {key if has_value else "": text for text, (key, has_value, _) in parts.items()}
    for key, text in texts.items():
        record, has_field, _ = key.partition(".")
        if key not in SETTABLE and (not has_field or record not in RECORDS):
            expected = f"KEY=VALUE with a key that starts with {'., '.join(RECORDS)}., or is one of"
            raise InputError("changes", text, f"{expected} {', '.join(SETTABLE)}")
    return values


def literal(text: str) -> object:
    """Return a typed value as bool, int or float if it reads as one, else as text."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def usual_drafter(target: Architecture | str | Path, weight_dtype: str | None) -> dict[str, Any]:
    """Return the target's usual drafter by name, why, and the record that was read for that."""
    if not isinstance(target, Architecture):
        stored = None if weight_dtype is None else check_dtype("weight_dtype", weight_dtype)
        target = load_architecture(target, weight_dtype=stored)
    drafter, why = taken_drafter(target)
    has_own = target.num_mtp_modules and drafter != "mtp"
    own = {"told_own_drafter": "an MTP module of its own (drafter mtp)"} if has_own else {}
    return {"target": target, "drafter": drafter, "told_drafter": f"{drafter} ({why})", **own}


def _laid_out(
    deployment: Deployment, values: Mapping[str, Any], held: tuple[int, int]
) -> tuple[Degrees, Note | None]:
    """Return the degrees of `num_gpus` or else of the fewest GPUs that suffice, and a note."""
    count = values.get("num_gpus")
    typed = {name: values[name] for name in GPU_DEGREES if values.get(name) is not None}
    if count is not None:
        return _counted_degrees(deployment, count, typed), None
    if typed or deployment.hardware.kind == "cpu":
        return {}, None
    with suppress(InputError):
        degrees = smallest_layout(deployment, held)
        if num_gpus(degrees) <= _ONE_NODE:
            return degrees, _gpus_told(deployment, degrees, held)
    try:  # long requests take several nodes no more than the model does
        degrees = smallest_layout(deployment, HELD)
    except InputError:
        if values.get("may_not_fit"):
            return {}, None
        raise
    return degrees, _gpus_told(deployment, degrees, HELD)


def _gpus_told(deployment: Deployment, degrees: Degrees, held: tuple[int, int]) -> Note:
    told = {"requests": held[0], "tokens": held[1], "has_drafter": deployment.has_drafter}
    return Note("gpus", {"count": num_gpus(degrees), **told})


def _counted_degrees(deployment: Deployment, count: int, typed: Degrees) -> Degrees:
    """Return the degrees of `count` GPUs; typed degrees must multiply to `count`."""
    if not typed:
        return layout_of(deployment, count)
    tensor, data = typed.get("tensor_parallel", 1), typed.get("data_parallel")
    if data is None and tensor and count % tensor == 0:
        data = count // tensor
    if data is None or tensor * data != count:
        degrees = ", ".join(f"{name} {value}" for name, value in typed.items())
        expected = f"degrees whose product is {count}, as so many GPUs are named"
        raise InputError(next(iter(typed)), degrees, expected)
    return {"data_parallel": data}
