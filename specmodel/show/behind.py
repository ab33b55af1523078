"""Whose kernels and engine an answer takes, and how wrong they are, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmodel.base.text import VERBOSE

if TYPE_CHECKING:
    from specmodel.cost.deployment import Deployment
    from specmodel.machines.engine import EngineFit

_LEFT_OUT = ("host", "target")
"""Kinds of left-out error that are told, the one that matters most to a user first."""

_MADE_UP = "Drafter: made up, as the checkpoint has no MTP module; one like its layers is assumed."

_IDEAL = "Engine 'ideal' has no overhead: an upper bound on throughput."
_IDEAL_DRAFTS = " On the speedup, overhead of each pass acts up, of drafting and rejection down."

_WEIGHTS = {"weight_dtype": "weights", "expert_dtype": "experts", "attention_dtype": "attention"}
"""Words for fields of dtypes of weights."""


def is_made_up(deployment: Deployment) -> bool:
    """Tell whether the drafter is an MTP module that the checkpoint has not."""
    return "mtp_block" in dict(deployment.drafter.assumed)


def behind(deployment: Deployment) -> list[str]:
    """Say whose kernels and engine were taken and how wrong they are, a sentence each."""
    engine = deployment.engine
    told = f"Engine: {engine.name}"
    if engine.fit:
        version = engine.fit.fitted_on.version if engine.fit.fitted_on else ""
        told = f"Engine: {version or engine.name}, fitted; {off_by(engine.fit)}"
    ideal = _IDEAL + (_IDEAL_DRAFTS if deployment.has_drafter else "")
    told = ideal if engine.is_ideal else f"{told}."
    made_up = [_MADE_UP] if is_made_up(deployment) else []
    if VERBOSE.get():
        return [*made_up, *_dtypes(deployment), _kernels(deployment), told]
    is_own = deployment.kernels.stack in deployment.hardware.fitted
    is_own &= deployment.kernels.record is None or not deployment.kernels.record.lent_by
    return [*made_up, *([] if is_own else [_kernels(deployment)]), *[told] * engine.is_ideal]


def _dtypes(deployment: Deployment) -> list[str]:
    """Say in which dtypes quantised weights are kept and computed; nothing if none is quantised."""
    from specmodel.base.dtypes import BYTES_PER_ELEMENT
    from specmodel.cost.activations import MXFP4_OPTION

    target, told = deployment.target, dict[tuple[str, str], str]()
    met = sorted(target.arithmetic_dtypes, key=lambda row: row[0] != "weight_dtype")
    for field, stored, arithmetic in met:
        if field in _WEIGHTS:
            computed = deployment.hardware.compute_dtype(arithmetic)
            told.setdefault((stored, computed), _WEIGHTS[field])

    small = {stored for stored, _ in told if BYTES_PER_ELEMENT[stored] < 2}
    if not small:
        return []
    words = [
        f"{name} {stored}"
        + (f" computed in {computed}" if computed != stored or stored in small else "")
        for (stored, computed), name in told.items()
    ]
    in_vllm = deployment.stack == "vllm"
    has_option = in_vllm and deployment.hardware.computes_in_fp4 and ("mxfp4", "bf16") in told
    option = f" (fp8 {MXFP4_OPTION})" if has_option else ""
    return [f"Dtypes: {', '.join(words)}{option}; KV cache {target.kv_dtype}."]


def off_by(fit: EngineFit) -> str:
    """Say how wrong an engine is on the rows it was fitted on, and on those left out."""
    errors = fit.left_out_error
    told = f"off by {fit.mean_error:.0%} on the rows it was fitted on"
    return told + next(
        (f", {errors[of]:.0%} on a {of} left out" for of in _LEFT_OUT if of in errors), ""
    )


def _kernels(deployment: Deployment) -> str:
    """Say whose kernels were taken, and how wrong they are."""
    from specmodel.cost.kinds import kernels_of
    from specmodel.layers.kinds import KINDS, MAIN_KINDS
    from specmodel.machines.kernels import TYPICAL

    kernels, record = deployment.kernels, deployment.kernels.record
    if record is None:
        return "Kernels: the data sheet's peaks, which none reaches."
    told, own, run = dict[str, str](), list[bool](), kernels_of(deployment.target)
    for kind in (kind for kind in MAIN_KINDS if kind in run):
        place, fit = kernels.place(kind, *run[kind]), kernels.fit(kind, *run[kind])
        if place and fit:
            (taken, dtype), stored = place, run[kind][0]
            other = f" (as {dtype})" if dtype != stored and stored != "fp16" else ""
            if kernels.is_typical(place):
                other = " (typical)"
            else:
                own.append(fit.is_held_out)
            told.setdefault(taken, f"{KINDS[taken].words}{other} {fit.mean_error:.0%}")
    errors, name = ", ".join(told.values()), f"{kernels.stack} {record.version}"
    if kernels.stack == TYPICAL or record.lent_by or not own:
        lent = f"{name} of {record.lent_by} is taken" if record.lent_by and own else ""
        return (
            f"Kernels: none were fitted on {deployment.hardware.name}"
            f"{'' if own else f' in these dtypes by {name}'};"
            f" {lent or 'typical ones are assumed'},"
            f" off by {errors.replace(' (typical)', '')} on a GPU left out."
        )
    judged = "shapes not fitted" if all(own) else "what was fitted"
    wanted = deployment.engine.stack
    if wanted not in (None, kernels.stack) and wanted not in deployment.hardware.fitted:
        name += f" (none of {deployment.engine.name}'s are fitted on {deployment.hardware.name})"
    return f"Kernels: {name}, fitted; off by {errors} on {judged}."
