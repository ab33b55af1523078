"""Describe the basis of an answer: kernels, engine, assumptions, and published runs like it.

Assumptions are defaults that a user can change, values of the checkpoint, or our own. Commands
import this module for their help too, so that it imports nothing heavy at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from specmodel.core.base.facts import Fact, Facts
from specmodel.core.base.text import VERBOSE, wrap
from specmodel.show.glossary import PAGES

if TYPE_CHECKING:
    from specmodel.core.cost.deployment import Deployment
    from specmodel.core.machines.engine import EngineFit
    from specmodel.core.prediction.evaluate import Evaluation
    from specmodel.core.prediction.ground import Cell

FIRST = ("names", "routing_correlation", "host_speed")
"""Assumptions with the largest effect, which are shown first."""
_TEXTS, _GROUND = PAGES["behind"], PAGES["ground"]
_TYPICAL = " (typical, on a held-out GPU)"
CHANGES = "changes"
"""Name of the changes by --set, which are not assumptions."""
FOR_PROGRAMS = (CHANGES, "fits_at_bound")
"""Entries of assumptions that only JSON has."""

_LEFT_OUT = ("host", "target")
"""Kinds of held-out error that are shown, the most important kind first."""


def behind(deployment: Deployment) -> list[str]:
    """Return a sentence on the kernels and one on the engine, each with its mean error.

    Unless `VERBOSE`, only kernels that were not fitted on the GPU and an ideal engine have one.
    """
    engine = deployment.engine
    of_engine = f"Engine: {engine.name}."
    if engine.fit:
        version = engine.fit.fitted_on.version if engine.fit.fitted_on else ""
        of_engine = (
            f"Engine overheads: fitted to runs of {version or engine.name}; {off_by(engine.fit)}."
        )
    if engine.is_ideal:
        of_engine = _TEXTS["ideal"] + _TEXTS["ideal_drafts"] * deployment.has_drafter
    made_up = [_TEXTS["made_up"]] if deployment.drafter.is_made_up else []
    if VERBOSE.get():
        return [*made_up, *_dtypes(deployment), _kernels(deployment), of_engine]
    is_own = deployment.kernels.stack in deployment.hardware.fitted
    is_own &= deployment.kernels.record is None or not deployment.kernels.record.lent_by
    day = deployment.kernels.measured_here
    here = [f"Kernels: measured here, {day}."] if day else []
    return [*made_up, *(here if is_own else [_kernels(deployment)]), *[of_engine] * engine.is_ideal]


def _dtypes(deployment: Deployment) -> list[str]:
    """Return a sentence on the stored and computed dtypes of weights; [] if none is quantised."""
    from specmodel.core.base.dtypes import BYTES_PER_ELEMENT

    target, names = deployment.target, dict[tuple[str, str], str]()
    met = sorted(target.arithmetic_dtypes, key=lambda row: row[0] != "weight_dtype")
    for field, stored, arithmetic in met:
        if name := _TEXTS["weights"].get(field):
            computed = deployment.hardware.compute_dtype(arithmetic)
            names.setdefault((stored, computed), name)

    small = {stored for stored, _ in names if BYTES_PER_ELEMENT[stored] < 2}
    if not small:
        return []
    words = list[str]()
    for (stored, computed), name in names.items():
        is_shown = computed != stored or stored in small
        words.append(f"{name} {stored}" + f" (computed in {computed})" * is_shown)
    in_vllm = deployment.stack == "vllm"
    has_option = in_vllm and deployment.hardware.computes_in_fp4 and ("mxfp4", "bf16") in names
    option = _TEXTS["mxfp4"] if has_option else ""
    return [f"Dtypes: {', '.join(words)}{option}; KV cache {target.kv_dtype}."]


def off_by(fit: EngineFit) -> str:
    """Return the mean error of an engine on its fitted rows, and on a held-out group, as text."""
    errors = fit.left_out_error
    others = (
        f", {errors[of]:.0%} on a {of} left out of the fit" for of in _LEFT_OUT if of in errors
    )
    return f"mean prediction error {fit.mean_error:.0%} on these runs{next(others, '')}"


def _kernels(deployment: Deployment) -> str:
    """Return a sentence on the kernels that are used, with the mean error of each kind."""
    from specmodel.core.cost.kinds import kernels_of
    from specmodel.core.layers.kinds import KINDS, MAIN_KINDS
    from specmodel.core.machines.kernels import TYPICAL

    kernels, record, gpu = deployment.kernels, deployment.kernels.record, deployment.hardware.name
    if record is None:
        return "Kernels: times from the data sheet's peaks, which no real kernel reaches."
    texts, own, run = dict[str, str](), list[bool](), kernels_of(deployment.target)
    for kind in (kind for kind in MAIN_KINDS if kind in run):
        place, fit = kernels.place(kind, *run[kind]), kernels.fit(kind, *run[kind])
        if place and fit:
            (taken, dtype), stored = place, run[kind][0]
            other = f" (as {dtype})" if dtype != stored and stored != "fp16" else ""
            if kernels.is_typical(place):
                other = _TYPICAL
            else:
                own.append(fit.is_held_out)
            texts.setdefault(taken, f"{KINDS[taken].words}{other} {fit.mean_error:.0%}")
    errors, name = ", ".join(texts.values()), f"{kernels.stack} {record.version}"
    if kernels.stack == TYPICAL or record.lent_by or not own:
        is_lent = bool(record.lent_by and own)
        lent = f"those of {name} on {record.lent_by} are used" if is_lent else _TEXTS["typical"]
        why = "chosen" if kernels.stack == TYPICAL and deployment.hardware.fitted else "unfitted"
        by = "" if own else f" in these dtypes for {name}"
        values = {"why": _TEXTS[why].format(gpu=gpu, by=by), "lent": lent}
        values["errors"] = errors.replace(_TYPICAL, "")
        return str(_TEXTS["lent"].format_map(values))
    judged = "held-out shapes" if all(own) else "the fitted shapes"
    if kernels.measured_here:
        return f"Kernels: measured here, {record.date} ({name}); mean error on {judged}: {errors}."
    wanted = deployment.engine.stack
    if wanted not in (None, kernels.stack) and wanted not in deployment.hardware.fitted:
        name += f" ({deployment.engine.name}'s own were not timed on {gpu})"
    return f"Kernels: {name}, fitted; mean error on {judged}: {errors}."


def assumed_text(assumed: Mapping[str, Any]) -> str:
    """Return the assumptions in groups, each with a title and a line for each name."""
    assumed = {name: value for name, value in assumed.items() if name not in FOR_PROGRAMS}
    if not assumed:
        return "Assumed: nothing."
    first = [name for name in FIRST if name in assumed]
    yours = [name for name in _TEXTS["yours"] if name in assumed]
    no_stored = {*yours, *_TEXTS["never_stored"]}
    if "weight_dtype" not in assumed:  # given: other dtypes may follow from it
        no_stored |= assumed.keys()
    if not assumed.keys().isdisjoint(_TEXTS["derived_heads"]):
        no_stored.add("draft_dtype")
    stored = [name for name in assumed if name.endswith("_dtype") and name not in no_stored]
    ours = [name for name in assumed if name not in (*first, *yours, *stored)]
    width = max(map(len, assumed))
    lines = list[str]()
    for title, names in zip(_TEXTS["groups"], (first, yours, stored, ours), strict=True):
        lines += [f"{title}:"] * bool(names)
        for name in names:
            text = f"  {name:<{width}}  {value_text(name, assumed[name])}"
            lines.append(wrap(text, " " * (width + 4)))
    return "\n".join(lines)


def briefly(assumed: Mapping[str, Any]) -> str:
    """Return a line with the most important assumptions; "" for none."""
    texts = [w.format(assumed[n]) for n, w in _TEXTS["mattering"].items() if n in assumed]
    shown = ", ".join(texts) or "minor values"
    return wrap(f"Assumed: {shown} (all: --verbose).") if assumed else ""


def value_text(name: str, value: object) -> str:
    """Return an assumed value as text, with its plausible range and the meaning of its name."""
    from specmodel.core.algebra.acceptance import PLAUSIBLE_PROPOSAL_RATES
    from specmodel.core.algebra.experts import PLAUSIBLE_ROUTING_CORRELATIONS

    plausible = {
        "routing_correlation": PLAUSIBLE_ROUTING_CORRELATIONS,
        "proposal_rate": PLAUSIBLE_PROPOSAL_RATES,
    }
    text = str(value)
    if name in plausible:
        text += " (plausible: {:g} to {:g})".format(*plausible[name])
    meaning = _TEXTS["glosses"].get(name)
    return f"{text}: {meaning}" if meaning else text


def ground_facts(evaluation: Evaluation) -> dict[str, Fact]:
    """Return facts on the nearest published runs: their number, hosts and errors.

    If there are enough, also the share of predictions for them that came true. The runs are those
    near the longest context. {} if errors are not known.
    """
    from specmodel.core.prediction.ground import place_of  # and NumPy, which help does not need
    from specmodel.core.prediction.intervals import states_errors

    deployment, contexts = evaluation.deployment, evaluation.points["context_length"]
    if not states_errors(deployment, contexts):
        return {}
    place = place_of(deployment, float(contexts.max()))
    nearest, facts = place.nearest, {"ground_kind": Fact(place.kind)}
    if place.kind in ("own", "unfitted"):
        return facts
    acceptance = "published" if evaluation.acceptance.source else "given"
    shares = getattr(nearest, acceptance)._asdict()
    came = {name: share for name, share in shares.items() if share == share}
    if place.kind == "few":
        facts["wider_ground"] = Fact(cell_text(place.judged.cell))
        facts["wider_ground_rows"] = Fact(place.judged.rows)
        facts["wider_ground_error"] = Fact(place.judged.error)
    return facts | {
        "ground": Fact(cell_text(nearest.cell)),
        "ground_rows": Fact(nearest.rows),
        "ground_hosts": Fact(nearest.hosts),
        "ground_error": Fact(nearest.error),
        "ground_bias": Fact(nearest.bias),
        "ground_shares": Fact(came if place.kind == "known" else None),
        "ground_acceptance": Fact(_GROUND["acceptance"][acceptance]),
    }


def ground_texts(facts: Facts) -> list[str]:
    """Return the templates on published runs like the case; [] if errors are not known."""
    if "ground_kind" not in facts:
        return []
    of_kind = _GROUND["lines"][facts["ground_kind"].value]
    is_known = facts["ground_kind"].value == "known"
    return [of_kind, _GROUND["verbose"]] if VERBOSE.get() and is_known else [of_kind]


def cell_text(cell: Cell) -> str:
    """Return a cell, from its context to its engine, as text."""
    words = _GROUND["words"]
    return ", ".join(words.get(part, part) for part in cell if part) or words["any"]
