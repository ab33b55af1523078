"""Words that several commands share: what runs where, why, how sure, what was assumed.

Imports nothing heavy, as commands import it before they know whether only their help is wanted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from specmodel import __version__
from specmodel.base.text import wrap
from specmodel.prediction.table import Row as Row, cells as cells, seconds as seconds, varies

if TYPE_CHECKING:
    import pandas as pd

    from specmodel.cost.deployment import Deployment
    from specmodel.machines.engine import EngineFit
    from specmodel.prediction.outcome import Prediction

JSON_SCHEMA_VERSION = 1

_OF = ("host", "target")
"""What is left out of fits of engines, that which says most of another deployment first."""

_IDEAL = "Engine 'ideal' has no overhead: an upper bound on throughput."
_IDEAL_DRAFTS = " On the speedup, overhead of each pass acts up, of drafting and rejection down."


def heading(deployment: Deployment) -> str:
    """Return target, drafter if there is one, and GPUs, wrapped to 80 columns."""
    d = deployment
    count = d.layout.num_gpus
    gpus = f"{count} x {d.hardware.name}" if count > 1 else d.hardware.name
    degrees = {"data": d.layout.replicas, "expert": d.expert_parallel}
    if max(degrees.values()) > 1:
        named = [f"{name} parallel {n}" for name, n in degrees.items() if n > 1]
        gpus += f" ({', '.join([f'tensor parallel {d.tensor_parallel}', *named])})"
    models = f"{d.target.name} + {d.drafter.name}" if d.has_drafter else d.target.name
    return wrap(f"{models} on {gpus}")


def verbs(deployment: Deployment) -> tuple[str, str]:
    """Return what speculation does where it gains, and where not: without overheads, it may."""
    may = deployment.engine.is_ideal
    return ("may pay", "may not pay") if may else ("pays", "does not pay")


def why(row: Row, rows: list[Row], prediction: Prediction) -> str:
    """Return in a sentence what decides the speedup of one of the rows of a prediction."""
    parts = [f"At {place(row, rows)}: target efficiency {row['target_efficiency']:.2f}"]
    if prediction.deployment.target.is_moe:
        total = prediction.deployment.target.num_experts
        loaded = "{active_experts:.0f} -> {active_experts_verify:.0f}".format_map(row)
        parts.append(f"experts loaded per layer {loaded} of {total}")
    if row["break_even_acceptance_rate"] is not None:
        parts.append(f"break-even acceptance rate {row['break_even_acceptance_rate']:.2f}")
    if row["best_draft_length"] is not None:
        parts.append(f"best draft length {row['best_draft_length']}")
        if row["best_draft_length"] == prediction.max_draft_length:
            parts[-1] += " (the longest considered)"
    limit = "" if row["limited_by"] == "none" else f"; limited by {row['limited_by']}"
    return ", ".join(parts) + f"{limit}."


def place(row: Row, rows: list[Row]) -> str:
    """Return the batch size of a point, and of its other coordinates those that vary."""
    place = f"batch size {row['batch_size']}"
    for title, name in (("draft length", "draft_length"), ("context", "context_length")):
        if name in row and varies(name, rows):
            place += f", {title} {row[name]}"
    return place


def behind(deployment: Deployment) -> list[str]:
    """Say in a sentence each whose kernels and engine were taken, and how wrong they were."""
    engine = deployment.engine
    told = f"Engine: {engine.name}"
    if engine.fit:
        told += f", fitted; {off_by(engine.fit)}"
    ideal = _IDEAL + (_IDEAL_DRAFTS if deployment.has_drafter else "")
    return [_kernels(deployment), ideal if engine.is_ideal else f"{told}."]


def off_by(fit: EngineFit) -> str:
    """Say how wrong an engine was on what it was fitted on, and on what was left out."""
    errors = fit.left_out_error
    told = f"off by {fit.mean_error:.0%} on the rows it was fitted on"
    return told + next((f", {errors[of]:.0%} on a {of} left out" for of in _OF if of in errors), "")


def _kernels(deployment: Deployment) -> str:
    """Say whose kernels were taken, and how wrong they were on what was not fitted."""
    from specmodel.cost.kinds import kernels_of
    from specmodel.layers.kinds import KINDS, MAIN_KINDS
    from specmodel.machines.kernels import TYPICAL

    kernels, record = deployment.kernels, deployment.kernels.record
    if record is None:
        return "Kernels: the data sheet's peaks, which none reaches."
    told, is_held_out, run = dict[str, str](), True, kernels_of(deployment.target)
    for kind in (kind for kind in MAIN_KINDS if kind in run):
        place, fit = record.place(kind, *run[kind]), record.fit(kind, *run[kind])
        if place and fit:
            (taken, dtype), stored = place, run[kind][0]
            stand_in = f" (as {dtype})" if dtype != stored and stored != "fp16" else ""
            told.setdefault(taken, f"{KINDS[taken].words}{stand_in} {fit.mean_error:.0%}")
            is_held_out &= fit.is_held_out
    errors = ", ".join(told.values())
    if kernels.stack == TYPICAL:
        return (
            f"Kernels: none were fitted on {deployment.hardware.name}; typical ones are assumed,"
            f" off by {errors} on a GPU left out."
        )
    judged = "shapes not fitted" if is_held_out else "what was fitted"
    name = f"{kernels.stack} {record.version}"
    return f"Kernels: {name}, fitted; off by {errors} on {judged}."


def page(prediction: Prediction, words: Iterable[str], *parts: str) -> str:
    """Return an answer for people: what runs where, words, warnings, parts, what was assumed.

    Parameters
    ----------
    prediction
        What the answer rests on.
    words
        The verdict, a paragraph each.
    *parts
        Tables and the like, at most 80 columns wide; an empty one is left out.

    Returns
    -------
    str
        At most 80 columns wide.
    """
    opening = "\n".join([heading(prediction.deployment), *map(wrap, words)])
    warnings = map(warning_text, prediction.warnings)
    sections = [opening, *warnings, *parts, assumed_text(prediction.assumptions)]
    return "\n\n".join(filter(None, sections))


def answer_page(prediction: Prediction, verdict: str, *parts: str) -> str:
    """Return the page of an answer, whose verdict says first if nothing fits in memory."""
    if (prediction.batch_size > prediction.max_batch_size).all():
        verdict = f"Nothing fits in memory. If it did: {verdict[:1].lower()}{verdict[1:]}"
    return page(prediction, [verdict, *behind(prediction.deployment)], *parts)


def warning_text(warning: str) -> str:
    """Return a warning, wrapped to 80 columns."""
    return wrap(f"Warning: {warning}.")


def assumed_text(assumed: Mapping[str, Any]) -> str:
    """Return by name what was assumed as the user did not give it, wrapped to 80 columns."""
    from specmodel.algebra.acceptance import PLAUSIBLE_PROPOSAL_RATES
    from specmodel.algebra.experts import PLAUSIBLE_ROUTING_CORRELATIONS

    plausible = {
        "routing_correlation": PLAUSIBLE_ROUTING_CORRELATIONS,
        "proposal_rate": PLAUSIBLE_PROPOSAL_RATES,
    }
    words = []
    for name, value in assumed.items():
        ends = " (plausible: {:g} to {:g})".format(*plausible[name]) if name in plausible else ""
        words.append(f"{name}\xa0{value}{ends}")
    return wrap(f"Assumed: {', '.join(words) or 'nothing'}.").replace("\xa0", " ")


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return a dict for each row."""
    return cast(list[dict[str, Any]], frame.to_dict("records"))


