"""Write the text that answers share: the deployment, reasons, errors, assumptions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict
from numpy import array, ravel

from specmodel.core.algebra.acceptance import Acceptance
from specmodel.core.base.ranges import among
from specmodel.core.base.text import VERBOSE, wrap
from specmodel.core.cost.deploying import PART_DTYPES
from specmodel.core.cost.deployment import Deployment
from specmodel.core.prediction.case import DEFAULT_BATCH_SIZES
from specmodel.core.prediction.cautions import is_modelled
from specmodel.core.prediction.intervals import states_errors
from specmodel.core.prediction.outcome import Prediction
from specmodel.core.prediction.predicting import with_intervals, with_known_intervals
from specmodel.core.prediction.table import Form, Row, varies
from specmodel.show.behind import CHANGES, assumed_text, behind, briefly
from specmodel.show.columns import units
from specmodel.show.facts import Fact, Facts, known, lines as lines_of
from specmodel.show.forms import Answer, by_batch_size
from specmodel.show.glossary import PAGES
from specmodel.show.notes import in_words

if TYPE_CHECKING:  # not all answers need them
    from specmodel.plan import Plan
    from specmodel.plan.sensitivity import Sensitivity

    Case = Prediction | Plan | Sensitivity

_INTERVALS = PAGES["intervals"]


def heading(deployment: Deployment) -> str:
    """Return the names of target, drafter and GPUs."""
    d = deployment
    count = d.layout.num_gpus
    gpus = f"{count} x {d.hardware.name}" if count > 1 else d.hardware.name
    degrees = {"data": d.layout.replicas, "expert": d.expert_parallel}
    degrees["decode context"] = d.decode_context_parallel
    if max(degrees.values()) > 1:
        named = [f"{name} parallel {n}" for name, n in degrees.items() if n > 1]
        gpus += f" ({', '.join([f'tensor parallel {d.tensor_parallel}', *named])})"
    gpus += " (layers split)" if d.layer_split > 1 else ""
    models = f"{d.target.name} + {d.drafter.name}" if d.has_drafter else d.target.name
    return f"{models} on {gpus}"


def caption(case: Case) -> str:
    """Return the caption of a figure: heading, engine, and the source or value of acceptance."""
    d, asked = case.deployment, getattr(getattr(case, "prediction", case), "case", None)
    if source := case.assumptions.get("acceptance"):
        acceptance = f"acceptance {'typical' if 'heads of' in str(source) else 'as published'}"
    else:
        acceptance = given_text(asked.acceptance) if asked and asked.acceptance else ""
    return ", ".join(filter(None, [heading(d), d.engine.name, acceptance]))


def given_text(acceptance: Acceptance) -> str:
    """Return an acceptance as text: the form in which it was given, and its values."""
    if pairs := acceptance.acceptance_by_context:
        values = [f"{context:g}:{tokens:g}" for context, tokens in dict(pairs).items()]
    else:
        values = [f"{value:g}" for value in ravel(getattr(acceptance, acceptance.form))]
    return f"{acceptance.form.replace('_', ' ')} {','.join(values)}"


def verbs(prediction: Prediction) -> tuple[str, str]:
    """Return the verbs for a gain and for no gain, with "may" if the engine is not modelled."""
    e = prediction.evaluation
    is_known = is_modelled(e.deployment, e.points["context_length"])
    return ("pays", "does not pay") if is_known else ("may pay", "may not pay")


def with_ends(prediction: Prediction, interval: bool | None) -> Prediction:
    """Return a prediction with intervals (True), without (False), or if errors are known (None)."""
    if interval is False or (prediction.intervals and not interval):
        return prediction
    return (with_intervals if interval else with_known_intervals)(prediction)


def behind_speedup(row: Row, prediction: Prediction) -> dict[str, Fact]:
    """Return the figures behind a row's speedup, such as target efficiency."""
    target, best = prediction.deployment.target, row["best_draft_length"]
    names = ("target_efficiency", "active_experts", "active_experts_verify")
    values = {name: row[name] for name in (*names, "break_even_acceptance_rate")}
    values["num_experts"] = target.num_experts if target.is_moe else None
    values["drafted"] = row["draft_length"] or None
    if best not in (None, row["draft_length"]):
        is_longest = best == prediction.max_draft_length
        values["best_length"] = f"{best} (the longest considered)" if is_longest else best
    values["limited_by"] = None if row["limited_by"] == "none" else row["limited_by"]
    return {name: Fact(value) for name, value in values.items()}


