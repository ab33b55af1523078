"""The page of ``compare``: which alternative is fastest, where, by how much, how sure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from specmodel.base.errors import InputError
from specmodel.base.ranges import spans
from specmodel.base.text import wrap
from specmodel.prediction.table import Form, Row
from specmodel.show import forms, loads, report, within
from specmodel.show.behind import FOR_PROGRAMS, assumed_text, behind, what_if_text
from specmodel.show.columns import chosen
from specmodel.show.facts import Fact, picked

if TYPE_CHECKING:
    from specmodel.answers.alternatives import Alternatives
    from specmodel.answers.ranking import Ranking

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
_HEADLINE = "Fastest per GPU, with speculation: {fastest:at}."
_TIED = "Fastest per GPU with speculation, or not told apart from it: {fastest:at}."
_LINES = (
    "Next: {next_slower:.0%} slower.",
    "One for all: {one_for_all}, at most {one_for_all_slower:.0%} slower (at {one_for_all_at}).",
    "No draft gains: at {no_gain_at}.",
    "Surely pays: the fastest at {surely_pays_at}.",
    "Largest speedup: {most:.2f}x, {most_of} at batch size {most_at}.",
    "Largest speedup of models: {gains_most:at}.",
    "No draft fits in memory: {no_draft_fits_at}.",
    "No checkpoint has the drafter of: {made_up_drafters}.",
)
"""The facts below it, each where it is known."""
_FASTEST = (
    *("batch_size", "fastest", "as_fast", "tpot", "throughput_per_gpu", "speedup", "speedup_low"),
    "best_draft_length",
)


def answer(found: Alternatives) -> forms.Answer:
    """Return a comparison in all forms."""
    from specmodel.answers.curves import compared_rows
    from specmodel.answers.ranking import Ranking, with_gains
    from specmodel.prediction.best import as_good

    predictions, notes = found.predictions, found.notes
    deployments = {name: p.deployment for name, p in predictions.items()}
    contexts = {context for p in predictions.values() for context in p.context_length.ravel()}
    if len(contexts) > 1:
        raise InputError("context_length", sorted(map(int, contexts)), "one context length")
    best = compared_rows(predictions)
    rows, target, part = found.carried, "", ""
    if rows:
        target, part = loads.of_alternatives(found)
        rates = {row["alternative"]: row["capacity_per_gpu"] for row in rows}
        _, *close = as_good(rates, deployments)
        target += f" Too close to tell apart: {'; '.join(close)}." if close else ""
    elif found.targets:
        rows, target, part = within.of_alternatives(found)
    for column in (name for name in (rows or [{}])[0] if name != "alternative"):
        told_of = {row["alternative"]: row[column] for row in rows}
        best = [row | {column: told_of.get(row["alternative"])} for row in best]
    asked = {f"{n}_target": found.targets[n] for n in ("tpot", "ttft") if found.targets.get(n)}
    best = with_gains(predictions, [row | asked for row in best])
    ranking = Ranking(best, deployments)
    rooms = {name: _room(p) for name, p in predictions.items()}
    facts = facts_of(ranking) | {"room": Fact(rooms, "request")}
    opening = [_TIED if ranking.is_tied else _HEADLINE, *_LINES]
    words = report.opening(opening, facts, any(row["fits"] for row in best))
    if len(ranking.numbers) == 1 and not any("Left out" in note for note in notes):
        words = [_ALONE]
    words, held = [*filter(None, [target, *words]), *notes], _held(predictions, best)

    def text() -> str:
        parts = filter(None, [part, tables(ranking, rooms, _of_layouts(predictions))])
        return page(predictions, words, held, *parts)

    return report.comparison(predictions, best, text, facts)


def _held(predictions: Mapping[str, report.Prediction], best: list[Row]) -> dict[str, list[str]]:
    """Return by alternative a note on drafts ended by CUDA graphs, not by acceptance, if any."""
    notes = dict[str, list[str]]()
    for name, p in predictions.items():
        rows = [row for row in report.fitting(best) if row["alternative"] == name]
        note = report.ended(rows, p, "best_draft_length") if report.is_at_best(p) else ""
        notes[name] = [note] if note else []
    return notes


def _room(prediction: report.Prediction) -> int:
    """Return the requests that fit in memory with the given draft, or one of 1 token [request]."""
    memory = prediction.evaluation.memory
    memory = replace(memory, verify_tokens=2.0) if report.is_at_best(prediction) else memory
    return int(memory.max_batch_size.max())


def _of_layouts(predictions: Mapping[str, report.Prediction]) -> list[str]:
    """Return a sentence on vLLM's options for layouts; [] if all are alike or not all run vLLM."""
    layouts = {(p.deployment.layout, p.deployment.expert_parallel) for p in predictions.values()}
    engines = {p.deployment.engine.stack for p in predictions.values()}
    note = (
        "For vLLM, TP4 is -tp 4, DP2 -dp 2, EP8 --enable-expert-parallel. Batch sizes are of all"
        " replicas together."
    )
    return [note] if len(layouts) > 1 and engines == {"vllm"} else []