def csv_text(rows: Iterable[Row], names: Iterable[str]) -> str:
    """Return rows as CSV under a line of names; what is None stays empty."""
    import csv
    import io

    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(names), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().rstrip("\n")


def json_text(fields: dict[str, Any]) -> str:
    """Return strict JSON, with the version of its form and of the package in front."""
    import json

    document = {"schema_version": JSON_SCHEMA_VERSION, "version": __version__} | fields
    return json.dumps(document, indent=2, allow_nan=False)


def case_fields(prediction: Prediction) -> dict[str, Any]:
    """Return what a prediction is about, what was assumed, and what must be known."""
    return {
        "deployment": deployment_fields(prediction.deployment),
        "assumptions": prediction.assumptions,
        "warnings": list(prediction.warnings),
    }


def deployment_fields(deployment: Deployment) -> dict[str, Any]:
    """Return every number and word that decides, to tell a saved file from another."""
    from dataclasses import fields

    from specmodel.cost.deploying import PART_DTYPES

    d = deployment
    named = ("target", "drafter", "hardware", "engine")
    own = {field.name: getattr(d, field.name) for field in fields(d)}
    if d.recurrent_model is None:
        del own["state_rollback"]
    return {
        **{name: own[name].name for name in named},
        **({} if d.has_drafter else {"drafter": None}),
        "stack": d.kernels.stack,
        "num_gpus": d.layout.num_gpus,
        "data_parallel": d.layout.replicas,
        **{name: value for name, value in own.items() if isinstance(value, int | float | str)},
        "draft_tensor_parallel": d.draft_layout.tensor_parallel,
        **d.target.stream.dtypes,
        **{name: dtype for name in PART_DTYPES if (dtype := getattr(d.target, name))},
        "popularity": None if d.popularity is None else d.popularity.tolist(),
        "proposal_rate": d.drafter.proposal_rate,
        "lookup_time": d.drafter.lookup_time,
    }
