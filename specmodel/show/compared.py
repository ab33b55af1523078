"""The page of ``compare``: which alternative is fastest, where, by how much, how sure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from specmodel.base.text import wrap
from specmodel.prediction.table import Form, Row
from specmodel.show import forms, report
from specmodel.show.behind import FOR_PROGRAMS, assumed_text, behind, what_if_text
from specmodel.show.columns import ALTERNATIVES, LOADS, chosen
from specmodel.show.facts import Fact, lines

if TYPE_CHECKING:
    from specmodel.answers.alternatives import Alternatives
    from specmodel.answers.ranking import Ranking
    from specmodel.prediction.outcome import Prediction

_FORMS: dict[str, Form] = {
    "tpot": "{tpot_plain:s}>{tpot:s}",
    "best_draft_length": lambda row: str(row["best_draft_length"] or "none"),
}
"""How cells read here, where rows are of the best draft length."""
_CELLS = "{tpot:s} {speedup:.2f} ({best_draft_length})"
_ALONE = (
    "Nothing to compare with: give a list, such as h100,h200, of models, GPUs, --drafter,"
    " --engine, --weight-dtype or --draft-length, or several GPUs, such as 8xh200, for their"
    " layouts."
)
"""What is said of one alternative that was asked for alone."""
_WITHIN = (
    "Within {tpot_target:s} a token, most per GPU: {carries_most},"
    " {throughput_per_gpu_within:.0f} tokens/s with {largest_batch_size} requests at once. Batches"
    " are steady here, in a simulation requests come and wait (--for-load).",
    "Within {within}, most per GPU: {carries_most}, {capacity_per_gpu} requests/s.",
)
_NONE_WITHIN = "Within the target no alternative has a batch."
_LINES = (
    "Fastest per GPU with speculation: {fastest:at}.",
    "Next: {next_slower:.0%} slower.",
    "One for all: {one_for_all}, at most {one_for_all_slower:.0%} slower (at {one_for_all_at}).",
    "No draft gains: at {no_gain_at}.",
    "Surely pays: the fastest at {surely_pays_at}.",
    "Largest speedup: {most:.2f}x, {most_of} at batch size {most_at}.",
    "Largest speedup of models: {gains_most:at}.",
    "No draft fits in memory: {no_draft_fits_at}.",
    "No checkpoint has the drafter of: {made_up_drafters}.",
)
"""The headline, and the facts below it."""
_ALIKE = (
    "As fast: less than {:.0%} slower ({:.0%} where model, drafter, GPU or engine differ), too"
    " little to tell them apart."
)
_LAYOUTS = (
    "For vLLM, TP4 is -tp 4, DP2 -dp 2, EP8 --enable-expert-parallel. Batch sizes are of all"
    " replicas together."
)
_FASTEST = (
    *("batch_size", "fastest", "as_fast", "tpot", "throughput_per_gpu", "speedup", "speedup_low"),
    "best_draft_length",
)
_CARRIED = (
    *("alternative", "largest_batch_size", "throughput_per_gpu_within", "capacity_plain"),
    *("capacity", "capacity_per_gpu", "cost_per_million_tokens"),
)
"""Columns of tables for people."""


def answer(found: Alternatives) -> forms.Answer:
    """Return a comparison in all forms."""
    from specmodel.answers.ranking import carried_facts

    predictions, ranking, rooms = found.predictions, found.ranking, found.rooms
    facts, words, carried = ranking.facts(), list[str](), found.within
    if carried:
        facts |= carried_facts(carried, ranking.deployments, found.targets)
        if found.carried:
            facts["within"] = Fact(_targets(found))
        words = lines(_WITHIN, facts) or [_NONE_WITHIN]
    is_alone = len(ranking.numbers) == 1 and not any("Left out" in note for note in found.notes)
    fits = any(row["fits"] for row in ranking.best)
    words += [_ALONE] if is_alone else report.opening(_LINES, facts, fits)
    facts["room"] = Fact(rooms, "request")
    held = {name: _held(p, ranking.best, name) for name, p in predictions.items()}

    def page() -> str:
        parts = [_carried(carried), tables(ranking, rooms, _of_layouts(predictions))]
        return _page(predictions, [*words, *found.notes], held, *filter(None, parts))

    return report.comparison(predictions, ranking.best, page, facts)


def _targets(found: Alternatives) -> str:
    from specmodel.serving.capacity import Targets
    from specmodel.serving.facts import within_targets

    return within_targets(Targets(**found.targets))


def _held(prediction: Prediction, rows: Sequence[Row], name: str) -> list[str]:
    """Return a note on drafts of an alternative that CUDA graphs end, not acceptance, if any."""
    rows = [row for row in report.fitting(rows) if row["alternative"] == name]
    is_best = report.is_at_best(prediction)
    return [*filter(None, [is_best and report.ended(rows, prediction, "best_draft_length")])]


def _of_layouts(predictions: Mapping[str, Prediction]) -> list[str]:
    """Return a sentence on vLLM's options for layouts; [] if all are alike or not all run vLLM."""
    layouts = {(p.deployment.layout, p.deployment.expert_parallel) for p in predictions.values()}
    engines = {p.deployment.engine.stack for p in predictions.values()}
    return [_LAYOUTS] if len(layouts) > 1 and engines == {"vllm"} else []