def facts_of(ranking: Ranking) -> dict[str, Fact]:
    """Return the fastest alternative by batch size, the best one for all, and what drafts gain."""
    winners, every, deployments = ranking.winners(), ranking.by_size.values(), ranking.deployments
    models = {d.target.name for d in deployments.values()}
    name, slower, at = ranking.for_all() or (None, None, None)
    one = name if len(winners) > 1 else None
    top = max((row for rows in every for row in rows), key=lambda row: float(row["speedup"]))
    held: dict[str, list[int]] = {}
    for row in ranking.best:
        if row["limited_by"] == "memory":
            held.setdefault(row["alternative"], []).append(row["batch_size"])

    def where(holds: Callable[[Row], bool]) -> Fact:
        return Fact(spans([*ranking.by_size], (holds(rows[0]) for rows in every)), "request")

    return {
        "fastest": Fact(winners),
        "next_slower": Fact(ranking.next_slower),
        "one_for_all": Fact(one),
        "one_for_all_slower": Fact(one and slower),
        "one_for_all_at": Fact(one and at, "request"),
        "no_gain_at": where(lambda row: round(row["speedup"], 2) <= 1),
        "surely_pays_at": where(lambda row: (row.get("speedup_low") or 0) > 1),
        **picked("most", top, "speedup", of="alternative", at="batch_size"),
        "gains_most": Fact(ranking.winners("speedup") if len(models) > 1 else None),
        "no_draft_fits_at": Fact({n: [(min(own), max(own))] for n, own in held.items()}),
        "made_up_drafters": Fact([n for n, d in deployments.items() if d.drafter.is_made_up]),
    }


def tables(ranking: Ranking, rooms: Mapping[str, int], notes: Sequence[str] = ()) -> str:
    """Return the legend, the fastest at each batch size, and all alternatives side by side.

    `rooms` are the requests that fit in memory with each [request]; `notes` follow the legend.
    """
    from specmodel.prediction.best import ALIKE, UNLIKE

    legend = [
        f"[{i}] {name}: {f'{rooms[name]} requests fit' if rooms[name] else 'nothing fits'}"
        for name, i in ranking.numbers.items()
    ]
    parts = ["\n".join([*legend, *map(wrap, notes)])] if len(legend) > 1 else []
    number = ranking.numbers if len(legend) > 1 else dict.fromkeys(ranking.numbers)
    shown = [
        rows[0]
        | {"fastest": number[rows[0]["alternative"]], "as_fast": ranking.close(rows) or None}
        for rows in ranking.by_size.values()
    ]
    columns = [
        replace(column, form=_FORMS.get(column.name, column.form), spare=0)
        for column in chosen(_FASTEST, best_draft_length="draft\nlength")
    ]
    cells = forms.text_table(shown, columns, left=["as fast"])
    if ranking.is_tied:
        note = (
            f"As fast: less than {ALIKE:.0%} slower ({UNLIKE:.0%} where model, drafter, GPU or"
            " engine differ), too little to tell them apart."
        )
        cells += f"\n{wrap(note)}"
    parts.append(cells + report.left_out(ranking.best))
    if len(legend) > 1:
        groups = {
            f"[{i}]": rows
            for name, i in ranking.numbers.items()
            if (rows := [row for row in ranking.kept if row["alternative"] == name])
        }
        cells = forms.by_batch_size(ranking.by_size, groups, _CELLS)
        parts.append(f"Each: TPOT, speedup (draft length):\n{cells}")
    return "\n\n".join(parts)


def page(
    predictions: Mapping[str, report.Prediction],
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
    own = {n: [line for line in lines[n] if line not in shared] for n in lines}
    for n, p in predictions.items():
        rest = [f"{key}\xa0{value}" for key, value in p.assumptions.items() if key not in hidden]
        own[n] += [f"Assumed: {', '.join(rest)}."] if rest else []
    sections = [
        "\n".join(map(wrap, [*words, *what_if_text(common)])),
        *map(wrap, warned),
        *parts,
        "\n".join(_by_number(own)),
        "\n".join([*(wrap(n) for n in shared if n not in warned), assumed_text(common)]),
    ]
    return "\n\n".join(filter(None, sections))


def _by_number(lines: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the lines, each after the [numbers] of the alternatives that it holds for.

    Of lines that differ only in figures the first is kept, and marked "(numbers of [1])".
    """
    owners: dict[str, dict[int, str]] = {}
    for number, of_one in enumerate(lines.values(), 1):
        for line in of_one:
            is_told_of = not line.startswith(("Assumed", "Kernels", "Dtypes"))
            skeleton = re.sub(r"[\d.,-]+", "#", line) if is_told_of else line
            owners.setdefault(skeleton, {})[number] = line
    told = []
    for of_each in owners.values():
        marks, line = "".join(f"[{number}]" for number in of_each), next(iter(of_each.values()))
        alike = "" if len({*of_each.values()}) == 1 else f" (numbers of [{next(iter(of_each))}])"
        told.append(wrap(f"{marks} {line}{alike}").replace("\xa0", " "))
    return told


def _in_all(items: Iterable[Collection[Any]]) -> list[Any]:
    """Return the items that all alternatives have."""
    first, *others = items
    return [item for item in first if all(item in other for other in others)]
