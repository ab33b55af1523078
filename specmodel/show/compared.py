"""Show ``compare``: the fastest alternative, where, by how much, and how sure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from specmodel.core.prediction.table import Row
from specmodel.show import forms, report
from specmodel.show.behind import FOR_PROGRAMS, behind
from specmodel.show.facts import Fact, lines
from specmodel.show.glossary import PAGES

if TYPE_CHECKING:
    from specmodel.core.prediction.outcome import Prediction
    from specmodel.plan.alternatives import Alternatives
    from specmodel.plan.ranking import Ranking

_CELLS = "{tpot:s} {speedup:.2f} ({best_draft_length})"
_TEXTS = PAGES["compared"]


def answer(found: Alternatives) -> forms.Answer:
    """Return a comparison in all forms."""
    from specmodel.plan.ranking import carried_facts
    from specmodel.simulate.facts import within_targets

    predictions, ranking, carried = found.predictions, found.ranking, found.within
    facts, words = ranking.facts() | {"room": Fact(found.rooms, "request")}, list[str]()
    if carried:
        facts |= carried_facts(carried, ranking.deployments, found.targets)
        facts["within"] = Fact(within_targets(**found.targets))
        words = lines(PAGES["within"]["alternatives"], facts) or [PAGES["within"]["none"]]
    is_alone = len(ranking.numbers) == 1 and not any("Left out" in note for note in found.notes)
    fits = any(row["fits"] for row in ranking.best)
    words += [_TEXTS["alone"]] if is_alone else report.opening(_TEXTS["lines"], facts, fits)
    layouts = {(p.deployment.layout, p.deployment.expert_parallel) for p in predictions.values()}

    def page() -> str:
        parts = [forms.text_table(carried, "carried")] if carried else []
        is_best = any(case.draft_length is None for case in found.cases.values())
        parts += [tables(ranking, found.rooms, " with 1 drafted" * is_best)]
        return _page(found, words, parts, [_TEXTS["layouts"]] * (len(layouts) > 1))

    return report.comparison(predictions, ranking.best, page, facts)


def tables(ranking: Ranking, rooms: Mapping[str, int], drafted: str = "") -> str:
    """Return the legend, the fastest at each batch size, and all alternatives side by side.

    `rooms` are the requests that fit in memory with each [request], with what is `drafted`.
    """
    numbers, are_several = ranking.numbers, len(ranking.numbers) > 1
    legend = [
        f"[{i}] {name}: {f'{rooms[name]} requests fit{drafted}' if rooms[name] else 'nothing fits'}"
        for name, i in numbers.items()
    ]
    fastest = [
        row
        | {"fastest": numbers[row["alternative"]] if are_several else None}
        | {"as_fast": ranking.close([row, *others]) or None}
        for row, *others in ranking.by_size.values()
    ]
    cells = forms.text_table(fastest, "fastest") + report.left_out(ranking.best)
    if not are_several:
        return cells
    groups: dict[str, list[Row]] = {}
    for row in ranking.kept:
        groups.setdefault(f"[{numbers[row['alternative']]}]", []).append(row)
    each = forms.by_batch_size(ranking.by_size, groups, _CELLS)
    each = f"All alternatives: TPOT, speedup (draft length):\n{each}"
    return "\n\n".join(["\n".join(legend), cells, each])


def _page(
    found: Alternatives, words: Iterable[str], parts: Sequence[str], notes: Iterable[str]
) -> str:
    """Return the page; what does not hold for all alternatives is marked by their numbers."""
    predictions = found.predictions
    first, *rest = (p.assumptions for p in predictions.values())
    common = {k: v for k, v in first.items() if all(other.get(k) == v for other in rest)}
    warnings, own_warnings = _marked({n: p.warnings for n, p in predictions.items()})
    listed = {n: [*behind(p.deployment), *_assumed(p, common)] for n, p in predictions.items()}
    below, own = _marked(listed)
    targets = " / ".join({p.deployment.target.name: None for p in predictions.values()})
    title, *others = found.notes or [targets]
    own = [(marks, f"Warning: {line}.") for marks, line in own_warnings] + own
    notes = [*notes, *map(" ".join, own)]
    common = report.with_brief_source(common)
    return report.laid_out(title, below, common, warnings, [*words, *others], parts, notes)


def _assumed(prediction: Prediction, common: Collection[str]) -> list[str]:
    """Return a line with the assumptions that others do not share; [] for none."""
    rest = {k: v for k, v in prediction.assumptions.items() if k not in (*common, *FOR_PROGRAMS)}
    told = ", ".join(f"{name}\xa0{value}" for name, value in rest.items())
    return [f"Assumed: {told}."] if told else []


def _marked(lines: Mapping[str, Iterable[str]]) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the lines of all alternatives, and those of some with the [numbers] of these."""
    owners: dict[str, str] = {}
    for number, of_one in enumerate(lines.values(), 1):
        for line in of_one:
            owners[line] = f"{owners.get(line, '')}[{number}]"
    every = "".join(f"[{i}]" for i in range(1, len(lines) + 1))
    shared = [line for line, marks in owners.items() if marks == every]
    return shared, [(marks, line) for line, marks in owners.items() if marks != every]
