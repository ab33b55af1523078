"""Choose defaults: the usual drafter, and the fewest GPUs with enough memory.

The assumptions contain each default with its reason, by the name of the argument not given.
"""

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from typing import Any

from specmodel.core.base.dtypes import check_dtype
from specmodel.core.base.errors import InputError
from specmodel.core.base.notes import Note
from specmodel.core.base.records import is_path
from specmodel.core.base.units import check, single
from specmodel.core.cost.deploying import GPU_DEGREES, deployed_as_named, laid_out
from specmodel.core.cost.deployment import Deployment
from specmodel.core.cost.layouts import HELD, Degrees, holds, layout_of, num_gpus, smallest_layout
from specmodel.core.cost.where import Where
from specmodel.core.drafters.published import rows_of, taken_drafter
from specmodel.core.models.architecture import Architecture, load_architecture

TOLD = ("changes", "names", "checkpoint", "drafter", "own_drafter", "acceptance_by_position")
"""Names of assumptions about the question, which come before those about the deployment."""
_ONE_NODE = 8
"""GPUs above which a published checkpoint with smaller weights replaces 16-bit weights [-]."""
_DATA = Path(__file__).parent / "data"


def deployed(where: Where, held: tuple[int, int] = HELD) -> tuple[Deployment, dict[str, Any]]:
    """Return the deployment of what was named, with defaults for the rest, and the assumptions.

    `where` keeps the deployment and the programs of its passes.

    Parameters
    ----------
    where
        What was named. Without degrees and a count, the deployment has the fewest GPUs with room
        for weights, drafter and some requests. If 16-bit weights do not fit, or need several nodes,
        it has the weights of a published smaller checkpoint that fits, unless a dtype was named.
        Implausible values need `force`.
    held
        Requests that must fit, and the tokens of each [request] [token].
    """
    kept: dict[tuple[int, int], tuple[Deployment, dict[str, Any]]]
    kept = vars(where).setdefault("deployments", {})
    if held not in kept:
        kept[held] = _deployed(where, held)
    deployment, assumed = kept[held]
    return deployment, dict(assumed)


def _deployed(where: Where, held: tuple[int, int]) -> tuple[Deployment, dict[str, Any]]:
    """Return the deployment with the dtypes named, of the target, or of a smaller checkpoint."""
    try:
        found = _in_dtypes(where, held)
        if _is_usual(*found):
            return found
    except InputError as error:
        if error.argument != "hardware":
            raise
    for row in _smaller(where):
        with suppress(InputError):
            told = f"{row['checkpoint']} (16-bit weights do not fit)"
            other = _in_dtypes(where.naming(weight_dtype=row["weight_dtype"]), held, told)
            if _is_usual(*other):
                return other
    return _in_dtypes(where, held)  # raises the error of the first attempt, if any


def _is_usual(deployment: Deployment, assumed: Mapping[str, Any]) -> bool:
    """Return whether the weights fit, and on one node if the number of GPUs was not given."""
    is_few = "gpus" not in assumed or deployment.layout.num_gpus <= _ONE_NODE
    return is_few and holds(deployment)


def _smaller(where: Where) -> Iterable[dict[str, str]]:
    """Return the published checkpoints with smaller weights; none if the dtype was named."""
    target = where.named.get("target")
    if "weight_dtype" in where.named or not isinstance(target, str) or is_path(target):
        return ()
    name = load_architecture(target).name.lower()
    return (row for row in rows_of("quantised.csv", _DATA) if name == row["target"])


def _in_dtypes(
    where: Where, held: tuple[int, int], checkpoint: str = ""
) -> tuple[Deployment, dict[str, Any]]:
    """Return the deployment with the dtypes named or of the target, and the assumptions."""
    told = {"changes": where.changed, "names": "; ".join(where.manner.names)}
    told |= {"checkpoint": checkpoint}
    if where.manner.is_drafting and "drafter" not in where.named and "target" in where.named:
        dtype = where.named.get("weight_dtype")
        target, drafter, reasons = usual_drafter(where.named["target"], dtype)
        where, told = where.naming(target=target, drafter=drafter), told | reasons
    deployment = deployed_as_named(where)
    deployment, assumed = laid_out(deployment, where, *_degrees(deployment, where, held))
    if not where.force:
        _check_plausible(deployment)
    link, count = deployment.hardware.link, deployment.layout.num_gpus
    if "gpus" in assumed and link and link.kind == "pcie" and count > 1:
        assumed["link"] = f"{count} GPUs over PCIe"
    return deployment, {name: note for name, note in told.items() if note} | assumed


def _check_plausible(deployment: Deployment) -> None:
    """Refuse values above the largest of any known machine or model."""
    for row in rows_of("plausible.csv", _DATA):
        place, most = row["field"], float(row["largest"])
        value = attrgetter(place)(deployment)
        if value > most:
            expected = f"at most {most:g}, the largest published value; `force` allows more"
            raise InputError(place, value, expected)


def usual_drafter(
    target: Architecture | str | Path, weight_dtype: str | None
) -> tuple[Architecture, str, dict[str, str]]:
    """Return the record of a target, the name of its usual drafter, and notes on the choice."""
    if not isinstance(target, Architecture):
        stored = None if weight_dtype is None else check_dtype("weight_dtype", weight_dtype)
        target = load_architecture(target, weight_dtype=stored)
    drafter, why = taken_drafter(target)
    has_own = target.num_mtp_modules and drafter != "mtp"
    own = {"own_drafter": "unused MTP module (drafter mtp)"} if has_own else {}
    return target, drafter, {"drafter": f"{drafter} ({why})", **own}


def _degrees(
    deployment: Deployment, where: Where, held: tuple[int, int]
) -> tuple[Degrees, Note | None]:
    """Return the degrees of `num_gpus` GPUs, or of the fewest that are enough, and a note."""
    typed = {n: _whole(n, value) for n, value in where.named.items() if n in GPU_DEGREES}
    if where.num_gpus is not None:
        return _counted_degrees(deployment, _whole("num_gpus", where.num_gpus), typed), None
    if typed or deployment.hardware.kind == "cpu":
        return {}, None
    fault = None
    # long requests do not need several nodes unless the model does
    for (requests, tokens), most in ((held, _ONE_NODE), (HELD, math.inf)):
        try:
            degrees = smallest_layout(deployment, (requests, tokens))
        except InputError as error:
            fault = error
            continue
        if num_gpus(degrees) <= most:
            told = {"count": num_gpus(degrees), "requests": requests, "tokens": tokens}
            return degrees, Note("gpus", told | {"has_drafter": deployment.has_drafter})
    if fault is None or where.manner.may_not_fit:
        return {}, None
    raise fault


def _whole(name: str, value: Any) -> int:
    return int(check(name, single(name, value, "a whole number"), minimum=1, whole=True))


def _counted_degrees(deployment: Deployment, count: int, typed: Degrees) -> Degrees:
    """Return the degrees of `count` GPUs; typed degrees must multiply to `count`."""
    if not typed:
        return layout_of(deployment, count)
    tensor, data = typed.get("tensor_parallel", 1), typed.get("data_parallel")
    if data is None and tensor and count % tensor == 0:
        data = count // tensor
    if data is None or tensor * data != count:
        degrees = ", ".join(f"{name} {value}" for name, value in typed.items())
        expected = f"`tensor_parallel` times `data_parallel` to be {count}, the number of GPUs"
        raise InputError(next(iter(typed)), degrees, expected)
    return {"data_parallel": data}