def place(row: Row, rows: list[Row]) -> str:
    """Return as text the batch size of a point, and its draft length and context if they vary."""
    place = f"batch size {row['batch_size']}"
    for title, name in (("draft length", "draft_length"), ("context", "context_length")):
        if name in row and varies(name, rows):
            place += f", {title} {row[name]}"
    return place


def page(
    case: Case, words: Iterable[str], *parts: str, notes: Iterable[str] = (), tasks: str = ""
) -> str:
    """Return the page of an answer: verdict, heading, other words, warnings, parts, its basis.

    `words` and `notes` are paragraphs, which are wrapped here; the first of `words` is the verdict.
    `parts` are tables. `tasks` is a sentence on acceptance by task. The page ends with kernels,
    engine and the assumptions that matter most, or all assumptions if `VERBOSE`.
    """
    assumed, d = dict(case.assumptions), case.deployment
    if "acceptance" in assumed and states_errors(d, getattr(case, "context_length", 0.0)):
        evaluation = getattr(getattr(case, "prediction", case), "evaluation", None)
        spread = evaluation.acceptance.spread if evaluation else 0.0
        is_long = bool(VERBOSE.get())
        text = _INTERVALS["exact"] + _INTERVALS["of_hosts"] * (is_long and d.engine.fit is not None)
        text = _INTERVALS["spread"].format(spread) * is_long if spread else text
        assumed = with_brief_source(assumed)
        assumed["acceptance"] = ". ".join(filter(None, [assumed["acceptance"], text, tasks]))
    title = heading(d)
    if d.tensor_parallel > 1 and "tensor parallel" not in title:
        title += f" (tensor parallel {d.tensor_parallel})"
    return laid_out(title, behind(d), assumed, case.warnings, words, parts, notes)


def with_brief_source(assumed: Mapping[str, Any]) -> dict[str, Any]:
    """Return assumptions with the brief source of an acceptance."""
    if "acceptance" not in assumed:
        return dict(assumed)
    return {**assumed, "acceptance": brief_source(str(assumed["acceptance"]))}


def brief_source(source: str) -> str:
    """Return the source of an acceptance; without the measurement unless `VERBOSE`."""
    if "published for " in source:
        return source
    who, *caution = re.split("; (?=beyond |of )", source)
    preset = re.sub(r" \((?:\w+: |[A-Z]).*", "", who)
    shown = who if VERBOSE.get() else preset
    return "; ".join([who if preset == who else f"published for {shown}", *caution])


def laid_out(
    title: str,
    behind: Iterable[str],
    assumptions: Mapping[str, Any],
    warnings: Iterable[object],
    words: Iterable[str],
    parts: Iterable[str],
    notes: Iterable[str] = (),
) -> str:
    """Return the page of an answer from its heading, its text and the sentences on its basis."""
    verdict, *others = words
    assumed = dict(assumptions)
    source = assumed.pop("acceptance", None)
    acceptance = [f"Acceptance: {source}."] if source else []
    what_if = [f"What if: {assumed[CHANGES]}."] if CHANGES in assumed else []
    opening = [verdict, title, *what_if, *acceptance, *others]
    blocks = [
        "\n".join(map(wrap, opening)),
        *(wrap(f"Warning: {warning}.") for warning in warnings),
        *parts,
        "\n".join(map(wrap, notes)),
        "\n".join([*map(wrap, behind), (assumed_text if VERBOSE.get() else briefly)(assumed)]),
    ]
    return "\n\n".join(filter(None, blocks))


def if_it_fitted(verdict: str, largest: int = 0, counted: str = "") -> str:
    """Return a verdict under the condition that more than `largest` requests fit in memory.

    `counted` is a text on the context and drafts of each request.
    """
    unfit = f"Only batch sizes up to {largest} fit in memory{counted}"
    unfit = unfit if largest else "No requested batch size fits in memory"
    return f"{unfit}. With enough memory: {verdict[:1].lower()}{verdict[1:]}"


def opening(templates: Iterable[str], facts: Facts, fits: object) -> list[str]:
    """Return the headline and the lines below it, with "No batch size fits" first unless `fits`."""
    headline, *lines = lines_of(templates, facts)
    return [headline if fits else if_it_fitted(headline), *lines]


