"""What is taken where nothing is typed: the usual drafter, GPUs from memory, acceptance.

Whatever is taken stands among what was assumed, by the name of what was not typed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any

from specmodel.base.errors import InputError
from specmodel.cli.settings import given

if TYPE_CHECKING:
    from specmodel.algebra.acceptance import Acceptance
    from specmodel.cost.deployment import Deployment
    from specmodel.drafters.typical import TypicalHeads
    from specmodel.models.architecture import Architecture
    from specmodel.prediction.outcome import Prediction

TYPICAL = {"typical-low": 0, "typical": 1, "typical-high": 2}
"""Names by which --acceptance takes what published heads of a kind reach."""
_DEGREES = ("tensor_parallel", "data_parallel", "expert_parallel")


def usual_drafter(command: Any) -> Any:
    """Let a command have the target's usual drafter where none is typed."""

    @wraps(command)
    def run(**options: Any) -> Any:
        if options["drafter"] is None and options["target"] and "," not in options["target"]:
            options |= drafter_of(options["target"])
        return command(**options)

    return run


def drafter_of(target: str) -> dict[str, Any]:
    """Return the drafter that is taken for a target, as options, with what to say of it."""
    from specmodel.drafters.published import taken_drafter
    from specmodel.models.architecture import load_architecture

    drafter, why = taken_drafter(load_architecture(target))
    return {"drafter": drafter, "taken_drafter": f"{drafter} ({why})"}


def laid_out(
    deployment: Deployment, options: dict[str, Any], requests: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return degrees that hold a deployment, where none are typed, and what to say of them.

    The count of ``8xh200`` fixes how many GPUs there are.
    """
    from specmodel.answers.layouts import HELD_TOKENS, layout_of, smallest_layout

    count, typed = options.get("num_gpus"), given(options, _DEGREES)
    if count is not None:
        return _counted(deployment, count, typed, layout_of), {}
    if typed or deployment.hardware.kind == "cpu":
        return {}, {}
    try:
        degrees = smallest_layout(deployment, requests)
    except InputError:
        if options.get("may_not_fit"):
            return {}, {}
        raise
    held = f"{requests} requests" if requests > 1 else "a request"
    kept = "weights, drafter and" if options.get("drafter") else "weights and"
    told = f"the fewest that hold {kept} {held} of {HELD_TOKENS:,} tokens"
    count = _product(degrees)
    others = "; compare tries other layouts of them" if count > 1 else ""
    return degrees, {"gpus": f"{count} ({told}{others})"}


def _product(degrees: dict[str, Any]) -> int:
    """Return the GPUs of degrees, of which none are those of one GPU."""
    return int(degrees.get("tensor_parallel", 1) * degrees.get("data_parallel", 1))


def would_hold(prediction: Prediction) -> str:
    """Say how many GPUs would do where those that were typed hold no request; "" where they do."""
    from specmodel.answers.layouts import HELD_REQUESTS, HELD_TOKENS, smallest_layout

    if prediction.max_batch_size.any() or prediction.deployment.hardware.kind == "cpu":
        return ""
    try:
        count = _product(smallest_layout(prediction.deployment))
    except InputError as error:
        return f" Not one request fits: needed are {error.expected}."
    held = f"weights, drafter and {HELD_REQUESTS} requests of {HELD_TOKENS:,} tokens"
    return f" Not one request fits: the fewest GPUs that hold {held} are {count}."


def _counted(
    deployment: Deployment,
    count: int,
    typed: dict[str, Any],
    layout_of: Callable[[Deployment, int], dict[str, Any]],
) -> dict[str, Any]:
    """Return the degrees of so many GPUs, beside those typed, which must agree."""
    if not typed:
        return layout_of(deployment, count)
    tensor, data = typed.get("tensor_parallel", 1), typed.get("data_parallel")
    if data is None and tensor and count % tensor == 0:
        data = count // tensor
    if data is None or tensor * data != count:
        degrees = ", ".join(f"{name} {value}" for name, value in typed.items())
        expected = f"degrees whose product is {count}, as so many GPUs are named"
        raise InputError("tensor_parallel", degrees, expected)
    return {"data_parallel": data}


def measured_or_none(options: dict[str, Any]) -> Acceptance | None:
    """Return the acceptance that is published of this very target and drafter, None for none."""
    from specmodel.drafters.typical import measured_acceptance

    target, kind = _target_and_kind(options)
    return measured_acceptance(target.name, kind)


def typical_or_none(options: dict[str, Any]) -> TypicalHeads | None:
    """Return what published heads of the drafter's kind reach, None if too few are published."""
    from specmodel.drafters.typical import typical_heads

    return typical_heads(_target_and_kind(options)[1])


def typical_acceptance(options: dict[str, Any]) -> Acceptance:
    """Return the acceptance of --acceptance typical, typical-low or typical-high."""
    name, found = options["acceptance"], typical_or_none(options)
    if found is None:
        kind = _target_and_kind(options)[1]
        expected = f"a rate: fewer than two targets have published acceptance with {kind}"
        raise InputError("acceptance", name, expected)
    place = TYPICAL[name]
    source = f"{found.levels[place]} of {found.drafter} heads of {found.num_targets} targets"
    return replace(found.acceptance[place], source=f"{source}, as published by November 2026")


def _target_and_kind(options: dict[str, Any]) -> tuple[Architecture, str]:
    """Return the target, and the name of the kind of its drafter."""
    from specmodel.drafters.by_name import drafter_kind
    from specmodel.models.architecture import load_architecture

    for name in ("target", "drafter"):
        if "," in options[name]:
            raise InputError(name, options[name], "one, with the acceptance that is published")
    target = load_architecture(options["target"])
    return target, drafter_kind(options["drafter"], target)