def _carried(rows: Sequence[Row]) -> str:
    """Return the table of what each carries within the targets; "" without targets."""
    names = [name for name in _CARRIED if rows and name in rows[0]]
    columns = chosen(names, ALTERNATIVES, LOADS, capacity="requests/s\nat best")
    return forms.text_table(rows, columns, left=["alternative"]) if rows else ""


def tables(ranking: Ranking, rooms: Mapping[str, int], notes: Sequence[str] = ()) -> str:
    """Return the legend, the fastest at each batch size, and all alternatives side by side.

    `rooms` are the requests that fit in memory with each [request]; `notes` follow the legend.
    """
    from specmodel.prediction.best import ALIKE, UNLIKE

    numbers, are_several = ranking.numbers, len(ranking.numbers) > 1
    legend = [
        f"[{i}] {name}: {f'{rooms[name]} requests fit' if rooms[name] else 'nothing fits'}"
        for name, i in numbers.items()
    ]
    fastest = [
        row
        | {"fastest": numbers[row["alternative"]] if are_several else None}
        | {"as_fast": ranking.close([row, *others]) or None}
        for row, *others in ranking.by_size.values()
    ]
    columns = [
        replace(column, form=_FORMS.get(column.name, column.form), spare=0)
        for column in chosen(_FASTEST, best_draft_length="draft\nlength")
    ]
    cells = forms.text_table(fastest, columns, left=["as fast"])
    cells += f"\n{wrap(_ALIKE.format(ALIKE, UNLIKE))}" * ranking.is_tied + report.left_out(
        ranking.best
    )
    if not are_several:
        return cells
    groups = {
        f"[{i}]": [row for row in ranking.kept if row["alternative"] == name]
        for name, i in numbers.items()
    }
    groups = {title: rows for title, rows in groups.items() if rows}
    each = forms.by_batch_size(ranking.by_size, groups, _CELLS)
    each = f"Each: TPOT, speedup (draft length):\n{each}"
    return "\n\n".join(["\n".join([*legend, *map(wrap, notes)]), cells, each])


def _page(
    predictions: Mapping[str, Prediction],
    words: Sequence[str],
    notes: Mapping[str, Sequence[str]],
    *parts: str,
) -> str:
    """Return the page; lines that do not hold for all alternatives are marked by number.

    `notes` are sentences on alternatives by their names.
    """
    lines = {
        n: [*(f"Warning: {w}." for w in p.warnings), *notes[n], *behind(p.deployment)]
        for n, p in predictions.items()
    }
    shared = _in_all(lines.values())
    warned = [line for line in shared if line.startswith("Warning")]
    common = dict(_in_all(p.assumptions.items() for p in predictions.values()))
    hidden = {*common, *FOR_PROGRAMS}
    owners: dict[str, str] = {}
    for number, (n, p) in enumerate(predictions.items(), 1):
        rest = [f"{key}\xa0{value}" for key, value in p.assumptions.items() if key not in hidden]
        own = [line for line in lines[n] if line not in shared]
        for line in [*own, *[f"Assumed: {', '.join(rest)}."] * bool(rest)]:
            owners[line] = f"{owners.get(line, '')}[{number}]"
    sections = [
        "\n".join(map(wrap, [*words, *what_if_text(common)])),
        *map(wrap, warned),
        *parts,
        "\n".join(wrap(f"{marks} {line}") for line, marks in owners.items()),
        "\n".join([*(wrap(n) for n in shared if n not in warned), assumed_text(common)]),
    ]
    return "\n\n".join(filter(None, sections))


def _in_all(items: Iterable[Collection[Any]]) -> list[Any]:
    """Return the items that all alternatives have."""
    first, *others = items
    return [item for item in first if all(item in other for other in others)]