def answer(
    prediction: Prediction,
    rows: Sequence[Row],
    templates: Iterable[str],
    tables: Callable[[], Iterable[str]],
    facts: Facts,
) -> Answer:
    """Return an answer in all forms: `rows` computed from one prediction."""
    page_of = partial(page, prediction, opening(templates, facts, prediction.fits.any()))
    return comparison({"": prediction}, rows, lambda: page_of(*tables()), facts)


def comparison(
    predictions: Mapping[str, Prediction],
    found: Sequence[Row],
    page: Callable[[], str],
    facts: Facts,
) -> Answer:
    """Return an answer in all forms: rows computed from several predictions by name."""
    of_cases = [{"alternative": name} | case_fields(p) for name, p in predictions.items()]
    fields = {"cases": of_cases, "units": units(found[0]), "rows": found}
    warnings = dict.fromkeys(warning for p in predictions.values() for warning in p.warnings)
    cases = {caption(p) for p in predictions.values()}
    if len(cases) > 1:  # they may differ only in layouts
        cases = {re.sub(r" \(tensor parallel[^)]*\)", "", case) for case in cases}
    case = cases.pop() if len(cases) == 1 else ""
    shown, warned = known(facts.items()), [*warnings]
    return Answer(page=page, facts=shown, fields=fields, rows=found, warnings=warned, case=case)


def fitting(rows: Sequence[Row]) -> list[Row]:
    """Return the rows that fit in memory; all rows if none does."""
    return [row for row in rows if row["fits"]] or [*rows]


def is_at_best(prediction: Prediction) -> bool:
    """Return whether each point of a prediction has its best draft length."""
    return prediction.case is None or prediction.case.draft_length is None


def with_room(rows: Sequence[Row], prediction: Prediction) -> list[Row]:
    """Return the rows that a page shows: only those that fit if batch sizes are the default."""
    is_usual = {*prediction.batch_size.flat} == {*DEFAULT_BATCH_SIZES}
    return fitting(rows) if is_usual else [*rows]


def by_length(found: Sequence[Row], title: str, form: Form) -> str:
    """Return a table for each context, with a row per batch size and a column per draft length."""
    kept, blocks = fitting(found), []
    contexts = sorted({row["context_length"] for row in kept})
    for context in contexts:
        of = f", context {context}" if len(contexts) > 1 else ""
        rows = [row for row in kept if row["context_length"] == context]
        columns = {
            str(length): [row for row in rows if row["draft_length"] == length]
            for length in sorted({row["draft_length"] for row in rows})
        }
        cells = by_batch_size([row["batch_size"] for row in rows], columns, form)
        every = [row for row in found if row["context_length"] == context]
        lacking = left_out(every) if len(contexts) > 1 else ""
        blocks.append(f"{title}, by draft length{of}:\n{cells}{lacking}")
    return "\n\n".join(blocks)


def ended(rows: Sequence[Row], prediction: Prediction) -> str:
    """Return a note on rows whose draft length is limited by CUDA graphs; "" without such rows."""
    drafts = [row for row in rows if row["draft_length"] < prediction.max_draft_length]
    sizes, lengths = (
        array([row[name] for row in drafts]) for name in ("batch_size", "draft_length")
    )
    return str(prediction.deployment.graph_note(sizes, lengths + 1.0) or "")


def left_out(rows: Sequence[Row]) -> str:
    """Return a line with the batch sizes that do not fit in memory; "" if all or none fit."""
    sizes = [row["batch_size"] for row in rows]
    lacking = {*sizes} - {row["batch_size"] for row in fitting(rows)}
    plural, verb = ("s", "do") if len(lacking) > 1 else ("", "does")
    text = f"\nBatch size{plural} {among(sizes, lacking)} {verb} not fit in memory."
    return text if lacking else ""


def case_fields(case: Case) -> dict[str, Any]:
    """Return deployment, assumptions and warnings for JSON."""
    return {
        "deployment": deployment_fields(case.deployment),
        "assumptions": in_words(case.assumptions),
        "warnings": [*map(str, case.warnings)],
    }


def deployment_fields(deployment: Deployment) -> dict[str, Any]:
    """Return every setting of a deployment for JSON."""
    d = deployment
    own = asdict(d)
    if d.recurrent_model is None:
        del own["state_rollback"]
    return {
        **{name: own[name].name for name in ("target", "drafter", "hardware", "engine")},
        **({} if d.has_drafter else {"drafter": None}),
        "stack": d.kernels.stack,
        **({"kernels": f"measured here, {here}"} if (here := d.kernels.measured_here) else {}),
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
